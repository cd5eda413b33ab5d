//! Function table of Go programs (pclntab): names of functions and unwind rows, also of stripped files.
//!
//! ```text
//!  header ─► function table (sorted entries) ─► function record ─► name
//!     │                                               └─► pcsp: depth of the stack by pc ─► unwind rows
//!     └─► text start (header, relocation or moduledata)
//! ```
//!
//! Nothing is loaded as a whole: lookups are binary searches with small reads.
//!
//! * `header`: layouts of Go 1.2, 1.16, 1.18 and 1.20.
//! * `text_start`: address that entries are relative to.
//! * `functions`: functions by address.
//! * `frame_kind`: functions with rules of their own: roots of stacks and switches of stacks.
//! * `rows`: unwind rows of a page of code.

mod frame_kind;
mod functions;
mod header;
mod rows;
mod text_start;

pub use functions::{GoFunction, GoFunctionTable};
pub use header::{FunctionTableError, TableVersion};

#[cfg(test)]
pub(crate) mod tests;
