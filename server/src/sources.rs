//! Where profiles lie: the one place where the catalogue, the heads and the bucket meet.
//!
//! A plan is one listing and the heads after its watermarks [INV-17]: so every profile is read once, though it may be
//! in a head and in a block at the moment. A head that has let go of what the listing does not know yet means that the
//! listing is old: the plan says so, and whoever asked for it asks for another one [INV-18].

use std::sync::Arc;

use async_trait::async_trait;
use athanor_catalog::{BlockEntry, Catalog, Phase, ProfileTimes, Scar, ShardEntry, ShardId, Wound};
use athanor_chassis::{Status, TenantId, Timestamp};
use athanor_ingester::{Ingester, Moved, View};
use athanor_profile::hash::{self, Hash};
use athanor_profile::normalise::shown_span;
use athanor_querier::{Doubts, InMemory, Plan, Remote, Sources, Times};
use athanor_query::{Ask, Doubles, Place, TimeRange};
use athanor_store_gateway::BlockAt;
use futures::future::{join_all, try_join_all};

use crate::far::{Asking, Beside};
use crate::gateways::{Divided, Gateways, wanted_of};
use crate::telling::span;
use crate::twice::{Span, numbered, shared, told, untold};

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
    views: Vec<(Place, View)>,
    far: Vec<ShardEntry>,
    blocks: Vec<BlockEntry>,
    /// Times of profiles that were removed by age.
    removed: Option<ProfileTimes>,
    missing: Vec<String>,
    moved: Vec<String>,
}

#[async_trait]
impl Sources for Everywhere {
    async fn plan(&self, tenant: &TenantId, ask: &Ask, doubts: &Doubts) -> Result<Plan, Status> {
        let range = ask.selection.time;
        let nowhere = Doubts::default();
        // What is listed once does not count twice.
        let doubts = if ask.counts() { doubts } else { &nowhere };
        let found = self.find(tenant, range).await?;
        let made_of = found.made_of(range);
        let in_heads =
            found.views.iter().filter(|(_, view)| view.times().is_some_and(|times| range.meets(times)));
        let of_heads: u64 = in_heads.map(|(_, view)| view.bytes() as u64).sum();
        let bytes = found.blocks.iter().map(|block| block.bytes_of(tenant)).sum::<u64>() + of_heads;
        let (blocks, shards) = (found.blocks.len(), found.far.len());
        let Telling { sources, wanted, leaders_tell, untold } = found.telling(tenant, ask, doubts);
        let Found { far, removed, mut missing, moved, .. } = found;
        missing.extend(removed.map(removed_by_age));
        let Divided { here: stored, away } = self.gateways.divide(tenant, ask, wanted);
        // Leaders first: they keep what was cut since the listing for a while only.
        let far = self.asking.far(far, leaders_tell, &doubts.doubles);
        let far = far.into_iter().map(|far| Arc::new(far) as Arc<dyn Remote>);
        let remote = far.chain(away).collect();
        Ok(Plan { sources, stored, remote, missing, bytes, moved, made_of, untold, blocks, shards })
    }

    async fn made_of(&self, tenant: &TenantId, range: TimeRange) -> Result<Option<Hash>, Status> {
        let found = self.find(tenant, range).await?;
        let Some(made_of) = found.made_of(range) else { return Ok(None) };
        let far = self.asking.far(found.far, false, &Doubles::default());
        let afar = try_join_all(far.iter().map(|far| far.times(tenant))).await?;
        let has_no_part = |beside: &Beside| {
            let in_memory = beside.times.is_some_and(|times| range.meets(times));
            !in_memory && beside.missing().is_empty() && beside.moved.is_empty()
        };
        Ok(afar.iter().all(has_no_part).then_some(made_of))
    }

