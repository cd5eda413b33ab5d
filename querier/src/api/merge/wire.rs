//! Merged profiles on the wire.

use athanor_chassis::{ErrorCode, Status};
use athanor_profile::analysis::diff::DiffTree;
use athanor_profile::call_tree::flamegraph::Flamegraph;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::formats::pprof;
use athanor_proto::google::v1::{Mapping, Profile};
use athanor_proto::querier::v1::{
    DiffRequest, DiffResponse, FlameGraph, FlameGraphDiff, Level, PprofProfile, ProfileFormat,
    SelectMergeProfileRequest, SelectMergeSpanProfileRequest, SelectMergeSpanProfileResponse,
    SelectMergeStacktracesRequest, SelectMergeStacktracesResponse,
};
use athanor_proto::types::v1::{GoPgo as WireGoPgo, StackTraceSelector};
use athanor_query::{FrameFilter, FramePatterns, GoPgoOptions, MergedProfile, ProfileSelection, StackFilter};
use prost::Message;

use super::functions::{function_table, function_table_diff, row_limit};
use super::sandwich::sandwich_of;
use super::{
    CallGraphStyle, StackOptions, call_graph, check_sums_of_both, full_tree, merged_header, merged_stacks,
    tree_bytes,
};
use crate::QueryContext;
use crate::api::selection::parse_selection;
use crate::context::result_cache::cached_query::run_cached;
use crate::execute::executor::QueryExecutor;
use crate::validate::{self, NodeLimit, invalid_argument};

fn stacks_of(selector: StackTraceSelector) -> Result<StackOptions, Status> {
    let StackTraceSelector { call_site, go_pgo, frame_filter } = selector;
    let call_site = validate::parse_call_site(call_site.into_iter().map(|location| location.name).collect())?;
    let filter = frame_filter.unwrap_or_default();
    let included =
        FramePatterns { names: filter.include_function_names, regexes: filter.include_function_name_regexes };
    let excluded =
        FramePatterns { names: filter.exclude_function_names, regexes: filter.exclude_function_name_regexes };
    let frames = FrameFilter::new(included, excluded).map_err(|error| Status::from_error(&error))?;
    let pgo = go_pgo.map(|WireGoPgo { keep_locations, aggregate_callees }| GoPgoOptions {
        keep_locations,
        aggregate_callees,
    });
    Ok(StackOptions {
        filter: StackFilter { call_site, frames, ..StackFilter::default() },
        pgo,
        addresses: false,
    })
}

/// Memory of a tree node on the wire: four or seven numbers, in memory and as text.
pub(crate) const TREE_NODE_BYTES: usize = 128;
/// Memory of a stack frame on the wire: an id in memory, and two copies of its encoded form.
const STACK_FRAME_BYTES: usize = 16;

/// Validated parameters of a stacktraces query.
pub(crate) struct MergeStacktracesParams {
    selection: ProfileSelection,
    stacks: StackOptions,
    max_nodes: NodeLimit,
    /// True if the request names a number of nodes.
    is_cut: bool,
    end: i64,
    format: ProfileFormat,
    /// Maximum number of rows of a function table. None means no limit.
    row_limit: Option<usize>,
    /// Function of a sandwich view.
    sandwich_function: Option<String>,
}

/// Returns the requested format. An unknown name is rejected. An unknown number is a later format, and
/// returns the flame graph that every client supports, as other servers do.
fn format_of(number: i32) -> Result<ProfileFormat, Status> {
    match ProfileFormat::try_from(number).unwrap_or_default() {
        ProfileFormat::UnknownName => Err(Status::new(
            ErrorCode::Unimplemented,
            "unknown name of a format; use PROFILE_FORMAT_FLAMEGRAPH, _TREE, _DOT, _PPROF, _FUNCTIONS or _SANDWICH",
        )),
        format => Ok(format),
    }
}

/// Returns the stack options of a selector. Without a selector all stacks count in their original form.
pub(crate) async fn parse_stacks(
    executor: &QueryExecutor,
    selector: Option<StackTraceSelector>,
) -> Result<StackOptions, Status> {
    match selector {
        // The regular expressions are compiled, and each may take a while.
        Some(selector) if selector.frame_filter.is_some() => {
            executor.parse_on_pool(move || stacks_of(selector)).await?
        }
        Some(selector) => stacks_of(selector),
        None => Ok(StackOptions::default()),
    }
}

