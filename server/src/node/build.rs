//! How each role is made of what its process has.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use athanor_catalog::{Catalog, Wound};
use athanor_chassis::disk::DiskError;
use athanor_chassis::{Clock, Overrides, Tasks};
use athanor_cluster::greeting::Me;
use athanor_cluster::members::RoleName;
use athanor_cluster::peers;
use athanor_consensus::log::{self, Log};
use athanor_consensus::replicated::Founding;
use athanor_consensus::{Replicated, replicated};
use athanor_distributor::Distributor;
use athanor_ingester::Ingester;
use athanor_metastore::{Client, Deciding, Facts, Metastore, Reach, Service, ServiceDeps, Views};
use athanor_proto::athanor::internal::v1::catalogue_server::CatalogueServer;
use athanor_proto::athanor::internal::v1::doors_server::DoorsServer;
use athanor_proto::athanor::internal::v1::gateways_server::GatewaysServer;
use athanor_proto::athanor::internal::v1::queriers_server::QueriersServer;
use athanor_proto::athanor::internal::v1::shards_server::ShardsServer;
use athanor_querier::Querier;
use athanor_store_gateway::Gateway;
use athanor_symbolizer::Debuginfo;
use tokio_util::sync::CancellationToken;

use super::{StartError, System};
use crate::bucket::BucketCheck;
use crate::config::Config;
use crate::controller::Controller;
use crate::gateway::Offering;
use crate::hedges::Hedges;
use crate::identity::{self, IdentityError};
use crate::janitor::{Done, Janitor};
use crate::kept::Kept;
use crate::kinship::Kinship;
use crate::late::Late;
use crate::leaders::Leaders;
use crate::loads::Told;
use crate::metrics::{Routes, Scrape};
use crate::others::{Entry, Others};
use crate::overview::Overview;
use crate::polls::Polled;
use crate::readiness::Readiness;
use crate::repair::Repair;
use crate::room::Room;
use crate::ways::{Afar, Ways};

/// How often an ingester asks which tenants have blocks.
const TENANTS_REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// After so long shards that did not open are tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// What other nodes may call when it has begun.
#[derive(Clone, Default)]
pub struct Offered {
    shards: Late<ShardsServer<Kept>>,
    catalogue: Late<CatalogueServer<Service>>,
    pub(super) doors: Late<DoorsServer<Told>>,
    pub(super) gateways: Late<GatewaysServer<Offering>>,
    pub(super) queriers: Late<QueriersServer<Polled>>,
}

/// What all roles of a process share.
pub struct Site<'a> {
    pub config: &'a Config,
    pub system: System,
    pub overrides: Overrides,
    pub tasks: Tasks,
    pub identity: log::Identity,
    pub others: Option<&'a Others>,
}

/// What groups stand on.
pub struct Ground {
    pub log: Log,
    recovery: log::Recovery,
    pub consensus: replicated::Deps,
}

/// This node's vote in the catalogue.
pub struct Voter {
    pub facts: Replicated<Facts>,
    metastore: Metastore,
}

/// How shards are reached.
pub struct Reaching {
    pub leaders: Arc<Leaders>,
    pub ways: Ways,
    pub hedges: Arc<Hedges>,
}

/// Finds out who this node is, and takes part in its cluster where it has one.
pub async fn begin(
    config: &Config,
    system: &System,
    tasks: &Tasks,
    entry: Option<Entry>,
    offered: &Offered,
) -> Result<(log::Identity, Option<Others>), StartError> {
    let identity = identity::load(&*system.state, &system.random, config.cluster.cluster()?)?;
    let Some(entry) = entry else { return Ok((identity, None)) };
    // What is counted is durable before anybody hears of it.
    let boot = match identity::next_boot(&*system.state) {
        // The disk is full, but for files that the log has laid out.
        Err(IdentityError::Disk(DiskError::Full { .. }))
            if log::release_spare(&*system.log).unwrap_or_default() =>
        {
            identity::next_boot(&*system.state)?
        }
        boot => boot?,
    };
    let me = Me { cluster: identity.cluster, node: identity.node, boot };
    let Offered { shards, catalogue, doors, gateways, queriers } = offered.clone();
    let offer = |services: athanor_cluster::internal::Services| {
        services.with(shards).with(catalogue).with(doors).with(gateways).with(queriers)
    };
    let taking_part = (&config.cluster, config.target.roles());
    let others = entry.begin(me, taking_part, system, tasks, offer).await?;
    Ok((identity, Some(others)))
}

