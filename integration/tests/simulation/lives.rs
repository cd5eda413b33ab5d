//! The lives of one node: started, used, failed and ended as a seed has it, again and again on the same disks.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::net::LocalNet;
use athanor_chassis::{ByteSize, Clock, ComputePool, LimitOverrides, Random, TenantLimits, Timestamp};
use athanor_cluster::gossip::UdpTransport;
use athanor_consensus::log::CommitMode;
use athanor_server::{NodeDeps, NodeRoles, ServerConfig, StartError};
use athanor_storage::test_bucket::TestBucket;
use athanor_storage::{StorageConfig as StoreConfig, Store, StoreDeps};
use futures::future::LocalBoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};

use super::bucket::{Bucket, Objects};
use super::chain;
use super::client::{Breach, Clients, QUESTIONS};
use super::disk::Platter;
use super::model::{Asked, KINDS, Model, NEWER, OLDER, SKEW, TENANTS};
use super::processes::{self, Processes};
use super::world::{Death, Fate, Story, Weather, World};

/// When the first machine is switched on.
const BEGIN: Timestamp = Timestamp::from_seconds(1_900_000_000);
/// Where blocks are not kept for ever, they are kept so long: longer than any id.
const RETENTION: Duration = Duration::from_secs(45 * 60);
/// How far ahead a clock is that was far ahead at boot.
const FAR_AHEAD: Duration = Duration::from_secs(40 * 24 * 3600);
/// How long a process runs by such a clock: longer than it takes until old blocks are looked for, and less than `SKEW`.
const FAR_AHEAD_SPAN: Duration = Duration::from_secs(100);
/// Nothing takes a node longer than that.
const FOREVER: Duration = Duration::from_secs(20 * 60);

/// What one process leaves to the next.
struct Remains {
    world: World,
    random: Random,
    model: RefCell<Model>,
    /// Some seeds have processes that count.
    processes: Option<RefCell<Processes>>,
    log: MemoryDisk,
    state: MemoryDisk,
    objects: Arc<Objects>,
    config: ServerConfig,
    /// The true time.
    now: Timestamp,
    /// Its disks rot while it is switched off.
    rots: bool,
}

/// What one life is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// Anything may happen.
    Trouble,
    /// Everything is repeated until it is stored, and compared; then it ends so.
    Settle(Option<Death>),
    /// The clock is far ahead at boot, and nothing may come of it.
    FarAhead,
    /// Long after, nothing is kept.
    Expire,
}

/// One process and its machine.
struct Process<'a> {
    remains: &'a Remains,
    boot: u64,
    clock: Clock,
    log: Arc<Platter>,
    state: Arc<Platter>,
    /// It stopped politely, so that its log attests what it holds.
    rests: Cell<bool>,
}

/// What one seed does.
pub fn run(seed: u64, told: Option<File>) -> Result<Story, Breach> {
    let random = Random::from_seed(seed);
    let retention = if random.next_below(3) == 0 { RETENTION } else { Duration::ZERO };
    // By a chance of their own: others are as they were without them.
    let counts = seed.is_multiple_of(3) && retention.is_zero();
    let processes = counts.then(|| RefCell::new(Processes::new(Random::from_seed(!seed))));
    let mut remains = Remains {
        world: World::new(random.split(), told),
        model: RefCell::new(Model::new(retention)),
        processes,
        log: MemoryDisk::new(),
        state: MemoryDisk::new(),
        objects: Arc::default(),
        config: config(&random, retention),
        now: BEGIN,
        rots: random.next_below(3) == 0,
        random,
    };
    let mut plans = vec![Plan::Trouble; 1 + remains.random.next_below(5) as usize];
    plans.push(Plan::Settle(None));
    if !retention.is_zero() {
        plans.push(Plan::FarAhead);
    }
    plans.extend([Plan::Settle(Some(Death::Power)), Plan::Settle(Some(Death::Kill))]);
    if !retention.is_zero() {
        plans.push(Plan::Expire);
    }
    for (life, plan) in plans.into_iter().enumerate() {
        let told = |breach| format!("life {life}, {plan:?}: {breach}");
        while !live(&mut remains, plan).map_err(told)? {}
    }
    Ok(remains.world.story())
}

