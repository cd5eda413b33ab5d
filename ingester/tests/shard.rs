//! Shards in one thread: on disks that lose power, with a bucket and a catalogue that fail when they are told to.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use athanor_block::{Block, FILES, Folder, Held, META, MemoryFolder, PartSource};
use athanor_catalog::{Answer, BlockEntry, BlockId, Catalog, CatalogError, Command, Listing, Memory};
use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{
    ByteSize, Clock, Code, Compute, Disk, Limits, Overrides, Random, Status, Tasks, TenantId, Timestamp,
};
use athanor_consensus::log::{Config as LogConfig, Identity, Log, Pump};
use athanor_consensus::replicated;
use athanor_ingester::{Config, CutConfig, Deps, Ingester, Stored};
use athanor_profile::labels::SampleLabel;
use athanor_profile::pprof::encode;
use athanor_profile::upload::{Dropped, Upload};
use athanor_profile::{Labels, Profile, Source, ValueType};
use athanor_storage::path::{FileName, Key, Owner};
use athanor_storage::{Config as Bucket, Store, StoreDeps};

#[path = "shard/bounds.rs"]
mod bounds;
#[path = "shard/cuts.rs"]
mod cuts;

const PATIENCE: Duration = Duration::from_secs(300);

/// A catalogue that outlives processes, and that fails when it is told to.
#[derive(Default)]
struct Facts {
    held: Memory,
    /// Registrations that do not arrive.
    deaf: AtomicU32,
    /// Registrations that arrive, and whose answers do not.
    dumb: AtomicU32,
    /// A shard whose registrations never arrive.
    barred: AtomicU32,
}

fn spend(count: &AtomicU32) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok()
}

#[async_trait]
impl Catalog for Facts {
    async fn propose(&self, command: Command) -> Result<Answer, CatalogError> {
        let registers = matches!(command, Command::Register { .. });
        let failed = || Err(CatalogError::Unavailable(Status::new(Code::Unavailable, "told to fail")));
        let is_barred = |shard| shard == self.barred.load(Ordering::Relaxed);
        if matches!(&command, Command::Register { block, .. } if is_barred(block.shard)) {
            return failed();
        }
        if registers && spend(&self.deaf) {
            return failed();
        }
        let answer = self.held.propose(command).await;
        if registers && spend(&self.dumb) { failed() } else { answer }
    }
    async fn listing(&self, tenant: &TenantId, from: i64, to: i64) -> Result<Listing, CatalogError> {
        self.held.listing(tenant, from, to).await
    }
    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError> {
        self.held.blocks().await
    }
    async fn condemned(&self) -> Result<Vec<(BlockId, Timestamp)>, CatalogError> {
        self.held.condemned().await
    }
}

/// One sample as a query sees it: series, time, duration, stack, value.
type Row = (String, i64, i64, String, i64);

/// What a process leaves behind when it dies.
struct Remains {
    log_disk: MemoryDisk,
    state_disk: MemoryDisk,
    catalog: Arc<Facts>,
    store: Store,
    random: Random,
    clock: Clock,
    limits: Limits,
    slots: u32,
    /// What the log keeps free of its disk.
    reserve: ByteSize,
    /// Room for what was walked.
    decoded: ByteSize,
    /// Ids that the shard remembers.
    ids: u64,
}

/// A node of one shard.
struct World {
    ingester: Ingester,
    tasks: Tasks,
    log: Log,
    remains: Remains,
}

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

/// Runs a world whose time is only waited for.
fn simulate<R>(world: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(world)
}

impl World {
    async fn new() -> Self {
        Self::with(Limits::default(), Clock::system()).await
    }

    async fn with(limits: Limits, clock: Clock) -> Self {
        Self::on(Bucket { memory: true, ..Bucket::default() }, limits, clock).await
    }

    async fn on(bucket: Bucket, limits: Limits, clock: Clock) -> Self {
        let random = Random::seeded(7);
        let deps = StoreDeps { clock: clock.clone(), random: random.split() };
        let store = Store::open(&bucket, deps).unwrap();
        let (log_disk, state_disk, catalog) = (MemoryDisk::new(), MemoryDisk::new(), Arc::default());
        let (slots, reserve, ids) = (1, ByteSize::bytes(0), 1000);
        let decoded = Config::default().decoded;
        Self::boot(Remains {
            log_disk,
            state_disk,
            catalog,
            store,
            random,
            clock,
            limits,
            slots,
            reserve,
            decoded,
            ids,
        })
        .await
    }

