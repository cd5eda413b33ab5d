//! Graph on the wire.

use athanor_chassis::Status;
use athanor_profile::call_tree::tree::FrameGrouping;
use athanor_proto::athanor::v1::{GraphGroupBy, GraphRequest, GraphResponse};

use super::super::averages::value_divisor;
use super::super::period::sampling_period;
use super::super::wire::{parse_enum, parse_query, resolution_text};
use super::columns::encode_graph;
use super::decode::check_text_bytes;
use super::{DEFAULT_GRAPH_NODES, DrawnGraph, GraphShape, GraphTree, draw, load_stacks};
use crate::QueryContext;
use crate::context::result_cache::cached_query::run_cached;
use crate::execute::executor::QueryExecutor;
use crate::validate::{self, invalid_argument};

/// Memory of a node in all columns.
const COLUMN_ENTRY_BYTES: usize = 24;
/// Memory of a name and its origin beside their texts.
const NAME_ENTRY_BYTES: usize = 128;

pub(crate) async fn graph(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: GraphRequest,
) -> Result<GraphResponse, Status> {
    run_cached(executor, reader, "Graph", request, |request| compute_graph(executor, reader, request)).await
}

async fn compute_graph(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: GraphRequest,
) -> Result<GraphResponse, Status> {
    let asked = parse_query(executor, request.query.clone(), "query").await?;
    let shape = parse_shape(executor, reader, request)?;
    let unit = asked.unit();
    let (divisor, period, stacks) = futures::try_join!(
        value_divisor(executor, reader, &asked),
        sampling_period(executor, reader, &asked),
        load_stacks(executor, reader, &asked, &shape),
    )?;
    let job_executor = executor.clone();
    let held = reader.clone();
    executor
        .render_on_pool(reader, move || {
            let GraphTree { tree, origins, profiles } = stacks.into_tree(&job_executor, &held, &shape)?;
            let DrawnGraph { columns, total, full_nodes, root_callees } = draw(tree, &shape);
            let texts: usize = columns.names.iter().map(|name| name.len()).sum();
            let nodes = columns.callees.len();
            let entries = nodes * COLUMN_ENTRY_BYTES;
            let names = columns.names.len() * NAME_ENTRY_BYTES;
            job_executor.reserve_memory(&held, entries + names + 2 * texts)?;
            let response = GraphResponse {
                total,
                unit,
                period,
                profiles,
                full_nodes,
                root_callees,
                warnings: held.warnings(),
                averaged_profiles: divisor.averaged_profiles(),
                resolution: resolution_text(&held),
                ..encode_graph(columns, &origins)
            };
            // Clients reject a longer response.
            check_text_bytes(&response).map_err(|error| {
                let advice = "lower max_nodes or narrow the selector";
                invalid_argument(format!("graph of {nodes} nodes is too large: {error}; {advice}"))
            })?;
            Ok(response)
        })
        .await?
}

/// Checks the form of a graph.
fn parse_shape(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: GraphRequest,
) -> Result<GraphShape, Status> {
    let limits = executor.limits(reader);
    let max_nodes = match (request.max_nodes, request.max_other_ppm) {
        (0, None) => DEFAULT_GRAPH_NODES.min(i64::from(limits.max_flamegraph_nodes_max)),
        (max_nodes, _) => max_nodes,
    };
    let grouping = match parse_enum("group_by", request.group_by)? {
        GraphGroupBy::Function => FrameGrouping::Function,
        GraphGroupBy::Line => FrameGrouping::Line,
        GraphGroupBy::File => FrameGrouping::File,
        GraphGroupBy::Package => FrameGrouping::Package,
        GraphGroupBy::Binary => FrameGrouping::Binary,
    };
    let label = request.group_by_label;
    if !label.is_empty() && grouping != FrameGrouping::Function {
        return Err(invalid_argument(format!(
            "graph is grouped by the label {label:?} and by something else than functions; use one of both"
        )));
    }
    Ok(GraphShape {
        path: validate::parse_call_site(request.path)?,
        skip: request.skip as usize,
        nodes: validate::parse_node_limit(Some(max_nodes), request.max_other_ppm, &limits)?,
        inverted: request.invert,
        grouping,
        label,
    })
}
