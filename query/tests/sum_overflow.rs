//! Sums past 63 bits are errors, wherever profiles lie. All other sums are exact.

use std::collections::BTreeMap;
use std::sync::Arc;

use athanor_profile::store_interface::source::{
    MemorySource, SourceNameVisitor, SourceReadSize, SourceRowVisitor, SourceSpanRowVisitor,
};
use athanor_profile::{Labels, Profile, ProfileRow, ProfileSeries, ProfileSource, SourceError, ValueType};
use athanor_query::{
    GroupedTreesQuery, HeatmapQuery, PartialResult, ProfileListQuery, ProfileOrder, ProfileQuery,
    ProfileQueryError, QueryKind, ResultLimits, StackFilter, TimeGrid, TimeSeriesQuery, WireError, run,
    run_all,
};
use proptest::prelude::*;

/// Profile with rows of a stack and a value.
#[derive(Clone, Debug)]
struct Upload {
    pod: u8,
    time: i64,
    rows: Vec<(u8, i64)>,
    source: usize,
}

/// Source that stores the sum of each profile modulo 2^64, as blocks do.
#[derive(Default)]
struct StoredSums {
    rows: MemorySource,
    sums: Vec<i64>,
}

impl ProfileSource for StoredSums {
    fn series(&self) -> Result<Arc<[ProfileSeries]>, SourceError> {
        self.rows.series()
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        self.rows.profiles()
    }
    fn profile_totals(&self) -> Result<Option<Arc<[i64]>>, SourceError> {
        Ok(Some(self.sums.as_slice().into()))
    }
    fn totals(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError> {
        self.rows.totals(picked)
    }
    fn visit_rows(&self, picked: &[u32], each: &mut SourceRowVisitor<'_>) -> Result<(), SourceError> {
        self.rows.visit_rows(picked, each)
    }
    fn visit_span_rows(
        &self,
        picked: &[u32],
        each: &mut SourceSpanRowVisitor<'_>,
    ) -> Result<(), SourceError> {
        self.rows.visit_span_rows(picked, each)
    }
    fn visit_names(&self, read: &mut SourceNameVisitor<'_>) -> Result<(), SourceError> {
        self.rows.visit_names(read)
    }
    fn read_size(&self, picked: &[u32], whole: bool) -> Result<SourceReadSize, SourceError> {
        self.rows.read_size(picked, whole)
    }
}

const SOURCE_COUNT: usize = 3;
const STEPS: TimeGrid = TimeGrid { start: 10, step: 10, count: 4 };

fn uploads() -> impl Strategy<Value = Vec<Upload>> {
    let value = prop_oneof![
        4 => 1..9i64,
        1 => Just(i64::MAX),
        1 => Just(i64::MAX / 2),
        1 => Just(1 << 62),
        1 => Just(1 << 61),
    ];
    // The sum of two rows either fits or is negative modulo 2^64.
    let rows = prop::collection::vec((0..3u8, value), 0..3);
    let upload = (0..2u8, 1..40i64, rows, 0..SOURCE_COUNT);
    let upload = upload.prop_map(|(pod, time, rows, source)| Upload { pod, time, rows, source });
    prop::collection::vec(upload, 0..8)
}

fn labels(pod: u8) -> Labels {
    Labels::new([("pod".to_owned(), pod.to_string())])
}

fn sources(uploads: &[Upload]) -> Vec<StoredSums> {
    let mut sources: Vec<StoredSums> = (0..SOURCE_COUNT).map(|_| StoredSums::default()).collect();
    for (id, Upload { pod, time, rows, source }) in (1u128..).zip(uploads) {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        profile.header.time_nanos = *time;
        for (stack, value) in rows {
            let stack = profile.dictionary.intern_named_stack(["main", &format!("f{stack}")].into_iter());
            profile.samples.push(stack, 0, &[*value]);
        }
        let source = &mut sources[*source];
        source.rows.add(&labels(*pod), &profile, id << 64);
        source.sums.push(rows.iter().fold(0, |sum: i64, (_, value)| sum.wrapping_add(*value)));
    }
    sources
}

/// Runs a query on all sources, in memory and through the wire format. `stored` selects sources with stored sums.
fn answer(uploads: &[Upload], what: QueryKind, stored: bool) -> Result<PartialResult, ProfileQueryError> {
    let sources = sources(uploads);
    let all = sources.iter().map(|source| if stored { source as &dyn ProfileSource } else { &source.rows });
    let ask = ProfileQuery { what, ..ProfileQuery::default() };
    let merged = run_all(&ask, all.clone());
    let sent = all.rev().try_fold(PartialResult::empty(&ask.what), |sum, source| {
        let bytes: Vec<u8> = run(&ask, source)?.pack().expect("a small result").flatten().collect();
        match PartialResult::unpack(&bytes, &ask) {
            Ok(partial) => sum.merge(partial, &ResultLimits::default()),
            Err(WireError::Bounds(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    });
    assert_eq!(merged.is_err(), sent.is_err());
    merged
}

fn fits(sum: i128) -> bool {
    i64::try_from(sum).is_ok()
}

fn is_overflow<T>(result: &Result<T, ProfileQueryError>) -> bool {
    matches!(result, Err(ProfileQueryError::SumTooLarge { .. }))
}

fn sum_of<'u>(uploads: impl Iterator<Item = &'u Upload>) -> i128 {
    uploads.flat_map(|upload| &upload.rows).map(|(_, value)| i128::from(*value)).sum()
}

proptest! {
    #[test]
    fn sum_of_stacks_is_exact_or_an_error(uploads in uploads(), stored: bool) {
        let expected = sum_of(uploads.iter());
        let group_by = vec!["pod".to_owned()];
        let whats = [
            QueryKind::Tree(StackFilter::default()),
            QueryKind::Profile(StackFilter::default(), None),
            QueryKind::OriginTree(StackFilter::default()),
            QueryKind::Trees(GroupedTreesQuery { group_by, ..GroupedTreesQuery::default() }),
        ];
        for what in whats {
            let found = answer(&uploads, what, stored);
            prop_assert_eq!(is_overflow(&found), !fits(expected), "{:?}", found);
            let Ok(found) = found else { continue };
            let total: i128 = match &found {
                PartialResult::Tree(tree) => tree.total().into(),
                PartialResult::Profile(merged) => merged.totals.iter().map(|total| i128::from(*total)).sum(),
                PartialResult::OriginTree(merged) => merged.tree.total().into(),
                PartialResult::Trees(trees) => trees.values().map(|tree| i128::from(tree.total())).sum(),
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(total, expected);
        }
    }

    #[test]
    fn sum_of_a_point_is_exact_or_an_error(uploads in uploads(), stored: bool) {
        let mut expected: BTreeMap<(Labels, u64), i128> = BTreeMap::new();
        for upload in &uploads {
            if let Some(point) = STEPS.point_index(upload.time) {
                *expected.entry((labels(upload.pod), point)).or_default() += sum_of([upload].into_iter());
            }
        }
        let fit = expected.values().all(|sum| fits(*sum)) && uploads.iter().all(|upload| fits(sum_of([upload].into_iter())));
        for exemplars in [false, true] {
            let group_by = vec!["pod".to_owned()];
            let points = TimeSeriesQuery { steps: STEPS, group_by, exemplars, ..TimeSeriesQuery::default() };
            let found = answer(&uploads, QueryKind::Points(points), stored);
            prop_assert_eq!(is_overflow(&found), !fit, "{:?}", found);
            let Ok(PartialResult::Points(series)) = found else { continue };
            let cells = series.into_iter().flat_map(|(labels, points)| {
                points.into_iter().map(move |(point, cell)| ((labels.clone(), point), i128::from(cell.sum)))
            });
            prop_assert_eq!(cells.collect::<BTreeMap<_, _>>(), expected.clone());
        }
    }

    #[test]
    fn sum_of_a_profile_is_exact_or_an_error(uploads in uploads(), stored: bool) {
        let mut expected: Vec<i128> = uploads.iter().map(|upload| sum_of([upload].into_iter())).collect();
        let fit = expected.iter().all(|sum| fits(*sum));
        let list = ProfileListQuery { order: ProfileOrder::Heaviest, keep: 99, ..ProfileListQuery::default() };
        let heat = HeatmapQuery { steps: TimeGrid { count: 5, ..STEPS }, ..HeatmapQuery::default() };
        for what in [QueryKind::Profiles(list), QueryKind::Heat(heat)] {
            let found = answer(&uploads, what, stored);
            prop_assert_eq!(is_overflow(&found), !fit, "{:?}", found);
            let mut values: Vec<i128> = match found {
                Ok(PartialResult::Profiles(list)) => list.entries().iter().map(|entry| entry.total.into()).collect(),
                Ok(PartialResult::Heat(series)) => {
                    series.values().flat_map(BTreeMap::values).map(|value| value.value.into()).collect()
                }
                Ok(other) => panic!("{other:?}"),
                Err(_) => continue,
            };
            values.retain(|value| *value != 0);
            expected.retain(|value| *value != 0);
            values.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(&values, &expected);
        }
    }
}

#[test]
fn sum_of_filtered_stacks_is_exact_though_the_whole_overflows() {
    let row = |stack, value| Upload { pod: 0, time: 5, rows: vec![(stack, value)], source: 0 };
    let uploads = [row(0, i64::MAX), row(0, i64::MAX), row(1, 7)];
    let stacks = |name: &str| {
        let included = athanor_query::FramePatterns { names: vec![name.to_owned()], regexes: Vec::new() };
        let frames = athanor_query::FrameFilter::new(included, athanor_query::FramePatterns::default());
        StackFilter { frames: frames.expect("a filter of names"), ..StackFilter::default() }
    };
    for stored in [false, true] {
        let total = match answer(&uploads, QueryKind::Tree(stacks("f1")), stored) {
            Ok(PartialResult::Tree(tree)) => tree.total(),
            other => panic!("{other:?}"),
        };
        assert_eq!(total, 7);
        assert!(is_overflow(&answer(&uploads, QueryKind::Tree(stacks("f0")), stored)));
    }
}

#[test]
fn sum_past_63_bits_names_limit_and_way_out() {
    let row = |value| Upload { pod: 0, time: 5, rows: vec![(0, value)], source: 0 };
    let error = answer(&[row(i64::MAX), row(1)], QueryKind::Tree(StackFilter::default()), true);
    let message = error.expect_err("a sum that does not fit").to_string();
    for part in ["63 bits", "9223372036854775807", "shorter time range"] {
        assert!(message.contains(part), "{message}");
    }
}
