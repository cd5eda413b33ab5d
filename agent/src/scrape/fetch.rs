//! Fetch of one profile over HTTP, within all limits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::units::format_duration;
use athanor_chassis::{Clock, Net};
use http::header::{ACCEPT_ENCODING, HeaderValue};
use http::{HeaderMap, StatusCode, Uri};
use parking_lot::Mutex;

use crate::address_policy::AddressPolicy;
use crate::http_client::{Destination, HttpClient, HttpClientError, HttpRequest, ResponseLimits};
use crate::scrape_target::{HttpClientSettings, ProfileKind, ScrapeJob, ScrapeTarget};

use super::body_buffer::{BodyBudgets, BodyBuffer, BufferedBody};
use super::body_check::{BodyCheck, MAX_STEP_BYTES};
use super::outcome::{ScrapeError, ScrapeErrorKind};
use super::pprof_walker::{BodyError, PprofSummary};
use super::profile_upload::SeriesPrefix;
use super::schedule::ScrapeOrder;

/// Maximum bytes of a profile after decompression.
pub const MAX_PLAIN_BYTES: u64 = 512 << 20;
/// Bytes of a body that must arrive in each window.
const MIN_BYTES_PER_WINDOW: u64 = 1 << 10;
/// Length of a window, beyond the time that the target records.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// Plain bytes that are checked before other tasks get the thread.
const MAX_CHECKED_BYTES: u64 = 1 << 20;
/// Clients of jobs that are remembered. Beyond it, all are dropped and made again.
const MAX_CLIENTS: usize = 4096;
/// Characters of an error response that a message shows.
const MAX_REASON_CHARS: usize = 200;
/// Text of net/http/pprof if another client records the CPU profile.
const BUSY_TEXT: &str = "already in use";

/// Source of profiles.
#[async_trait]
pub trait ProfileFetcher: Send + Sync + 'static {
    /// Fetches a profile within the limit of the order.
    ///
    /// # Errors
    ///
    /// The target sent no profile in time, or one that exceeds a limit.
    async fn fetch(&self, order: &ScrapeOrder) -> Result<FetchedProfile, ScrapeError>;
}

/// Profile as scraped, with free bytes in front of it.
#[derive(Debug)]
pub struct FetchedProfile {
    pub(super) body: BufferedBody,
    pub(super) summary: PprofSummary,
}

/// Fetcher of profiles over HTTP. It connects only to addresses that the policy returned.
pub struct HttpProfileFetcher {
    net: Arc<dyn Net>,
    clock: Clock,
    policy: AddressPolicy,
    budgets: BodyBudgets,
    max_plain_bytes: u64,
    /// Clients by the name of their job. Each has the credentials of its job only.
    clients: Mutex<HashMap<String, JobClient>>,
}

struct JobClient {
    settings: HttpClientSettings,
    client: HttpClient,
}

impl HttpProfileFetcher {
    /// Creates a fetcher for profiles of up to [`MAX_PLAIN_BYTES`].
    pub fn new(net: Arc<dyn Net>, clock: Clock, policy: AddressPolicy, budgets: BodyBudgets) -> Self {
        let clients = Mutex::default();
        Self { net, clock, policy, budgets, max_plain_bytes: MAX_PLAIN_BYTES, clients }
    }

    /// Sets the maximum bytes of a profile after decompression.
    #[must_use]
    pub fn with_max_plain_bytes(mut self, bytes: u64) -> Self {
        self.max_plain_bytes = bytes;
        self
    }

    fn client_of(&self, job: &ScrapeJob) -> HttpClient {
        let mut clients = self.clients.lock();
        if let Some(known) = clients.get(&job.name)
            && known.settings == job.http
        {
            return known.client.clone();
        }
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }
        let client = HttpClient::new(job.http.clone(), Arc::clone(&self.net), self.clock.clone());
        let known = JobClient { settings: job.http.clone(), client: client.clone() };
        clients.insert(job.name.clone(), known);
        client
    }

    async fn fetch_body(&self, order: &ScrapeOrder) -> Result<FetchedProfile, ScrapeError> {
        let started = self.clock.monotonic();
        let target = order.target.get();
        let uri = profile_uri(target, order.kind(), order.seconds)?;
        let failed = |message: String| ScrapeError::new(ScrapeErrorKind::Failed, message);
        let default_port = if target.scheme == "https" { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(default_port);
        let host = uri.host().unwrap_or_default();
        let addresses = self.policy.resolve(host, port, target.is_address_untrusted).await;
        let addresses = addresses.map_err(|error| failed(error.to_string()))?;
        let elapsed = self.clock.monotonic().saturating_sub(started);
        let recorded = Duration::from_secs(order.seconds.unwrap_or_default().into());
        let request = HttpRequest {
            uri,
            destination: Destination::Addresses(addresses),
            headers: HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]),
            limits: ResponseLimits {
                max_body_bytes: target.job.max_body_bytes,
                total_timeout: order.limit.saturating_sub(elapsed),
                min_bytes_per_window: MIN_BYTES_PER_WINDOW,
                rate_window: recorded + RATE_WINDOW,
            },
        };
        let prefix = SeriesPrefix::new(target, order.kind()).max_bytes();
        let mut buffer = BodyBuffer::new(prefix, self.budgets.clone());
        let head = self.client_of(&target.job).get_into(request, &mut buffer).await;
        let head = head.map_err(|error| client_error(&error, buffer.is_out_of_memory()))?;
        check_status(head.status, buffer.body())?;
        let summary = self.check_body(buffer.body()).await?;
        Ok(FetchedProfile { body: buffer.into_parts(), summary })
    }

    /// Checks a body in steps, so that a large one holds up no other task.
    async fn check_body(&self, body: &[u8]) -> Result<PprofSummary, ScrapeError> {
        let mut check = BodyCheck::new(self.max_plain_bytes);
        let mut checked = 0;
        for step in body.chunks(MAX_STEP_BYTES) {
            check.push(step).map_err(body_error)?;
            if check.plain_bytes() - checked > MAX_CHECKED_BYTES {
                checked = check.plain_bytes();
                tokio::task::yield_now().await;
            }
        }
        check.finish().map_err(body_error)
    }
}

