//! speedscope's file format, read and written.
//!
//! ```text
//!  bytes ─► document: one pass, frames go into the dictionary ─► read: values by stack, then rows
//! ```
//! A document says its profiles in any order and its frames often last, so values wait as plain lists until all of it
//! is read. They are added up as the decimal numbers that they are, and become whole units once, at the end: whatever
//! unit of time a document has, nanoseconds.

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

/// Who wrote the documents that name a type of their values, as ours do.
const OWN_EXPORTER_NAME: &str = "athanor";
