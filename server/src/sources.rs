//! Where profiles lie: the one place where the catalogue, the heads and the bucket meet.
//!
//! A plan is one listing and the heads after its watermarks (E17): so every profile is read once, though it may be in
//! a head and in a block at the moment. A head that has let go of what the listing does not know yet means that the
//! listing is old: the plan says so, and whoever asked for it asks for another one (E18).

use std::sync::Arc;

use async_trait::async_trait;
use athanor_catalog::{BlockEntry, Catalog, Phase, Scar, ShardEntry, ShardId, Wound};
use athanor_chassis::{Status, TenantId};
use athanor_ingester::{Ingester, Moved, View};
use athanor_profile::Source;
use athanor_profile::hash::{self, Hash};
use athanor_querier::{Plan, Remote, Sources, Times};
use athanor_query::{Ask, TimeRange};
use futures::future::{join_all, try_join_all};

use crate::far::{Asking, Beside, Far};
use crate::gateways::{Divided, Gateways, wanted_of};
use crate::telling::span;

/// Everything that may hold profiles.
pub struct Everywhere {
    /// The catalogue.
    pub catalog: Arc<dyn Catalog>,
    /// Heads of this node.
    pub ingester: Option<Arc<Ingester>>,
    /// Those of others.
    pub asking: Asking,
    /// Blocks.
    pub gateways: Gateways,
}

/// Where a tenant's profiles of some time lie at a moment.
struct Found {
    views: Vec<View>,
    far: Vec<Far>,
    blocks: Vec<BlockEntry>,
    missing: Vec<String>,
    moved: Vec<String>,
}

#[async_trait]
impl Sources for Everywhere {
    async fn plan(&self, tenant: &TenantId, ask: &Ask) -> Result<Plan, Status> {
        let range = ask.selection.time;
        let found = self.find(tenant, range).await?;
        let made_of = found.made_of(range);
        let Found { views, far, blocks, missing, moved } = found;
        let in_heads = views.iter().filter(|view| view.times().is_some_and(|times| range.meets(times)));
        let of_heads: u64 = in_heads.map(|view| view.bytes() as u64).sum();
        let sources = views.into_iter().map(|view| Arc::new(view) as Arc<dyn Source>).collect();
        let wanted = blocks.iter().map(|block| wanted_of(block, tenant, range.from, range.last()));
        let Divided { here: stored, away } = self.gateways.divide(tenant, ask, wanted);
        // Leaders first: they keep what was cut since the listing for a while only.
        let shards = far.iter().map(Far::count).sum();
        let far = far.into_iter().map(|far| Arc::new(far) as Arc<dyn Remote>);
        let remote = far.chain(away).collect();
        let bytes = blocks.iter().map(|block| block.bytes_of(tenant)).sum::<u64>() + of_heads;
        let blocks = blocks.len();
        Ok(Plan { sources, stored, remote, missing, bytes, moved, made_of, blocks, shards })
    }

    async fn made_of(&self, tenant: &TenantId, range: TimeRange) -> Result<Option<Hash>, Status> {
        let found = self.find(tenant, range).await?;
        let Some(made_of) = found.made_of(range) else { return Ok(None) };
        let afar = try_join_all(found.far.iter().map(|far| far.times(tenant))).await?;
        let has_no_part = |beside: &Beside| {
            let in_memory = beside.times.is_some_and(|times| range.meets(times));
            !in_memory && beside.missing().is_empty() && beside.moved.is_empty()
        };
        Ok(afar.iter().all(has_no_part).then_some(made_of))
    }

    async fn times(&self, tenant: &TenantId) -> Result<Times, Status> {
        let found = self.find(tenant, TimeRange::default()).await?;
        let Found { views, far, blocks, mut missing, mut moved } = found;
        let mut afar = Vec::new();
        for beside in join_all(far.iter().map(|far| far.times(tenant))).await {
            match beside {
                Ok(beside) => {
                    afar.extend(beside.times);
                    missing.extend(beside.missing());
                    moved.extend(beside.moved);
                }
                Err(status) => return Err(status),
            }
        }
        let of_blocks = blocks.iter().filter_map(|block| block.span(tenant, i64::MIN, i64::MAX));
        let of_blocks = of_blocks.map(|span| (span.min_time, span.max_time));
        let all = views.iter().filter_map(View::times).chain(of_blocks).chain(afar);
        Ok(Times { span: span(all), missing, moved })
    }
}

