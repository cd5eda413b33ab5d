//! Source lines of a function with their weights.

mod wire;
