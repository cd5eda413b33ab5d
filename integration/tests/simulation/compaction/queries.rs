//! Random queries, on blocks and on plain lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use athanor_block::{Block, TenantBlockSource};
use athanor_catalog::BlockEntry;
use athanor_chassis::{ComputePool, Random, Tier};
use athanor_profile::ProfileSource;
use athanor_profile::analysis::frame_origins::FrameOrigins;
use athanor_profile::call_tree::tree::{Tree, TreeNode};
use athanor_profile::store_interface::source::MemorySource;
use athanor_query::{
    DedupSource, DuplicateExclusions, GroupedTreesQuery, HeatmapQuery, LabelValuesQuery, PartialResult,
    ProfileListQuery, ProfileQuery, ProfileSelection, QueryKind, ResultLimits, RowTimes, SourceId,
    StackFilter, TierPlan, TierPlanInput, TimeGrid, TimeRange, TimeSeriesPoint, TimeSeriesQuery, run_all,
};

use super::history::{MINUTE, SECOND, SentProfile, TENANTS};

/// Retries after which duplicates must be excluded.
const MAX_DEDUP_ROUNDS: usize = 4;

/// Plain list of a tenant's distinct profiles.
pub struct Expectation<'e> {
    pub tenant: usize,
    pub profiles: Vec<ExpectedProfile<'e>>,
    pub now: i64,
    /// Latest profile time that retention removed, by tier.
    pub expired_until: BTreeMap<Tier, i64>,
}

/// Profile with the places that hold it.
pub struct ExpectedProfile<'e> {
    pub sent: &'e SentProfile,
    /// True if the downsampled tiers hold it.
    pub is_covered: bool,
    /// True if a listed raw block holds it.
    pub is_raw_listed: bool,
}

/// Compares the results of one random query. Returns what was compared.
pub fn compare_random_query(
    random: &Random,
    expectation: &Expectation<'_>,
    blocks: &[(BlockEntry, Arc<Block>)],
) -> Result<&'static str, String> {
    let query = draw_query(random, expectation);
    let plan = plan_tiers(&query, expectation, blocks);
    let found = describe(&query_blocks(&query, &plan, expectation.tenant, blocks)?);
    let compare = |list: &MemorySource, of: &str| {
        let expected = run_all(&query, [list as &dyn ProfileSource]).map_err(|error| error.to_string())?;
        let expected = describe(&expected);
        match expected == found {
            true => Ok(()),
            false => Err(format!("{query:?}\n{plan:?}\nexpected of {of} {expected}\nfound    {found}")),
        }
    };
    compare(&expectation.list_by_plan(&query, &plan)?, "the plan")?;
    // Without expired rows a query returns what it would without tiers.
    if expectation.expired_until.is_empty() {
        let mut list = MemorySource::default();
        for ExpectedProfile { sent, .. } in &expectation.profiles {
            list.add(&sent.labels, &sent.profile, sent.id);
        }
        compare(&list, "the plain list")?;
    }
    let is_downsampled = plan.ranges.keys().any(|tier| !tier.is_raw());
    Ok(match (is_downsampled, expectation.expired_until.is_empty()) {
        (false, _) => "queries of raw rows",
        (true, true) => "queries of tiers",
        (true, false) => "queries of tiers with expired rows",
    })
}

impl Expectation<'_> {
    /// Returns the list of profiles that a plan counts, each once. A covered profile that is read from a bucket has
    /// the time of the bucket's end.
    fn list_by_plan(&self, query: &ProfileQuery, plan: &TierPlan) -> Result<MemorySource, String> {
        let mut list = MemorySource::default();
        for ExpectedProfile { sent, is_covered, is_raw_listed } in &self.profiles {
            if !is_covered {
                list.add(&sent.labels, &sent.profile, sent.id);
                continue;
            }
            let is_read = |tier: &Tier, time: i64| {
                plan.ranges.get(tier).into_iter().flatten().any(|range| range.contains(time))
            };
            let times = Tier::ALL.map(|tier| (tier, tier.bucket_end(sent.time)));
            let mut read = times.into_iter().filter(|(tier, time)| is_read(tier, *time));
            let Some((tier, time)) = read.next() else { continue };
            if let Some((other, _)) = read.next() {
                return Err(format!(
                    "{query:?}\n{plan:?}\nprofile of {} is in {tier} and {other}",
                    sent.time
                ));
            }
            let needs_single = query.required_resolution().single_profiles;
            if tier.is_raw() && !is_raw_listed {
                if needs_single && plan.single_profiles_since.is_some_and(|since| sent.time <= since) {
                    continue;
                }
                return Err(format!("{query:?}\n{plan:?}\nexpired raw profile of {} is planned", sent.time));
            }
            let mut profile = sent.profile.clone();
            profile.header.time_nanos = time;
            list.add(&sent.labels, &profile, sent.id);
        }
        Ok(list)
    }
}

