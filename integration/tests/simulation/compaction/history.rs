//! One history: profiles, flushed blocks, jobs, retention and time.

mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use athanor_block::{
    BlockFolder, BlockOrigin, META_FILE, MemoryFolder, MemoryProfiles, PARQUET_FILES, write_from_memory,
};
use athanor_catalog::{
    BlockEntry, BlockId, Catalog, CatalogCommand, InMemoryCatalog, RetentionPolicy, TierRetention,
};
use athanor_chassis::time::clock::ManualClock;
use athanor_chassis::{Clock, Random, TenantId, Tier, Timestamp};
use athanor_cluster::NodeId;
use athanor_compactor::{Compactor, CompactorConfig, JobOutcome};
use athanor_metastore::bucket_block_from_meta;
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};
use athanor_storage::{StorageConfig, Store, StoreDeps};

use super::block_cache::BlockCache;
use super::queries::{Expectation, ExpectedProfile, compare_random_query};
use super::stopped_workers::StoppedWorker;

pub const SECOND: i64 = 1_000_000_000;
pub const MINUTE: i64 = 60 * SECOND;
const CLUSTER: u128 = 7;
const NODE: NodeId = 1;
const SLOTS: u32 = 3;
/// Age at which raw blocks expire.
const RETENTION: Duration = Duration::from_secs(3 * 86_400);
/// Limit of the age of a profile that is sent once more. Profiles are merged and covered before their copies could
/// arrive after the removal of their raw rows.
const MAX_COPY_AGE_NANOS: i64 = 12 * 3_600 * SECOND;
/// Tenants. Profiles of the first one are sent again under other label rules at times.
pub const TENANTS: [&str; 2] = ["acme", "globex"];

/// Distinct profile.
#[derive(Clone)]
pub struct SentProfile {
    pub tenant: usize,
    pub labels: Labels,
    pub time: i64,
    pub id: u128,
    pub profile: Profile,
    pub arrival: Timestamp,
}

/// Tenant and record id of a profile.
type ProfileKey = (usize, ContentHash);

impl SentProfile {
    /// Returns the id of the profile's only record.
    fn record_id(&self) -> ContentHash {
        let mut source = MemorySource::default();
        source.add(&self.labels, &self.profile, self.id);
        source.profiles().unwrap()[0].id
    }
}

/// Catalog, bucket and plain list of one history.
pub struct History {
    random: Random,
    hand: ManualClock,
    clock: Clock,
    store: Store,
    catalog: Arc<InMemoryCatalog>,
    /// Copies that no block holds yet, by slot.
    pending: Vec<Vec<SentProfile>>,
    /// All profiles in listed blocks, of any tier, first copies only.
    flushed: BTreeMap<ProfileKey, SentProfile>,
    /// Profiles that the downsampled tiers hold.
    covered: BTreeSet<ProfileKey>,
    opened: BlockCache,
    /// Workers that stopped in the middle of a job, and may continue.
    stopped: Vec<StoppedWorker>,
    retention: RetentionPolicy,
    next_id: u128,
    written: Arc<AtomicU64>,
    events: BTreeMap<&'static str, u64>,
}

impl History {
    pub async fn begin(random: Random) -> Self {
        let (clock, hand) = Clock::manual(Timestamp::from_nanos(1_700_000_000 * SECOND));
        let deps = StoreDeps { clock: clock.clone(), random: random.split() };
        let store = Store::open(&StorageConfig { memory: true, ..StorageConfig::default() }, deps).unwrap();
        let catalog = Arc::new(InMemoryCatalog::new(clock.clone()));
        catalog.open_slots(SLOTS, NODE).await.unwrap();
        let longer = |factor: u32| RETENTION * (factor * random.next_below(2) as u32);
        let retention = RetentionPolicy {
            default: TierRetention {
                raw: RETENTION,
                five_minutes: longer(2),
                one_hour: longer(3),
                one_day: Duration::ZERO,
            },
            tenants: BTreeMap::new(),
        };
        Self {
            random,
            hand,
            clock,
            store,
            catalog,
            pending: vec![Vec::new(); SLOTS as usize],
            flushed: BTreeMap::new(),
            covered: BTreeSet::new(),
            opened: BlockCache::default(),
            stopped: Vec::new(),
            retention,
            next_id: 1,
            written: Arc::default(),
            events: BTreeMap::new(),
        }
    }