impl Site<'_> {
    pub(super) fn has(&self, role: RoleName) -> bool {
        self.config.target.has(role)
    }

    /// Begins to check the bucket, if it is a vendor's.
    pub fn check_bucket(&self, readiness: &Arc<Readiness>) -> Result<(), StartError> {
        let System { store, state, compute, clock, .. } = &self.system;
        if !store.is_remote() {
            return Ok(());
        }
        let check = BucketCheck {
            store: store.clone(),
            state: Arc::clone(state),
            compute: compute.clone(),
            readiness: Arc::clone(readiness),
            clock: clock.clone(),
        };
        check.begin();
        self.tasks.spawn("check of the bucket", check.run(self.tasks.token()))?;
        Ok(())
    }

    /// Opens the log, for those roles that keep one.
    pub async fn ground(&self) -> Result<Option<Ground>, StartError> {
        if !self.config.target.has_log() {
            return Ok(None);
        }
        let System { random, compute, log: disk, state, pump, .. } = &self.system;
        let (split, settings, identity) = (random.split(), self.config.log(), self.identity);
        let (disk, pump) = (Arc::clone(disk), *pump);
        let opening = move || Log::open(disk, &split, identity, &settings, pump);
        let (log, recovery) = compute.run(opening).await?.inspect(|(_, recovery)| report(recovery))?;
        let consensus = replicated::Deps {
            log: log.clone(),
            disk: Arc::clone(state),
            compute: compute.clone(),
            random: random.split(),
            network: self.others.map(Others::network),
            node: identity.node,
            timing: replicated::Timing::default(),
        };
        Ok(Some(Ground { log, recovery, consensus }))
    }

    fn deciding(&self, others: &Others) -> Deciding {
        Deciding {
            store: self.system.store.clone(),
            members: others.company().members.clone(),
            node: self.identity.node,
            cluster: self.identity.cluster,
            wanted: self.config.cluster.voters,
            clock: self.system.clock.clone(),
        }
    }

    /// Opens the catalogue's group.
    pub async fn voter(&self, ground: Option<&Ground>) -> Result<Option<Voter>, StartError> {
        let Some(Ground { consensus, .. }) = ground.filter(|_| self.has(RoleName::Metastore)) else {
            return Ok(None);
        };
        let founding = match self.others {
            None => Founding::alone(consensus.node),
            Some(others) => athanor_metastore::founding(&consensus.log, &self.deciding(others)).await?,
        };
        let group = athanor_metastore::GROUP;
        let facts = Replicated::open(consensus, group, founding, Facts::default()).await?;
        if let Some(upto) = facts.forgot() {
            tracing::error!(
                upto,
                "the catalogue's snapshot was damaged: its blocks are looked for in the bucket"
            );
        }
        if let Some(others) = self.others {
            let answering = facts.clone();
            let answer = move |request| {
                let facts = answering.clone();
                Box::pin(async move { facts.answer(request).await }) as _
            };
            others.groups().add(group, Box::new(answer));
        }
        let metastore = Metastore::new(facts.clone(), self.system.clock.clone());
        Ok(Some(Voter { facts, metastore }))
    }

    /// The way to the catalogue, and what it wants every node to know.
    pub fn catalogue(&self, voter: Option<&Voter>, offered: &Offered) -> Result<(Client, Views), StartError> {
        let System { clock, random, compute, .. } = &self.system;
        let local = voter.map(|voter| voter.metastore.clone());
        let others = self.others.map(voters_of);
        if let (Some(metastore), Some(others)) = (local.clone(), others.clone()) {
            let service = Service::new(ServiceDeps {
                metastore,
                peers: others.peers,
                introductions: others.introductions,
                clock: clock.clone(),
                compute: compute.clone(),
                stop: self.tasks.token(),
            });
            offered.catalogue.begin(service.offered());
        }
        let (clock, random, compute) = (clock.clone(), random.split(), compute.clone());
        let client = Client::new(Reach { local, others, clock, random, compute });
        let views = Views::follow(&client, &self.tasks)?;
        Ok((client, views))
    }

    /// Opens the shards of this node, now and whenever it gets others.
    pub async fn ingester(
        &self,
        (ground, voter): (Option<&Ground>, Option<&Voter>),
        catalog: &Arc<dyn Catalog>,
        views: &Views,
        offered: &Offered,
    ) -> Result<Option<Arc<Ingester>>, StartError> {
        let Some(Ground { consensus, recovery, .. }) = ground.filter(|_| self.has(RoleName::Ingester)) else {
            return Ok(None);
        };
        if self.others.is_none() {
            mark(recovery, &**catalog).await;
        }
        let System { clock, random, compute, store, .. } = &self.system;
        let kinship = Arc::new(Kinship {
            me: self.identity.node,
            here: OnceLock::new(),
            afar: self.others.map(|others| others.afar().clone()),
            clock: clock.clone(),
        });
        let deps = athanor_ingester::Deps {
            kin: self.others.map(|_| Arc::clone(&kinship) as _),
            catalog: Arc::clone(catalog),
            store: store.clone(),
            consensus: consensus.clone(),
            overrides: self.overrides.clone(),
            clock: clock.clone(),
            random: random.split(),
            compute: compute.clone(),
            tasks: self.tasks.clone(),
            cluster: self.identity.cluster,
            alone: self.others.is_none(),
        };
        let ingester = Arc::new(Ingester::open(&self.config.ingester, deps).await?);
        if let (None, Some(voter)) = (self.others, voter) {
            // INV-04: while a damaged catalogue learns of slots again, one after the other, views have a first table
            // without those that are left. What it places is looked for elsewhere later, so that its repeat would count
            // again.
            views.see(voter.metastore.view());
        }
        kinship.begin(&ingester);
        if self.others.is_none()
            && let Err(error) = ingester.refresh_tenants().await
        {
            tracing::warn!(%error, "failed to read the names of tenants, will retry");
        }
        let refreshing = refresh_tenants(Arc::clone(&ingester), clock.clone(), self.tasks.token());
        self.tasks.spawn("names of tenants", refreshing)?;
        if let Some(others) = self.others {
            others.groups().keep(Arc::clone(&ingester));
            let introductions = Arc::clone(&others.afar().introductions);
            let kept = Kept::new(Arc::clone(&ingester), introductions, compute.clone());
            let server = ShardsServer::new(kept).max_decoding_message_size(peers::APPEND);
            offered.shards.begin(server);
            let following = follow(Arc::clone(&ingester), views.clone(), clock.clone(), self.tasks.token());
            self.tasks.spawn("shards follow the catalogue", following)?;
        }
        Ok(Some(ingester))
    }

    /// Says which acknowledged entries damage of the log has taken. In a cluster other members have them.
    pub fn report_losses(&self, ingester: Option<&Arc<Ingester>>, voter: Option<&Voter>) {
        if self.others.is_some() {
            return;
        }
        for (shard, entries) in ingester.map(|ingester| ingester.lost_to_damage()).unwrap_or_default() {
            tracing::error!(
                shard,
                entries,
                "acknowledged profiles are lost to damage of the log, answers are partial"
            );
        }
        let lost = voter.map(|voter| voter.facts.lost()).unwrap_or_default();
        if !lost.is_empty() {
            tracing::error!(?lost, "entries of the catalogue are lost to damage of the log");
        }
    }

    /// How shards are reached, here and elsewhere.
    pub fn reaching(&self, ingester: Option<&Arc<Ingester>>) -> Reaching {
        let members = self.others.map(|others| others.company().members.clone());
        let leaders = Arc::new(Leaders::new(self.identity.node, ingester.cloned(), members));
        let ways = Ways {
            me: self.identity.node,
            ingester: ingester.cloned(),
            loads: Arc::default(),
            afar: self.others.map(|others| others.afar().clone()),
            clock: self.system.clock.clone(),
        };
        let hedges = Arc::new(Hedges::new(self.config.querier.hedged_percent));
        Reaching { leaders, ways, hedges }
    }

    /// What this node sees of its cluster.
    pub fn overview(&self, client: Client, views: &Views, Reaching { ways, .. }: &Reaching) -> Overview {
        let company = self.others.map(|others| others.company().clone());
        Overview { client, views: views.clone(), ways: ways.clone(), company }
    }

    /// What runs beside the catalogue, where it is led.
    pub fn upkeep(
        &self,
        voter: Option<&Voter>,
        catalog: &Arc<dyn Catalog>,
        views: &Views,
        Reaching { ways, .. }: &Reaching,
    ) -> Result<Arc<Done>, StartError> {
        let done = Arc::new(Done::default());
        let Some(Voter { metastore, .. }) = voter else { return Ok(done) };
        let System { clock, store, .. } = &self.system;
        let (retention, tasks) = (self.config.retention, &self.tasks);
        let leads = |metastore: &Metastore| {
            let leadership = metastore.leadership();
            move || leadership.now().here
        };
        let repair = Repair {
            catalog: Arc::clone(catalog),
            store: store.clone(),
            clock: clock.clone(),
            cluster: self.identity.cluster,
            retention,
        };
        let (token, leading) = (tasks.token(), leads(metastore));
        tasks.spawn("repair", async move { repair.run(leading, token).await })?;
        let janitor = Janitor {
            catalog: Arc::clone(catalog),
            store: store.clone(),
            clock: clock.clone(),
            config: self.config.retention(),
            done: Arc::clone(&done),
        };
        let (token, leading) = (tasks.token(), leads(metastore));
        tasks.spawn("janitor", async move { janitor.run(leading, token).await })?;
        if self.others.is_none() {
            let (token, voter) = (tasks.token(), metastore.clone());
            tasks.spawn("log of the catalogue", async move { voter.keep_short(token).await })?;
        }
        if let Some(others) = self.others {
            let voting = athanor_metastore::Upkeep {
                metastore: metastore.clone(),
                deciding: self.deciding(others),
                compute: self.system.compute.clone(),
                others: voters_of(others),
            };
            voting.spawn(tasks)?;
            let settings = &self.config.cluster;
            let controller = Controller {
                catalog: Arc::clone(catalog),
                views: views.clone(),
                members: others.company().members.clone(),
                ways: ways.clone(),
                clock: clock.clone(),
                copies: settings.copies,
                slots: settings.slots,
                dead_after: settings.dead_after,
                bytes_per_slot: settings.bytes_per_slot.get(),
                limits: self.config.limits.clone(),
            };
            let (token, leading) = (tasks.token(), leads(metastore));
            tasks.spawn("controller", async move { controller.run(leading, token).await })?;
        }
        Ok(done)
    }

    /// What looks after a disk that is full, where others could take what this node cannot.
    pub fn room(
        &self,
        log: Option<&Log>,
        ingester: Option<&Arc<Ingester>>,
        facts: Option<&Replicated<Facts>>,
    ) -> Result<(), StartError> {
        let (Some(log), Some(others)) = (log, self.others) else { return Ok(()) };
        let room = Room {
            log: log.clone(),
            ingester: ingester.cloned(),
            facts: facts.cloned(),
            members: others.company().members.clone(),
            voice: others.voice(),
            clock: self.system.clock.clone(),
        };
        self.tasks.spawn("room on the disk", room.run(self.tasks.token()))?;
        Ok(())
    }

    /// What is told of all of it.
    pub fn scrape(
        &self,
        (distributor, debuginfo, ingester, querier): (
            Option<Distributor>,
            Option<Debuginfo>,
            Option<Arc<Ingester>>,
            Option<Querier>,
        ),
        (gateway, hedges, janitor): (Arc<Gateway>, Arc<Hedges>, Arc<Done>),
        (ground, facts): (Option<&Ground>, Option<Replicated<Facts>>),
        readiness: &Arc<Readiness>,
    ) -> Scrape {
        Scrape {
            routes: Routes::default(),
            started: self.system.clock.wall(),
            clock: self.system.clock.clone(),
            readiness: Arc::clone(readiness),
            distributor,
            debuginfo,
            ingester,
            log: ground.map(|ground| ground.log.clone()),
            damage: ground.map(|ground| ground.recovery.damage.clone()).unwrap_or_default(),
            facts,
            gateway,
            hedges,
            querier,
            janitor,
            compute: self.system.compute.clone(),
            tasks: self.tasks.clone(),
        }
    }
}

