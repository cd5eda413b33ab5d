//! What is measured. It is held to limits only where that is asked for: a machine that has other work is slow.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use crate::chaos::ledger::Took;
use crate::chaos::say;

/// Uploads that were begun within so long after an event tell how long it was felt.
const FELT: Duration = Duration::from_secs(5);
/// What the death of one process may cost an upload.
const PUSHES_AGAIN: Duration = Duration::from_secs(3);
const WHOLE_AFTER: Duration = Duration::from_secs(30);
const ENDS_WITHIN: Duration = Duration::from_secs(10);

pub const LEADER_DIES: &str = "an ingester that leads dies";

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

/// What took longer than it may. Only events that no other came close to tell about uploads.
pub fn misses(events: &[Event], took: &[Took], ends: &[Duration]) -> Vec<String> {
    let mut misses = Vec::new();
    for (place, event) in events.iter().enumerate() {
        let miss = |what: &str, took: Duration, limit: Duration| {
            format!("{}, at {:.1} s: {what} took {took:.2?} of {limit:?}", event.what, event.at.as_secs_f64())
        };
        if let Some(whole) = event.whole_after.filter(|whole| *whole > WHOLE_AFTER) {
            misses.push(miss("until all was whole", whole, WHOLE_AFTER));
        }
        let is_alone = place.checked_sub(1).is_none_or(|before| event.at - events[before].at >= FELT)
            && events.get(place + 1).is_none_or(|next| next.at - event.at >= FELT);
        if is_alone
            && event.what == LEADER_DIES
            && let Some(slowest) = slowest(&(event.at..event.at + FELT), took)
            && slowest > PUSHES_AGAIN
        {
            misses.push(miss("an upload", slowest, PUSHES_AGAIN));
        }
    }
    let slow = ends.iter().filter(|end| **end > ENDS_WITHIN);
    misses
        .extend(slow.map(|end| format!("a process that was asked to end took {end:.2?} of {ENDS_WITHIN:?}")));
    misses
}

/// Prints what followed each kind of event.
pub fn tell(events: &[Event], took: &[Took], ends: &[Duration]) {
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    for (place, event) in events.iter().enumerate() {
        let kind = kinds.entry(event.what).or_default();
        // What is felt after the next event may be of that.
        let next = events.get(place + 1).map_or(Duration::MAX, |next| next.at);
        let felt = event.at..(event.at + FELT).min(next);
        kind.gaps.extend(gap(&felt, took));
        kind.slowest.extend(slowest(&felt, took));
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
    let took = median_and_most(&mut ends.to_vec());
    say(&format!("  asked to end, and ended after      {:>4};  {took}", ends.len()));
}

/// The longest time without an acknowledgement, of those that began then. Threads that note theirs at once may do so in
/// another order.
fn gap(felt: &Range<Duration>, took: &[Took]) -> Option<Duration> {
    let from = took.partition_point(|took| took.acknowledged < felt.start);
    let times = took[from..].iter().map(|took| took.acknowledged);
    let begins = [felt.start].into_iter().chain(times.clone());
    let gaps = begins.zip(times).take_while(|(begun, _)| *begun <= felt.end);
    gaps.map(|(begun, ended)| ended.saturating_sub(begun)).max()
}

/// How long uploads took that were under way when it began, or were begun then.
fn slowest(felt: &Range<Duration>, took: &[Took]) -> Option<Duration> {
    let from = took.partition_point(|took| took.acknowledged < felt.start);
    let among = took[from..].iter().filter(|took| took.begun <= felt.end);
    among.map(|took| took.acknowledged.saturating_sub(took.begun.max(felt.start))).max()
}

fn median_and_most(of: &mut [Duration]) -> String {
    of.sort_unstable();
    match (of.get(of.len() / 2), of.last()) {
        (Some(median), Some(most)) => format!("{:>6.2} {:>6.2} s", median.as_secs_f64(), most.as_secs_f64()),
        _ => "     -      -  ".to_owned(),
    }
}
