//! Files and graphs that are made of a profile say what the profile says, to readers that know only how each is written:
//! property tests over profiles that use every corner of the model.

#![allow(clippy::unwrap_used)]

mod dot;
mod otlp;
mod paths;
mod speedscope;