#[async_trait]
impl ProfileFetcher for HttpProfileFetcher {
    async fn fetch(&self, order: &ScrapeOrder) -> Result<FetchedProfile, ScrapeError> {
        let fetched = self.clock.timeout(order.limit, self.fetch_body(order)).await;
        fetched.unwrap_or_else(|_| Err(timeout_error(order)))
    }
}

fn timeout_error(order: &ScrapeOrder) -> ScrapeError {
    let limit = format_duration(order.limit);
    let message = format!("response is incomplete after {limit}; raise scrape_timeout of the job");
    ScrapeError::new(ScrapeErrorKind::Timeout, message)
}

/// Returns the URI of a kind. The seconds follow the configured parameters.
fn profile_uri(target: &ScrapeTarget, kind: &ProfileKind, seconds: Option<u32>) -> Result<Uri, ScrapeError> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(&kind.params);
    if let Some(seconds) = seconds {
        query.append_pair("seconds", &seconds.to_string());
    }
    let query = query.finish();
    let separator = match (query.is_empty(), kind.path.contains('?')) {
        (true, _) => "",
        (false, true) => "&",
        (false, false) => "?",
    };
    let slash = if kind.path.starts_with('/') { "" } else { "/" };
    let text = format!("{}://{}{slash}{}{separator}{query}", target.scheme, target.address, kind.path);
    text.parse().map_err(|error| {
        let message = format!("address {:?} with path {:?} is no URL: {error}", target.address, kind.path);
        ScrapeError::new(ScrapeErrorKind::Failed, message)
    })
}

fn check_status(status: StatusCode, body: &[u8]) -> Result<(), ScrapeError> {
    if status == StatusCode::OK {
        return Ok(());
    }
    let reason = printable_start(body);
    let kind = match status {
        StatusCode::NOT_FOUND => ScrapeErrorKind::NotFound,
        StatusCode::INTERNAL_SERVER_ERROR if reason.contains(BUSY_TEXT) => ScrapeErrorKind::Busy,
        _ => ScrapeErrorKind::Failed,
    };
    let way_out = match status {
        StatusCode::NOT_FOUND => "; disable the kind or correct its path",
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; check the credentials of the job",
        status if status.is_redirection() => "; redirects are not followed, configure the final address",
        _ => "",
    };
    Err(ScrapeError::new(kind, format!("target responded {status}: {reason:?}{way_out}")))
}

/// Returns the first characters of a response, without control characters.
fn printable_start(body: &[u8]) -> String {
    let start = &body[..body.len().min(4 * MAX_REASON_CHARS)];
    let text = String::from_utf8_lossy(start);
    let printable = text.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    printable.take(MAX_REASON_CHARS).collect()
}

fn client_error(error: &HttpClientError, is_out_of_memory: bool) -> ScrapeError {
    let kind = match error {
        HttpClientError::BodyRejected { .. } if is_out_of_memory => ScrapeErrorKind::NoMemory,
        HttpClientError::BodyTooLarge { .. } => ScrapeErrorKind::TooLarge,
        HttpClientError::Timeout(_) | HttpClientError::SlowBody { .. } => ScrapeErrorKind::Timeout,
        _ => ScrapeErrorKind::Failed,
    };
    let way_out = match kind {
        ScrapeErrorKind::TooLarge => "; raise body_size_limit of the job",
        _ => "",
    };
    ScrapeError::new(kind, format!("{error}{way_out}"))
}

fn body_error(error: BodyError) -> ScrapeError {
    let kind = match error {
        BodyError::PlainTooLarge { .. } => ScrapeErrorKind::TooLarge,
        BodyError::Empty
        | BodyError::NotPprof { .. }
        | BodyError::Truncated { .. }
        | BodyError::Damaged { .. } => ScrapeErrorKind::NotPprof,
    };
    ScrapeError::new(kind, error.to_string())
}

#[cfg(test)]
#[path = "tests/fetch_tests.rs"]
mod tests;
