//! How the roles that clients speak to are made: who takes profiles, who reads blocks, who answers queries.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::Catalog;
use athanor_chassis::Clock;
use athanor_chassis::deaths::Deaths;
use athanor_cluster::members::RoleName;
use athanor_cluster::peers;
use athanor_distributor::Distributor;
use athanor_ingester::Ingester;
use athanor_metastore::Views;
use athanor_proto::athanor::internal::v1::doors_server::DoorsServer;
use athanor_proto::athanor::internal::v1::gateways_server::GatewaysServer;
use athanor_proto::athanor::internal::v1::queriers_server::QueriersServer;
use athanor_querier::{AdHoc, Elsewhere, Place, Querier};
use athanor_storage::UploadSpace;
use athanor_store_gateway::{Blocks, Gateway};
use athanor_symbolizer::Debuginfo;
use tokio_util::sync::CancellationToken;

use super::build::{Offered, Reaching, Site};
use super::{StartError, System};
use crate::far::Asking;
use crate::gateway::Offering;
use crate::gateways::Gateways;
use crate::loads::Told;
use crate::places::Places;
use crate::polls::{Polled, Polls};
use crate::route::Route;
use crate::sources::Everywhere;
use crate::telling::Telling;
use crate::uploads::Uploads;
use crate::ways::Afar;

/// How often it is looked whether others need the disk on which blocks are kept.
const TEND: Duration = Duration::from_secs(1);

