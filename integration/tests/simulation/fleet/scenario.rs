//! What one seed does to a cluster: anything at once, then peace, and everything compared.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use athanor_catalog::{Command, View};
use athanor_chassis::{ByteSize, Clock, Limits, Random, TenantId, Timestamp};
use athanor_server::{ClusterSettings, Config};
use futures::future::LocalBoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};

use super::machine::{Ground, Harm, Machine, Running};
use super::net::Wires;
use super::post::Post;
use crate::client::{Breach, Clients, QUESTIONS, Question};
use crate::model::{Asked, KINDS, Model, NEWER, OLDER, Request, SKEW, TENANTS};
use crate::world::{Death, Story, Weather, World};

const BEGIN: Timestamp = Timestamp::from_seconds(1_900_000_000);
const ID: &str = "5f0c6e1d9a7b4c3e8f2a1b0c9d8e7f60";
/// When all is well again, all works after so long.
const CALM: Duration = Duration::from_secs(240);
/// Before all is looked at.
const SETTLED: Duration = Duration::from_secs(15);
/// So long a client waits for an answer that must come.
const PATIENT: Duration = Duration::from_secs(30);
/// Between looks at a state.
const LOOK: Duration = Duration::from_millis(200);
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

struct Fleet {
    ground: Rc<Ground>,
    machines: Vec<Machine>,
    model: RefCell<Model>,
    random: Random,
    slots: usize,
    loss: Rc<Cell<bool>>,
    /// Disks of a machine were harmed.
    harmed: Cell<bool>,
    /// How far clocks may be apart.
    apart: Duration,
}