    async fn boot(remains: Remains) -> Self {
        let Remains {
            log_disk,
            state_disk,
            catalog,
            store,
            random,
            clock,
            limits,
            slots,
            reserve,
            decoded,
            ids,
        } = &remains;
        let tasks = Tasks::new(clock.clone(), 1000);
        let (segment, reserve) = (ByteSize::kib(256), *reserve);
        let config = LogConfig { segment, spares: 1, reserve, ..LogConfig::default() };
        let identity = Identity { cluster: 1, node: 1 };
        let disk = Arc::new(log_disk.clone());
        let (log, recovery) = Log::open(disk, random, identity, &config, Pump::Inline).unwrap();
        assert!(recovery.damage.is_empty());
        let consensus = replicated::Deps {
            log: log.clone(),
            disk: Arc::new(state_disk.clone()),
            compute: Compute::inline(),
            random: random.split(),
            network: None,
            node: 1,
            timing: replicated::Timing::default(),
        };
        let deps = Deps {
            catalog: Arc::<Facts>::clone(catalog),
            store: store.clone(),
            consensus,
            overrides: Overrides::new(limits.clone()),
            clock: clock.clone(),
            random: random.split(),
            compute: Compute::inline(),
            tasks: tasks.clone(),
            cluster: 1,
        };
        let never = CutConfig { max_age: Duration::from_secs(1 << 30), max_bytes: ByteSize::mib(1024) };
        // Every cut puts its ids into a file.
        let config = Config {
            cut: never,
            shards: *slots,
            decoded: *decoded,
            recent_ids: 1,
            ids: *ids,
            ..Config::default()
        };
        let ingester = Ingester::open(&config, deps).await.unwrap();
        Self { ingester, tasks, log, remains }
    }

    /// The power goes, and comes again.
    async fn crash(self, seed: u64) -> Self {
        let Self { ingester, tasks, log, mut remains, .. } = self;
        remains.log_disk = remains.log_disk.crash(seed);
        remains.state_disk = remains.state_disk.crash(seed);
        tasks.shutdown(Duration::ZERO).await;
        ingester.shutdown().await;
        drop((ingester, log));
        Self::boot(remains).await
    }

    async fn push(&self, name: &str, uploads: Vec<Upload>) -> Vec<Result<Stored, Status>> {
        self.ingester.append(0, &tenant(name), uploads).await
    }

    /// Pushes one upload; says how many profiles are new.
    async fn push_one(&self, upload: &Upload) -> u32 {
        self.push("acme", vec![upload.clone()]).await.remove(0).unwrap().new
    }

    async fn cut(&self) {
        self.ingester.cut(&self.remains.clock, PATIENCE).await.unwrap();
    }

    async fn blocks(&self) -> usize {
        self.remains.catalog.blocks().await.unwrap().len()
    }

    /// Everything of a tenant, from blocks and heads, as a query plans it.
    async fn rows(&self, name: &str) -> Vec<Row> {
        let tenant = tenant(name);
        let listing = self.remains.catalog.listing(&tenant, i64::MIN, i64::MAX).await.unwrap();
        let mut rows = Vec::new();
        for shard in &listing.shards {
            for view in self.ingester.views(shard.id, shard.watermark, &tenant).unwrap() {
                read(&view, &mut rows);
            }
        }
        for block in &listing.blocks {
            let block = Arc::new(self.fetch(block).await);
            read(&PartSource::new(block, name, Compute::inline()).unwrap(), &mut rows);
        }
        rows.sort();
        rows
    }

    async fn fetch(&self, block: &BlockEntry) -> Block {
        let folder = MemoryFolder::default();
        for name in FILES.into_iter().chain([META]) {
            let file = FileName::new(name).unwrap();
            let key = Key::Block { owner: Owner::Shared, block: block.id.number(), file };
            let bytes = self.remains.store.get(&key).await.unwrap();
            folder.create(name).unwrap().write_all(&bytes).unwrap();
        }
        Block::open(Arc::new(folder)).unwrap()
    }

