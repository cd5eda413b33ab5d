//! In which order sources are asked.

use proptest::prelude::*;

pub fn orders() -> impl Strategy<Value = Vec<usize>> {
    Just(vec![0, 1, 2, 3]).prop_shuffle()
}
