//! State of the catalog with a million blocks: a listing, a copy for a snapshot, and a registration, each beside a
//! floor that is measured in turns with it. Times are processor time of the only thread.
//!
//! `cargo bench -p athanor-catalog --bench state` takes 1.5 GB of memory; `-- --blocks 100000` takes fewer blocks.
#![expect(clippy::unwrap_used, reason = "a bench")]

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::time::Duration;

use athanor_catalog::{
    BlockEntry, BlockId, CatalogCommand, CatalogState, CommandResult, RetentionPolicy, TenantSpan, shard_id,
};
use athanor_chassis::{Random, TenantId, Tier, Timestamp};

/// Rounds of which the median counts.
const ROUNDS: usize = 101;
/// Shards, each of which flushes one block a minute.
const SHARDS: u32 = 64;
const TENANTS: u64 = 100;
const TENANTS_PER_BLOCK: u64 = 2;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const START: Timestamp = Timestamp::from_seconds(1_700_000_000);

/// Catalog that is filled block by block.
struct FilledCatalog {
    state: CatalogState,
    random: Random,
    tenants: Vec<TenantId>,
    blocks: u64,
}

impl FilledCatalog {
    fn new(blocks: u64) -> Self {
        let mut state = CatalogState::default();
        let members = vec![BTreeSet::from([1]); SHARDS as usize];
        let zones = BTreeMap::from([(1, String::new())]);
        let opened = state.apply(START, CatalogCommand::OpenSlots { count: SHARDS, members, zones });
        assert!(!matches!(opened, CommandResult::Refused(_)), "{opened:?}");
        let tenants = (0..TENANTS).map(|number| format!("tenant-{number}").parse().unwrap()).collect();
        let mut filled = Self { state, random: Random::from_seed(1), tenants, blocks: 0 };
        for _ in 0..blocks {
            let block = filled.next_block();
            filled.register(block);
        }
        filled
    }

    fn now(&self) -> Timestamp {
        START.plus(MINUTE * (self.blocks / u64::from(SHARDS)) as u32)
    }

    /// Creates the entry of the next block of the next shard in turn.
    fn next_block(&mut self) -> BlockEntry {
        let now = self.now();
        let slot = (self.blocks % u64::from(SHARDS)) as u32;
        let from = self.blocks / u64::from(SHARDS);
        let first = self.random.next_u64() % (TENANTS / TENANTS_PER_BLOCK) * TENANTS_PER_BLOCK;
        let span = |number: u64| TenantSpan {
            tenant: self.tenants[number as usize].clone(),
            min_time: now.nanos() - self.random.next_u64() as i64 % MINUTE.as_nanos() as i64,
            max_time: now.nanos(),
            profiles: 10,
            samples: 1000,
            sum: Some(1),
            newest_arrival: Timestamp::UNIX_EPOCH,
        };
        let tenants = (first..first + TENANTS_PER_BLOCK).map(span).collect();
        let id = BlockId::new(now, &self.random);
        let shard = shard_id(slot, 1);
        BlockEntry {
            id,
            shard,
            epoch: 1,
            from,
            to: from + 1,
            bytes: 1 << 20,
            samples: 2000,
            lost: 0,
            level: 0,
            additional_ranges: Vec::new(),
            tier: Tier::Raw,
            is_covered: false,
            job: None,
            tenants,
        }
    }

    fn register(&mut self, block: BlockEntry) {
        let result = self.state.apply(self.now(), CatalogCommand::RegisterBlock { block });
        assert!(matches!(result, CommandResult::Registered(_)), "{result:?}");
        self.blocks += 1;
    }
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Durations of one piece of work.
struct Measured {
    name: &'static str,
    rounds: Vec<Duration>,
}

impl Measured {
    fn new(name: &'static str) -> Self {
        Self { name, rounds: Vec::new() }
    }

    fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let begun = cpu_time();
        let result = black_box(work());
        self.rounds.push(cpu_time() - begun);
        result
    }

    fn quantile(&self, part: f64) -> f64 {
        let mut rounds = self.rounds.clone();
        rounds.sort_unstable();
        rounds[((rounds.len() - 1) as f64 * part) as usize].as_nanos() as f64 / 1e3
    }

    fn print(&self, floor: Option<&Self>) {
        let median = self.quantile(0.5);
        let ratio = floor.map_or(String::new(), |floor| {
            format!(", {:.1} times the floor of {:.1} µs", median / floor.quantile(0.5), floor.quantile(0.5))
        });
        println!("{}: {median:.1} µs (longest {:.1}){ratio}", self.name, self.quantile(1.0));
    }
}

/// Lists the blocks of one tenant and hour. The floor copies the listing.
fn measure_listing(filled: &FilledCatalog) {
    let mut listing = Measured::new("listing of one tenant and hour");
    let mut floor = Measured::new("copy of the listing");
    let hours = (filled.now().since(START).as_secs() / HOUR.as_secs()).max(1);
    let mut listed = 0;
    for _ in 0..ROUNDS {
        let tenant = &filled.tenants[(filled.random.next_u64() % TENANTS) as usize];
        let from = START.plus(HOUR * (filled.random.next_u64() % hours) as u32);
        let found = listing.time(|| filled.state.list_blocks(tenant, from.nanos(), from.plus(HOUR).nanos()));
        listed += found.blocks.len();
        floor.time(|| found.clone());
    }
    listing.print(Some(&floor));
    println!("  blocks in a listing: {}", listed / ROUNDS);
}

/// Registers blocks. The floor inserts the same blocks into a map of all blocks.
fn measure_registration(filled: &mut FilledCatalog) {
    let mut registration = Measured::new("registration of a block");
    let mut after_copy = Measured::new("registration of the first block after a copy");
    let mut copy = Measured::new("copy of the state");
    let mut floor = Measured::new("insertion into a map of all blocks");
    let mut map: BTreeMap<BlockId, BlockEntry> =
        filled.state.blocks().map(|block| (block.id, block.clone())).collect();
    for _ in 0..ROUNDS {
        let block = filled.next_block();
        let inserted = block.clone();
        floor.time(|| map.insert(inserted.id, inserted));
        registration.time(|| filled.register(block));
        let shared = copy.time(|| filled.state.clone());
        let block = filled.next_block();
        map.insert(block.id, block.clone());
        after_copy.time(|| filled.register(block));
        drop(shared);
    }
    registration.print(Some(&floor));
    after_copy.print(Some(&floor));
    copy.print(None);
}

/// Looks for overdue blocks where none is overdue, and encodes the state.
fn measure_whole_state(filled: &mut FilledCatalog) {
    let retention = HOUR * 24 * 365;
    let now = filled.now();
    let mut expiry = Measured::new("expiry without overdue blocks");
    for _ in 0..ROUNDS {
        let command = CatalogCommand::ExpireBlocks {
            retention: RetentionPolicy::uniform(retention),
            max_percent: Some(5),
        };
        expiry.time(|| filled.state.apply(now, command));
    }
    expiry.print(None);
    let mut encoding = Measured::new("encoding of a snapshot, outside of the lock");
    encoding.time(|| filled.state.encode().len());
    encoding.print(None);
}

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--blocks").skip(1);
    let blocks = arguments.next().map_or(1_000_000, |count| count.parse().unwrap());
    let begun = cpu_time();
    let mut filled = FilledCatalog::new(blocks);
    println!("{blocks} blocks registered in {:.1} s", (cpu_time() - begun).as_secs_f64());
    measure_listing(&filled);
    measure_registration(&mut filled);
    measure_whole_state(&mut filled);
}
