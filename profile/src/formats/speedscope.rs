//! Reader and writer of the speedscope file format.
//!
//! ```text
//!  bytes ─► document: one pass, frames go into the dictionary ─► read: values by stack, then rows
//! ```
//! A document has its profiles in any order and often its frames last. Values are therefore kept as plain
//! lists until the whole document is read. They are added up as decimal numbers and converted to whole units
//! once, at the end. Every unit of time becomes nanoseconds.

mod document;
mod profiles;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use document::SpeedscopeUnit;
pub use profiles::{SpeedscopeProfile, SpeedscopeProfiles, read_profiles};
pub use read::{SpeedscopeError, parse};
pub use write::write;

/// Exporter name in documents with a type for their values, which only our writer produces.
const OWN_EXPORTER_NAME: &str = "athanor";
