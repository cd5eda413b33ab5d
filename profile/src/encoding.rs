//! Primitives below the data model and all formats.
//!
//! * `hash`: 128-bit content hashes, and maps with hashes as keys.
//! * `codec`: varints and texts, only for data that Athanor itself writes.
//! * `decimal`: exact decimal numbers.
//! * `numbering`: numbering of a file's table entries in the order of first use.

pub mod codec;
pub(crate) mod decimal;
pub mod hash;
pub(crate) mod numbering;
