//! Sandwich view for newer clients: a function between its callers and its callees.

use std::cmp::Reverse;
use std::collections::HashMap;

use athanor_chassis::Status;
use athanor_profile::analysis::sandwich::SandwichView;
use athanor_profile::analysis::top_table::function_weights;
use athanor_profile::call_tree::tree::Tree;
use athanor_proto::querier::v1::{Sandwich as WireSandwich, SandwichNode, SandwichTree};

use super::check_magnitude;
use crate::QueryContext;
use crate::api::explore::MAX_CALLER_FRAMES;
use crate::execute::executor::QueryExecutor;
use crate::validate::{NodeLimit, invalid_argument};

/// Bytes of a frame while a half is built.
const FRAME_BYTES: usize = 80;
/// Bytes of a node, in memory and as text.
const NODE_BYTES: usize = 160;

/// Returns everything around all occurrences of a function. Each half has at most the given number of
/// nodes.
pub(super) async fn sandwich_of(
    executor: &QueryExecutor,
    reader: &QueryContext,
    whole: Tree,
    function: String,
    max_nodes: NodeLimit,
) -> Result<WireSandwich, Status> {
    let job_executor = executor.clone();
    let held = reader.clone();
    executor.render_on_pool(reader, move || {
        let frames = SandwichView::count_visited_frames_of_all(&whole, &function);
        if frames > MAX_CALLER_FRAMES {
            return Err(invalid_argument(format!(
                "callers and callees of the function have {frames} frames, the limit is {MAX_CALLER_FRAMES}; narrow the time range"
            )));
        }
        job_executor.reserve_memory(&held, frames * FRAME_BYTES)?;
        let SandwichView { mut callers, mut callees } = SandwichView::from_all_occurrences(&whole, &function);
        // A stack counts for each occurrence of the function.
        let what = "the callers and callees of the function";
        [&callers, &callees].into_iter().try_for_each(|tree| check_magnitude(tree.magnitude(), what))?;
        let weights = function_weights(&whole).into_iter().find(|(name, _)| *name == function);
        let weights = weights.map(|(_, weights)| weights).unwrap_or_default();
        max_nodes.truncate_exactly(&mut callers);
        max_nodes.truncate_exactly(&mut callees);
        let names: usize = [&callers, &callees].into_iter().flat_map(|tree| tree.names()).map(|name| name.len()).sum();
        job_executor.reserve_memory(&held, names + (callers.nodes().len() + callees.nodes().len()) * NODE_BYTES)?;
        let mut names = SandwichNameTable::default();
        let callers = half(&callers, false, &mut names);
        let callees = half(&callees, true, &mut names);
        let names = names.names;
        Ok(WireSandwich { names, total: weights.cum, self_: weights.flat, callers, callees })
    })
    .await?
}

/// Table of the distinct names of both halves, in order of first use.
#[derive(Default)]
struct SandwichNameTable {
    names: Vec<String>,
    places: HashMap<String, i32>,
}

impl SandwichNameTable {
    fn place(&mut self, name: &str) -> i32 {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        let place = self.names.len() as i32;
        self.places.insert(name.to_owned(), place);
        self.names.push(name.to_owned());
        place
    }
}

/// Returns the nodes of a half, the heaviest of siblings first. None if the function has no sample. Callers
/// have no self values, because those would only show where stacks begin, not calls.
fn half(tree: &Tree, has_self_values: bool, names: &mut SandwichNameTable) -> Option<SandwichTree> {
    let mut nodes = Vec::with_capacity(tree.nodes().len());
    let mut waiting: Vec<u32> = tree.children(0).collect();
    while let Some(at) = waiting.pop() {
        let node = &tree.nodes()[at as usize];
        let name_index = names.place(tree.name(node));
        let self_value = if has_self_values || node.other { node.self_value } else { 0 };
        nodes.push(SandwichNode {
            name_index,
            total: node.total,
            self_value,
            truncated: node.other,
            child_count: node.child_count,
        });
        let mut children: Vec<u32> = tree.children(at).collect();
        // Children are sorted by name already, and the sort is stable.
        children.sort_by_key(|&child| Reverse(tree.nodes()[child as usize].total));
        waiting.extend(children.into_iter().rev());
    }
    (!nodes.is_empty()).then_some(SandwichTree { nodes })
}
