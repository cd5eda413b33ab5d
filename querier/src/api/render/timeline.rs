//! Timelines for older clients: a list with one value per step.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::api::points::SeriesResult;

/// Target number of values in a timeline.
const TARGET_TIMELINE_POINTS: i64 = 1_500;
/// Human-readable steps in seconds. Each is used up to the middle between it and the next one.
const TIMELINE_STEPS_SECONDS: [i64; 17] =
    [15, 20, 30, 60, 120, 300, 600, 900, 1_200, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 604_800];

/// Timeline with one value per step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FlamebearerTimeline {
    /// Start of the timeline, Unix seconds.
    start_time: i64,
    samples: Vec<u64>,
    /// Length of a step, in seconds.
    duration_delta: i64,
    watermarks: Option<()>,
}

/// Returns the step in seconds for a range in milliseconds.
pub(super) fn choose_step_seconds(start: i64, end: i64) -> i64 {
    let wanted = end.saturating_sub(start) / TARGET_TIMELINE_POINTS;
    let middles = TIMELINE_STEPS_SECONDS.windows(2).map(|pair| (pair[0] + pair[1]) * 500);
    let place = middles.into_iter().take_while(|middle| wanted >= *middle).count();
    // Beyond the table the number of values must also stay bounded.
    if place + 1 < TIMELINE_STEPS_SECONDS.len() {
        TIMELINE_STEPS_SECONDS[place]
    } else {
        TIMELINE_STEPS_SECONDS[place].max(wanted / 1_000)
    }
}

impl FlamebearerTimeline {
    /// Converts points, with timestamps in milliseconds, to one value for each whole step of the range. The
    /// range is counted in seconds, and its end is exclusive: 600 s in steps of 15 s are 40 values.
    pub(super) fn new(start: i64, end: i64, step: i64, points: &[(i64, f64)]) -> FlamebearerTimeline {
        let step_millis = step.saturating_mul(1_000);
        let count = end.div_euclid(1_000).saturating_sub(start.div_euclid(1_000)) / step;
        let mut samples = vec![0u64; usize::try_from(count).unwrap_or_default()];
        for &(time, value) in points {
            let place = usize::try_from((time - start) / step_millis).unwrap_or_default();
            if let Some(sample) = samples.get_mut(place) {
                // The cast saturates: a negative value becomes 0.
                *sample = value as u64;
            }
        }
        FlamebearerTimeline {
            start_time: start.div_euclid(1_000),
            samples,
            duration_delta: step,
            watermarks: None,
        }
    }

    /// Returns the memory of the timeline, in memory and as text.
    pub(super) fn bytes(&self) -> usize {
        size_of::<FlamebearerTimeline>() + self.samples.len() * 2 * size_of::<u64>()
    }
}

/// Returns a timeline for each value of a label. Series without the label are under `*`.
pub(super) fn group_timelines(
    series: &[SeriesResult],
    label: &str,
    timeline: impl Fn(&[(i64, f64)]) -> FlamebearerTimeline,
) -> BTreeMap<String, FlamebearerTimeline> {
    let mut of_values: BTreeMap<String, BTreeMap<i64, f64>> = BTreeMap::new();
    for SeriesResult { labels, points: of_series, .. } in series {
        let value = labels.get(label).unwrap_or("*");
        let sums = of_values.entry(value.to_owned()).or_default();
        of_series.iter().for_each(|&(time, value)| *sums.entry(time).or_default() += value);
    }
    let timeline = |points: BTreeMap<i64, f64>| timeline(&points.into_iter().collect::<Vec<_>>());
    of_values.into_iter().map(|(value, points)| (value, timeline(points))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_grow_with_the_range() {
        let steps = |seconds: i64| choose_step_seconds(0, seconds * 1_000);
        assert_eq!([600, 10_000, 36_000].map(steps), [15, 15, 20]);
        assert_eq!([86_400, 7 * 86_400].map(steps), [60, 300]);
        let century = 100 * 365 * 86_400;
        assert!(century / steps(century) <= TARGET_TIMELINE_POINTS + 1);
    }

    #[test]
    fn values_lie_at_their_step() {
        let line = |points: &[(i64, f64)]| FlamebearerTimeline::new(10_000, 70_000, 15, points).samples;
        assert_eq!(line(&[]), [0, 0, 0, 0]);
        assert_eq!(line(&[(10_000, 1.0), (40_000, 2.5)]), [1, 0, 2, 0]);
        assert_eq!(line(&[(55_000, 3.0), (70_000, 4.0)]), [0, 0, 0, 3], "the end of the range is not in it");
    }

    #[test]
    fn number_of_values_follows_from_the_range_alone() {
        let count = |start: i64, end: i64| {
            let points: Vec<(i64, f64)> = (0..=40).map(|place| (start + place * 15_000, 1.0)).collect();
            [&points[..], &[]].map(|points| FlamebearerTimeline::new(start, end, 15, points).samples.len())
        };
        assert_eq!(count(1_000_000, 1_600_000), [40, 40]);
        // `now-10m` to `now`: the end of a range is rounded up to a millisecond.
        assert_eq!(count(1_000_123, 1_600_124), [40, 40]);
        assert_eq!(count(1_000_999, 1_600_000), [40, 40]);
        assert_eq!(count(1_000_000, 1_614_999), [40, 40]);
    }
}
