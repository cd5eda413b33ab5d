//! `/ingest`: profiles in the forms that language SDKs send. The body passes through as sent.

use athanor_chassis::Timestamp;
use athanor_profile::Labels;
use athanor_profile::encoding::multipart::MultipartForm;
use bytes::Bytes;

use super::failure::ReceiveError;
use super::ingest_query::IngestQuery;
use super::received_identity::{IdentitySource, OwnTime, own_time};
use super::receiver_state::SenderContext;
use super::sender_labels::SERVICE_LABEL;
use crate::upload::{Upload, UploadOrder, UploadOrigin, UploadRoute};

/// Upper bound of a form part with the types of a profile. A server refuses longer ones.
const MAX_TYPE_CONFIG_BYTES: usize = 64 << 10;
/// Content types that mean a tree or trie of stacks. They have precedence over all other formats.
const TREE_CONTENT_TYPES: [&str; 2] = ["binary/octet-stream+trie", "binary/octet-stream+tree"];

/// Request as received.
pub(super) struct IngestRequest {
    pub(super) query: String,
    pub(super) content_type: String,
    pub(super) content_encoding: String,
    pub(super) body: Bytes,
}

/// Returns the upload of a request.
pub(super) fn ingest_upload(
    request: IngestRequest,
    sender: &SenderContext,
    identities: &IdentitySource,
    now: Timestamp,
) -> Result<Upload, ReceiveError> {
    let mut query = IngestQuery::parse(&request.query, now)?;
    query.add_labels(&sender.added);
    if !query.has_time() && needs_time(&query, &request) {
        query.set_time(identities.unique_time());
    }
    let tenant = sender.tenant.tenant(|label| {
        let service = (label == SERVICE_LABEL).then(|| query.app());
        query.label(label).or(service).map(str::to_owned)
    })?;
    let order = delivery_order(&query, &request);
    let route = UploadRoute::Ingest {
        query: query.into_query(),
        content_type: request.content_type,
        content_encoding: request.content_encoding,
    };
    let body = request.body;
    Ok(Upload { tenant, route, body, profiles: 1, order, origin: UploadOrigin::Received, time: now })
}

/// Returns whether the profile has no time of its own. Text has none. A server prefers the time within a document
/// to that of the query.
fn needs_time(query: &IngestQuery, request: &IngestRequest) -> bool {
    if TREE_CONTENT_TYPES.contains(&&*request.content_type) {
        return true;
    }
    let is_form = request.is_form();
    match query.value("format").as_deref() {
        // Each chunk of a flight recording has its time, which the query would replace.
        Some("jfr") => false,
        Some("pprof") if !is_form => own_time(&request.body) == OwnTime::Absent,
        Some("trie" | "tree" | "lines" | "speedscope" | "flamebearer" | "perf" | "perf_script") => true,
        _ if is_form => {
            let profile = request.form_part("profile");
            profile.is_some_and(|profile| own_time(&profile) == OwnTime::Absent)
        }
        _ => true,
    }
}

/// Returns the order of delivery. Clients of this route send differences, unless a part of the form marks types
/// as cumulative.
fn delivery_order(query: &IngestQuery, request: &IngestRequest) -> UploadOrder {
    let config = request.is_form().then(|| {
        let part = request.form_part("sample_type_config");
        part.filter(|part| part.len() <= MAX_TYPE_CONFIG_BYTES)
    });
    match config.flatten() {
        Some(config) if has_cumulative_type(&config) => {
            let mut labels: Labels = query.labels();
            labels.set("__name__", query.app());
            UploadOrder::Cumulative(labels.hash() as u64)
        }
        _ => UploadOrder::Independent,
    }
}

fn has_cumulative_type(config: &[u8]) -> bool {
    let Ok(serde_json::Value::Object(types)) = serde_json::from_slice(config) else { return false };
    types.values().any(|kind| kind.get("cumulative").and_then(serde_json::Value::as_bool).unwrap_or_default())
}

impl IngestRequest {
    fn is_form(&self) -> bool {
        self.content_type.contains("multipart/form-data")
    }

    /// Returns the content of a part. A form that cannot be read has none, and the server refuses it.
    fn form_part(&self, name: &str) -> Option<Bytes> {
        MultipartForm::parse(&self.content_type, &self.body).ok()?.get(name).cloned()
    }
}
