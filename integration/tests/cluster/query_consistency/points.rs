//! Values over time: sums and means, of all stacks and of some, of the largest series, with exemplars.

use std::collections::BTreeMap;

use athanor_proto::querier::v1::SelectSeriesRequest;
use athanor_proto::types::v1::{
    ExemplarType, LabelPair, Series, StackTraceSelector, TimeSeriesAggregationType,
};

use crate::query_consistency::asker::{Answers, Asker, whole};
use crate::query_consistency::graphs::{is_selected, selector};
use crate::query_consistency::naive::{Naive, Record, Row, id_of_profile};
use crate::query_consistency::profiles::TYPE;

/// Labels with their values.
pub type Group = Vec<(String, String)>;
/// Of each group values by time, milliseconds.
pub type Values = BTreeMap<Group, Vec<(i64, f64)>>;

const SERVICE: &[&str] = &["service_name"];
const POD: &[&str] = &["pod"];
const BOTH: &[&str] = &["endpoint", "service_name"];

/// Which point, counted from the first one at `start` on, stands for a time: each stands for what lies between the one
/// before it and itself, itself included, in whole milliseconds. What lies behind the end is not asked for.
pub fn place(naive: &Naive, step: i64, time: i64) -> Option<i64> {
    let millis = time.div_euclid(1_000_000);
    let mut place = 0;
    while naive.start + place * step < millis {
        place += 1;
    }
    let is_asked = naive.start - step < millis && time <= naive.end * 1_000_000;
    let is_there = is_asked && naive.start + place * step <= naive.end;
    is_there.then_some(place)
}

/// What is measured at a point.
#[derive(Default)]
struct Point<'n> {
    sum: i64,
    /// By their numbers: the sum of each and the records that it is of.
    profiles: BTreeMap<usize, (i64, Vec<&'n Record>)>,
}

type Points<'n> = BTreeMap<Group, BTreeMap<i64, Point<'n>>>;

/// All points of steps of so many milliseconds.
fn points<'n>(naive: &'n Naive, step: i64, group_by: &[&str], is_meant: fn(&Row) -> bool) -> Points<'n> {
    let mut points = Points::new();
    for record in naive.all().filter(|record| record.is_of(TYPE)) {
        let Some(place) = place(naive, step, record.time) else { continue };
        let of_group = points.entry(record.grouped(group_by)).or_default();
        let point = of_group.entry(naive.start + place * step).or_default();
        let sum = record.rows.iter().filter(|row| is_meant(row)).map(|row| row.value).sum::<i64>();
        point.sum += sum;
        let (of_profile, records) = point.profiles.entry(record.number).or_default();
        *of_profile += sum;
        records.push(record);
    }
    points
}

/// Sums; where nothing counts there is no point.
pub fn sums(naive: &Naive, step: i64, group_by: &[&str], is_meant: fn(&Row) -> bool) -> Values {
    let of_group = |points: BTreeMap<i64, Point<'_>>| -> Vec<(i64, f64)> {
        let some = points.into_iter().filter(|(_, point)| point.sum != 0);
        some.map(|(time, point)| (time, point.sum as f64)).collect()
    };
    let all = points(naive, step, group_by, is_meant).into_iter();
    all.map(|(group, points)| (group, of_group(points))).filter(|(_, points)| !points.is_empty()).collect()
}

/// What a profile has on average, of all profiles that there are.
pub fn means(naive: &Naive, step: i64, group_by: &[&str], is_meant: fn(&Row) -> bool) -> Values {
    let mean = |point: Point<'_>| point.sum as f64 / point.profiles.len() as f64;
    let of_group = |points: BTreeMap<i64, Point<'_>>| {
        points.into_iter().map(|(time, point)| (time, mean(point))).collect()
    };
    let all = points(naive, step, group_by, is_meant).into_iter();
    all.map(|(group, points)| (group, of_group(points))).collect()
}

/// The heaviest groups, the heaviest first.
fn largest(values: Values, count: usize) -> Vec<(Group, Vec<(i64, f64)>)> {
    let mut all: Vec<_> = values.into_iter().collect();
    let sum = |points: &[(i64, f64)]| points.iter().map(|(_, value)| *value).sum::<f64>();
    all.sort_by(|(_, left), (_, right)| sum(right).total_cmp(&sum(left)));
    all.truncate(count);
    all
}

/// The largest profile of each point: its value, its time, its id and the labels by which is not grouped. Of a profile that
/// labels of samples split, that is the id of the whole, and what all of its records are called.
fn exemplars(naive: &Naive) -> String {
    let of_point = |(time, point): (i64, Point<'_>)| {
        let (value, records) = point.profiles.into_values().max_by_key(|(value, _)| *value).unwrap();
        let id = &naive.ids[&records[0].key()];
        let id = if records.len() == 1 { id.clone() } else { id_of_profile(id) };
        let mut labels = records[0].ungrouped(SERVICE);
        labels.retain(|name, value| records.iter().all(|record| record.label(name) == value));
        (time, (value, records[0].time / 1_000_000, id, labels))
    };
    let all = points(naive, 60_000, SERVICE, |_| true).into_iter();
    let all = all.map(|(group, points)| (group, points.into_iter().map(of_point).collect::<Vec<_>>()));
    format!("{:?}", all.collect::<BTreeMap<_, _>>())
}