/// Validates a request for merged stacks.
pub(crate) async fn parse_stacktraces_request(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SelectMergeStacktracesRequest,
) -> Result<MergeStacktracesParams, Status> {
    let SelectMergeStacktracesRequest { start, end, max_nodes, max_other_ppm, .. } = request;
    let mut selection =
        parse_selection(executor, &request.profile_type_id, &request.label_selector, start, end).await?;
    let is_cut = max_nodes.is_some_and(|nodes| nodes > 0);
    let max_nodes = validate::parse_node_limit(max_nodes, max_other_ppm, &executor.limits(reader))?;
    selection.requests = validate::parse_request_filter(&request.span_selector, &request.trace_id_selector)?;
    selection.profiles = validate::parse_profile_ids(&request.profile_id_selector)?;
    let stacks = parse_stacks(executor, request.stack_trace_selector).await?;
    let format = format_of(request.format)?;
    let row_limit = row_limit(request.max_nodes, request.format_options.as_ref())?;
    let sandwich_function = request.sandwich_function.filter(|function| !function.is_empty());
    if format == ProfileFormat::Sandwich && sandwich_function.is_none() {
        return Err(invalid_argument("sandwich has no function; set sandwichFunction to the function name"));
    }
    Ok(MergeStacktracesParams {
        selection,
        stacks,
        max_nodes,
        is_cut,
        end,
        format,
        row_limit,
        sandwich_function,
    })
}

/// Returns merged stacks in the requested format.
pub(crate) async fn merge_stacktraces(
    executor: &QueryExecutor,
    reader: &QueryContext,
    stacks: MergeStacktracesParams,
) -> Result<SelectMergeStacktracesResponse, Status> {
    let MergeStacktracesParams {
        selection,
        stacks,
        max_nodes,
        is_cut,
        end,
        format,
        row_limit,
        sandwich_function,
    } = stacks;
    let mut response = SelectMergeStacktracesResponse::default();
    if format == ProfileFormat::Pprof {
        let cut = is_cut.then_some(max_nodes);
        let profile = build_pprof(executor, reader, selection, stacks, cut, end).await?;
        response.pprof = Some(PprofProfile { profile: Some(profile) });
        response.warnings = reader.warnings();
        return Ok(response);
    }
    if format == ProfileFormat::Dot {
        let unit = selection.profile_type.as_ref().map_or(String::new(), |of| of.value.unit.clone());
        let graph = CallGraphStyle { unit, max_nodes: validate::graph_node_limit(Some(max_nodes)) };
        response.dot = call_graph(executor, reader, selection, stacks, graph).await?;
        response.warnings = reader.warnings();
        return Ok(response);
    }
    let tree = full_tree(executor, reader, selection, stacks).await?;
    response.warnings = reader.warnings();
    match format {
        ProfileFormat::Functions => {
            response.functions = Some(function_table(executor, reader, tree, row_limit).await?);
        }
        ProfileFormat::Sandwich => {
            let function = sandwich_function.unwrap_or_default();
            response.sandwich = Some(sandwich_of(executor, reader, tree, function, max_nodes).await?);
        }
        ProfileFormat::Tree => {
            let tree = truncate_tree(executor, reader, tree, max_nodes).await?;
            // Each encoded node contains its name.
            executor.reserve_memory(reader, tree_bytes::estimate_encoded_bytes(&tree))?;
            response.tree =
                executor.render_on_pool(reader, move || tree_bytes::encode_tree(&tree)).await?.into();
        }
        _ => {
            let tree = truncate_tree(executor, reader, tree, max_nodes).await?;
            executor.reserve_memory(reader, tree.nodes().len() * TREE_NODE_BYTES)?;
            response.flamegraph = Some(executor.render_on_pool(reader, move || flame_graph(&tree)).await?);
        }
    }
    Ok(response)
}

/// Truncates a tree to its node limit.
pub(crate) async fn truncate_tree(
    executor: &QueryExecutor,
    reader: &QueryContext,
    mut tree: Tree,
    max_nodes: NodeLimit,
) -> Result<Tree, Status> {
    executor
        .render_on_pool(reader, move || {
            max_nodes.truncate(&mut tree);
            tree
        })
        .await
}

pub(crate) async fn merged_tree(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SelectMergeStacktracesRequest,
) -> Result<Tree, Status> {
    let MergeStacktracesParams { selection, stacks, max_nodes, .. } =
        parse_stacktraces_request(executor, reader, request).await?;
    let tree = full_tree(executor, reader, selection, stacks).await?;
    truncate_tree(executor, reader, tree, max_nodes).await
}

