//! The contract, whoever keeps it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use athanor_chassis::code::{Code, Coded};
use athanor_chassis::{Status, TenantId, Timestamp};

use crate::state::{Answer, Command, Listing, Refused, State, Wound};
use crate::{BlockEntry, BlockId, ShardEntry, ShardId};

/// A catalogue.
#[async_trait]
pub trait Catalog: Send + Sync + 'static {
    /// Proposes a change and waits until it is durable.
    async fn propose(&self, command: Command) -> Result<Answer, CatalogError>;

    /// What a tenant has in a range of time, both ends included; no older than this call.
    async fn listing(&self, tenant: &TenantId, from: i64, to: i64) -> Result<Listing, CatalogError>;

    /// All blocks; no older than this call.
    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError>;

    /// Names that never register, and when they were condemned; no older than this call.
    async fn condemned(&self) -> Result<Vec<(BlockId, Timestamp)>, CatalogError>;

    /// The open shard of a slot.
    async fn open_shard(&self, slot: u32) -> Result<ShardEntry, CatalogError> {
        match self.propose(Command::OpenShard { slot }).await? {
            Answer::Shard(shard) => Ok(shard),
            other => Err(CatalogError::unexpected(&other)),
        }
    }

    /// Opens the first shards of so many slots, unless there are some.
    async fn open_slots(&self, count: u32) -> Result<(), CatalogError> {
        self.propose(Command::OpenSlots { count }).await.map(|_| ())
    }

    /// What a shard's log calls registered is, known or not.
    async fn raise(&self, shard: ShardId, to: u64, at: Timestamp) -> Result<(), CatalogError> {
        self.propose(Command::Raise { shard, to, at }).await.map(|_| ())
    }

    /// Remembers what damage did.
    async fn mark(&self, wound: Wound, at: Timestamp) -> Result<(), CatalogError> {
        self.propose(Command::Mark { wound, at }).await.map(|_| ())
    }

    /// Registers a block and gives its shard's watermark.
    async fn register(&self, block: BlockEntry, at: Timestamp) -> Result<u64, CatalogError> {
        match self.propose(Command::Register { block, at }).await? {
            Answer::Registered(watermark) => Ok(watermark),
            Answer::Refused(refused) => Err(CatalogError::Refused(refused)),
            other => Err(CatalogError::unexpected(&other)),
        }
    }

    /// Condemns blocks.
    async fn condemn(&self, blocks: Vec<BlockId>, at: Timestamp) -> Result<(), CatalogError> {
        self.propose(Command::Condemn { blocks, at }).await.map(|_| ())
    }
}

/// Why a catalogue did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// It applied the command, which changed nothing.
    #[error("the catalogue refused: {0}")]
    Refused(#[from] Refused),
    /// It could not be asked, or did not answer.
    #[error("the catalogue cannot be asked: {0}")]
    Unavailable(Status),
}

impl CatalogError {
    fn unexpected(answer: &Answer) -> Self {
        Self::Unavailable(Status::new(Code::Internal, format!("it answered {answer:?}")))
    }
}

impl Coded for CatalogError {
    fn code(&self) -> Code {
        match self {
            Self::Refused(_) => Code::Conflict,
            Self::Unavailable(status) => status.code,
        }
    }
}

/// A catalogue in the memory of this process, for tests of those who ask one.
#[derive(Debug, Default)]
pub struct Memory(Mutex<State>);

impl Memory {
    /// The facts now.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Catalog for Memory {
    async fn propose(&self, command: Command) -> Result<Answer, CatalogError> {
        Ok(self.state().apply(command))
    }

    async fn listing(&self, tenant: &TenantId, from: i64, to: i64) -> Result<Listing, CatalogError> {
        Ok(self.state().listing(tenant, from, to))
    }

    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError> {
        Ok(self.state().blocks().cloned().collect())
    }

    async fn condemned(&self) -> Result<Vec<(BlockId, Timestamp)>, CatalogError> {
        Ok(self.state().condemned().collect())
    }
}
