//! What one seed does to a cluster: anything at once, then peace, and everything compared.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use athanor_catalog::RoutingView;
use athanor_chassis::{ByteSize, Clock, Random, TenantLimits, Timestamp};
use athanor_server::{ClusterConfig, ServerConfig};
use futures::stream::{FuturesUnordered, StreamExt};

use super::growth::GROWING;
use super::listed::Listed;
use super::machine::{FAR_AHEAD, Ground, Machine, Running};
use super::net::Wires;
use super::post::Post;
use crate::client::{Breach, Clients, Question};
use crate::model::{Asked, Model, NEWER, OLDER, Request};
use crate::world::{Story, World};

const BEGIN: Timestamp = Timestamp::from_seconds(1_900_000_000);
/// From this seed on somebody merges blocks.
pub const MERGING: u64 = 1 << 40;
pub const ID: &str = "5f0c6e1d9a7b4c3e8f2a1b0c9d8e7f60";
/// When all is well again, all works after so long.
pub const CALM: Duration = Duration::from_secs(240);
/// Between looks at a state.
pub const LOOK: Duration = Duration::from_millis(200);
/// Of the catalogue.
const VOTERS: usize = 3;
/// How wrong clocks may be, either way, as one of these says it.
const SKEWED_MINUTES: [u64; 5] = [0, 0, 0, 2, 10];
/// Roles of the machines, as one of these has them.
const SHAPES: [&[&str]; 3] = [
    &["all", "all", "all"],
    &["all", "all", "all", "ingester", "ingester"],
    &[
        "metastore,ingester",
        "metastore,ingester",
        "metastore,ingester",
        "ingester",
        "distributor,querier",
        "distributor,querier",
    ],
];

/// In one of so many seeds clocks are far ahead at boot.
const FAR_SEEDS: u64 = 8;

/// All machines of a seed, and what clients know of them.
pub struct Fleet {
    pub ground: Rc<Ground>,
    pub machines: Vec<Machine>,
    pub model: RefCell<Model>,
    pub random: Random,
    slots: usize,
    loss: Rc<Cell<bool>>,
    /// Disks of a machine were harmed.
    pub harmed: Cell<bool>,
    /// How far clocks may be apart.
    pub apart: Duration,
    /// What was told of the catalogue.
    pub listed: RefCell<Listed>,
    /// Where blocks are merged: what chooses them.
    pub merges: Option<Random>,
    /// Services outgrow their slots before anything else happens.
    grows: bool,
}

/// What one seed does.
pub fn run(seed: u64, told: Option<File>, secret: &Path) -> Result<Story, Breach> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let fleet = Fleet::new(seed, told, secret);
        let living = async {
            let mut lives: FuturesUnordered<_> = fleet.machines.iter().map(Machine::live).collect();
            lives.next().await.unwrap_or_default()
        };
        tokio::select! {
            biased;
            breach = living => Err(breach),
            carried = fleet.carry_out() => carried,
        }?;
        Ok(fleet.ground.world.story())
    })
}

impl Fleet {
    fn new(seed: u64, told: Option<File>, secret: &Path) -> Self {
        let random = Random::from_seed(seed);
        let world = World::new(random.split(), told);
        let clock = Clock::starting_at(BEGIN);
        world.boot(clock.clone(), None);
        let wires = Wires::new(clock.clone(), random.split());
        let post = Post::new(clock.clone(), random.split(), wires.clone());
        let grows = seed.is_multiple_of(GROWING);
        // A shard that took a profile of a far time lets no table begin before that.
        let goes_far = !grows && seed % FAR_SEEDS == 1;
        let ground = Rc::new(Ground {
            world,
            random: random.split(),
            clock,
            skipped: Cell::default(),
            wires,
            post,
            objects: std::sync::Arc::default(),
            is_quiet: Cell::new(false),
            goes_far,
            has_far: Cell::new(false),
        });
        let shape = SHAPES[random.next_below(SHAPES.len() as u64) as usize];
        let slots = (1 + random.next_below(3) as usize).max(if grows { 2 } else { 1 });
        let mut base = config(&random, slots, secret);
        if grows {
            base.cluster.target_slot_bytes_per_second = ByteSize::bytes(4);
        }
        let minutes = SKEWED_MINUTES[random.next_below(SKEWED_MINUTES.len() as u64) as usize];
        let skew = Duration::from_secs(60 * minutes);
        let machine = |(place, target): (usize, &&str)| {
            let number = place as u8 + 1;
            let mut config = base.clone();
            config.target = target.parse().unwrap();
            let here = |port: u16| format!("10.0.0.{number}:{port}");
            config.cluster.node_name = Some(format!("n{number}"));
            config.cluster.availability_zone = format!("z{}", place % 3);
            (config.cluster.internal_listen_address, config.cluster.gossip_listen_address) =
                (Some(here(9095)), Some(here(7946)));
            Machine::new(&ground, number, config, skew)
        };
        let machines = shape.iter().enumerate().map(machine).collect();
        Self {
            ground,
            machines,
            model: RefCell::new(Model::new(Duration::ZERO)),
            random,
            slots,
            loss: Rc::default(),
            harmed: Cell::new(false),
            apart: if goes_far { 2 * FAR_AHEAD } else { 2 * skew },
            listed: RefCell::default(),
            merges: (seed >= MERGING).then(|| Random::from_seed(seed).split()),
            grows,
        }
    }

    async fn carry_out(&self) -> Result<(), Breach> {
        self.until("slots are open at first", |view| self.is_open(view)).await?;
        let mut rounds = 1 + self.random.next_below(2);
        if self.grows {
            self.outgrow().await?;
            rounds = 1;
        }
        for _ in 0..rounds {
            self.trouble().await?;
            self.settle().await?;
        }
        Ok(())
    }

