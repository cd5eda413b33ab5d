//! Upload: a request to a server in its final form.

pub(crate) mod push_series;

use async_trait::async_trait;
use athanor_chassis::{Status, TenantId, Timestamp};
use bytes::Bytes;

/// Request to a server, in its final form. No retry changes its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Tenant of all profiles in it. None sends no tenant header.
    pub tenant: Option<TenantId>,
    /// Method of the server that receives the body.
    pub route: UploadRoute,
    /// Uncompressed protobuf message of `Push` and `Otlp`, or body of `/ingest` as sent by the client.
    pub body: Bytes,
    /// Number of profiles in the body, for metrics. 1 if unknown.
    pub profiles: u32,
    /// Constraint on the order of delivery.
    pub order: UploadOrder,
    /// Origin, which decides whether the upload may be evicted.
    pub origin: UploadOrigin,
    /// Latest time of its profiles, for the decision whether the upload is fresh.
    pub time: Timestamp,
}

/// Method of the server that receives an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadRoute {
    /// `push.v1.PusherService/Push`. The body is a `PushRequest`.
    Push,
    /// `POST /ingest`.
    Ingest {
        /// Query string, without `?`.
        query: String,
        /// Content type of the body.
        content_type: String,
        /// Content encoding of the body. Empty if the body is not encoded.
        content_encoding: String,
    },
    /// OpenTelemetry export of profiles. The body is an `ExportProfilesServiceRequest`.
    Otlp,
}

/// Constraint on the order of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadOrder {
    /// Uploads may be delivered in any order and in parallel.
    Independent,
    /// Uploads with the same hash of the series are delivered in order, one request at a time, because the
    /// server computes the differences of successive snapshots.
    Cumulative(u64),
}

/// Origin of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UploadOrigin {
    /// The agent scraped or sampled it. A full spool evicts the oldest of these.
    Scraped,
    /// A client pushed it and received an acknowledgement. It is never evicted.
    Received,
}

/// Destination of uploads: the spools of all servers.
#[async_trait]
pub trait UploadSink: Send + Sync + 'static {
    /// Stores an upload. It is durable in at least one spool when this returns. A spool that is full misses it and
    /// counts its profiles as dropped. A client that waits for the result of a received upload makes the spool
    /// close its file within 50 ms, otherwise it closes it within 1 s.
    ///
    /// # Errors
    ///
    /// `Exhausted` with a retry delay if all spools are full and nothing may be evicted.
    async fn store(&self, upload: Upload) -> Result<(), Status>;
}
