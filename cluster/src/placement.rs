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
use athanor_profile::hash::{self, Hash};

use crate::NodeId;

pub use members::{Candidate, Lead, ShardView, TooFew, better_leader, choose_members};
pub use table::{Draft, MAX_EXCEPTIONS, MAX_SLOTS, Table, TableError};
pub use tables::{MAX_TABLES, Route, Tables, TablesError};

/// What is hashed: equal bytes of different meaning must get different weights.
#[derive(Clone, Copy)]
enum Domain {
    Tenant,
    Service,
    Series,
    Slot,
    Member,
    Leader,
    Block,
}

impl Domain {
    fn tag(self) -> u64 {
        u64::from_le_bytes(match self {
            Domain::Tenant => *b"p.tenant",
            Domain::Service => *b"p.servic",
            Domain::Series => *b"p.series",
            Domain::Slot => *b"p.slot..",
            Domain::Member => *b"p.member",
            Domain::Leader => *b"p.leader",
            Domain::Block => *b"p.block.",
        })
    }

    /// The hash of a key and what it is of, the same on any machine.
    fn hash(self, key: Hash, of: Hash) -> Hash {
        let mut content = [0; 32];
        content[..16].copy_from_slice(&key.to_le_bytes());
        content[16..].copy_from_slice(&of.to_le_bytes());
        hash::tagged(self.tag(), &content)
    }
}

/// By which slots are compared; the slot decides between equal hashes.
fn weight(key: Hash, slot: u32) -> (Hash, u32) {
    (Domain::Slot.hash(key, Hash::from(slot)), slot)
}

/// The `count` heaviest slots for a key, ascending as they were given; at least one.
fn best(key: Hash, among: &[u32], count: usize) -> Cow<'_, [u32]> {
    let count = count.max(1);
    if count >= among.len() {
        return Cow::Borrowed(among);
    }
    let mut weighed: Vec<(Hash, u32)> = among.iter().map(|&slot| weight(key, slot)).collect();
    weighed.select_nth_unstable_by(count - 1, |one, other| other.cmp(one));
    let mut slots: Vec<u32> = weighed[..count].iter().map(|&(_, slot)| slot).collect();
    slots.sort_unstable();
    Cow::Owned(slots)
}

/// The heaviest slot for a key. Nobody asks for one of none; the answer would be slot 0.
fn heaviest(key: Hash, among: &[u32]) -> u32 {
    among.iter().map(|&slot| weight(key, slot)).max().map_or(0, |(_, slot)| slot)
}

/// The slots of one tenant by one table: chosen once for many profiles.
#[derive(Clone, Debug)]
pub struct Share<'a> {
    table: &'a Table,
    tenant: &'a TenantId,
    key: Hash,
    slots: Cow<'a, [u32]>,
}

impl<'a> Share<'a> {
    /// The tenant's slots.
    pub fn of(table: &'a Table, tenant: &'a TenantId) -> Self {
        let key = hash::tagged(Domain::Tenant.tag(), tenant.as_str().as_bytes());
        let slots = best(key, table.slots(), table.slots_for(tenant));
        Share { table, tenant, key, slots }
    }

    fn service_key(&self, service: &str) -> Hash {
        Domain::Service.hash(self.key, hash::bytes(service.as_bytes()))
    }

    /// The slots of a service, ascending.
    pub fn slots_of(&self, service: &str) -> Cow<'_, [u32]> {
        best(self.service_key(service), &self.slots, self.table.slots_for_service(self.tenant, service))
    }

    /// The slot of a series, by its service and all its labels as they were sent: what rules make of them changes with
    /// the rules, and then a repeat would go elsewhere.
    pub fn slot_of(&self, service: &str, sent: &Labels) -> u32 {
        if self.table.slots_for_service(self.tenant, service) == 1 {
            return heaviest(self.service_key(service), &self.slots);
        }
        heaviest(Domain::Series.hash(self.key, sent.hash()), &self.slots_of(service))
    }
}

/// The slots of a service, ascending.
pub fn slots_of(table: &Table, tenant: &TenantId, service: &str) -> Vec<u32> {
    Share::of(table, tenant).slots_of(service).into_owned()
}

/// The slot of a series, by its service and all its labels as they were sent.
pub fn slot_of(table: &Table, tenant: &TenantId, service: &str, sent: &Labels) -> u32 {
    Share::of(table, tenant).slot_of(service, sent)
}

/// The nodes that a block belongs to, the first one first. When one leaves, its blocks go to the next one of each; when one
/// joins n others, it takes 1 in n + 1 from all.
pub fn nodes_of_block(block: u128, nodes: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
    let mut weighed: Vec<(Hash, NodeId)> =
        nodes.into_iter().map(|node| (Domain::Block.hash(block, Hash::from(node)), node)).collect();
    weighed.sort_unstable_by(|one, other| other.cmp(one));
    weighed.into_iter().map(|(_, node)| node).collect()
}
