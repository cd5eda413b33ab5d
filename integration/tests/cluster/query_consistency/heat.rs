//! Heatmaps: how many profiles, or spans in them, have values of about the same size, over time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use athanor_proto::querier::v1::{HeatmapQueryType, HeatmapRows, SelectHeatmapRequest};
use athanor_proto::types::v1::{Exemplar, ExemplarType, HeatmapSeries, HeatmapSlot};

use crate::query_consistency::asker::{Answers, Asker, whole};
use crate::query_consistency::naive::{Naive, Record};
use crate::query_consistency::points::{Group, group, place};
use crate::query_consistency::profiles::{TRACED, TYPE};

const ROWS: i64 = 20;
const POD: &[&str] = &["pod"];

/// What is counted: a profile, or a span in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    number: usize,
    /// 0 where profiles are counted.
    span: usize,
}

/// A value, and the records that it is of.
#[derive(Default)]
struct Value<'n> {
    value: i64,
    of: Vec<&'n Record>,
}

/// Of each group values by time, milliseconds, and by what they are of.
type Heat<'n> = BTreeMap<Group, BTreeMap<i64, BTreeMap<Key, Value<'n>>>>;
/// A column: its time, its counts, and the exemplars of its cells in their order.
type Column = (i64, Vec<i32>, Vec<Shown>);
/// An exemplar: value, time, profile or span, trace, labels.
type Shown = (i64, i64, String, String, BTreeMap<String, String>);

/// How a heatmap is wanted.
#[derive(Clone, Copy)]
struct Wanted {
    /// Milliseconds.
    step: i64,
    group_by: &'static [&'static str],
    spans: bool,
    exemplars: bool,
    quantiles: bool,
    limit: usize,
}

fn heat<'n>(naive: &'n Naive, wanted: Wanted) -> Heat<'n> {
    let mut heat = Heat::new();
    for record in naive.all().filter(|record| record.is_of(TYPE)) {
        let Some(place) = place(naive, wanted.step, record.time) else { continue };
        let (group, time) = (record.grouped(wanted.group_by), naive.start + place * wanted.step);
        let spans: BTreeSet<usize> = record.rows.iter().map(|row| row.span).collect();
        let spans = if wanted.spans { spans } else { BTreeSet::from([0]) };
        for span in spans.into_iter().filter(|span| *span > 0 || !wanted.spans) {
            let column = heat.entry(group.clone()).or_default().entry(time).or_default();
            let value = column.entry(Key { number: record.number, span }).or_default();
            let rows = record.rows.iter().filter(|row| !wanted.spans || row.span == span);
            value.value += rows.map(|row| row.value).sum::<i64>();
            value.of.push(record);
        }
    }
    heat
}

