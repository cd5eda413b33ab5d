//! Heatmaps on the wire.

use athanor_chassis::Status;
use athanor_proto::querier::v1::{
    HeatmapQueryType, HeatmapRows, SelectHeatmapRequest, SelectHeatmapResponse,
};
use athanor_proto::types::v1::{Exemplar, ExemplarType, HeatmapSeries, HeatmapSlot};
use athanor_query::{Spot, SpotKey};

use super::{Column, HeatmapAsked, HeatmapOf, ROWS, Spacing};
use crate::check::{self, MILLI, invalid};
use crate::points::{group_labels, other_labels};
use crate::{Querier, Reader};

impl Querier {
    /// How many profiles or spans have values of about the same size, over time.
    pub async fn select_heatmap(
        &self,
        reader: &Reader,
        request: SelectHeatmapRequest,
    ) -> Result<SelectHeatmapResponse, Status> {
        self.again(reader, "SelectHeatmap", request, |request| self.heatmap_of(reader, request)).await
    }

    async fn heatmap_of(
        &self,
        reader: &Reader,
        request: SelectHeatmapRequest,
    ) -> Result<SelectHeatmapResponse, Status> {
        let SelectHeatmapRequest { start, end, group_by, limit, .. } = request;
        let selection = self.selection(&request.profile_type_id, &request.label_selector, start, end).await?;
        check::labels(&group_by)?;
        let step = check::step(request.step)?;
        if start == end {
            return Err(invalid("time range of a heatmap is empty; set end after start"));
        }
        let exemplars = ExemplarType::try_from(request.exemplar_type).unwrap_or_default();
        let spans = match (HeatmapQueryType::try_from(request.query_type).unwrap_or_default(), exemplars) {
            (HeatmapQueryType::Unspecified, _) => {
                return Err(invalid("heatmap has no query type; ask for individual profiles or spans"));
            }
            (HeatmapQueryType::Individual, ExemplarType::Span)
            | (HeatmapQueryType::Span, ExemplarType::Individual) => {
                return Err(invalid(
                    "exemplars of a heatmap must be of what it shows; ask for both of one kind",
                ));
            }
            (of, _) => of == HeatmapQueryType::Span,
        };
        let exemplars = matches!(exemplars, ExemplarType::Individual | ExemplarType::Span);
        let spacing = match HeatmapRows::try_from(request.rows).unwrap_or_default() {
            HeatmapRows::Linear => Spacing::Linear,
            HeatmapRows::Quantile => Spacing::Quantile,
        };
        let (group, limit) = (group_by.clone(), check::most(limit));
        let asked = HeatmapAsked { selection, start, end, step, group_by, spans, exemplars, limit, spacing };
        let (edges, series) = self.heatmap(reader, asked).await?;
        let slots: usize = series.iter().map(|of| of.columns.len()).sum();
        self.make_room(reader, slots * ROWS * size_of::<(f64, i32)>() * 2)?;
        let series =
            self.shape(reader, move || series.into_iter().map(|of| wire(of, &edges, &group)).collect());
        Ok(SelectHeatmapResponse { series: series.await?, missing: reader.lacks() })
    }
}

fn wire(of: HeatmapOf, edges: &[f64], group_by: &[String]) -> HeatmapSeries {
    let slot = |Column { time, counts, exemplars }: Column| HeatmapSlot {
        timestamp: time,
        y_min: edges.to_vec(),
        counts: counts
            .iter()
            .take(edges.len())
            .map(|&count| i32::try_from(count).unwrap_or(i32::MAX))
            .collect(),
        exemplars: exemplars.into_iter().map(|exemplar| wire_exemplar(exemplar, group_by)).collect(),
    };
    HeatmapSeries {
        labels: group_labels(&of.labels, group_by),
        slots: of.columns.into_iter().map(slot).collect(),
    }
}

/// A value of a span names the span, one of a profile the profile.
fn wire_exemplar((key, spot): (SpotKey, Spot), group_by: &[String]) -> Exemplar {
    let Spot { value, time, trace, labels } = spot;
    let hexadecimal = |id: u128, digits: usize| match id {
        0 => String::new(),
        id => format!("{id:0digits$x}"),
    };
    Exemplar {
        timestamp: time.div_euclid(MILLI),
        profile_id: if key.span == 0 { check::uuid(key.profile) } else { String::new() },
        span_id: hexadecimal(u128::from(key.span), 16),
        value,
        labels: labels.map(|labels| other_labels(&labels, group_by)).unwrap_or_default(),
        trace_id: hexadecimal(trace, 32),
    }
}
