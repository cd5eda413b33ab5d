//! Call trees and their form on the wire. Queries merge trees, and clients display flame graphs.
//!
//! * `tree`: stacks merged by function name, truncated, encoded, merged in one pass.
//! * `flamegraph`: levels of bars, four numbers per bar, as clients expect them.

pub mod flamegraph;
pub mod tree;
