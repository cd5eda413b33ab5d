//! Profiles merged into one: flame graphs, trees, call graphs, pprof, differences.

use athanor_chassis::Status;
use athanor_profile::dot::{self, StackTotals};
use athanor_profile::tree::Tree;
use athanor_profile::{ProfileHeader, ProfileType};
use athanor_query::{
    GoPgoOptions, MergedProfile, PartialResult, ProfileQuery, ProfileSelection, QueryKind, StackFilter,
};

use crate::validate;
use crate::{Querier, QueryContext, unexpected_result_type};

mod functions;
mod sandwich;
mod tree_bytes;
mod wire;

/// How a file begins to say what it lacks.
pub(crate) const WARNING_PREFIX: &str = "partial: ";

pub(crate) use wire::{MergeStacktracesParams, TREE_NODE_BYTES};

/// Which stacks are asked for, and in which shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct StackOptions {
    pub(crate) filter: StackFilter,
    pub(crate) pgo: Option<GoPgoOptions>,
    /// Whether graphs show each address that has no symbols.
    pub(crate) addresses: bool,
}

impl Querier {
    /// The whole tree: nothing is cut off.
    pub(crate) async fn full_tree(
        &self,
        reader: &QueryContext,
        selection: ProfileSelection,
        stacks: StackOptions,
    ) -> Result<Tree, Status> {
        if stacks.pgo.is_some() || stacks.addresses {
            let addresses = stacks.addresses;
            let merged = self.merged_stacks(reader, selection, stacks).await?;
            let tree = move || match addresses {
                true => Tree::with_addresses(&merged.dictionary, &merged.totals),
                false => Tree::from_totals(&merged.dictionary, &merged.totals),
            };
            return self.render_on_pool(reader, tree).await;
        }
        let ask = ProfileQuery {
            selection,
            what: QueryKind::Tree(stacks.filter),
            bounds: validate::default_result_limits(),
        };
        match self.run_query(reader, ask).await? {
            PartialResult::Tree(tree) => Ok(tree),
            _ => Err(unexpected_result_type()),
        }
    }

    /// All stacks with all that is known of them.
    pub(crate) async fn merged_stacks(
        &self,
        reader: &QueryContext,
        selection: ProfileSelection,
        stacks: StackOptions,
    ) -> Result<MergedProfile, Status> {
        let what = QueryKind::Profile(stacks.filter, stacks.pgo);
        let ask = ProfileQuery { selection, what, bounds: validate::default_result_limits() };
        match self.run_query(reader, ask).await? {
            PartialResult::Profile(merged) => Ok(*merged),
            _ => Err(unexpected_result_type()),
        }
    }
}

impl Querier {
    /// Returns the call graph of a selection in DOT.
    pub(crate) async fn call_graph(
        &self,
        reader: &QueryContext,
        selection: ProfileSelection,
        stacks: StackOptions,
        graph: CallGraphStyle,
    ) -> Result<String, Status> {
        let addresses = stacks.addresses;
        let merged = self.merged_stacks(reader, selection, stacks).await?;
        self.reserve_memory(reader, stack_totals(&merged, addresses).graph_memory())?;
        self.render_on_pool(reader, move || {
            dot::write(stack_totals(&merged, addresses), &graph.unit, graph.max_nodes)
        })
        .await
    }

    /// Returns the call graphs of two selections laid over each other, in DOT.
    pub(crate) async fn call_graph_diff(
        &self,
        reader: &QueryContext,
        [left, right]: [CallGraphQuery; 2],
        graph: CallGraphStyle,
    ) -> Result<String, Status> {
        let addresses = left.stacks.addresses;
        let (left, right) = futures::try_join!(
            self.merged_stacks(reader, left.selection, left.stacks),
            self.merged_stacks(reader, right.selection, right.stacks),
        )?;
        let memory = [&left, &right].map(|side| stack_totals(side, addresses).graph_memory());
        self.reserve_memory(reader, memory.iter().sum())?;
        self.render_on_pool(reader, move || {
            let [left, right] = [&left, &right].map(|side| stack_totals(side, addresses));
            dot::write_diff(left, right, &graph.unit, graph.max_nodes)
        })
        .await
    }
}

/// Of what a call graph is made.
pub(crate) struct CallGraphQuery {
    pub(crate) selection: ProfileSelection,
    pub(crate) stacks: StackOptions,
}

/// How a call graph is drawn.
pub(crate) struct CallGraphStyle {
    /// Of its values.
    pub(crate) unit: String,
    /// Nodes at most.
    pub(crate) max_nodes: usize,
}

fn stack_totals(merged: &MergedProfile, addresses: bool) -> StackTotals<'_> {
    StackTotals { dictionary: &merged.dictionary, totals: &merged.totals, addresses }
}

/// What a merged profile says of itself, once all is read. Its period is one by convention, as uploads may differ in theirs;
/// its comments are what it lacks.
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
        comments: reader.all_warnings().into_iter().map(|words| format!("{WARNING_PREFIX}{words}")).collect(),
        ..ProfileHeader::default()
    }
}
