//! Choice of a job's outputs: one per window of the job's level, or per piece of a large one.

use std::collections::{BTreeMap, BTreeSet};

use athanor_block::{RowSelection, RowSummary, SeriesPartition};
use athanor_catalog::{MAX_JOB_OUTPUTS, TENANT_FOLDER_LEVEL};
use athanor_chassis::window_end;

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;
/// Widths of windows in nanoseconds: 10 minutes, 1 hour, 1 day, then 30, 360 and 10 800 days. The first four
/// belong to the levels from 1 on. Each is a multiple of the one before, and at most [`MAX_JOB_OUTPUTS`] times as
/// wide. So a job over one wide window has outputs of narrower ones.
const WINDOW_WIDTHS: [i64; 6] = [600 * SECOND, 3_600 * SECOND, DAY, 30 * DAY, 360 * DAY, 10_800 * DAY];

/// Output of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedOutput {
    /// Tenants with rows in the window.
    pub(crate) tenants: BTreeSet<String>,
    /// Rows that the output holds.
    pub(crate) rows: RowSelection,
}

/// Returns the width of a level's windows in nanoseconds.
pub(crate) fn window_width(level: u8) -> i64 {
    let place = usize::from(level.clamp(1, 4)) - 1;
    WINDOW_WIDTHS[place]
}

/// Returns the windows of a job with their tenants. `pieces` is the number of outputs that each of them will
/// have. If there are too many, wider windows are chosen: profiles of 1970 and 2100 must not fail a job.
///
/// The summary has windows of the level's width.
pub(crate) fn plan_windows(level: u8, summary: &RowSummary, pieces: usize) -> Vec<PlannedOutput> {
    let max_windows = (MAX_JOB_OUTPUTS / pieces.max(1)).max(1);
    let narrowest = window_width(level);
    let widths = WINDOW_WIDTHS.into_iter().filter(|width| *width >= narrowest);
    let fitting = widths.map(|width| tenants_by_window(summary, width)).find(|of| of.len() <= max_windows);
    let windows = fitting.unwrap_or_else(|| {
        let tenants = summary.tenants.iter().filter(|(_, windows)| !windows.is_empty());
        let rows = RowSelection::default();
        vec![PlannedOutput { tenants: tenants.map(|(tenant, _)| tenant.clone()).collect(), rows }]
    });
    if level < TENANT_FOLDER_LEVEL {
        return windows;
    }
    // A block of these levels holds one tenant.
    let each = |window: PlannedOutput| {
        let rows = window.rows;
        window
            .tenants
            .into_iter()
            .map(move |tenant| PlannedOutput { tenants: [tenant].into(), rows: rows.clone() })
    };
    windows.into_iter().flat_map(each).collect()
}

/// Splits an output into one per partition of its series.
pub(crate) fn split_output(output: &PlannedOutput, partitions: &[SeriesPartition]) -> Vec<PlannedOutput> {
    let piece = |partition: &SeriesPartition| {
        let series = (partitions.len() > 1).then(|| partition.clone());
        PlannedOutput { rows: RowSelection { series, ..output.rows.clone() }, ..output.clone() }
    };
    partitions.iter().map(piece).collect()
}

fn tenants_by_window(summary: &RowSummary, width: i64) -> Vec<PlannedOutput> {
    let mut windows: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
    for (tenant, ends) in &summary.tenants {
        for &end in ends.keys() {
            windows.entry(window_end(end, width)).or_default().insert(tenant.clone());
        }
    }
    let output = |(end, tenants)| PlannedOutput { tenants, rows: RowSelection::from_window_end(end, width) };
    windows.into_iter().map(output).collect()
}

#[cfg(test)]
mod tests {
    use athanor_block::RowTotals;

    use super::*;

    fn summary(level: u8, times: &[(&str, i64)]) -> RowSummary {
        let mut summary = RowSummary::default();
        for (tenant, time) in times {
            let windows = summary.tenants.entry((*tenant).to_owned()).or_default();
            let row = RowTotals { profiles: 1, samples: 1, sum: 1 };
            windows.entry(window_end(*time, window_width(level))).or_default().add(row);
        }
        summary
    }

    /// Checks that each row is in exactly one output of its tenant.
    fn check(outputs: &[PlannedOutput], times: &[(&str, i64)]) {
        for (tenant, time) in times {
            let holds =
                |output: &&PlannedOutput| output.tenants.contains(*tenant) && output.rows.has_time(*time);
            assert_eq!(outputs.iter().filter(holds).count(), 1, "{tenant} {time}");
        }
    }

    #[test]
    fn tenants_share_the_blocks_of_short_windows() {
        let minute = 60 * SECOND;
        let times = [("a", 10 * minute), ("a", 10 * minute + 1), ("b", 10 * minute), ("c", 20 * minute)];
        let outputs = plan_windows(1, &summary(1, &times), 1);
        let tenants: Vec<Vec<&str>> =
            outputs.iter().map(|output| output.tenants.iter().map(String::as_str).collect()).collect();
        assert_eq!(tenants, [vec!["a", "b"], vec!["a", "c"]]);
        check(&outputs, &times);
    }

    #[test]
    fn profile_at_a_window_end_belongs_to_that_window() {
        let hour = 3_600 * SECOND;
        let times = [("a", hour), ("a", hour + 1), ("a", 2 * hour)];
        let outputs = plan_windows(2, &summary(2, &times), 1);
        let windows: Vec<(i64, i64)> =
            outputs.iter().map(|output| (output.rows.after, output.rows.until)).collect();
        assert_eq!(windows, [(0, hour), (hour, 2 * hour)]);
    }

    #[test]
    fn windows_widen_until_their_blocks_fit_into_a_job() {
        for (count, step, level, pieces, expected) in [
            (64, 600, 1, 1, 64),
            (65, 600, 1, 1, 11),
            (64, 3_600, 2, 2, 3),
            (2_000, 600, 1, 1, 14),
            (3, 86_400, 3, 64, 1),
            (1_000, 86_400 * 30, 3, 1, 3),
        ] {
            let times: Vec<(&str, i64)> = (1..=count).map(|number| ("a", number * step * SECOND)).collect();
            let outputs = plan_windows(level, &summary(level, &times), pieces);
            assert_eq!(outputs.len(), expected, "{count} windows of {step} s at level {level}");
            check(&outputs, &times);
        }
    }

    #[test]
    fn profiles_of_any_time_fit_into_one_job() {
        let years = |year: i64| year * 365 * 86_400 * SECOND;
        let times: Vec<(&str, i64)> = (-290..290)
            .map(|year| ("a", years(year)))
            .chain([("a", i64::MIN), ("a", i64::MIN + 1), ("a", 0), ("a", i64::MAX)])
            .collect();
        for level in 1..=3 {
            for pieces in [1, 2, 40] {
                let outputs = plan_windows(level, &summary(level, &times), pieces);
                assert!(outputs.len() * pieces <= MAX_JOB_OUTPUTS, "{}", outputs.len());
                check(&outputs, &times);
            }
        }
    }
}
