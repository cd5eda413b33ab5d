//! Where profiles lie: the one place where the catalogue, the heads and the bucket meet.
//!
//! A plan is one listing and the heads after its watermarks (E17): so every profile is read once, though it may be in
//! a head and in a block at the moment. A head that has let go of what the listing does not know yet means that the
//! listing is old: the plan says so, and whoever asked for it asks for another one (E18).

use std::sync::Arc;

use async_trait::async_trait;
use athanor_catalog::{BlockEntry, Catalog, Scar, Wound};
use athanor_chassis::{Status, TenantId, Timestamp};
use athanor_ingester::{Ingester, View};
use athanor_profile::Source;
use athanor_querier::{Plan, Sources, Stored, Times};
use athanor_query::Ask;

use crate::blocks::{Blocks, Wanted};

/// Everything that may hold profiles.
pub struct Everywhere {
    /// The catalogue.
    pub catalog: Arc<dyn Catalog>,
    /// Heads.
    pub ingester: Arc<Ingester>,
    /// Blocks.
    pub blocks: Arc<Blocks>,
}

/// Where a tenant's profiles of some time lie at a moment.
struct Found {
    views: Vec<View>,
    blocks: Vec<BlockEntry>,
    missing: Vec<String>,
    moved: Vec<String>,
}

#[async_trait]
impl Sources for Everywhere {
    async fn plan(&self, tenant: &TenantId, ask: &Ask) -> Result<Plan, Status> {
        let range = ask.selection.time;
        let last = if range.to == i64::MAX { i64::MAX } else { range.to.saturating_sub(1) };
        let Found { views, blocks, missing, moved } = self.find(tenant, range.from, last).await?;
        let sources = views.into_iter().map(|view| Arc::new(view) as Arc<dyn Source>).collect();
        let wanted = |block: &BlockEntry| {
            let span = block.span(tenant, range.from, last);
            let whole =
                span.is_some_and(|span| range.contains(span.min_time) && range.contains(span.max_time));
            let (blocks, tenant, needs) = (Arc::clone(&self.blocks), tenant.clone(), ask.what.needs());
            Box::new(Wanted { blocks, block: block.id, tenant, needs, whole }) as Box<dyn Stored>
        };
        let stored = blocks.iter().map(wanted).collect();
        Ok(Plan { sources, stored, missing, moved, ..Plan::default() })
    }

    async fn times(&self, tenant: &TenantId) -> Result<Times, Status> {
        let Found { views, blocks, missing, moved } = self.find(tenant, i64::MIN, i64::MAX).await?;
        let of_blocks = blocks.iter().filter_map(|block| block.span(tenant, i64::MIN, i64::MAX));
        let of_blocks = of_blocks.map(|span| (span.min_time, span.max_time));
        let all = views.iter().filter_map(View::times).chain(of_blocks);
        let span = all.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        Ok(Times { span, missing, moved })
    }
}

impl Everywhere {
    async fn find(&self, tenant: &TenantId, from: i64, last: i64) -> Result<Found, Status> {
        let listing = self.catalog.listing(tenant, from, last).await.map_err(|error| Status::of(&error))?;
        let (mut views, mut lost, mut scars) = (Vec::new(), listing.lost, listing.scars);
        let mut moved = Vec::new();
        for shard in &listing.shards {
            // Who was deposed, and does not know it, lacks what others have acknowledged since (E17).
            let confirmed = self.ingester.confirm(shard.id).await;
            match confirmed.and_then(|()| self.ingester.views(shard.id, shard.watermark, tenant)) {
                Ok(of_shard) => views.extend(of_shard),
                Err(error) => moved.push(format!("shard {}: {error}", shard.id)),
            }
            lost += self.ingester.lost(shard.id, shard.watermark);
            if self.ingester.forgets(shard.id) {
                let wound = Wound::Ids { shard: shard.id, to: shard.watermark };
                scars.push(Scar { since: Timestamp::EPOCH, wound });
            }
        }
        Ok(Found { views, blocks: listing.blocks, missing: missing(lost, &scars), moved })
    }
}

/// What an answer lacks (E7). Whose profiles were lost, and of which time, only they could have said.
fn missing(lost: u64, scars: &[Scar]) -> Vec<String> {
    let (mut unlisted, mut unknown, mut abandoned, mut ids) = (0, 0, 0, false);
    for scar in scars {
        match scar.wound {
            Wound::Gap { from, to, .. } => unlisted += to - from,
            Wound::Unknown { .. } => unknown += 1,
            Wound::Ids { .. } => ids = true,
            Wound::Abandoned { .. } => abandoned += 1,
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
        (abandoned > 0).then(|| {
            format!("{abandoned} shards were abandoned with profiles that lie in no block; some may belong here")
        }),
        ids.then(|| {
            "ids of profiles were lost to damage, so that profiles that were sent again since may count twice".to_owned()
        }),
    ];
    said.into_iter().flatten().collect()
}
