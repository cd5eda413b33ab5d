//! Request side of a query: the computation and the selected profiles.
//!
//! ```text
//!  selector_parser ─► selector ─► profile_filter ─► ProfileSelection ─┬─► profile_query
//!  frame_filter ─► stack_filter ──────────────────────────────────────┘
//! ```
//! - `profile_query`: the whole query, with its kind, limits and required data.
//! - `profile_position`: place of a profile in a list.
//! - `profile_filter`: tenant, series, value type and time range of profiles.
//! - `selector`, `selector_parser`: matchers of series labels, and their parser.
//! - `stack_filter`, `frame_filter`: stacks that count, and functions that they must or must not contain.

pub(crate) mod frame_filter;
pub(crate) mod profile_filter;
pub(crate) mod profile_position;
pub(crate) mod profile_query;
pub(crate) mod selector;
pub(crate) mod selector_parser;
pub(crate) mod stack_filter;
