//! Head store of a shard: rows in memory that queries read.
//!
//! ```text
//!  generations ─► head ─┬─► rows        encoded samples, by stack
//!                       ├─► row_sums    sum of each profile
//!                       └─► sum_cache   sums by stack that earlier queries computed
//! ```
//! - `generations`: unflushed heads and, for a while, flushed ones.
//! - `head`: one generation of the log, by tenant. Its dictionaries and profiles only grow.

pub(crate) mod generations;
pub(crate) mod head;
pub(crate) mod row_sums;
pub(crate) mod rows;
pub(crate) mod sum_cache;