impl Site<'_> {
    /// The door for profiles.
    pub fn distributor(
        &self,
        views: &Views,
        Reaching { leaders, ways, .. }: &Reaching,
        offered: &Offered,
    ) -> Option<Distributor> {
        if !self.has(RoleName::Distributor) {
            return None;
        }
        if let Some(Afar { introductions, .. }) = &ways.afar {
            let told = Told { loads: Arc::clone(&ways.loads), introductions: Arc::clone(introductions) };
            offered.doors.begin(DoorsServer::new(told));
        }
        let System { clock, random, compute, .. } = &self.system;
        let route = Route {
            views: views.clone(),
            places: Places { overrides: self.overrides.clone(), compute: compute.clone() },
            leaders: Arc::clone(leaders),
            ways: ways.clone(),
            clock: clock.clone(),
            random: random.split(),
        };
        let deps = athanor_distributor::Deps {
            overrides: self.overrides.clone(),
            clock: clock.clone(),
            random: random.split(),
            compute: compute.clone(),
            shards: Arc::new(route),
        };
        Some(Distributor::new(self.config.distributor.clone(), deps))
    }

    /// Who reads blocks: for others too where that is a role of this node.
    pub fn gateway(
        &self,
        Reaching { ways, .. }: &Reaching,
        offered: &Offered,
    ) -> Result<Arc<Gateway>, StartError> {
        let System { clock, compute, store, kept, .. } = &self.system;
        let settings = &self.config.store_gateway;
        let blocks = Blocks::new(store.clone(), compute.clone(), kept.clone(), settings);
        let gateway = Arc::new(Gateway::new(Arc::new(blocks), settings));
        if let Some(Afar { introductions, .. }) =
            ways.afar.as_ref().filter(|_| self.has(RoleName::StoreGateway))
        {
            let (gateway, introductions) = (Arc::clone(&gateway), Arc::clone(introductions));
            let (compute, clock) = (compute.clone(), clock.clone());
            let offering = Offering { gateway, introductions, compute, clock };
            let server = GatewaysServer::new(offering);
            offered.gateways.begin(server.max_decoding_message_size(peers::MESSAGE));
        }
        if gateway.has_disk() {
            let tending = tend(Arc::clone(&gateway), self.system.clock.clone(), self.tasks.token());
            self.tasks.spawn("blocks on the disk", tending)?;
        }
        Ok(gateway)
    }

    /// Who answers queries.
    pub fn querier(
        &self,
        catalog: &Arc<dyn Catalog>,
        ingester: Option<&Arc<Ingester>>,
        reaching: &Reaching,
        gateway: &Arc<Gateway>,
    ) -> Option<Querier> {
        if !self.has(RoleName::Querier) {
            return None;
        }
        let Reaching { leaders, ways, hedges } = reaching;
        let System { clock, random, compute, .. } = &self.system;
        let asking = Asking {
            leaders: Arc::clone(leaders),
            ways: ways.clone(),
            here: ingester.map(|ingester| Telling::new(Arc::clone(ingester), compute.clone())),
            clock: clock.clone(),
            random: random.split(),
            outages: Arc::default(),
            tasks: self.tasks.clone(),
        };
        let sources = Everywhere {
            catalog: Arc::clone(catalog),
            ingester: ingester.cloned(),
            asking,
            gateways: Gateways {
                here: Arc::clone(gateway),
                is_one: self.has(RoleName::StoreGateway),
                members: self.others.map(|others| others.company().members.clone()),
                ways: ways.clone(),
                hedges: Arc::clone(hedges),
            },
        };
        let deps = athanor_querier::Deps {
            sources: Arc::new(sources),
            overrides: self.overrides.clone(),
            clock: clock.clone(),
            compute: compute.clone(),
        };
        let querier = Querier::new(self.config.querier.clone(), deps).placed(self.place(reaching));
        Some(match self.deaths() {
            Some(deaths) => querier.remembering(deaths),
            None => querier,
        })
    }

    /// What processes before this one died over.
    fn deaths(&self) -> Option<Deaths> {
        let System { asked, clock, .. } = &self.system;
        let opened = Deaths::open(asked.clone()?, clock.clone());
        let opened = opened.inspect_err(|error| {
            tracing::warn!(%error, "which queries kill the process will not be known");
        });
        let deaths = opened.ok()?;
        let suspected = deaths.count(1);
        if suspected > 0 {
            tracing::warn!(
                suspected,
                "the process before this one died while queries were under way: each of them is answered alone, and those \
                 that see another death are refused"
            );
        }
        Some(deaths)
    }

    /// Where a querier stands among others.
    fn place(&self, Reaching { ways, .. }: &Reaching) -> Place {
        let members = self.others.map(|others| others.company().members.clone());
        let polls = members.map(|members| Polls { ways: ways.clone(), members });
        Place {
            node: self.identity.node,
            others: polls.map(|polls| Arc::new(polls) as Arc<dyn Elsewhere>),
            tasks: self.tasks.clone(),
            random: self.system.random.split(),
        }
    }

    /// Lets other queriers ask for what this one keeps.
    pub fn offer_kept(&self, querier: Option<&Querier>, offered: &Offered) {
        if let (Some(querier), Some(others)) = (querier, self.others) {
            let introductions = Arc::clone(&others.afar().introductions);
            let polled = Polled { querier: querier.clone(), introductions };
            offered.queriers.begin(QueriersServer::new(polled).max_decoding_message_size(peers::MESSAGE));
        }
    }

    /// Who takes debug information: agents send it where they send profiles.
    pub fn debuginfo(&self, space: &UploadSpace) -> Option<Debuginfo> {
        let System { store, clock, random, .. } = &self.system;
        let deps = || athanor_symbolizer::Deps {
            store: store.clone(),
            space: space.clone(),
            overrides: self.overrides.clone(),
            clock: clock.clone(),
            // Nothing is drawn as long as nobody uploads.
            random: random.clone(),
            tasks: self.tasks.clone(),
        };
        self.has(RoleName::Distributor).then(|| Debuginfo::new(deps()))
    }

    /// Where profiles are kept that people upload by hand.
    pub fn ad_hoc(&self, querier: Option<&Querier>, space: &UploadSpace) -> Option<AdHoc> {
        let System { store, random, .. } = &self.system;
        let uploads = || Arc::new(Uploads { store: store.clone(), space: space.clone() });
        querier.map(|querier| querier.ad_hoc(uploads(), random))
    }
}

/// Looks after what is kept of blocks on the disk until the process ends: also where nobody asks, since the log may need
/// the disk.
async fn tend(gateway: Arc<Gateway>, clock: Clock, ending: CancellationToken) {
    let tending = async {
        loop {
            gateway.tend_disk().await;
            let _ = clock.within(TEND, gateway.disk_wanted()).await;
        }
    };
    tokio::select! {
        biased;
        () = ending.cancelled() => {}
        () = tending => {}
    }
}
