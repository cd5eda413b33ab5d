//! How a server is run: what it tells of itself, how it starts and stops, what it says to clients that err.

#![allow(clippy::unwrap_used)]

mod cumulative_profiles;
mod dev_cluster;
mod disk_full;
mod exposition;
mod health;
mod members;
mod metrics;
mod refusals;
mod shutdown;
mod throttling;
mod tls;
mod web_ui;
