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
//! An [`Ask`] goes to every source that may hold something; [`run`] answers from one of them, and answers merge in
//! any order. So profiles may lie anywhere. Where one may lie in two places, each place tells the ids of what it has, and
//! all but one leave it out ([`Ids`], [`Doubles`]). Nothing is cut down on the way: whoever shows an answer truncates it,
//! once.
//!
//! Where sources are another process's, the question goes there packed, [`answer`] answers it, and the answer comes
//! back in [`Pieces`], which make a [`Received`] and then the same [`Partial`] again.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod ask;
mod canonical;
mod doubles;
mod frames;
mod heat;
mod hits;
mod meet;
mod merged;
mod partial;
mod profiles;
mod query;
mod run;
mod selector;
mod size;
mod stacks;
mod syntax;
mod wire;

pub use ask::{Ask, AskError, Bounds, Heat, Needs, Points, Selection, Steps, Trees, Values, What};
pub use canonical::Canonical;
pub use doubles::{Doubles, Ids, Place, Without};
pub use frames::{FrameFilter, FrameFilterError, FrameNames};
pub use heat::{HeatSeries, Spot, SpotKey};
pub use hits::{Found, Hits};
pub use meet::{Held, Meeting};
pub use partial::{Cell, Exemplar, LabelCounts, Merged, Partial, PointSeries, Told};
pub use profiles::{ListedProfile, ProfileList, ProfileOrder, Profiles};
pub use query::{NoKind, Query, TimeRange, TypeFilter};
pub use run::{Lying, Picked, answer, run, run_picked, series_labels};
pub use selector::{Matcher, Selector};
pub use size::{Size, Sizes};
pub use stacks::{CallSite, GoPgo, StackFilter};
pub use syntax::{MAX_MATCHERS, MAX_REGEXES, MAX_TEXT, SelectorError};
pub use wire::{MAX_ASK, MAX_PARTIAL, MAX_PIECE, Pieces, Received, WireError};
