//! The lines of a function.

mod wire;