fn config(random: &Random, retention: Duration) -> ServerConfig {
    let mut config = ServerConfig { retention_period: retention, ..ServerConfig::default() };
    config.ingester.single_node_shards = 1 + random.next_below(2) as u32;
    config.ingester.dedup.max_memory_ids = [1, 4, 1 << 16][random.next_below(3) as usize];
    // Longer than any seed.
    config.ingester.delta.idle_timeout = Duration::from_secs(1 << 20);
    config.ingester.flush.max_head_age = Duration::from_secs(5 + random.next_below(60));
    config.wal.segment_bytes = ByteSize::kib(64 << random.next_below(2));
    config.wal.preallocated_segments = random.next_below(2) as u32;
    config.wal.min_free_bytes = ByteSize::kib(128);
    config.limits =
        TenantLimits { reject_older_than: OLDER, reject_newer_than: NEWER, ..TenantLimits::default() };
    config
}

/// One life. False if its plan was not carried out: then another one must.
fn live(remains: &mut Remains, plan: Plan) -> Result<bool, Breach> {
    let random = remains.random.split();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let lived = runtime.block_on(async {
        let process = Process::begin(remains, plan, &random);
        let lived = process.live(plan, &random).await;
        let death = remains.world.death();
        let disks = [&process.log, &process.state].map(|disk| {
            disk.leave(None);
            disk.survives(death, random.next_u64())
        });
        if process.rests.get() && remains.rots && random.next_below(2) == 0 {
            for (disk, bits) in disks.iter().zip([random.next_below(2), random.next_below(3)]) {
                Platter::rot(disk, bits, &remains.world, &random);
            }
            remains.model.borrow_mut().damage();
            remains.processes.iter().for_each(|processes| processes.borrow_mut().damage());
        }
        lived.map(|done| (done, disks, process.clock.monotonic()))
    });
    // Whatever still runs ends here, as a ghost.
    drop(runtime);
    let (done, [log, state], span) = lived?;
    (remains.log, remains.state) = (log, state);
    // Switched off for a moment, a minute, or until nobody knows any more what was sent before.
    let off = match random.next_below(8) {
        0 => Duration::from_secs(random.next_below(30 * 60)),
        1 => Duration::from_secs(random.next_below(60)),
        _ => Duration::from_millis(random.next_below(2_000)),
    };
    remains.now = remains.now.plus(span + off);
    Ok(done)
}

impl<'a> Process<'a> {
    fn begin(remains: &'a Remains, plan: Plan, random: &Random) -> Self {
        let skew = random.next_below(2 * SKEW.as_nanos() as u64) as i64 - SKEW.as_nanos() as i64;
        let clock = match plan {
            Plan::Trouble if random.next_below(4) == 0 => Clock::starting_at(remains.now).with_skew(skew),
            Plan::Trouble | Plan::Settle(_) => Clock::starting_at(remains.now),
            Plan::FarAhead => Clock::starting_at(remains.now.plus(FAR_AHEAD)),
            Plan::Expire => Clock::starting_at(remains.now.plus(RETENTION + 2 * SKEW)),
        };
        let fated = plan == Plan::Trouble && random.next_below(4) > 0;
        // Some in a start, most in use.
        let calls = random.next_below([20, 60, 150, 300][random.next_below(4) as usize]);
        let death = if random.next_below(3) == 0 { Death::Kill } else { Death::Power };
        let fate = fated.then_some(Fate { calls, disk: random.next_below(3) > 0, death });
        remains.processes.iter().for_each(|processes| processes.borrow_mut().begin());
        let world = remains.world.clone();
        world.set_weather(Weather::Fair);
        let boot = world.boot(clock.clone(), fate);
        let platter = |name, disk: &MemoryDisk| {
            Arc::new(Platter { world: world.clone(), boot, name, disk: disk.clone() })
        };
        let (log, state) = (platter("log", &remains.log), platter("state", &remains.state));
        Self { remains, boot, clock, log, state, rests: Cell::new(false) }
    }

