//! Distributor role: receives profiles over all ingest protocols. Its only state that outlives a request is
//! counters and rate limits, so any number of distributors may run.
//!
//! ```text
//!  push.v1, Parca ─► rpc ───────────────► admission ─► label rules ───┐
//!                                                                     ├─► ProfileUpload ─► ShardWriter
//!  /ingest ─► IngestRequest ─► admission ─► pprof, form, folded text ─┤
//!             (name, from, spy …)          (metric name, fix-ups)     │
//!  OTLP ──────────────────────► admission ─► pprof of each profile ───┘
//! ```
//!
//! * [`Distributor::push`]: profiles with the labels of their series, as agents send them. Every profile is
//!   tried. The error lists the stored profiles, and a retry of the whole request is always safe.
//! * [`Distributor::write_raw`]: the same for the messages of Parca.
//! * [`Distributor::ingest`]: one profile in the form that language SDKs send. The application's name and the
//!   profile's types give the service and the metric. Some SDKs need small repairs. Profiles in other formats
//!   are converted to pprof here, so shards read only pprof.
//! * [`Distributor::export`]: an OpenTelemetry export, from its bytes. Each profile is tried, and the
//!   response gives the number of rejected profiles and the reasons.
//! * [`ShardWriter`]: interface to the rest of the cluster. A shard decodes the profile in one pass and
//!   rejects a malformed one. The distributor maps that error to the protocol of the request.
//! * [Limits](athanor_chassis::TenantLimits) that need no decoding are checked here: request size, rate, labels.
//!   The bytes of all requests in flight are limited. A request over that limit is rejected with a retry
//!   delay.
//!
//! The profiles of one request are not guaranteed to be stored together or in order.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admission;
mod distributor;
mod ingest;
pub mod metrics;
mod otlp;
mod parca;
mod push;
mod rpc;
mod stats;
mod stored_profile;

pub use distributor::{Distributor, DistributorConfig, DistributorDeps, PushSummary, ShardWriter};
pub use ingest::{IngestError, IngestRequest, IngestRequestError, convert_profiles};
pub use otlp::{ExportSummary, OtlpEncoding};
pub use push::{PushedProfile, PushedSeries};
pub use stats::{DistributorStats, RefusalCounts, TenantCounts};
pub use stored_profile::{ProfileOutcome, StoredProfile};
