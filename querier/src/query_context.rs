//! Who asks, and what they can read.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_chassis::memory_budget::MemoryReservation;
use athanor_chassis::tenant::TenantError;
use athanor_chassis::{Clock, Status, TenantId};
use athanor_query::ProfileQuery;

use crate::diagnostics::{QueryTrace, RequestTrace};
use crate::quarantine::ActiveQueries;
use crate::result_cache::ResultProvenance;

/// Most tenants that one request reads.
pub const MAX_TENANTS_PER_REQUEST: usize = 64;
/// How long an answer may take, for who does not say how long it waits.
const MAX_QUERY_TIME: Duration = Duration::from_secs(5 * 60);

/// Who asks: one tenant, or several that are read as one.
#[derive(Clone, Debug)]
pub struct QueryContext {
    tenants: Vec<TenantId>,
    /// Whether names of labels may be other than letters, digits and `_`: older clients choke on such.
    pub utf8_labels: bool,
    /// What its answers lack. Clones share it, so that whoever answers can tell.
    missing: Arc<Mutex<BTreeSet<String>>>,
    /// Room that its answers take. The last clone gives it back, when the answer was written.
    held: Arc<Mutex<Vec<MemoryReservation>>>,
    /// When it stops to wait, on the clock that goes on. Clones share it: it counts from the first question.
    until: Arc<OnceLock<Duration>>,
    /// What was asked so far, for one answer. Clones share it.
    asked: Arc<Mutex<Vec<Arc<ProfileQuery>>>>,
    /// Of what the answers so far were made. Clones share it.
    made: Arc<Mutex<Vec<ResultProvenance>>>,
    /// What is written down of its questions, for the case that they kill the process. Clones share it.
    asking: Arc<ActiveQueries>,
    /// Set when something was planned for it: who asks the same later may know of more. Clones share it.
    planned: Arc<AtomicBool>,
    /// Where it is written down how this is answered, if that is wanted.
    watch: Option<Arc<RequestTrace>>,
    /// It asks in the background what another reader has begun.
    is_behind: bool,
}

/// Why a text names no tenants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantsError {
    /// One of them is no tenant.
    #[error(transparent)]
    Tenant(#[from] TenantError),
    /// Too many at once.
    #[error("request names {0} tenants, the limit is {MAX_TENANTS_PER_REQUEST}; ask for fewer at once")]
    TooMany(usize),
}

impl ErrorCodeExt for TenantsError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Unauthenticated
    }
}

impl QueryContext {
    /// One tenant.
    pub fn for_tenant(tenant: TenantId) -> Self {
        QueryContext::for_tenants(vec![tenant])
    }

    /// Tenants as `a|b`; each counts once, and empty parts are passed over.
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
            missing: Arc::default(),
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

    /// A question begins: who writes down how it is answered.
    pub(crate) fn start_query_trace(&self, ask: &ProfileQuery) -> QueryTrace {
        self.watch.as_ref().map(|watch| watch.start_query(ask)).unwrap_or_default()
    }

    /// What it asked was answered before, and that answer still holds.
    pub(crate) fn record_cache_hit(&self) {
        if let Some(watch) = &self.watch {
            watch.record_cache_hit();
        }
    }

    /// What it asked was answered to an equal request that was under way.
    pub(crate) fn record_coalesced(&self) {
        if let Some(watch) = &self.watch {
            watch.record_coalesced();
        }
    }

    /// A plan is made for it.
    pub(crate) fn mark_planned(&self) {
        self.planned.store(true, Ordering::SeqCst);
    }

    /// Whether a plan was made for it so far.
    pub(crate) fn planned_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.planned)
    }

    /// All that it asked is answered, or why it is not. The id of the record of that, if there is one; of what goes on in
    /// the background it is written later.
    pub fn finish_request(&self, failed: Option<&Status>) -> Option<String> {
        // Nobody works for it any more.
        self.asking.finish_all(failed.is_none());
        let watch = self.watch.as_ref()?;
        if self.is_behind || !watch.is_async() {
            watch.finish_request(failed, &self.all_warnings());
        }
        Some(watch.id())
    }

    /// Waits no longer than so.
    pub fn set_timeout(&self, clock: &Clock, wait: Duration) {
        self.until.get_or_init(|| clock.monotonic() + wait.min(MAX_QUERY_TIME));
    }

    /// When it stops to wait, on the clock that goes on.
    pub(crate) fn deadline(&self, clock: &Clock) -> Duration {
        *self.until.get_or_init(|| clock.monotonic() + MAX_QUERY_TIME)
    }

    /// The same reader, who has asked nothing yet, and asks in the background.
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

    /// What is written down of its questions.
    pub(crate) fn active_queries(&self) -> &ActiveQueries {
        &self.asking
    }

    /// One of its tenants, who waits as long, and whose answers are for nobody else.
    pub(crate) fn narrow_to_tenant(&self, tenant: &TenantId) -> Self {
        QueryContext { until: Arc::clone(&self.until), ..QueryContext::for_tenant(tenant.clone()) }
    }

    /// Notes a question.
    pub(crate) fn add_query(&self, ask: Arc<ProfileQuery>) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(ask);
    }

    /// What was asked so far.
    pub(crate) fn past_queries(&self) -> Vec<Arc<ProfileQuery>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes of what the answer to a question was made.
    pub(crate) fn add_provenance(&self, made: ResultProvenance) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(made);
    }

    /// Of what the answers so far were made.
    pub(crate) fn result_provenance(&self) -> Vec<ResultProvenance> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// With what an `Accept` header says: `*/*; allow-utf8-labelnames=true`.
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

    /// What the answers so far lack, in words; none if they are whole.
    pub fn joined_warnings(&self) -> Option<String> {
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        let words: Vec<&str> = missing.iter().map(String::as_str).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// The same one by one, in their order.
    pub fn all_warnings(&self) -> Vec<String> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// The same for the field of an answer: empty if it is whole.
    pub(crate) fn warnings_field(&self) -> String {
        self.joined_warnings().unwrap_or_default()
    }

    /// Notes what an answer lacks. Each is one line, whatever other nodes and stores have said of it.
    pub(crate) fn add_warnings(&self, missing: Vec<String>) {
        let lines = missing.into_iter().map(|words| words.replace(char::is_control, " "));
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).extend(lines);
    }

    pub(crate) fn hold_memory(&self, taken: MemoryReservation) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push(taken);
    }

    /// The room that its answers take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).iter().map(MemoryReservation::bytes).sum()
    }

    /// Gives back of the room that its answers take what is more than these bytes. How much it holds then.
    pub(crate) fn shrink_held_memory(&self, bytes: usize) -> usize {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut all) = held.drain(..).reduce(MemoryReservation::merge) else { return 0 };
        all.shrink(bytes);
        let left = all.bytes();
        held.push(all);
        left
    }

    /// Takes the memory of the answers over for a response of so many bytes. Frees what is more than that.
    pub fn take_response_budget(&self, bytes: usize) -> Option<MemoryReservation> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = held.drain(..).reduce(MemoryReservation::merge)?;
        all.shrink(bytes);
        Some(all)
    }

    /// Who they are, each once and in their order.
    pub fn tenants(&self) -> &[TenantId] {
        &self.tenants
    }

    /// Whether a label is shown to this reader.
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
