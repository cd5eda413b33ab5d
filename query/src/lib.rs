//! What is asked, whatever holds the data.
//!
//! ```text
//!  {service_name="shop", zone!~"eu-.*"} ─► Selector ┐
//!  cpu/nanoseconds ─► TypeFilter                    ├─► Query ─► whoever holds rows answers it
//!  from..to ─► TimeRange                            ┘
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod query;
mod selector;
mod syntax;

pub use query::{Query, TimeRange, TypeFilter};
pub use selector::{Matcher, Selector};
pub use syntax::{MAX_MATCHERS, MAX_TEXT, SelectorError};
