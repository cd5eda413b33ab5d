//! Answers as plain values that say what they mean.

use athanor_chassis::{ErrorCode, Status};
use athanor_proto::google::v1::{Profile, ValueType};
use athanor_proto::querier::v1::{FlameGraph, FlameGraphDiff, Level, SelectMergeStacktracesResponse};
use athanor_proto::types::v1::{Exemplar, HeatmapSeries, HeatmapSlot, LabelPair, Point, ProfileType, Series};
use athanor_querier::{Querier, QueryContext};
use serde_json::{Map, Value, json};

use crate::compare;
use crate::requests::{Fields, Undecodable};

impl From<Undecodable> for Status {
    fn from(_: Undecodable) -> Status {
        Status::new(ErrorCode::Invalid, "not decodable")
    }
}

pub async fn rpc(
    querier: &Querier,
    reader: &QueryContext,
    name: &str,
    request: &Value,
    base: i64,
    kept: &mut Option<String>,
) -> Result<Value, Status> {
    let fields = Fields { value: request, base };
    Ok(match name {
        "ProfileTypes" => types(querier.profile_types(reader, fields.types()?).await?.profile_types),
        "LabelNames" => json!(querier.label_names(reader, fields.names()?).await?.names),
        "LabelValues" => json!(querier.label_values(reader, fields.values()?).await?.names),
        "Series" => {
            let sets = querier.series(reader, fields.series()?).await?.labels_set.into_iter();
            let mut sets: Vec<String> = sets.map(|set| labels(&set.labels)).collect();
            sets.sort();
            json!(sets)
        }
        "SelectMergeStacktraces" => {
            merged(querier.select_merge_stacktraces(reader, fields.stacktraces()?).await?)
        }
        "SelectMergeSpanProfile" => {
            let answer = querier.select_merge_span_profile(reader, fields.span_profile()?).await?;
            let (flamegraph, tree) = (answer.flamegraph, answer.tree);
            merged(SelectMergeStacktracesResponse { flamegraph, tree, ..Default::default() })
        }
        "SelectMergeProfile" => profile(&querier.select_merge_profile(reader, fields.profile()?).await?),
        "SelectSeries" => {
            let series = querier.select_series(reader, fields.points()?).await?.series;
            let first = series.first().and_then(|of| of.points.first()?.exemplars.first());
            if kept.is_none() {
                *kept = first.map(|exemplar| exemplar.profile_id.clone());
            }
            Value::Object(series.into_iter().map(points).collect())
        }
        "SelectHeatmap" => {
            let series = querier.select_heatmap(reader, fields.heatmap()?).await?.series;
            Value::Object(series.into_iter().map(slots).collect())
        }
        "Diff" => difference(querier.diff(reader, fields.diff()?).await?.flamegraph.expect("a graph")),
        "GetProfileStats" => {
            let stats = querier.get_profile_stats(reader, Default::default()).await?;
            assert!(stats.data_ingested && stats.oldest_profile_time <= stats.newest_profile_time);
            json!({})
        }
        "AnalyzeQuery" => {
            let impact = querier.analyze_query(reader, fields.query()?).await?.query_impact;
            assert!(impact.is_some_and(|impact| impact.total_bytes_in_time_range > 0));
            json!({})
        }
        other => panic!("{other} is unknown"),
    })
}

fn types(types: Vec<ProfileType>) -> Value {
    let row = |of: ProfileType| {
        (of.id, json!([of.name, of.sample_type, of.sample_unit, of.period_type, of.period_unit]))
    };
    Value::Object(types.into_iter().map(row).collect())
}

fn points(of: Series) -> (String, Value) {
    let point = |point: &Point| match &point.exemplars[..] {
        [] => json!([point.timestamp, point.value]),
        all => json!([point.timestamp, point.value, exemplars(all)]),
    };
    (labels(&of.labels), of.points.iter().map(point).collect())
}

fn slots(of: HeatmapSeries) -> (String, Value) {
    let slot =
        |slot: &HeatmapSlot| json!([slot.timestamp, slot.y_min, slot.counts, exemplars(&slot.exemplars)]);
    (labels(&of.labels), of.slots.iter().map(slot).collect())
}

fn difference(graph: FlameGraphDiff) -> Value {
    let shown = compare::Graph {
        names: &graph.names,
        levels: &rows(graph.levels),
        total: graph.total,
        max_self: graph.max_self,
        ticks: [graph.left_ticks, graph.right_ticks],
    };
    compare::flamegraph(&shown, 7)
}

fn labels(pairs: &[LabelPair]) -> String {
    let texts: Vec<String> = pairs.iter().map(|pair| format!("{}={}", pair.name, pair.value)).collect();
    texts.join(",")
}

