//! Slots per service: more for services with a high rate, fewer once the rate falls.
//!
//! Distributors count the bytes of each service. The autoscaler derives rates from these counts, and a slot
//! count per service from each rate. If a count differs from the newest table, it proposes a new table. The
//! table is valid for profiles of a time that no shard has accepted yet [INV-05]. That delay is at least as
//! long as timestamps may lie in the future. A rate is therefore a mean over minutes, and a table stays valid
//! for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_catalog::{CatalogCommand, CommandError, CommandResult, RoutingView};
use athanor_chassis::{Status, TenantId};
use athanor_cluster::NodeId;
use athanor_cluster::members::RoleName;
use athanor_cluster::placement::{MAX_EXCEPTIONS, SlotTable, SlotTableSpec};

use super::ClusterController;

/// Interval between two reads of the distributors' counters.
const MEASURE_INTERVAL: Duration = Duration::from_secs(10);
/// Half-life of a measurement: an older one counts half.
const RATE_HALF_LIFE: Duration = Duration::from_secs(120);
/// Minimum time between two new tables.
const MIN_TABLE_AGE: Duration = Duration::from_secs(10 * 60);
/// Divisor of the last reported rate. A rate is reported if it has changed by more than this fraction.
const RATE_CHANGE_DIVISOR: u64 = 4;
/// Maximum services per report of rates.
const MAX_RATES_PER_REPORT: usize = 1_000;
/// Delay of a table's start beyond the earliest time that the catalog allows.
const TABLE_ACTIVATION_DELAY_NANOS: i64 = 60_000_000_000;
/// Maximum proposals of one table. Each corrects the version or start that the catalog refused.
const MAX_TABLE_PROPOSALS: usize = 3;

type ServiceKey = (TenantId, String);

/// Measured and reported rates per service.
#[derive(Default)]
pub struct SlotAutoscaler {
    next: Duration,
    asked: Option<Duration>,
    /// Last counters of each distributor.
    counted: BTreeMap<NodeId, BTreeMap<ServiceKey, u64>>,
    /// Mean rates in bytes per second.
    rates: BTreeMap<ServiceKey, f64>,
    told: BTreeMap<ServiceKey, u64>,
    tabled: Option<Duration>,
}

impl SlotAutoscaler {
    /// Measures rates, reports changes, and proposes a new table if one is due.
    pub async fn run_once(&mut self, controller: &ClusterController) -> Result<(), Status> {
        let now = controller.clock.monotonic();
        if now < self.next {
            return Ok(());
        }
        self.next = now + MEASURE_INTERVAL;
        self.measure(controller, now).await;
        self.tell(controller).await?;
        let view = controller.views.current();
        self.table(controller, &view, now).await?;
        forget(controller, &view).await
    }

    async fn measure(&mut self, controller: &ClusterController, now: Duration) {
        let members = controller.members.current();
        let doors: Vec<NodeId> = members
            .values()
            .filter(|member| member.is_alive() && member.roles.contains(&RoleName::Distributor))
            .map(|member| member.node)
            .collect();
        self.counted.retain(|node, _| doors.contains(node));
        let asked = doors.iter().map(|node| async { (*node, controller.ways.service_load(*node).await) });
        let mut more: BTreeMap<ServiceKey, u64> = BTreeMap::new();
        for (node, counted) in futures::future::join_all(asked).await {
            let Ok(counted) = counted else { continue };
            // The first counters of a distributor have no predecessor to compare with.
            if let Some(before) = self.counted.get(&node) {
                for (service, bytes) in &counted {
                    let since = bytes.saturating_sub(before.get(service).copied().unwrap_or_default());
                    *more.entry(service.clone()).or_default() += since;
                }
            }
            self.counted.insert(node, counted);
        }
        if let Some(before) = self.asked.replace(now) {
            mix(&mut self.rates, &more, now.saturating_sub(before));
        }
    }

    async fn tell(&mut self, controller: &ClusterController) -> Result<(), Status> {
        let mut changed: BTreeMap<TenantId, BTreeMap<String, u64>> = BTreeMap::new();
        let mut news = Vec::new();
        let gone =
            self.told.keys().filter(|service| !self.rates.contains_key(*service)).map(|gone| (gone, 0));
        let rates = self.rates.iter().map(|(service, rate)| (service, *rate as u64));
        for (service, rate) in rates.chain(gone) {
            let told = self.told.get(service).copied().unwrap_or_default();
            if told.abs_diff(rate) > told / RATE_CHANGE_DIVISOR && news.len() < MAX_RATES_PER_REPORT {
                let (tenant, name) = service.clone();
                changed.entry(tenant).or_default().insert(name, rate);
                news.push((service.clone(), rate));
            }
        }
        if news.is_empty() {
            return Ok(());
        }
        controller.propose(CatalogCommand::SetServiceRates { changed }).await?;
        for (service, rate) in news {
            match rate {
                0 => self.told.remove(&service),
                rate => self.told.insert(service, rate),
            };
        }
        Ok(())
    }