/// What is to be answered.
pub fn expected(naive: &Naive) -> Answers {
    let any = |_: &Row| true;
    let shown = |values: Values| format!("{values:?}");
    let two = |values: Values| format!("{:?}", largest(values, 2));
    Answers::from([
        ("SelectSeries", shown(sums(naive, 15_000, SERVICE, any))),
        ("SelectSeries, one", shown(sums(naive, 7_000, &[], any))),
        ("SelectSeries of two labels", shown(sums(naive, 20_000, BOTH, any))),
        ("SelectSeries of stacks", shown(sums(naive, 15_000, BOTH, is_selected))),
        ("SelectSeries, means", shown(means(naive, 40_000, POD, any))),
        ("SelectSeries, means of stacks", shown(means(naive, 40_000, BOTH, is_selected))),
        ("SelectSeries, largest", two(sums(naive, 15_000, POD, any))),
        ("SelectSeries, largest means of stacks", two(means(naive, 15_000, SERVICE, is_selected))),
        ("SelectSeries, exemplars", exemplars(naive)),
    ])
}

/// Labels as they came.
pub fn group(labels: Vec<LabelPair>) -> Group {
    labels.into_iter().map(|LabelPair { name, value }| (name, value)).collect()
}

fn values(series: Vec<Series>) -> Vec<(Group, Vec<(i64, f64)>)> {
    let points = |of: &Series| of.points.iter().map(|point| (point.timestamp, point.value)).collect();
    series
        .into_iter()
        .map(|of| (points(&of), of.labels))
        .map(|(points, labels)| (group(labels), points))
        .collect()
}

/// What is answered.
pub async fn asked(asker: &Asker) -> Answers {
    let of = |step: f64, group_by: &[&str]| SelectSeriesRequest {
        profile_type_id: TYPE.to_owned(),
        label_selector: "{}".to_owned(),
        start: asker.start,
        end: asker.end,
        group_by: group_by.iter().map(|name| (*name).to_owned()).collect(),
        step,
        ..SelectSeriesRequest::default()
    };
    let mean = Some(TimeSeriesAggregationType::Average as i32);
    let stacks: Option<StackTraceSelector> = Some(selector());
    let sums = [
        ("SelectSeries", of(15.0, SERVICE)),
        ("SelectSeries, one", of(7.0, &[])),
        ("SelectSeries of two labels", of(20.0, BOTH)),
        ("SelectSeries of stacks", {
            SelectSeriesRequest { stack_trace_selector: stacks.clone(), ..of(15.0, BOTH) }
        }),
        ("SelectSeries, means", SelectSeriesRequest { aggregation: mean, ..of(40.0, POD) }),
        ("SelectSeries, means of stacks", {
            let stack_trace_selector = stacks.clone();
            SelectSeriesRequest { aggregation: mean, stack_trace_selector, ..of(40.0, BOTH) }
        }),
    ];
    let mut answers = Answers::new();
    for (question, request) in sums {
        let answer = whole!(asker, select_series, request);
        let found: Values = values(answer.series).into_iter().collect();
        answers.insert(question, format!("{found:?}"));
    }
    let largest = [
        ("SelectSeries, largest", SelectSeriesRequest { limit: Some(2), ..of(15.0, POD) }),
        ("SelectSeries, largest means of stacks", {
            let stack_trace_selector = stacks;
            SelectSeriesRequest {
                limit: Some(2),
                aggregation: mean,
                stack_trace_selector,
                ..of(15.0, SERVICE)
            }
        }),
    ];
    for (question, request) in largest {
        let answer = whole!(asker, select_series, request);
        answers.insert(question, format!("{:?}", values(answer.series)));
    }
    let request = SelectSeriesRequest { exemplar_type: ExemplarType::Individual as i32, ..of(60.0, SERVICE) };
    let answer = whole!(asker, select_series, request);
    let of_series = |series: Series| {
        let points = series.points.into_iter().map(|point| {
            let [exemplar] = &point.exemplars[..] else { panic!("{:?}", point.exemplars) };
            let labels: BTreeMap<String, String> = group(exemplar.labels.clone()).into_iter().collect();
            (point.timestamp, (exemplar.value, exemplar.timestamp, exemplar.profile_id.clone(), labels))
        });
        let points = points.collect::<Vec<_>>();
        (group(series.labels), points)
    };
    let found: BTreeMap<_, _> = answer.series.into_iter().map(of_series).collect();
    answers.insert("SelectSeries, exemplars", format!("{found:?}"));
    answers
}