    async fn times(&self, tenant: &TenantId) -> Result<Times, Status> {
        let found = self.find(tenant, TimeRange::default()).await?;
        let Found { views, far, blocks, mut missing, mut moved, .. } = found;
        let far = self.asking.far(far, false, &Doubles::default());
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
        let all = views.iter().filter_map(|(_, view)| view.times()).chain(of_blocks).chain(afar);
        Ok(Times { span: span(all.filter_map(shown_span)), missing, moved })
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
                    views.extend(numbered(shard.id, of_shard.views));
                    beside.lost += of_shard.lost;
                    beside.forgets |= of_shard.forgets;
                }
                Some(Err(error)) => moved.push(format!("shard {}: {error}", shard.id)),
            }
        }
        let mut missing = missing(&beside, &listing.scars);
        missing.extend(without(&listing.partial));
        let removed = listing.removed;
        Ok(Found { views, far: away, blocks: listing.blocks, removed, missing, moved })
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
        // A leader without its majority would be waited for here as well.
        let now = self.asking.clock.monotonic();
        if self.asking.outages.unavailable(shard.id, now).is_some() {
            return None;
        }
        // Who was deposed, and does not know it, lacks what others have acknowledged since [INV-17].
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
    /// Which of these places tell what of their profiles: those that hold some of a moment of which others may, too.
    fn telling(&self, tenant: &TenantId, ask: &Ask, doubts: &Doubts) -> Telling {
        let range = ask.selection.time;
        let within = |(first, last): Span| (first.max(range.from), last.min(range.last()));
        let of_block = |block: &BlockEntry| {
            let span = block.span(tenant, range.from, range.last());
            span.map(|span| (span.min_time, span.max_time))
        };
        let of_view = |view: &View| view.times().filter(|times| range.meets(*times)).map(within);
        let views = self.views.iter().map(|(_, view)| of_view(view));
        let blocks = self.blocks.iter().map(|block| of_block(block).map(within));
        // A shard may have profiles of any time, but mostly has late ones only.
        let far = self.far.iter().map(|_| Some((doubts.since, i64::MAX)));
        let all: Vec<Option<Span>> =
            if ask.counts() { views.chain(blocks).chain(far).collect() } else { Vec::new() };
        let mut shared = shared(&all.iter().flatten().copied().collect::<Vec<_>>()).into_iter();
        let mut shared = all.iter().map(|span| span.and_then(|_| shared.next()).flatten());

        let mut telling = Telling::default();
        for (place, view) in &self.views {
            let without = doubts.doubles.at(*place).cloned().unwrap_or_default();
            let tells = shared.next().flatten().is_some() || !without.is_empty();
            if !tells {
                telling.untold = telling.untold.max(of_view(view).map(|span| span.1));
            }
            let tells = tells.then_some(*place);
            telling.sources.push(InMemory { source: Arc::new(view.clone()), tells, without });
        }
        for block in &self.blocks {
            let mut wanted = wanted_of(block, tenant, range.from, range.last());
            let shared = shared.next().flatten();
            if let Some(span) = of_block(block) {
                wanted.tells = shared.map(|shared| told(shared, span));
                if let Some(without) = doubts.doubles.at(Place::Block(block.id.number())) {
                    wanted.without = Arc::clone(without);
                    wanted.tells = Some(TimeRange::default());
                }
                telling.untold = telling.untold.max(untold(wanted.tells, within(span)));
            }
            telling.wanted.push(wanted);
        }
        telling.leaders_tell = shared.any(|shared| shared.is_some());
        telling
    }

    /// Names the blocks, in whichever order: what a block answers is decided by nothing else [INV-19]. None where a
    /// head of this node has part in that time, or something is missing.
    fn made_of(&self, range: TimeRange) -> Option<Hash> {
        let Self { views, blocks, missing, moved, .. } = self;
        let has_part = |(_, view): &(Place, View)| view.times().is_some_and(|times| range.meets(times));
        if !missing.is_empty() || !moved.is_empty() || views.iter().any(has_part) {
            return None;
        }
        let mut ids: Vec<Hash> = blocks.iter().map(|block| block.id.number()).collect();
        ids.sort_unstable();
        Some(hash::list(&ids))
    }
}

/// What the places of a plan tell of their profiles.
#[derive(Default)]
struct Telling {
    sources: Vec<InMemory>,
    wanted: Vec<BlockAt>,
    /// Whether shards tell that others lead.
    leaders_tell: bool,
    /// The last moment of which a place here tells nothing.
    untold: Option<i64>,
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

/// Returns what an answer says of profiles that retention removed.
fn removed_by_age(ProfileTimes { first, last }: ProfileTimes) -> String {
    let [first, last] = [first, last].map(Timestamp::from_nanos);
    format!("profiles from {first} to {last} were removed by age (setting retention)")
}

/// Shards whose rows cannot be told.
fn without(partial: &[ShardId]) -> Option<String> {
    let first = partial.first()?;
    Some(format!(
        "{} shards have no majority of members or were given up, the first is {first}: profiles of theirs that lie in no block are left out",
        partial.len()
    ))
}

/// What an answer lacks [INV-07]. Whose profiles were lost, and of which time, only they could have said.
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
