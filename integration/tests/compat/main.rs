//! Compatibility with clients and formats of others: their wire protocols, their files, and their tools as
//! oracles.

#![allow(clippy::unwrap_used)]

mod arrow_streams;
mod go_pgo;
mod go_pprof;
mod go_transforms;
mod golden;
mod grafana_panel;
mod ingest_formats;
mod jdk_jfr;
mod otlp;
mod parca;
mod prometheus_regex;
mod prometheus_relabel;
mod sdks;
mod wire;
