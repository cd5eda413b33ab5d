//! List queries: profile types, labels, series and time ranges.

mod wire;