fn voters_of(others: &Others) -> athanor_metastore::Others {
    let Afar { peers, introductions } = others.afar().clone();
    athanor_metastore::Others { peers, introductions }
}

/// Opens and ends shards as the catalogue says. Those that do not open are tried again.
async fn follow(ingester: Arc<Ingester>, mut views: Views, clock: Clock, ending: CancellationToken) {
    let following = async {
        loop {
            ingester.take(&views.now()).await;
            // Whether it has changed or not: what did not open may by now.
            let _ = clock.within(AGAIN, views.changed()).await;
        }
    };
    tokio::select! {
        biased;
        () = ending.cancelled() => {}
        () = following => {}
    }
}

/// Asks the catalog for the names of tenants from time to time, until the process ends.
async fn refresh_tenants(ingester: Arc<Ingester>, clock: Clock, ending: CancellationToken) {
    let refreshing = async {
        loop {
            let wait = match ingester.refresh_tenants().await {
                Ok(()) => TENANTS_REFRESH_INTERVAL,
                Err(error) => {
                    tracing::debug!(%error, "failed to read the names of tenants, will retry");
                    AGAIN
                }
            };
            clock.sleep(wait).await;
        }
    };
    tokio::select! {
        biased;
        () = ending.cancelled() => {}
        () = refreshing => {}
    }
}

/// Says what was found in the log at the start [INV-07]. Where the groups that it hurts are known, it is said later
/// whether something is lost with it.
fn report(recovery: &log::Recovery) {
    for damage in &recovery.damage {
        match &damage.hurt {
            log::Hurt::All => tracing::error!(
                ?damage,
                "the log is damaged: what was acknowledged there is lost, answers over it are partial"
            ),
            log::Hurt::Groups(_) => tracing::warn!(?damage, "log is damaged, what is missing is looked for"),
        }
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