    async fn table(
        &mut self,
        controller: &ClusterController,
        view: &RoutingView,
        now: Duration,
    ) -> Result<(), Status> {
        let Some(tables) = view.tables.as_ref().filter(|_| view.pending.is_none()) else { return Ok(()) };
        if self.tabled.is_some_and(|tabled| now < tabled + MIN_TABLE_AGE) {
            return Ok(());
        }
        let newest = tables.table_at(i64::MAX);
        let wanted = wanted(newest, &self.rates, controller.bytes_per_slot);
        let mut draft = SlotTableSpec::from(newest.clone());
        if draft.services == wanted {
            return Ok(());
        }
        self.tabled = Some(now);
        draft.services = wanted;
        (draft.version, draft.from) = (draft.version + 1, newest.from().saturating_add(1));
        for _ in 0..MAX_TABLE_PROPOSALS {
            let table = SlotTable::try_from(draft.clone()).map_err(|error| Status::from_error(&error))?;
            let proposed = controller.catalog.propose(CatalogCommand::ProposeTable { table }).await;
            match proposed.map_err(|error| Status::from_error(&error))? {
                CommandResult::Refused(CommandError::TableVersionMismatch { expected, .. }) => {
                    draft.version = expected
                }
                CommandResult::Refused(CommandError::TableTooEarly { earliest, .. }) => {
                    draft.from = earliest.saturating_add(TABLE_ACTIVATION_DELAY_NANOS)
                }
                CommandResult::Refused(refused) => {
                    tracing::info!(%refused, "catalog refused a new slot table");
                    return Ok(());
                }
                _ => {
                    tracing::info!(version = draft.version, from = draft.from, "proposed a new slot table");
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Proposes to drop slot tables that no acceptable timestamp falls into.
async fn forget(controller: &ClusterController, view: &RoutingView) -> Result<(), Status> {
    let oldest = view.settings.oldest_accepted;
    let Some(tables) = view.tables.as_ref().filter(|_| !oldest.is_zero()) else { return Ok(()) };
    let before = controller.clock.wall().minus(oldest).minus(2 * athanor_catalog::MAX_CLOCK_SKEW).nanos();
    let past = tables.tables_between(i64::MIN, i64::MAX).iter().skip(1).any(|next| next.from() < before);
    if past { controller.propose(CatalogCommand::ExpireTables { before }).await } else { Ok(()) }
}

/// Adds the bytes of an interval to the decaying mean rates.
fn mix(rates: &mut BTreeMap<ServiceKey, f64>, more: &BTreeMap<ServiceKey, u64>, span: Duration) {
    let seconds = span.as_secs_f64();
    if seconds <= 0.0 {
        return;
    }
    let kept = 0.5_f64.powf(seconds / RATE_HALF_LIFE.as_secs_f64());
    rates.values_mut().for_each(|rate| *rate *= kept);
    for (service, bytes) in more {
        *rates.entry(service.clone()).or_default() += (1.0 - kept) * *bytes as f64 / seconds;
    }
    rates.retain(|_, rate| *rate >= 1.0);
}

/// Returns the services that need more than one slot, the largest first if there are too many. A service
/// keeps its slots until twice its rate fits in fewer.
fn wanted(
    table: &SlotTable,
    rates: &BTreeMap<ServiceKey, f64>,
    bytes_per_slot: u64,
) -> BTreeMap<TenantId, BTreeMap<String, u16>> {
    let most = table.slots().len();
    let per_slot = bytes_per_slot.max(1) as f64;
    let mut large = Vec::new();
    for ((tenant, service), rate) in rates {
        let has = table.slots_for_service(tenant, service);
        let needs = (rate / per_slot).ceil() as usize;
        let enough = (2.0 * rate / per_slot).ceil() as usize;
        let slots = if needs > has { needs } else { has.min(enough.max(1)) };
        if slots.min(most) > 1 {
            large.push((slots.min(most), *rate, tenant, service));
        }
    }
    large.sort_by(|one, other| other.1.total_cmp(&one.1));
    let mut services: BTreeMap<TenantId, BTreeMap<String, u16>> = BTreeMap::new();
    for (slots, _, tenant, service) in large.into_iter().take(MAX_EXCEPTIONS) {
        let slots = u16::try_from(slots).unwrap_or(u16::MAX);
        services.entry(tenant.clone()).or_default().insert(service.clone(), slots);
    }
    services
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(service: &str) -> ServiceKey {
        (TenantId::anonymous(), service.to_owned())
    }

    fn slots(table: &SlotTable, rate: f64) -> u16 {
        let rates = BTreeMap::from([(of("shop"), rate)]);
        let wanted = wanted(table, &rates, 100);
        wanted.get(&TenantId::anonymous()).map_or(1, |services| services["shop"])
    }

    #[test]
    fn services_grow_at_once_and_shrink_late() {
        let mut table = SlotTable::with_all_slots(1, 0, (0..8).collect()).unwrap();
        for (rate, expected) in
            [(90.0, 1), (101.0, 2), (350.0, 4), (260.0, 4), (190.0, 4), (140.0, 3), (10_000.0, 8), (20.0, 1)]
        {
            assert_eq!(slots(&table, rate), expected, "{rate}");
            let mut draft = SlotTableSpec::from(table);
            let services = BTreeMap::from([("shop".to_owned(), expected)]);
            draft.services = BTreeMap::from([(TenantId::anonymous(), services)]);
            table = draft.try_into().unwrap();
        }
    }

    #[test]
    fn rates_follow_what_comes_and_fade() {
        let mut rates = BTreeMap::new();
        let more = BTreeMap::from([(of("shop"), 10_000)]);
        (0..200).for_each(|_| mix(&mut rates, &more, Duration::from_secs(10)));
        assert!((999.0..=1000.1).contains(&rates[&of("shop")]), "{rates:?}");
        mix(&mut rates, &BTreeMap::new(), RATE_HALF_LIFE);
        assert!((499.0..=500.1).contains(&rates[&of("shop")]), "{rates:?}");
        (0..20).for_each(|_| mix(&mut rates, &BTreeMap::new(), RATE_HALF_LIFE));
        assert!(rates.is_empty());
    }
}
