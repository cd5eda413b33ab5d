//! Values over time on the wire.

use athanor_chassis::Status;
use athanor_proto::querier::v1::{
    HeatmapQueryType, SelectHeatmapRequest, SelectHeatmapResponse, SelectSeriesRequest, SelectSeriesResponse,
};
use athanor_proto::types::v1::{ExemplarType, LabelPair, Point, Series, TimeSeriesAggregationType};

use super::{PointSeries, PointsAsked};
use crate::check::{self, invalid};
use crate::later::Later;
use crate::merge::call_site_of;
use crate::{Querier, Reader};

impl Querier {
    /// Sums or means of values over time.
    pub async fn select_series(
        &self,
        reader: &Reader,
        request: SelectSeriesRequest,
    ) -> Result<SelectSeriesResponse, Status> {
        let SelectSeriesRequest { start, end, group_by, limit, .. } = request;
        let selection = check::selection(&request.profile_type_id, &request.label_selector, start, end)?;
        check::labels(&group_by)?;
        let step = check::step(request.step)?;
        let call_site = call_site_of(request.stack_trace_selector)?;
        match ExemplarType::try_from(request.exemplar_type) {
            Ok(ExemplarType::Individual) => return Err(Later::Exemplars.refuse()),
            Ok(ExemplarType::Span) => {
                return Err(invalid("points over time have no exemplars of spans; ask for individual ones"));
            }
            _ => {}
        }
        let mean = request.aggregation == Some(TimeSeriesAggregationType::Average as i32);
        let group = group_by.clone();
        let asked = PointsAsked { selection, start, end, step, group_by, call_site, mean };
        let series = largest(self.points(reader, asked).await?, limit);
        Ok(SelectSeriesResponse { series: wire(series, &group) })
    }

    /// Not answered yet, but checked.
    pub async fn select_heatmap(
        &self,
        _reader: &Reader,
        request: SelectHeatmapRequest,
    ) -> Result<SelectHeatmapResponse, Status> {
        let SelectHeatmapRequest { start, end, .. } = request;
        check::selection(&request.profile_type_id, &request.label_selector, start, end)?;
        check::labels(&request.group_by)?;
        check::step(request.step)?;
        if start == end {
            return Err(invalid("time range of a heatmap is empty; set end after start"));
        }
        let exemplars = ExemplarType::try_from(request.exemplar_type).unwrap_or_default();
        match (HeatmapQueryType::try_from(request.query_type).unwrap_or_default(), exemplars) {
            (HeatmapQueryType::Unspecified, _) => {
                Err(invalid("heatmap has no query type; ask for individual profiles or spans"))
            }
            (HeatmapQueryType::Individual, ExemplarType::Span)
            | (HeatmapQueryType::Span, ExemplarType::Individual) => {
                Err(invalid("exemplars of a heatmap must be of what it shows; ask for both of one kind"))
            }
            _ => Err(Later::Heatmaps.refuse()),
        }
    }
}

/// The series with the largest sums; all if no number is given.
fn largest(mut series: PointSeries, limit: Option<i64>) -> PointSeries {
    let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0) else {
        return series;
    };
    let sum = |points: &[(i64, f64)]| points.iter().map(|(_, value)| value).sum::<f64>();
    // Stable: of equal sums the first by labels stays.
    series.sort_by(|left, right| sum(&right.1).total_cmp(&sum(&left.1)));
    series.truncate(limit);
    series
}

/// Labels come in the order in which they were asked for.
fn wire(series: PointSeries, group_by: &[String]) -> Vec<Series> {
    let one = |(labels, points): (athanor_profile::Labels, Vec<(i64, f64)>)| {
        let mut names: Vec<&String> = Vec::new();
        group_by.iter().for_each(|name| {
            if !names.contains(&name) {
                names.push(name)
            }
        });
        let values = names.into_iter().filter_map(|name| labels.get(name).map(|value| (name, value)));
        let labels = values.map(|(name, value)| LabelPair { name: name.clone(), value: value.to_owned() });
        let points = points.into_iter().map(|(timestamp, value)| Point {
            value,
            timestamp,
            annotations: Vec::new(),
            exemplars: Vec::new(),
        });
        Series { labels: labels.collect(), points: points.collect() }
    };
    series.into_iter().map(one).collect()
}
