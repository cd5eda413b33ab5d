//! Plans on a small time scale, compared with a store that counts rows one by one.

use proptest::prelude::*;

use super::*;

/// Buckets of 3, 6 and 12 nanoseconds.
const SMALL_WIDTHS: BucketWidths = BucketWidths([1, 3, 6, 12]);
/// Most ranges of one tier: two around each compared stretch and at each end.
const MAX_RANGES_PER_TIER: usize = 2 * (MAX_COMPARED_STRETCHES + 1) + 1;

/// Rows of a tenant. Each covered row is also in one bucket of each downsampled tier.
#[derive(Clone, Debug)]
struct SmallStore {
    covered: Vec<i64>,
    uncovered: Vec<i64>,
    expired_until: BTreeMap<Tier, i64>,
}

fn small_width(tier: Tier) -> i64 {
    SMALL_WIDTHS.of(tier) as i64
}

fn bucket_end(tier: Tier, time: i64) -> i64 {
    athanor_chassis::window_end(time, small_width(tier))
}

/// Returns each time as a block of one row.
fn blocks(times: &[i64]) -> Vec<RowTimes> {
    times.iter().map(|&time| RowTimes { first: time, last: time }).collect()
}

fn range(after: i64, until: i64) -> TimeRange {
    TimeRange { from: after + 1, to: until + 1 }
}

impl SmallStore {
    fn input(&self, range: TimeRange, steps: Option<TimeGrid>) -> TierPlanInput {
        let ends = |tier: Tier| {
            let ends = self.covered.iter().map(move |&time| bucket_end(tier, time));
            let listed =
                ends.filter(|&end| range.contains(end)).map(|end| RowTimes { first: end, last: end });
            Some((tier, listed.reduce(RowTimes::union)?))
        };
        let listed = |times: &[i64]| -> Vec<RowTimes> {
            blocks(times).into_iter().filter(|rows| range.contains(rows.first)).collect()
        };
        TierPlanInput {
            range,
            required: RequiredResolution { single_profiles: false, steps },
            expired_until: self.expired_until.clone(),
            covered_raw: listed(&self.covered),
            uncovered: listed(&self.uncovered),
            downsampled: Tier::DOWNSAMPLED.into_iter().filter_map(ends).collect(),
        }
    }

    fn plan(&self, range: TimeRange, steps: Option<TimeGrid>) -> TierPlan {
        self.input(range, steps).plan_with_widths(SMALL_WIDTHS)
    }

    /// Returns the covered rows that a plan counts, each as often as it counts, with the time of its row.
    fn counted(&self, plan: &TierPlan) -> Vec<(i64, Tier)> {
        let mut counted = Vec::new();
        for (&tier, ranges) in &plan.ranges {
            for &time in &self.covered {
                let end = if tier.is_raw() { time } else { bucket_end(tier, time) };
                let is_left = self.expired_until.get(&tier).is_none_or(|&expired| end > expired);
                let reads = ranges.iter().filter(|range| range.contains(end)).count();
                counted.extend((0..reads).filter(|_| is_left).map(|_| (time, tier)));
            }
        }
        counted.sort_unstable();
        counted
    }

    /// Returns the number of covered rows that count in a range.
    fn count(&self, after: i64, until: i64) -> usize {
        self.counted(&self.plan(range(after, until), None)).len()
    }

    /// Returns the finest complete tier at a time.
    fn finest_at(&self, time: i64) -> Option<Tier> {
        let is_complete = |tier: &Tier| {
            let coarser = Tier::from_number(u32::from(tier.number()) + 1).unwrap_or(*tier);
            self.expired_until.get(tier).is_none_or(|&expired| time > bucket_end(coarser, expired))
        };
        Tier::ALL.into_iter().find(is_complete)
    }

    /// Returns the tier whose rows count at a time: the finest complete one, or a coarser one if that alone has
    /// all rows of its bucket there.
    fn tier_at(&self, time: i64) -> Tier {
        let has_bucket = |tier: &Tier| {
            let end = bucket_end(*tier, time);
            (end - small_width(*tier) + 1..=end).any(|within| self.finest_at(within) == Some(*tier))
        };
        Tier::ALL
            .into_iter()
            .rev()
            .find(has_bucket)
            .filter(|_| self.finest_at(time).is_some())
            .unwrap_or(Tier::OneDay)
    }
}

