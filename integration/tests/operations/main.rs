//! How a server is run: what it tells of itself, how it starts and stops, what it says to clients that err.

#![allow(clippy::unwrap_used)]

mod exposition;
mod health;
mod members;
mod metrics;
mod refusals;
mod room;
mod stop;
mod throttling;
mod tls;
