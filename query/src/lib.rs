//! Queries over profiles, independent of their location, and their mergeable results.
//!
//! ```text
//!  {service_name="shop", zone!~"eu-.*"} ─► Selector ─┐
//!  process_cpu:cpu:nanoseconds:cpu:nanoseconds       ├─► ProfileSelection ─┐
//!  from..to ─► TimeRange ────────────────────────────┘                     ├─► ProfileQuery
//!  types, labels, trees, profiles, points, heat ─► QueryKind ──────────────┘        │
//!                                                                                   ▼
//!  ProfileSource (block, head, memory) ──────────────────────────────────► run ─► PartialResult ┐
//!  ProfileSource ────────────────────────────────────────────────────────► run ─► PartialResult ┴─► merge
//! ```
//!
//! A [`ProfileQuery`] goes to every source that may hold matching profiles. [`run`] executes it on one of
//! them, and results merge in any order. So profiles may be in any source. If a profile may be in two places,
//! each place reports its ids, and all but one exclude it ([`ProfileIdsBySource`], [`DuplicateExclusions`]).
//! Partial results are never truncated: the renderer truncates the merged result, once.
//!
//! If sources belong to another process, the query is sent to it in packed form, and [`run_all`] executes it
//! there. The result returns in [`PartialChunks`]. They fill a [`PartialChunkBuffer`], which unpacks to the
//! same [`PartialResult`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod canonical;
mod dedup;
mod request;
mod resolution;
mod result;
mod run;
mod tier_plan;
mod wire;

pub use canonical::CanonicalQuery;
pub use dedup::{DuplicateExclusions, ExcludedIds, ProfileIdsBySource, SourceId};
pub use request::frame_filter::{FrameFilter, FrameFilterError, FramePatterns};
pub use request::profile_filter::{ProfileFilter, TimeRange, ValueTypeFilter, ValueTypeFilterError};
pub use request::profile_position::ProfilePosition;
pub use request::profile_query::{
    GroupedTreesQuery, HeatmapQuery, LabelValuesQuery, ProfileListQuery, ProfileOrder, ProfileQuery,
    ProfileQueryError, ProfileSelection, QueryKind, RequiredData, RequiredResolution, ResultLimits,
    SamplesQuery, TimeGrid, TimeSeriesQuery,
};
pub use request::selector::{Matcher, Selector};
pub use request::selector_parser::{MAX_MATCHERS, MAX_REGEXES, MAX_SELECTOR_BYTES, SelectorError};
pub use request::stack_filter::{CallSite, GoPgoOptions, StackFilter};
pub use resolution::{ResolutionStretch, ResultResolution};
pub use result::heatmap::{HeatmapValue, HeatmapValueKey, HeatmapValues};
pub use result::origin_tree::OriginTree;
pub use result::partial::{
    LabelValueCounts, MergedProfile, PartialResult, PartialWithIds, ProfileExemplar, TimeSeriesPoint,
    TimeSeriesPoints,
};
pub use result::partial_merger::{BudgetedPartial, PartialMerger};
pub use result::partial_origin::{PartialOrigin, PartialOriginCounts};
pub use result::profile_count::{ProfileCount, ProfileCounts};
pub use result::profile_list::{ProfileList, ProfileListEntry};
pub use result::query_cost::{QueryCost, SourceCost};
pub use result::sample_list::{ListedSample, SampleList, SampledProfile};
pub use run::dedup_source::{DedupSource, run_all};
pub use run::labels::series_labels;
pub use run::matched_profiles::MatchedProfiles;
pub use run::{run, run_matched};
pub use tier_plan::{RowTimes, TierPlan, TierPlanInput};
pub use wire::{
    MAX_CHUNK_BYTES, MAX_ENCODED_PARTIAL_BYTES, MAX_ENCODED_QUERY_BYTES, PartialChunkBuffer, PartialChunks,
    WireError,
};