fn times() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(-60i64..60, 0..12)
}

/// Stores with any state of retention.
fn any_store() -> impl Strategy<Value = SmallStore> {
    let expired = prop::collection::btree_map(prop::sample::select(Tier::ALL.to_vec()), -60i64..60, 0..4);
    (times(), times(), expired).prop_map(|(covered, uncovered, expired_until)| SmallStore {
        covered,
        uncovered,
        expired_until,
    })
}

/// Stores of which finer tiers expire first.
fn store_in_order() -> impl Strategy<Value = SmallStore> {
    (any_store(), prop::collection::vec(-60i64..60, 0..4)).prop_map(|(store, mut expired)| {
        expired.sort_unstable_by(|one, other| other.cmp(one));
        SmallStore { expired_until: Tier::ALL.into_iter().zip(expired).collect(), ..store }
    })
}

fn grids() -> impl Strategy<Value = Option<TimeGrid>> {
    let grid = (-70i64..0, prop::sample::select(vec![1, 2, 3, 6, 9, 12, 24, 30]));
    prop::option::of(grid.prop_map(|(start, step)| TimeGrid { start: start / 3 * 3, step, count: 1_000 }))
}

fn is_in_one_point(steps: Option<TimeGrid>, after: i64, end: i64) -> bool {
    steps.is_none_or(|steps| steps.point_index(after + 1) == steps.point_index(end))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn each_row_counts_once(store in store_in_order(), after in -70i64..70, length in 0i64..140, steps in grids()) {
        let plan = store.plan(range(after, after + length), steps);
        let mut counted: Vec<i64> = store.counted(&plan).into_iter().map(|(time, _)| time).collect();
        let mut expected: Vec<i64> = store.covered.iter().copied().filter(|&time| {
            // A row counts at the end of its bucket in the finest tier that has it.
            let mut ends = Tier::ALL.into_iter().map(|tier| (tier, if tier.is_raw() { time } else { bucket_end(tier, time) }));
            ends.any(|(tier, end)| {
                let is_left = store.expired_until.get(&tier).is_none_or(|&expired| end > expired);
                store.tier_at(end) == tier && is_left && range(after, after + length).contains(end)
            })
        }).collect();
        expected.sort_unstable();
        counted.sort_unstable();
        prop_assert_eq!(counted, expected, "{:?}", plan);
    }

    #[test]
    fn ranges_that_touch_add_up(store in any_store(), mut ends in prop::collection::vec(-80i64..80, 3)) {
        ends.sort_unstable();
        let [first, middle, last] = ends[..] else { unreachable!() };
        prop_assert_eq!(store.count(first, middle) + store.count(middle, last), store.count(first, last));
    }

    #[test]
    fn no_row_is_lost_while_the_coarsest_tier_is_complete(mut store in any_store()) {
        store.expired_until.remove(&Tier::OneDay);
        let mut covered = store.covered.clone();
        covered.sort_unstable();
        let plan = store.plan(TimeRange::default(), None);
        let counted: Vec<i64> = store.counted(&plan).into_iter().map(|(time, _)| time).collect();
        prop_assert_eq!(counted, covered, "{:?}", plan);
    }

    #[test]
    fn buckets_are_whole_while_finer_data_is_complete(
        store in store_in_order(), after in -70i64..70, length in 0i64..140, steps in grids(),
    ) {
        let plan = store.plan(range(after, after + length), steps);
        for tier in Tier::DOWNSAMPLED {
            let ranges = plan.ranges.get(&tier).into_iter().flatten();
            let is_read = |end: i64| ranges.clone().any(|range| range.contains(end));
            for end in (-30..30).map(|number| number * small_width(tier)).filter(|&end| is_read(end)) {
                let start = end - small_width(tier);
                let is_whole = start >= after && is_in_one_point(steps, start, end);
                prop_assert!(is_whole || store.tier_at(end) == tier, "{tier} {end}: {plan:?}");
            }
        }
    }

    #[test]
    fn rows_whose_ids_are_compared_are_raw(store in any_store(), after in -70i64..70, length in 0i64..140) {
        let of_query = range(after, after + length);
        let input = store.input(of_query, None);
        let plan = input.plan_with_widths(SMALL_WIDTHS);
        let complete_after = TierTimes::new(SMALL_WIDTHS, &store.expired_until).sections.last()
            .filter(|last| last.tier.is_raw()).map(|last| last.span.after);
        let compared: Vec<i64> = store.covered.iter().copied()
            .filter(|&time| store.uncovered.contains(&time) && of_query.contains(time))
            .filter(|&time| complete_after.is_some_and(|after| i128::from(time) > after))
            .collect();
        let counted = store.counted(&plan);
        for time in compared {
            let tiers: Vec<Tier> = counted.iter().filter(|row| row.0 == time).map(|row| row.1).collect();
            let is_left = store.expired_until.get(&Tier::Raw).is_none_or(|&expired| time > expired);
            prop_assert!(tiers.iter().all(Tier::is_raw) && !(tiers.is_empty() && is_left), "{time} {plan:?}");
        }
        // Beyond that, ids of covered rows are not reported up to a stated time.
        let replaced = counted.iter().filter(|(time, tier)| {
            !tier.is_raw() && complete_after.is_some_and(|after| i128::from(*time) > after) && of_query.contains(*time)
        });
        let last = replaced.map(|(time, _)| *time).max();
        prop_assert!(plan.unreported_until >= last, "{last:?} {plan:?}");
    }

    #[test]
    fn ranges_are_few_and_disjoint(store in any_store(), after in -70i64..70, length in 0i64..140, steps in grids()) {
        let of_query = range(after, after + length);
        let plan = store.plan(of_query, steps);
        for ranges in plan.ranges.values() {
            prop_assert!(ranges.len() <= MAX_RANGES_PER_TIER);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].to < pair[1].from));
            prop_assert!(ranges.iter().all(|range| range.from < range.to && range.from >= of_query.from && range.to <= of_query.to));
        }
        // Each time of the query is read from one tier.
        for time in of_query.from..of_query.to {
            let tiers: Vec<Tier> = plan.ranges.iter().filter(|(_, ranges)| ranges.iter().any(|range| range.contains(time)))
                .map(|(tier, _)| *tier).collect();
            prop_assert_eq!(tiers.len(), 1, "{} {:?}", time, plan);
        }
        let stated_at = |time: i64| {
            let stretches = plan.resolution.stretches().iter();
            stretches.clone().find(|stretch| stretch.after < time && time <= stretch.until).map(|stretch| stretch.tier)
        };
        for (time, tier) in store.counted(&plan) {
            let row_time = if tier.is_raw() { time } else { bucket_end(tier, time) };
            prop_assert!(stated_at(row_time) >= Some(tier), "{time} {plan:?}");
        }
        prop_assert!(of_query.from == of_query.to || stated_at(of_query.from).is_some());
    }
}

