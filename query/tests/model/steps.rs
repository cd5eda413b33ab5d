//! Points in time that are asked about.

use athanor_query::TimeGrid;
use proptest::prelude::*;

pub fn steps() -> impl Strategy<Value = TimeGrid> {
    (0..30i64, 1..20i64, 1..8u64).prop_map(|(start, step, count)| TimeGrid { start, step, count })
}