    async fn total(&self) -> i64 {
        self.rows("acme").await.iter().map(|row| row.4).sum()
    }
}

fn read(source: &dyn Source, out: &mut Vec<Row>) {
    let (series, profiles) = (source.series().unwrap(), source.profiles().unwrap());
    let picked: Vec<u32> = (0..profiles.len() as u32).collect();
    let mut names = BTreeMap::new();
    let mut read = |dictionary: &athanor_profile::Dictionary, stacks: &[u32]| {
        for (place, &stack) in (0u32..).zip(stacks) {
            let symbols = &dictionary.symbols;
            let lines = dictionary.stacks.locations(stack).flat_map(|location| symbols.lines(location));
            let mut path: Vec<&str> = lines.map(|line| symbols.function_name(line.function)).collect();
            path.sort_unstable();
            names.insert(place, path.join(";"));
        }
    };
    source.names(&mut read).unwrap();
    let mut rows: BTreeMap<(String, i64, i64, String), i64> = BTreeMap::new();
    let mut each = |place: u32, stacks: &[u32], values: &[i64]| {
        let profile = &profiles[place as usize];
        let series = &series[profile.series as usize];
        let labels: Vec<String> =
            series.labels().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let series = format!("{} {}", labels.join(","), series.value_type.kind);
        for (stack, value) in stacks.iter().zip(values) {
            let key = (series.clone(), profile.time, profile.duration, names[stack].clone());
            *rows.entry(key).or_default() += value;
        }
    };
    source.rows(&picked, &mut each).unwrap();
    out.extend(rows.into_iter().map(|(key, sum)| (key.0, key.1, key.2, key.3, sum)));
}

fn now() -> i64 {
    Clock::system().wall().nanos()
}

fn profile(time: i64, rows: &[(&str, i64)]) -> Profile {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    (profile.header.time_nanos, profile.header.duration_nanos, profile.header.period) = (time, 7, 3);
    for (stack, value) in rows {
        let stack = profile.dictionary.named_stack(stack.split(';'));
        profile.samples.push(stack, 0, &[*value]);
    }
    profile
}

fn upload(profile: &Profile) -> Upload {
    let pairs = [("__name__", "process_cpu"), ("service_name", "checkout")];
    let labels = Labels::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let pprof = encode(profile).into();
    Upload { sent: labels.clone(), labels, client_id: None, time_nanos: 0, pprof }
}

/// Eleven and `value - 10` more.
fn simple(time: i64, value: i64) -> Upload {
    upload(&profile(time, &[("main;work", value), ("main", 1)]))
}

/// Adds a row with text labels.
fn labelled(profile: &mut Profile, stack: &str, texts: &[(&str, &str)], value: i64) {
    let dictionary = &mut profile.dictionary;
    let stack = dictionary.named_stack(stack.split(';'));
    let strings = &mut dictionary.symbols.strings;
    let mut label =
        |key, text| SampleLabel { key: strings.intern(key), text: strings.intern(text), number: 0, unit: 0 };
    let set: Vec<SampleLabel> = texts.iter().map(|(key, text)| label(key, text)).collect();
    let set = dictionary.label_sets.intern(&dictionary.symbols.strings, &set);
    profile.samples.push(stack, set, &[value]);
}

#[test]
fn what_is_pushed_is_seen_and_a_repeat_is_not() {
    simulate(async {
        let world = World::new().await;
        let time = now();
        let (first, second) = (simple(time, 10), simple(time + 1, 10));
        assert_eq!(world.push_one(&first).await, 1);
        assert_eq!(world.total().await, 11);
        let end = world.log.held(1).end;
        assert_eq!(world.push_one(&first).await, 0, "a repeat");
        let stored = world.push("acme", vec![first.clone()]).await.remove(0).unwrap();
        assert_eq!((stored.new, stored.repeats), (0, 1));
        assert_eq!(
            (world.total().await, world.log.held(1).end),
            (11, end),
            "the log does not hear of repeats"
        );
        assert_eq!(world.push_one(&second).await, 1, "another time is another profile");
        let rows = world.rows("acme").await;
        let seen: Vec<(i64, &str, i64)> = rows.iter().map(|row| (row.1, row.3.as_str(), row.4)).collect();
        let each = |time| [(time, "main", 1), (time, "main;work", 10)];
        assert_eq!(seen, [each(time), each(time + 1)].concat());
    });
}