pub(crate) async fn select_merge_span_profile(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SelectMergeSpanProfileRequest,
) -> Result<SelectMergeSpanProfileResponse, Status> {
    run_cached(executor, reader, "SelectMergeSpanProfile", request, |request| {
        merged_spans(executor, reader, request)
    })
    .await
}

async fn merged_spans(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SelectMergeSpanProfileRequest,
) -> Result<SelectMergeSpanProfileResponse, Status> {
    let format = match format_of(request.format)? {
        ProfileFormat::Functions | ProfileFormat::Sandwich => {
            return Err(Status::new(
                ErrorCode::Unimplemented,
                "format of merged spans is PROFILE_FORMAT_FUNCTIONS or _SANDWICH, only _FLAMEGRAPH and _TREE are \
                 supported; use SelectMergeStacktraces with spanSelector",
            ));
        }
        ProfileFormat::Tree => ProfileFormat::Tree,
        _ => ProfileFormat::Flamegraph,
    };
    let stacks = SelectMergeStacktracesRequest {
        profile_type_id: request.profile_type_id,
        label_selector: request.label_selector,
        start: request.start,
        end: request.end,
        max_nodes: request.max_nodes,
        format: format as i32,
        span_selector: request.span_selector,
        ..SelectMergeStacktracesRequest::default()
    };
    let merged =
        merge_stacktraces(executor, reader, parse_stacktraces_request(executor, reader, stacks).await?)
            .await?;
    let SelectMergeStacktracesResponse { flamegraph, tree, warnings, .. } = merged;
    Ok(SelectMergeSpanProfileResponse { flamegraph, tree, warnings })
}

pub(crate) async fn select_merge_profile(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SelectMergeProfileRequest,
) -> Result<Profile, Status> {
    run_cached(executor, reader, "SelectMergeProfile", request, |request| {
        merged_profile(executor, reader, request)
    })
    .await
}

async fn merged_profile(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: SelectMergeProfileRequest,
) -> Result<Profile, Status> {
    let SelectMergeProfileRequest { start, end, max_nodes, .. } = request;
    let mut selection =
        parse_selection(executor, &request.profile_type_id, &request.label_selector, start, end).await?;
    selection.requests = validate::parse_request_filter(&[], &request.trace_id_selector)?;
    selection.profiles = validate::parse_profile_ids(&request.profile_id_selector)?;
    let stacks = parse_stacks(executor, request.stack_trace_selector).await?;
    let asked = max_nodes.and_then(|nodes| usize::try_from(nodes).ok()).filter(|nodes| *nodes > 0);
    let most = executor.limits(reader).max_flamegraph_nodes_max as usize;
    let cut = asked.map(|asked| NodeLimit::with_count(asked, most));
    build_pprof(executor, reader, selection, stacks, cut, end).await
}

async fn build_pprof(
    executor: &QueryExecutor,
    reader: &QueryContext,
    selection: ProfileSelection,
    stacks: StackOptions,
    cut: Option<NodeLimit>,
    end: i64,
) -> Result<Profile, Status> {
    let profile_type = selection.profile_type.clone().unwrap_or_default();
    let mut merged = merged_stacks(executor, reader, selection, stacks).await?;
    let header = merged_header(reader, &profile_type, end.saturating_mul(validate::NANOS_PER_MILLI));
    let cut = move || {
        if let Some(NodeLimit { asked, most, .. }) = cut {
            merged.truncate(asked, most).map_err(|error| Status::from_error(&error))?;
        }
        let frames = merged.frames();
        Ok::<_, Status>((merged, frames))
    };
    let (merged, frames) = executor.render_on_pool(reader, cut).await??;
    // The encoded stacks repeat frames that the tree shares.
    executor.reserve_memory(reader, frames * STACK_FRAME_BYTES)?;
    executor.render_on_pool(reader, move || to_wire(merged, header)).await?
}

pub(crate) async fn diff(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: DiffRequest,
) -> Result<DiffResponse, Status> {
    run_cached(executor, reader, "Diff", request, |request| compute_diff(executor, reader, request)).await
}