/// In order, with ids of profiles left out: those are as random as they were recorded.
fn exemplars(all: &[Exemplar]) -> Value {
    let mut shown: Vec<(i64, Value)> = Vec::new();
    for Exemplar { timestamp, profile_id, span_id, trace_id, value, labels: pairs } in all {
        let id = if profile_id.len() == 36 { "<uuid>" } else { profile_id };
        shown.push((*timestamp, json!([timestamp, id, span_id, trace_id, value, labels(pairs)])));
    }
    shown.sort_by_key(|(time, exemplar)| (*time, exemplar.to_string()));
    shown.into_iter().map(|(_, exemplar)| exemplar).collect()
}

fn rows(levels: Vec<Level>) -> Vec<Vec<i64>> {
    levels.into_iter().map(|level| level.values).collect()
}

fn merged(answer: SelectMergeStacktracesResponse) -> Value {
    let mut shown = Map::new();
    if let Some(FlameGraph { names, levels, total, max_self }) = answer.flamegraph {
        let graph = compare::Graph { names: &names, levels: &rows(levels), total, max_self, ticks: [0, 0] };
        shown.insert("flamegraph".to_owned(), compare::flamegraph(&graph, 4));
    }
    if !answer.tree.is_empty() {
        shown.insert("tree".to_owned(), compare::tree(&answer.tree));
    }
    if !answer.dot.is_empty() {
        shown.insert("dot".to_owned(), compare::dot(&answer.dot));
    }
    if let Some(pprof) = answer.pprof {
        shown.insert("pprof".to_owned(), profile(&pprof.profile.expect("a profile")));
    }
    Value::Object(shown)
}

/// Stacks with file and line → values, and what the profile says of itself.
fn profile(profile: &Profile) -> Value {
    let text = |index: i64| profile.string_table.get(index as usize).cloned().unwrap_or_default();
    let kind = |of: &ValueType| format!("{}:{}", text(of.r#type), text(of.unit));
    let frame = |id: &u64| {
        let location = profile.location.iter().find(|location| location.id == *id).expect("a location");
        assert!(location.mapping_id > 0, "some readers refuse locations without a mapping");
        let lines = location.line.iter().rev().map(|line| {
            let function = profile.function.iter().find(|of| of.id == line.function_id).expect("a function");
            let (name, file) = (text(function.name), text(function.filename));
            if file.is_empty() && line.line == 0 { name } else { format!("{name}@{file}:{}", line.line) }
        });
        lines.collect::<Vec<_>>().join("+")
    };
    let mut samples = Map::new();
    for sample in &profile.sample {
        let path: Vec<String> = sample.location_id.iter().rev().map(frame).collect();
        let sum = samples.entry(compare::key(&path.join(";"))).or_insert(json!([0]));
        // Of two binaries, a stack may have the same names.
        *sum = json!([sum[0].as_i64().expect("a sum") + sample.value[0]]);
    }
    let mut mappings: Vec<String> = profile.mapping.iter().map(|mapping| text(mapping.filename)).collect();
    mappings.sort();
    json!({
        "types": profile.sample_type.iter().map(kind).collect::<Vec<_>>(),
        "period": [profile.period_type.as_ref().map(kind).unwrap_or_default(), profile.period],
        "time": profile.time_nanos / 1_000,
        "duration": profile.duration_nanos,
        "samples": samples,
        "mappings": mappings,
    })
}

pub async fn render(
    querier: &Querier,
    reader: &QueryContext,
    path: &str,
    query: &str,
) -> Result<Value, Status> {
    let is_diff = path.ends_with("-diff");
    let answer = match is_diff {
        true => querier.render_diff(reader, query).await?,
        false => querier.render(reader, query).await?,
    };
    if answer.content_type.starts_with("text/plain") {
        return Ok(compare::dot(&String::from_utf8(answer.body).expect("text")));
    }
    let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
    let of = &body["flamebearer"];
    let names: Vec<String> = serde_json::from_value(of["names"].clone()).expect("names");
    let levels: Vec<Vec<i64>> = serde_json::from_value(of["levels"].clone()).expect("levels");
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let graph = compare::Graph {
        names: &names,
        levels: &levels,
        total: number(&of["numTicks"]),
        max_self: number(&of["maxSelf"]),
        ticks: [number(&body["leftTicks"]), number(&body["rightTicks"])],
    };
    let timeline = |line: &Value| match line {
        Value::Null => Value::Null,
        line => json!({
            "start": line["startTime"], "step": line["durationDelta"], "samples": line["samples"],
        }),
    };
    let groups = body["groups"].as_object().map(|groups| {
        groups.iter().map(|(value, line)| (value.clone(), timeline(line))).collect::<Map<_, _>>()
    });
    Ok(json!({
        "flamebearer": compare::flamegraph(&graph, if is_diff { 7 } else { 4 }),
        "metadata": body["metadata"],
        "version": body["version"],
        "timeline": timeline(&body["timeline"]),
        "groups": groups,
    }))
}
