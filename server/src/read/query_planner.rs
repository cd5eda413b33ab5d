//! Planner of queries: combines the catalog, the heads and the block store.
//!
//! A plan consists of one listing and the heads after its watermarks [INV-17]. So every profile is read once,
//! even if it is in a head and in a block at that time.
//! If a head has dropped data that the listing does not contain yet, the listing is stale. The plan reports
//! that, and the querier requests a new plan [INV-18].

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use athanor_catalog::{
    BlockEntry, BlockListing, Catalog, DataLoss, DataLossRecord, ProfileTimeRange, ShardEntry, ShardId,
    ShardPhase,
};
use athanor_chassis::{Status, TenantId, Tier, Timestamp};
use athanor_ingester::{HeadSnapshot, Ingester, ShardReadError};
use athanor_profile::encoding::hash::{self, ContentHash};
use athanor_profile::labeling::normalize::displayable_range;
use athanor_querier::{DataSources, DataTimeRange, DedupHints, InMemorySource, QueryPlan, RemoteSource};
use athanor_query::{DuplicateExclusions, ProfileQuery, SourceId, TierPlan, TimeRange};
use athanor_store_gateway::BlockTarget;
use futures::future::{join_all, try_join_all};

use crate::read::query_planner::tier_reads::{BlockRead, block_times};
use crate::read::remote_heads::{HeadMetadata, RemoteHeadDeps};
use crate::read::store_gateway_router::{BlockAssignment, StoreGatewayRouter};
use crate::rpc::dedup_ranges::{
    NanosSpan, SourceSpan, find_overlaps, number_heads, reported_range, unreported_until,
};
use crate::rpc::head_query_service::enclosing_span;

/// Planner over all sources of profiles.
pub struct QueryPlanner {
    /// Catalog client, local or remote.
    pub catalog: Arc<dyn Catalog>,
    /// Ingester of this node, with its heads. None if this node has no such role.
    pub ingester: Option<Arc<Ingester>>,
    /// Access to heads of other nodes.
    pub asking: RemoteHeadDeps,
    /// Router to the nodes that read blocks.
    pub gateways: StoreGatewayRouter,
}

/// Locations of a tenant's profiles in a time range, from one listing.
struct DataLocations {
    views: Vec<(SourceId, HeadSnapshot)>,
    far: Vec<ShardEntry>,
    blocks: Vec<BlockEntry>,
    /// Time range of profiles that retention removed.
    removed: Option<ProfileTimeRange>,
    /// Latest profile time that retention removed, by tier.
    expired_until: BTreeMap<Tier, i64>,
    warnings: Vec<String>,
    moved: Vec<String>,
}

#[async_trait]
impl DataSources for QueryPlanner {
    async fn plan(
        &self,
        tenant: &TenantId,
        ask: &ProfileQuery,
        doubts: &DedupHints,
    ) -> Result<QueryPlan, Status> {
        let range = ask.selection.time;
        let nowhere = DedupHints::default();
        // Duplicates do not change a listing, so a query that only lists needs no dedup.
        let doubts = if ask.needs_dedup() { doubts } else { &nowhere };
        let found = self.find(tenant, range).await?;
        let made_of = found.made_of(range);
        let in_heads = found
            .views
            .iter()
            .filter(|(_, view)| view.times().is_some_and(|(first, last)| range.overlaps(first, last)));
        let of_heads: u64 = in_heads.map(|(_, view)| view.bytes() as u64).sum();
        let shards = found.far.len();
        let tiers = found.plan_tiers(tenant, ask, doubts);
        let DedupReport { sources, wanted, block_bytes, leaders_tell, untold } =
            found.telling(tenant, ask, doubts, &tiers);
        let bytes = of_heads.saturating_add(block_bytes);
        let blocks = wanted.len();
        let DataLocations { far, removed, mut warnings, moved, .. } = found;
        warnings.extend(removed.map(removed_by_age));
        warnings.extend(tiers.single_profiles_since.map(downsampled_before));
        let resolution = tiers.resolution;
        let BlockAssignment { here: stored, away } = self.gateways.assign_blocks(tenant, ask, wanted);
        // Leaders come first: they retain data flushed since the listing only for a limited time.
        let far = self.asking.group_by_leader(far, leaders_tell, &doubts.doubles);
        let far = far.into_iter().map(|far| Arc::new(far) as Arc<dyn RemoteSource>);
        let remote = far.chain(away).collect();
        Ok(QueryPlan {
            sources,
            stored,
            remote,
            warnings,
            bytes,
            moved,
            made_of,
            untold,
            resolution,
            blocks,
            shards,
        })
    }