/// Plans the tiers as a querier does.
fn plan_tiers(
    query: &ProfileQuery,
    expectation: &Expectation<'_>,
    blocks: &[(BlockEntry, Arc<Block>)],
) -> TierPlan {
    let mut input = TierPlanInput {
        range: query.selection.time,
        required: query.required_resolution(),
        expired_until: expectation.expired_until.clone(),
        ..TierPlanInput::default()
    };
    for (entry, _) in blocks {
        let rows = row_times(entry, expectation.tenant);
        if !query.selection.time.overlaps(rows.first, rows.last) {
            continue;
        }
        if !entry.tier.is_raw() {
            let all = input.downsampled.entry(entry.tier).or_insert(rows);
            *all = all.union(rows);
        } else if entry.is_covered {
            input.covered_raw.push(rows);
        } else {
            input.uncovered.push(rows);
        }
    }
    input.plan_tiers()
}

fn row_times(entry: &BlockEntry, tenant: usize) -> RowTimes {
    let tenant = TENANTS[tenant].parse().expect("a tenant");
    let span = entry.tenant_span(&tenant).expect("the listing names the tenant");
    RowTimes { first: span.min_time, last: span.max_time }
}

/// Ranges of one block that a query reads.
struct BlockRead {
    place: SourceId,
    tier: Tier,
    source: TenantBlockSource,
    ranges: Vec<TimeRange>,
}

/// Queries the planned ranges of all blocks as a querier does: until each profile counts once.
fn query_blocks(
    query: &ProfileQuery,
    plan: &TierPlan,
    tenant: usize,
    blocks: &[(BlockEntry, Arc<Block>)],
) -> Result<PartialResult, String> {
    let open = |(entry, block): &(BlockEntry, Arc<Block>)| {
        let source = TenantBlockSource::new(Arc::clone(block), TENANTS[tenant], ComputePool::inline());
        let is_uncovered = entry.tier.is_raw() && !entry.is_covered;
        let ranges = match is_uncovered {
            true => vec![query.selection.time],
            false => plan.ranges_within(entry.tier, row_times(entry, tenant)),
        };
        let place = SourceId::Block(entry.id.number());
        let source = source.map_err(|error| error.to_string())?;
        Ok(BlockRead { place, tier: entry.tier, source, ranges })
    };
    let reads: Vec<BlockRead> = blocks.iter().map(open).collect::<Result<_, String>>()?;
    let mut exclusions = DuplicateExclusions::default();
    let nothing = athanor_query::ExcludedIds::default();
    for _ in 0..MAX_DEDUP_ROUNDS {
        let mut partial = PartialResult::empty(&query.what);
        for BlockRead { place, tier, source, ranges } in &reads {
            for range in ranges {
                let mut of_range = query.clone();
                of_range.selection.time = *range;
                let source = DedupSource {
                    source: source as &dyn ProfileSource,
                    tells: Some(*place).filter(|_| query.needs_dedup() && tier.is_raw()),
                    without: exclusions.excluded_from(*place).unwrap_or(&nothing),
                };
                let next = source.query_source(&of_range).map_err(|error| error.to_string())?;
                partial = partial.merge(next, &query.bounds).map_err(|error| error.to_string())?;
            }
        }
        let (partial, ids) = partial.split_ids();
        match ids.check_counted_once(&exclusions) {
            Ok(()) => return Ok(partial),
            Err(found) => exclusions = found,
        }
    }
    Err("duplicates change with each retry".to_owned())
}

