//! One node: all roles, assembled.
//!
//! ```text
//!  folder ─► Log ─► groups: catalogue, shards ─► Metastore, Ingester ─► Distributor, Querier ─► Listener
//! ```
//!
//! Everything that depends on the machine comes in through [`System`], so that the same assembly runs in a simulation.

mod error;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{Catalog, Wound};
use athanor_chassis::net::LocalNet;
use athanor_chassis::tasks::{SpawnError, Task};
use athanor_chassis::{ByteSize, Clock, Code, Compute, Disk, Net, Overrides, Random, Status, Tasks, process};
use athanor_cluster::gossip::{Transport, UdpTransport};
use athanor_cluster::greeting::Me;
use athanor_cluster::members::MemberState;
use athanor_consensus::log::{self, Log, Pump};
use athanor_consensus::replicated::Founding;
use athanor_consensus::{Replicated, replicated};
use athanor_distributor::Distributor;
use athanor_ingester::Ingester;
use athanor_metastore::{Facts, Metastore};
use athanor_querier::Querier;
use athanor_storage::{Store, StoreDeps};
use axum::Router;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::blocks::Blocks;
use crate::cache::Parts;
use crate::config::Config;
use crate::folder::{self, Parts as Folders};
use crate::health::Health;
use crate::http::{Door, Lasting, Listener, Services, router, starting};
use crate::identity;
use crate::janitor::{Done, Janitor};
use crate::metrics::{Routes, Scrape};
use crate::others::{Entry, Others};
use crate::readiness::Readiness;
use crate::repair::Repair;
use crate::shards::{Local, Places};
use crate::sources::Everywhere;

pub use error::StartError;

/// Tasks that a node may have at once: connections, mostly.
const TASKS: usize = 100_000;
/// Connections that a node takes at the most; others of its tasks are few.
const MOST_CONNECTIONS: usize = TASKS / 2;
/// Jobs that may wait for a compute thread.
const JOBS: usize = 4096;
/// Memory for blocks while they are read.
const READING: ByteSize = ByteSize::mib(1024);
/// Memory for parts of blocks that were read.
const PARTS: ByteSize = ByteSize::mib(256);
/// How long the last cut may take when a node stops.
const LAST_CUT: Duration = Duration::from_secs(60);
/// How long tasks may take to end after that.
const TASKS_END: Duration = Duration::from_secs(5);

/// What a node takes from its machine.
#[derive(Clone)]
pub struct System {
    /// Time.
    pub clock: Clock,
    /// Chance.
    pub random: Random,
    /// Threads.
    pub compute: Compute,
    /// The folder of the log.
    pub log: Arc<dyn Disk>,
    /// The folder of snapshots and of the node's name.
    pub state: Arc<dyn Disk>,
    /// Who commits what waits in the log.
    pub pump: Pump,
    /// The bucket.
    pub store: Store,
    /// The way to others, and theirs to this node.
    pub net: Arc<dyn Net>,
    /// What carries gossip.
    pub gossip: Arc<dyn Transport>,
}

/// The roles of a node, without a port: what a simulation runs.
pub struct Roles {
    /// Takes profiles.
    pub distributor: Distributor,
    /// Answers queries.
    pub querier: Querier,
    /// Keeps recent profiles.
    pub ingester: Arc<Ingester>,
    /// Knows the blocks.
    pub catalog: Arc<dyn Catalog>,
    /// What is told of all of them.
    pub scrape: Arc<Scrape>,
    readiness: Arc<Readiness>,
    health: Arc<Health>,
    others: Option<Others>,
    log: Log,
    tasks: Tasks,
    clock: Clock,
}

/// A node that serves.
pub struct Node {
    roles: Roles,
    address: SocketAddr,
    /// Ends the listener, and whatever would not end by itself.
    stop: CancellationToken,
    served: Task<()>,
    haste: Arc<Notify>,
}

