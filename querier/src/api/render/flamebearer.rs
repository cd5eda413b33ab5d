//! Flame graphs in the JSON format of older clients.

use std::collections::BTreeMap;

use athanor_profile::ProfileType;
use athanor_profile::call_tree::flamegraph::Flamegraph;
use serde::Serialize;

use super::timeline::FlamebearerTimeline;

/// Flame graph with its metadata and timelines.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FlamebearerResponse {
    pub(super) version: u8,
    pub(super) flamebearer: FlamebearerLevels,
    pub(super) metadata: RenderMetadata,
    pub(super) timeline: Option<FlamebearerTimeline>,
    pub(super) groups: Option<BTreeMap<String, FlamebearerTimeline>>,
    pub(super) heatmap: Option<()>,
    /// Totals of both sides of a comparison. 0 is omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left_ticks: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) right_ticks: Option<i64>,
    /// Warnings about data that the graph lacks. Older clients ignore them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

/// Bars of the flame graph: four numbers each, or seven for a comparison.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FlamebearerLevels {
    pub(super) names: Vec<String>,
    pub(super) levels: Vec<Vec<i64>>,
    pub(super) num_ticks: i64,
    pub(super) max_self: i64,
}

/// Number of profiles in the graph: one or two.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FlamebearerFormat {
    Single,
    Double,
}

/// Display options of the values.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RenderMetadata {
    format: FlamebearerFormat,
    spy_name: &'static str,
    sample_rate: u32,
    units: String,
    name: String,
}

impl FlamebearerResponse {
    pub(super) fn new(flamebearer: FlamebearerLevels, metadata: RenderMetadata) -> Self {
        FlamebearerResponse {
            version: 1,
            flamebearer,
            metadata,
            timeline: None,
            groups: None,
            heatmap: None,
            left_ticks: None,
            right_ticks: None,
            warnings: Vec::new(),
        }
    }
}

impl FlamebearerLevels {
    pub(super) fn from_flamegraph(graph: Flamegraph) -> Self {
        let Flamegraph { names, levels, total, max_self } = graph;
        FlamebearerLevels { names, levels, num_ticks: total, max_self }
    }
}

impl RenderMetadata {
    /// Returns the metadata of a type. CPU time is shown as samples of one nanosecond each.
    pub(super) fn from_profile_type(profile_type: &ProfileType, format: FlamebearerFormat) -> Self {
        let kind = profile_type.value.kind.as_str();
        let (units, sample_rate) = match kind {
            "cpu" => ("samples", 1_000_000_000),
            "inuse_objects" | "alloc_objects" | "goroutine" | "samples" => ("objects", 100),
            _ => (profile_type.value.unit.as_str(), 100),
        };
        RenderMetadata { format, spy_name: "", sample_rate, units: units.to_owned(), name: kind.to_owned() }
    }
}
