//! Reports of shards from a node's disk, for a catalog that is rebuilt [INV-16].
//!
//! ```text
//!  catalog is lost ─► request ─► shards on disk open ─► majority confirms the commit index ─► report
//! ```
//! No other place knows an unflushed shard, and only its log knows its seal and its ids. If this process
//! never received a view from the catalog, the disk names the shards that are here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use athanor_catalog::{RoutingView, ShardId};
use athanor_chassis::{Disk, Status};
use athanor_cluster::placement::{SlotTable, SlotTables};

use crate::ingester::Ingester;
use crate::ingester::local_report::LocalShardReport;
use crate::ingester::open_error::IngesterOpenError;
use crate::replication::membership::{self, MembershipError};

/// File with the last tables from the catalog.
const TABLES_FILE: &str = "tables.json";
/// Timeout for a majority to confirm the commit index.
const QUORUM_READ_TIMEOUT: Duration = Duration::from_secs(3);

impl Ingester {
    /// Reports on each shard of which this node is a member, open or not.
    pub async fn shard_reports(&self) -> Result<Vec<LocalShardReport>, IngesterOpenError> {
        self.open_by_disk().await?;
        let disk = Arc::clone(&self.parts.deps.consensus.disk);
        let groups = self.groups();
        let clock = &self.parts.deps.clock;
        let asked = groups.iter().map(|group| async move {
            let read = clock.timeout(QUORUM_READ_TIMEOUT, group.log.read_index()).await;
            (group.id, matches!(read, Ok(Ok(_))))
        });
        let whole: BTreeMap<ShardId, bool> = futures::future::join_all(asked).await.into_iter().collect();
        let described = move || {
            let closed = membership::read_all(&*disk)?
                .into_iter()
                .map(|(shard, known)| (shard, known.into_report(shard)));
            let here = groups.iter().map(|group| {
                let whole = whole.get(&group.id).is_some_and(|whole| *whole);
                (group.id, LocalShardReport { whole, ..group.shard_report() })
            });
            let all: BTreeMap<ShardId, LocalShardReport> = closed.chain(here).collect();
            Ok::<_, MembershipError>(all.into_values().collect())
        };
        let described = self.parts.deps.compute.run(described).await?;
        described.map_err(IngesterOpenError::Memberships)
    }

    /// Opens the shards that the disk names, unless the catalog has sent a view.
    async fn open_by_disk(&self) -> Result<(), IngesterOpenError> {
        let taken = self.taken.lock().await;
        if *taken > 0 || self.parts.deps.alone {
            return Ok(());
        }
        let disk = Arc::clone(&self.parts.deps.consensus.disk);
        let known = self.parts.deps.compute.run(move || membership::read_all(&*disk)).await?;
        let known = known.map_err(IngesterOpenError::Memberships)?;
        let logged = self.parts.deps.consensus.log.groups();
        for (shard, known) in known {
            let is_open = self.shards.read().contains_key(&shard);
            if !is_open && known.has_log() && logged.contains(&shard) {
                self.join(known.entry(shard)).await;
            }
        }
        Ok(())
    }

    /// Returns the tables that this node received, from the catalog or before its start.
    pub async fn tables(&self) -> Vec<SlotTable> {
        let told = self.parts.view.read().as_ref().and_then(|view| view.tables.clone());
        let tables = match told {
            Some(tables) => Some(tables),
            None => {
                let disk = Arc::clone(&self.parts.deps.consensus.disk);
                self.parts.deps.compute.run(move || kept(&*disk)).await.ok().flatten()
            }
        };
        tables.map(all).unwrap_or_default()
    }

    /// Writes new tables to disk: a rebuilt catalog that lacked one would place duplicates elsewhere. A
    /// failed write is retried with the next view.
    pub(crate) async fn persist_tables(&self, now: &RoutingView) {
        let newest = |tables: &SlotTables| tables.table_at(i64::MAX).version();
        let kept = self.kept.load(Ordering::Relaxed);
        let tables = now.tables.clone().filter(|tables| newest(tables) != kept);
        let Some(tables) = tables.filter(|_| !self.parts.deps.alone) else { return };
        let disk = Arc::clone(&self.parts.deps.consensus.disk);
        let version = newest(&tables);
        let written = self.parts.deps.compute.run(move || {
            let bytes = serde_json::to_vec(&tables).map_err(|error| error.to_string())?;
            disk.write(TABLES_FILE, &bytes).map_err(|error| Status::from_error(&error).message)
        });
        let written = match written.await {
            Ok(written) => written,
            Err(error) => Err(error.to_string()),
        };
        match written {
            Ok(()) => self.kept.store(version, Ordering::Relaxed),
            Err(error) => tracing::warn!(
                error,
                "failed to store slot tables on this disk, a lost catalog is rebuilt without these tables"
            ),
        }
    }
}

fn all(tables: SlotTables) -> Vec<SlotTable> {
    tables.tables_between(i64::MIN, i64::MAX).iter().map(|table| SlotTable::clone(table)).collect()
}

/// Reads the tables on disk, if there are any.
fn kept(disk: &dyn Disk) -> Option<SlotTables> {
    let names = disk.list().ok()?;
    let bytes = names.iter().any(|name| name == TABLES_FILE).then(|| disk.read(TABLES_FILE))?;
    let read = bytes
        .map_err(|error| error.to_string())
        .and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string()));
    read.inspect_err(|error| tracing::error!(error, "failed to read stored slot tables")).ok()
}
