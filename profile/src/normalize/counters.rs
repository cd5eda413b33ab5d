//! Which values of a profile count since the process began.
//!
//! Go's heap, block and mutex profiles count from the start of the process: each snapshot has all that the one before
//! had. Added up over time they would count the same again and again, so a shard stores what each adds to the one
//! before. Who subtracts by itself says so, by the label `__delta__` or by the name of the measurement.

use crate::labels::Labels;
use crate::model::{ProfileHeader, ValueType};

/// How a sender says which of its values count: none where it is `false`, those that Go sends where it is `true`, and
/// else the types that it names, with commas between them.
pub const DELTA_LABEL: &str = "__delta__";

const METRIC_LABEL: &str = "__name__";
/// Measurements of Go that count since the start. Those of clients that subtract have other names.
const CUMULATIVE_METRICS: [&str; 3] = ["memory", "block", "mutex"];
/// The types that count, in the pairs in which Go sends them. What is in use is a level, and no count.
const CUMULATIVE_TYPES: [[(&str, &str); 2]; 2] = [
    [("alloc_objects", "count"), ("alloc_space", "bytes")],
    [("contentions", "count"), ("delay", "nanoseconds")],
];

/// For each sample type of a profile whether its values count since the process began.
pub fn find_cumulative_types(sent: &Labels, header: &ProfileHeader) -> Vec<bool> {
    let go = match sent.get(DELTA_LABEL) {
        Some("false") => false,
        Some("true") => true,
        Some(named) => {
            let is_named = |of: &ValueType| named.split(',').any(|kind| of.kind == kind);
            return header.types.iter().map(is_named).collect();
        }
        // A snapshot took no time; a difference that Go made itself says how long it took.
        None => {
            header.duration_nanos == 0
                && sent.get(METRIC_LABEL).is_some_and(|name| CUMULATIVE_METRICS.contains(&name))
        }
    };
    let is = |of: &ValueType, (kind, unit): (&str, &str)| of.kind == kind && of.unit == unit;
    let has = |&wanted: &(&str, &str)| header.types.iter().any(|of| is(of, wanted));
    let pairs = CUMULATIVE_TYPES.iter().filter(|pair| go && pair.iter().all(has));
    let counting: Vec<(&str, &str)> = pairs.flatten().copied().collect();
    header.types.iter().map(|of| counting.iter().any(|&counting| is(of, counting))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAP: [(&str, &str); 4] = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ];
    const LOCKS: [(&str, &str); 2] = [("contentions", "count"), ("delay", "nanoseconds")];

    fn counts(labels: &[(&str, &str)], types: &[(&str, &str)], duration_nanos: i64) -> Vec<bool> {
        let labels = Labels::new(labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
        let types = types.iter().map(|&(kind, unit)| ValueType::new(kind, unit)).collect();
        find_cumulative_types(&labels, &ProfileHeader { types, duration_nanos, ..ProfileHeader::default() })
    }

    #[test]
    fn snapshots_of_go_count_and_levels_do_not() {
        assert_eq!(counts(&[(METRIC_LABEL, "memory")], &HEAP, 0), [true, true, false, false]);
        for metric in ["block", "mutex"] {
            assert_eq!(counts(&[(METRIC_LABEL, metric)], &LOCKS, 0), [true, true]);
        }
        assert_eq!(counts(&[(METRIC_LABEL, "memory")], &HEAP[1..], 0), [false; 3]);
    }

    #[test]
    fn who_subtracts_is_believed() {
        assert_eq!(counts(&[(METRIC_LABEL, "godeltaprof_memory")], &HEAP, 0), [false; 4]);
        assert_eq!(counts(&[(METRIC_LABEL, "memory")], &HEAP, 10_000_000_000), [false; 4]);
        assert_eq!(counts(&[(METRIC_LABEL, "memory"), (DELTA_LABEL, "false")], &HEAP, 0), [false; 4]);
        assert_eq!(counts(&[(METRIC_LABEL, "process_cpu")], &HEAP, 0), [false; 4]);
    }

    #[test]
    fn who_asks_for_it_gets_differences() {
        let asked =
            counts(&[(METRIC_LABEL, "godeltaprof_memory"), (DELTA_LABEL, "true")], &HEAP, 10_000_000_000);
        assert_eq!(asked, [true, true, false, false]);
        let some = [("bytes_read", "bytes"), ("alloc_space", "bytes"), ("files_read", "count")];
        assert_eq!(counts(&[(DELTA_LABEL, "files_read,bytes_read")], &some, 0), [true, false, true]);
    }
}
