//! Times of a target's kinds within the interval.
//!
//! ```text
//!  phase                        phase + seconds       phase + interval
//!  ├─ process_cpu records ──────┤ memory  mutex  ... ├─ process_cpu records ──
//!                               └────── gap ─────────┘
//! ```
//!
//! A time depends only on hashes of the target and of the kind, and on the recording kinds of the target. So
//! it is equal after a restart, and another target or snapshot kind does not move it.

use std::time::Duration;

use athanor_profile::encoding::hash::{ContentHash, hash_tagged};

use crate::scrape_target::{ProfileKind, ScrapeTarget};

const TARGET_HASH_DOMAIN: u64 = 0x7461_7267_6574;
const KINDS_HASH_DOMAIN: u64 = 0x006b_696e_6473;
const PHASE_HASH_DOMAIN: u64 = 0x0070_6861_7365;
/// Time of an interval that recordings leave to the other kinds.
const MIN_GAP: Duration = Duration::from_secs(1);
/// Part of a short interval that recordings leave to the other kinds: one in so many.
const MIN_GAP_DIVISOR: u32 = 4;
/// Part of the gap before the first snapshot, for the response of the recording.
const GAP_START: f64 = 0.1;
/// Part of the gap in which snapshots start. The rest is for their responses.
const GAP_USE: f64 = 0.5;
/// Shortest interval, for intervals that the configuration did not check.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Identity of a target: its job, address and labels. A target that shares them with one before it also has the
/// requests of its kinds in its identity.
pub(super) type TargetKey = ContentHash;

/// Time of a kind within the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KindSlot {
    /// Interval between two scrapes.
    pub(super) interval: Duration,
    /// Start within the interval, counted from Unix time 0.
    pub(super) phase: Duration,
    /// Seconds that the target records.
    pub(super) seconds: Option<u32>,
    /// Time that belongs to no recording, before the next one of the target.
    pub(super) gap: Duration,
}

/// Returns the identity of a target.
pub(super) fn target_key(target: &ScrapeTarget) -> TargetKey {
    let mut content = target.labels.hash().to_le_bytes().to_vec();
    put_texts(&mut content, [&target.job.name, &target.scheme, &target.address]);
    hash_tagged(TARGET_HASH_DOMAIN, &content)
}

/// Returns the identity of a target that shares job, address and labels with another one, but not the kinds.
pub(super) fn kinds_key(key: TargetKey, kinds: &[ProfileKind]) -> TargetKey {
    let mut content = key.to_le_bytes().to_vec();
    for kind in kinds {
        put_texts(&mut content, [&kind.name, &kind.metric_name, &kind.path]);
        content.extend_from_slice(&(kind.params.len() as u64).to_le_bytes());
        for (name, value) in &kind.params {
            put_texts(&mut content, [name, value]);
        }
    }
    hash_tagged(KINDS_HASH_DOMAIN, &content)
}

/// Appends texts with their lengths.
fn put_texts<const COUNT: usize>(content: &mut Vec<u8>, texts: [&String; COUNT]) {
    for text in texts {
        content.extend_from_slice(&(text.len() as u64).to_le_bytes());
        content.extend_from_slice(text.as_bytes());
    }
}

/// Returns the slots of a target's kinds, in their order.
pub(super) fn plan_target(key: TargetKey, target: &ScrapeTarget) -> Vec<KindSlot> {
    let interval = target.job.interval.max(MIN_INTERVAL);
    let mut recordings: Vec<&ProfileKind> =
        target.kinds.iter().filter(|kind| kind.seconds.is_some()).collect();
    recordings.sort_by(|left, right| left.name.cmp(&right.name));
    let seconds = fit_recordings(&recordings, interval);
    let recorded = Duration::from_secs(seconds.iter().map(|&seconds| u64::from(seconds)).sum());
    let gap = interval.saturating_sub(recorded) / recordings.len().max(1) as u32;
    let mut starts = Vec::with_capacity(recordings.len());
    let mut start = recordings.first().map_or(Duration::ZERO, |kind| interval.mul_f64(fraction(key, kind)));
    for &seconds in &seconds {
        starts.push(start);
        start += Duration::from_secs(u64::from(seconds)) + gap;
    }
    let slot_of = |kind: &ProfileKind| {
        let recording = recordings.iter().position(|recording| std::ptr::eq(*recording, kind));
        if let Some(index) = recording {
            let phase = modulo(starts[index], interval);
            return KindSlot { interval, phase, seconds: Some(seconds[index]), gap };
        }
        let fraction = fraction(key, kind);
        if recordings.is_empty() {
            let phase = interval.mul_f64(fraction);
            return KindSlot { interval, phase, seconds: None, gap: interval / target.kinds.len() as u32 };
        }
        // The bits that select the gap are not those that place the start in it.
        let index = (phase_hash(key, kind) >> 64) as usize % recordings.len();
        let gap_start = starts[index] + Duration::from_secs(u64::from(seconds[index]));
        let phase = modulo(gap_start + gap.mul_f64(GAP_START + GAP_USE * fraction), interval);
        KindSlot { interval, phase, seconds: None, gap }
    };
    target.kinds.iter().map(slot_of).collect()
}

