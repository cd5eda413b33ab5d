//! Table of all functions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_profile::analysis::top_table::{FunctionWeights, function_weights};
use athanor_profile::call_tree::tree::Tree;
use athanor_query::{GroupedTreesQuery, PartialResult, ProfileQuery, QueryKind};

use super::ExploreQuery;
use crate::QueryContext;
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::unexpected_result_type;
use crate::execute::run_query::run_query;
use crate::validate;

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
}

/// Function with its weight in all groups together and in each.
struct FunctionEntry<'t> {
    name: &'t str,
    weights: FunctionWeights,
    of_groups: Vec<(u32, FunctionWeights)>,
}

/// Returns the trees of all groups.
async fn grouped_trees(
    executor: &QueryExecutor,
    reader: &QueryContext,
    asked: ExploreQuery,
    group_by: Vec<String>,
) -> Result<BTreeMap<Labels, Tree>, Status> {
    let what = QueryKind::Trees(GroupedTreesQuery { group_by, stacks: asked.stacks.filter });
    let mut bounds = validate::default_result_limits();
    bounds.entries = MAX_FUNCTION_GROUPS;
    match run_query(executor, reader, ProfileQuery { selection: asked.selection, what, bounds }).await? {
        PartialResult::Trees(trees) => Ok(trees),
        _ => Err(unexpected_result_type()),
    }
}

/// Returns the sorted functions of all groups. A function's values are the sums over its groups, since no
/// stack is in two. The query checked that the values of all groups add up.
fn rank_functions<'t>(
    trees: impl Iterator<Item = &'t Tree>,
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
    let mut functions: Vec<FunctionEntry<'t>> = functions
        .into_iter()
        .map(|(name, of_groups)| FunctionEntry { name, weights: sum(&of_groups), of_groups })
        .collect();
    let self_value = |of: &FunctionEntry<'_>| of.weights.flat.unsigned_abs();
    let total = |of: &FunctionEntry<'_>| of.weights.cum.unsigned_abs();
    // The map iterates in order of names.
    match order {
        FunctionSortOrder::Name => {}
        FunctionSortOrder::SelfValue => functions.sort_by_key(|one| Reverse((self_value(one), total(one)))),
        FunctionSortOrder::Total => functions.sort_by_key(|one| Reverse((total(one), self_value(one)))),
    }
    functions
}
