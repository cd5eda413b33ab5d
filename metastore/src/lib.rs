//! The metastore: the catalogue as a replicated group.
//!
//! Every change is an entry of the group's log, applied to the same [`State`] on every voter. Listings are read from
//! the state of this node after one round that says how far the log is committed: so none is older than its question.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use athanor_catalog::{
    Answer, BlockEntry, BlockId, Catalog, CatalogError, Command, Listing, Logged, State, Unreadable,
};
use athanor_chassis::{Clock, Code, Status, TenantId, Timestamp};
use athanor_consensus::replicated::{Restored, Snapshot};
use athanor_consensus::{Replicated, StateMachine};

/// The number of the catalogue's group in a node's log.
pub const GROUP: u32 = 0;
/// The log is cut after so many entries.
const COMPACT_EVERY: u64 = 1024;

/// The facts, as the log has brought them.
#[derive(Debug, Default)]
pub struct Facts {
    state: State,
    applied: u64,
}

/// What an entry did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The command's answer.
    Answer(Answer),
    /// No command of a version that this one knows.
    Unreadable(String),
}

/// How much is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Blocks that are registered.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Names that never register.
    pub condemned: u64,
}

impl Facts {
    /// How much this node knows now.
    pub fn size(&self) -> Size {
        let blocks = self.state.blocks();
        let add =
            |size: Size, bytes: u64| Size { blocks: size.blocks + 1, bytes: size.bytes + bytes, ..size };
        let size = blocks.map(|block| block.bytes).fold(Size::default(), add);
        Size { condemned: self.state.condemned().count() as u64, ..size }
    }
}

/// What becomes of a member that cannot read an entry which others can: the one place that decides it.
fn unreadable(index: u64, error: &Unreadable) -> Applied {
    tracing::error!(index, %error, "an entry of the catalogue cannot be read");
    Applied::Unreadable(error.to_string())
}

impl StateMachine for Facts {
    type Answer = Applied;

    fn apply(&mut self, index: u64, entry: &[u8]) -> Applied {
        self.applied = index;
        match Logged::decode(entry) {
            Ok(Logged { at, command }) => Applied::Answer(self.state.apply(at, command)),
            Err(error) => unreadable(index, &error),
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.applied, self.state.encode())
    }

    fn restore(&mut self, Restored { index, bytes, .. }: Restored<'_>) -> Result<(), String> {
        self.state = State::decode(bytes).map_err(|error| error.to_string())?;
        self.applied = index;
        Ok(())
    }

    fn forget(&mut self, index: u64) {
        *self = Self { state: State::default(), applied: index };
    }
}

/// A voter of the catalogue's group.
pub struct Metastore {
    group: Replicated<Facts>,
    /// Says when a command was proposed: of all clocks that of the voter that leads.
    clock: Clock,
    compacted: AtomicU64,
}

impl Metastore {
    /// On an open group.
    pub fn new(group: Replicated<Facts>, clock: Clock) -> Self {
        Self { group, clock, compacted: AtomicU64::new(0) }
    }

    async fn current(&self) -> Result<(), CatalogError> {
        let read = self.group.read_index().await;
        read.map(|_| ()).map_err(|error| CatalogError::Unavailable(Status::of(&error)))
    }

    async fn compact(&self, index: u64) {
        let compacted = self.compacted.load(Ordering::Relaxed);
        let claim =
            || self.compacted.compare_exchange(compacted, index, Ordering::Relaxed, Ordering::Relaxed);
        if index < compacted + COMPACT_EVERY || claim().is_err() {
            return;
        }
        if let Err(error) = self.group.compact(index).await {
            tracing::warn!(%error, "the catalogue's log was not cut");
        }
    }
}

/// Whether a command may be needed to free a full disk: all but those by which there would be more to do.
fn frees_space(command: &Command) -> bool {
    !matches!(
        command,
        Command::OpenShard { .. }
            | Command::OpenSlots { .. }
            | Command::AddSlot { .. }
            | Command::ProposeTable { .. }
            | Command::Rates { .. }
    )
}

#[async_trait]
impl Catalog for Metastore {
    async fn propose(&self, command: Command) -> Result<Answer, CatalogError> {
        let frees = frees_space(&command);
        let entry = Logged { at: self.clock.wall(), command }.encode().into();
        let proposed =
            if frees { self.group.propose_relief(entry).await } else { self.group.propose(entry).await };
        let (index, applied) = proposed.map_err(|error| CatalogError::Unavailable(Status::of(&error)))?;
        self.compact(index).await;
        match applied {
            Applied::Answer(answer) => Ok(answer),
            Applied::Unreadable(why) => Err(CatalogError::Unavailable(Status::new(Code::Internal, why))),
        }
    }

    async fn listing(&self, tenant: &TenantId, from: i64, to: i64) -> Result<Listing, CatalogError> {
        self.current().await?;
        Ok(self.group.with(|facts| facts.state.listing(tenant, from, to)))
    }

    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError> {
        self.current().await?;
        Ok(self.group.with(|facts| facts.state.blocks().cloned().collect()))
    }

    async fn condemned(&self) -> Result<Vec<(BlockId, Timestamp)>, CatalogError> {
        self.current().await?;
        Ok(self.group.with(|facts| facts.state.condemned().collect()))
    }
}
