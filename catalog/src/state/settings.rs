//! What the catalogue goes by, who votes in it, and what services send.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_chassis::TenantId;
use athanor_cluster::NodeId;
use serde::{Deserialize, Serialize};

use super::{Bounded, MAX_COPIES, Outcome, Refused, State};

/// The most services whose rate is known.
pub const MAX_SERVICES: usize = 100_000;
/// The most voters.
pub const MAX_VOTERS: usize = 16;
/// How far ahead the times of profiles may be where limits set no bound [INV-05]: without any, one profile of the next
/// century would keep its shard from taking a new table for ever.
pub const NEWEST: Duration = Duration::from_secs(24 * 3600);

/// Bytes a second, by tenant and service.
pub type Rates = BTreeMap<TenantId, BTreeMap<String, u64>>;

/// What the catalogue goes by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Members of a new shard.
    pub copies: u16,
    /// How old a profile may be that any tenant may send; zero for any age.
    pub oldest_accepted: Duration,
    /// How far ahead the time of a profile may be that any tenant may send; zero for a day.
    pub newest_accepted: Duration,
}

/// A voter of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Voter {
    /// Where it is asked.
    pub address: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self { copies: 1, oldest_accepted: Duration::ZERO, newest_accepted: Duration::ZERO }
    }
}

impl Settings {
    /// How far ahead the time of a profile may be.
    pub fn newest_possible(&self) -> Duration {
        if self.newest_accepted.is_zero() { NEWEST } else { self.newest_accepted }
    }
}

impl State {
    pub(super) fn configure(&mut self, expected: &Settings, settings: Settings) -> Result<Outcome, Refused> {
        if self.settings == settings {
            return Ok(Outcome::counted(0));
        }
        if self.settings != *expected {
            return Err(Refused::SettingsChanged);
        }
        if !(1..=MAX_COPIES).contains(&settings.copies) {
            return Err(Refused::NoCopies { seen: settings.copies });
        }
        self.settings = settings;
        Ok(Outcome::counted(1))
    }

    pub(super) fn add_voter(&mut self, node: NodeId, address: String) -> Result<Outcome, Refused> {
        let known = self.voters.get(&node);
        if known.is_some_and(|voter| voter.address == address) {
            return Ok(Outcome::counted(0));
        }
        if known.is_none() && self.voters.len() >= MAX_VOTERS {
            return Err(Refused::TooMany { what: Bounded::Voters, limit: MAX_VOTERS });
        }
        self.voters.insert(node, Voter { address });
        Ok(Outcome::counted(1))
    }

    pub(super) fn remove_voter(&mut self, node: NodeId) -> Outcome {
        Outcome::counted(usize::from(self.voters.remove(&node).is_some()))
    }

    pub(super) fn rate(&mut self, changed: Rates) -> Result<Outcome, Refused> {
        let known = |tenant: &TenantId, service: &String| {
            self.rates.get(tenant).is_some_and(|services| services.contains_key(service))
        };
        let mut count = self.rates.values().map(BTreeMap::len).sum::<usize>();
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
            return Err(Refused::TooMany { what: Bounded::Services, limit: MAX_SERVICES });
        }
        let mut changes = 0;
        for (tenant, services) in changed {
            for (service, rate) in services {
                changes += usize::from(self.rate_one(&tenant, service, rate));
            }
        }
        Ok(Outcome::counted(changes))
    }

    /// Whether it was another before.
    fn rate_one(&mut self, tenant: &TenantId, service: String, rate: u64) -> bool {
        if rate > 0 {
            let services = self.rates.entry(tenant.clone()).or_default();
            return services.insert(service, rate) != Some(rate);
        }
        let Some(services) = self.rates.get_mut(tenant) else { return false };
        let known = services.remove(&service).is_some();
        if services.is_empty() {
            self.rates.remove(tenant);
        }
        known
    }
}