/// Where rows begin.
fn edges(values: &[i64], quantiles: bool) -> Vec<f64> {
    let (Some(&least), Some(&largest)) = (values.iter().min(), values.iter().max()) else {
        return Vec::new();
    };
    if !quantiles {
        let height = if least == largest { ROWS } else { largest - least };
        return (0..ROWS).map(|row| least as f64 + (height * row) as f64 / ROWS as f64).collect();
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let edges: BTreeSet<i64> = (0..20).map(|row| sorted[row * sorted.len() / 20]).collect();
    edges.into_iter().map(|edge| edge as f64).collect()
}

/// The last row that begins at the value or below it.
fn row(edges: &[f64], value: i64) -> usize {
    edges.iter().filter(|edge| **edge <= value as f64).count() - 1
}

fn shown(naive: &Naive, wanted: Wanted, key: Key, value: &Value<'_>) -> Shown {
    let record = value.of[0];
    let mut labels = record.ungrouped(wanted.group_by);
    // What not all of its records have belongs to none of them.
    labels.retain(|name, text| value.of.iter().all(|of| of.label(name) == text.as_str()));
    let of = match key.span {
        0 => format!("{}-0000-000000000000", &naive.ids[&record.key()][..18]),
        span => format!("{span:016x}"),
    };
    let trace = if key.span > TRACED { format!("{:032x}", key.span) } else { String::new() };
    (value.value, record.time / 1_000_000, of, trace, labels)
}

/// Series of columns, and where rows begin.
fn counted(naive: &Naive, wanted: Wanted) -> String {
    let heat = heat(naive, wanted);
    let all: Vec<i64> =
        heat.values().flat_map(BTreeMap::values).flatten().map(|(_, value)| value.value).collect();
    let edges = edges(&all, wanted.quantiles);
    let sum = |columns: &BTreeMap<i64, BTreeMap<Key, Value<'_>>>| -> i64 {
        columns.values().flatten().map(|(_, value)| value.value).sum()
    };
    let mut order: Vec<_> = heat.into_iter().collect();
    if wanted.limit > 0 {
        order.sort_by_key(|(_, columns)| Reverse(sum(columns)));
        order.truncate(wanted.limit);
    }
    let column = |(time, values): (i64, BTreeMap<Key, Value<'_>>)| -> Column {
        let mut counts = vec![0; edges.len()];
        let mut cells: BTreeMap<usize, (Key, &Value<'_>)> = BTreeMap::new();
        for (key, value) in &values {
            let row = row(&edges, value.value);
            counts[row] += 1;
            // Of equal values the earliest, which has the smaller number.
            if cells.get(&row).is_none_or(|(_, known)| known.value < value.value) {
                cells.insert(row, (*key, value));
            }
        }
        let mut cells: Vec<_> = cells.into_values().filter(|_| wanted.exemplars).collect();
        cells.sort_by_key(|(key, _)| *key);
        let cells = cells.into_iter().map(|(key, value)| shown(naive, wanted, key, value));
        (time, counts, cells.collect())
    };
    let series: Vec<(Group, Vec<Column>)> = order
        .into_iter()
        .map(|(group, columns)| (group, columns.into_iter().map(column).collect()))
        .collect();
    said(&edges, series)
}

fn said(edges: &[f64], series: Vec<(Group, Vec<Column>)>) -> String {
    // Of no series no edges are said.
    let edges: Vec<String> =
        edges.iter().map(|edge| format!("{edge:.3}")).filter(|_| !series.is_empty()).collect();
    format!("{:?}", (edges, series))
}

const PLAIN: Wanted =
    Wanted { step: 60_000, group_by: POD, spans: false, exemplars: false, quantiles: false, limit: 0 };

fn wanted() -> [(&'static str, Wanted); 6] {
    [
        ("SelectHeatmap", PLAIN),
        ("SelectHeatmap, quantiles", Wanted { quantiles: true, group_by: &[], step: 35_000, ..PLAIN }),
        ("SelectHeatmap, exemplars", Wanted { exemplars: true, ..PLAIN }),
        ("SelectHeatmap, largest", Wanted { limit: 2, ..PLAIN }),
        ("SelectHeatmap of spans", Wanted { spans: true, exemplars: true, step: 45_000, ..PLAIN }),
        ("SelectHeatmap of spans, quantiles", Wanted { spans: true, quantiles: true, ..PLAIN }),
    ]
}

/// What is to be answered.
pub fn expected(naive: &Naive) -> Answers {
    wanted().into_iter().map(|(question, wanted)| (question, counted(naive, wanted))).collect()
}

fn exemplar(of: Exemplar) -> Shown {
    let what = format!("{}{}", of.profile_id, of.span_id);
    (of.value, of.timestamp, what, of.trace_id, group(of.labels).into_iter().collect())
}

/// What is answered.
pub async fn asked(asker: &Asker) -> Answers {
    let mut answers = Answers::new();
    for (question, wanted) in wanted() {
        let of = if wanted.spans { HeatmapQueryType::Span } else { HeatmapQueryType::Individual };
        let exemplars = if wanted.spans { ExemplarType::Span } else { ExemplarType::Individual };
        let exemplars = if wanted.exemplars { exemplars } else { ExemplarType::None };
        let request = SelectHeatmapRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: "{}".to_owned(),
            start: asker.start,
            end: asker.end,
            step: wanted.step as f64 / 1_000.0,
            group_by: wanted.group_by.iter().map(|name| (*name).to_owned()).collect(),
            query_type: of as i32,
            exemplar_type: exemplars as i32,
            limit: (wanted.limit > 0).then_some(wanted.limit as i64),
            rows: if wanted.quantiles { HeatmapRows::Quantile } else { HeatmapRows::Linear } as i32,
        };
        let answer = whole!(asker, select_heatmap, request);
        let mut edges: Option<Vec<f64>> = None;
        let mut column = |slot: HeatmapSlot| -> Column {
            assert_eq!(*edges.get_or_insert(slot.y_min.clone()), slot.y_min, "all have the same rows");
            (slot.timestamp, slot.counts, slot.exemplars.into_iter().map(exemplar).collect())
        };
        let one = |of: HeatmapSeries| (group(of.labels), of.slots.into_iter().map(&mut column).collect());
        let series: Vec<(Group, Vec<Column>)> = answer.series.into_iter().map(one).collect();
        answers.insert(question, said(&edges.unwrap_or_default(), series));
    }
    answers
}