#[test]
fn a_repeat_is_known_across_cuts_and_crashes() {
    simulate(async {
        let mut world = World::new().await;
        let (first, second) = (simple(now(), 10), simple(now(), 20));
        assert_eq!(world.push_one(&first).await, 1);
        world.cut().await;
        assert_eq!(world.push_one(&first).await, 0, "after a cut");
        world = world.crash(1).await;
        assert_eq!(world.push_one(&first).await, 0, "after a cut and a crash");
        assert_eq!(world.push_one(&second).await, 1);
        world = world.crash(2).await;
        assert_eq!((world.push_one(&second).await, world.push_one(&first).await), (0, 0));
        assert_eq!(world.total().await, 32);
        world.cut().await;
        world = world.crash(3).await;
        assert_eq!((world.push_one(&second).await, world.push_one(&first).await), (0, 0));
        assert_eq!(world.total().await, 32);
    });
}

#[test]
fn equal_profiles_of_one_request_count_each() {
    simulate(async {
        let mut world = World::new().await;
        let equal = simple(now(), 10);
        let new = |answers: Vec<Result<Stored, Status>>| -> Vec<u32> {
            answers.into_iter().map(|answer| answer.unwrap().new).collect()
        };
        assert_eq!(new(world.push("acme", vec![equal.clone(); 3]).await), [1, 1, 1]);
        assert_eq!(new(world.push("acme", vec![equal.clone(); 3]).await), [0, 0, 0]);
        world.cut().await;
        world = world.crash(4).await;
        assert_eq!(new(world.push("acme", vec![equal.clone(); 4]).await), [0, 0, 0, 1]);
        assert_eq!(world.total().await, 44);
    });
}

#[test]
fn equal_sample_types_of_one_profile_count_each() {
    simulate(async {
        let mut world = World::new().await;
        let mut twice = profile(now(), &[]);
        twice.header.types = vec![ValueType::new("samples", "count"); 2];
        let stack = twice.dictionary.named_stack(["main"].into_iter());
        twice.samples.push(stack, 0, &[10, 200]);
        let twice = upload(&twice);
        let new = |answers: Vec<Result<Stored, Status>>| -> Vec<u32> {
            answers.into_iter().map(|answer| answer.unwrap().new).collect()
        };
        assert_eq!(new(world.push("acme", vec![twice.clone()]).await), [2]);
        assert_eq!(world.total().await, 210);
        assert_eq!(new(world.push("acme", vec![twice.clone(); 2]).await), [0, 2]);
        for crash in 0..2 {
            assert_eq!(new(world.push("acme", vec![twice.clone(); 2]).await), [0, 0]);
            assert_eq!(world.total().await, 420);
            world.cut().await;
            world = world.crash(crash).await;
        }
    });
}

#[test]
fn a_cut_changes_no_answer() {
    simulate(async {
        let world = World::new().await;
        for number in 0..20 {
            let mut some = profile(now(), &[("main;a", number), ("main;a;b", 5), ("main;c", 0)]);
            let region = if number % 2 == 0 { "north" } else { "south" };
            labelled(&mut some, "main;d", &[("region", region)], 3);
            world.push_one(&upload(&some)).await;
        }
        let before = world.rows("acme").await;
        world.cut().await;
        assert_eq!(world.blocks().await, 1);
        assert_eq!(world.rows("acme").await, before);
        world.cut().await;
        assert_eq!(world.blocks().await, 1, "nothing is no block");
        let world = world.crash(5).await;
        assert_eq!(world.rows("acme").await, before);
    });
}