impl System {
    /// This machine.
    pub fn local(config: &Config) -> Result<Self, StartError> {
        let (clock, random) = (Clock::system(), Random::system());
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let Folders { log, state } = folder::open(&config.data)?;
        let store =
            Store::open(&config.bucket(), StoreDeps { clock: clock.clone(), random: random.split() })?;
        Ok(Self {
            compute: Compute::threads(threads, JOBS)?,
            log: Arc::new(log),
            state: Arc::new(state),
            pump: Pump::Thread,
            store,
            net: Arc::new(LocalNet::new(clock.clone())),
            gossip: Arc::new(UdpTransport),
            clock,
            random,
        })
    }
}

impl Roles {
    /// Opens the log and everything on it.
    pub async fn open(config: &Config, system: System, overrides: Overrides) -> Result<Self, StartError> {
        let tasks = Tasks::new(system.clock.clone(), TASKS);
        Self::open_on(config, system, overrides, (tasks, None), Arc::default()).await
    }

    async fn open_on(
        config: &Config,
        system: System,
        overrides: Overrides,
        (tasks, entry): (Tasks, Option<Entry>),
        readiness: Arc<Readiness>,
    ) -> Result<Self, StartError> {
        let (identity, others) = begin(config, &system, &tasks, entry).await?;
        let System { clock, random, compute, log: log_disk, state, pump, store, .. } = system;
        let (split, settings) = (random.split(), config.log());
        let opening = move || Log::open(log_disk, &split, identity, &settings, pump);
        let (log, recovery) = compute.run(opening).await?.inspect(|(_, recovery)| report(recovery))?;
        let consensus = replicated::Deps {
            log: log.clone(),
            disk: state,
            compute: compute.clone(),
            random: random.split(),
            network: others.as_ref().map(Others::network),
            node: identity.node,
            timing: replicated::Timing::default(),
        };
        let facts = open_facts(&consensus).await?;
        if let Some(others) = &others {
            offer(others, &facts);
        }
        let catalog: Arc<dyn Catalog> = Arc::new(Metastore::new(facts.clone(), clock.clone()));
        mark(&recovery, &*catalog).await;
        let deps = athanor_ingester::Deps {
            catalog: Arc::clone(&catalog),
            store: store.clone(),
            consensus,
            overrides: overrides.clone(),
            clock: clock.clone(),
            random: random.split(),
            compute: compute.clone(),
            tasks: tasks.clone(),
            cluster: identity.cluster,
            alone: true,
        };
        let ingester = Arc::new(Ingester::open(&config.ingester, deps).await?);
        let around = Around { overrides, clock: clock.clone(), random, compute: compute.clone() };
        let distributor = around.distributor(config, &ingester)?;
        let parts = Arc::new(Parts::new(PARTS));
        let querier = around.querier(config, &catalog, &ingester, &store, &parts);
        let upkeep =
            Upkeep { catalog: Arc::clone(&catalog), store, clock: clock.clone(), cluster: identity.cluster };
        let done = upkeep.spawn(config, &tasks)?;
        let scrape = Arc::new(Scrape {
            routes: Routes::default(),
            started: clock.wall(),
            clock: clock.clone(),
            readiness: Arc::clone(&readiness),
            distributor: distributor.clone(),
            ingester: Arc::clone(&ingester),
            log: log.clone(),
            damage: recovery.damage,
            facts: facts.clone(),
            parts,
            janitor: done,
            compute,
            tasks: tasks.clone(),
        });
        let health = Health { ingester: Arc::clone(&ingester), groups: vec![facts], log: log.clone() };
        let health = Arc::new(health);
        let checked = Arc::clone(&health);
        readiness.serve(Box::new(move || checked.check()));
        if let Some(others) = &others {
            others.tell(MemberState::Ready).await;
        }
        let roles = Self {
            distributor,
            querier,
            ingester,
            catalog,
            scrape,
            readiness,
            health,
            others,
            log,
            tasks,
            clock,
        };
        Ok(roles)
    }

