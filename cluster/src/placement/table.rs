//! One table: which slots there are and how they are shared out.

use std::collections::BTreeMap;

use athanor_chassis::{ErrorCode, ErrorCodeExt, TenantId};
use serde::{Deserialize, Serialize};

/// The most slots in a table.
pub const MAX_SLOTS: u32 = 1 << 12;
/// The most tenants and services together that have a number of slots of their own.
pub const MAX_EXCEPTIONS: usize = 1 << 14;

/// What a table says, not checked yet. A field that a later version may add could move profiles, so whoever does not
/// know it must not place by the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotTableSpec {
    /// Its number; later tables have higher ones.
    pub version: u64,
    /// The time of profiles, in Unix nanoseconds, from which on it holds.
    pub from: i64,
    /// All slots, ascending.
    pub slots: Vec<u32>,
    /// How many of them a tenant has: so that one tenant's load reaches few others.
    pub subset: u16,
    /// Tenants that have another number.
    #[serde(default)]
    pub tenants: BTreeMap<TenantId, u16>,
    /// Services that have more than one slot.
    #[serde(default)]
    pub services: BTreeMap<TenantId, BTreeMap<String, u16>>,
}

/// A table that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "SlotTableSpec", into = "SlotTableSpec")]
pub struct SlotTable(SlotTableSpec);

/// Why a table cannot be placed by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotTableError {
    /// No slot.
    #[error("table {version} has no slots; it needs at least one")]
    Empty {
        /// The table.
        version: u64,
    },
    /// Too many slots.
    #[error("table {version} has {seen} slots, the limit is {MAX_SLOTS}; give it fewer")]
    TooManySlots {
        /// The table.
        version: u64,
        /// How many it has.
        seen: usize,
    },
    /// Slots that do not ascend.
    #[error("table {version} names slot {slot} after slot {before}; slots must ascend, each named once")]
    Order {
        /// The table.
        version: u64,
        /// The slot.
        slot: u32,
        /// The one before it.
        before: u32,
    },
    /// A tenant or a service without slots.
    #[error("table {version} gives {whom} 0 slots; give at least 1")]
    Zero {
        /// The table.
        version: u64,
        /// Who would have none.
        whom: String,
    },
    /// Too many tenants and services.
    #[error(
        "table {version} has {seen} tenants and services with a number of slots of their own, the limit is \
         {MAX_EXCEPTIONS}; name only those that differ"
    )]
    TooManyExceptions {
        /// The table.
        version: u64,
        /// How many it has.
        seen: usize,
    },
}

impl SlotTable {
    /// A table in which each tenant has all slots, and each service one.
    pub fn with_all_slots(version: u64, from: i64, slots: Vec<u32>) -> Result<Self, SlotTableError> {
        let subset = u16::MAX;
        SlotTableSpec { version, from, slots, subset, tenants: BTreeMap::new(), services: BTreeMap::new() }
            .try_into()
    }

    /// Its number.
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// The time of profiles from which on it holds.
    pub fn from(&self) -> i64 {
        self.0.from
    }

    /// All slots, ascending; never none.
    pub fn slots(&self) -> &[u32] {
        &self.0.slots
    }

    /// How many slots a tenant has, where there are so many.
    pub fn slots_for(&self, tenant: &TenantId) -> usize {
        self.0.tenants.get(tenant).copied().unwrap_or(self.0.subset).into()
    }

    /// How many of its tenant's slots a service has, where there are so many.
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

/// Who is given no slot.
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