    async fn open(&self, random: &Random) -> Result<NodeRoles, StartError> {
        let Self { remains, boot, clock, .. } = self;
        let bucket = Bucket {
            world: remains.world.clone(),
            boot: *boot,
            clock: clock.clone(),
            objects: Arc::clone(&remains.objects),
        };
        let mut storage = StoreConfig::default();
        storage.retry.max_attempts = 3;
        storage.retry.attempt_timeout = Duration::from_secs(5);
        storage.retry.total_timeout = Duration::from_secs(20);
        let deps = StoreDeps { clock: clock.clone(), random: random.split() };
        let system = NodeDeps {
            clock: clock.clone(),
            random: random.split(),
            compute: ComputePool::inline(),
            log: Arc::clone(&self.log) as _,
            state: Arc::clone(&self.state) as _,
            // What is found in blocks is no promise: a machine that begins anew finds it again.
            cache: None,
            scratch: Arc::new(athanor_compactor::MemoryScratch),
            activity: None,
            pump: CommitMode::Inline,
            store: Store::with_object_store(Arc::new(TestBucket(bucket)), &storage, deps),
            net: Arc::new(LocalNet::new(clock.clone())),
            gossip: Arc::new(UdpTransport),
        };
        NodeRoles::open(&remains.config, system, LimitOverrides::new(remains.config.limits.clone())).await
    }

    /// Until the plan is carried out or the machine dies.
    async fn live(&self, plan: Plan, random: &Random) -> Result<bool, Breach> {
        let world = &self.remains.world;
        let opened = tokio::select! {
            biased;
            () = world.ended(self.boot) => {
                world.count("died while starting");
                return Ok(plan == Plan::Trouble);
            }
            opened = self.clock.timeout(FOREVER, self.open(random)) => opened,
        };
        let opened = opened.map_err(|_| "the node does not start".to_owned())?;
        let roles = match opened {
            Ok(roles) => roles,
            Err(_) if world.death().is_some() => return Ok(plan == Plan::Trouble),
            Err(error) => return Err(format!("the node does not start: {error:?}")),
        };
        world.tell(format_args!("started"));
        let clients = Clients {
            world,
            clock: self.clock.clone(),
            random: random.split(),
            model: &self.remains.model,
            roles: &roles,
            boot: self.boot,
            company: false,
            strict: false,
            harmed: false,
            loss: Rc::default(),
            apart: Duration::ZERO,
            disk_faults: Cell::new(0),
            storms: Cell::new(0),
        };
        let done = tokio::select! {
            biased;
            () = world.ended(self.boot) => Ok(plan == Plan::Trouble),
            done = self.carry_out(plan, &clients, random) => done.map(|()| true),
        }?;
        drop(clients);
        self.end(plan, roles, random).await?;
        Ok(done)
    }

    async fn carry_out(&self, plan: Plan, clients: &Clients<'_>, random: &Random) -> Result<(), Breach> {
        match plan {
            Plan::Trouble => self.trouble(clients, random).await,
            Plan::Settle(_) => self.settle(clients).await,
            Plan::FarAhead => self.run_far_ahead(clients).await,
            Plan::Expire => self.expire(clients).await,
        }
    }

    /// Ends what still lives.
    async fn end(&self, plan: Plan, roles: NodeRoles, random: &Random) -> Result<(), Breach> {
        let world = &self.remains.world;
        if world.death().is_some() {
            return Ok(());
        }
        let death = match plan {
            Plan::Trouble => [None, Some(Death::Power), Some(Death::Kill)][random.next_below(3) as usize],
            Plan::Settle(death) => death,
            Plan::FarAhead | Plan::Expire => None,
        };
        world.tell(format_args!("it ends by {death:?}"));
        match death {
            Some(death) => {
                world.count(if death == Death::Power { "power lost in between" } else { "killed in between" })
            }
            None => {
                world.count("stopped politely");
                if self.remains.rots && random.next_below(2) == 0 {
                    // Nothing is cut, so that the log holds what was sent.
                    world.set_weather(Weather::Down);
                }
                tokio::select! {
                    biased;
                    () = world.ended(self.boot) => return Ok(()),
                    closed = self.clock.timeout(FOREVER, roles.close()) => {
                        let closed = closed.map_err(|_| "the node does not stop".to_owned())?;
                        match closed {
                            Ok(()) => self.rests.set(true),
                            Err(_) => world.count("stopped with a log that had failed"),
                        }
                    }
                }
            }
        }
        world.die(death.unwrap_or(Death::Kill));
        Ok(())
    }

