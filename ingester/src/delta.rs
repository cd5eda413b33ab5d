//! Conversion of cumulative profiles to deltas.
//!
//! ```text
//!  upload ─► delta_converter ─► record: begins or adds ─► log ─► cumulative_tracker
//!                 ▲                                                     │
//!                 └──────────── last values of the series ◄─────────────┘
//! ```
//! - `cumulative_tracker`: last values of each series, after the applied entries.
//! - `cumulative_values`: values of one series, and their increase by its next profile.
//! - `delta_converter`: subtraction, while a batch is built.

pub(crate) mod cumulative_tracker;
pub(crate) mod cumulative_values;
pub(crate) mod delta_converter;