#[test]
fn a_cut_is_tried_until_it_is_done() {
    simulate(async {
        let folder = tempfile::tempdir().unwrap();
        let (objects, aside) = (folder.path().join("objects"), folder.path().join("aside"));
        let mut bucket = Bucket { local: Some(objects.clone()), ..Bucket::default() };
        bucket.patience.attempts = 1;
        let world = World::on(bucket, Limits::default(), Clock::system()).await;
        world.push_one(&simple(now(), 10)).await;
        // A file where the folder was: nothing can be written.
        std::fs::rename(&objects, &aside).unwrap();
        std::fs::write(&objects, b"").unwrap();
        assert!(world.ingester.cut(&world.remains.clock, Duration::from_secs(20)).await.is_err());
        world.push_one(&simple(now(), 20)).await;
        assert_eq!(world.total().await, 32);
        std::fs::remove_file(&objects).unwrap();
        std::fs::rename(aside, &objects).unwrap();
        world.remains.catalog.deaf.store(2, Ordering::Relaxed);
        world.remains.catalog.dumb.store(1, Ordering::Relaxed);
        world.cut().await;
        assert_eq!(world.ingester.unregistered_bytes(), 0);
        assert_eq!(world.total().await, 32);
        let world = world.crash(6).await;
        assert_eq!(world.total().await, 32);
    });
}

/// A cut during which the power goes; says whether it was done before.
async fn lose_power_in_a_cut(step: u32) -> bool {
    let world = World::new().await;
    let [first, second, third] = [10, 20, 40].map(|value| simple(now(), value));
    world.push_one(&first).await;
    world.cut().await;
    world.push_one(&second).await;
    // Every other time the answer of the registration is lost, too.
    world.remains.catalog.dumb.store(step % 2, Ordering::Relaxed);
    let disk = if step % 4 < 2 { &world.remains.log_disk } else { &world.remains.state_disk };
    disk.lose_power_after(u64::from(step / 4));
    let cut = world.ingester.cut(&world.remains.clock, Duration::from_secs(30)).await.is_ok();
    let acknowledged = world.push("acme", vec![third.clone()]).await.remove(0).is_ok();
    let mut world = world.crash(u64::from(step)).await;
    let held = world.total().await;
    assert!(held == 32 + 41 || (!acknowledged && held == 32), "step {step}: {held}");
    for _ in 0..2 {
        assert_eq!((world.push_one(&first).await, world.push_one(&second).await), (0, 0), "step {step}");
        world.push_one(&third).await;
        assert_eq!(world.total().await, 32 + 41, "step {step}");
        world.cut().await;
        assert_eq!(world.total().await, 32 + 41, "step {step}");
        world = world.crash(u64::from(step) + 1000).await;
        assert_eq!(world.total().await, 32 + 41, "step {step}");
    }
    cut && acknowledged
}

#[test]
fn the_power_may_go_at_any_step_of_a_cut() {
    let steps = 120;
    let done = (0..steps).filter(|step| simulate(lose_power_in_a_cut(*step))).count();
    assert!((1..steps as usize).contains(&done), "the power went in no cut, or in each: {done}");
}

#[test]
fn what_has_neither_id_nor_time_counts_each_time() {
    simulate(async {
        let world = World::new().await;
        let nameless = simple(0, 10);
        for _ in 0..5 {
            assert_eq!(world.push_one(&nameless).await, 1);
        }
        assert_eq!(world.total().await, 55);
        let named = Upload { client_id: Some("7a".to_owned()), ..nameless.clone() };
        assert_eq!((world.push_one(&named).await, world.push_one(&named).await), (1, 0));
        let timed = Upload { time_nanos: now(), ..nameless };
        assert_eq!((world.push_one(&timed).await, world.push_one(&timed).await), (1, 0));
    });
}

#[test]
fn what_has_neither_id_nor_time_counts_though_no_time_passes() {
    simulate(async {
        let (clock, _still) = Clock::manual(Timestamp::from_nanos(now()));
        let world = World::with(Limits::default(), clock).await;
        let pushes = (0..20).map(|_| world.push("acme", vec![simple(0, 10); 2]));
        let answers = futures::future::join_all(pushes).await;
        let new: u32 = answers.into_iter().flatten().map(|answer| answer.unwrap().new).sum();
        assert_eq!((new, world.total().await), (40, 440));
    });
}

