//! The shards of one node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{Catalog, CatalogError, MAX_SLOTS, ShardEntry, ShardId, shard_id, slot_and_epoch};
use athanor_chassis::disk::DiskError;
use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{ByteSize, Clock, Code, Coded, Compute, Overrides, Random, Status, Tasks, TenantId};
use athanor_consensus::replicated::{Deps as Consensus, OpenError as LogError};
use athanor_profile::upload::Upload;
use athanor_storage::Store;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::cut::CutConfig;
use crate::group::{Group, Led, Parts};
use crate::head::View;
use crate::heads::Moved;
use crate::machine::Machine;
use crate::shard::{Stored, lost};
use crate::stats::{ShardStats, Written};
use crate::walking::Walkers;

/// How many shards a node may be told to open: each has a log, a head and three tasks of its own.
pub const SHARDS: std::ops::RangeInclusive<u32> = 1..=64;

/// How an ingester works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// When heads become blocks.
    pub cut: CutConfig,
    /// How many shards a node opens that is alone, 1 to 64. A folder keeps the number that it was begun with. Example:
    /// `4`.
    pub shards: u32,
    /// Bytes of uploads that may wait for one shard. Example: `64MiB`.
    pub waiting: ByteSize,
    /// Bytes that profiles may take, decoded, while they wait for all shards together. Example: `256MiB`.
    pub decoded: ByteSize,
    /// Bytes of one shard's profiles that may be in no block yet, names included. Example: `1GiB`.
    pub unregistered: ByteSize,
    /// How many ids one shard remembers, by which repeats are known; about two bytes of memory each. Example: `100000000`.
    pub ids: u64,
    /// How many of them it keeps in memory after a cut, rather than in a file; about 27 bytes each. Example: `65536`.
    pub recent_ids: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cut: CutConfig::default(),
            shards: 4,
            waiting: ByteSize::mib(64),
            decoded: ByteSize::mib(256),
            unregistered: ByteSize::mib(1024),
            ids: 100_000_000,
            recent_ids: 1 << 16,
        }
    }
}

/// What an ingester needs.
#[derive(Clone)]
pub struct Deps {
    /// Where blocks are registered.
    pub catalog: Arc<dyn Catalog>,
    /// Where their files go.
    pub store: Store,
    /// The node's log and groups.
    pub consensus: Consensus,
    /// Limits of tenants.
    pub overrides: Overrides,
    /// Time.
    pub clock: Clock,
    /// Chance.
    pub random: Random,
    /// Threads.
    pub compute: Compute,
    /// Tasks.
    pub tasks: Tasks,
    /// Which cluster this is, for blocks to say.
    pub cluster: u128,
}

/// The shards of one node.
pub struct Ingester {
    shards: BTreeMap<ShardId, Arc<Group>>,
    by_slot: BTreeMap<u32, ShardId>,
    compute: Compute,
}

