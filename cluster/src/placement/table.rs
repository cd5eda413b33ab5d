//! Slot table: its slots and how tenants and services share them.

use std::collections::BTreeMap;

use athanor_chassis::{ErrorCode, ErrorCodeExt, TenantId};
use serde::{Deserialize, Serialize};

/// Upper bound of slots in a table.
pub const MAX_SLOTS: u32 = 1 << 12;
/// Upper bound of tenants and services together that have their own number of slots.
pub const MAX_EXCEPTIONS: usize = 1 << 14;

/// Unchecked contents of a slot table. Unknown fields are rejected: a field of a later version could move
/// profiles, so a node that does not know it must not place by the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotTableSpec {
    /// Version of the table. Later tables have higher versions.
    pub version: u64,
    /// First profile time for which the table holds, in Unix nanoseconds.
    pub from: i64,
    /// All slots, ascending.
    pub slots: Vec<u32>,
    /// Number of slots per tenant, which limits how many slots one tenant's load reaches.
    pub subset: u16,
    /// Tenants with another number of slots.
    #[serde(default)]
    pub tenants: BTreeMap<TenantId, u16>,
    /// Services with more than one slot, by tenant.
    #[serde(default)]
    pub services: BTreeMap<TenantId, BTreeMap<String, u16>>,
}

/// Slot table with checked contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "SlotTableSpec", into = "SlotTableSpec")]
pub struct SlotTable(SlotTableSpec);

/// Rejection of a slot table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotTableError {
    /// The table has no slots.
    #[error("slot table {version} has no slots, the minimum is 1")]
    Empty {
        /// Version of the table.
        version: u64,
    },
    /// The table has too many slots.
    #[error("slot table {version} has {seen} slots, the limit is {MAX_SLOTS}; use fewer slots")]
    TooManySlots {
        /// Version of the table.
        version: u64,
        /// Number of slots in the table.
        seen: usize,
    },
    /// The slots do not ascend.
    #[error("slot table {version} has slot {slot} after slot {before}; slots must ascend without duplicates")]
    Order {
        /// Version of the table.
        version: u64,
        /// Slot that is out of order.
        slot: u32,
        /// Slot before it.
        before: u32,
    },
    /// A tenant or a service would get 0 slots.
    #[error("slot table {version} has 0 slots for {whom}, the minimum is 1")]
    Zero {
        /// Version of the table.
        version: u64,
        /// Tenant or service with 0 slots.
        whom: String,
    },
    /// Too many tenants and services have their own number of slots.
    #[error(
        "slot table {version} has {seen} tenants and services with their own number of slots, the limit is \
         {MAX_EXCEPTIONS}; list only those that differ"
    )]
    TooManyExceptions {
        /// Version of the table.
        version: u64,
        /// Number of tenants and services with their own number of slots.
        seen: usize,
    },
}

impl SlotTable {
    /// Creates a table in which each tenant has all slots and each service has one.
    pub fn with_all_slots(version: u64, from: i64, slots: Vec<u32>) -> Result<Self, SlotTableError> {
        let subset = u16::MAX;
        SlotTableSpec { version, from, slots, subset, tenants: BTreeMap::new(), services: BTreeMap::new() }
            .try_into()
    }

    /// Version of the table.
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// First profile time for which the table holds, in Unix nanoseconds.
    pub fn from(&self) -> i64 {
        self.0.from
    }

    /// All slots, ascending and never empty.
    pub fn slots(&self) -> &[u32] {
        &self.0.slots
    }

    /// Number of slots of a tenant, which may exceed the slots of the table.
    pub fn slots_for(&self, tenant: &TenantId) -> usize {
        self.0.tenants.get(tenant).copied().unwrap_or(self.0.subset).into()
    }

    /// Number of slots of a service, which may exceed the slots of its tenant.
    pub fn slots_for_service(&self, tenant: &TenantId, service: &str) -> usize {
        let count = self.0.services.get(tenant).and_then(|services| services.get(service));
        count.copied().unwrap_or(1).into()
    }
}

impl TryFrom<SlotTableSpec> for SlotTable {
    type Error = SlotTableError;

    fn try_from(draft: SlotTableSpec) -> Result<Self, SlotTableError> {
        let version = draft.version;
        match draft.slots.len() {
            0 => return Err(SlotTableError::Empty { version }),
            seen if seen > MAX_SLOTS as usize => return Err(SlotTableError::TooManySlots { version, seen }),
            _ => {}
        }
        if let Some(pair) = draft.slots.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(SlotTableError::Order { version, slot: pair[1], before: pair[0] });
        }
        let seen = draft.tenants.len() + draft.services.values().map(BTreeMap::len).sum::<usize>();
        if seen > MAX_EXCEPTIONS {
            return Err(SlotTableError::TooManyExceptions { version, seen });
        }
        match without_slots(&draft) {
            Some(whom) => Err(SlotTableError::Zero { version, whom }),
            None => Ok(SlotTable(draft)),
        }
    }
}

/// Returns a description of the first tenant or service with 0 slots.
fn without_slots(draft: &SlotTableSpec) -> Option<String> {
    if draft.subset == 0 {
        return Some("tenants".to_owned());
    }
    if let Some((tenant, _)) = draft.tenants.iter().find(|(_, count)| **count == 0) {
        return Some(format!("tenant {tenant}"));
    }
    draft.services.iter().find_map(|(tenant, services)| {
        let (service, _) = services.iter().find(|(_, count)| **count == 0)?;
        Some(format!("service {service:?} of tenant {tenant}"))
    })
}

impl From<SlotTable> for SlotTableSpec {
    fn from(table: SlotTable) -> Self {
        table.0
    }
}

impl ErrorCodeExt for SlotTableError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Invalid
    }
}
