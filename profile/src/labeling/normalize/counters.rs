//! Detection of values that are cumulative since the start of the process.
//!
//! Go's heap, block and mutex profiles are cumulative: each snapshot includes all previous ones. Their sum
//! over time would count the same values many times. A shard therefore stores the increase over the previous
//! snapshot. A client that subtracts by itself declares it by the label `__delta__` or by the metric name.

use crate::data_model::labels::Labels;
use crate::data_model::model::{ProfileHeader, ValueType};

/// Label by which a client declares its cumulative values. `false` declares none, and `true` the types that
/// Go sends. Any other value is a comma-separated list of types.
pub const DELTA_LABEL: &str = "__delta__";

const METRIC_LABEL: &str = "__name__";
/// Metric names of Go's cumulative profiles. Clients that subtract use other names.
const CUMULATIVE_METRICS: [&str; 3] = ["memory", "block", "mutex"];
/// Cumulative types, in the pairs in which Go sends them. Values in use are gauges and not listed.
const CUMULATIVE_TYPES: [[(&str, &str); 2]; 2] = [
    [("alloc_objects", "count"), ("alloc_space", "bytes")],
    [("contentions", "count"), ("delay", "nanoseconds")],
];

/// Returns for each sample type of a profile whether its values are cumulative.
pub fn find_cumulative_types(sent: &Labels, header: &ProfileHeader) -> Vec<bool> {
    let go = match sent.get(DELTA_LABEL) {
        Some("false") => false,
        Some("true") => true,
        Some(named) => {
            let is_named = |of: &ValueType| named.split(',').any(|kind| of.kind == kind);
            return header.types.iter().map(is_named).collect();
        }
        // A snapshot has no duration. A difference that Go computed itself has one.
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