/// What happens to one of them, or between them, is under way.
type UnderWay<'a> = FuturesUnordered<LocalBoxFuture<'a, Result<(), Breach>>>;

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
        let random = Random::seeded(seed);
        let world = World::new(random.split(), told);
        let clock = Clock::starting(BEGIN);
        world.boot(clock.clone(), None);
        let wires = Wires::new(clock.clone(), random.split());
        let post = Post::new(clock.clone(), random.split(), wires.clone());
        let ground = Rc::new(Ground {
            world,
            random: random.split(),
            clock,
            wires,
            post,
            objects: std::sync::Arc::default(),
            is_quiet: Cell::new(false),
        });
        let shape = SHAPES[random.below(SHAPES.len() as u64) as usize];
        let slots = 1 + random.below(3) as usize;
        let base = config(&random, slots, secret);
        let skewed = random.below(3) == 0;
        let machine = |(place, target): (usize, &&str)| {
            let number = place as u8 + 1;
            let mut config = base.clone();
            config.target = target.parse().unwrap();
            let here = |port: u16| format!("10.0.0.{number}:{port}");
            config.cluster.name = Some(format!("n{number}"));
            config.cluster.zone = format!("z{}", place % 3);
            (config.cluster.listen_internal, config.cluster.listen_gossip) =
                (Some(here(9095)), Some(here(7946)));
            Machine::new(&ground, number, config, if skewed { SKEW } else { Duration::ZERO })
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
            apart: if skewed { 2 * SKEW } else { Duration::ZERO },
        }
    }

    async fn carry_out(&self) -> Result<(), Breach> {
        self.until("slots are open at first", |view| self.is_open(view)).await?;
        let rounds = 1 + self.random.below(2);
        for _ in 0..rounds {
            self.trouble().await?;
            self.settle().await?;
        }
        Ok(())
    }

    fn is_open(&self, view: &View) -> bool {
        view.shards.iter().filter(|shard| shard.serves()).count() == self.slots
    }

    async fn sleep(&self, span: Duration) {
        self.ground.clock.sleep(span).await;
    }

    /// Waits for a state of the catalogue, as every machine knows it.
    async fn until(&self, what: &str, wanted: impl Fn(&View) -> bool) -> Result<(), Breach> {
        let is_so = || {
            self.machines.iter().all(|machine| {
                machine.running().is_some_and(|running| {
                    running.roles.ready().is_ok() && wanted(&running.roles.views.now())
                })
            })
        };
        let looking = async {
            while !is_so() {
                self.replace_rotten();
                self.sleep(LOOK).await;
            }
        };
        let waited = self.ground.clock.within(CALM, looking).await;
        waited.map_err(|_| {
            let say = |machine: &Machine| match machine.running() {
                None => format!("{} is off", machine.world.name()),
                Some(running) => {
                    let view = running.roles.views.now();
                    let shards: Vec<_> = view.shards.iter().map(|shard| (shard.id, &shard.phase)).collect();
                    format!("{} {:?} {shards:?}", machine.world.name(), running.roles.ready())
                }
            };
            let seen: Vec<_> = self.machines.iter().map(say).collect();
            format!("not within {CALM:?}: {what}; {}", seen.join("; "))
        })
    }

    fn draw<T>(&self, of: &[T]) -> usize {
        self.random.below(of.len() as u64) as usize
    }

    /// Some machine whose process has that.
    fn door(&self, has: impl Fn(&Running) -> bool) -> Option<(&Machine, Running)> {
        let running = self.machines.iter().filter_map(|machine| Some((machine, machine.running()?)));
        let all: Vec<_> = running.filter(|(_, running)| has(running)).collect();
        if all.is_empty() {
            return None;
        }
        let place = self.draw(&all);
        all.into_iter().nth(place)
    }

    fn clients<'a>(&'a self, machine: &'a Machine, running: &'a Running) -> Clients<'a> {
        Clients {
            world: &machine.world,
            clock: machine.clock(),
            random: self.random.split(),
            model: &self.model,
            roles: &running.roles,
            boot: running.boot,
            company: true,
            strict: false,
            loss: Rc::clone(&self.loss),
            apart: self.apart,
            disk_faults: Cell::new(0),
            storms: Cell::new(0),
        }
    }

    async fn push(&self, request: Request, patience: Duration) -> Result<(), Breach> {
        match self.door(|running| running.roles.distributor.is_some()) {
            None => self.model.borrow_mut().pending.push(request),
            Some((machine, running)) => self.clients(machine, &running).push(request, patience).await?,
        }
        Ok(())
    }

    async fn ask(&self, question: Option<(Question, Asked)>) -> Result<(), Breach> {
        let Some((machine, running)) = self.door(|running| running.roles.querier.is_some()) else {
            return Ok(());
        };
        let clients = self.clients(machine, &running);
        let (question, asked) = question.unwrap_or_else(|| clients.draw());
        clients.ask(question, asked).await
    }

    /// Anything happens, several things at once.
    async fn trouble(&self) -> Result<(), Breach> {
        let random = &self.random;
        let mut under_way: UnderWay<'_> = FuturesUnordered::new();
        let width = 2 + random.below(6) as usize;
        for _ in 0..30 + random.below(60) {
            match random.below(40) {
                0..=15 => {
                    let request = self.model.borrow_mut().draw(random, self.ground.clock.wall());
                    let patience = Duration::from_millis([20, 2_000, 30_000][random.below(3) as usize]);
                    under_way.push(Box::pin(self.push(request, patience)));
                }
                16..=21 => under_way.push(Box::pin(self.ask(None))),
                22..=24 => self.sleep(Duration::from_secs(random.below(8))).await,
                25..=27 => self.sleep(Duration::from_millis(random.below(500))).await,
                _ => self.fail(&mut under_way).await,
            }
            while under_way.len() >= width {
                under_way.next().await.transpose()?;
            }
        }
        while let Some(done) = under_way.next().await {
            done?;
        }
        Ok(())
    }

    /// Something fails.
    async fn fail<'a>(&'a self, under_way: &mut UnderWay<'a>) {
        let random = &self.random;
        let machine = &self.machines[self.draw(&self.machines)];
        match random.below(18) {
            0..=3 => self.crash(machine),
            // Several at once.
            4 => {
                for machine in &self.machines {
                    if random.below(2) == 0 {
                        self.crash(machine);
                    }
                }
            }
            5 | 6 => machine.polite.notify_one(),
            7..=9 => {
                let other = &self.machines[self.draw(&self.machines)];
                self.ground.world.count("cuts between machines");
                self.ground.world.tell(format_args!("cut {} {}", machine.number, other.number));
                self.ground.wires.cut(machine.address(), other.address());
                if random.below(4) > 0 {
                    self.ground.wires.cut(other.address(), machine.address());
                }
            }
            // One is alone.
            10 => {
                self.ground.world.count("machines cut off");
                self.ground.world.tell(format_args!("cut off {}", machine.number));
                for other in &self.machines {
                    self.ground.wires.cut(machine.address(), other.address());
                    self.ground.wires.cut(other.address(), machine.address());
                }
            }
            11 => {
                let other = &self.machines[self.draw(&self.machines)];
                let most = Duration::from_millis(50 + random.below(1_000));
                self.ground.wires.slow(machine.address(), other.address(), most);
            }
            12 | 13 => {
                self.ground.world.tell(format_args!("healed"));
                self.ground.wires.heal();
            }
            14 => {
                let weather = match random.below(6) {
                    0 => Weather::Down,
                    1 => Weather::Mute,
                    2 | 3 => Weather::Rough,
                    _ => Weather::Fair,
                };
                self.ground.world.tell(format_args!("the weather is {weather:?}"));
                self.ground.world.set_weather(weather);
            }
            15 => under_way.push(Box::pin(self.fail_a_disk(machine))),
            16 => under_way.push(Box::pin(self.seal_a_shard())),
            _ => self.harm_disks(),
        }
    }

    fn crash(&self, machine: &Machine) {
        let Some(_) = machine.running() else { return };
        let death = if self.random.below(2) == 0 { Death::Kill } else { Death::Power };
        let off = match self.random.below(6) {
            0 => Duration::from_secs(self.random.below(40)),
            1 | 2 => Duration::from_secs(self.random.below(5)),
            _ => Duration::from_millis(self.random.below(300)),
        };
        self.ground.world.count(if death == Death::Kill {
            "killed in between"
        } else {
            "power lost in between"
        });
        machine.crash(death, off);
    }

    /// The disks of one machine are harmed, in the whole of a seed: others have all that it had.
    fn harm_disks(&self) {
        let last = &self.machines[self.machines.len() - 1];
        let harmed = self.machines.iter().find(|machine| machine.has_shards_only()).unwrap_or(last);
        if harmed.has_shards_only() && harmed.running().is_some() && !self.harmed.replace(true) {
            harmed.harm(if self.random.below(2) == 0 { Harm::Gone } else { Harm::Rotten });
        }
    }

    /// Somebody has a shard give its slot to another one.
    async fn seal_a_shard(&self) -> Result<(), Breach> {
        let Some((machine, running)) = self.door(|_| true) else { return Ok(()) };
        let serving: Vec<u32> = {
            let view = running.roles.views.now();
            view.shards.iter().filter(|shard| shard.serves()).map(|shard| shard.id).collect()
        };
        if !serving.is_empty() {
            let shard = serving[self.draw(&serving)];
            let told = running.roles.catalog.change(Command::Stop { shard }).await;
            self.ground.world.count("shards told to seal");
            machine.world.tell(format_args!("shard {shard} is told to seal: {told:?}"));
        }
        Ok(())
    }

    /// A disk is full for a while, or does not sync.
    async fn fail_a_disk(&self, machine: &Machine) -> Result<(), Breach> {
        let Some(running) = machine.running() else { return Ok(()) };
        machine.disk_faults.set(machine.disk_faults.get() + 1);
        if self.random.below(2) == 0 {
            self.ground.world.count("disks that did not sync");
            machine.world.tell(format_args!("syncs fail"));
            running.log.disk.fail_syncs(1 + self.random.below(2));
            return Ok(());
        }
        self.ground.world.count("full disks");
        machine.world.tell(format_args!("its disk is full"));
        running.log.leave(Some(self.random.below(100 << 10)));
        self.sleep(Duration::from_millis(self.random.below(20_000))).await;
        running.log.leave(None);
        Ok(())
    }

    /// Nothing fails any more; all that was sent is sent until it is stored, and compared: before a cut, and after it.
    async fn settle(&self) -> Result<(), Breach> {
        let Ground { world, wires, is_quiet, .. } = &*self.ground;
        world.tell(format_args!("peace"));
        is_quiet.set(true);
        wires.heal();
        world.set_weather(Weather::Fair);
        // Fates that were drawn are fulfilled, and whose log has failed is started anew.
        for machine in &self.machines {
            machine.world.spare();
            if machine.disk_faults.replace(0) > 0 {
                machine.crash(Death::Kill, Duration::from_millis(100));
            }
        }
        // What a machine finds on its disks it has found by then.
        self.sleep(SETTLED).await;
        self.until("slots are open again", |view| self.is_open(view)).await?;
        self.store_all().await?;
        self.compare().await?;
        self.cut().await?;
        self.compare().await?;
        self.chain().await?;
        if self.random.below(3) == 0 {
            self.restart_all().await?;
            self.compare().await?;
        }
        is_quiet.set(false);
        Ok(())
    }

    /// A node whose log is damaged says what to do: its disks are given up, and it comes back as another node.
    fn replace_rotten(&self) {
        for machine in self.machines.iter().filter(|machine| machine.has_shards_only() && self.harmed.get()) {
            let ready = machine.running().map(|running| running.roles.ready());
            if let Some(Err(status)) = ready
                && status.message.contains("give the node a new id")
            {
                machine.harm(Harm::Gone);
                self.ground.world.count("damaged nodes replaced");
            }
        }
    }

    async fn store_all(&self) -> Result<(), Breach> {
        let until = self.ground.clock.monotonic() + CALM;
        for _ in 0..3 {
            let request = self.model.borrow_mut().draw(&self.random, self.ground.clock.wall());
            self.model.borrow_mut().pending.push(request);
        }
        loop {
            let pending = std::mem::take(&mut self.model.borrow_mut().pending);
            if pending.is_empty() {
                return Ok(());
            }
            for request in pending {
                if !self.model.borrow().is_forgotten(&request, self.ground.clock.wall()) {
                    self.push(request, CALM).await?;
                }
            }
            if self.ground.clock.monotonic() > until {
                return Err(format!("not stored within {CALM:?}: {:?}", self.model.borrow().pending));
            }
            self.sleep(LOOK).await;
        }
    }

    /// Every querier is asked until its answer is whole, and that is held against the model.
    async fn compare(&self) -> Result<(), Breach> {
        for machine in &self.machines {
            let Some(running) = machine.running().filter(|running| running.roles.querier.is_some()) else {
                continue;
            };
            let mut clients = self.clients(machine, &running);
            // A first answer in this peace may be told to try again.
            self.until_whole(&clients).await?;
            clients.company = false;
            for tenant in 0..TENANTS.len() {
                for kind in 0..KINDS.len() {
                    let asked = Asked { tenant, service: None, kind, range: None };
                    let question = QUESTIONS[clients.random.below(2) as usize];
                    clients.ask(question, asked).await.map_err(|breach| format!("in peace: {breach}"))?;
                }
                let (question, asked) = clients.draw();
                clients.ask(question, Asked { tenant, ..asked }).await?;
            }
            self.ground.world.count("comparisons of everything");
        }
        Ok(())
    }

    /// One machine after the other is restarted politely: no push fails meanwhile, no question, and no answer lacks
    /// anything.
    async fn restart_all(&self) -> Result<(), Breach> {
        self.ground.world.tell(format_args!("all are restarted, one by one"));
        let restarts = async {
            for machine in &self.machines {
                let before = machine.running().map(|running| running.boot);
                machine.polite.notify_one();
                let is_back = || machine.running().is_some_and(|running| Some(running.boot) != before);
                while !is_back() {
                    self.sleep(LOOK).await;
                }
                self.until("a machine that was restarted serves", |view| self.is_open(view)).await?;
                self.ground.world.count("restarts under load");
            }
            Ok(())
        };
        let load = async {
            loop {
                self.use_all().await?;
                self.sleep(Duration::from_millis(self.random.below(500))).await;
            }
        };
        tokio::select! {
            biased;
            restarted = restarts => restarted,
            failed = load => failed,
        }
    }

    /// A push and a question that must succeed, each at a machine that says that it is ready.
    async fn use_all(&self) -> Result<(), Breach> {
        let is_ready = |running: &Running| running.roles.ready().is_ok();
        if let Some((machine, running)) =
            self.door(|running| is_ready(running) && running.roles.distributor.is_some())
        {
            let request = self.model.borrow_mut().draw(&self.random, self.ground.clock.wall());
            let clients = Clients { strict: true, ..self.clients(machine, &running) };
            clients.push(request, PATIENT).await.map_err(|breach| format!("at a restart: {breach}"))?;
        }
        if let Some((machine, running)) =
            self.door(|running| is_ready(running) && running.roles.querier.is_some())
        {
            let clients = Clients { strict: true, ..self.clients(machine, &running) };
            let (question, asked) = clients.draw();
            clients.ask(question, asked).await.map_err(|breach| format!("at a restart: {breach}"))?;
        }
        Ok(())
    }

    async fn until_whole(&self, clients: &Clients<'_>) -> Result<(), Breach> {
        let until = self.ground.clock.monotonic() + CALM;
        loop {
            match clients.lacks().await {
                None => return Ok(()),
                Some(what) if self.ground.clock.monotonic() > until => {
                    return Err(format!("no whole answer within {CALM:?}: {what}"));
                }
                Some(_) => self.sleep(LOOK).await,
            }
        }
    }

    async fn cut(&self) -> Result<(), Breach> {
        for machine in &self.machines {
            let Some(running) = machine.running() else { continue };
            let Some(ingester) = &running.roles.ingester else { continue };
            let cut = ingester.cut(&machine.clock(), CALM).await;
            machine.world.tell(format_args!("cut: {cut:?}"));
            cut.map_err(|status| format!("{}: a cut failed in peace: {status}", machine.world.name()))?;
        }
        Ok(())
    }

    /// The blocks of each shard are a chain up to its watermark.
    async fn chain(&self) -> Result<(), Breach> {
        let Some((_, running)) = self.door(|running| running.roles.scrape.facts.is_some()) else {
            return Err("nobody votes".to_owned());
        };
        let catalog = &running.roles.catalog;
        // First these: more may come meanwhile.
        let mut blocks = catalog.blocks().await.map_err(|error| error.to_string())?;
        let listing =
            catalog.listing(&TenantId::anonymous(), 0, 0).await.map_err(|error| error.to_string())?;
        blocks.sort_by_key(|block| (block.shard, block.from));
        blocks.iter().for_each(|_| self.ground.world.count("blocks"));
        for shard in &listing.shards {
            let of_shard: Vec<(u64, u64)> = blocks
                .iter()
                .filter(|block| block.shard == shard.id)
                .map(|block| (block.from, block.to))
                .collect();
            let whole = of_shard.windows(2).all(|pair| pair[0].1 == pair[1].0)
                && of_shard.last().is_none_or(|block| block.1 <= shard.watermark);
            if !whole {
                return Err(format!("blocks of {shard:?} are no chain: {of_shard:?}"));
            }
        }
        Ok(())
    }
}

fn config(random: &Random, slots: usize, secret: &Path) -> Config {
    let mut config = Config { data: "/nonexistent".into(), ..Config::default() };
    config.ingester.recent_ids = [4, 1 << 16][random.below(2) as usize];
    config.ingester.cut.max_age = Duration::from_secs(5 + random.below(60));
    config.log.segment = ByteSize::kib(256);
    config.log.spares = 0;
    config.log.reserve = ByteSize::kib(128);
    config.limits = Limits { reject_older_than: OLDER, reject_newer_than: NEWER, ..Limits::default() };
    config.cluster = ClusterSettings {
        id: Some(ID.to_owned()),
        secret_file: Some(secret.to_owned()),
        seeds: (1..=3).map(|number| format!("10.0.0.{number}:7946")).collect(),
        slots: Some(slots as u32),
        bytes_per_slot: if random.below(3) == 0 { ByteSize::bytes(500) } else { ByteSize::mib(8) },
        dead_after: Duration::from_secs([10, 20, 300][random.below(3) as usize]),
        ..ClusterSettings::default()
    };
    config
}
