//! Heads of one shard: the unflushed ones and, for a while, the flushed ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_catalog::ShardId;
use parking_lot::RwLock;

use crate::head_store::head::Head;

/// Time for which registered heads are kept [INV-17], so that an earlier plan finds them. The memory budget
/// may end it sooner.
pub const FLUSHED_HEAD_RETENTION: Duration = Duration::from_secs(60);

/// Heads of a shard, oldest first. The last one grows.
#[derive(Debug)]
pub struct ShardHeads {
    list: RwLock<Vec<RetainedHead>>,
    /// End of the last registered head that was dropped.
    dropped: AtomicU64,
}

#[derive(Clone, Debug)]
struct RetainedHead {
    head: Arc<Head>,
    /// Monotonic time at which its block was registered.
    registered: Option<Duration>,
}

/// Error of a read from a source that moved; a newer listing names the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardReadError {
    /// The rows have moved to blocks.
    #[error("rows after entry {asked} were requested, rows up to entry {dropped} are flushed to blocks")]
    Rows {
        /// Log index after which rows were requested.
        asked: u64,
        /// Log index up to which rows have moved.
        dropped: u64,
    },
    /// The shard has ended: its rows are in blocks, or were abandoned.
    #[error("shard {shard} is retired")]
    Over {
        /// ID of the ended shard.
        shard: ShardId,
    },
    /// Another node leads the shard, or none does at present.
    #[error("this node does not lead shard {shard}; {}", match .leader { Some(node) => format!("retry on node {node}"), None => "election in progress, retry".to_owned() })]
    Lead {
        /// ID of the shard.
        shard: ShardId,
        /// Node that leads it, if known.
        leader: Option<u64>,
    },
}

impl ShardReadError {
    /// Returns the leader of the shard, if known.
    pub const fn leader(&self) -> Option<u64> {
        match self {
            Self::Lead { leader, .. } => *leader,
            Self::Rows { .. } | Self::Over { .. } => None,
        }
    }
}

impl ShardHeads {
    /// Creates a list with one empty head.
    pub fn new() -> Self {
        let head = Arc::new(Head::new(0));
        Self { list: RwLock::new(vec![RetainedHead { head, registered: None }]), dropped: AtomicU64::new(0) }
    }
    /// Sets the index after which the heads start. Only rows after `dropped` are restored here.
    pub fn reset_start(&self, index: u64, dropped: u64) {
        self.dropped.store(dropped, Ordering::Release);
        self.current().set_start_index(index);
    }
    /// Inserts closed heads before all others.
    pub fn prepend(&self, heads: Vec<Arc<Head>>) {
        let kept = heads
            .into_iter()
            .filter(|head| !head.is_empty())
            .map(|head| RetainedHead { head, registered: None });
        self.list.write().splice(0..0, kept);
    }
    /// Closes the head of a generation at an index.
    pub fn close(&self, generation: u64, last: u64) {
        if let Some(kept) = self.list.read().iter().find(|kept| kept.head.generation() == generation) {
            kept.head.mark_applied(last);
            kept.head.close();
        }
    }
    /// Returns the head that grows.
    pub fn current(&self) -> Arc<Head> {
        Arc::clone(&self.list.read().last().expect("there is always one").head)
    }
    /// Appends the head that grows from now on. Heads without a profile are dropped.
    pub fn start_head(&self, head: Arc<Head>) {
        let mut list = self.list.write();
        list.retain(|kept| !kept.head.is_empty());
        list.push(RetainedHead { head, registered: None });
    }
    /// Returns heads that are closed and not registered, oldest first.
    pub fn frozen(&self) -> Vec<Arc<Head>> {
        let list = self.list.read();
        let frozen = list.iter().take_while(|kept| kept.head.is_closed());
        frozen.filter(|kept| kept.registered.is_none()).map(|kept| Arc::clone(&kept.head)).collect()
    }
    /// Returns the heads with rows after an index, which a listing with this watermark lacks in blocks.
    pub fn heads_after(&self, watermark: u64) -> Result<Vec<Arc<Head>>, ShardReadError> {
        let list = self.list.read();
        let dropped = self.dropped.load(Ordering::Acquire);
        if watermark < dropped {
            return Err(ShardReadError::Rows { asked: watermark, dropped });
        }
        let wanted = list.iter().filter(|kept| kept.head.last_index() > watermark);
        Ok(wanted.map(|kept| Arc::clone(&kept.head)).collect())
    }
    /// Returns the approximate memory of the unflushed heads, bytes.
    pub fn unflushed_bytes(&self) -> usize {
        let list = self.list.read();
        list.iter().filter(|kept| kept.registered.is_none()).map(|kept| kept.head.bytes()).sum()
    }
    /// Returns the unflushed heads, oldest first; the last one grows.
    pub fn unflushed_heads(&self) -> Vec<Arc<Head>> {
        let list = self.list.read();
        list.iter().filter(|kept| kept.registered.is_none()).map(|kept| Arc::clone(&kept.head)).collect()
    }
    /// Marks heads up to an index as registered at `now`.
    pub fn mark_flushed(&self, to: u64, now: Duration) {
        let mut list = self.list.write();
        let frozen = list.len() - 1;
        for kept in list[..frozen].iter_mut().filter(|kept| kept.head.last_index() <= to) {
            kept.registered.get_or_insert(now);
        }
    }
    /// Drops registered heads after their retention, and the oldest beyond `room` bytes.
    pub fn expire(&self, now: Duration, room: usize) {
        let mut list = self.list.write();
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
