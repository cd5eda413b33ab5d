//! Endpoints for clients: uploads, queries and the web UI.
//!
//! - `legacy_api`: uploads of language SDKs and queries of old dashboards.
//! - `otlp`: OpenTelemetry exports over gRPC and plain HTTP.
//! - `tables`, `samples`: results as Arrow streams.
//! - `parca`, `debuginfo`: RPCs of Parca, and uploads of debug information.
//! - `tenants`: list of tenants.
//! - `diagnostics`: records of query diagnostics.
//! - `ui`: files of the web UI, and redirects to it.
//! - `trace_response`: trace id of a response.
//! - `web_page`: parts of the pages that the server renders.
//! - `web_policy`: web pages that may call the server, and the permissions of its own pages.

pub(crate) mod debuginfo;
pub(crate) mod diagnostics;
pub(crate) mod legacy_api;
pub(crate) mod otlp;
pub(crate) mod parca;
pub(crate) mod samples;
pub(crate) mod tables;
pub(crate) mod tenants;
pub(crate) mod trace_response;
pub(crate) mod ui;
pub(crate) mod web_page;
pub(crate) mod web_policy;