    /// Anything happens, several things at once.
    async fn trouble(&self, clients: &Clients<'_>, random: &Random) -> Result<(), Breach> {
        let mut under_way: FuturesUnordered<LocalBoxFuture<'_, Result<(), Breach>>> = FuturesUnordered::new();
        let width = 1 + random.next_below(6) as usize;
        for _ in 0..10 + random.next_below(50) {
            match random.next_below(40) {
                0..=15 => {
                    let request = clients.model.borrow_mut().draw(random, self.clock.wall());
                    let impatient = random.next_below(10) == 0;
                    let patience =
                        if impatient { Duration::from_millis(random.next_below(8)) } else { FOREVER };
                    under_way.push(Box::pin(clients.push(request, patience)));
                }
                16..=23 => {
                    let (question, asked) = clients.draw();
                    under_way.push(Box::pin(clients.ask(question, asked)));
                }
                24..=26 => {
                    under_way.push(Box::pin(clients.cut(Duration::from_secs(1 + random.next_below(80)))))
                }
                27..=31 => {
                    let wait = Duration::from_micros(random.next_below(20_000));
                    under_way.push(Box::pin(async move { self.pause(wait).await }));
                }
                32 => {
                    let wait = Duration::from_secs(random.next_below(100));
                    under_way.push(Box::pin(async move { self.pause(wait).await }));
                }
                33..=35 => clients.weather(match random.next_below(6) {
                    0 => Weather::Down,
                    1 => Weather::Mute,
                    2 | 3 => Weather::Rough,
                    _ => Weather::Fair,
                }),
                36 if random.next_below(3) == 0 => {
                    under_way.push(Box::pin(self.fail_a_disk(clients, random)))
                }
                // Everything under way comes to its end.
                37 => {
                    while let Some(done) = under_way.next().await {
                        done?
                    }
                }
                _ => {}
            }
            if let Some(processes) = &self.remains.processes {
                // One of several clients is impatient.
                let patience = Duration::from_millis(random.next_below(40)).max(Duration::from_millis(1));
                let patience = if patience < Duration::from_millis(8) { patience } else { FOREVER };
                under_way.push(Box::pin(processes::send(processes, clients, patience)));
                if random.next_below(8) == 0 {
                    under_way.push(Box::pin(processes::compare(processes, clients)));
                }
            }
            while under_way.len() >= width {
                under_way.next().await.transpose()?;
            }
        }
        if random.next_below(2) == 0 {
            while let Some(done) = under_way.next().await {
                done?;
            }
        }
        Ok(())
    }

    async fn pause(&self, wait: Duration) -> Result<(), Breach> {
        self.clock.sleep(wait).await;
        Ok(())
    }

    /// A disk is full for a while, or does not sync.
    async fn fail_a_disk(&self, clients: &Clients<'_>, random: &Random) -> Result<(), Breach> {
        clients.disk_faults.set(clients.disk_faults.get() + 1);
        let disk = if random.next_below(3) == 0 { &self.state } else { &self.log };
        if random.next_below(4) == 0 {
            return self.fill_a_disk(disk, clients, random).await;
        }
        let full = random.next_below(3) > 0;
        self.remains.world.tell(format_args!("the {} disk fails, full: {full}", disk.name));
        if !full {
            disk.disk.fail_syncs(1 + random.next_below(2));
            return Ok(());
        }
        self.remains.world.count("full disks");
        self.remains.processes.iter().for_each(|processes| processes.borrow_mut().fill());
        disk.leave(Some(random.next_below(300 << 10)));
        self.pause(Duration::from_micros(random.next_below(50_000))).await?;
        disk.leave(None);
        Ok(())
    }

    /// A disk is full for minutes while clients go on: they are refused in time and told to come again, and when there
    /// is room, they are let in.
    async fn fill_a_disk(
        &self,
        disk: &Platter,
        clients: &Clients<'_>,
        random: &Random,
    ) -> Result<(), Breach> {
        self.remains.world.tell(format_args!("the {} disk is full for long", disk.name));
        self.remains.world.count("disks full for minutes");
        self.remains.processes.iter().for_each(|processes| processes.borrow_mut().fill());
        let faults = clients.disk_faults.get();
        disk.leave(Some(0));
        for _ in 0..2 + random.next_below(6) {
            self.pause(Duration::from_secs(random.next_below(60))).await?;
            let request = clients.model.borrow_mut().draw(random, self.clock.wall());
            clients.push_patiently(request).await?;
        }
        disk.leave(None);
        self.pause(Duration::from_secs(60)).await?;
        let request = clients.model.borrow_mut().draw(random, self.clock.wall());
        let waiting = || clients.model.borrow().pending.iter().filter(|other| **other == request).count();
        let before = waiting();
        clients.push_patiently(request.clone()).await?;
        let refused = waiting() > before;
        let lives = self.remains.world.death().is_none()
            && clients.roles.ingester.as_ref().unwrap().failed().is_none();
        if refused && lives && clients.disk_faults.get() == faults {
            return Err(format!("{request:?} is refused though there is room again"));
        }
        Ok(())
    }

