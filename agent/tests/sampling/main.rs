//! The sampler in the binary on the real kernel: `record`, `top`, and the privileges of each process.

#![allow(clippy::unwrap_used)]

mod busy_program;
mod commands;
mod privileges;
