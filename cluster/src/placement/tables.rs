//! Tables that hold one after the other, by the time of profiles.

use std::sync::Arc;

use athanor_chassis::{Code, Coded, TenantId};
use athanor_profile::Labels;
use serde::{Deserialize, Serialize};

use super::{Share, Table};

/// The most tables.
pub const MAX_TABLES: usize = 64;

/// Tables by version and by the time from which they hold, both ascending; at least one. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Table>", into = "Vec<Table>")]
pub struct Tables(Vec<Arc<Table>>);

/// Why tables cannot follow each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TablesError {
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

impl Tables {
    /// The table that holds for profiles of a time, Unix nanoseconds: the last that begins at it or before. What is
    /// older than all tables goes by the oldest.
    pub fn of(&self, time: i64) -> &Table {
        &self.0[self.place(time)]
    }

    /// The tables that hold for profiles from one time to another, both included.
    pub fn in_force(&self, oldest: i64, newest: i64) -> &[Arc<Table>] {
        let first = self.place(oldest);
        &self.0[first..=self.place(newest).max(first)]
    }

    /// Where profiles of a tenant go whose times lie between two, both included. Who routes must reckon with clocks that
    /// differ from its own: a time that it takes for too old, and that a shard still accepts, would go by another table
    /// than its repeat.
    pub fn route<'a>(&'a self, tenant: &'a TenantId, oldest: i64, newest: i64) -> Route<'a> {
        Route(self.in_force(oldest, newest).iter().map(|table| Share::of(table, tenant)).collect())
    }

    fn place(&self, time: i64) -> usize {
        self.0.partition_point(|table| table.from() <= time).saturating_sub(1)
    }
}

/// Where profiles of one tenant go by all tables in force.
#[derive(Clone, Debug)]
pub struct Route<'a>(Vec<Share<'a>>);

impl Route<'_> {
    /// The slot of a series, where all tables agree: then nobody has to look for the time in the profile.
    pub fn slot(&self, service: &str, sent: &Labels) -> Option<u32> {
        let mut slots = self.0.iter().map(|share| share.slot_of(service, sent));
        let first = slots.next()?;
        slots.all(|slot| slot == first).then_some(first)
    }

    /// The slot of a series for a profile of a time.
    pub fn slot_at(&self, service: &str, sent: &Labels, time: i64) -> u32 {
        let place = self.0.partition_point(|share| share.table.from() <= time).saturating_sub(1);
        self.0[place].slot_of(service, sent)
    }
}

impl TryFrom<Vec<Table>> for Tables {
    type Error = TablesError;

    fn try_from(tables: Vec<Table>) -> Result<Self, TablesError> {
        match tables.len() {
            0 => return Err(TablesError::Empty),
            seen if seen > MAX_TABLES => return Err(TablesError::TooMany { seen }),
            _ => {}
        }
        let ascend =
            |pair: &&[Table]| pair[0].version() < pair[1].version() && pair[0].from() < pair[1].from();
        if let Some([before, table]) = tables.windows(2).find(|pair| !ascend(pair)) {
            return Err(TablesError::Order {
                version: table.version(),
                from: table.from(),
                before: before.version(),
                before_from: before.from(),
            });
        }
        Ok(Tables(tables.into_iter().map(Arc::new).collect()))
    }
}

/// One table for all times.
impl From<Table> for Tables {
    fn from(table: Table) -> Self {
        Tables(vec![Arc::new(table)])
    }
}

impl From<Tables> for Vec<Table> {
    fn from(tables: Tables) -> Self {
        tables.0.into_iter().map(Arc::unwrap_or_clone).collect()
    }
}

impl Coded for TablesError {
    fn code(&self) -> Code {
        Code::Invalid
    }
}
