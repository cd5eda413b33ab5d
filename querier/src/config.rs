//! Settings of the querier role.

use std::sync::Arc;

use athanor_chassis::ByteSize;
use athanor_chassis::memory_budget::BudgetLimit;
use athanor_chassis::requests::result_budget::ResultBudget;
use serde::{Deserialize, Serialize};

/// Estimated memory of a profile for each of its bytes. The exact memory is known once the profile is
/// decoded.
pub(crate) const DECODED_SIZE_FACTOR: usize = 8;

/// Settings of the querier role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuerierConfig {
    /// Memory of one query result, and as much again for its rendering. Example: `512MiB`.
    pub max_result_bytes: ByteSize,
    /// Memory of all results in progress together, each until its last byte is sent. One tenant among others
    /// may use at most half of it. Example: `2GiB`.
    pub max_inflight_result_bytes: ByteSize,
    /// Memory of cached results that depend on blocks only. An equal request returns them while they are
    /// still valid. 0 disables the cache. Example: `64MiB`.
    pub results_cache_bytes: ByteSize,
    /// Maximum number of async queries of a tenant that run at once. 0 disables them: such requests then wait
    /// for the result as usual. Example: `5`.
    pub max_async_queries_per_tenant: usize,
    /// Memory of all stored results of async queries together. One tenant may use at most half of it. At most
    /// half of `max_inflight_result_bytes` is used. Example: `256MiB`.
    pub async_results_bytes: ByteSize,
    /// Memory of diagnostics records, for clients that request them. One tenant may use at most half of it. 0
    /// disables them. Example: `4MiB`.
    pub diagnostics_bytes: ByteSize,
    /// Limits of ad hoc profiles, which users upload by hand.
    pub adhoc: AdhocConfig,
    /// Maximum number of concurrent queries. Others wait, and tenants that have read less lately go first.
    /// One tenant among others gets at most half of them. Example: `64`.
    pub max_concurrent: usize,
    /// Maximum percentage of store-gateway calls that are hedged: sent to a second gateway while the first is
    /// slow. 0 disables hedging. Example: `10`.
    pub hedging_max_percent: u8,
}

/// Limits of ad hoc profiles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdhocConfig {
    /// Maximum number of ad hoc profiles of each tenant. The newest replaces the oldest. 0 rejects uploads.
    /// Example: `100`.
    pub max_profiles_per_tenant: usize,
    /// Maximum decompressed size of an ad hoc profile, at most an eighth of `querier.max_result_bytes`.
    /// Example: `16MiB`.
    pub max_profile_bytes: ByteSize,
}

impl Default for QuerierConfig {
    fn default() -> Self {
        QuerierConfig {
            max_result_bytes: ByteSize::mib(512),
            max_inflight_result_bytes: ByteSize::mib(2048),
            results_cache_bytes: ByteSize::mib(64),
            max_async_queries_per_tenant: 0,
            async_results_bytes: ByteSize::mib(256),
            diagnostics_bytes: ByteSize::mib(4),
            adhoc: AdhocConfig::default(),
            max_concurrent: 64,
            hedging_max_percent: 10,
        }
    }
}

impl Default for AdhocConfig {
    fn default() -> Self {
        Self { max_profiles_per_tenant: 100, max_profile_bytes: ByteSize::mib(16) }
    }
}

/// Error for settings that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct QuerierConfigError {
    /// Name of one of the settings, as in the configuration file.
    pub setting: &'static str,
    reason: String,
}

impl QuerierConfig {
    /// Rejects settings that permit requests which would always fail.
    pub fn check(&self) -> Result<(), QuerierConfigError> {
        let memory = self.adhoc.max_profile_bytes.get().saturating_mul(DECODED_SIZE_FACTOR as u64);
        if self.adhoc.max_profiles_per_tenant > 0 && memory > self.max_result_bytes.get() {
            let most = self.max_result_bytes.get() / DECODED_SIZE_FACTOR as u64;
            let memory = ByteSize::bytes(memory);
            let reason = format!(
                "profiles of {} take up to {memory} when they are read, and querier.max_result_bytes is {}; write {} or less, or raise \
                 querier.max_result_bytes",
                self.adhoc.max_profile_bytes,
                self.max_result_bytes,
                ByteSize::bytes(most)
            );
            return Err(QuerierConfigError { setting: "querier.adhoc.max_profile_bytes", reason });
        }
        Ok(())
    }

    /// Returns the byte limit of stored async results. The rest of the budget stays available for other
    /// results.
    pub(crate) fn async_result_bytes(&self) -> usize {
        self.async_results_bytes.as_usize().min(self.max_inflight_result_bytes.as_usize() / 2)
    }

    /// Returns the budget for results. A result and its rendering hold memory until the response is sent.
    pub fn response_budget(&self) -> Arc<ResultBudget> {
        ResultBudget::new(
            BudgetLimit { limit: self.max_result_bytes, setting: "querier.max_result_bytes" },
            BudgetLimit {
                limit: self.max_inflight_result_bytes,
                setting: "querier.max_inflight_result_bytes",
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_that_are_taken_can_be_read() {
        let checked = |max_result_bytes, max_profile_bytes, max_profiles_per_tenant| {
            let adhoc = AdhocConfig { max_profiles_per_tenant, max_profile_bytes };
            let config = QuerierConfig { max_result_bytes, adhoc, ..QuerierConfig::default() };
            config.check().map_err(|error| (error.setting, error.to_string()))
        };
        assert_eq!(QuerierConfig::default().check(), Ok(()));
        assert_eq!(checked(ByteSize::mib(512), ByteSize::mib(64), 1), Ok(()));
        let (setting, refused) = checked(ByteSize::mib(512), ByteSize::mib(100), 1).unwrap_err();
        assert_eq!(setting, "querier.adhoc.max_profile_bytes");
        assert!(
            refused.contains("take up to 800MiB") && refused.contains("write 64MiB or less"),
            "{refused}"
        );
        assert_eq!(checked(ByteSize::mib(512), ByteSize::mib(100), 0), Ok(()));
    }
}
