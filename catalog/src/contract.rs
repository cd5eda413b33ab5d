//! The contract, whoever keeps it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::code::{Code, Coded};
use athanor_chassis::{Clock, Status, TenantId, Timestamp};
use athanor_cluster::NodeId;

use crate::state::{AgeReport, Answer, Command, Listing, Notes, Refused, State, Wound, slot_and_epoch};
use crate::{BlockEntry, BlockId, MAX_SLOTS, MAX_TENANTS_PER_COMMAND, Rows, ShardEntry, ShardId};

/// A catalogue.
#[async_trait]
pub trait Catalog: Send + Sync + 'static {
    /// Proposes a change and waits until it is durable. The catalogue's clock says when that was.
    async fn propose(&self, command: Command) -> Result<Answer, CatalogError>;

    /// What a tenant has in a range of time, both ends included; no older than this call.
    async fn listing(&self, tenant: &TenantId, from: i64, to: i64) -> Result<Listing, CatalogError>;

    /// All blocks; no older than this call.
    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError>;

    /// The blocks with rows of a slot whose names were drawn since a time, without their tenants; no older than this call.
    async fn blocks_of_slot(&self, slot: u32, since: Timestamp) -> Result<Vec<BlockEntry>, CatalogError> {
        let mut blocks = self.blocks().await?;
        let of_slot = |rows: Rows| slot_and_epoch(rows.shard).is_some_and(|(of, _)| of == slot);
        blocks.retain(|block| block.id.named_at() >= since && block.rows().any(of_slot));
        // Names of many tenants would not fit into an answer.
        blocks.iter_mut().for_each(|block| block.tenants.clear());
        Ok(blocks)
    }

    /// The tenants with rows in some block; no older than this call.
    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError>;

    /// What a tenant keeps; no older than this call.
    async fn notes(&self, tenant: &TenantId) -> Result<Notes, CatalogError>;

    /// Names that never register, and when they were condemned; no older than this call.
    async fn condemned(&self) -> Result<Vec<(BlockId, Timestamp)>, CatalogError>;

    /// Returns the ages of all blocks, by the time that a command would be stamped with now. Only a voter knows them.
    async fn ages(&self, _retention: Duration) -> Result<AgeReport, CatalogError> {
        let message = "this catalog does not know the ages of blocks; ask a node with the role metastore";
        Err(CatalogError::Unavailable(Status::new(Code::Unimplemented, message)))
    }

    /// The shard of a slot that takes records; opens the first one, of a log that one node has.
    async fn open_shard(&self, slot: u32, node: NodeId) -> Result<ShardEntry, CatalogError> {
        match self.propose(Command::OpenShard { slot, members: [node].into() }).await? {
            Answer::Shard(shard) => Ok(shard),
            other => Err(CatalogError::of(other)),
        }
    }

    /// Opens the first shards of so many slots, all on one node, unless there are some.
    async fn open_slots(&self, count: u32, node: NodeId) -> Result<(), CatalogError> {
        let members = vec![[node].into(); count.clamp(1, MAX_SLOTS) as usize];
        let (count, zones) = (members.len() as u32, [(node, String::new())].into());
        self.change(Command::OpenSlots { count, members, zones }).await
    }

    /// What a shard's log calls registered is, known or not.
    async fn raise(&self, shard: ShardId, to: u64) -> Result<(), CatalogError> {
        self.change(Command::Raise { shard, to }).await
    }

    /// Remembers what damage did.
    async fn mark(&self, wound: Wound) -> Result<(), CatalogError> {
        self.change(Command::Mark { wound }).await
    }

    /// Registers a block and gives its shard's watermark.
    async fn register(&self, block: BlockEntry) -> Result<u64, CatalogError> {
        let command = match block.tenants.len() <= MAX_TENANTS_PER_COMMAND {
            true => Command::Register { block },
            false => {
                let (block, tenants) = self.stage_tenants(block).await?;
                Command::RegisterStaged { block, tenants }
            }
        };
        self.make_exist(command).await
    }

    /// Registers a block that lies in a gap and gives its shard's watermark.
    async fn recall(&self, block: BlockEntry) -> Result<u64, CatalogError> {
        let command = match block.tenants.len() <= MAX_TENANTS_PER_COMMAND {
            true => Command::Recall { block },
            false => {
                let (block, tenants) = self.stage_tenants(block).await?;
                Command::RecallStaged { block, tenants }
            }
        };
        self.make_exist(command).await
    }

    /// Proposes that a block exists.
    async fn make_exist(&self, command: Command) -> Result<u64, CatalogError> {
        match self.propose(command).await? {
            Answer::Registered(watermark) => Ok(watermark),
            other => Err(CatalogError::of(other)),
        }
    }

    /// Stages all tenants of a block; returns the block without them, and their number. Continues where an earlier call
    /// ended.
    async fn stage_tenants(&self, mut block: BlockEntry) -> Result<(BlockEntry, u64), CatalogError> {
        let all = std::mem::take(&mut block.tenants);
        let mut staged = 0;
        while staged < all.len() {
            let part = &all[staged..all.len().min(staged + MAX_TENANTS_PER_COMMAND)];
            let (shard, offset, tenants) = (block.shard, staged as u64, part.to_vec());
            match self.propose(Command::StageTenants { shard, block: block.id, offset, tenants }).await? {
                // Each part is staged or refused, so the number grows.
                Answer::Staged(now) if now > offset => staged = now as usize,
                Answer::Registered(_) => break,
                other => return Err(CatalogError::of(other)),
            }
        }
        Ok((block, all.len() as u64))
    }

    /// Puts blocks in the places of those that they were made of.
    async fn replace(&self, inputs: Vec<BlockId>, outputs: Vec<BlockEntry>) -> Result<(), CatalogError> {
        self.change(Command::Replace { inputs, outputs }).await
    }

    /// Condemns blocks.
    async fn condemn(&self, blocks: Vec<BlockId>) -> Result<(), CatalogError> {
        self.change(Command::Condemn { blocks }).await
    }

    /// Proposes a change of which it does not matter how much it changes.
    async fn change(&self, command: Command) -> Result<(), CatalogError> {
        match self.propose(command).await? {
            Answer::Changed(_) => Ok(()),
            other => Err(CatalogError::of(other)),
        }
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
    /// What an answer means that was not hoped for.
    fn of(answer: Answer) -> Self {
        match answer {
            Answer::Refused(refused) => Self::Refused(refused),
            other => Self::Unavailable(Status::new(Code::Internal, format!("it answered {other:?}"))),
        }
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
#[derive(Debug)]
pub struct Memory {
    state: Mutex<State>,
    clock: Clock,
}

impl Memory {
    /// One without facts, whose time is that of a clock.
    pub fn new(clock: Clock) -> Self {
        Self { state: Mutex::default(), clock }
    }

    /// The facts now.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Catalog for Memory {
    async fn propose(&self, command: Command) -> Result<Answer, CatalogError> {
        let at = self.clock.wall();
        Ok(self.state().apply(at, command))
    }

    async fn listing(&self, tenant: &TenantId, from: i64, to: i64) -> Result<Listing, CatalogError> {
        Ok(self.state().listing(tenant, from, to))
    }

    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError> {
        Ok(self.state().blocks().cloned().collect())
    }

    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError> {
        Ok(self.state().tenants().cloned().collect())
    }

    async fn notes(&self, tenant: &TenantId) -> Result<Notes, CatalogError> {
        Ok(self.state().notes(tenant))
    }

    async fn condemned(&self) -> Result<Vec<(BlockId, Timestamp)>, CatalogError> {
        Ok(self.state().condemned().collect())
    }

    async fn ages(&self, retention: Duration) -> Result<AgeReport, CatalogError> {
        Ok(self.state().ages(self.clock.wall(), retention))
    }
}