    async fn block_provenance(
        &self,
        tenant: &TenantId,
        range: TimeRange,
    ) -> Result<Option<ContentHash>, Status> {
        let found = self.find(tenant, range).await?;
        let Some(made_of) = found.made_of(range) else { return Ok(None) };
        let far = self.asking.group_by_leader(found.far, false, &DuplicateExclusions::default());
        let afar = try_join_all(far.iter().map(|far| far.fetch_metadata(tenant))).await?;
        let has_no_part = |beside: &HeadMetadata| {
            let in_memory = beside.times.is_some_and(|(first, last)| range.overlaps(first, last));
            !in_memory && beside.warnings().is_empty() && beside.moved.is_empty()
        };
        Ok(afar.iter().all(has_no_part).then_some(made_of))
    }

    async fn data_time_range(&self, tenant: &TenantId) -> Result<DataTimeRange, Status> {
        let found = self.find(tenant, TimeRange::default()).await?;
        let DataLocations { views, far, blocks, expired_until, mut warnings, mut moved, .. } = found;
        let far = self.asking.group_by_leader(far, false, &DuplicateExclusions::default());
        let mut afar = Vec::new();
        for beside in join_all(far.iter().map(|far| far.fetch_metadata(tenant))).await {
            match beside {
                Ok(beside) => {
                    afar.extend(beside.times);
                    warnings.extend(beside.warnings());
                    moved.extend(beside.moved);
                }
                Err(status) => return Err(status),
            }
        }
        let expired = expired_until.get(&Tier::Raw).copied();
        let of_blocks = block_times(&blocks, tenant, expired);
        let all = views.iter().filter_map(|(_, view)| view.times()).chain(of_blocks).chain(afar);
        Ok(DataTimeRange {
            span: enclosing_span(all.filter_map(|(first, last)| displayable_range(first, last))),
            warnings,
            moved,
        })
    }
}

impl QueryPlanner {
    async fn find(&self, tenant: &TenantId, range: TimeRange) -> Result<DataLocations, Status> {
        let listing = self.catalog.list_blocks(tenant, range.from, range.last_timestamp()).await;
        let mut listing = listing.map_err(|error| Status::from_error(&error))?;
        let mut views = Vec::new();
        let mut moved = Vec::new();
        let mut away = Vec::new();
        let mut beside = HeadMetadata { lost_entries: listing.lost, ..HeadMetadata::default() };
        // All shards run concurrently, so that a shard that waits for its other members does not delay the
        // others.
        let here = join_all(listing.shards.iter().map(|shard| self.here(shard, tenant))).await;
        for (shard, here) in std::mem::take(&mut listing.shards).into_iter().zip(here) {
            match here {
                None => away.push(shard),
                Some(Ok(of_shard)) => {
                    views.extend(number_heads(shard.id, of_shard.views));
                    beside.lost_entries += of_shard.lost;
                    beside.ids_lost |= of_shard.ids_lost;
                }
                Some(Err(error)) => moved.push(format!("shard {}: {error}", shard.id)),
            }
        }
        let mut warnings = data_loss_warnings(&beside, &listing.data_losses);
        warnings.extend(without(&listing.partial));
        let BlockListing { blocks, removed, expired_until, .. } = listing;
        Ok(DataLocations { views, far: away, blocks, removed, expired_until, warnings, moved })
    }

