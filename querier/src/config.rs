//! Settings of a querier.

use std::sync::Arc;

use athanor_chassis::ByteSize;
use athanor_chassis::memory_budget::{BudgetLimit, MemoryBudget};
use serde::{Deserialize, Serialize};

use crate::adhoc::DECODED_SIZE_FACTOR;

/// Settings of a querier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuerierConfig {
    /// Memory that one answer may take, and as much again to be shown. Example: `512MiB`.
    pub answer: ByteSize,
    /// Memory that all answers that are under way may take together, each until its last byte is sent. Those to one tenant
    /// among others take at most half of it. Example: `2GiB`.
    pub answers: ByteSize,
    /// Memory for answers that are made of blocks alone: the same request is answered by them as long as it still would be
    /// made of the same. With 0 none is kept. Example: `64MiB`.
    pub kept_answers: ByteSize,
    /// Queries of a tenant that may run in the background at once, for clients that ask for that. With 0 they wait for the
    /// answer as for any other. Example: `5`.
    pub background_queries: usize,
    /// Memory that answers of such queries may take together as long as they are kept; those of one tenant take at most
    /// half of it. No more than half of `answers` is used. Example: `256MiB`.
    pub background_answers: ByteSize,
    /// Memory for records of how queries were answered, for clients that ask for that; those of one tenant take at most
    /// half of it. With 0 nothing is recorded. Example: `4MiB`.
    pub diagnostics: ByteSize,
    /// Profiles uploaded by hand that are kept of each tenant; the oldest makes room for another one. With 0 none is taken.
    /// Example: `100`.
    pub adhoc_profiles: usize,
    /// The largest of them, decompressed: at most an eighth of `answer`. Example: `16MiB`.
    pub adhoc_profile: ByteSize,
    /// Queries that are answered at once; others wait for their turn, those of tenants that have read less lately go
    /// first. One tenant among others has at most half of them. Example: `64`.
    pub concurrent_queries: usize,
    /// Of a hundred calls of store-gateways, those that may be made again, of another gateway, while the first one takes
    /// long. With 0 none is. Example: `10`.
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

/// Settings that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct QuerierConfigError {
    /// The name of one, as it is written.
    pub setting: &'static str,
    reason: String,
}

impl QuerierConfig {
    /// Refuses settings with which what they allow could never be answered.
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

    /// Bytes of answers that are kept of queries in the background: others find room, however many are kept.
    pub(crate) fn async_result_bytes(&self) -> usize {
        self.background_answers.as_usize().min(self.answers.as_usize() / 2)
    }

    /// The room for answers: what is put together, and what is made of it to be shown, takes memory until it is sent.
    pub fn response_budget(&self) -> Arc<MemoryBudget> {
        MemoryBudget::new(
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