    fn count(&mut self, event: &'static str) {
        *self.events.entry(event).or_default() += 1;
    }

    fn draw(&self, below: u64) -> u64 {
        self.random.next_below(below)
    }

    /// Does one random step.
    pub async fn step(&mut self) {
        match self.draw(15) {
            0..=3 => {
                for _ in 0..1 + self.draw(12) {
                    self.push();
                }
                self.flush_some().await;
            }
            4 => {
                self.push_duplicates();
                self.flush_some().await;
            }
            5..=6 => {
                self.run_planned_jobs().await;
            }
            7..=8 => self.run_random_job().await,
            9 => self.hand.advance(Duration::from_secs(60 + self.draw(1_800))),
            10 => {
                self.flush_all().await;
                self.hand.advance(Duration::from_secs(3_600 * (1 + self.draw(30))));
            }
            11 => self.pass_days().await,
            12 => self.stop_worker().await,
            13 => self.continue_worker().await,
            _ => {
                self.compact_all().await;
                self.expire_blocks().await;
            }
        }
    }

    /// Lets days pass in which compaction keeps up, then expires blocks.
    async fn pass_days(&mut self) {
        self.flush_all().await;
        for _ in 0..1 + self.draw(3) {
            self.hand.advance(Duration::from_secs(86_400));
            self.compact_all().await;
        }
        self.expire_blocks().await;
    }

    /// Returns the time of a profile: mostly recent, at times late, at a window's end, or far away.
    fn draw_time(&mut self) -> i64 {
        let now = self.clock.wall().nanos();
        match self.draw(20) {
            0..=11 => now - (self.draw(20 * 60) as i64) * SECOND,
            12..=14 => now - (self.draw(3 * 3_600) as i64) * SECOND - 1,
            15 => now - (self.draw(30 * 3_600) as i64) * SECOND,
            16..=18 => {
                self.count("profiles at a window's end");
                let width = [10 * MINUTE, 60 * MINUTE, 24 * 60 * MINUTE][self.draw(3) as usize];
                now.div_euclid(width) * width + self.draw(3) as i64 - 1
            }
            _ => [0, 4_102_444_800 * SECOND][self.draw(2) as usize] + self.draw(1_000) as i64,
        }
    }

    fn push(&mut self) {
        let tenant = self.draw(2) as usize;
        let time = self.draw_time();
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        profile.header.time_nanos = time;
        for _ in 0..1 + self.draw(4) {
            let names = [format!("main-{}", self.draw(2)), format!("work-{}", self.draw(6))];
            let stack = profile.dictionary.intern_named_stack(names.iter().map(String::as_str));
            profile.samples.push(stack, 0, &[1 + self.draw(1_000) as i64]);
        }
        let id = self.next_id << 64;
        self.next_id += 1;
        let labels = self.labels(self.draw(3), 0);
        let arrival = self.clock.wall();
        let sent = SentProfile { tenant, labels, time, id, profile, arrival };
        let slot = self.draw(u64::from(SLOTS)) as usize;
        self.pending[slot].push(sent);
    }

    fn labels(&self, pod: u64, rules: u64) -> Labels {
        Labels::new([
            ("service_name".to_owned(), format!("service-{}", pod % 2)),
            ("pod".to_owned(), format!("pod-{pod}")),
            ("rules".to_owned(), rules.to_string()),
        ])
    }

    /// Sends some profiles once more, to any slot. Those of the first tenant may get other labels.
    fn push_duplicates(&mut self) {
        for _ in 0..1 + self.draw(4) {
            let now = self.clock.wall().nanos();
            let is_recent = |sent: &&SentProfile| now.saturating_sub(sent.time) <= MAX_COPY_AGE_NANOS;
            let recent: Vec<&SentProfile> = self.flushed.values().filter(is_recent).collect();
            if recent.is_empty() {
                return;
            }
            let mut copy = recent[self.draw(recent.len() as u64) as usize].clone();
            copy.arrival = self.clock.wall();
            if copy.tenant == 0 && self.draw(2) == 0 {
                copy.labels.set("rules", "1");
                self.count("duplicates of other series");
            }
            let slot = self.draw(u64::from(SLOTS)) as usize;
            self.pending[slot].push(copy);
        }
    }