    /// Everything is sent until it is stored, and compared: before a cut, and after it.
    async fn settle(&self, clients: &Clients<'_>) -> Result<(), Breach> {
        self.compare(clients).await?;
        let pending = std::mem::take(&mut clients.model.borrow_mut().pending);
        for request in pending {
            if !clients.model.borrow().is_forgotten(&request, self.clock.wall()) {
                clients.push_patiently(request).await?;
            }
        }
        for _ in 0..3 {
            let request = clients.model.borrow_mut().draw(&clients.random, self.clock.wall());
            clients.push_patiently(request).await?;
        }
        if let Some(processes) = &self.remains.processes {
            for _ in 0..6 {
                processes::send(processes, clients, FOREVER).await?;
            }
        }
        self.compare(clients).await?;
        clients.cut(FOREVER).await?;
        self.compare(clients).await?;
        self.chain(clients).await
    }

    async fn compare(&self, clients: &Clients<'_>) -> Result<(), Breach> {
        for tenant in 0..TENANTS.len() {
            for kind in 0..KINDS.len() {
                let asked = Asked { tenant, service: None, kind, range: None };
                clients.ask(QUESTIONS[clients.random.next_below(2) as usize], asked).await?;
            }
            for _ in 0..3 {
                let (question, asked) = clients.draw();
                clients.ask(question, Asked { tenant, ..asked }).await?;
            }
        }
        if let Some(processes) = &self.remains.processes {
            processes::compare(processes, clients).await?;
        }
        self.remains.world.count("comparisons of everything");
        Ok(())
    }

    /// The blocks of each shard are a chain. Where all is kept, it goes from the beginning up to the watermark.
    async fn chain(&self, clients: &Clients<'_>) -> Result<(), Breach> {
        let kept = self.remains.config.retention_period.is_zero() && !clients.model.borrow().is_damaged();
        chain::check(&*clients.roles.catalog, &self.remains.world, !kept, |ranges, watermark| {
            let begin = ranges.first().map_or(watermark, |range| range.0);
            let end = ranges.last().map_or(watermark, |range| range.1);
            !kept || (begin, end) == (0, watermark)
        })
        .await
    }

    /// Blocks are cut and looked through by a clock that is far ahead; all of them stay. What is stored is compared in
    /// the lives that follow, whose clocks are right.
    async fn run_far_ahead(&self, clients: &Clients<'_>) -> Result<(), Breach> {
        let retention = self.remains.config.retention_period;
        let expired = async || {
            let ages =
                clients.roles.catalog.block_ages(&athanor_catalog::RetentionPolicy::uniform(retention)).await;
            ages.map(|ages| ages.restorable).map_err(|error| error.to_string())
        };
        let before = expired().await?;
        clients.cut(FOREVER).await?;
        self.pause(FAR_AHEAD_SPAN).await?;
        let after = expired().await?;
        if after > before {
            return Err(format!("a clock that is far ahead expired {} blocks", after - before));
        }
        self.remains.world.count("clocks far ahead at boot");
        Ok(())
    }

    /// All that was stored is older than what is kept, and somebody confirms that so much time has passed.
    async fn expire(&self, clients: &Clients<'_>) -> Result<(), Breach> {
        clients.roles.client().confirm_clock().map_err(|status| status.to_string())?;
        self.pause(Duration::from_secs(130)).await?;
        let left = clients.roles.catalog.blocks().await.map_err(|error| error.to_string())?;
        if !left.is_empty() {
            return Err(format!("{} blocks stay past their retention", left.len()));
        }
        self.remains.world.count("retentions");
        self.compare(clients).await
    }
}
