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
    pub answer: ByteSize,
    /// Memory of all results in progress together, each until its last byte is sent. One tenant among others
    /// may use at most half of it. Example: `2GiB`.
    pub answers: ByteSize,
    /// Memory of cached results that depend on blocks only. An equal request returns them while they are
    /// still valid. 0 disables the cache. Example: `64MiB`.
    pub kept_answers: ByteSize,
    /// Maximum number of async queries of a tenant that run at once. 0 disables them: such requests then wait
    /// for the result as usual. Example: `5`.
    pub background_queries: usize,
    /// Memory of all stored results of async queries together. One tenant may use at most half of it. At most
    /// half of `answers` is used. Example: `256MiB`.
    pub background_answers: ByteSize,
    /// Memory of diagnostics records, for clients that request them. One tenant may use at most half of it. 0
    /// disables them. Example: `4MiB`.
    pub diagnostics: ByteSize,
    /// Maximum number of ad hoc profiles of each tenant. The newest replaces the oldest. 0 rejects uploads.
    /// Example: `100`.
    pub adhoc_profiles: usize,
    /// Maximum decompressed size of an ad hoc profile: at most an eighth of `answer`. Example: `16MiB`.
    pub adhoc_profile: ByteSize,
    /// Maximum number of concurrent queries. Others wait, and tenants that have read less lately go first.
    /// One tenant among others gets at most half of them. Example: `64`.
    pub concurrent_queries: usize,
    /// Maximum percentage of store-gateway calls that are hedged: sent to a second gateway while the first is
    /// slow. 0 disables hedging. Example: `10`.
    pub hedged_percent: u8,
}

impl Default for QuerierConfig {
    fn default() -> Self {
        QuerierConfig {
            answer: ByteSize::mib(512),
            answers: ByteSize::mib(2048),
            kept_answers: ByteSize::mib(64),
            background_queries: 0,
            background_answers: ByteSize::mib(256),
            diagnostics: ByteSize::mib(4),
            adhoc_profiles: 100,
            adhoc_profile: ByteSize::mib(16),
            concurrent_queries: 64,
            hedged_percent: 10,
        }
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
        let memory = self.adhoc_profile.get().saturating_mul(DECODED_SIZE_FACTOR as u64);
        if self.adhoc_profiles > 0 && memory > self.answer.get() {
            let most = self.answer.get() / DECODED_SIZE_FACTOR as u64;
            let memory = ByteSize::bytes(memory);
            let reason = format!(
                "profiles of {} take up to {memory} when they are read, and querier.answer is {}; write {} or less, or raise \
                 querier.answer",
                self.adhoc_profile,
                self.answer,
                ByteSize::bytes(most)
            );
            return Err(QuerierConfigError { setting: "querier.adhoc_profile", reason });
        }
        Ok(())
    }

    /// Returns the byte limit of stored async results. The rest of the budget stays available for other
    /// results.
    pub(crate) fn async_result_bytes(&self) -> usize {
        self.background_answers.as_usize().min(self.answers.as_usize() / 2)
    }

    /// Returns the budget for results. A result and its rendering hold memory until the response is sent.
    pub fn response_budget(&self) -> Arc<ResultBudget> {
        ResultBudget::new(
            BudgetLimit { limit: self.answer, setting: "querier.answer" },
            BudgetLimit { limit: self.answers, setting: "querier.answers" },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_that_are_taken_can_be_read() {
        let checked = |answer, adhoc_profile, adhoc_profiles| {
            let config = QuerierConfig { answer, adhoc_profile, adhoc_profiles, ..QuerierConfig::default() };
            config.check().map_err(|error| (error.setting, error.to_string()))
        };
        assert_eq!(QuerierConfig::default().check(), Ok(()));
        assert_eq!(checked(ByteSize::mib(512), ByteSize::mib(64), 1), Ok(()));
        let (setting, refused) = checked(ByteSize::mib(512), ByteSize::mib(100), 1).unwrap_err();
        assert_eq!(setting, "querier.adhoc_profile");
        assert!(
            refused.contains("take up to 800MiB") && refused.contains("write 64MiB or less"),
            "{refused}"
        );
        assert_eq!(checked(ByteSize::mib(512), ByteSize::mib(100), 0), Ok(()));
    }
}