    async fn flush_all(&mut self) {
        for slot in 0..SLOTS {
            if !self.pending[slot as usize].is_empty() {
                self.flush(slot).await;
            }
        }
    }

    async fn flush_some(&mut self) {
        for slot in 0..SLOTS {
            if !self.pending[slot as usize].is_empty() && self.draw(4) > 0 {
                self.flush(slot).await;
            }
        }
    }

    async fn flush(&mut self, slot: u32) {
        self.hand.advance(Duration::from_millis(5));
        let profiles = std::mem::take(&mut self.pending[slot as usize]);
        let mut sources = [MemorySource::default(), MemorySource::default()];
        for sent in &profiles {
            sources[sent.tenant].add(&sent.labels, &sent.profile, sent.id);
        }
        let shards = self.catalog.state().routing_view().shards;
        let shard = shards.iter().find(|shard| shard.slot == slot).unwrap().clone();
        let id = BlockId::new(self.clock.wall(), &self.random);
        let origin = BlockOrigin {
            cluster: format!("{CLUSTER:032x}"),
            shard: shard.id,
            epoch: shard.epoch,
            from: shard.watermark,
            to: shard.watermark + 1,
            lost: 0,
            level: 0,
            additional_ranges: Vec::new(),
            tier: Tier::Raw,
            is_covered: false,
            job: None,
        };
        let folder = MemoryFolder::default();
        let parts =
            TENANTS.iter().zip(&sources).map(|(tenant, source)| (*tenant, source as &dyn MemoryProfiles));
        let meta = write_from_memory(&folder, &id.to_string(), Some(origin.clone()), parts).unwrap();
        for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
            let bytes = folder.read(file, 0, folder.length(file).unwrap() as usize).unwrap();
            self.store.create(&object_key(None, id, file), bytes).await.unwrap();
        }
        let entry = bucket_block_from_meta(id, &meta, &origin).unwrap().block;
        self.catalog.register_block(entry).await.unwrap();
        for sent in profiles {
            let arrival = self.clock.wall();
            let key = (sent.tenant, sent.record_id());
            self.flushed.entry(key).or_insert(SentProfile { arrival, ..sent });
        }
    }

    /// Records the profiles in covered raw blocks, which the tiers hold as well.
    async fn record_covered(&mut self) {
        let listed = self.catalog.blocks().await.unwrap();
        let covered: Vec<BlockEntry> = listed.into_iter().filter(|block| block.is_covered).collect();
        let ids = self.listed_ids(&covered).await;
        self.covered.extend(ids);
    }

    /// Expires blocks past their retention. The profiles in them are gone, and no others.
    async fn expire_blocks(&mut self) {
        self.record_covered().await;
        let before = self.catalog.blocks().await.unwrap();
        let count_raw = |blocks: &[BlockEntry]| blocks.iter().filter(|block| block.tier.is_raw()).count();
        let retention = self.retention.clone();
        let command = CatalogCommand::ExpireBlocks { retention, max_percent: None };
        self.catalog.apply_command(command).await.unwrap();
        let listed = self.catalog.blocks().await.unwrap();
        if count_raw(&listed) < count_raw(&before) {
            self.count("expired blocks");
        } else if listed.len() < before.len() {
            self.count("expired blocks of a tier");
        }
        let raw = |is_covered: bool| {
            let is_of = move |block: &&BlockEntry| block.tier.is_raw() && block.is_covered == is_covered;
            listed.iter().filter(is_of).cloned().collect::<Vec<_>>()
        };
        let (covered, uncovered) = (raw(true), raw(false));
        let kept = self.listed_ids(&covered).await;
        let uncovered = self.listed_ids(&uncovered).await;
        let now = self.clock.wall();
        for block in &covered {
            assert!(now.since(block.newest_time()) <= RETENTION, "{block:?} is still listed");
        }
        for (key, sent) in &self.flushed {
            let newest = sent.arrival.max(Timestamp::from_nanos(sent.time));
            let age = now.since(newest);
            let is_listed = kept.contains(key) || uncovered.contains(key);
            assert!(age > RETENTION || is_listed, "profile of age {age:?} is gone");
            assert!(self.covered.contains(key) || is_listed, "profile expired before the tiers held it");
        }
        // The coarsest tier is kept for ever.
        let covered = &self.covered;
        self.flushed.retain(|key, _| covered.contains(key) || uncovered.contains(key));
    }

    /// Returns the profiles in the parts of raw blocks.
    async fn listed_ids(&self, listed: &[BlockEntry]) -> BTreeSet<ProfileKey> {
        let mut ids = BTreeSet::new();
        for entry in listed {
            for span in &entry.tenants {
                let tenant = TENANTS.iter().position(|name| *name == span.tenant.as_str()).unwrap();
                let part = self.opened.part_ids(&self.store, entry, &span.tenant).await;
                ids.extend(part.iter().map(|id| (tenant, *id)));
            }
        }
        ids
    }

    /// Compares some random queries.
    pub async fn compare_some(&mut self) -> Result<(), String> {
        for _ in 0..2 {
            let tenant = self.draw(2) as usize;
            let name: TenantId = TENANTS[tenant].parse().unwrap();
            let listing = self.catalog.list_blocks(&name, i64::MIN, i64::MAX).await.unwrap();
            let mut blocks = Vec::new();
            for entry in &listing.blocks {
                blocks.push((entry.clone(), self.opened.open(&self.store, entry).await));
            }
            let raw: Vec<BlockEntry> =
                listing.blocks.iter().filter(|block| block.tier.is_raw()).cloned().collect();
            let listed = self.listed_ids(&raw).await;
            let of_tenant = self.flushed.iter().filter(|((of, _), _)| *of == tenant);
            let profiles = of_tenant.map(|(key, sent)| ExpectedProfile {
                sent,
                is_covered: self.covered.contains(key),
                is_raw_listed: listed.contains(key),
            });
            let expectation = Expectation {
                tenant,
                profiles: profiles.collect(),
                now: self.clock.wall().nanos(),
                expired_until: listing.expired_until.clone(),
            };
            let event = compare_random_query(&self.random, &expectation, &blocks)?;
            self.count(event);
        }
        Ok(())
    }

    /// Merges all that can be merged, and compares once more. Returns the events.
    pub async fn end(mut self) -> BTreeMap<&'static str, u64> {
        self.flush_all().await;
        self.hand.advance(Duration::from_secs(2 * 86_400));
        while !self.stopped.is_empty() {
            self.continue_worker().await;
        }
        self.retry_parts().await;
        let catalog = Arc::clone(&self.catalog) as Arc<dyn Catalog>;
        let compactor = Compactor::new(CompactorConfig::default(), self.compactor_deps(catalog));
        let mut jobs = 0;
        while compactor.run_once().await.unwrap() != JobOutcome::Idle {
            jobs += 1;
            assert!(jobs < 10_000, "the planner does not come to an end");
        }
        self.record_outputs(&compactor).await;
        let listed = self.catalog.blocks().await.unwrap();
        let flushed = listed.iter().filter(|block| block.level == 0).count();
        assert_eq!(flushed, 0, "flushed blocks are left after two days");
        let now = self.clock.wall().nanos();
        let is_open =
            |block: &&BlockEntry| block.tier.is_raw() && !block.is_covered && block.max_time() <= now;
        let open: Vec<&BlockEntry> = listed.iter().filter(is_open).collect();
        assert!(open.is_empty(), "not covered after two days: {open:?}");
        for _ in 0..4 {
            self.compare_some().await.unwrap();
        }
        self.events
    }
}

/// Returns the key of a block's object.
pub fn object_key(tenant: Option<&TenantId>, id: BlockId, file: &str) -> ObjectKey {
    let owner = tenant.map_or(BlockOwner::Shared, |tenant| BlockOwner::Tenant(tenant.clone()));
    ObjectKey::Block { owner, block: id.number(), file: FileName::new(file).unwrap() }
}
