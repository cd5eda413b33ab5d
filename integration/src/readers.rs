//! What readers that others wrote say of profiles.

pub mod go;
pub mod jdk;
pub mod otel;