/// Returns the seconds of each recording. Those that do not fit in the interval together are shortened in
/// proportion.
fn fit_recordings(recordings: &[&ProfileKind], interval: Duration) -> Vec<u32> {
    let wanted: Vec<u64> =
        recordings.iter().map(|kind| u64::from(kind.seconds.unwrap_or_default()).max(1)).collect();
    let total: u64 = wanted.iter().sum();
    let available = interval.saturating_sub(MIN_GAP.min(interval / MIN_GAP_DIVISOR)).as_secs();
    let fit = |&wanted: &u64| match total > available {
        true => (u128::from(wanted) * u128::from(available) / u128::from(total)).max(1) as u32,
        false => wanted as u32,
    };
    wanted.iter().map(fit).collect()
}

fn phase_hash(key: TargetKey, kind: &ProfileKind) -> ContentHash {
    let mut content = key.to_le_bytes().to_vec();
    content.extend_from_slice(kind.name.as_bytes());
    hash_tagged(PHASE_HASH_DOMAIN, &content)
}

/// Returns a number from 0 to below 1 that depends on target and kind.
fn fraction(key: TargetKey, kind: &ProfileKind) -> f64 {
    f64::from(phase_hash(key, kind) as u32) / (f64::from(u32::MAX) + 1.0)
}

fn modulo(time: Duration, interval: Duration) -> Duration {
    Duration::from_nanos((time.as_nanos() % interval.as_nanos()) as u64)
}

#[cfg(test)]
mod tests {
    use super::super::test_profiles::{default_kinds, job, kind, target};
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(15);
    const SECOND: Duration = Duration::from_secs(1);

    fn slots(instance: &str, kinds: Vec<ProfileKind>) -> Vec<KindSlot> {
        let target = target(&job(INTERVAL, 10 * SECOND), instance, kinds);
        plan_target(target_key(&target), &target)
    }

    #[test]
    fn snapshots_start_in_the_gap_of_the_recording() {
        for host in 0..200 {
            let slots = slots(&format!("host-{host}:80"), default_kinds());
            let recording = slots[0];
            assert_eq!((recording.seconds, recording.gap), (Some(14), SECOND));
            for snapshot in &slots[1..] {
                let after = modulo(INTERVAL + snapshot.phase - recording.phase, INTERVAL);
                let gap = Duration::from_millis(14_100)..Duration::from_millis(14_600);
                assert!(gap.contains(&after), "{after:?}");
            }
        }
    }

    #[test]
    fn recordings_spread_over_the_interval() {
        let mut counts = [0; 15];
        for host in 0..1500 {
            let phase = slots(&format!("host-{host}:80"), default_kinds())[0].phase;
            counts[phase.as_secs() as usize] += 1;
        }
        assert!(counts.iter().all(|count| (50..150).contains(count)), "{counts:?}");
    }

    #[test]
    fn other_snapshots_do_not_move_a_kind() {
        let all = slots("a:1", default_kinds());
        let mut fewer = default_kinds();
        fewer.remove(2);
        fewer.reverse();
        let fewer = slots("a:1", fewer);
        assert_eq!(fewer, [all[4], all[3], all[1], all[0]]);
        assert_ne!(slots("b:1", default_kinds())[0].phase, all[0].phase);
    }

    #[test]
    fn recordings_that_do_not_fit_are_shortened_and_do_not_overlap() {
        let kinds = vec![kind("process_cpu", Some(14)), kind("fgprof", Some(14)), kind("memory", None)];
        let slots = slots("a:1", kinds);
        assert_eq!((slots[0].seconds, slots[1].seconds), (Some(7), Some(7)));
        let gap = Duration::from_millis(500);
        assert_eq!((slots[0].gap, slots[1].gap), (gap, gap));
        let distance = modulo(INTERVAL + slots[0].phase - slots[1].phase, INTERVAL);
        assert_eq!(distance, 7 * SECOND + gap);
    }

    #[test]
    fn target_without_recordings_uses_the_whole_interval() {
        let mut counts = [0; 3];
        for host in 0..300 {
            let slots = slots(&format!("host-{host}:80"), vec![kind("memory", None)]);
            counts[slots[0].phase.as_secs() as usize / 5] += 1;
        }
        assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
    }
}
