//! Tenants that have profiles. New names are rejected if `limits.max_tenants` of them are known.
//!
//! A tenant is known if a registered block in the catalog's last listing has rows of it. A tenant is also
//! known if a shard that this node leads holds its profiles. So a standalone node counts exactly. In a
//! cluster, a node learns of names that other nodes store when their blocks are registered. A name is free
//! again when its last block is removed.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{ErrorCode, Status, TenantId};
use parking_lot::RwLock;

/// Retry-after of a client with a new name: names are not free sooner.
const NEW_TENANT_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Names of tenants that have profiles.
#[derive(Debug, Default)]
pub(crate) struct KnownTenants {
    names: RwLock<TenantNames>,
}

#[derive(Debug, Default)]
struct TenantNames {
    /// Tenants with registered blocks in the catalog's last listing.
    in_blocks: HashSet<TenantId>,
    /// Tenants of which this node alone knows.
    local: HashMap<TenantId, LocalTenant>,
    /// The number of refreshes that have begun.
    round: u64,
}

#[derive(Debug, Default)]
struct LocalTenant {
    /// Requests that are under way.
    requests: u32,
    /// The round in which a profile was stored last.
    stored_in: Option<u64>,
}

/// A request of a tenant that is in no block yet. The name is forgotten with it, unless something is stored.
#[derive(Debug)]
pub(crate) struct NameAdmission {
    known: Arc<KnownTenants>,
    tenant: TenantId,
    is_stored: bool,
}

impl KnownTenants {
    /// Admits a request, unless its tenant is new and there are too many. Returns nothing for a tenant that
    /// has blocks.
    pub(crate) fn admit(
        self: &Arc<Self>,
        tenant: &TenantId,
        max_tenants: u32,
    ) -> Result<Option<NameAdmission>, Status> {
        if self.names.read().in_blocks.contains(tenant) {
            return Ok(None);
        }
        let mut names = self.names.write();
        let count = names.in_blocks.len() + names.local.len();
        match names.local.entry(tenant.clone()) {
            Entry::Occupied(mut local) => local.get_mut().requests += 1,
            Entry::Vacant(_) if count >= max_tenants as usize => {
                return Err(refuse(tenant, count, max_tenants));
            }
            Entry::Vacant(vacant) => {
                vacant.insert(LocalTenant { requests: 1, stored_in: None });
            }
        }
        drop(names);
        Ok(Some(NameAdmission { known: Arc::clone(self), tenant: tenant.clone(), is_stored: false }))
    }

    /// Adds tenants with profiles that were replayed from a log.
    pub(crate) fn add_stored(&self, tenants: impl IntoIterator<Item = TenantId>) {
        let mut names = self.names.write();
        let round = names.round;
        for tenant in tenants {
            names.local.entry(tenant).or_default().stored_in = Some(round);
        }
    }

    /// Begins a refresh: names that are stored from now on outlast it.
    pub(crate) fn begin_refresh(&self) -> u64 {
        let mut names = self.names.write();
        names.round += 1;
        names.round
    }

    /// Replaces the names known when a refresh began by those that heads and blocks hold since.
    pub(crate) fn finish_refresh(
        &self,
        round: u64,
        in_heads: HashSet<TenantId>,
        in_blocks: HashSet<TenantId>,
    ) {
        let mut names = self.names.write();
        names.local.retain(|tenant, local| {
            let is_recent = local.stored_in.is_some_and(|stored| stored >= round);
            local.requests > 0 || !in_blocks.contains(tenant) && (is_recent || in_heads.contains(tenant))
        });
        for tenant in in_heads.into_iter().filter(|tenant| !in_blocks.contains(tenant)) {
            names.local.entry(tenant).or_default().stored_in = Some(round);
        }
        names.in_blocks = in_blocks;
    }
}

impl NameAdmission {
    /// Remembers the tenant: a profile of it is stored.
    pub(crate) fn mark_stored(mut self) {
        self.is_stored = true;
    }
}

