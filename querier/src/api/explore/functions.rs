//! Table of all functions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_profile::analysis::frame_origins::{FrameOrigin, FrameOrigins};
use athanor_profile::analysis::top_table::{FunctionWeights, function_weights};
use athanor_profile::call_tree::tree::Tree;
use athanor_query::{GroupedTreesQuery, OriginTree, PartialResult, ProfileQuery, QueryKind};

use super::ExploreQuery;
use crate::QueryContext;
use crate::api::merge::origin_tree;
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::unexpected_result_type;
use crate::execute::run_query::run_query;
use crate::validate;
use filter::FunctionMatcher;

mod filter;
mod wire;

pub(crate) use wire::functions;

/// Maximum number of groups of a table.
const MAX_FUNCTION_GROUPS: usize = 1_000;

/// Sort order of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FunctionSortOrder {
    SelfValue,
    Total,
    Name,
    File,
    Binary,
}

/// Function with its weight in all groups together and in each.
struct FunctionEntry<'t> {
    name: &'t str,
    origin: FrameOrigin<'t>,
    weights: FunctionWeights,
    of_groups: Vec<(u32, FunctionWeights)>,
}

/// Data of a table.
struct FunctionTrees {
    origins: FrameOrigins,
    /// Trees of all groups.
    trees: BTreeMap<Labels, Tree>,
}

/// Loads the data of a table. Without groups, the tree with origins suffices.
async fn load_functions(
    executor: &QueryExecutor,
    reader: &QueryContext,
    query: &ExploreQuery,
    group_by: &[String],
) -> Result<FunctionTrees, Status> {
    let merged = origin_tree(executor, reader, query.selection.clone(), query.stacks.filter.clone());
    if group_by.is_empty() {
        let OriginTree { tree, origins, .. } = merged.await?;
        let trees = BTreeMap::from([(Labels::default(), tree)]);
        return Ok(FunctionTrees { origins: FrameOrigins::from_table(origins), trees });
    }
    let trees = grouped_trees(executor, reader, query.clone(), group_by.to_vec());
    let (merged, trees) = futures::try_join!(merged, trees)?;
    Ok(FunctionTrees { origins: FrameOrigins::from_table(merged.origins), trees })
}

/// Returns the trees of all groups.
pub(super) async fn grouped_trees(
    executor: &QueryExecutor,
    reader: &QueryContext,
    query: ExploreQuery,
    group_by: Vec<String>,
) -> Result<BTreeMap<Labels, Tree>, Status> {
    let what = QueryKind::Trees(GroupedTreesQuery { group_by, stacks: query.stacks.filter });
    let mut bounds = validate::default_result_limits();
    bounds.entries = MAX_FUNCTION_GROUPS;
    match run_query(executor, reader, ProfileQuery { selection: query.selection, what, bounds }).await? {
        PartialResult::Trees(trees) => Ok(trees),
        _ => Err(unexpected_result_type()),
    }
}

/// Returns the matching functions of all groups, sorted. A function's values are the sums over its groups, since no
/// stack is in two. The query checked that the values of all groups add up.
fn rank_functions<'t>(
    trees: impl Iterator<Item = &'t Tree>,
    matcher: &FunctionMatcher,
    origins: &'t FrameOrigins,
    order: FunctionSortOrder,
) -> Vec<FunctionEntry<'t>> {
    let mut functions: BTreeMap<&str, Vec<(u32, FunctionWeights)>> = BTreeMap::new();
    for (group, tree) in (0..).zip(trees) {
        for (name, weights) in function_weights(tree) {
            functions.entry(name).or_default().push((group, weights));
        }
    }
    let sum = |of_groups: &[(u32, FunctionWeights)]| {
        of_groups.iter().fold(FunctionWeights::default(), |sum, (_, weights)| FunctionWeights {
            flat: sum.flat + weights.flat,
            cum: sum.cum + weights.cum,
        })
    };
    let matching = functions.into_iter().filter(|(name, _)| matcher.matches(name));
    let entry = |(name, of_groups): (&'t str, Vec<(u32, FunctionWeights)>)| FunctionEntry {
        name,
        origin: origins.get(name),
        weights: sum(&of_groups),
        of_groups,
    };
    let mut functions: Vec<FunctionEntry<'t>> = matching.map(entry).collect();
    let self_value = |of: &FunctionEntry<'_>| of.weights.flat.unsigned_abs();
    let total = |of: &FunctionEntry<'_>| of.weights.cum.unsigned_abs();
    // The map iterates in order of names.
    match order {
        FunctionSortOrder::Name => {}
        FunctionSortOrder::SelfValue => functions.sort_by_key(|one| Reverse((self_value(one), total(one)))),
        FunctionSortOrder::Total => functions.sort_by_key(|one| Reverse((total(one), self_value(one)))),
        FunctionSortOrder::File => functions.sort_by_key(|one| (one.origin.file, Reverse(self_value(one)))),
        FunctionSortOrder::Binary => {
            functions.sort_by_key(|one| (one.origin.binary, Reverse(self_value(one))));
        }
    }
    functions
}

/// Returns the weights of all matching functions together. A stack counts once.
fn matched_weights<'t>(trees: impl Iterator<Item = &'t Tree>, matcher: &FunctionMatcher) -> FunctionWeights {
    let mut sum = FunctionWeights::default();
    for tree in trees {
        let matching: Vec<bool> = tree.names().iter().map(|name| matcher.matches(name)).collect();
        let mut is_inside: Vec<bool> = Vec::with_capacity(tree.nodes().len());
        for (at, node) in tree.nodes().iter().enumerate() {
            let below = is_inside.get(node.parent as usize).copied().unwrap_or(false);
            let matches = at > 0 && matching[node.name as usize];
            // No wrap, since the magnitude of all trees together fits.
            if matches {
                sum.flat += node.self_value;
                sum.cum += if below { 0 } else { node.total };
            }
            is_inside.push(below || matches);
        }
    }
    sum
}