    /// The other nodes; none where there are no settings of a cluster.
    pub fn others(&self) -> Option<&Others> {
        self.others.as_ref()
    }

    /// Cuts what is in memory, and ends everything. An error says that something acknowledged may be nowhere.
    pub async fn close(self) -> Result<(), Status> {
        self.close_unless(&Notify::new()).await
    }

    /// As [`close`](Self::close), and leaves the cut where there is haste: what was acknowledged is in the log.
    async fn close_unless(self, haste: &Notify) -> Result<(), Status> {
        let cut = tokio::select! {
            biased;
            cut = self.ingester.cut(&self.clock, LAST_CUT) => cut.map(drop),
            failed = self.health.failing(&self.clock) => Err(failed),
            () = haste.notified() => Err(Status::new(Code::Cancelled, "told to hurry")),
        };
        let kept = match cut {
            Ok(()) => Ok(()),
            Err(why) => self.health.kept(&why),
        };
        if let Some(others) = self.others {
            others.leave().await;
        }
        let ended = self.tasks.shutdown(TASKS_END).await;
        if !ended.unfinished.is_empty() {
            tracing::warn!(tasks = ?ended.unfinished, "tasks did not end");
        }
        self.ingester.shutdown().await;
        for group in &self.health.groups {
            group.shutdown().await;
        }
        self.log.close();
        kept
    }
}

/// What the roles at the door take from their process.
struct Around {
    overrides: Overrides,
    clock: Clock,
    random: Random,
    compute: Compute,
}

impl Around {
    fn distributor(&self, config: &Config, ingester: &Arc<Ingester>) -> Result<Distributor, StartError> {
        let Self { overrides, clock, random, compute } = self;
        let places = Places::of(ingester, overrides.clone(), clock.clone(), compute.clone())?;
        let deps = athanor_distributor::Deps {
            overrides: overrides.clone(),
            clock: clock.clone(),
            random: random.split(),
            compute: compute.clone(),
            shards: Arc::new(Local { ingester: Arc::clone(ingester), places }),
        };
        Ok(Distributor::new(config.distributor.clone(), deps))
    }

    fn querier(
        &self,
        config: &Config,
        catalog: &Arc<dyn Catalog>,
        ingester: &Arc<Ingester>,
        store: &Store,
        parts: &Arc<Parts>,
    ) -> Querier {
        let Self { overrides, clock, compute, .. } = self;
        let sources = Everywhere {
            catalog: Arc::clone(catalog),
            ingester: Arc::clone(ingester),
            blocks: Arc::new(Blocks::new(store.clone(), Arc::clone(parts), compute.clone(), READING)),
        };
        let deps = athanor_querier::Deps {
            sources: Arc::new(sources),
            overrides: overrides.clone(),
            clock: clock.clone(),
            compute: compute.clone(),
        };
        Querier::new(config.querier.clone(), deps)
    }
}

/// Finds out who this node is, and takes part in its cluster where it has one.
async fn begin(
    config: &Config,
    system: &System,
    tasks: &Tasks,
    entry: Option<Entry>,
) -> Result<(log::Identity, Option<Others>), StartError> {
    let identity = identity::load(&*system.state, &system.random, config.cluster.cluster()?)?;
    let Some(entry) = entry else { return Ok((identity, None)) };
    // What is counted is durable before anybody hears of it.
    let boot = identity::next_boot(&*system.state)?;
    let me = Me { cluster: identity.cluster, node: identity.node, boot };
    let others = entry.begin(me, &config.cluster, system, tasks).await?;
    Ok((identity, Some(others)))
}

/// Lets other nodes call the catalogue's group.
fn offer(others: &Others, facts: &Replicated<Facts>) {
    let facts = facts.clone();
    let answer = move |request| {
        let facts = facts.clone();
        Box::pin(async move { facts.answer(request).await }) as _
    };
    others.groups().add(athanor_metastore::GROUP, Box::new(answer));
}