impl Drop for NameAdmission {
    fn drop(&mut self) {
        let mut names = self.known.names.write();
        let round = names.round;
        let is_in_blocks = names.in_blocks.contains(&self.tenant);
        let Entry::Occupied(mut local) = names.local.entry(self.tenant.clone()) else { return };
        local.get_mut().requests -= 1;
        if self.is_stored {
            local.get_mut().stored_in = Some(round);
        }
        if local.get().requests == 0 && (is_in_blocks || local.get().stored_in.is_none()) {
            local.remove();
        }
    }
}

fn refuse(tenant: &TenantId, count: usize, max_tenants: u32) -> Status {
    let message = format!(
        "tenant {tenant} is new and {count} tenants have profiles, limits.max_tenants is {max_tenants}; \
         send as an existing tenant, or raise the limit"
    );
    Status::new(ErrorCode::Exhausted, message)
        .with_reason("tenant_limit")
        .with_retry_after(NEW_TENANT_RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> TenantId {
        text.parse().unwrap()
    }

    fn names(texts: &[&str]) -> HashSet<TenantId> {
        texts.iter().map(|text| name(text)).collect()
    }

    fn store(known: &Arc<KnownTenants>, text: &str, max_tenants: u32) -> bool {
        let admitted = known.admit(&name(text), max_tenants);
        let is_admitted = admitted.is_ok();
        admitted.into_iter().flatten().for_each(NameAdmission::mark_stored);
        is_admitted
    }

    #[test]
    fn new_name_beyond_limit_is_refused_in_words() {
        let known = Arc::new(KnownTenants::default());
        assert!(store(&known, "a", 2) && store(&known, "b", 2));
        let refused = known.admit(&name("c"), 2).unwrap_err();
        assert_eq!((refused.code, refused.reason), (ErrorCode::Exhausted, Some("tenant_limit")));
        assert_eq!(
            refused.message,
            "tenant c is new and 2 tenants have profiles, limits.max_tenants is 2; send as an existing tenant, or raise \
             the limit"
        );
        assert!(store(&known, "a", 2) && store(&known, "b", 0), "who has profiles is not refused");
        assert!(store(&known, "c", 3), "an exception from the limit lets a name in");
    }

    #[test]
    fn name_of_a_request_that_stored_nothing_is_free() {
        let known = Arc::new(KnownTenants::default());
        let first = known.admit(&name("a"), 1).unwrap();
        let second = known.admit(&name("a"), 1).unwrap();
        assert!(known.admit(&name("b"), 1).is_err(), "a request that is under way counts");
        drop(first);
        assert!(known.admit(&name("b"), 1).is_err());
        drop(second);
        assert!(store(&known, "b", 1));
    }

    #[test]
    fn refresh_keeps_names_of_heads_and_blocks_and_of_what_came_since() {
        let known = Arc::new(KnownTenants::default());
        assert!(["flushed", "head", "gone"].iter().all(|text| store(&known, text, 9)));
        known.add_stored([name("read-back")]);
        let under_way = known.admit(&name("under-way"), 9).unwrap();
        let round = known.begin_refresh();
        assert!(store(&known, "later", 9));
        known.finish_refresh(round, names(&["head", "read-back"]), names(&["flushed", "old"]));
        let has = ["flushed", "old", "head", "read-back", "under-way", "later"];
        assert!(has.iter().all(|text| known.admit(&name(text), 0).is_ok()), "{known:?}");
        assert!(known.admit(&name("gone"), 6).is_err() && store(&known, "gone", 7));
        drop(under_way);
        // All of them lie in blocks, and each counts once.
        let round = known.begin_refresh();
        known.finish_refresh(round, names(&["head"]), names(&["flushed", "head", "later"]));
        assert!(known.admit(&name("new"), 3).is_err() && store(&known, "new", 4));
    }
}
