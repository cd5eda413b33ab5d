//! Profiles merged into one: flame graphs, trees, call graphs, pprof, differences.

use athanor_chassis::Status;
use athanor_profile::dot::{self, StackTotals};
use athanor_profile::tree::Tree;
use athanor_profile::{Header, ProfileType};
use athanor_query::{Ask, GoPgo, Merged, Partial, Selection, StackFilter, What};

use crate::check;
use crate::{Querier, Reader, mixed_up};

mod functions;
mod sandwich;
mod tree_bytes;
mod wire;

/// How a file begins to say what it lacks.
pub(crate) const LACKS: &str = "partial: ";

pub(crate) use wire::{BAR, Stacks};

/// Which stacks are asked for, and in which shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct StacksAsked {
    pub(crate) filter: StackFilter,
    pub(crate) pgo: Option<GoPgo>,
    /// Whether graphs show each address that has no symbols.
    pub(crate) addresses: bool,
}

impl Querier {
    /// The whole tree: nothing is cut off.
    pub(crate) async fn tree(
        &self,
        reader: &Reader,
        selection: Selection,
        stacks: StacksAsked,
    ) -> Result<Tree, Status> {
        if stacks.pgo.is_some() || stacks.addresses {
            let addresses = stacks.addresses;
            let merged = self.merged(reader, selection, stacks).await?;
            let tree = move || match addresses {
                true => Tree::with_addresses(&merged.dictionary, &merged.totals),
                false => Tree::from_totals(&merged.dictionary, &merged.totals),
            };
            return self.shape(reader, tree).await;
        }
        let ask = Ask { selection, what: What::Tree(stacks.filter), bounds: check::bounds() };
        match self.ask(reader, ask).await? {
            Partial::Tree(tree) => Ok(tree),
            _ => Err(mixed_up()),
        }
    }

    /// All stacks with all that is known of them.
    pub(crate) async fn merged(
        &self,
        reader: &Reader,
        selection: Selection,
        stacks: StacksAsked,
    ) -> Result<Merged, Status> {
        let what = What::Profile(stacks.filter, stacks.pgo);
        let ask = Ask { selection, what, bounds: check::bounds() };
        match self.ask(reader, ask).await? {
            Partial::Profile(merged) => Ok(*merged),
            _ => Err(mixed_up()),
        }
    }
}

impl Querier {
    /// Returns the call graph of a selection in DOT.
    pub(crate) async fn call_graph(
        &self,
        reader: &Reader,
        selection: Selection,
        stacks: StacksAsked,
        graph: GraphStyle,
    ) -> Result<String, Status> {
        let addresses = stacks.addresses;
        let merged = self.merged(reader, selection, stacks).await?;
        self.make_room(reader, stack_totals(&merged, addresses).graph_memory())?;
        self.shape(reader, move || dot::write(stack_totals(&merged, addresses), &graph.unit, graph.max_nodes))
            .await
    }

    /// Returns the call graphs of two selections laid over each other, in DOT.
    pub(crate) async fn call_graph_diff(
        &self,
        reader: &Reader,
        [left, right]: [GraphQuery; 2],
        graph: GraphStyle,
    ) -> Result<String, Status> {
        let addresses = left.stacks.addresses;
        let (left, right) = futures::try_join!(
            self.merged(reader, left.selection, left.stacks),
            self.merged(reader, right.selection, right.stacks),
        )?;
        let memory = [&left, &right].map(|side| stack_totals(side, addresses).graph_memory());
        self.make_room(reader, memory.iter().sum())?;
        self.shape(reader, move || {
            let [left, right] = [&left, &right].map(|side| stack_totals(side, addresses));
            dot::write_diff(left, right, &graph.unit, graph.max_nodes)
        })
        .await
    }
}

/// Of what a call graph is made.
pub(crate) struct GraphQuery {
    pub(crate) selection: Selection,
    pub(crate) stacks: StacksAsked,
}

/// How a call graph is drawn.
pub(crate) struct GraphStyle {
    /// Of its values.
    pub(crate) unit: String,
    /// Nodes at most.
    pub(crate) max_nodes: usize,
}

fn stack_totals(merged: &Merged, addresses: bool) -> StackTotals<'_> {
    StackTotals { dictionary: &merged.dictionary, totals: &merged.totals, addresses }
}

/// What a merged profile says of itself, once all is read. Its period is one by convention, as uploads may differ in theirs;
/// its comments are what it lacks.
pub(crate) fn header(reader: &Reader, profile_type: &ProfileType, end_nanos: i64) -> Header {
    let period = match profile_type.name.as_str() {
        "process_cpu" => 1_000_000_000,
        "memory" => 512 * 1024,
        _ => 1,
    };
    Header {
        types: vec![profile_type.value.clone()],
        period_type: Some(profile_type.period.clone()),
        period,
        time_nanos: end_nanos,
        default_type: profile_type.value.kind.clone(),
        comments: reader.all_missing().into_iter().map(|words| format!("{LACKS}{words}")).collect(),
        ..Header::default()
    }
}
