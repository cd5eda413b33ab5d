//! What is measured. Nothing here is held to a limit: a machine that has other work is slow.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ledger::Took;
use crate::say;

/// Uploads that were begun within so long after an event tell how long it was felt.
const FELT: Duration = Duration::from_secs(5);

/// Something that happened to the cluster.
#[derive(Clone, Debug)]
pub struct Event {
    pub what: &'static str,
    pub at: Duration,
    /// How long until all was whole again, from the moment when everything could run again.
    pub whole_after: Option<Duration>,
}

/// Of all events of a kind.
#[derive(Default)]
struct Kind {
    gaps: Vec<Duration>,
    slowest: Vec<Duration>,
    whole_after: Vec<Duration>,
}

/// Prints what followed each kind of event.
pub fn tell(events: &[Event], took: &[Took]) {
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    for event in events {
        let kind = kinds.entry(event.what).or_default();
        kind.gaps.extend(gap(event.at, took));
        kind.slowest.extend(slowest(event.at, took));
        kind.whole_after.extend(event.whole_after);
    }
    say(
        "what happened: times; no acknowledgement for; slowest upload until acknowledged; whole after (median, most)",
    );
    for (what, kind) in &mut kinds {
        let count = events.iter().filter(|event| event.what == *what).count();
        let [gaps, slowest, whole] =
            [&mut kind.gaps, &mut kind.slowest, &mut kind.whole_after].map(|of| median_and_most(of));
        say(&format!("  {what:<34} {count:>4};  {gaps};  {slowest};  {whole}"));
    }
}

/// The longest time without an acknowledgement, of those that began soon after a moment.
fn gap(at: Duration, took: &[Took]) -> Option<Duration> {
    let from = took.partition_point(|took| took.acknowledged < at);
    let mut before = at;
    let mut most = None;
    for took in &took[from..] {
        most = most.max(Some(took.acknowledged - before));
        before = took.acknowledged;
        if before > at + FELT {
            break;
        }
    }
    most
}

/// How long after a moment uploads took that were under way then, or begun soon after it.
fn slowest(at: Duration, took: &[Took]) -> Option<Duration> {
    let from = took.partition_point(|took| took.acknowledged < at);
    let felt = took[from..].iter().filter(|took| took.begun <= at + FELT);
    felt.map(|took| took.acknowledged - took.begun.max(at)).max()
}

fn median_and_most(of: &mut [Duration]) -> String {
    of.sort_unstable();
    match (of.get(of.len() / 2), of.last()) {
        (Some(median), Some(most)) => format!("{:>6.2} {:>6.2} s", median.as_secs_f64(), most.as_secs_f64()),
        _ => "     -      -  ".to_owned(),
    }
}
