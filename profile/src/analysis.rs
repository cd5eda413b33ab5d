//! Computations on profiles and call trees: merges, rankings and comparisons.
//!
//! * `merge`: any number of profiles into one, by adding into arrays.
//! * `prune`: removal of frames that a profile declares uninteresting.
//! * `transform`: changes of stacks, such as focus and hide.
//! * `top_table`, `source_lines`: functions and source lines by weight.
//! * `sandwich`: callers and callees of one function.
//! * `diff`: difference of two trees, node by node.
//! * `package_name`, `frame_origins`, `origin_table`: package, file, line and binary of frames.
//! * `value_divisor`: averages of gauges.
//! * `compare`, `sampling_noise`: ranked changes, each tested against sampling noise.

pub mod compare;
pub mod diff;
pub mod frame_origins;
pub mod merge;
pub mod origin_table;
pub mod package_name;
pub mod prune;
pub mod sampling_noise;
pub mod sandwich;
pub mod source_lines;
pub mod top_table;
pub mod transform;
pub mod value_divisor;
