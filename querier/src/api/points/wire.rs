//! Time series on the wire.

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_proto::querier::v1::{SelectSeriesRequest, SelectSeriesResponse};
use athanor_proto::types::v1::{
    Exemplar as WireExemplar, ExemplarType, LabelPair, Point, Series, TimeSeriesAggregationType,
};
use athanor_query::ProfileExemplar;

use super::{SelectSeriesParams, SeriesResult, select_points};
use crate::QueryContext;
use crate::api::merge::parse_stacks;
use crate::api::selection::parse_selection;
use crate::context::result_cache::cached_query::run_cached;
use crate::execute::executor::QueryExecutor;
use crate::validate::{self, NANOS_PER_MILLI, invalid_argument};

pub(crate) async fn select_series(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SelectSeriesRequest,
) -> Result<SelectSeriesResponse, Status> {
    run_cached(executor, reader, "SelectSeries", request, |request| series_of(executor, reader, request))
        .await
}

async fn series_of(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SelectSeriesRequest,
) -> Result<SelectSeriesResponse, Status> {
    let SelectSeriesRequest { start, end, group_by, limit, .. } = request;
    let selection =
        parse_selection(executor, &request.profile_type_id, &request.label_selector, start, end).await?;
    validate::check_labels(&group_by)?;
    let step = validate::parse_step(request.step)?;
    // The form of stacks does not change their sums.
    let stacks = parse_stacks(executor, request.stack_trace_selector).await?.filter;
    let exemplars = match ExemplarType::try_from(request.exemplar_type) {
        Ok(ExemplarType::Individual) => true,
        Ok(ExemplarType::Span) => {
            return Err(invalid_argument(
                "time series have no span exemplars; request individual exemplars, or use SelectHeatmap for spans",
            ));
        }
        _ => false,
    };
    let mean = request.aggregation == Some(TimeSeriesAggregationType::Average as i32);
    let group = group_by.clone();
    let asked = SelectSeriesParams { selection, start, end, step, group_by, stacks, mean, exemplars };
    let series = select_points(executor, reader, asked).await?;
    let series = executor.render_on_pool(reader, move || wire(largest(series, limit), &group)).await?;
    Ok(SelectSeriesResponse { series, warnings: reader.warnings() })
}

/// Returns the series with the largest sums, or all series without a limit.
fn largest(series: Vec<SeriesResult>, limit: Option<i64>) -> Vec<SeriesResult> {
    let Some(limit) = validate::parse_limit(limit) else { return series };
    let sum = |of: &SeriesResult| of.points.iter().map(|(_, value)| value).sum::<f64>();
    let mut by_sum: Vec<(f64, SeriesResult)> = series.into_iter().map(|of| (sum(&of), of)).collect();
    // The sort is stable: of equal sums the first by labels stays.
    by_sum.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    by_sum.into_iter().take(limit).map(|(_, of)| of).collect()
}

fn wire(series: Vec<SeriesResult>, group_by: &[String]) -> Vec<Series> {
    let one = |SeriesResult { labels, points, exemplars }: SeriesResult| {
        let exemplars = exemplars.into_iter().chain(std::iter::repeat(None));
        let points = points.into_iter().zip(exemplars).map(|((timestamp, value), exemplar)| Point {
            value,
            timestamp,
            annotations: Vec::new(),
            exemplars: exemplar.map(|exemplar| wire_exemplar(exemplar, group_by)).into_iter().collect(),
        });
        Series { labels: group_labels(&labels, group_by), points: points.collect() }
    };
    series.into_iter().map(one).collect()
}

fn wire_exemplar(
    ProfileExemplar { value, time, id, labels }: ProfileExemplar,
    group_by: &[String],
) -> WireExemplar {
    WireExemplar {
        timestamp: time.div_euclid(NANOS_PER_MILLI),
        profile_id: validate::format_uuid(id),
        span_id: String::new(),
        value,
        labels: other_labels(&labels, group_by),
        trace_id: String::new(),
    }
}

/// Returns label pairs in the order of the request.
pub(crate) fn group_labels(labels: &Labels, group_by: &[String]) -> Vec<LabelPair> {
    let mut names: Vec<&String> = Vec::new();
    group_by.iter().for_each(|name| {
        if !names.contains(&name) {
            names.push(name)
        }
    });
    let values = names.into_iter().filter_map(|name| labels.get(name).map(|value| (name, value)));
    values.map(|(name, value)| LabelPair { name: name.clone(), value: value.to_owned() }).collect()
}

/// Returns the exemplar labels that are not in the series: profile type and service first, then the rest by
/// name.
pub(crate) fn other_labels(labels: &Labels, group_by: &[String]) -> Vec<LabelPair> {
    const LEADING_LABELS: [&str; 2] = ["__profile_type__", "__service_name__"];
    let first = LEADING_LABELS.into_iter().filter_map(|name| labels.get(name).map(|value| (name, value)));
    let rest = labels.iter().filter(|(name, _)| !LEADING_LABELS.contains(name));
    let others = first.chain(rest).filter(|(name, _)| !group_by.iter().any(|group| group == name));
    others.map(|(name, value)| LabelPair { name: name.to_owned(), value: value.to_owned() }).collect()
}
