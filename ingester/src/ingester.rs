//! The shards of one node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{
    Catalog, CatalogError, MAX_SLOTS, ShardEntry, ShardId, Wound, shard_id, slot_and_epoch,
};
use athanor_chassis::disk::DiskError;
use athanor_chassis::tasks::{SpawnError, Task};
use athanor_chassis::{
    ByteSize, Clock, Code, Coded, Compute, Overrides, Random, Status, Tasks, TenantId, Timestamp,
};
use athanor_consensus::Replicated;
use athanor_consensus::replicated::{Deps as Consensus, Founding, OpenError as LogError};
use athanor_profile::upload::Upload;
use athanor_storage::Store;
use serde::{Deserialize, Serialize};

use crate::cut::{Asked, CutConfig, CutDeps, Cutter};
use crate::entry::Entry;
use crate::head::View;
use crate::heads::Moved;
use crate::machine::{Machine, lock};
use crate::reign::{Begun, Claim, Reign};
use crate::shard::{Shard, ShardDeps, Stored, lost};
use crate::stats::{CutCounts, ShardStats, Written};
use crate::walking::Walkers;
use crate::window::{Shelf, Window};

/// Uncompressed bytes of profiles that are proposed together, about, where the log takes so much.
const BATCH: usize = 32 << 20;

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
    shards: BTreeMap<ShardId, Open>,
    by_slot: BTreeMap<u32, ShardId>,
    compute: Compute,
}

struct Open {
    shard: Arc<Shard>,
    entry: ShardEntry,
    asked: Arc<Asked>,
    /// What prepares, proposes and cuts.
    works: [Task<()>; 3],
    counts: Arc<CutCounts>,
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
        for entry in known(config, &deps).await? {
            // A slot's latest shard takes what comes.
            ingester.by_slot.insert(entry.slot, entry.id);
            let open = open(config, &deps, &walkers, entry).await?;
            ingester.shards.insert(open.entry.id, open);
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
        match self.by_slot.get(&slot).and_then(|id| self.shards.get(id)) {
            Some(open) => open.shard.append(tenant, uploads).await,
            None => {
                let message = format!("no shard of slot {slot} is here, there are {}", self.by_slot.len());
                uploads.iter().map(|_| Err(Status::new(Code::Internal, message.clone()))).collect()
            }
        }
    }

    /// A tenant's rows in a shard that lie after a watermark (E17).
    pub fn views(&self, shard: ShardId, watermark: u64, tenant: &TenantId) -> Result<Vec<View>, Moved> {
        let Some(open) = self.shards.get(&shard) else { return Ok(Vec::new()) };
        let heads = open.shard.heads().after(watermark)?;
        Ok(heads.iter().filter_map(|head| Some(head.view(tenant)?.on(&self.compute))).collect())
    }

    /// How many entries of a shard's log after a watermark were acknowledged and lost to damage (E7).
    pub fn lost(&self, shard: ShardId, watermark: u64) -> u64 {
        self.shards.get(&shard).map_or(0, |open| open.shard.lost(watermark..u64::MAX))
    }

    /// Whether ids of a shard were lost to damage, and the catalogue does not say so yet.
    pub fn forgets(&self, shard: ShardId) -> bool {
        self.shards.get(&shard).is_some_and(|open| open.shard.log().with(Machine::forgot).is_some())
    }