impl Everywhere {
    async fn find(&self, tenant: &TenantId, range: TimeRange) -> Result<Found, Status> {
        let listing = self.catalog.listing(tenant, range.from, range.last()).await;
        let listing = listing.map_err(|error| Status::of(&error))?;
        let (mut views, mut moved, mut away) = (Vec::new(), Vec::new(), Vec::new());
        let mut beside = Beside { lost: listing.lost, ..Beside::default() };
        // All at once: a shard that waits for an answer of its other members keeps no other waiting.
        let here = join_all(listing.shards.iter().map(|shard| self.here(shard, tenant))).await;
        for (shard, here) in listing.shards.into_iter().zip(here) {
            match here {
                None => away.push(shard),
                Some(Ok(of_shard)) => {
                    views.extend(of_shard.views);
                    beside.lost += of_shard.lost;
                    beside.forgets |= of_shard.forgets;
                }
                Some(Err(error)) => moved.push(format!("shard {}: {error}", shard.id)),
            }
        }
        let mut missing = missing(&beside, &listing.scars);
        missing.extend(without(&listing.partial));
        let far = self.asking.far(away);
        Ok(Found { views, far, blocks: listing.blocks, missing, moved })
    }

    /// What a shard has that this node leads; none where another does. Only who serves or has served its slot has rows
    /// that can be told.
    async fn here(&self, shard: &ShardEntry, tenant: &TenantId) -> Option<Result<Here, Moved>> {
        match shard.phase {
            // It has accepted nothing yet; or does not know what others hold by now.
            Phase::Opening { .. } | Phase::Lost { .. } | Phase::Retired { .. } => {
                return Some(Ok(Here::default()));
            }
            Phase::Open | Phase::Closing | Phase::Sealed { .. } => {}
        }
        let ingester = self.ingester.as_ref()?;
        // Who was deposed, and does not know it, lacks what others have acknowledged since (E17).
        let views = match ingester.confirm(shard.id).await {
            Ok(()) => ingester.views(shard.id, shard.watermark, tenant),
            Err(moved) => Err(moved),
        };
        match views {
            Ok(views) => {
                let lost = ingester.lost(shard.id, shard.watermark);
                Some(Ok(Here { views, lost, forgets: ingester.forgets(shard.id) }))
            }
            Err(Moved::Lead { .. }) if !shard.members.is_empty() && self.asking.ways.afar.is_some() => None,
            Err(moved) => Some(Err(moved)),
        }
    }
}

impl Found {
    /// Names the blocks, in whichever order: what a block answers is decided by nothing else (E19). None where a head of this
    /// node has part in that time, or something is missing.
    fn made_of(&self, range: TimeRange) -> Option<Hash> {
        let Self { views, blocks, missing, moved, .. } = self;
        let has_part = |view: &View| view.times().is_some_and(|times| range.meets(times));
        if !missing.is_empty() || !moved.is_empty() || views.iter().any(has_part) {
            return None;
        }
        let mut ids: Vec<Hash> = blocks.iter().map(|block| block.id.number()).collect();
        ids.sort_unstable();
        Some(hash::list(&ids))
    }
}

/// What this node has of a shard.
#[derive(Default)]
struct Here {
    views: Vec<View>,
    lost: u64,
    forgets: bool,
}

impl Beside {
    /// What an answer lacks for it, in words.
    pub fn missing(&self) -> Vec<String> {
        missing(self, &[])
    }
}

/// Shards whose rows cannot be told.
fn without(partial: &[ShardId]) -> Option<String> {
    let first = partial.first()?;
    Some(format!(
        "{} shards have no majority of members or were given up, the first is {first}: profiles of theirs that lie in no block are left out",
        partial.len()
    ))
}

/// What an answer lacks (E7). Whose profiles were lost, and of which time, only they could have said.
fn missing(Beside { lost, forgets, silent, .. }: &Beside, scars: &[Scar]) -> Vec<String> {
    let lost = *lost;
    let (mut unlisted, mut unknown, mut abandoned, mut ids) = (0, 0, 0, *forgets);
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
    said.into_iter().flatten().chain(silent.iter().cloned()).collect()
}
