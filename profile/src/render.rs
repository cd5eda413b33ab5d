//! Output of call trees and graphs for display. Text from profiles is untrusted and is filtered first.
//!
//! * `svg`, `ansi`: flame graphs as self-contained files and for the terminal.
//! * `dot`: call graphs for Graphviz.
//! * `layout`: positions and labels of the bars, used by `svg` and `ansi`.
//! * `printable`, `units`: filters for text, and formatting of values with units.

pub mod ansi;
pub mod dot;
pub(crate) mod layout;
pub mod printable;
pub mod svg;
pub mod units;