    /// Cuts the heads of all shards and returns when their blocks are registered, or the time is up. One that cannot be
    /// cut keeps no other from it.
    pub async fn cut(&self, clock: &Clock, patience: Duration) -> Result<Written, Status> {
        let written = || self.shards.values().map(|open| open.counts.written());
        let before: Vec<Written> = written().collect();
        let cut = |open: &'_ Open| {
            let (asked, counts, shard) = (Arc::clone(&open.asked), Arc::clone(&open.counts), open.entry.id);
            async move {
                let cut = clock.within(patience, asked.cut()).await;
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
        for open in self.shards.values() {
            open.shard.log().shutdown().await;
        }
    }

    /// Why a shard takes nothing more, or cuts no more, until a restart: the first that has failed.
    pub fn failed(&self) -> Option<String> {
        self.shards.values().find_map(|open| {
            let ended = || open.works.iter().find(|work| work.has_ended());
            let failed =
                open.shard.log().failed().or_else(|| ended().map(|work| format!("{} no more", work.name())));
            failed.map(|why| format!("shard {}: {why}", open.entry.id))
        })
    }

    /// How each shard fares.
    pub fn stats(&self, clock: &Clock) -> Vec<ShardStats> {
        let now = clock.monotonic();
        let of = |open: &Open| ShardStats {
            cuts: open.counts.now(),
            since_cut: now.saturating_sub(open.counts.last()),
            ..open.shard.stats(open.entry.id)
        };
        self.shards.values().map(of).collect()
    }

    /// Whether there are profiles that are in no block yet.
    pub fn has_unregistered(&self) -> bool {
        self.shards.values().flat_map(|open| open.shard.heads().unregistered()).any(|head| !head.is_empty())
    }

    /// Bytes of profiles in memory that are in no block yet.
    pub fn unregistered_bytes(&self) -> u64 {
        self.shards.values().map(|open| open.shard.heads().unregistered_bytes() as u64).sum()
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
        deps.catalog.open_shard(slot).await?;
    }
    known = listed().await?;
    if known.is_empty() {
        deps.catalog.open_slots(config.shards).await?;
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

async fn open(
    config: &Config,
    deps: &Deps,
    walkers: &Arc<Walkers>,
    mut entry: ShardEntry,
) -> Result<Open, OpenError> {
    let claim = Arc::new(Claim::default());
    let shard = entry.id;
    let (disk, node) = (Arc::clone(&deps.consensus.disk), deps.consensus.node);
    let shelf = Shelf::open(disk, shard, node, config.recent_ids as usize)?;
    let window = Window::new(shelf);
    let machine = Machine::new(Arc::clone(&claim), window);
    let founding = Founding::alone(deps.consensus.node);
    let log = Replicated::open(&deps.consensus, shard, founding, machine)
        .await
        .map_err(|source| OpenError::Log { shard, source })?;
    settle(deps, &mut entry, &log).await?;
    let reign = Arc::new(Reign::new(deps.clock.clone()));
    let begun = lead(deps, &claim, &reign, &log).await.map_err(|source| OpenError::Lead { shard, source })?;
    let shard_deps = ShardDeps {
        overrides: deps.overrides.clone(),
        clock: deps.clock.clone(),
        random: deps.random.clone(),
        compute: deps.compute.clone(),
        walkers: Arc::clone(walkers),
        // Rows and names take less than pprof does; what is said of each record is allowed for by half.
        batch: usize::try_from(deps.consensus.log.largest() / 2).unwrap_or(BATCH).min(BATCH),
        waiting: config.waiting,
        unregistered: config.unregistered,
        ids: config.ids,
    };
    let (shard, works) = Shard::new(shard_deps, reign, begun, log);
    let shard = Arc::new(shard);
    let token = deps.tasks.token();
    // The proposer ends with the preparer, when it has proposed what was prepared.
    let prepares = deps.tasks.spawn(format!("shard {} prepares", entry.id), async move {
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = works.preparer.run() => {}
        }
    })?;
    let proposes = deps.tasks.spawn(format!("shard {} proposes", entry.id), works.proposer.run())?;
    let asked = Arc::new(Asked::default());
    let counts = Arc::new(CutCounts::new(deps.clock.monotonic()));
    let cut_deps = CutDeps {
        cluster: deps.cluster,
        catalog: Arc::clone(&deps.catalog),
        store: deps.store.clone(),
        clock: deps.clock.clone(),
        random: deps.random.clone(),
        compute: deps.compute.clone(),
        counts: Arc::clone(&counts),
    };
    let cutter =
        Cutter::new(config.cut.clone(), cut_deps, Arc::clone(&shard), entry.clone(), Arc::clone(&asked));
    let token = deps.tasks.token();
    let cuts = deps.tasks.spawn(format!("shard {} cuts", entry.id), async move {
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = cutter.run() => {}
        }
    })?;
    Ok(Open { shard, entry, asked, works: [prepares, proposes, cuts], counts })
}

/// Has the log say that this node leads, and reads back what earlier leaders stored.
async fn lead(
    deps: &Deps,
    claim: &Claim,
    reign: &Arc<Reign>,
    log: &Replicated<Machine>,
) -> Result<Begun, Status> {
    let token = deps.random.next_u64();
    claim.put(token, Arc::clone(reign));
    // Time that passed while nobody led is not counted: ids are known a little longer (E10).
    let stamp = lock(&log.with(Machine::window)).stamp();
    let begin = Entry::begin(token, deps.consensus.node, stamp).into();
    log.propose_needed(begin).await.map_err(|error| Status::of(&error))?;
    let stopped = || Status::new(Code::Internal, "the log does not say what was proposed");
    let begun = reign.begun().ok_or_else(stopped)?;
    reign.rebuild(log, &deps.compute).await?;
    Ok(begun)
}

/// Has answers say that ids of a shard were lost, if they were.
pub(crate) async fn tell_forgotten(
    catalog: &dyn Catalog,
    shard: ShardId,
    log: &Replicated<Machine>,
    now: Timestamp,
) -> Result<(), CatalogError> {
    let Some(to) = log.with(Machine::forgot) else { return Ok(()) };
    tracing::error!(
        shard,
        to,
        "ids of records up to this entry were lost to damage of the disk: what is repeated of them counts again"
    );
    catalog.mark(Wound::Ids { shard, to }, now).await?;
    log.with(Machine::told);
    Ok(())
}

/// Tells the catalogue what the shard's log knows better: what was registered, and what damage took.
async fn settle(deps: &Deps, entry: &mut ShardEntry, log: &Replicated<Machine>) -> Result<(), OpenError> {
    let now = deps.clock.wall();
    let (shard, cut) = (entry.id, log.with(Machine::cut));
    tell_forgotten(&*deps.catalog, shard, log, now).await?;
    // Rows of these entries lie in blocks and are not missed. Their ids lie in the log alone.
    if lost(log, cut..entry.watermark) > 0 {
        let to = entry.watermark;
        tracing::error!(shard, to, "ids of records up to this entry were lost to damage of the log");
        deps.catalog.mark(Wound::Ids { shard, to }, now).await?;
    }
    if cut > entry.watermark {
        tracing::error!(
            shard,
            from = entry.watermark,
            to = cut,
            "the catalogue has lost the blocks of these entries; they are looked for in the bucket"
        );
        deps.catalog.raise(shard, cut, now).await?;
        entry.watermark = cut;
    }
    Ok(())
}
