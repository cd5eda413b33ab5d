//! Call tree as columns, for a client that draws it.

use std::collections::BTreeMap;

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_profile::analysis::frame_origins::FrameOrigins;
use athanor_profile::call_tree::tree::{FrameGrouping, GraphColumns, Tree, TreeBuilder, line_name_bytes};
use athanor_query::{CallSite, MergedProfile, OriginTree};

use super::ExploreQuery;
use super::functions::grouped_trees;
use crate::QueryContext;
use crate::api::merge::{merged_stacks, origin_tree};
use crate::execute::executor::QueryExecutor;
use crate::validate::{NodeLimit, invalid_argument};

mod columns;
mod decode;
mod packed;
mod wire;

pub use columns::encode_graph;
pub use decode::{DecodedGraph, GraphFormatError};
pub use packed::PackedGraph;
pub(crate) use wire::graph;

/// Default number of nodes of a graph.
const DEFAULT_GRAPH_NODES: i64 = 65_536;
/// Maximum number of frames that an inversion visits.
const MAX_INVERTED_FRAMES: usize = 8_000_000;
/// Memory of a node while a tree is inverted or joined with others.
const DRAFT_NODE_BYTES: usize = 48;
/// Memory of the place of a line while origins are found.
const LINE_PLACE_BYTES: usize = 200;
/// First level of profiles without the grouping label.
const NO_LABEL_VALUE: &str = "(none)";

/// Validated form of a graph.
struct GraphShape {
    path: CallSite,
    skip: usize,
    nodes: NodeLimit,
    inverted: bool,
    grouping: FrameGrouping,
    /// Label whose values are the first level. Empty if there is none.
    label: String,
}

/// Stacks of a graph, before they become a tree.
enum GraphStacks {
    /// Tree of functions, and trees by the values of the grouping label if there is one.
    Functions(OriginTree, Option<BTreeMap<Labels, Tree>>),
    /// Stacks with all details, of which lines, files, packages or binaries become frames.
    Locations(Box<MergedProfile>),
}

/// Whole tree of a graph, before a path selects a part of it.
struct GraphTree {
    tree: Tree,
    origins: FrameOrigins,
    /// Number of merged profiles.
    profiles: u64,
}

/// Columns of a graph, and facts about the tree before truncation.
struct DrawnGraph {
    columns: GraphColumns,
    total: i64,
    full_nodes: u64,
    root_callees: u64,
}

/// Loads the stacks of a graph.
async fn load_stacks(
    executor: &QueryExecutor,
    reader: &QueryContext,
    query: &ExploreQuery,
    shape: &GraphShape,
) -> Result<GraphStacks, Status> {
    let selection = query.selection.clone();
    let stacks = query.stacks.clone();
    if shape.grouping != FrameGrouping::Function {
        let merged = merged_stacks(executor, reader, selection, stacks).await?;
        return Ok(GraphStacks::Locations(Box::new(merged)));
    }
    let merged = origin_tree(executor, reader, selection, stacks.filter);
    if shape.label.is_empty() {
        return Ok(GraphStacks::Functions(merged.await?, None));
    }
    let trees = grouped_trees(executor, reader, query.clone(), vec![shape.label.clone()]);
    let (merged, trees) = futures::try_join!(merged, trees)?;
    Ok(GraphStacks::Functions(merged, Some(trees)))
}

impl GraphStacks {
    fn into_tree(
        self,
        executor: &QueryExecutor,
        reader: &QueryContext,
        shape: &GraphShape,
    ) -> Result<GraphTree, Status> {
        match self {
            GraphStacks::Functions(OriginTree { tree, origins, profiles }, by_label) => {
                let tree = match by_label {
                    Some(by_label) => join_groups(executor, reader, shape, &by_label)?,
                    None => invert_if_needed(executor, reader, shape, tree)?,
                };
                Ok(GraphTree { tree, origins: FrameOrigins::from_table(origins), profiles })
            }
            GraphStacks::Locations(merged) => {
                let MergedProfile { dictionary, totals, profiles } = *merged;
                if shape.grouping == FrameGrouping::Line {
                    // Names are made for the tree, and twice for their origins: before and after they are sorted.
                    let names = 3 * line_name_bytes(&dictionary.symbols);
                    let places = dictionary.symbols.locations().len() * LINE_PLACE_BYTES;
                    executor.reserve_memory(reader, names + places)?;
                }
                let tree = Tree::with_frames(&dictionary, &totals, shape.grouping);
                let origins = FrameOrigins::from_totals(&dictionary, &totals, shape.grouping);
                Ok(GraphTree { tree: invert_if_needed(executor, reader, shape, tree)?, origins, profiles })
            }
        }
    }
}

