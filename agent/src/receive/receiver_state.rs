//! State that all requests of a receiver share: settings, memory, identities and counters.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{ByteSize, CpuActivity, ErrorCode, Status, TenantId};
use athanor_http_server::decoded_size::BodyPolicy;
use athanor_http_server::unary::RequestIdentity;
use athanor_http_server::{PeerAddress, RequestBudget};
use athanor_profile::Labels;
use axum::body::Body;
use axum::http::header::USER_AGENT;
use axum::http::{HeaderMap, Request};
use futures::future::join_all;
use parking_lot::RwLock;

use super::failure::ReceiveError;
use super::metrics::{ReceiveCounters, ReceiveForm};
use super::received_identity::IdentitySource;
use super::sender_labels::{PeerLabels, added_labels};
use super::tenant_choice::{TenantChoice, header_tenant};
use crate::config::ReceiveSettings;
use crate::upload::{Upload, UploadSink};

/// Maximum bytes of a body, as sent and decompressed.
pub(super) const MAX_BODY_BYTES: ByteSize = ByteSize::mib(64);
/// Origin of the body limit in error messages.
/// Delay after which a client retries while the owners of addresses are not known.
const UNREADY_RETRY_AFTER: Duration = Duration::from_secs(1);
const BODY_LIMIT_NAME: &str = "fixed for received profiles";

/// Beginning of the user agent of other agents.
const FORWARDER_NAME: &[u8] = b"athanor-agent/";

/// State that all requests share.
pub(super) struct ReceiverState {
    pub(super) door: RequestBudget,
    pub(super) identities: IdentitySource,
    pub(super) settings: RwLock<Arc<ReceiveSettings>>,
    pub(super) sink: Arc<dyn UploadSink>,
    pub(super) peers: Arc<dyn PeerLabels>,
    pub(super) counters: ReceiveCounters,
}

/// Sender of one request: its tenant, and the labels that its profiles get.
#[derive(Clone)]
pub(super) struct SenderContext {
    pub(super) tenant: TenantChoice,
    pub(super) added: Labels,
}

impl RequestIdentity for SenderContext {
    fn payer(&self) -> Option<&TenantId> {
        None
    }
}

impl ReceiverState {
    /// Returns the sender of a request.
    pub(super) fn sender(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Result<SenderContext, Status> {
        let settings = Arc::clone(&self.settings.read());
        if settings.adds_sender_labels && !self.peers.is_ready() {
            let message = "the agent has started and does not know the labels of senders yet; retry";
            return Err(Status::new(ErrorCode::Unavailable, message).with_retry_after(UNREADY_RETRY_AFTER));
        }
        let header = header_tenant(&settings.tenant, headers)?;
        // The peer is the pod of an agent that forwards profiles, not their sender.
        let peer = peer.filter(|_| !is_forwarded(headers));
        let added = added_labels(&settings, &*self.peers, peer);
        Ok(SenderContext { tenant: TenantChoice::new(header, settings.tenant.clone()), added })
    }

    /// Runs work on a body of `bytes` bytes, on the compute pool if it is large.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<R, ReceiveError> + Send + 'static,
    ) -> Result<R, Status> {
        let done = self.door.run_on_compute(CpuActivity::HttpBody, bytes, work).await?;
        done.map_err(|error| Status::from_error(&error))
    }

    /// Stores the uploads of a request, all at once, so that they share the wait for the disk. All are durable when
    /// it returns. A client whose request fails in part
    /// sends all of it once more, and servers recognize the stored part.
    pub(super) async fn store(&self, form: ReceiveForm, uploads: Vec<Upload>) -> Result<(), Status> {
        let stores = uploads.into_iter().map(async |upload| {
            let profiles = upload.profiles;
            let bytes = upload.body.len();
            self.sink.store(upload).await?;
            self.counters.record_upload(form, profiles, bytes);
            Ok(())
        });
        join_all(stores).await.into_iter().collect()
    }
}

/// Returns whether another agent sent a request.
fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.get(USER_AGENT).is_some_and(|name| name.as_bytes().starts_with(FORWARDER_NAME))
}

/// Returns the limits of the body of an OpenTelemetry export.
pub(super) fn export_policy() -> BodyPolicy {
    let mut policy = BodyPolicy::export(MAX_BODY_BYTES);
    policy.set_by = BODY_LIMIT_NAME;
    policy
}

/// Returns the limits of the bodies of all other requests.
pub(super) fn profiles_policy() -> BodyPolicy {
    let mut policy = BodyPolicy::profiles(MAX_BODY_BYTES);
    policy.set_by = BODY_LIMIT_NAME;
    policy
}

/// Returns the address of the client of a request.
pub(super) fn peer_address(request: &Request<Body>) -> Option<IpAddr> {
    request.extensions().get::<PeerAddress>().map(|peer| peer.0.ip())
}