#[test]
fn a_refusal_names_the_limit() {
    simulate(async {
        let limits = Limits {
            max_profile_size_bytes: ByteSize::bytes(4000),
            max_profile_stacktrace_samples: 50,
            max_profile_stacktrace_sample_labels: 2,
            max_label_value_length: 10,
            ..Limits::default()
        };
        let world = World::with(limits, Clock::system()).await;
        let many: Vec<(String, i64)> = (0..60).map(|number| (format!("f{number}"), 1)).collect();
        let many: Vec<(&str, i64)> = many.iter().map(|(stack, value)| (stack.as_str(), *value)).collect();
        let mut crowded = profile(now(), &[]);
        labelled(&mut crowded, "main", &[("a", "1"), ("b", "2"), ("c", "3")], 1);
        let mut long = profile(now(), &[]);
        labelled(&mut long, "main", &[("a", "12345678901")], 1);
        let hour = 3_600_000_000_000;
        let text = "x".repeat(5000);
        for (refused, named) in [
            (profile(now(), &[(text.as_str(), 1)]), "limits.max_profile_size_bytes"),
            (profile(now(), &many[..51]), "limits.max_profile_stacktrace_samples"),
            (crowded, "limits.max_profile_stacktrace_sample_labels"),
            (long, "max_label_value_length"),
            (profile(now() - hour - hour / 60, &many[..1]), "limits.reject_older_than"),
            (profile(now() + hour / 5, &many[..1]), "limits.reject_newer_than"),
        ] {
            let status = world.push("acme", vec![upload(&refused)]).await.remove(0).unwrap_err();
            assert_eq!(status.code, Code::Invalid, "{status}");
            assert!(status.message.contains(named), "{named}: {status}");
        }
        // Others of the same request are not held back.
        let answers = world.push("acme", vec![upload(&profile(1, &many[..1])), simple(now(), 1)]).await;
        assert!(answers[0].is_err() && answers[1].is_ok());
        assert_eq!(world.total().await, 2);
        let garbage = Upload { pprof: vec![0xff; 40].into(), ..simple(now(), 1) };
        assert!(world.push("acme", vec![garbage]).await.remove(0).is_err());
    });
}

#[test]
fn a_full_disk_takes_what_frees_it() {
    simulate(async {
        let mut world = World::new().await;
        world.remains.reserve = ByteSize::mib(2);
        let world = world.crash(1).await;
        world.push_one(&simple(now(), 10)).await;
        let disk = &world.remains.log_disk;
        disk.set_capacity(Some(64 << 20));
        let used = (64 << 20) - disk.free().unwrap();
        disk.set_capacity(Some(used + (1 << 20)));
        let refused = world.push("acme", vec![simple(now(), 11)]).await.remove(0).unwrap_err();
        assert_eq!(
            (refused.code, refused.message.contains("reserve")),
            (Code::Exhausted, true),
            "{refused:?}"
        );
        assert!(refused.retry_after.is_some(), "{refused:?}");
        world.cut().await;
        assert_eq!(world.blocks().await, 1);
        let world = world.crash(2).await;
        assert_eq!(world.total().await, 11, "it starts, and what was acknowledged is there");
    });
}

#[test]
fn a_shard_that_remembers_enough_takes_repeats_and_waits_until_the_oldest_are_forgotten() {
    simulate(async {
        let mut world = World::new().await;
        world.remains.ids = 5;
        world = world.crash(1).await;
        let uploads: Vec<Upload> = (0..5).map(|number| simple(now() + number, 10)).collect();
        for upload in &uploads {
            assert_eq!(world.push_one(upload).await, 1);
        }
        for crash in 2..4 {
            let mixed = vec![simple(now(), 77), uploads[2].clone()];
            let mut answers = world.push("acme", mixed).await;
            assert_eq!(answers.remove(1).unwrap().repeats, 1);
            let refused = answers.remove(0).unwrap_err();
            assert_eq!((refused.code, refused.retry_after.is_some()), (Code::Exhausted, true));
            assert!(
                refused.message.contains("the ids of 5 profiles") && refused.message.contains("ingester.ids")
            );
            world.cut().await;
            world = world.crash(crash).await;
        }
        // As long as profiles may be late or early, and a quarter of an hour.
        world.remains.clock.sleep(Duration::from_secs(90 * 60)).await;
        assert_eq!(world.push_one(&simple(now(), 10)).await, 1);
        world.cut().await;
        assert_eq!((world.push_one(&simple(now(), 20)).await, world.total().await), (1, 5 * 11 + 11 + 21));
    });
}