/// Why an ingester does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The catalogue did not name its shards.
    #[error("shards cannot be opened")]
    Catalog(#[from] CatalogError),
    /// A shard's log cannot be read.
    #[error("the log of shard {shard} cannot be opened")]
    Log {
        /// The shard.
        shard: ShardId,
        /// Why.
        source: LogError,
    },
    /// A shard's log does not take that this node leads it, or what it holds cannot be read back.
    #[error("shard {shard} cannot be led: {source}")]
    Lead {
        /// The shard.
        shard: ShardId,
        /// Why.
        source: Status,
    },
    /// The folder of its ids cannot be read.
    #[error("the ids of recent profiles cannot be read")]
    Ids(#[from] DiskError),
    /// The process is ending.
    #[error(transparent)]
    Ending(#[from] SpawnError),
}

impl Coded for OpenError {
    fn code(&self) -> Code {
        match self {
            Self::Catalog(error) => error.code(),
            Self::Log { source, .. } => source.code(),
            Self::Lead { source, .. } => source.code,
            Self::Ids(error) => error.code(),
            Self::Ending(error) => error.code(),
        }
    }
}

impl Ingester {
    /// Opens the shards that the catalogue knows, or the first ones; reads their logs and begins to work.
    pub async fn open(config: &Config, deps: Deps) -> Result<Self, OpenError> {
        let compute = deps.compute.clone();
        let mut ingester = Self { shards: BTreeMap::new(), by_slot: BTreeMap::new(), compute };
        let walkers = Arc::new(Walkers::new(deps.compute.clone(), config.decoded));
        let known = known(config, &deps).await?;
        let parts = Parts { config: config.clone(), deps, walkers };
        let node = parts.deps.consensus.node;
        for entry in
            known.into_iter().filter(|entry| entry.members.is_empty() || entry.members.contains(&node))
        {
            // A slot's latest shard takes what comes.
            ingester.by_slot.insert(entry.slot, entry.id);
            let group = Group::open(parts.clone(), entry).await?;
            ingester.shards.insert(group.id, group);
        }
        Ok(ingester)
    }

    /// The slots that it has a shard of, ascending.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.by_slot.keys().copied()
    }

    /// Stores uploads in the shard of a slot.
    pub async fn append(
        &self,
        slot: u32,
        tenant: &TenantId,
        uploads: Vec<Upload>,
    ) -> Vec<Result<Stored, Status>> {
        let led = match self.by_slot.get(&slot).and_then(|id| self.shards.get(id)) {
            Some(group) => group.lead().map_err(|moved| Status::new(Code::NotLeader, moved.to_string())),
            None => {
                let message = format!("no shard of slot {slot} is here, there are {}", self.by_slot.len());
                Err(Status::new(Code::Internal, message))
            }
        };
        match led {
            Ok(led) => led.shard.append(tenant, uploads).await,
            Err(status) => vec![Err(status); uploads.len()],
        }
    }

    /// Answers another member of a shard's group; none where no such shard is here.
    pub async fn answer(&self, shard: ShardId, request: Bytes) -> Option<Bytes> {
        Some(self.shards.get(&shard)?.log.answer(request).await)
    }

    /// That this node leads a shard now, so that its rows are all that were acknowledged (E17). One that was deposed, and
    /// does not know it yet, finds out.
    pub async fn confirm(&self, shard: ShardId) -> Result<(), Moved> {
        let group = self.shards.get(&shard).ok_or(Moved::Lead { shard, leader: None })?;
        let led = group.lead()?;
        if group.is_alone() {
            return Ok(());
        }
        let asked = group.log.lead_index().await;
        asked.map_err(|_| Moved::Lead { shard, leader: None })?;
        // It may have been deposed and chosen again, with other rows in between.
        if Arc::ptr_eq(&led, &group.lead()?) { Ok(()) } else { Err(Moved::Lead { shard, leader: None }) }
    }

    /// A tenant's rows in a shard that lie after a watermark (E17).
    pub fn views(&self, shard: ShardId, watermark: u64, tenant: &TenantId) -> Result<Vec<View>, Moved> {
        let group = self.shards.get(&shard).ok_or(Moved::Lead { shard, leader: None })?;
        let led = group.lead()?;
        let heads = led.shard.heads().after(watermark)?;
        Ok(heads.iter().filter_map(|head| Some(head.view(tenant)?.on(&self.compute))).collect())
    }

    /// How many entries of a shard's log after a watermark were acknowledged and lost to damage (E7).
    pub fn lost(&self, shard: ShardId, watermark: u64) -> u64 {
        let range = watermark..u64::MAX;
        self.shards.get(&shard).map_or(0, |group| match group.led() {
            Some(led) => led.shard.lost(range),
            None => lost(&group.log, range),
        })
    }

    /// Whether ids of a shard were lost to damage, and the catalogue does not say so yet.
    pub fn forgets(&self, shard: ShardId) -> bool {
        self.shards.get(&shard).is_some_and(|group| group.log.with(Machine::forgot).is_some())
    }

    /// Cuts the heads of all shards that this node leads and returns when their blocks are registered, or the time is up. One that cannot be
    /// cut keeps no other from it.
    pub async fn cut(&self, clock: &Clock, patience: Duration) -> Result<Written, Status> {
        let written = || self.shards.values().map(|group| group.counts.written());
        let before: Vec<Written> = written().collect();
        let cut = |group: &Arc<Group>| {
            let (led, counts, shard) = (group.led(), Arc::clone(&group.counts), group.id);
            async move {
                let Some(led) = led else { return Ok(()) };
                let cut = clock.within(patience, led.asked.cut()).await;
                cut.map_err(|elapsed| match counts.failure() {
                    Some(why) => format!("shard {shard}: {elapsed}: {why}"),
                    None => format!("shard {shard}: {elapsed}"),
                })
            }
        };
        let cuts = futures::future::join_all(self.shards.values().map(cut)).await;
        let failed: Vec<String> = cuts.into_iter().filter_map(Result::err).collect();
        if !failed.is_empty() {
            return Err(Status::new(Code::Deadline, failed.join("; ")));
        }
        Ok(written().zip(before).fold(Written::default(), |all, (after, before)| Written {
            blocks: all.blocks + after.blocks - before.blocks,
            samples: all.samples + after.samples - before.samples,
            bytes: all.bytes + after.bytes - before.bytes,
        }))
    }

    /// Ends the shards' groups. What was acknowledged is kept.
    pub async fn shutdown(&self) {
        for group in self.shards.values() {
            group.log.shutdown().await;
        }
    }

    /// Why a shard takes nothing more, or cuts no more, until a restart: the first that has failed.
    pub fn failed(&self) -> Option<String> {
        self.shards.values().find_map(|group| group.failed().map(|why| format!("shard {}: {why}", group.id)))
    }

    /// How each shard fares that this node leads.
    pub fn stats(&self, clock: &Clock) -> Vec<ShardStats> {
        let now = clock.monotonic();
        let of = |group: &Arc<Group>| {
            let led = group.led()?;
            Some(ShardStats {
                cuts: group.counts.now(),
                since_cut: now.saturating_sub(group.counts.last()),
                ..led.shard.stats(group.id)
            })
        };
        self.shards.values().filter_map(of).collect()
    }

    /// Whether there are profiles that are in no block yet.
    pub fn has_unregistered(&self) -> bool {
        self.led().flat_map(|led| led.shard.heads().unregistered()).any(|head| !head.is_empty())
    }

    /// Bytes of profiles in memory that are in no block yet.
    pub fn unregistered_bytes(&self) -> u64 {
        self.led().map(|led| led.shard.heads().unregistered_bytes() as u64).sum()
    }

    fn led(&self) -> impl Iterator<Item = Arc<Led>> {
        self.shards.values().filter_map(|group| group.led())
    }
}

/// The shards of this node: those that the catalogue knows and those that have a log here. The first start opens as
/// many as it is told to.
///
/// E4: a service's slot follows from their number, so a folder keeps it, whatever is configured later: else services
/// would move, and a repeat of what another shard has stored would count again.
async fn known(config: &Config, deps: &Deps) -> Result<Vec<ShardEntry>, OpenError> {
    let listed =
        async || Ok::<_, OpenError>(deps.catalog.listing(&TenantId::anonymous(), 0, 0).await?.shards);
    let mut known = listed().await?;
    // A disk that is full takes no new shard, and need not.
    let logs = deps.consensus.log.groups().into_iter().filter_map(slot_and_epoch);
    for (slot, _) in logs.filter(|&(slot, epoch)| known.iter().all(|known| known.id != shard_id(slot, epoch)))
    {
        tracing::error!(slot, "the catalogue has lost a shard that has a log here; it learns of it again");
        deps.catalog.open_shard(slot, deps.consensus.node).await?;
    }
    known = listed().await?;
    if known.is_empty() {
        deps.catalog.open_slots(config.shards, deps.consensus.node).await?;
        known = listed().await?;
    }
    let slots = known.iter().map(|known| known.slot + 1).max().unwrap_or_default();
    if slots != config.shards.clamp(1, MAX_SLOTS) {
        tracing::warn!(
            slots,
            configured = config.shards,
            "this folder was begun with another number of shards than ingester.shards says, and keeps it"
        );
    }
    Ok(known)
}
