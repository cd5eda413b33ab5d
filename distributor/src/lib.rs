//! The door for profiles. It holds no state that outlives a request but counters, so any number of them may run.
//!
//! ```text
//!  push.v1, Parca ─► wire ──────────────────► admission ─► label rules ─┐
//!                                                                       ├─► Upload ─► Shards::append
//!  /ingest ─► Request ─► admission ─► pprof, form, folded text ─► ──────┤
//!             (name, from, spy …)     (metric name, fix-ups)            │
//!  OTLP ────────────────► admission ─► pprof of each profile ─► ────────┘
//! ```
//!
//! * [`Distributor::push`]: profiles with the labels of their series, as agents send them. Every profile is tried;
//!   an error says which ones are stored, so that nobody has to guess, and repeating the request is always safe.
//! * [`Distributor::write_raw`]: the same in the words of Parca.
//! * [`Distributor::ingest`]: one profile in the form that language SDKs send. What it is called and what it
//!   counts is read from the application's name and from the profile's types; some SDKs need small repairs. A
//!   profile in another format becomes pprof here, so that shards know one format only.
//! * [`Distributor::export`]: an export of OpenTelemetry, from its bytes. Each of its profiles is tried, and the answer says
//!   how many are not stored, and why.
//! * [`ShardWriter`]: what the distributor needs of the rest of the cluster. A shard decodes the profile, in one walk,
//!   and refuses it if it is malformed; the distributor passes that on in the words of the door it came through.
//! * [`Limits`](athanor_chassis::Limits) that need no decoding hold here: the size of a request, its rate, labels.
//!   All requests together may hold so many bytes and no more; the rest are asked to come back.
//!
//! What is not promised: that the profiles of one request are stored together or in their order.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admission;
mod distributor;
mod ingest;
mod otlp;
mod parca;
mod push;
mod rpc;
mod stats;

pub use distributor::{
    Distributor, DistributorConfig, DistributorDeps, ProfileOutcome, PushSummary, ShardWriter, StoredProfile,
};
pub use ingest::{
    AppName, AppNameError, FormError, FormPart, IngestError, IngestRequest, IngestRequestError,
    MultipartForm, convert_profiles, default_metric_name,
};
pub use otlp::{ExportSummary, OtlpEncoding};
pub use push::{PushedProfile, PushedSeries};
pub use stats::{DistributorStats, RefusalCounts, TenantCounts};
