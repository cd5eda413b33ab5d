//! What is asked, and computing it, whatever holds the data.
//!
//! ```text
//!  {service_name="shop", zone!~"eu-.*"} ─► Selector ┐
//!  cpu/nanoseconds ─► TypeFilter                    ├─► run(block) ─► Profile ─► every view of it
//!  from..to ─► TimeRange                            ┘
//! ```
//!
//! A query that covers all profiles of a block reads the roll-up and no sample.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod run;
mod selector;
mod syntax;

pub use run::{Query, QueryError, TimeRange, TypeFilter, run};
pub use selector::{Matcher, Selector};
pub use syntax::{MAX_MATCHERS, MAX_TEXT, SelectorError};