async fn compute_diff(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: DiffRequest,
) -> Result<DiffResponse, Status> {
    let side = async |side: Option<SelectMergeStacktracesRequest>, name: &str| {
        let request =
            side.ok_or_else(|| invalid_argument(format!("request has no {name} side; set {name}")))?;
        parse_stacktraces_request(executor, reader, request).await
    };
    let left = side(request.left, "left").await?;
    let right = side(request.right, "right").await?;
    let formats = [format_of(request.format)?, left.format, right.format];
    let format = formats.into_iter().find(|format| *format != ProfileFormat::Unspecified).unwrap_or_default();
    let is_supported =
        matches!(format, ProfileFormat::Unspecified | ProfileFormat::Flamegraph | ProfileFormat::Functions);
    if !is_supported {
        return Err(Status::new(
            ErrorCode::Unimplemented,
            "format of a difference is neither PROFILE_FORMAT_FLAMEGRAPH nor _FUNCTIONS; use one of these, or use \
             SelectMergeStacktraces for each side",
        ));
    }
    let row_limit =
        row_limit(request.max_nodes, request.format_options.as_ref())?.or(left.row_limit).or(right.row_limit);
    let max_nodes = match request.max_nodes.filter(|nodes| *nodes != 0) {
        Some(_) => validate::parse_max_nodes(request.max_nodes, &executor.limits(reader))?,
        None if right.max_nodes.asked < left.max_nodes.asked => right.max_nodes,
        None => left.max_nodes,
    };
    let (left, right) = futures::try_join!(
        full_tree(executor, reader, left.selection, left.stacks),
        full_tree(executor, reader, right.selection, right.stacks),
    )?;
    check_sums_of_both(&left, &right)?;
    let mut response = DiffResponse { warnings: reader.warnings(), ..DiffResponse::default() };
    if format == ProfileFormat::Functions {
        response.functions = Some(function_table_diff(executor, reader, [left, right], row_limit).await?);
        return Ok(response);
    }
    executor.reserve_memory(reader, (left.nodes().len() + right.nodes().len()) * TREE_NODE_BYTES)?;
    response.flamegraph =
        Some(executor.render_on_pool(reader, move || flame_graph_diff(&left, &right, max_nodes)).await?);
    Ok(response)
}

fn wire_levels(levels: Vec<Vec<i64>>) -> Vec<Level> {
    levels.into_iter().map(|values| Level { values }).collect()
}

fn flame_graph(tree: &Tree) -> FlameGraph {
    let Flamegraph { names, levels, total, max_self } = Flamegraph::from_tree(tree);
    FlameGraph { names, levels: wire_levels(levels), total, max_self }
}

fn flame_graph_diff(left: &Tree, right: &Tree, max_nodes: NodeLimit) -> FlameGraphDiff {
    let mut diff = DiffTree::from_trees(left, right);
    diff.truncate(max_nodes.asked, max_nodes.most);
    let graph = diff.to_flamegraph();
    FlameGraphDiff {
        names: graph.names,
        levels: wire_levels(graph.levels),
        total: graph.total,
        max_self: graph.max_self,
        left_ticks: graph.ticks[0],
        right_ticks: graph.ticks[1],
    }
}

/// Encodes merged stacks as pprof. A profile without samples still has its types, period and time: some pprof
/// tools reject an empty message.
fn to_wire(merged: MergedProfile, header: athanor_profile::ProfileHeader) -> Result<Profile, Status> {
    let bytes = pprof::encode(&merged.into_profile(header));
    let unreadable = |error: prost::DecodeError| Status::new(ErrorCode::Internal, error.to_string());
    let mut profile = Profile::decode(bytes.as_slice()).map_err(unreadable)?;
    // Folded texts and JSON documents have no system names. Clients expect the function name there as well.
    let nameless = profile.function.iter_mut().filter(|function| function.system_name == 0);
    nameless.for_each(|function| function.system_name = function.name);
    // Some tools reject locations without a mapping, so those get an empty one.
    let id = profile.mapping.len() as u64 + 1;
    let unmapped = profile.location.iter_mut().filter(|location| location.mapping_id == 0);
    if unmapped.map(|location| location.mapping_id = id).count() > 0 {
        profile.mapping.push(Mapping { id, has_functions: true, ..Mapping::default() });
    }
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use athanor_profile::{ProfileHeader, ValueType};

    use super::*;

    #[test]
    fn function_without_system_name_is_answered_with_its_name() {
        let mut merged = MergedProfile::default();
        merged.dictionary.intern_named_stack(["main", "work"].into_iter());
        merged.totals = vec![5];
        let header =
            ProfileHeader { types: vec![ValueType::new("cpu", "nanoseconds")], ..ProfileHeader::default() };
        let profile = to_wire(merged, header).unwrap();
        assert_eq!(profile.function.len(), 2);
        assert!(profile.function.iter().all(|function| function.system_name == function.name));
    }
}