#[test]
fn what_would_make_too_many_series_is_refused_alone() {
    simulate(async {
        let world = World::new().await;
        let mut wide = profile(now(), &[]);
        wide.header.types = (0..200).map(|n| ValueType::new(&format!("kind{n}"), "count")).collect();
        let dictionary = &mut wide.dictionary;
        let stack = dictionary.named_stack(["main"].into_iter());
        for n in 0..101 {
            let strings = &mut dictionary.symbols.strings;
            let label = SampleLabel {
                key: strings.intern("n"),
                text: strings.intern(&n.to_string()),
                number: 0,
                unit: 0,
            };
            let set = dictionary.label_sets.intern(&dictionary.symbols.strings, &[label]);
            wide.samples.push(stack, set, &[1; 200]);
        }
        let mut answers = world.push("acme", vec![upload(&wide), simple(now(), 10)]).await;
        assert_eq!(answers.remove(1).unwrap().new, 1);
        let refused = answers.remove(0).unwrap_err();
        assert!(refused.code == Code::Invalid && refused.message.contains("20200 series"), "{refused:?}");
    });
}

#[test]
fn rows_that_say_nothing_are_left_out() {
    simulate(async {
        let world = World::new().await;
        let mixed = profile(now(), &[("a", 5), ("b", -5), ("c", 0), ("a", 2)]);
        assert_eq!(world.push_one(&upload(&mixed)).await, 1);
        let rows = world.rows("acme").await;
        assert_eq!(rows.iter().map(|row| (row.3.as_str(), row.4)).collect::<Vec<_>>(), [("a", 7)]);
        let nothing = upload(&profile(now(), &[("b", -5), ("c", 0)]));
        let stored = world.push("acme", vec![nothing]).await.remove(0).unwrap();
        assert_eq!((stored.new, stored.repeats), (0, 0));
        world.cut().await;
        assert_eq!(world.rows("acme").await, rows);
    });
}

#[test]
fn spans_stay_with_their_rows() {
    simulate(async {
        let mut world = World::new().await;
        let mut spans = profile(now(), &[("main", 1)]);
        labelled(&mut spans, "main", &[("span_id", "00000000000000ff")], 2);
        labelled(&mut spans, "main", &[("span_id", "00000000000000aa"), ("region", "north")], 4);
        world.push_one(&upload(&spans)).await;
        for crash in 0..2 {
            let listing = world.remains.catalog.listing(&tenant("acme"), 0, i64::MAX).await.unwrap();
            let views = world.ingester.views(listing.shards[0].id, 0, &tenant("acme")).unwrap();
            let mut seen = Vec::new();
            for view in &views {
                let picked: Vec<u32> = (0..view.profiles().unwrap().len() as u32).collect();
                view.each_row(&picked, &mut |_, row| seen.push((row.span, row.value))).unwrap();
            }
            seen.sort_unstable();
            assert_eq!(seen, [(0, 1), (0xaa, 4), (0xff, 2)]);
            world = world.crash(crash).await;
        }
    });
}

/// E4: a service's shard follows from the number of slots.
#[test]
fn a_folder_keeps_the_number_of_slots_that_it_was_begun_with() {
    simulate(async {
        let mut world = World::new().await;
        assert_eq!(world.push_one(&simple(now(), 10)).await, 1);
        for slots in [3, 7, 1] {
            world.remains.slots = slots;
            world = world.crash(1).await;
            assert_eq!((world.ingester.slots().count(), world.total().await), (1, 11));
        }
        world.cut().await;
        assert_eq!((world.blocks().await, world.total().await), (1, 11));
    });
}

#[test]
fn tenants_see_their_own() {
    simulate(async {
        let mut world = World::new().await;
        let equal = simple(now(), 10);
        for name in ["acme", "umbrella"] {
            assert_eq!(world.push(name, vec![equal.clone()]).await.remove(0).unwrap().new, 1);
        }
        world.push("umbrella", vec![simple(now(), 30)]).await.remove(0).unwrap();
        for crash in 0..3 {
            let total = |rows: Vec<Row>| rows.iter().map(|row| row.4).sum::<i64>();
            assert_eq!(total(world.rows("acme").await), 11);
            assert_eq!(total(world.rows("umbrella").await), 42);
            assert_eq!(total(world.rows("nobody").await), 0);
            if crash == 1 {
                world.cut().await;
            }
            world = world.crash(crash).await;
        }
    });
}
