//! Context of one request: tenants, deadline, memory and warnings.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_chassis::requests::result_budget::ResultReservation;
use athanor_chassis::tenant::TenantError;
use athanor_chassis::{Clock, Status, TenantId};
use athanor_query::{ProfileQuery, ResultResolution};
use parking_lot::Mutex;

use crate::context::quarantine::ActiveQueries;
use crate::context::result_cache::ResultProvenance;
use crate::diagnostics::{QueryTrace, RequestTrace};

/// Maximum number of tenants in one request.
pub const MAX_TENANTS_PER_REQUEST: usize = 64;
/// Maximum duration of a query, and the timeout of clients that name none.
const MAX_QUERY_TIME: Duration = Duration::from_secs(5 * 60);

/// Context of one request: one tenant, or several that are read as one.
#[derive(Clone, Debug)]
pub struct QueryContext {
    tenants: Vec<TenantId>,
    /// True if label names may contain other characters than letters, digits and `_`. Older clients reject
    /// such names.
    pub utf8_labels: bool,
    /// Warnings about data that the results lack. Clones share them, so that every sub-query can add some.
    warnings: Arc<Mutex<BTreeSet<String>>>,
    /// Resolution of the results, if a query read profiles. Clones share it.
    resolution: Arc<Mutex<Option<ResultResolution>>>,
    /// Memory that the results hold. The last clone releases it, when the response is written.
    held: Arc<Mutex<Vec<ResultReservation>>>,
    /// Deadline on the monotonic clock. Clones share it, so that it counts from the first query.
    until: Arc<OnceLock<Duration>>,
    /// Queries so far, for one response. Clones share them.
    asked: Arc<Mutex<Vec<Arc<ProfileQuery>>>>,
    /// Provenance of the results so far. Clones share it.
    made: Arc<Mutex<Vec<ResultProvenance>>>,
    /// Record of active queries, for the case that they kill the process. Clones share it.
    asking: Arc<ActiveQueries>,
    /// Set when a plan was made for the request. A later equal request may then see newer data. Clones share
    /// it.
    planned: Arc<AtomicBool>,
    /// Trace of the request, if diagnostics were requested.
    watch: Option<Arc<RequestTrace>>,
    /// True if this context runs an async query that another context started.
    is_behind: bool,
}

/// Reasons why a tenant header is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantsError {
    /// A part of the header is not a tenant id.
    #[error(transparent)]
    Tenant(#[from] TenantError),
    /// The request names too many tenants.
    #[error("request names {0} tenants, the limit is {MAX_TENANTS_PER_REQUEST}; name fewer tenants")]
    TooMany(usize),
}

impl ErrorCodeExt for TenantsError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Unauthenticated
    }
}

impl QueryContext {
    /// Creates a context of one tenant.
    pub fn for_tenant(tenant: TenantId) -> Self {
        QueryContext::for_tenants(vec![tenant])
    }

    /// Parses tenants as `a|b`. Duplicates count once, and empty parts are skipped.
    pub fn parse(tenants: &str) -> Result<Self, TenantsError> {
        let mut parts: Vec<&str> = tenants.split('|').filter(|part| !part.is_empty()).collect();
        parts.sort_unstable();
        parts.dedup();
        if parts.is_empty() {
            return Err(TenantError::Empty.into());
        }
        if parts.len() > MAX_TENANTS_PER_REQUEST {
            return Err(TenantsError::TooMany(parts.len()));
        }
        let tenants = parts.into_iter().map(str::parse).collect::<Result<_, TenantError>>()?;
        Ok(QueryContext::for_tenants(tenants))
    }

    fn for_tenants(tenants: Vec<TenantId>) -> Self {
        QueryContext {
            tenants,
            utf8_labels: false,
            warnings: Arc::default(),
            resolution: Arc::default(),
            held: Arc::default(),
            until: Arc::default(),
            asked: Arc::default(),
            made: Arc::default(),
            asking: Arc::default(),
            planned: Arc::default(),
            watch: None,
            is_behind: false,
        }
    }

