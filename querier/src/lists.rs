//! What there is: types, labels, series, counts.

mod wire;
