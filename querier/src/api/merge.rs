//! Merged profiles: flame graphs, trees, call graphs, pprof and differences.

use athanor_chassis::Status;
use athanor_profile::call_tree::tree::{MAX_MAGNITUDE, Tree};
use athanor_profile::render::dot::{self, StackTotals};
use athanor_profile::{ProfileHeader, ProfileType};
use athanor_query::{
    GoPgoOptions, MergedProfile, OriginTree, PartialResult, ProfileQuery, ProfileQueryError,
    ProfileSelection, QueryKind, StackFilter,
};

use crate::QueryContext;
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::unexpected_result_type;
use crate::execute::run_query::run_query;
use crate::validate;

mod functions;
mod sandwich;
mod tree_bytes;
mod wire;

/// Prefix of a warning in a file.
pub(crate) const WARNING_PREFIX: &str = "partial: ";

pub(crate) use wire::{
    MergeStacktracesParams, TREE_NODE_BYTES, diff, merge_stacktraces, merged_tree, parse_stacks,
    parse_stacktraces_request, select_merge_profile, select_merge_span_profile, truncate_tree,
};

/// Filter and form of the merged stacks.
#[derive(Clone, Debug, Default)]
pub(crate) struct StackOptions {
    pub(crate) filter: StackFilter,
    pub(crate) pgo: Option<GoPgoOptions>,
    /// True if graphs show each address without symbols.
    pub(crate) addresses: bool,
}

/// Returns the full tree, without truncation.
pub(crate) async fn full_tree(
    executor: &QueryExecutor,
    reader: &QueryContext,
    selection: ProfileSelection,
    stacks: StackOptions,
) -> Result<Tree, Status> {
    if stacks.pgo.is_some() || stacks.addresses {
        let addresses = stacks.addresses;
        let merged = merged_stacks(executor, reader, selection, stacks).await?;
        let tree = move || match addresses {
            true => Tree::with_addresses(&merged.dictionary, &merged.totals),
            false => Tree::from_totals(&merged.dictionary, &merged.totals),
        };
        return executor.render_on_pool(reader, tree).await;
    }
    let ask = ProfileQuery {
        selection,
        what: QueryKind::Tree(stacks.filter),
        bounds: validate::default_result_limits(),
    };
    match run_query(executor, reader, ask).await? {
        PartialResult::Tree(tree) => Ok(tree),
        _ => Err(unexpected_result_type()),
    }
}

/// Checks that no sum over nodes of two trees together passes 63 bits.
pub(crate) fn check_sums_of_both(left: &Tree, right: &Tree) -> Result<(), Status> {
    check_magnitude(left.magnitude().saturating_add(right.magnitude()), "the values of both sides")
}

/// Checks that sums of some kind of values fit in 63 bits, by the sum of their absolute values.
pub(crate) fn check_magnitude(magnitude: u64, what: &'static str) -> Result<(), Status> {
    match magnitude > MAX_MAGNITUDE {
        true => Err(Status::from_error(&ProfileQueryError::SumTooLarge { what })),
        false => Ok(()),
    }
}

/// Returns all stacks with all their details.
pub(crate) async fn merged_stacks(
    executor: &QueryExecutor,
    reader: &QueryContext,
    selection: ProfileSelection,
    stacks: StackOptions,
) -> Result<MergedProfile, Status> {
    let what = QueryKind::Profile(stacks.filter, stacks.pgo);
    let ask = ProfileQuery { selection, what, bounds: validate::default_result_limits() };
    match run_query(executor, reader, ask).await? {
        PartialResult::Profile(merged) => Ok(*merged),
        _ => Err(unexpected_result_type()),
    }
}

/// Returns the full tree of functions, with a call site from the root on, and their origins.
pub(crate) async fn origin_tree(
    executor: &QueryExecutor,
    reader: &QueryContext,
    selection: ProfileSelection,
    stacks: StackFilter,
) -> Result<OriginTree, Status> {
    let what = QueryKind::OriginTree(stacks);
    let ask = ProfileQuery { selection, what, bounds: validate::default_result_limits() };
    match run_query(executor, reader, ask).await? {
        PartialResult::OriginTree(merged) => Ok(*merged),
        _ => Err(unexpected_result_type()),
    }
}

/// Returns the call graph of a selection in DOT.
pub(crate) async fn call_graph(
    executor: &QueryExecutor,
    reader: &QueryContext,
    selection: ProfileSelection,
    stacks: StackOptions,
    graph: CallGraphStyle,
) -> Result<String, Status> {
    let addresses = stacks.addresses;
    let merged = merged_stacks(executor, reader, selection, stacks).await?;
    executor.reserve_memory(reader, stack_totals(&merged, addresses).graph_memory())?;
    executor
        .render_on_pool(reader, move || {
            dot::write(stack_totals(&merged, addresses), &graph.unit, graph.max_nodes)
        })
        .await
}

/// Returns the call graphs of two selections laid over each other, in DOT.
pub(crate) async fn call_graph_diff(
    executor: &QueryExecutor,
    reader: &QueryContext,
    [left, right]: [CallGraphQuery; 2],
    graph: CallGraphStyle,
) -> Result<String, Status> {
    let addresses = left.stacks.addresses;
    let (left, right) = futures::try_join!(
        merged_stacks(executor, reader, left.selection, left.stacks),
        merged_stacks(executor, reader, right.selection, right.stacks),
    )?;
    let memory = [&left, &right].map(|side| stack_totals(side, addresses).graph_memory());
    executor.reserve_memory(reader, memory.iter().sum())?;
    executor
        .render_on_pool(reader, move || {
            let [left, right] = [&left, &right].map(|side| stack_totals(side, addresses));
            dot::write_diff(left, right, &graph.unit, graph.max_nodes)
        })
        .await
}

/// Input of a call graph.
pub(crate) struct CallGraphQuery {
    pub(crate) selection: ProfileSelection,
    pub(crate) stacks: StackOptions,
}

/// Style of a call graph.
pub(crate) struct CallGraphStyle {
    /// Unit of the values.
    pub(crate) unit: String,
    /// Maximum number of nodes.
    pub(crate) max_nodes: usize,
}

fn stack_totals(merged: &MergedProfile, addresses: bool) -> StackTotals<'_> {
    StackTotals { dictionary: &merged.dictionary, totals: &merged.totals, addresses }
}

/// Returns the header of a merged profile, after all queries of the request. The period follows a convention,
/// because uploads may have different ones. The comments contain the warnings.
pub(crate) fn merged_header(
    reader: &QueryContext,
    profile_type: &ProfileType,
    end_nanos: i64,
) -> ProfileHeader {
    let period = match profile_type.name.as_str() {
        "process_cpu" => 1_000_000_000,
        "memory" => 512 * 1024,
        _ => 1,
    };
    ProfileHeader {
        types: vec![profile_type.value.clone()],
        period_type: Some(profile_type.period.clone()),
        period,
        time_nanos: end_nanos,
        default_type: profile_type.value.kind.clone(),
        comments: reader.warnings().into_iter().map(|warning| format!("{WARNING_PREFIX}{warning}")).collect(),
        ..ProfileHeader::default()
    }
}
