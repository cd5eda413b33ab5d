//! Where profiles lie: the one place where the catalogue, the heads and the bucket meet.
//!
//! A plan is one listing and the heads after its watermarks (E17): so every profile is read once, though it may be in
//! a head and in a block at the moment. A head that has let go of what the listing does not know yet means that the
//! listing is old: it is asked for again (E18).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use athanor_block::{Block, Folder, PartSource};
use athanor_catalog::{BlockEntry, BlockId, Catalog, Scar, Wound};
use athanor_chassis::{Activity, Code, Compute, Status, TenantId};
use athanor_ingester::Ingester;
use athanor_profile::Source;
use athanor_querier::{Plan, Sources};
use athanor_query::TimeRange;
use athanor_storage::Store;
use athanor_storage::path::{FileName, Key, Owner};
use bytes::Bytes;

use crate::cache::Parts;

/// How often a plan is made anew before the answer is that it cannot be made.
const REPLANS: usize = 3;

/// Everything that may hold profiles.
pub struct Everywhere {
    /// The catalogue.
    pub catalog: Arc<dyn Catalog>,
    /// Heads.
    pub ingester: Arc<Ingester>,
    /// Blocks.
    pub store: Store,
    /// Blocks that were read.
    pub parts: Arc<Parts>,
    /// Threads.
    pub compute: Compute,
}

#[async_trait]
impl Sources for Everywhere {
    async fn plan(&self, tenant: &TenantId, range: TimeRange) -> Result<Plan, Status> {
        let last = if range.to == i64::MAX { i64::MAX } else { range.to.saturating_sub(1) };
        let mut moved = None;
        for _ in 0..=REPLANS {
            let listing =
                self.catalog.listing(tenant, range.from, last).await.map_err(|error| Status::of(&error))?;
            let mut sources: Vec<Arc<dyn Source>> = Vec::new();
            let mut lost = listing.lost;
            let heads = listing.shards.iter().try_for_each(|shard| {
                let views = self.ingester.views(shard.id, shard.watermark, tenant)?;
                sources.extend(views.into_iter().map(|view| Arc::new(view) as Arc<dyn Source>));
                lost += self.ingester.lost(shard.id, shard.watermark);
                Ok(())
            });
            if let Err(error) = heads {
                moved = Some(error);
                continue;
            }
            for block in &listing.blocks {
                sources.push(Arc::new(self.part(block, tenant).await?));
            }
            return Ok(Plan { sources, missing: missing(lost, &listing.scars) });
        }
        let why = moved.map_or_else(String::new, |error: athanor_ingester::Moved| error.to_string());
        Err(Status::new(
            Code::Unavailable,
            format!("the plan was overtaken {REPLANS} times: {why}; ask again"),
        ))
    }
}

impl Everywhere {
    async fn part(&self, block: &BlockEntry, tenant: &TenantId) -> Result<PartSource, Status> {
        if let Some(part) = self.parts.get(block.id, tenant) {
            return Ok(part);
        }
        let folder = fetch(&self.store, block.id).await?;
        let (compute, name) = (self.compute.clone(), tenant.to_string());
        let opened = self.compute.run_as(Activity::Query, move || {
            let block = Arc::new(Block::open(Arc::new(folder))?);
            PartSource::new(block, &name, compute)
        });
        let part = opened.await.map_err(|error| Status::of(&error))?.map_err(|error| Status::of(&error))?;
        self.parts.put(block.id, tenant.clone(), part.clone());
        Ok(part)
    }
}

/// What an answer lacks (E7). Whose profiles were lost, and of which time, only they could have said.
fn missing(lost: u64, scars: &[Scar]) -> Vec<String> {
    let (mut unlisted, mut unknown, mut ids) = (0, 0, false);
    for scar in scars {
        match scar.wound {
            Wound::Gap { from, to, .. } => unlisted += to - from,
            Wound::Unknown { .. } => unknown += 1,
            Wound::Ids { .. } => ids = true,
        }
    }
    let said = [
        (lost > 0).then(|| {
            format!("{lost} acknowledged batches of profiles were lost to damage of the disk; some may belong here")
        }),
        (unlisted > 0).then(|| {
            format!("{unlisted} acknowledged batches of profiles lie in blocks that the catalogue lost to damage; some may belong here")
        }),
        (unknown > 0)
            .then(|| format!("the log was damaged in {unknown} places, and it is not known what they held")),
        ids.then(|| {
            "ids of profiles were lost to damage, so that profiles that were sent again since may count twice".to_owned()
        }),
    ];
    said.into_iter().flatten().collect()
}

/// The files of a block, as they were fetched.
struct Fetched(BTreeMap<&'static str, Bytes>);

impl Folder for Fetched {
    fn create(&self, name: &str) -> io::Result<Box<dyn io::Write + Send>> {
        Err(io::Error::other(format!("{name}: what was fetched is only read")))
    }
    fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes> {
        let bytes = self.0.get(name).ok_or(io::ErrorKind::NotFound)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(length);
        if end > bytes.len() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes.slice(start..end)) }
    }
    fn length(&self, name: &str) -> io::Result<u64> {
        Ok(self.0.get(name).ok_or(io::ErrorKind::NotFound)?.len() as u64)
    }
}

/// Reads all files of a block.
async fn fetch(store: &Store, block: BlockId) -> Result<Fetched, Status> {
    let files = athanor_block::FILES.into_iter().chain([athanor_block::META]).map(|file| async move {
        let name = FileName::new(file).map_err(|error| Status::new(Code::Internal, error.to_string()))?;
        let key = Key::Block { owner: Owner::Shared, block: block.number(), file: name };
        let bytes = store.get(&key).await.map_err(|error| Status::of(&error))?;
        Ok::<_, Status>((file, bytes))
    });
    let files = futures::future::try_join_all(files).await?;
    Ok(Fetched(files.into_iter().collect()))
}
