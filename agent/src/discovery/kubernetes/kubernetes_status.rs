//! Status of a discoverer: problems of its requests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Problems of the requests of a discoverer, by what they request.
#[derive(Debug, Default)]
pub struct KubernetesStatus {
    failures: AtomicU64,
    problems: Mutex<BTreeMap<String, String>>,
}

impl KubernetesStatus {
    /// Returns the number of failed requests.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns the problems that persist, such as missing permissions.
    pub fn problems(&self) -> Vec<String> {
        self.problems.lock().values().cloned().collect()
    }

    pub(super) fn report_problem(&self, scope: &str, problem: String) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let known = self.problems.lock().insert(scope.to_owned(), problem.clone());
        if known.as_deref() == Some(&problem) {
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
