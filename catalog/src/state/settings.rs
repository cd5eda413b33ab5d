//! Settings and voters of the catalog, and rates of services.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_chassis::TenantId;
use athanor_cluster::NodeId;
use serde::{Deserialize, Serialize};

use crate::state::{CatalogState, CommandError, CommandOutcome, LimitedResource, MAX_REPLICATION_FACTOR};

/// Limit of services with a known rate.
pub const MAX_SERVICES: usize = 100_000;
/// Limit of voters of the catalog.
pub const MAX_VOTERS: usize = 16;
/// Default bound for profile times in the future, where the limits set none [INV-05]. Without a bound, one
/// profile of the next century would keep its shard from accepting a new table for ever.
pub const DEFAULT_MAX_FUTURE: Duration = Duration::from_secs(24 * 3600);

/// Bytes per second, by tenant and service.
pub type ServiceRates = BTreeMap<TenantId, BTreeMap<String, u64>>;

/// Settings of the catalog, shared by all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogSettings {
    /// Number of members of a new shard.
    pub replication_factor: u16,
    /// Largest age of a profile that any tenant may send. Zero accepts any age.
    pub oldest_accepted: Duration,
    /// Largest distance into the future of a profile that any tenant may send. Zero stands for a day.
    pub newest_accepted: Duration,
}

/// Voter of the catalog, as recorded for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogVoter {
    /// Address for requests to the voter.
    pub address: String,
}

impl Default for CatalogSettings {
    fn default() -> Self {
        Self { replication_factor: 1, oldest_accepted: Duration::ZERO, newest_accepted: Duration::ZERO }
    }
}

impl CatalogSettings {
    /// Returns the largest accepted distance of a profile's time into the future.
    pub fn max_future(&self) -> Duration {
        if self.newest_accepted.is_zero() { DEFAULT_MAX_FUTURE } else { self.newest_accepted }
    }
}

impl CatalogState {
    pub(super) fn update_settings(
        &mut self,
        expected: &CatalogSettings,
        settings: CatalogSettings,
    ) -> Result<CommandOutcome, CommandError> {
        if self.settings == settings {
            return Ok(CommandOutcome::from_count(0));
        }
        if self.settings != *expected {
            return Err(CommandError::SettingsChanged);
        }
        if !(1..=MAX_REPLICATION_FACTOR).contains(&settings.replication_factor) {
            return Err(CommandError::InvalidReplicationFactor { seen: settings.replication_factor });
        }
        self.settings = settings;
        Ok(CommandOutcome::from_count(1))
    }

    pub(super) fn add_voter(
        &mut self,
        node: NodeId,
        address: String,
    ) -> Result<CommandOutcome, CommandError> {
        let known = self.voters.get(&node);
        if known.is_some_and(|voter| voter.address == address) {
            return Ok(CommandOutcome::from_count(0));
        }
        if known.is_none() && self.voters.len() >= MAX_VOTERS {
            return Err(CommandError::LimitReached { resource: LimitedResource::Voters, limit: MAX_VOTERS });
        }
        self.voters.insert(node, CatalogVoter { address });
        Ok(CommandOutcome::from_count(1))
    }

    pub(super) fn remove_voter(&mut self, node: NodeId) -> CommandOutcome {
        CommandOutcome::from_count(usize::from(self.voters.remove(&node).is_some()))
    }

    pub(super) fn set_service_rates(
        &mut self,
        changed: ServiceRates,
    ) -> Result<CommandOutcome, CommandError> {
        let known = |tenant: &TenantId, service: &String| {
            self.service_rates.get(tenant).is_some_and(|services| services.contains_key(service))
        };
        let mut count = self.service_rates.values().map(BTreeMap::len).sum::<usize>();
        for (tenant, services) in &changed {
            for (service, rate) in services {
                match (known(tenant, service), *rate > 0) {
                    (true, false) => count -= 1,
                    (false, true) => count += 1,
                    _ => {}
                }
            }
        }
        if count > MAX_SERVICES {
            return Err(CommandError::LimitReached {
                resource: LimitedResource::Services,
                limit: MAX_SERVICES,
            });
        }
        let mut changes = 0;
        for (tenant, services) in changed {
            for (service, rate) in services {
                changes += usize::from(self.set_service_rate(&tenant, service, rate));
            }
        }
        Ok(CommandOutcome::from_count(changes))
    }

    /// Sets the rate of a service and returns whether it changed.
    fn set_service_rate(&mut self, tenant: &TenantId, service: String, rate: u64) -> bool {
        if rate > 0 {
            let services = self.service_rates.entry(tenant.clone()).or_default();
            return services.insert(service, rate) != Some(rate);
        }
        let Some(services) = self.service_rates.get_mut(tenant) else { return false };
        let removed = services.remove(&service).is_some();
        if services.is_empty() {
            self.service_rates.remove(tenant);
        }
        removed
    }
}
