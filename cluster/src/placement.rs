//! Placement of profiles in slots [INV-04] and of slots on nodes. Pure functions, without clock, randomness
//! or network.
//!
//! ```text
//!  profile's time ─► SlotTables ─► SlotTable: n slots
//!                                    │ the m heaviest for the tenant
//!                                    │ of these the k heaviest for its service
//!                                    ▼ of these the heaviest for the labels as sent
//!                                   slot ─► its members: zones, load, weight
//! ```
//!
//! Only the shard that holds the first copy recognizes a duplicate, so all routers must place it alike. Hence
//! placement follows only from the upload as sent and from a table. Only a new table, which states its first
//! profile time, may move a series. The functions are a contract between versions of this program:
//! `tests/known.rs` has results that must not change.
//!
//! Each choice uses rendezvous hashing (*highest random weight*): a key gives each slot its own weight, and
//! the heaviest slots are chosen. If a slot joins n others, only the keys for which it is the heaviest move:
//! 1 in n + 1, all to the new slot. The same holds if a service gets one more slot. A tenant with a subset of
//! the slots gives up its lightest slot if it takes the new one. Series on the lost slot then move too, so up
//! to 2 in n + 1 move.
//!
//! Keys of tenants, services and labels are hashed in separate domains. Otherwise the heaviest slot of a
//! tenant would be the heaviest for each of its services too.

mod members;
mod table;
mod tables;

use std::borrow::Cow;

use athanor_chassis::TenantId;
use athanor_profile::Labels;
use athanor_profile::encoding::hash::{self, ContentHash};

use crate::NodeId;

pub use members::{
    LeaderCandidate, NotEnoughNodesError, ReplicaCandidate, ShardLeaderView, better_leader, choose_members,
};
pub use table::{MAX_EXCEPTIONS, MAX_SLOTS, SlotTable, SlotTableError, SlotTableSpec};
pub use tables::{MAX_TABLES, SlotTables, SlotTablesError, TenantRoute};

/// Domain of a hash. Equal bytes of different meaning must get different weights.
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

    /// Hashes a key together with an item. The result is the same on every machine.
    fn hash(self, key: ContentHash, of: ContentHash) -> ContentHash {
        let mut content = [0; 32];
        content[..16].copy_from_slice(&key.to_le_bytes());
        content[16..].copy_from_slice(&of.to_le_bytes());
        hash::hash_tagged(self.tag(), &content)
    }
}

/// Weight by which slots are compared. The slot number decides between equal hashes.
fn slot_weight(key: ContentHash, slot: u32) -> (ContentHash, u32) {
    (HashDomain::Slot.hash(key, ContentHash::from(slot)), slot)
}

/// Returns the `count` heaviest slots for a key, at least one. They ascend if `among` ascends.
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

/// Returns the heaviest slot for a key. Callers never pass an empty list; the result would be slot 0.
fn top_slot(key: ContentHash, among: &[u32]) -> u32 {
    among.iter().map(|&slot| slot_weight(key, slot)).max().map_or(0, |(_, slot)| slot)
}

/// Slots of one tenant by one table, chosen once for many profiles.
#[derive(Clone, Debug)]
pub struct TenantSlots<'a> {
    table: &'a SlotTable,
    tenant: &'a TenantId,
    key: ContentHash,
    slots: Cow<'a, [u32]>,
}

impl<'a> TenantSlots<'a> {
    /// Chooses the tenant's slots from a table.
    pub fn from_table(table: &'a SlotTable, tenant: &'a TenantId) -> Self {
        let key = hash::hash_tagged(HashDomain::Tenant.tag(), tenant.as_str().as_bytes());
        let slots = top_slots(key, table.slots(), table.slots_for(tenant));
        TenantSlots { table, tenant, key, slots }
    }

    fn service_key(&self, service: &str) -> ContentHash {
        HashDomain::Service.hash(self.key, hash::hash_bytes(service.as_bytes()))
    }

    /// Returns the slots of a service, ascending.
    pub fn service_slots(&self, service: &str) -> Cow<'_, [u32]> {
        top_slots(self.service_key(service), &self.slots, self.table.slots_for_service(self.tenant, service))
    }

    /// Returns the slot of a series, by its service and all its labels as sent. Relabeled labels change with
    /// the rules, and a retry would then be placed elsewhere.
    pub fn series_slot(&self, service: &str, sent: &Labels) -> u32 {
        if self.table.slots_for_service(self.tenant, service) == 1 {
            return top_slot(self.service_key(service), &self.slots);
        }
        top_slot(HashDomain::Series.hash(self.key, sent.hash()), &self.service_slots(service))
    }
}

/// Returns the slots of a service, ascending.
pub fn service_slots(table: &SlotTable, tenant: &TenantId, service: &str) -> Vec<u32> {
    TenantSlots::from_table(table, tenant).service_slots(service).into_owned()
}

/// Returns the slot of a series, by its service and all its labels as sent.
pub fn series_slot(table: &SlotTable, tenant: &TenantId, service: &str, sent: &Labels) -> u32 {
    TenantSlots::from_table(table, tenant).series_slot(service, sent)
}

/// Returns the nodes of a block in order of preference. If a node leaves, each of its blocks moves to the
/// next node of that block. If a node joins n others, it takes 1 in n + 1 blocks from all of them.
pub fn nodes_of_block(block: u128, nodes: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
    let mut weighed: Vec<(ContentHash, NodeId)> = nodes
        .into_iter()
        .map(|node| (HashDomain::Block.hash(block, ContentHash::from(node)), node))
        .collect();
    weighed.sort_unstable_by(|one, other| other.cmp(one));
    weighed.into_iter().map(|(_, node)| node).collect()
}
