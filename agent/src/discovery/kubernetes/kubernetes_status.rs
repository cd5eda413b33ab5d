//! Status of a discoverer: problems of its requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::super::{DiscoveryKind, DiscoveryStats};

/// Problems of the requests of a discoverer, by what they request.
#[derive(Debug)]
pub struct KubernetesStatus {
    failures: AtomicU64,
    stats: Arc<DiscoveryStats>,
    problems: Mutex<BTreeMap<String, Problem>>,
}

/// Problem that persists.
#[derive(Debug)]
struct Problem {
    text: String,
    is_denied: bool,
}

impl KubernetesStatus {
    /// Creates the status of a discoverer without problems. Failures are counted in `stats` as well.
    pub(super) fn new(stats: Arc<DiscoveryStats>) -> Self {
        Self { failures: AtomicU64::new(0), stats, problems: Mutex::default() }
    }

    /// Returns the number of failed requests.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns the problems that persist, such as missing permissions.
    pub fn problems(&self) -> Vec<String> {
        self.problems.lock().values().map(|problem| problem.text.clone()).collect()
    }

    /// Returns whether the API denies access to something.
    pub fn is_denied(&self) -> bool {
        self.problems.lock().values().any(|problem| problem.is_denied)
    }

    pub(super) fn report_problem(&self, scope: &str, problem: String, is_denied: bool) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.stats.count_error(DiscoveryKind::Kubernetes);
        let new = Problem { text: problem.clone(), is_denied };
        let known = self.problems.lock().insert(scope.to_owned(), new);
        if known.is_some_and(|known| known.text == problem) {
            tracing::debug!(scope, problem, "discovery still fails, keeping its targets");
        } else {
            tracing::warn!(scope, problem, "discovery fails, keeping its targets");
        }
    }

    pub(super) fn clear_problem(&self, scope: &str) {
        if self.problems.lock().remove(scope).is_some() {
            tracing::info!(scope, "discovery works again");
        }
    }
}
