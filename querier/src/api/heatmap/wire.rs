//! Heatmaps on the wire.

use athanor_chassis::Status;
use athanor_proto::querier::v1::{
    HeatmapQueryType, HeatmapRows, SelectHeatmapRequest, SelectHeatmapResponse,
};
use athanor_proto::types::v1::{Exemplar, ExemplarType, HeatmapSeries, HeatmapSlot};
use athanor_query::{HeatmapValue, HeatmapValueKey};

use super::{
    HeatmapColumn, HeatmapRowSpacing, HeatmapSeriesResult, MAX_HEATMAP_ROWS, SelectHeatmapParams, heatmap,
};
use crate::QueryContext;
use crate::api::points::{group_labels, other_labels};
use crate::api::selection::parse_selection;
use crate::context::result_cache::cached_query::run_cached;
use crate::execute::executor::QueryExecutor;
use crate::validate::{self, NANOS_PER_MILLI, invalid_argument};

pub(crate) async fn select_heatmap(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SelectHeatmapRequest,
) -> Result<SelectHeatmapResponse, Status> {
    run_cached(executor, reader, "SelectHeatmap", request, |request| heatmap_of(executor, reader, request))
        .await
}

async fn heatmap_of(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SelectHeatmapRequest,
) -> Result<SelectHeatmapResponse, Status> {
    let SelectHeatmapRequest { start, end, group_by, limit, .. } = request;
    let selection =
        parse_selection(executor, &request.profile_type_id, &request.label_selector, start, end).await?;
    validate::check_labels(&group_by)?;
    let step = validate::parse_step(request.step)?;
    if start == end {
        return Err(invalid_argument("time range of a heatmap is empty; set end after start"));
    }
    let exemplars = ExemplarType::try_from(request.exemplar_type).unwrap_or_default();
    let spans = match (HeatmapQueryType::try_from(request.query_type).unwrap_or_default(), exemplars) {
        (HeatmapQueryType::Unspecified, _) => {
            return Err(invalid_argument("heatmap has no query type; request individual profiles or spans"));
        }
        (HeatmapQueryType::Individual, ExemplarType::Span)
        | (HeatmapQueryType::Span, ExemplarType::Individual) => {
            return Err(invalid_argument(
                "exemplar type of the heatmap differs from its query type; use individual or span for both",
            ));
        }
        (of, _) => of == HeatmapQueryType::Span,
    };
    let exemplars = matches!(exemplars, ExemplarType::Individual | ExemplarType::Span);
    let spacing = match HeatmapRows::try_from(request.rows).unwrap_or_default() {
        HeatmapRows::Linear => HeatmapRowSpacing::Linear,
        HeatmapRows::Quantile => HeatmapRowSpacing::Quantile,
    };
    let group = group_by.clone();
    let limit = validate::parse_limit(limit);
    let asked =
        SelectHeatmapParams { selection, start, end, step, group_by, spans, exemplars, limit, spacing };
    let (edges, series) = heatmap(executor, reader, asked).await?;
    let slots: usize = series.iter().map(|of| of.columns.len()).sum();
    executor.reserve_memory(reader, slots * MAX_HEATMAP_ROWS * size_of::<(f64, i32)>() * 2)?;
    let series = executor
        .render_on_pool(reader, move || series.into_iter().map(|of| wire(of, &edges, &group)).collect());
    Ok(SelectHeatmapResponse { series: series.await?, warnings: reader.warnings() })
}

fn wire(of: HeatmapSeriesResult, edges: &[f64], group_by: &[String]) -> HeatmapSeries {
    let slot = |HeatmapColumn { time, counts, exemplars }: HeatmapColumn| HeatmapSlot {
        timestamp: time,
        y_min: edges.to_vec(),
        counts: counts
            .iter()
            .take(edges.len())
            .map(|&count| i32::try_from(count).unwrap_or(i32::MAX))
            .collect(),
        exemplars: exemplars.into_iter().map(|(key, spot)| wire_exemplar(key, spot, group_by)).collect(),
    };
    HeatmapSeries {
        labels: group_labels(&of.labels, group_by),
        slots: of.columns.into_iter().map(slot).collect(),
    }
}

/// Converts a value to an exemplar. A value of a span names the span, one of a profile the profile.
fn wire_exemplar(key: HeatmapValueKey, spot: HeatmapValue, group_by: &[String]) -> Exemplar {
    let HeatmapValue { value, time, trace, labels } = spot;
    let hexadecimal = |id: u128, digits: usize| match id {
        0 => String::new(),
        id => format!("{id:0digits$x}"),
    };
    Exemplar {
        timestamp: time.div_euclid(NANOS_PER_MILLI),
        profile_id: if key.span == 0 { validate::format_uuid(key.profile) } else { String::new() },
        span_id: hexadecimal(u128::from(key.span), 16),
        value,
        labels: labels.map(|labels| other_labels(&labels, group_by)).unwrap_or_default(),
        trace_id: hexadecimal(trace, 32),
    }
}