fn filled_store(expired_until: impl IntoIterator<Item = (Tier, i64)>) -> SmallStore {
    SmallStore {
        covered: (1..=60).collect(),
        uncovered: Vec::new(),
        expired_until: expired_until.into_iter().collect(),
    }
}

fn spans_by_tier(plan: &TierPlan) -> Vec<(Tier, Vec<(i64, i64)>)> {
    let spans = |ranges: &Vec<TimeRange>| ranges.iter().map(|range| (range.from - 1, range.to - 1)).collect();
    plan.ranges.iter().map(|(tier, ranges)| (*tier, spans(ranges))).collect()
}

#[test]
fn inside_is_read_from_coarsest_tier_and_edges_from_finer_ones() {
    let plan = filled_store([]).plan(range(4, 46), None);
    let expected = [
        (Tier::Raw, vec![(4, 6), (45, 46)]),
        (Tier::FiveMinutes, vec![(42, 45)]),
        (Tier::OneHour, vec![(6, 12), (36, 42)]),
        (Tier::OneDay, vec![(12, 36)]),
    ];
    assert_eq!(spans_by_tier(&plan), expected);
    assert_eq!(plan.unreported_until, Some(45));
}

#[test]
fn points_bound_the_width_of_buckets() {
    let grid = |start, step| Some(TimeGrid { start, step, count: 100 });
    let tiers =
        |steps| -> Vec<Tier> { filled_store([]).plan(range(0, 48), steps).ranges.into_keys().collect() };
    assert_eq!(tiers(None), [Tier::OneDay]);
    assert_eq!(tiers(grid(12, 24)), [Tier::OneDay]);
    assert_eq!(tiers(grid(6, 12)), [Tier::OneHour]);
    assert_eq!(tiers(grid(6, 9)), [Tier::FiveMinutes]);
    assert_eq!(tiers(grid(5, 12)), [Tier::Raw]);
    assert_eq!(tiers(grid(4, 4)), [Tier::Raw]);
}

