//! Metrics of the write-ahead log.

use std::collections::BTreeMap;

use athanor_chassis::observability::metric_family::{MetricCollector, MetricFamily, metric_collector};

use super::{DamageScope, Log, LogDamage, LogHealth, LogUsage};

/// Label value for damage of unknown groups.
const ALL_GROUPS: &str = "all";

/// State of the log at one scrape.
pub struct WalSnapshot {
    usage: LogUsage,
    health: LogHealth,
    has_failed: bool,
}

/// Durable data that one group lost, as recovery found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupDamage {
    /// Number of the raft group, or `all`.
    group: String,
    ranges: u64,
    bytes: u64,
    lost_entries: u64,
}

/// Metrics of the log.
pub const WAL_METRICS: &[MetricFamily<WalSnapshot>] = &[
    MetricFamily::gauge(
        "athanor_wal_segments",
        "Number of segment files of the write-ahead log that are in use",
        &[],
        |wal, samples| samples.add(wal.usage.segments),
    ),
    MetricFamily::gauge(
        "athanor_wal_size_bytes",
        "Size of all segment files of the write-ahead log, in bytes",
        &[],
        |wal, samples| samples.add(wal.usage.capacity),
    ),
    MetricFamily::gauge(
        "athanor_wal_live_bytes",
        "Size of the data in the write-ahead log that is still needed, in bytes",
        &[],
        |wal, samples| samples.add(wal.usage.live),
    ),
    MetricFamily::gauge(
        "athanor_wal_pending_bytes",
        "Size of payloads that wait for their commit to the write-ahead log, in bytes",
        &[],
        |wal, samples| samples.add(wal.usage.waiting),
    ),
    MetricFamily::gauge(
        "athanor_wal_failed",
        "Failure of the write-ahead log: 1 if its disk failed and it rejects writes until a restart, else 0",
        &[],
        |wal, samples| samples.add(u32::from(wal.has_failed)),
    ),
    MetricFamily::gauge(
        "athanor_wal_disk_free_bytes",
        "Free space of the disk of the write-ahead log, in bytes",
        &[],
        |wal, samples| {
            if let Some(free) = wal.health.free {
                samples.add(free);
            }
        },
    ),
    MetricFamily::counter(
        "athanor_wal_written_bytes_total",
        "Number of bytes written to the write-ahead log",
        &[],
        |wal, samples| samples.add(wal.usage.written),
    ),
    MetricFamily::histogram(
        "athanor_wal_fsync_duration_seconds",
        "Duration of each sync of the write-ahead log to its disk, in seconds",
        &[],
        |wal, samples| samples.add_durations(&[], &wal.health.syncs),
    ),
    MetricFamily::histogram(
        "athanor_wal_commit_bytes",
        "Size of the payloads that one sync of the write-ahead log made durable, in bytes",
        &[],
        |wal, samples| samples.add_numbers(&[], &wal.health.commit_bytes),
    ),
    MetricFamily::histogram(
        "athanor_wal_commit_batches",
        "Number of batches that one sync of the write-ahead log made durable",
        &[],
        |wal, samples| samples.add_numbers(&[], &wal.health.commit_batches),
    ),
];

/// Metrics of damaged acknowledged ranges of the log [INV-07]. A range counts once for each group that it
/// affects.
pub const WAL_DAMAGE_METRICS: &[MetricFamily<GroupDamage>] = &[
    MetricFamily::gauge(
        "athanor_wal_corrupt_ranges",
        "Number of acknowledged ranges of the write-ahead log that were damaged at the start, by raft group: 0 is the \
         catalog, n a shard, all if the groups are unknown",
        &["group"],
        |damage, samples| samples.add_labeled(&[&damage.group], damage.ranges),
    ),
    MetricFamily::gauge(
        "athanor_wal_corrupt_bytes",
        "Size of acknowledged ranges of the write-ahead log that were damaged at the start, in bytes, by raft group",
        &["group"],
        |damage, samples| samples.add_labeled(&[&damage.group], damage.bytes),
    ),
    MetricFamily::gauge(
        "athanor_wal_lost_entries",
        "Number of entries in damaged ranges of the write-ahead log, by raft group, as far as it is known",
        &["group"],
        |damage, samples| samples.add_labeled(&[&damage.group], damage.lost_entries),
    ),
];

/// Returns the collector of [`WAL_METRICS`].
pub fn wal_collector(log: Log) -> MetricCollector {
    metric_collector(WAL_METRICS, move || {
        Some(WalSnapshot { usage: log.usage(), health: log.health(), has_failed: log.failure().is_some() })
    })
}

/// Returns the collector of [`WAL_DAMAGE_METRICS`] for the damage that recovery found.
pub fn wal_damage_collector(damage: &[LogDamage]) -> MetricCollector {
    let groups = sum_by_group(damage);
    metric_collector(WAL_DAMAGE_METRICS, move || groups.clone())
}

fn sum_by_group(damage: &[LogDamage]) -> Vec<GroupDamage> {
    let mut groups: BTreeMap<String, GroupDamage> = BTreeMap::new();
    for LogDamage { at, hurt } in damage {
        let affected = match hurt {
            DamageScope::All => vec![(ALL_GROUPS.to_owned(), 0)],
            DamageScope::Groups(all) => {
                all.iter().map(|(group, _, lost)| (group.to_string(), *lost)).collect()
            }
        };
        for (group, lost_entries) in affected {
            let sum = groups
                .entry(group.clone())
                .or_insert_with(|| GroupDamage { group, ..GroupDamage::default() });
            sum.ranges += 1;
            sum.bytes += at.end - at.start;
            sum.lost_entries += lost_entries;
        }
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_range_counts_for_each_group() {
        let damage = [
            LogDamage { at: 10..20, hurt: DamageScope::Groups(vec![(0, 3, 1), (7, 1, 2)]) },
            LogDamage { at: 30..35, hurt: DamageScope::Groups(vec![(7, 9, 4)]) },
            LogDamage { at: 40..41, hurt: DamageScope::All },
        ];
        let sum = |group: &str, ranges, bytes, lost_entries| GroupDamage {
            group: group.to_owned(),
            ranges,
            bytes,
            lost_entries,
        };
        let expected = [sum("0", 1, 10, 1), sum("7", 2, 15, 6), sum("all", 1, 1, 0)];
        assert_eq!(sum_by_group(&damage), expected);
    }
}
