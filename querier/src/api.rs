//! Query API: one module per family of requests, from the wire request to the rendered response.
//!
//! - `merge`: flame graphs, trees, call graphs, pprof and differences.
//! - `points`: time series of values.
//! - `heatmap`: counts of profiles or spans by time and value.
//! - `lists`: profile types, labels, series and time ranges.
//! - `estimate`: cost of a query before it runs.
//! - `explore`: function tables, source lines, subtrees, changes and single profiles.
//! - `render`: the render endpoints of older clients.
//! - `selection`: selections of requests, parsed on a compute thread if that takes time.

pub(crate) mod estimate;
pub(crate) mod explore;
pub(crate) mod heatmap;
pub(crate) mod lists;
pub(crate) mod merge;
pub(crate) mod points;
pub(crate) mod render;
pub(crate) mod selection;