    /// Returns the data of a shard that this node leads, or None if another node leads it. Only a shard that
    /// serves or has served its slot has readable rows.
    async fn here(
        &self,
        shard: &ShardEntry,
        tenant: &TenantId,
    ) -> Option<Result<LocalShardData, ShardReadError>> {
        match shard.phase {
            // The shard has accepted nothing yet, or cannot know the data of other members.
            ShardPhase::Opening { .. } | ShardPhase::Lost { .. } | ShardPhase::Retired { .. } => {
                return Some(Ok(LocalShardData::default()));
            }
            ShardPhase::Open | ShardPhase::Sealing | ShardPhase::Sealed { .. } => {}
        }
        let ingester = self.ingester.as_ref()?;
        // A leader without a majority would delay the query here as well.
        let now = self.asking.clock.monotonic();
        if self.asking.outages.unavailable(shard.id, now).is_some() {
            return None;
        }
        // A deposed leader that missed its deposition lacks entries acknowledged since [INV-17].
        let views = match ingester.confirm_leadership(shard.id).await {
            Ok(()) => ingester.head_snapshots(shard.id, shard.watermark, tenant),
            Err(moved) => Err(moved),
        };
        match views {
            Ok(views) => {
                let lost = ingester.count_lost_entries(shard.id, shard.watermark);
                Some(Ok(LocalShardData { views, lost, ids_lost: ingester.has_unreported_lost_ids(shard.id) }))
            }
            Err(ShardReadError::Lead { .. })
                if !shard.members.is_empty() && self.asking.ways.remote.is_some() =>
            {
                None
            }
            Err(moved) => Some(Err(moved)),
        }
    }
}

impl DataLocations {
    /// Decides which sources report ids: those with a time range that overlaps with another source. Outputs of
    /// one job share no profile, so their overlaps do not count. Blocks of downsampled tiers have no ids.
    fn telling(
        &self,
        tenant: &TenantId,
        ask: &ProfileQuery,
        doubts: &DedupHints,
        tiers: &TierPlan,
    ) -> DedupReport {
        let range = ask.selection.time;
        let within = |span: NanosSpan| NanosSpan {
            first: span.first.max(range.from),
            last: span.last.min(range.last_timestamp()),
        };
        let reads: Vec<Option<BlockRead>> =
            self.blocks.iter().map(|block| BlockRead::plan(block, tenant, range, tiers)).collect();
        let of_view = |view: &HeadSnapshot| {
            let times = view.times().filter(|&(first, last)| range.overlaps(first, last));
            times.map(|(first, last)| within(NanosSpan { first, last }))
        };
        let views = self.views.iter().map(|(_, view)| of_view(view).map(SourceSpan::unmerged));
        let of_job = |(block, read): (&BlockEntry, &Option<BlockRead>)| {
            let read = read.as_ref().filter(|_| block.tier.is_raw())?;
            Some(SourceSpan { span: read.read_span, job: block.job })
        };
        let blocks = self.blocks.iter().zip(&reads).map(of_job);
        // A shard may have profiles of any time, but usually only recent ones.
        let recent = SourceSpan::unmerged(NanosSpan { first: doubts.since, last: i64::MAX });
        let far = self.far.iter().map(|_| Some(recent));
        let all: Vec<Option<SourceSpan>> =
            if ask.needs_dedup() { views.chain(blocks).chain(far).collect() } else { Vec::new() };
        let mut shared = find_overlaps(&all.iter().flatten().copied().collect::<Vec<_>>()).into_iter();
        let mut shared = all.iter().map(|span| span.and_then(|_| shared.next()).flatten());

        let mut telling = DedupReport::default();
        for (place, view) in &self.views {
            let without = doubts.doubles.excluded_from(*place).cloned().unwrap_or_default();
            let tells = shared.next().flatten().is_some() || !without.is_empty();
            if !tells {
                telling.untold = telling.untold.max(of_view(view).map(|span| span.last));
            }
            let tells = tells.then_some(*place);
            telling.sources.push(InMemorySource { source: Arc::new(view.clone()), tells, without });
        }
        telling.untold = telling.untold.max(tiers.unreported_until);
        for (block, read) in self.blocks.iter().zip(reads) {
            let shared = shared.next().flatten();
            let Some(BlockRead { mut target, span, read_span }) = read else { continue };
            if block.tier.is_raw() {
                target.tells = shared.map(|shared| reported_range(shared, span));
                if let Some(without) = doubts.doubles.excluded_from(SourceId::Block(block.id.number())) {
                    target.without = Arc::clone(without);
                    target.tells = Some(TimeRange::default());
                }
                telling.untold = telling.untold.max(unreported_until(target.tells, read_span));
            }
            telling.block_bytes = telling.block_bytes.saturating_add(block.tenant_bytes(tenant));
            telling.wanted.push(target);
        }
        telling.leaders_tell = shared.any(|shared| shared.is_some());
        telling
    }