/// What runs beside the roles.
struct Upkeep {
    catalog: Arc<dyn Catalog>,
    store: Store,
    clock: Clock,
    cluster: u128,
}

impl Upkeep {
    fn spawn(self, config: &Config, tasks: &Tasks) -> Result<Arc<Done>, SpawnError> {
        let Self { catalog, store, clock, cluster } = self;
        let retention = config.retention;
        let repair = Repair {
            catalog: Arc::clone(&catalog),
            store: store.clone(),
            clock: clock.clone(),
            cluster,
            retention,
        };
        let token = tasks.token();
        tasks.spawn("repair", async move { repair.run(token).await })?;
        let done = Arc::new(Done::default());
        let janitor = Janitor { catalog, store, clock, retention, done: Arc::clone(&done) };
        let token = tasks.token();
        tasks.spawn("janitor", async move { janitor.run(token).await })?;
        Ok(done)
    }
}

/// Opens the catalogue's group.
async fn open_facts(deps: &replicated::Deps) -> Result<Replicated<Facts>, replicated::OpenError> {
    let founding = Founding::alone(deps.node);
    let facts = Replicated::open(deps, athanor_metastore::GROUP, founding, Facts::default()).await?;
    if let Some(upto) = facts.forgot() {
        tracing::error!(
            upto,
            "the catalogue's snapshot was damaged: its blocks are looked for in the bucket"
        );
    }
    Ok(facts)
}

/// Says what was found in the log at the start (E7).
fn report(recovery: &log::Recovery) {
    for damage in &recovery.damage {
        tracing::error!(
            ?damage,
            "the log is damaged: what was acknowledged there is lost, answers over it are partial"
        );
    }
}

/// Remembers the damages of which nobody knows what they held, so that answers tell of them after a restart, too.
async fn mark(recovery: &log::Recovery, catalog: &dyn Catalog) {
    for damage in recovery.damage.iter().filter(|damage| damage.hurt == log::Hurt::All) {
        let wound = Wound::Unknown { from: damage.at.start, to: damage.at.end };
        if let Err(error) = catalog.mark(wound).await {
            tracing::error!(%error, ?damage, "the damage is not remembered: answers do not tell of it");
        }
    }
}

impl Node {
    /// Takes the port, starts everything and serves.
    pub async fn start(
        config: &Config,
        system: System,
        overrides: Overrides,
        settings: Arc<str>,
    ) -> Result<Self, StartError> {
        let listener = Listener::bind(&*system.net, &config.listen).await?;
        Self::start_on(listener, config, system, overrides, settings).await
    }

