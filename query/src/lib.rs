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
mod frame_filter;
mod heatmap;
mod merged_profile;
mod partial;
mod partial_merger;
mod partial_origin;
mod profile_filter;
mod profile_list;
mod profile_query;
mod query_cost;
mod run;
mod selector;
mod selector_parser;
mod stack_filter;
mod wire;

pub use canonical::CanonicalQuery;
pub use dedup::{DuplicateExclusions, ExcludedIds, ProfileIdsBySource, SourceId};
pub use frame_filter::{FrameFilter, FrameFilterError, FramePatterns};
pub use heatmap::{HeatmapValue, HeatmapValueKey, HeatmapValues};
pub use partial::{
    LabelValueCounts, MergedProfile, PartialResult, PartialWithIds, ProfileExemplar, TimeSeriesPoint,
    TimeSeriesPoints,
};
pub use partial_merger::{BudgetedPartial, PartialMerger};
pub use partial_origin::{PartialOrigin, PartialOriginCounts};
pub use profile_filter::{ProfileFilter, TimeRange, ValueTypeFilter, ValueTypeFilterError};
pub use profile_list::{ProfileList, ProfileListEntry, ProfileListQuery, ProfileOrder};
pub use profile_query::{
    GroupedTreesQuery, HeatmapQuery, LabelValuesQuery, ProfileQuery, ProfileQueryError, ProfileSelection,
    QueryKind, RequiredData, ResultLimits, TimeGrid, TimeSeriesQuery,
};
pub use query_cost::{QueryCost, SourceCost};
pub use run::{DedupSource, MatchedProfiles, run, run_all, run_matched, series_labels};
pub use selector::{Matcher, Selector};
pub use selector_parser::{MAX_MATCHERS, MAX_REGEXES, MAX_SELECTOR_BYTES, SelectorError};
pub use stack_filter::{CallSite, GoPgoOptions, StackFilter};
pub use wire::{
    MAX_CHUNK_BYTES, MAX_ENCODED_PARTIAL_BYTES, MAX_ENCODED_QUERY_BYTES, PartialChunkBuffer, PartialChunks,
    WireError,
};