    pub(crate) fn with_trace(self, watch: Arc<RequestTrace>) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// Starts the trace of a query. Returns an empty trace if diagnostics are off.
    pub(crate) fn start_query_trace(&self, ask: &ProfileQuery) -> QueryTrace {
        self.watch.as_ref().map(|watch| watch.start_query(ask)).unwrap_or_default()
    }

    /// Records in the trace that the response came from the result cache.
    pub(crate) fn record_cache_hit(&self) {
        if let Some(watch) = &self.watch {
            watch.record_cache_hit();
        }
    }

    /// Records in the trace that the response came from an equal request in flight.
    pub(crate) fn record_coalesced(&self) {
        if let Some(watch) = &self.watch {
            watch.record_coalesced();
        }
    }

    /// Marks that a plan is made for the request.
    pub(crate) fn mark_planned(&self) {
        self.planned.store(true, Ordering::SeqCst);
    }

    /// Returns the flag that is set once a plan was made for the request.
    pub(crate) fn planned_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.planned)
    }

    /// Ends the request, with its error if it failed. Returns the id of the diagnostics record, if there is
    /// one. The record of an async query is written later.
    pub fn finish_request(&self, failed: Option<&Status>) -> Option<String> {
        // No work continues for this request.
        self.asking.finish_all(failed.is_none());
        let watch = self.watch.as_ref()?;
        if self.is_behind || !watch.is_async() {
            watch.finish_request(failed, &self.warnings());
        }
        Some(watch.id())
    }

    /// Sets the timeout, capped at `MAX_QUERY_TIME`. Only the first call has an effect.
    pub fn set_timeout(&self, clock: &Clock, wait: Duration) {
        self.until.get_or_init(|| clock.monotonic() + wait.min(MAX_QUERY_TIME));
    }

    /// Returns the deadline on the monotonic clock.
    pub(crate) fn deadline(&self, clock: &Clock) -> Duration {
        *self.until.get_or_init(|| clock.monotonic() + MAX_QUERY_TIME)
    }

    /// Returns a context of the same tenants for an async query, without queries so far.
    pub(crate) fn fork_async(&self) -> Self {
        let watch = self.watch.clone().inspect(|watch| watch.mark_async());
        let utf8_labels = self.utf8_labels;
        QueryContext {
            utf8_labels,
            watch,
            is_behind: true,
            ..QueryContext::for_tenants(self.tenants.clone())
        }
    }

    /// Returns a context of the same tenants for a part of a stream, with its own deadline and results.
    pub(crate) fn fork_page(&self) -> Self {
        QueryContext { utf8_labels: self.utf8_labels, ..QueryContext::for_tenants(self.tenants.clone()) }
    }

    /// Returns the record of active queries.
    pub(crate) fn active_queries(&self) -> &ActiveQueries {
        &self.asking
    }

    /// Returns a context of one of the tenants, with the same deadline and its own results.
    pub(crate) fn narrow_to_tenant(&self, tenant: &TenantId) -> Self {
        QueryContext { until: Arc::clone(&self.until), ..QueryContext::for_tenant(tenant.clone()) }
    }

    /// Adds a query to those of this request.
    pub(crate) fn add_query(&self, ask: Arc<ProfileQuery>) {
        self.asked.lock().push(ask);
    }

    /// Returns the queries so far.
    pub(crate) fn past_queries(&self) -> Vec<Arc<ProfileQuery>> {
        self.asked.lock().clone()
    }

    /// Adds the provenance of a query's result.
    pub(crate) fn add_provenance(&self, made: ResultProvenance) {
        self.made.lock().push(made);
    }

    /// Returns the provenance of the results so far.
    pub(crate) fn result_provenance(&self) -> Vec<ResultProvenance> {
        self.made.lock().clone()
    }

    /// Applies an `Accept` header, such as `*/*; allow-utf8-labelnames=true`.
    #[must_use]
    pub fn with_accept_header(mut self, accept: &str) -> Self {
        let ranges = accept.split(',').flat_map(|range| range.split(';').skip(1));
        let pairs = ranges.filter_map(|parameter| parameter.split_once('='));
        self.utf8_labels = pairs.into_iter().any(|(name, value)| {
            name.trim().eq_ignore_ascii_case("allow-utf8-labelnames")
                && value.trim().trim_matches('"').eq_ignore_ascii_case("true")
        });
        self
    }

    /// Returns the warnings of the results so far, sorted. Empty if the results are complete.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().iter().cloned().collect()
    }

    /// Adds warnings. Control characters from other nodes and stores are replaced, so that each warning is
    /// one line.
    pub(crate) fn add_warnings(&self, warnings: Vec<String>) {
        let lines = warnings.into_iter().map(|warning| warning.replace(char::is_control, " "));
        self.warnings.lock().extend(lines);
    }

    /// Returns the resolution of the results so far. None if no query read profiles.
    pub fn resolution(&self) -> Option<ResultResolution> {
        self.resolution.lock().clone()
    }

    /// Adds the resolution of a result.
    pub(crate) fn add_resolution(&self, resolution: &ResultResolution) {
        self.resolution.lock().get_or_insert_default().merge(resolution);
    }

    pub(crate) fn hold_memory(&self, taken: ResultReservation) {
        self.held.lock().push(taken);
    }

    /// Returns the bytes that the results hold.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.lock().iter().map(ResultReservation::bytes).sum()
    }

    /// Releases held memory beyond these bytes. Returns the bytes still held.
    pub(crate) fn shrink_held_memory(&self, bytes: usize) -> usize {
        let mut held = self.held.lock();
        let Some(mut all) = held.drain(..).reduce(ResultReservation::merge) else { return 0 };
        all.shrink(bytes);
        let left = all.bytes();
        held.push(all);
        left
    }

    /// Transfers the held memory to a response of this size. Releases memory beyond it.
    pub fn take_response_budget(&self, bytes: usize) -> Option<ResultReservation> {
        let mut held = self.held.lock();
        let mut all = held.drain(..).reduce(ResultReservation::merge)?;
        all.shrink(bytes);
        Some(all)
    }

    /// Returns the tenants, sorted and without duplicates.
    pub fn tenants(&self) -> &[TenantId] {
        &self.tenants
    }

    /// Returns true if the client accepts a label of this name.
    pub(crate) fn shows_label(&self, label: &str) -> bool {
        let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
        let plain = label.starts_with(is_first) && label.chars().all(|c| is_first(c) || c.is_ascii_digit());
        self.utf8_labels || plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_count_once() {
        let names = |text: &str| {
            let reader = QueryContext::parse(text).unwrap();
            reader.tenants().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names("a"), ["a"]);
        assert_eq!(names("b|a|b|"), ["a", "b"]);
        assert_eq!(QueryContext::parse("").unwrap_err(), TenantError::Empty.into());
        assert_eq!(QueryContext::parse("|").unwrap_err(), TenantError::Empty.into());
        assert!(QueryContext::parse("a|x/y").is_err());
        let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
        assert_eq!(QueryContext::parse(&many.join("|")).unwrap_err(), TenantsError::TooMany(65));
    }

    #[test]
    fn only_those_who_say_so_see_all_names() {
        let reader = QueryContext::for_tenant(TenantId::anonymous());
        assert!(reader.shows_label("pod_1") && reader.shows_label("__name__"));
        assert!(!reader.shows_label("k8s.pod") && !reader.shows_label("1a") && !reader.shows_label(""));
        assert!(reader.clone().with_accept_header("*/*; allow-utf8-labelnames=true").shows_label("k8s.pod"));
        assert!(
            reader.clone().with_accept_header("text/html, */*;q=1;allow-utf8-labelnames=TRUE").utf8_labels
        );
        assert!(!reader.with_accept_header("*/*; allow-utf8-labelnames=false").utf8_labels);
    }
}
