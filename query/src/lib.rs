//! What is asked, whatever holds the data, and the answer.
//!
//! ```text
//!  {service_name="shop", zone!~"eu-.*"} ─► Selector ─┐
//!  process_cpu:cpu:nanoseconds:cpu:nanoseconds       ├─► Selection ─┐
//!  from..to ─► TimeRange ────────────────────────────┘              ├─► Ask
//!  types, labels, trees, profiles, points, heat ─► What ───────────┘    │
//!                                                                        ▼
//!  Source (block, head, memory) ──────────────────────────────► run ─► Partial ┐
//!  Source ────────────────────────────────────────────────────► run ─► Partial ┴─► merge
//! ```
//!
//! An [`ProfileQuery`] goes to every source that may hold something; [`run`] answers from one of them, and answers merge in
//! any order. So profiles may lie anywhere. Where one may lie in two places, each place tells the ids of what it has, and
//! all but one leave it out ([`ProfileIdsBySource`], [`DuplicateExclusions`]). Nothing is cut down on the way: whoever shows an answer truncates it,
//! once.
//!
//! Where sources are another process's, the question goes there packed, [`run_all`] answers it, and the answer comes
//! back in [`PartialChunks`], which make a [`PartialChunkBuffer`] and then the same [`PartialResult`] again.

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