/// Returns a tree with the values of the grouping label as its first level.
fn join_groups(
    executor: &QueryExecutor,
    reader: &QueryContext,
    shape: &GraphShape,
    by_label: &BTreeMap<Labels, Tree>,
) -> Result<Tree, Status> {
    if shape.inverted {
        reserve_inversion(executor, reader, by_label.values().map(Tree::count_inverted_frames).sum())?;
    }
    let nodes: usize = by_label.values().map(|tree| tree.nodes().len() + 1).sum();
    executor.reserve_memory(reader, nodes * DRAFT_NODE_BYTES)?;
    let mut whole = TreeBuilder::default();
    for (labels, tree) in by_label {
        let value = labels.get(&shape.label).filter(|value| !value.is_empty());
        let value = value.unwrap_or(NO_LABEL_VALUE);
        match shape.inverted {
            true => add_below(&mut whole, value, &tree.inverted()),
            false => add_below(&mut whole, value, tree),
        }
    }
    Ok(whole.finish())
}

fn invert_if_needed(
    executor: &QueryExecutor,
    reader: &QueryContext,
    shape: &GraphShape,
    tree: Tree,
) -> Result<Tree, Status> {
    if !shape.inverted {
        return Ok(tree);
    }
    reserve_inversion(executor, reader, tree.count_inverted_frames())?;
    Ok(tree.inverted())
}

/// Returns the columns of the part of a tree that a graph shows.
fn draw(whole: Tree, shape: &GraphShape) -> DrawnGraph {
    let total = whole.total();
    let Some(node) = whole.find(&shape.path) else {
        let columns = GraphColumns::from_tree(&Tree::default());
        return DrawnGraph { columns, total, full_nodes: 0, root_callees: 0 };
    };
    let root_callees = u64::from(whole.nodes()[node as usize].child_count);
    let branch = match (node, shape.skip) {
        (0, 0) => whole,
        _ => whole.subtree(node, shape.skip),
    };
    let full_nodes = branch.nodes().len() as u64;
    // Columns of equally heavy nodes would exceed the limit by any number. The order of `Tree::subtree` breaks ties
    // in the same way, so `skip` continues after the last callee that stays.
    let selection = shape.nodes.select_exactly(&branch);
    DrawnGraph { columns: GraphColumns::from_selection(&branch, selection), total, full_nodes, root_callees }
}

/// Checks that an inversion visits few enough frames, and reserves memory for it.
fn reserve_inversion(executor: &QueryExecutor, reader: &QueryContext, frames: usize) -> Result<(), Status> {
    if frames > MAX_INVERTED_FRAMES {
        return Err(invalid_argument(format!(
            "inverted graph has {frames} frames, the limit is {MAX_INVERTED_FRAMES}; narrow the time range or \
             the selector, or focus on a function"
        )));
    }
    executor.reserve_memory(reader, frames * DRAFT_NODE_BYTES)
}

/// Adds a tree below a child of the root.
fn add_below(whole: &mut TreeBuilder, value: &str, tree: &Tree) {
    let names: Vec<u32> = tree.names().iter().map(|name| whole.name(name)).collect();
    let value = whole.name(value);
    let mut places: Vec<u32> = Vec::with_capacity(tree.nodes().len());
    for node in tree.nodes() {
        let place = match places.get(node.parent as usize) {
            Some(&caller) => whole.child(caller, names[node.name as usize]),
            None => whole.child(TreeBuilder::ROOT_NODE, value),
        };
        whole.add(place, node.self_value);
        places.push(place);
    }
}