#[test]
fn expired_tiers_are_replaced_and_buckets_count_at_their_end() {
    let store = filled_store([(Tier::Raw, 29), (Tier::FiveMinutes, 13)]);
    // Raw is complete after 30, the first downsampled tier after 18.
    let plan = store.plan(range(13, 32), Some(TimeGrid { start: 1, step: 1, count: 100 }));
    let expected =
        [(Tier::Raw, vec![(30, 32)]), (Tier::FiveMinutes, vec![(18, 30)]), (Tier::OneHour, vec![(13, 18)])];
    assert_eq!(spans_by_tier(&plan), expected);
    let counted = store.counted(&plan).len();
    assert_eq!(counted, 32 - 12, "the bucket that ends at 18 counts, although it begins before the range");
}

#[test]
fn ids_are_compared_where_uncovered_rows_meet_covered_ones() {
    let store = SmallStore { uncovered: vec![20, 80], ..filled_store([]) };
    let plan = store.plan(range(0, 96), None);
    let expected = [
        (Tier::Raw, vec![(18, 21), (60, 96)]),
        (Tier::FiveMinutes, vec![(21, 24)]),
        (Tier::OneHour, vec![(12, 18)]),
        (Tier::OneDay, vec![(0, 12), (24, 60)]),
    ];
    assert_eq!(spans_by_tier(&plan), expected);
    let many = SmallStore { uncovered: (1..60).step_by(6).collect(), ..filled_store([]) };
    let raw = &many.plan(range(0, 60), None).ranges[&Tier::Raw];
    assert!(raw.len() <= MAX_COMPARED_STRETCHES, "{raw:?}");
}

#[test]
fn single_profiles_are_read_from_raw_blocks_only() {
    let store = filled_store([(Tier::Raw, 29)]);
    let plan = |after| {
        let mut input = store.input(range(after, 50), None);
        input.required.single_profiles = true;
        input.plan_with_widths(SMALL_WIDTHS)
    };
    assert_eq!(spans_by_tier(&plan(4)), [(Tier::Raw, vec![(4, 50)])]);
    assert_eq!(
        [plan(4), plan(29), plan(30)].map(|plan| plan.single_profiles_since),
        [Some(30), Some(30), None]
    );
    assert!(plan(4).resolution.is_raw());
}

#[test]
fn all_time_is_planned_without_overflow() {
    let rows = |first, last| RowTimes { first, last };
    let day = Tier::OneDay.bucket_nanos();
    let input = TierPlanInput {
        covered_raw: vec![rows(1, day)],
        uncovered: vec![rows(i64::MIN, i64::MAX)],
        downsampled: Tier::DOWNSAMPLED.into_iter().map(|tier| (tier, rows(day, day))).collect(),
        expired_until: BTreeMap::from([(Tier::Raw, i64::MIN), (Tier::FiveMinutes, i64::MAX)]),
        ..TierPlanInput::default()
    };
    let plan = input.plan_tiers();
    let all: Vec<TimeRange> = plan.ranges.values().flatten().copied().collect();
    for time in [i64::MIN, -1, 0, 1, day, i64::MAX] {
        assert_eq!(all.iter().filter(|range| range.contains(time)).count(), 1, "{time} {plan:?}");
    }
    assert_eq!(TierPlanInput::default().plan_tiers().resolution.to_string(), "raw");
}
