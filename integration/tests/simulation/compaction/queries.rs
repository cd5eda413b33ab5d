//! Random queries, on blocks and on plain lists.

use std::sync::Arc;

use athanor_block::{Block, TenantBlockSource};
use athanor_catalog::BlockEntry;
use athanor_chassis::{ComputePool, Random};
use athanor_profile::ProfileSource;
use athanor_profile::call_tree::tree::{Tree, TreeNode};
use athanor_profile::store_interface::source::MemorySource;
use athanor_query::{
    DedupSource, DuplicateExclusions, GroupedTreesQuery, HeatmapQuery, LabelValuesQuery, PartialResult,
    ProfileListQuery, ProfileQuery, ProfileSelection, QueryKind, ResultLimits, SourceId, StackFilter,
    TimeGrid, TimeRange, TimeSeriesQuery, run_all,
};

use super::history::{MINUTE, SECOND, SentProfile, TENANTS};

/// Retries after which duplicates must be excluded.
const MAX_DEDUP_ROUNDS: usize = 4;

/// Plain list of a tenant's distinct profiles.
pub struct Expectation<'e> {
    pub tenant: usize,
    pub profiles: Vec<&'e SentProfile>,
    pub now: i64,
}

/// Compares the results of one random query.
pub fn compare_random_query(
    random: &Random,
    expectation: &Expectation<'_>,
    blocks: &[(BlockEntry, Arc<Block>)],
) -> Result<(), String> {
    let query = draw_query(random, expectation);
    let mut list = MemorySource::default();
    for sent in &expectation.profiles {
        list.add(&sent.labels, &sent.profile, sent.id);
    }
    let expected = run_all(&query, [&list as &dyn ProfileSource]).map_err(|error| error.to_string())?;
    let found = query_blocks(&query, expectation.tenant, blocks)?;
    let expected = describe(&expected);
    let found = describe(&found);
    match expected == found {
        true => Ok(()),
        false => Err(format!("{query:?}\nexpected {expected}\nfound    {found}")),
    }
}

/// Queries all blocks as a querier does: until each profile counts once.
fn query_blocks(
    query: &ProfileQuery,
    tenant: usize,
    blocks: &[(BlockEntry, Arc<Block>)],
) -> Result<PartialResult, String> {
    let open = |(entry, block): &(BlockEntry, Arc<Block>)| {
        let source = TenantBlockSource::new(Arc::clone(block), TENANTS[tenant], ComputePool::inline());
        source.map(|source| (SourceId::Block(entry.id.number()), source)).map_err(|error| error.to_string())
    };
    let sources: Vec<(SourceId, TenantBlockSource)> = blocks.iter().map(open).collect::<Result<_, _>>()?;
    let mut exclusions = DuplicateExclusions::default();
    let nothing = athanor_query::ExcludedIds::default();
    for _ in 0..MAX_DEDUP_ROUNDS {
        let each = sources.iter().map(|(place, source)| DedupSource {
            source: source as &dyn ProfileSource,
            tells: Some(*place).filter(|_| query.needs_dedup()),
            without: exclusions.excluded_from(*place).unwrap_or(&nothing),
        });
        let partial = run_all(query, each).map_err(|error| error.to_string())?;
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
    match random.next_below(4) {
        0 => TimeRange::default(),
        // The boundaries of windows, and a nanosecond beside them.
        1 => {
            let end = now.div_euclid(width) * width + random.next_below(3) as i64 - 1;
            TimeRange { from: end - count * width + 1, to: end + 1 }
        }
        _ => {
            let from = now - random.next_below(26 * 3_600) as i64 * SECOND;
            TimeRange { from, to: from + count * width }
        }
    }
}

fn draw_kind(random: &Random, expectation: &Expectation<'_>) -> QueryKind {
    // The first tenant has copies under other label rules. Which labels count is open until they are merged.
    let kinds = if expectation.tenant == 0 { 7 } else { 11 };
    let stacks = StackFilter::default();
    let group_by = [vec![], vec!["pod".to_owned()]][random.next_below(2) as usize].clone();
    let step = [15 * SECOND, MINUTE, 10 * MINUTE, 60 * MINUTE][random.next_below(4) as usize];
    let count = 1 + random.next_below(50);
    let phase = random.next_below(step as u64) as i64 * random.next_below(2) as i64;
    let end = expectation.now.div_euclid(step) * step + phase;
    let steps = TimeGrid { start: end - step * count as i64, step, count };
    match random.next_below(kinds) {
        0 => QueryKind::Tree(stacks),
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
        PartialResult::Trees(trees) => {
            let each = trees.iter().map(|(labels, tree)| format!("{labels:?}\n{}", describe_tree(tree)));
            each.collect::<Vec<_>>().join("\n")
        }
        other => format!("{other:?}"),
    }
}

fn describe_tree(tree: &Tree) -> String {
    let node = |node: &TreeNode| format!("{} {} {}", tree.name(node), node.parent, node.total);
    tree.nodes().iter().map(node).collect::<Vec<_>>().join("\n")
}
