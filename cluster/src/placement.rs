//! Which slot takes a profile [INV-04], and which nodes serve it: pure functions, with no clock, chance or network.
//!
//! ```text
//!  profile's time ─► Tables ─► Table: n slots
//!                                │ the m heaviest for the tenant
//!                                │ of these the k heaviest for its service
//!                                ▼ of these the heaviest for the labels as sent
//!                               slot ─► its members: zones, load, weight
//! ```
//!
//! A repeat is known only where its first copy went, so all who route must say the same. Hence everything here follows
//! from what was sent and from a table, and only a new table, which says from which time of profiles on it holds, may
//! change where something goes. The functions are a contract between versions of this program: `tests/known.rs` has
//! answers that must not change.
//!
//! Each choice is by *highest random weight*: a key gives each slot a weight of its own, and the heaviest are taken.
//! Where a slot joins n others, only those keys move for which it is the heaviest, 1 in n + 1, and all to the new slot;
//! so it is where a service gets one slot more. A tenant of fewer slots than there are gives up its lightest for a new
//! one, if it takes it at all; what was on that slot then moves as well, so up to 2 in n + 1.
//!
//! Keys of tenants, services and labels are hashed apart, else the heaviest slot of a tenant would be the heaviest for
//! each of its services as well.

mod members;
mod table;
mod tables;

use std::borrow::Cow;

use athanor_chassis::TenantId;
use athanor_profile::Labels;
use athanor_profile::hash::{self, ContentHash};

use crate::NodeId;

pub use members::{
    LeaderCandidate, NotEnoughNodesError, ReplicaCandidate, ShardLeaderView, better_leader, choose_members,
};
pub use table::{MAX_EXCEPTIONS, MAX_SLOTS, SlotTable, SlotTableError, SlotTableSpec};
pub use tables::{MAX_TABLES, SlotTables, SlotTablesError, TenantRoute};

/// What is hashed: equal bytes of different meaning must get different weights.
#[derive(Clone, Copy)]
enum HashDomain {
    Tenant,
    Service,
    Series,
    Slot,
    Member,
    Leader,
    Block,
}

impl HashDomain {
    fn tag(self) -> u64 {
        u64::from_le_bytes(match self {
            HashDomain::Tenant => *b"p.tenant",
            HashDomain::Service => *b"p.servic",
            HashDomain::Series => *b"p.series",
            HashDomain::Slot => *b"p.slot..",
            HashDomain::Member => *b"p.member",
            HashDomain::Leader => *b"p.leader",
            HashDomain::Block => *b"p.block.",
        })
    }

    /// The hash of a key and what it is of, the same on any machine.
    fn hash(self, key: ContentHash, of: ContentHash) -> ContentHash {
        let mut content = [0; 32];
        content[..16].copy_from_slice(&key.to_le_bytes());
        content[16..].copy_from_slice(&of.to_le_bytes());
        hash::hash_tagged(self.tag(), &content)
    }
}

/// By which slots are compared; the slot decides between equal hashes.
fn slot_weight(key: ContentHash, slot: u32) -> (ContentHash, u32) {
    (HashDomain::Slot.hash(key, ContentHash::from(slot)), slot)
}

/// The `count` heaviest slots for a key, ascending as they were given; at least one.
fn top_slots(key: ContentHash, among: &[u32], count: usize) -> Cow<'_, [u32]> {
    let count = count.max(1);
    if count >= among.len() {
        return Cow::Borrowed(among);
    }
    let mut weighed: Vec<(ContentHash, u32)> = among.iter().map(|&slot| slot_weight(key, slot)).collect();
    weighed.select_nth_unstable_by(count - 1, |one, other| other.cmp(one));
    let mut slots: Vec<u32> = weighed[..count].iter().map(|&(_, slot)| slot).collect();
    slots.sort_unstable();
    Cow::Owned(slots)
}

/// The heaviest slot for a key. Nobody asks for one of none; the answer would be slot 0.
fn top_slot(key: ContentHash, among: &[u32]) -> u32 {
    among.iter().map(|&slot| slot_weight(key, slot)).max().map_or(0, |(_, slot)| slot)
}

/// The slots of one tenant by one table: chosen once for many profiles.
#[derive(Clone, Debug)]
pub struct TenantSlots<'a> {
    table: &'a SlotTable,
    tenant: &'a TenantId,
    key: ContentHash,
    slots: Cow<'a, [u32]>,
}

impl<'a> TenantSlots<'a> {
    /// The tenant's slots.
    pub fn from_table(table: &'a SlotTable, tenant: &'a TenantId) -> Self {
        let key = hash::hash_tagged(HashDomain::Tenant.tag(), tenant.as_str().as_bytes());
        let slots = top_slots(key, table.slots(), table.slots_for(tenant));
        TenantSlots { table, tenant, key, slots }
    }

    fn service_key(&self, service: &str) -> ContentHash {
        HashDomain::Service.hash(self.key, hash::hash_bytes(service.as_bytes()))
    }

    /// The slots of a service, ascending.
    pub fn service_slots(&self, service: &str) -> Cow<'_, [u32]> {
        top_slots(self.service_key(service), &self.slots, self.table.slots_for_service(self.tenant, service))
    }

    /// The slot of a series, by its service and all its labels as they were sent: what rules make of them changes with
    /// the rules, and then a repeat would go elsewhere.
    pub fn series_slot(&self, service: &str, sent: &Labels) -> u32 {
        if self.table.slots_for_service(self.tenant, service) == 1 {
            return top_slot(self.service_key(service), &self.slots);
        }
        top_slot(HashDomain::Series.hash(self.key, sent.hash()), &self.service_slots(service))
    }
}

/// The slots of a service, ascending.
pub fn service_slots(table: &SlotTable, tenant: &TenantId, service: &str) -> Vec<u32> {
    TenantSlots::from_table(table, tenant).service_slots(service).into_owned()
}

/// The slot of a series, by its service and all its labels as they were sent.
pub fn series_slot(table: &SlotTable, tenant: &TenantId, service: &str, sent: &Labels) -> u32 {
    TenantSlots::from_table(table, tenant).series_slot(service, sent)
}

/// The nodes that a block belongs to, the first one first. When one leaves, its blocks go to the next one of each; when one
/// joins n others, it takes 1 in n + 1 from all.
pub fn nodes_of_block(block: u128, nodes: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
    let mut weighed: Vec<(ContentHash, NodeId)> = nodes
        .into_iter()
        .map(|node| (HashDomain::Block.hash(block, ContentHash::from(node)), node))
        .collect();
    weighed.sort_unstable_by(|one, other| other.cmp(one));
    weighed.into_iter().map(|(_, node)| node).collect()
}