    pub fn is_open(&self, view: &RoutingView) -> bool {
        let gone = self.machines.iter().any(|machine| machine.is_new.get() && machine.voted.get().is_some());
        let serving = view.shards.iter().filter(|shard| shard.serves()).count();
        serving == self.slots && view.voters.len() == VOTERS && !gone
    }

    pub async fn sleep(&self, span: Duration) {
        self.ground.clock.sleep(span).await;
    }

    /// The true time goes on, and nobody lives through it: all clocks jump.
    pub fn skip(&self, span: Duration) {
        let nanos = span.as_nanos() as i64;
        self.ground.world.tell(format_args!("{span:?} are skipped"));
        self.machines.iter().for_each(|machine| machine.skip(nanos));
        let skipped = self.ground.skipped.get() + nanos;
        self.ground.skipped.set(skipped);
        self.ground.clock.jump_wall_time(skipped);
    }

    /// Waits for a state of the catalogue, as every machine knows it.
    pub async fn until(&self, what: &str, wanted: impl Fn(&RoutingView) -> bool) -> Result<(), Breach> {
        let is_so = || {
            self.machines.iter().all(|machine| {
                machine.running().is_some_and(|running| {
                    running.roles.ready().is_ok() && wanted(&running.roles.views.current())
                })
            })
        };
        let looking = async {
            while !is_so() {
                self.replace_rotten().await;
                self.sleep(LOOK).await;
            }
        };
        let waited = self.ground.clock.timeout(CALM, looking).await;
        waited.map_err(|_| {
            let say = |machine: &Machine| match machine.running() {
                None => format!("{} is off", machine.world.name()),
                Some(running) => {
                    let view = running.roles.views.current();
                    let shards: Vec<_> = view.shards.iter().map(|shard| (shard.id, &shard.phase)).collect();
                    format!("{} {:?} {shards:?}", machine.world.name(), running.roles.ready())
                }
            };
            let seen: Vec<_> = self.machines.iter().map(say).collect();
            format!("not within {CALM:?}: {what}; {}", seen.join("; "))
        })
    }

    pub fn draw<T>(&self, of: &[T]) -> usize {
        self.random.next_below(of.len() as u64) as usize
    }

    /// Some machine whose process has that.
    pub fn door(&self, has: impl Fn(&Running) -> bool) -> Option<(&Machine, Running)> {
        let awake = self.machines.iter().filter(|machine| machine.world.paused().is_zero());
        let running = awake.filter_map(|machine| Some((machine, machine.running()?)));
        let all: Vec<_> = running.filter(|(_, running)| has(running)).collect();
        if all.is_empty() {
            return None;
        }
        let place = self.draw(&all);
        all.into_iter().nth(place)
    }

    pub fn clients<'a>(&'a self, machine: &'a Machine, running: &'a Running) -> Clients<'a> {
        Clients {
            world: &machine.world,
            clock: machine.clock(),
            random: self.random.split(),
            model: &self.model,
            roles: &running.roles,
            boot: running.boot,
            company: true,
            strict: false,
            harmed: self.harmed.get(),
            loss: Rc::clone(&self.loss),
            apart: self.apart,
            disk_faults: Cell::new(0),
            storms: Cell::new(0),
        }
    }

    pub async fn push(&self, request: Request, patience: Duration) -> Result<(), Breach> {
        let door = self.door(|running| running.roles.distributor.is_some());
        self.push_at(door.map(|(machine, _)| machine), request, patience).await
    }

    /// As [`push`](Self::push), at this machine.
    pub async fn push_at(
        &self,
        door: Option<&Machine>,
        request: Request,
        patience: Duration,
    ) -> Result<(), Breach> {
        match door.and_then(|machine| Some((machine, machine.running()?))) {
            None => self.model.borrow_mut().pending.push(request),
            Some((machine, running)) => self.clients(machine, &running).push(request, patience).await?,
        }
        Ok(())
    }

    pub async fn ask(&self, question: Option<(Question, Asked)>) -> Result<(), Breach> {
        let Some((machine, running)) = self.door(|running| running.roles.querier.is_some()) else {
            return Ok(());
        };
        let clients = self.clients(machine, &running);
        let (question, asked) = question.unwrap_or_else(|| clients.draw());
        clients.ask(question, asked).await
    }
}

fn config(random: &Random, slots: usize, secret: &Path) -> ServerConfig {
    let mut config = ServerConfig { data_dir: "/nonexistent".into(), ..ServerConfig::default() };
    config.ingester.dedup.max_memory_ids = [4, 1 << 16][random.next_below(2) as usize];
    config.ingester.flush.max_head_age = Duration::from_secs(5 + random.next_below(60));
    config.wal.segment_bytes = ByteSize::kib(256);
    config.wal.preallocated_segments = 0;
    config.wal.min_free_bytes = ByteSize::kib(128);
    config.limits =
        TenantLimits { reject_older_than: OLDER, reject_newer_than: NEWER, ..TenantLimits::default() };
    config.cluster = ClusterConfig {
        id: Some(ID.to_owned()),
        secret_file: Some(secret.to_owned()),
        seed_nodes: (1..=3).map(|number| format!("10.0.0.{number}:7946")).collect(),
        initial_slots: Some(slots as u32),
        target_slot_bytes_per_second: if random.next_below(3) == 0 {
            ByteSize::bytes(500)
        } else {
            ByteSize::mib(8)
        },
        node_failure_timeout: Duration::from_secs([10, 20, 300][random.next_below(3) as usize]),
        ..ClusterConfig::default()
    };
    config
}
