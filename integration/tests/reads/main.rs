//! Every question of the read path while profiles go from heads to blocks and blocks are replaced by others: at each
//! moment the answer is that of a server that has the same profiles in its memory, and sums are those of a map.

#![allow(clippy::unwrap_used)]

mod profiles;
mod questions;
mod scenario;
