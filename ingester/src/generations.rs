//! The generations of one shard: those that are not yet in a registered block, and for a while those that are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use athanor_catalog::ShardId;

use crate::head::{Head, read, write};

/// Registered heads are kept so long [INV-17], so that a plan made before finds them, and as long as there is room for
/// them.
pub const FLUSHED_HEAD_RETENTION: Duration = Duration::from_secs(60);

/// The heads of a shard, oldest first. The last one grows.
#[derive(Debug)]
pub struct ShardHeads {
    list: RwLock<Vec<RetainedHead>>,
    /// The end of the last head that was dropped because its block was registered long enough ago.
    dropped: AtomicU64,
}

#[derive(Clone, Debug)]
struct RetainedHead {
    head: Arc<Head>,
    /// When its block was registered, by the node's monotonic clock.
    registered: Option<Duration>,
}

/// What was asked for is not here any more; a newer listing says where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardReadError {
    /// Rows lie in blocks by now.
    #[error("the rows after entry {asked} have moved to blocks, up to entry {dropped}")]
    Rows {
        /// After which entry they were asked for.
        asked: u64,
        /// Up to which they moved.
        dropped: u64,
    },
    /// The shard has ended: what it took lies in blocks, or was given up.
    #[error("shard {shard} is over")]
    Over {
        /// The shard.
        shard: ShardId,
    },
    /// Another node leads the shard, or none does at the moment.
    #[error("this node does not lead shard {shard}; {}", match .leader { Some(node) => format!("node {node} does"), None => "an election is on, try again".to_owned() })]
    Lead {
        /// The shard.
        shard: ShardId,
        /// Who does.
        leader: Option<u64>,
    },
}

impl ShardReadError {
    /// Who leads the shard, where that is known.
    pub const fn leader(&self) -> Option<u64> {
        match self {
            Self::Lead { leader, .. } => *leader,
            Self::Rows { .. } | Self::Over { .. } => None,
        }
    }
}

impl ShardHeads {
    /// One empty head.
    pub fn new() -> Self {
        let head = Arc::new(Head::new(0));
        Self { list: RwLock::new(vec![RetainedHead { head, registered: None }]), dropped: AtomicU64::new(0) }
    }
    /// They begin after an index, with what comes back of what lies after another one: before that, nothing is here.
    pub fn reset_start(&self, index: u64, dropped: u64) {
        self.dropped.store(dropped, Ordering::Release);
        self.current().set_start_index(index);
    }
    /// Puts heads that are over before all others.
    pub fn prepend(&self, heads: Vec<Arc<Head>>) {
        let kept = heads
            .into_iter()
            .filter(|head| !head.is_empty())
            .map(|head| RetainedHead { head, registered: None });
        write(&self.list).splice(0..0, kept);
    }
    /// The head of a generation is over, at an index.
    pub fn close(&self, generation: u64, last: u64) {
        if let Some(kept) = read(&self.list).iter().find(|kept| kept.head.generation() == generation) {
            kept.head.mark_applied(last);
            kept.head.close();
        }
    }
    /// The head that grows.
    pub fn current(&self) -> Arc<Head> {
        Arc::clone(&read(&self.list).last().expect("there is always one").head)
    }
    /// Another head grows from now on. One that never got a profile is not kept.
    pub fn start_head(&self, head: Arc<Head>) {
        let mut list = write(&self.list);
        list.retain(|kept| !kept.head.is_empty());
        list.push(RetainedHead { head, registered: None });
    }
    /// Heads that are over and not registered, oldest first.
    pub fn frozen(&self) -> Vec<Arc<Head>> {
        let list = read(&self.list);
        let frozen = list.iter().take_while(|kept| kept.head.is_closed());
        frozen.filter(|kept| kept.registered.is_none()).map(|kept| Arc::clone(&kept.head)).collect()
    }
    /// All that lies after an index: what a listing with this watermark does not have in blocks.
    pub fn heads_after(&self, watermark: u64) -> Result<Vec<Arc<Head>>, ShardReadError> {
        let list = read(&self.list);
        let dropped = self.dropped.load(Ordering::Acquire);
        if watermark < dropped {
            return Err(ShardReadError::Rows { asked: watermark, dropped });
        }
        let wanted = list.iter().filter(|kept| kept.head.last_index() > watermark);
        Ok(wanted.map(|kept| Arc::clone(&kept.head)).collect())
    }
    /// About how much memory the heads take whose rows are in no block yet.
    pub fn unflushed_bytes(&self) -> usize {
        let list = read(&self.list);
        list.iter().filter(|kept| kept.registered.is_none()).map(|kept| kept.head.bytes()).sum()
    }
    /// The heads whose rows are in no block yet, oldest first; the last one grows.
    pub fn unflushed_heads(&self) -> Vec<Arc<Head>> {
        let list = read(&self.list);
        list.iter().filter(|kept| kept.registered.is_none()).map(|kept| Arc::clone(&kept.head)).collect()
    }
    /// Everything up to an index is registered since now.
    pub fn mark_flushed(&self, to: u64, now: Duration) {
        let mut list = write(&self.list);
        let frozen = list.len() - 1;
        for kept in list[..frozen].iter_mut().filter(|kept| kept.head.last_index() <= to) {
            kept.registered.get_or_insert(now);
        }
    }
    /// Drops heads that need not be kept any more: those that are registered have room for so many bytes together.
    pub fn expire(&self, now: Duration, room: usize) {
        let mut list = write(&self.list);
        let mut bytes = 0;
        let keep: Vec<bool> = list
            .iter()
            .rev()
            .map(|kept| {
                let Some(registered) = kept.registered else { return true };
                bytes += kept.head.bytes();
                now.saturating_sub(registered) < FLUSHED_HEAD_RETENTION && bytes <= room
            })
            .collect();
        let mut keep = keep.into_iter().rev();
        list.retain(|kept| {
            let stays = keep.next().unwrap_or(true);
            if !stays {
                self.dropped.fetch_max(kept.head.last_index(), Ordering::AcqRel);
            }
            stays
        });
    }
}