fn draw_query(random: &Random, expectation: &Expectation<'_>) -> ProfileQuery {
    let time = draw_range(random, expectation.now);
    let selector = ["{}", r#"{pod="pod-1"}"#, r#"{service_name="service-0"}"#, r#"{pod!~"pod-[02]"}"#];
    let selector = selector[random.next_below(4) as usize].parse().expect("a selector");
    let selection = ProfileSelection { selector, time, ..ProfileSelection::default() };
    ProfileQuery { selection, what: draw_kind(random, expectation), bounds: ResultLimits::default() }
}

fn draw_range(random: &Random, now: i64) -> TimeRange {
    let width = [MINUTE, 10 * MINUTE, 60 * MINUTE, 24 * 60 * MINUTE][random.next_below(4) as usize];
    let count = 1 + random.next_below(4) as i64;
    match random.next_below(5) {
        0 => TimeRange::default(),
        // The boundaries of windows, and a nanosecond beside them.
        1 => {
            let end = now.div_euclid(width) * width + random.next_below(3) as i64 - 1;
            TimeRange { from: end - count * width + 1, to: end + 1 }
        }
        // Days of which raw rows may have expired.
        2 => {
            let from = now - random.next_below(14 * 24 * 3_600) as i64 * SECOND;
            TimeRange { from, to: from + count * 24 * 60 * MINUTE }
        }
        _ => {
            let from = now - random.next_below(26 * 3_600) as i64 * SECOND;
            TimeRange { from, to: from + count * width }
        }
    }
}

fn draw_kind(random: &Random, expectation: &Expectation<'_>) -> QueryKind {
    // The first tenant has copies under other label rules. Which labels count is open until they are merged.
    let kinds = if expectation.tenant == 0 { 7 } else { 12 };
    let stacks = StackFilter::default();
    let group_by = [vec![], vec!["pod".to_owned()]][random.next_below(2) as usize].clone();
    let step = [15 * SECOND, MINUTE, 10 * MINUTE, 60 * MINUTE][random.next_below(4) as usize];
    let count = 1 + random.next_below(50);
    let phase = random.next_below(step as u64) as i64 * random.next_below(2) as i64;
    let end = expectation.now.div_euclid(step) * step + phase;
    let steps = TimeGrid { start: end - step * count as i64, step, count };
    match random.next_below(kinds) {
        0 => [QueryKind::Tree(stacks.clone()), QueryKind::OriginTree(stacks)][random.next_below(2) as usize]
            .clone(),
        1 => QueryKind::Profile(stacks, None),
        2 => QueryKind::Points(TimeSeriesQuery { steps, group_by, stacks, mean: true, exemplars: false }),
        3 => QueryKind::Heat(HeatmapQuery { steps, group_by, spans: false, exemplars: false }),
        4 => QueryKind::Trees(GroupedTreesQuery { group_by, stacks }),
        5 => {
            QueryKind::LabelValues(LabelValuesQuery { name: "pod".to_owned(), ..LabelValuesQuery::default() })
        }
        6 => QueryKind::Series(vec!["pod".to_owned()]),
        7 => QueryKind::Points(TimeSeriesQuery { steps, group_by, stacks, mean: false, exemplars: true }),
        8 => QueryKind::Profiles(ProfileListQuery { keep: 100, ..ProfileListQuery::default() }),
        9 => QueryKind::LabelNames,
        10 => QueryKind::LabelNameCounts { prefix: String::new() },
        _ => QueryKind::ProfileTypes,
    }
}

/// Describes a result independent of the numbering of its tables.
fn describe(partial: &PartialResult) -> String {
    match partial {
        PartialResult::Tree(tree) => describe_tree(tree),
        PartialResult::Profile(merged) => {
            let tree = Tree::from_totals(&merged.dictionary, &merged.totals);
            format!("{} profiles\n{}", merged.profiles, describe_tree(&tree))
        }
        PartialResult::OriginTree(merged) => {
            let origins = FrameOrigins::from_table(merged.origins.clone());
            let names = merged.tree.names().iter().map(|name| origins.get(name));
            let names: Vec<_> = names.collect();
            format!("{} profiles {names:?}\n{}", merged.profiles, describe_tree(&merged.tree))
        }
        PartialResult::Trees(trees) => {
            let each = trees.iter().map(|(labels, tree)| format!("{labels:?}\n{}", describe_tree(tree)));
            each.collect::<Vec<_>>().join("\n")
        }
        PartialResult::Points(groups) => {
            let point = |(point, cell): (&u64, &TimeSeriesPoint)| {
                let profiles = cell.profiles.len() as u64 + cell.downsampled.profiles;
                format!("{point}: {} of {profiles}, {:?}", cell.sum, cell.exemplar)
            };
            let each = groups.iter().map(|(labels, cells)| {
                format!("{labels:?} {:?}", cells.iter().map(point).collect::<Vec<_>>())
            });
            each.collect::<Vec<_>>().join("\n")
        }
        other => format!("{other:?}"),
    }
}

fn describe_tree(tree: &Tree) -> String {
    let node = |node: &TreeNode| format!("{} {} {}", tree.name(node), node.parent, node.total);
    tree.nodes().iter().map(node).collect::<Vec<_>>().join("\n")
}
