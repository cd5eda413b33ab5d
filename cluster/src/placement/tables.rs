//! Tables that hold one after the other, by the time of profiles.

use std::sync::Arc;

use athanor_chassis::{ErrorCode, ErrorCodeExt, TenantId};
use athanor_profile::Labels;
use serde::{Deserialize, Serialize};

use super::{SlotTable, TenantSlots};

/// The most tables.
pub const MAX_TABLES: usize = 64;

/// Tables by version and by the time from which they hold, both ascending; at least one. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<SlotTable>", into = "Vec<SlotTable>")]
pub struct SlotTables(Vec<Arc<SlotTable>>);

/// Why tables cannot follow each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotTablesError {
    /// No table.
    #[error("there is no table to place profiles by; there must be at least one")]
    Empty,
    /// Too many.
    #[error(
        "{seen} tables are kept, the limit is {MAX_TABLES}; drop those so old that no profile of their time is taken"
    )]
    TooMany {
        /// How many there are.
        seen: usize,
    },
    /// A table that does not follow the one before it.
    #[error(
        "table {version}, from {from} ns on, comes after table {before}, from {before_from} ns on; version and time \
         must ascend"
    )]
    Order {
        /// The table.
        version: u64,
        /// Its time.
        from: i64,
        /// The one before it.
        before: u64,
        /// The time of that one.
        before_from: i64,
    },
}

impl SlotTables {
    /// The table that holds for profiles of a time, Unix nanoseconds: the last that begins at it or before. What is
    /// older than all tables goes by the oldest.
    pub fn table_at(&self, time: i64) -> &SlotTable {
        &self.0[self.position_at(time)]
    }

    /// The tables that hold for profiles from one time to another, both included.
    pub fn tables_between(&self, oldest: i64, newest: i64) -> &[Arc<SlotTable>] {
        let first = self.position_at(oldest);
        &self.0[first..=self.position_at(newest).max(first)]
    }

    /// Where profiles of a tenant go whose times lie between two, both included. Who routes must reckon with clocks that
    /// differ from its own: a time that it takes for too old, and that a shard still accepts, would go by another table
    /// than its repeat.
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

/// Where profiles of one tenant go by all tables in force.
#[derive(Clone, Debug)]
pub struct TenantRoute<'a>(Vec<TenantSlots<'a>>);

impl TenantRoute<'_> {
    /// The slot of a series, where all tables agree: then nobody has to look for the time in the profile.
    pub fn slot(&self, service: &str, sent: &Labels) -> Option<u32> {
        let mut slots = self.0.iter().map(|share| share.series_slot(service, sent));
        let first = slots.next()?;
        slots.all(|slot| slot == first).then_some(first)
    }

    /// The slot of a series for a profile of a time.
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

/// One table for all times.
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
