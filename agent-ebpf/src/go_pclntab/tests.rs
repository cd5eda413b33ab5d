//! Tests with real programs of Go and with tables that are written by hand.

pub(crate) mod programs;
mod real_programs;
mod rows;
mod written_tables;
