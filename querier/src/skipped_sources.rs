//! What an answer goes on without since it could not be read, and what is said of that.
//!
//! A block that is damaged stays so: the answer has all else, and names block and file. What the bucket or a peer does not
//! give now may be there in a moment: an answer that has anything at all goes on without it and says so, while one that
//! would have nothing is an error, after which whoever asks may ask again. An empty chart would look like no load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use athanor_chassis::{ErrorCode, Status};
use athanor_query::PartialResult;

/// Damaged blocks that an answer names one by one.
const MAX_NAMED_BLOCKS: usize = 16;

/// A block that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableBlock {
    /// Its name.
    pub block: String,
    /// Why: damage says in which file.
    pub why: Status,
}

/// Blocks that answers went on without, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkippedBlockStats {
    /// They are damaged, or of a version that is not known here.
    pub damaged: u64,
    /// The bucket, or whoever reads them, did not give them.
    pub unavailable: u64,
}

/// Counts them.
#[derive(Debug, Default)]
pub(crate) struct SkippedBlockCounters {
    damaged: AtomicU64,
    unavailable: AtomicU64,
}

/// What one answer goes on without.
#[derive(Debug, Default)]
pub(crate) struct SkippedSources(Mutex<SkippedSourcesState>);

#[derive(Debug, Default)]
struct SkippedSourcesState {
    /// By block: of several tenants each has its own part of it, and one word is enough.
    blocks: BTreeMap<String, Status>,
    /// A peer that did not answer, in words.
    silent: Option<String>,
}

impl UnreadableBlock {
    /// Whether it may be read in a moment.
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
    fn lock_state(&self) -> MutexGuard<'_, SkippedSourcesState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_blocks(&self, unread: impl IntoIterator<Item = UnreadableBlock>) {
        let mut known = self.lock_state();
        for UnreadableBlock { block, why } in unread {
            // What stays is told, whatever else was met on the way.
            match known.blocks.get(&block) {
                Some(known) if !UnreadableBlock::is_transient(known) => {}
                _ => drop(known.blocks.insert(block, why)),
            }
        }
    }

    pub(crate) fn add_unreachable(&self, words: &str) {
        self.lock_state().silent.get_or_insert_with(|| words.to_owned());
    }

    /// What is said of the blocks, or why there is no answer: it would have nothing, and may have something in a moment.
    pub(crate) fn to_warnings(
        &self,
        answer: Option<&PartialResult>,
        counts: &SkippedBlockCounters,
    ) -> Result<Vec<String>, Status> {
        let known = self.lock_state();
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
                        "damaged: {}; its profiles are left out, look after the bucket",
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
            format!("{count} blocks cannot be read now, their profiles are left out, ask again; the first is {message}")
        });
        if answer.is_none_or(PartialResult::is_empty)
            && let Some(why) = first.as_ref().or(known.silent.as_ref())
        {
            return Err(Status::new(ErrorCode::Unavailable, format!("nothing could be read: {why}")));
        }
        words.extend(first);
        Ok(words)
    }
}

/// Words that begin with the block, as those of damage do.
fn describe_block(block: &str, why: &Status) -> String {
    let Status { message, .. } = why;
    if message.contains(block) { message.clone() } else { format!("block {block}: {message}") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
        let answer = PartialResult::Texts(names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>());
        let said = left_out.to_warnings(Some(&answer), &counts).map_err(|status| status.code);
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