    /// Hashes the ids of all listed blocks in any order, and the times of expired tiers. They decide which
    /// blocks are read, and nothing else affects the result of blocks [INV-19]. Returns None if a head of this
    /// node overlaps with the range or if data is missing.
    fn made_of(&self, range: TimeRange) -> Option<ContentHash> {
        let Self { views, blocks, expired_until, warnings, moved, .. } = self;
        let has_part = |(_, view): &(SourceId, HeadSnapshot)| {
            view.times().is_some_and(|(first, last)| range.overlaps(first, last))
        };
        if !warnings.is_empty() || !moved.is_empty() || views.iter().any(has_part) {
            return None;
        }
        let mut ids: Vec<ContentHash> = blocks.iter().map(|block| block.id.number()).collect();
        ids.sort_unstable();
        for (tier, time) in expired_until {
            ids.extend([ContentHash::from(tier.number()), ContentHash::from(time.cast_unsigned())]);
        }
        Some(hash::hash_list(&ids))
    }
}

/// Sources of a plan with the ids they report for dedup.
#[derive(Default)]
struct DedupReport {
    sources: Vec<InMemorySource>,
    /// Blocks that are read.
    wanted: Vec<BlockTarget>,
    /// Bytes of the tenant in these blocks.
    block_bytes: u64,
    /// True if leaders on other nodes report ids.
    leaders_tell: bool,
    /// Last timestamp up to which some local source holds profiles without a report of their ids.
    untold: Option<i64>,
}

/// Data of a shard that this node leads.
#[derive(Default)]
struct LocalShardData {
    views: Vec<HeadSnapshot>,
    lost: u64,
    ids_lost: bool,
}

impl HeadMetadata {
    /// Returns warnings about the data that the result lacks.
    pub fn warnings(&self) -> Vec<String> {
        data_loss_warnings(self, &[])
    }
}

/// Returns the message about profiles that retention removed.
fn removed_by_age(ProfileTimeRange { first, last }: ProfileTimeRange) -> String {
    let [first, last] = [first, last].map(Timestamp::from_nanos);
    format!("profiles from {first} to {last} were removed by retention (retention_period)")
}

/// Returns the message about single profiles that retention removed.
fn downsampled_before(since: i64) -> String {
    let since = Timestamp::from_nanos(since);
    format!("single profiles exist since {since}; older data is downsampled")
}

/// Returns the message about shards with unreadable rows.
fn without(partial: &[ShardId]) -> Option<String> {
    let first = partial.first()?;
    Some(format!(
        "{} shards have no majority of members or were abandoned, the first is {first}; their unflushed profiles are left out",
        partial.len()
    ))
}

/// Returns warnings about the data that the result lacks [INV-07]. Only the lost data itself contained its
/// tenant and its time range.
fn data_loss_warnings(
    HeadMetadata { lost_entries, ids_lost, silent, .. }: &HeadMetadata,
    data_losses: &[DataLossRecord],
) -> Vec<String> {
    let lost = *lost_entries;
    let mut unlisted = 0;
    let mut unknown = 0;
    let mut abandoned = 0;
    let mut ids = *ids_lost;
    for record in data_losses {
        match record.loss {
            DataLoss::MissingBlocks { from, to, .. } => unlisted += to - from,
            DataLoss::UnknownLogRange { .. } => unknown += 1,
            DataLoss::ForgottenIds { .. } => ids = true,
            DataLoss::AbandonedShard { .. } => abandoned += 1,
        }
    }
    let said = [
        (lost > 0).then(|| {
            format!("{lost} acknowledged batches of profiles were lost to disk damage; the result may lack some of them")
        }),
        (unlisted > 0).then(|| {
            format!("{unlisted} acknowledged batches of profiles are in blocks that the catalog lost to damage; the result may lack some of them")
        }),
        (unknown > 0)
            .then(|| format!("the log was damaged in {unknown} places with unknown contents")),
        (abandoned > 0).then(|| {
            format!("{abandoned} shards were abandoned with unflushed profiles; the result may lack some of them")
        }),
        ids.then(|| {
            "profile ids were lost to damage; profiles that clients have retried since may count twice".to_owned()
        }),
    ];
    said.into_iter().flatten().chain(silent.iter().cloned()).collect()
}

mod tier_reads;

#[cfg(test)]
mod job_outputs;
#[cfg(test)]
mod tiers;
