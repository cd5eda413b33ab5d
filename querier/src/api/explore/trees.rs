//! Parts of the merged tree: around a function, and below a node.

use athanor_chassis::Status;
use athanor_profile::analysis::sandwich::SandwichView;
use athanor_profile::analysis::top_table::function_weights;
use athanor_proto::athanor::v1::{SandwichRequest, SandwichResponse, SubtreeRequest, SubtreeResponse};

use super::averages::value_divisor;
use super::require_function;
use super::wire::{parse_query, resolution_text, wire_tree};
use crate::QueryContext;
use crate::api::merge::full_tree;
use crate::context::result_cache::cached_query::run_cached;
use crate::execute::executor::QueryExecutor;
use crate::validate::{self, invalid_argument};

/// Maximum number of frames that a search for callers visits.
pub(crate) const MAX_CALLER_FRAMES: usize = 8_000_000;
/// Memory of a frame while callers are collected.
const CALLER_FRAME_BYTES: usize = 48;

pub(crate) async fn sandwich(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SandwichRequest,
) -> Result<SandwichResponse, Status> {
    run_cached(executor, reader, "Sandwich", request, |request| compute_sandwich(executor, reader, request))
        .await
}

async fn compute_sandwich(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SandwichRequest,
) -> Result<SandwichResponse, Status> {
    let SandwichRequest { query, function, depth, max_nodes } = request;
    let query = parse_query(executor, query, "query").await?;
    let function = require_function(function)?;
    let max_nodes = validate::parse_max_nodes(Some(max_nodes), &executor.limits(reader))?;
    // The level of the function itself is added to the depth later, without an overflow.
    let depth = if depth == 0 { usize::MAX - 1 } else { depth as usize };
    let unit = query.unit();
    let (divisor, whole) = futures::try_join!(
        value_divisor(executor, reader, &query),
        full_tree(executor, reader, query.selection.clone(), query.stacks.clone()),
    )?;
    let job_executor = executor.clone();
    let held = reader.clone();
    executor.render_on_pool(reader, move || {
        let frames = SandwichView::count_visited_frames(&whole, &function, depth);
        if frames > MAX_CALLER_FRAMES {
            return Err(invalid_argument(format!(
                "callers of the function have {frames} frames, the limit is {MAX_CALLER_FRAMES}; reduce the depth or narrow the time range"
            )));
        }
        job_executor.reserve_memory(&held, frames * CALLER_FRAME_BYTES)?;
        let SandwichView { mut callers, mut callees } = SandwichView::from_tree(&whole, &function, depth);
        let weights = function_weights(&whole).into_iter().find(|(name, _)| *name == function);
        let weights = weights.map(|(_, weights)| weights).unwrap_or_default();
        callers.truncate_with_ties(max_nodes.asked, max_nodes.most);
        callees.truncate_with_ties(max_nodes.asked, max_nodes.most);
        Ok(SandwichResponse {
            self_: divisor.divide(weights.flat),
            total: divisor.divide(weights.cum),
            unit,
            callers: Some(wire_tree(&job_executor, &held, &callers, divisor)?),
            callees: Some(wire_tree(&job_executor, &held, &callees, divisor)?),
            warnings: held.warnings(),
            averaged_profiles: divisor.averaged_profiles(),
            resolution: resolution_text(&held),
            query_total: divisor.divide(whole.total()),
        })
    })
    .await?
}

pub(crate) async fn subtree(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SubtreeRequest,
) -> Result<SubtreeResponse, Status> {
    run_cached(executor, reader, "Subtree", request, |request| compute_subtree(executor, reader, request))
        .await
}

async fn compute_subtree(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SubtreeRequest,
) -> Result<SubtreeResponse, Status> {
    let SubtreeRequest { query, path, skip, max_nodes, max_other_ppm } = request;
    let query = parse_query(executor, query, "query").await?;
    let path = validate::parse_call_site(path)?;
    let nodes = validate::parse_node_limit(Some(max_nodes), max_other_ppm, &executor.limits(reader))?;
    let unit = query.unit();
    // Sources may omit stacks outside the path. They match it before transforms, but the path is one of the rewritten
    // tree.
    let mut stacks = query.stacks.clone();
    if stacks.filter.call_site.is_empty() && stacks.filter.transforms.is_empty() {
        stacks.filter.call_site.clone_from(&path);
    }
    let (divisor, whole) = futures::try_join!(
        value_divisor(executor, reader, &query),
        full_tree(executor, reader, query.selection.clone(), stacks),
    )?;
    let job_executor = executor.clone();
    let held = reader.clone();
    executor
        .render_on_pool(reader, move || {
            let Some(node) = whole.find(&path) else {
                return Ok(SubtreeResponse {
                    unit,
                    warnings: held.warnings(),
                    averaged_profiles: divisor.averaged_profiles(),
                    resolution: resolution_text(&held),
                    ..SubtreeResponse::default()
                });
            };
            let mut branch = whole.subtree(node, skip as usize);
            nodes.truncate(&mut branch);
            let node = &whole.nodes()[node as usize];
            Ok(SubtreeResponse {
                self_: divisor.divide(node.self_value),
                total: divisor.divide(node.total),
                unit,
                callees: u64::from(node.child_count),
                tree: Some(wire_tree(&job_executor, &held, &branch, divisor)?),
                other: divisor.divide(branch.truncated_total()),
                warnings: held.warnings(),
                averaged_profiles: divisor.averaged_profiles(),
                resolution: resolution_text(&held),
            })
        })
        .await?
}
