//! Sources that a result lacks because they could not be read, and the warnings about them.
//!
//! A damaged block stays damaged: the result contains all other data, and the warning names block and file.
//! An unavailable bucket or peer may recover soon. A result with some data is then returned with a warning.
//! An empty result becomes an error, after which the client may retry, because an empty chart would look like
//! no load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use athanor_chassis::{ErrorCode, Status};
use parking_lot::Mutex;

/// Maximum number of damaged blocks that a result names.
const MAX_NAMED_BLOCKS: usize = 16;

/// Block that could not be read, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableBlock {
    /// Name of the block.
    pub block: String,
    /// Reason. If the block is damaged, it names the file.
    pub why: Status,
}

/// Number of blocks that results lacked so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkippedBlockStats {
    /// Damaged blocks, or blocks of an unknown version.
    pub damaged: u64,
    /// Blocks that the bucket or a store-gateway did not provide.
    pub unavailable: u64,
}

/// Counters behind [`SkippedBlockStats`].
#[derive(Debug, Default)]
pub(crate) struct SkippedBlockCounters {
    damaged: AtomicU64,
    unavailable: AtomicU64,
}

/// Sources that one result lacks.
#[derive(Debug, Default)]
pub(crate) struct SkippedSources(Mutex<SkippedSourcesState>);

#[derive(Debug, Default)]
struct SkippedSourcesState {
    /// Reasons by block. Several tenants may have parts of a block, and one reason is sufficient.
    blocks: BTreeMap<String, Status>,
    /// Warning about a peer that did not respond.
    silent: Option<String>,
}

impl UnreadableBlock {
    /// Returns true if the block may be readable later.
    pub fn is_transient(why: &Status) -> bool {
        !matches!(why.code, ErrorCode::DataLoss | ErrorCode::Unimplemented)
    }
}

impl SkippedBlockCounters {
    pub(crate) fn stats(&self) -> SkippedBlockStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SkippedBlockStats { damaged: read(&self.damaged), unavailable: read(&self.unavailable) }
    }
}

impl SkippedSources {
    pub(crate) fn add_blocks(&self, unread: impl IntoIterator<Item = UnreadableBlock>) {
        let mut known = self.0.lock();
        for UnreadableBlock { block, why } in unread {
            // A permanent reason has priority over transient ones.
            match known.blocks.get(&block) {
                Some(known) if !UnreadableBlock::is_transient(known) => {}
                _ => drop(known.blocks.insert(block, why)),
            }
        }
    }

    pub(crate) fn add_unreachable(&self, words: &str) {
        self.0.lock().silent.get_or_insert_with(|| words.to_owned());
    }

    /// Returns the warnings about blocks. Fails if `fails_if_transient` is set, for an empty result, and a later retry may
    /// find data.
    pub(crate) fn to_warnings(
        &self,
        fails_if_transient: bool,
        counts: &SkippedBlockCounters,
    ) -> Result<Vec<String>, Status> {
        let known = self.0.lock();
        let (passing, damaged): (Vec<_>, Vec<_>) =
            known.blocks.iter().partition(|(_, why)| UnreadableBlock::is_transient(why));
        counts.damaged.fetch_add(damaged.len() as u64, Ordering::Relaxed);
        counts.unavailable.fetch_add(passing.len() as u64, Ordering::Relaxed);
        let mut words: Vec<String> = damaged
            .iter()
            .take(MAX_NAMED_BLOCKS)
            .map(|(block, why)| match why.code {
                ErrorCode::DataLoss => {
                    format!(
                        "damaged: {}; its profiles are left out, check the bucket",
                        describe_block(block, why)
                    )
                }
                _ => format!("not readable here: {}; its profiles are left out", describe_block(block, why)),
            })
            .collect();
        if damaged.len() > MAX_NAMED_BLOCKS {
            let more = damaged.len() - MAX_NAMED_BLOCKS;
            words.push(format!("{more} more blocks cannot be read, their profiles are left out"));
        }
        let first = passing.first().map(|(block, why)| {
            let count = passing.len();
            let message = describe_block(block, why);
            format!("{count} blocks cannot be read now, their profiles are left out, retry; the first is {message}")
        });
        if fails_if_transient && let Some(why) = first.as_ref().or(known.silent.as_ref()) {
            return Err(Status::new(ErrorCode::Unavailable, format!("nothing could be read: {why}")));
        }
        words.extend(first);
        Ok(words)
    }
}

/// Returns a message that names the block, as messages about damage do.
fn describe_block(block: &str, why: &Status) -> String {
    let Status { message, .. } = why;
    if message.contains(block) { message.clone() } else { format!("block {block}: {message}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unread(block: usize, code: ErrorCode) -> UnreadableBlock {
        UnreadableBlock { block: format!("b{block}"), why: Status::new(code, "file.parquet: why") }
    }

    fn told(
        all: Vec<UnreadableBlock>,
        silent: bool,
        names: &[&str],
    ) -> (Result<Vec<String>, ErrorCode>, SkippedBlockStats) {
        let (left_out, counts) = (SkippedSources::default(), SkippedBlockCounters::default());
        left_out.add_blocks(all);
        if silent {
            left_out.add_unreachable("a shard is silent");
        }
        let said = left_out.to_warnings(names.is_empty(), &counts).map_err(|status| status.code);
        (said, counts.stats())
    }

    #[test]
    fn damage_is_named_and_what_passes_is_counted() {
        let (said, counts) = told(
            vec![
                unread(1, ErrorCode::DataLoss),
                unread(2, ErrorCode::Unavailable),
                unread(3, ErrorCode::Deadline),
            ],
            false,
            &["a"],
        );
        let said = said.unwrap();
        assert_eq!(counts, SkippedBlockStats { damaged: 1, unavailable: 2 });
        assert!(said[0].starts_with("damaged: block b1: file.parquet: why"), "{said:?}");
        assert!(said[1].starts_with("2 blocks cannot be read now"), "{said:?}");
        let many = (0..100).map(|block| unread(block, ErrorCode::DataLoss)).collect();
        let (said, counts) = told(many, false, &["a"]);
        assert_eq!((said.unwrap().len(), counts.damaged), (MAX_NAMED_BLOCKS + 1, 100));
    }

    #[test]
    fn nothing_for_now_is_no_answer() {
        let code = |all, silent, names: &[&str]| told(all, silent, names).0.map(|words| words.len());
        assert_eq!(code(vec![unread(1, ErrorCode::Unavailable)], false, &[]), Err(ErrorCode::Unavailable));
        assert_eq!(code(vec![unread(1, ErrorCode::Unavailable)], false, &["a"]), Ok(1));
        assert_eq!(code(vec![], true, &[]), Err(ErrorCode::Unavailable));
        assert_eq!(code(vec![], true, &["a"]), Ok(0), "the shard itself is told with what is missing");
        // Asking again would not help.
        assert_eq!(code(vec![unread(1, ErrorCode::DataLoss)], false, &[]), Ok(1));
        assert_eq!(code(vec![], false, &[]), Ok(0));
    }
}
