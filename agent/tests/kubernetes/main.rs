//! Discovery in a Kubernetes cluster against a stand-in for the API server.

#![allow(clippy::unwrap_used)]

mod cluster;
mod credentials;
mod discovery_run;
mod faults;
mod official_clients;
mod random_changes;
mod samples;
mod stand_in;