    /// As [`start`](Self::start), on a port that was taken before: then nothing is begun where it cannot be had.
    pub async fn start_on(
        listener: Listener,
        config: &Config,
        system: System,
        overrides: Overrides,
        settings: Arc<str>,
    ) -> Result<Self, StartError> {
        let address = listener.address();
        let (clock, compute) = (system.clock.clone(), system.compute.clone());
        let (tasks, readiness) = (Tasks::new(clock.clone(), TASKS), Arc::<Readiness>::default());
        let (stop, haste) = (CancellationToken::new(), Arc::new(Notify::new()));
        let entry = match config.cluster.joining()? {
            Some(joining) => Some(Entry::take(joining, &*system.net).await?),
            None => None,
        };
        let (begin, begun) = watch::channel(None);
        let served = {
            let first = starting(Arc::clone(&readiness), clock.clone(), begun.clone());
            let room = Arc::new(Semaphore::new(connections(config)));
            let lasting =
                Lasting { tasks: tasks.clone(), clock: clock.clone(), patience: config.drain, room };
            let (stop, haste) = (stop.clone(), Arc::clone(&haste));
            tasks.spawn("listener", serve(listener, first, begun, lasting, stop, haste))?
        };
        let opened = Roles::open_on(config, system, overrides, (tasks, entry), Arc::clone(&readiness)).await;
        let roles = opened.inspect_err(|_| stop.cancel())?;
        let door = Door::new(config.multitenancy_enabled, config.request_bytes, clock.clone(), compute);
        let services = Services {
            distributor: roles.distributor.clone(),
            querier: roles.querier.clone(),
            scrape: Arc::clone(&roles.scrape),
            readiness,
            stop: stop.clone(),
            settings,
            company: roles.others().map(|others| others.company().clone()),
        };
        let opened =
            crate::admin::serve(&config.data, Arc::clone(&roles.ingester), clock.clone(), &roles.tasks);
        if let Err(error) = opened {
            tracing::warn!(%error, "there is no administration socket");
        }
        begin.send_replace(Some(router(door, services)));
        tracing::info!(%address, data = %config.data.display(), "serving");
        Ok(Self { roles, address, stop, served, haste })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its roles.
    pub fn roles(&self) -> &Roles {
        &self.roles
    }

    /// Waking those who wait for it ends the step that [`Node::stop_after`] is at.
    pub fn haste(&self) -> Arc<Notify> {
        Arc::clone(&self.haste)
    }

    /// Stops politely: says that it is not ready, lets requests finish, cuts, and ends.
    pub async fn stop(self) -> Result<(), Status> {
        self.stop_after(Duration::ZERO).await
    }

    /// As [`Node::stop`], and answers for a while after having said that it is not ready.
    pub async fn stop_after(self, delay: Duration) -> Result<(), Status> {
        self.roles.readiness.stop();
        if let Some(others) = &self.roles.others {
            others.tell(MemberState::Draining).await;
        }
        if !delay.is_zero() {
            tracing::info!(
                ?delay,
                "stopping: not ready any more, and still answering; another signal ends this"
            );
            tokio::select! {
                () = self.roles.clock.sleep(delay) => {}
                () = self.haste.notified() => {}
            }
        }
        tracing::info!("stopping");
        self.stop.cancel();
        if let Err(error) = self.served.await {
            tracing::warn!(%error, "the listener did not end well");
        }
        let kept = self.roles.close_unless(&self.haste).await;
        tracing::info!("stopped");
        kept
    }
}

/// How many connections there may be: a quarter of the files that may be open is for the log and the bucket.
fn connections(config: &Config) -> usize {
    let files = process::raise_max_files();
    let most = usize::try_from(files - files / 4).unwrap_or(usize::MAX).clamp(1, MOST_CONNECTIONS);
    match config.max_connections {
        Some(wanted) if wanted as usize > most => {
            tracing::warn!(
                max_connections = wanted,
                files,
                most,
                "fewer connections than wanted: `ulimit -n` allows more files"
            );
            most
        }
        Some(wanted) => wanted as usize,
        None => most,
    }
}

/// Serves `first` until there is a router, and that one then.
async fn serve(
    mut listener: Listener,
    first: Router,
    mut begun: watch::Receiver<Option<Router>>,
    lasting: Lasting,
    stop: CancellationToken,
    haste: Arc<Notify>,
) {
    let begins = CancellationToken::new();
    let router = {
        let early = listener.accept(&first, &lasting, &begins);
        let begin = async {
            let router = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                begun = begun.wait_for(Option::is_some) => begun.ok().and_then(|router| router.clone()),
            };
            begins.cancel();
            router
        };
        let (early, router) = tokio::join!(early, begin);
        // Who came early is answered to the end, and comes again for more.
        let ended = lasting.tasks.spawn("early connections", early.shutdown());
        if let Err(error) = ended {
            tracing::warn!(%error, "early connections were cut off");
        }
        router
    };
    if let Some(router) = router {
        listener.serve(router, &lasting, stop, &haste).await;
    }
}
