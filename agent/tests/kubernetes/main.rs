//! Discovery in a Kubernetes cluster against a stand-in for the API server.

#![allow(clippy::unwrap_used)]

#[path = "../sampling/busy_program.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod busy_program;
mod cluster;
mod credentials;
mod discovery_run;
mod faults;
mod official_clients;
mod random_changes;
mod sampled_pod;
mod samples;
mod stand_in;
