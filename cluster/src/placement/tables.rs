//! Sequence of slot tables, by profile time.

use std::sync::Arc;

use athanor_chassis::{ErrorCode, ErrorCodeExt, TenantId};
use athanor_profile::Labels;
use serde::{Deserialize, Serialize};

use super::{SlotTable, TenantSlots};

/// Upper bound of tables in a sequence.
pub const MAX_TABLES: usize = 64;

/// Slot tables in order of version and first profile time, both ascending; at least one. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<SlotTable>", into = "Vec<SlotTable>")]
pub struct SlotTables(Vec<Arc<SlotTable>>);

/// Rejection of a sequence of tables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotTablesError {
    /// The sequence is empty.
    #[error("no slot table to route profiles, the minimum is 1")]
    Empty,
    /// The sequence has too many tables.
    #[error(
        "{seen} slot tables, the limit is {MAX_TABLES}; drop tables that are older than the ingestion window"
    )]
    TooMany {
        /// Number of tables.
        seen: usize,
    },
    /// A table does not follow the one before it.
    #[error(
        "slot table {version}, from {from} ns on, follows table {before}, from {before_from} ns on; \
         version and time must ascend"
    )]
    Order {
        /// Version of the table.
        version: u64,
        /// First profile time of the table.
        from: i64,
        /// Version of the table before it.
        before: u64,
        /// First profile time of the table before it.
        before_from: i64,
    },
}

impl SlotTables {
    /// Returns the table that holds for a profile time in Unix nanoseconds: the last one that begins at or
    /// before it. For times before all tables it returns the oldest table.
    pub fn table_at(&self, time: i64) -> &SlotTable {
        &self.0[self.position_at(time)]
    }

    /// Returns the tables that hold between two profile times, both included.
    pub fn tables_between(&self, oldest: i64, newest: i64) -> &[Arc<SlotTable>] {
        let first = self.position_at(oldest);
        &self.0[first..=self.position_at(newest).max(first)]
    }

    /// Returns the routes of a tenant for profile times between two bounds, both included. The bounds must
    /// allow for clock skew. Otherwise a router may consider a time too old that a shard still accepts, and
    /// place a duplicate by another table.
    pub fn route<'a>(&'a self, tenant: &'a TenantId, oldest: i64, newest: i64) -> TenantRoute<'a> {
        TenantRoute(
            self.tables_between(oldest, newest)
                .iter()
                .map(|table| TenantSlots::from_table(table, tenant))
                .collect(),
        )
    }

    fn position_at(&self, time: i64) -> usize {
        self.0.partition_point(|table| table.from() <= time).saturating_sub(1)
    }
}

/// Slots of one tenant by all tables in force.
#[derive(Clone, Debug)]
pub struct TenantRoute<'a>(Vec<TenantSlots<'a>>);

impl TenantRoute<'_> {
    /// Returns the slot of a series if all tables agree on it. The caller then need not parse the profile's
    /// time.
    pub fn slot(&self, service: &str, sent: &Labels) -> Option<u32> {
        let mut slots = self.0.iter().map(|share| share.series_slot(service, sent));
        let first = slots.next()?;
        slots.all(|slot| slot == first).then_some(first)
    }

    /// Returns the slot of a series for a profile time.
    pub fn slot_at(&self, service: &str, sent: &Labels, time: i64) -> u32 {
        let place = self.0.partition_point(|share| share.table.from() <= time).saturating_sub(1);
        self.0[place].series_slot(service, sent)
    }
}

impl TryFrom<Vec<SlotTable>> for SlotTables {
    type Error = SlotTablesError;

    fn try_from(tables: Vec<SlotTable>) -> Result<Self, SlotTablesError> {
        match tables.len() {
            0 => return Err(SlotTablesError::Empty),
            seen if seen > MAX_TABLES => return Err(SlotTablesError::TooMany { seen }),
            _ => {}
        }
        let ascend =
            |pair: &&[SlotTable]| pair[0].version() < pair[1].version() && pair[0].from() < pair[1].from();
        if let Some([before, table]) = tables.windows(2).find(|pair| !ascend(pair)) {
            return Err(SlotTablesError::Order {
                version: table.version(),
                from: table.from(),
                before: before.version(),
                before_from: before.from(),
            });
        }
        Ok(SlotTables(tables.into_iter().map(Arc::new).collect()))
    }
}

/// Creates a sequence of one table that holds for all times.
impl From<SlotTable> for SlotTables {
    fn from(table: SlotTable) -> Self {
        SlotTables(vec![Arc::new(table)])
    }
}

impl From<SlotTables> for Vec<SlotTable> {
    fn from(tables: SlotTables) -> Self {
        tables.0.into_iter().map(Arc::unwrap_or_clone).collect()
    }
}

impl ErrorCodeExt for SlotTablesError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Invalid
    }
}
