//! Values of single profiles and spans of one source, for heatmaps.

use std::collections::HashMap;

use athanor_profile::ProfileSource;
use athanor_profile::data_model::identity::profile_id_of_record;

use super::groups::{SeriesGroups, group_entry};
use super::matched_profiles::MatchedProfiles;
use super::points::sum_by_profile;
use crate::request::profile_query::{HeatmapQuery, ProfileQueryError, ProfileSelection, ResultLimits};
use crate::request::stack_filter::StackFilter;
use crate::result::heatmap::{HeatmapValue, HeatmapValueKey, HeatmapValues, add_heatmap_value};
use crate::result::sum_check::PROFILE_VALUES;

/// Returns the values of one source.
pub(super) fn collect_heatmap_values(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    heat: &HeatmapQuery,
    bounds: &ResultLimits,
    source: &dyn ProfileSource,
) -> Result<HeatmapValues, ProfileQueryError> {
    let mut groups = SeriesGroups::new(picked, &heat.group_by);
    let mut gathered = Vec::new();
    let mut labels = picked.label_cache();
    let mut put = |place: u32, span: u64, value: i64, trace: u128| {
        let row = &picked.profiles[place as usize];
        let Some(column) = heat.steps.point_index(row.time) else { return Ok(()) };
        let labels = heat.exemplars.then(|| labels.full_labels(row.series).clone());
        let key = HeatmapValueKey { column, profile: profile_id_of_record(row.id), span };
        let of_group = group_entry(&mut gathered, groups.group_of(row.series));
        add_heatmap_value(of_group, key, HeatmapValue { value, time: row.time, trace, labels })
    };
    if heat.spans {
        for ((place, span), (value, trace)) in sum_by_span(picked, selection, bounds, source)? {
            put(place, span, value, trace)?;
        }
        return Ok(groups.into_map(gathered));
    }
    let sums = sum_by_profile(picked, selection, &StackFilter::default(), source)?;
    let summed = picked.places.iter().zip(sums);
    for (&place, sum) in summed.filter(|&(&place, _)| picked.profiles[place as usize].samples > 0) {
        put(place, 0, sum, 0)?;
    }
    Ok(groups.into_map(gathered))
}

/// Sum of the rows and trace id, by profile and span.
type SpanTotals = HashMap<(u32, u64), (i64, u128)>;

fn sum_by_span(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    bounds: &ResultLimits,
    source: &dyn ProfileSource,
) -> Result<SpanTotals, ProfileQueryError> {
    let mut spans = SpanTotals::new();
    let wanted = selection.requests.as_ref();
    let mut has_wrapped = false;
    source.visit_span_rows(&picked.places, &mut |place, _, values, requests| {
        // Values beyond the limit are not collected, because the query fails below.
        if spans.len() > bounds.points {
            return;
        }
        let rows = values.iter().zip(requests).filter(|(_, request)| request.span != 0);
        for (&value, &request) in rows.filter(|(_, request)| wanted.is_none_or(|all| all.contains(**request)))
        {
            let (sum, trace) = spans.entry((place, request.span)).or_default();
            let (next, wraps) = sum.overflowing_add(value);
            *sum = next;
            has_wrapped |= wraps;
            *trace = request.trace.max(*trace);
        }
    })?;
    if has_wrapped {
        return Err(ProfileQueryError::SumTooLarge { what: PROFILE_VALUES });
    }
    match spans.len() > bounds.points {
        true => Err(ProfileQueryError::TooLarge { what: "values of spans", limit: bounds.points }),
        false => Ok(spans),
    }
}
