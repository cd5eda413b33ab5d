//! `GET /pyroscope/render` and `/pyroscope/render-diff`: a flame graph with its timeline, for older clients.

use athanor_chassis::time::expression::{TimeExpression, TimeSyntax};
use athanor_chassis::{Status, Timestamp};
use athanor_profile::analysis::diff::DiffTree;
use athanor_profile::call_tree::flamegraph::Flamegraph;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::store_interface::series::METRIC_NAME_LABEL;
use athanor_profile::{ProfileType, ValueType};
use athanor_query::{ProfileSelection, Selector, StackFilter, TimeRange};

use crate::QueryContext;
use crate::api::merge::{
    CallGraphQuery, CallGraphStyle, StackOptions, TREE_NODE_BYTES, WARNING_PREFIX, call_graph,
    call_graph_diff, check_sums_of_both, full_tree, truncate_tree,
};
use crate::api::points::{SelectSeriesParams, select_points};
use crate::api::selection::check_on_pool;
use crate::context::result_cache::CacheableResult;
use crate::context::result_cache::cached_query::run_cached;
use crate::execute::executor::QueryExecutor;
use crate::validate::{self, ApplicationName, NANOS_PER_MILLI, NodeLimit, invalid_argument};

mod export;
mod flamebearer;
mod parameters;
mod timeline;
mod wire;

pub(crate) use export::export;
pub use parameters::parse as parse_parameters;
pub(crate) use wire::render_label_values;

use flamebearer::{FlamebearerFormat, FlamebearerLevels, FlamebearerResponse, RenderMetadata};
use parameters::UrlParameters;
use timeline::FlamebearerTimeline;

/// Content type of a DOT graph.
const DOT_CONTENT_TYPE: &str = "text/plain; charset=utf-8";
/// Content type of a JSON document.
const JSON_CONTENT_TYPE: &str = "application/json";

/// Rendered response of an HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedResponse {
    /// Content type of the body.
    pub content_type: &'static str,
    /// Bytes of the body.
    pub body: Vec<u8>,
}

impl RenderedResponse {
    /// Creates a response with a JSON document.
    pub(crate) fn json(body: Vec<u8>) -> Self {
        RenderedResponse { content_type: JSON_CONTENT_TYPE, body }
    }
}

/// Encoded with the content type in the first line.
impl CacheableResult for RenderedResponse {
    fn encoded_size(&self) -> usize {
        self.content_type.len() + 1 + self.body.len()
    }

    fn to_bytes(&self) -> Vec<u8> {
        [self.content_type.as_bytes(), b"\n", &self.body].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
        let said = parts.next()?;
        let content_type = [JSON_CONTENT_TYPE, DOT_CONTENT_TYPE]
            .into_iter()
            .find(|content_type| content_type.as_bytes() == said)?;
        Some(RenderedResponse { content_type, body: parts.next()?.to_vec() })
    }
}

/// Validated query of one side of a comparison.
struct RenderSide {
    selection: ProfileSelection,
    stacks: StackOptions,
    /// Profile type, without a period if the query is an application name.
    profile_type: ProfileType,
    /// Start of the range in milliseconds. Start and end are inclusive.
    start: i64,
    end: i64,
}

impl RenderSide {
    fn into_query(self) -> CallGraphQuery {
        CallGraphQuery { selection: self.selection, stacks: self.stacks }
    }
}

pub(crate) async fn render(
    executor: &QueryExecutor,
    reader: &QueryContext,
    query: &str,
) -> Result<RenderedResponse, Status> {
    let parameters = UrlParameters::parse(query)?;
    let side = parse_side(executor, &parameters, ["query", "from", "until"]).await?;
    let (max_nodes, graph_nodes) = parse_node_limits(executor, reader, &parameters)?;
    // Times may be relative to now, so the cache key contains absolute ones.
    let request = format!("{} {} {query}", side.start, side.end);
    if parameters.first("format") == Some("dot") {
        return run_cached(executor, reader, "render", request, |_| {
            render_call_graph(executor, reader, side, graph_nodes)
        })
        .await;
    }
    let mut group_by: Vec<String> = parameters.all("groupBy").map(str::to_owned).collect();
    validate::check_labels(&group_by)?;
    // The response format has one label per group.
    group_by.truncate(1);
    let step = timeline::choose_step_seconds(side.start, side.end);
    let asked = SelectSeriesParams {
        selection: side.selection.clone(),
        start: side.start,
        end: side.end,
        step: step.saturating_mul(1_000 * NANOS_PER_MILLI),
        group_by,
        stacks: StackFilter::default(),
        mean: matches!(parameters.first("aggregation"), Some("avg" | "average")),
        exemplars: false,
    };
    run_cached(executor, reader, "render", request, |_| {
        render_flamegraph(executor, reader, side, asked, max_nodes)
    })
    .await
}

/// Renders a call graph of at most `max_nodes` nodes.
async fn render_call_graph(
    executor: &QueryExecutor,
    reader: &QueryContext,
    side: RenderSide,
    max_nodes: usize,
) -> Result<RenderedResponse, Status> {
    let graph_style = CallGraphStyle { unit: side.profile_type.value.unit, max_nodes };
    let text = call_graph(executor, reader, side.selection, side.stacks, graph_style).await?;
    Ok(RenderedResponse { content_type: DOT_CONTENT_TYPE, body: graph(reader, &text) })
}

/// Renders a flame graph, its timeline, and a timeline per group.
async fn render_flamegraph(
    executor: &QueryExecutor,
    reader: &QueryContext,
    side: RenderSide,
    asked: SelectSeriesParams,
    max_nodes: NodeLimit,
) -> Result<RenderedResponse, Status> {
    let step = asked.step / (1_000 * NANOS_PER_MILLI);
    let group_by = asked.group_by.clone();
    let (tree, series) = futures::try_join!(
        full_tree(executor, reader, side.selection.clone(), side.stacks.clone()),
        select_points(executor, reader, asked)
    )?;
    let tree = truncate_tree(executor, reader, tree, max_nodes).await?;
    let job_executor = executor.clone();
    let held = reader.clone();
    executor
        .render_on_pool(reader, move || {
            let RenderSide { profile_type, start, end, .. } = side;
            // Several series have no common timeline.
            let points = if let [one] = series.as_slice() { one.points.as_slice() } else { &[] };
            let timeline = FlamebearerTimeline::new(start, end, step, points);
            let of_groups = if group_by.is_empty() { 0 } else { timeline.bytes() * series.len() };
            job_executor.reserve_memory(&held, tree.nodes().len() * TREE_NODE_BYTES + of_groups)?;
            let group = group_by.first();
            let groups = group.map(|label| {
                timeline::group_timelines(&series, label, |points| {
                    FlamebearerTimeline::new(start, end, step, points)
                })
            });
            let bars = FlamebearerLevels::from_flamegraph(Flamegraph::from_tree(&tree));
            let metadata = RenderMetadata::from_profile_type(&profile_type, FlamebearerFormat::Single);
            let graph = FlamebearerResponse::new(bars, metadata);
            Ok(json(&FlamebearerResponse {
                timeline: Some(timeline),
                groups,
                warnings: held.warnings(),
                ..graph
            }))
        })
        .await?
}

pub(crate) async fn render_diff(
    executor: &QueryExecutor,
    reader: &QueryContext,
    query: &str,
) -> Result<RenderedResponse, Status> {
    let parameters = UrlParameters::parse(query)?;
    let left = parse_side(executor, &parameters, ["leftQuery", "leftFrom", "leftUntil"]).await?;
    let right = parse_side(executor, &parameters, ["rightQuery", "rightFrom", "rightUntil"]).await?;
    if left.profile_type != right.profile_type {
        let left = left.profile_type;
        let right = right.profile_type;
        return Err(invalid_argument(format!(
            "sides have the types {left} and {right}; compare the same type"
        )));
    }
    let (max_nodes, graph_nodes) = parse_node_limits(executor, reader, &parameters)?;
    let is_graph = parameters.first("format") == Some("dot");
    let times = [&left, &right].map(|side| format!("{} {}", side.start, side.end)).join(" ");
    let graph_nodes = is_graph.then_some(graph_nodes);
    let overlaid = |_| render_flamegraph_diff(executor, reader, [left, right], max_nodes, graph_nodes);
    run_cached(executor, reader, "render-diff", format!("{times} {query}"), overlaid).await
}

async fn render_flamegraph_diff(
    executor: &QueryExecutor,
    reader: &QueryContext,
    [left, right]: [RenderSide; 2],
    max_nodes: NodeLimit,
    graph_nodes: Option<usize>,
) -> Result<RenderedResponse, Status> {
    if let Some(max_nodes) = graph_nodes {
        let unit = left.profile_type.value.unit.clone();
        let graph_style = CallGraphStyle { unit, max_nodes };
        let text =
            call_graph_diff(executor, reader, [left, right].map(RenderSide::into_query), graph_style).await?;
        return Ok(RenderedResponse { content_type: DOT_CONTENT_TYPE, body: graph(reader, &text) });
    }
    let (before, after) = futures::try_join!(
        full_tree(executor, reader, left.selection, left.stacks),
        full_tree(executor, reader, right.selection, right.stacks),
    )?;
    check_sums_of_both(&before, &after)?;
    let metadata = RenderMetadata::from_profile_type(&left.profile_type, FlamebearerFormat::Double);
    executor.reserve_memory(reader, (before.nodes().len() + after.nodes().len()) * TREE_NODE_BYTES)?;
    let warnings = reader.warnings();
    executor
        .render_on_pool(reader, move || {
            let mut diff = DiffTree::from_trees(&before, &after);
            diff.truncate_to_bars(max_nodes.asked, max_nodes.most);
            json(&FlamebearerResponse { warnings, ..flamebearer_of_diff(&diff, metadata) })
        })
        .await
}

/// Parses the number of bars of a flame graph, and of nodes of a call graph.
fn parse_node_limits(
    executor: &QueryExecutor,
    reader: &QueryContext,
    parameters: &UrlParameters,
) -> Result<(NodeLimit, usize), Status> {
    let asked = parse_max_nodes(parameters);
    let max_nodes = validate::parse_max_nodes(asked, &executor.limits(reader))?;
    let is_asked = asked.is_some_and(|asked| asked > 0);
    Ok((max_nodes.as_bars(), validate::graph_node_limit(is_asked.then_some(max_nodes))))
}

async fn parse_side(
    executor: &QueryExecutor,
    parameters: &UrlParameters,
    names: [&str; 3],
) -> Result<RenderSide, Status> {
    let [query, from, until] = names;
    let text = parameters.first(query).unwrap_or_default();
    if text.is_empty() {
        return Err(invalid_argument(format!("request has no {query}; write type{{selector}}")));
    }
    let addresses = matches!(parameters.first("addresses"), Some("true" | "1"));
    let stacks = StackOptions { addresses, ..StackOptions::default() };
    let owned = text.to_owned();
    let read = move || {
        let of_application =
            ApplicationName::from_selector_name(&owned).map(|application| application.profile_type);
        Ok((validate::parse_selector(&owned)?, of_application))
    };
    let (mut selector, of_application) = check_on_pool(executor, &[text], read).await?;
    if let Some(profile_type) = of_application {
        let (start, end, time) = parse_times(executor, parameters, [from, until])?;
        return Ok(RenderSide {
            selection: ProfileSelection { selector, time, ..ProfileSelection::default() },
            stacks,
            profile_type,
            start,
            end,
        });
    }
    let profile_type = take_type(&mut selector, query)?;
    let (start, end, time) = parse_times(executor, parameters, [from, until])?;
    let selection = ProfileSelection {
        selector,
        profile_type: Some(profile_type.clone()),
        time,
        ..ProfileSelection::default()
    };
    Ok(RenderSide { selection, stacks, profile_type, start, end })
}

/// Parses start and end in milliseconds, both inclusive, and returns the range as well.
fn parse_times(
    executor: &QueryExecutor,
    parameters: &UrlParameters,
    names: [&str; 2],
) -> Result<(i64, i64, TimeRange), Status> {
    let [from, until] = names;
    let now = executor.deps.clock.wall();
    let end = parse_time(parameters, until, |time| time.resolve(now))?;
    let start = parse_time(parameters, from, |time| time.resolve_start(now, end))?;
    let start = start.nanos().div_euclid(NANOS_PER_MILLI);
    // The end is rounded up, so that the range includes profiles that were stored just now.
    let end = end.nanos().div_euclid(NANOS_PER_MILLI) + i64::from(end.nanos() % NANOS_PER_MILLI != 0);
    Ok((start, end, validate::parse_range(start, end)?))
}

/// Removes the profile type from a selector. It is the name before the braces or the value of `__name__`.
/// Other conditions on `__name__` stay and select the metric: `TYPE{__name__="process_cpu"}`.
fn take_type(selector: &mut Selector, parameter: &str) -> Result<ProfileType, Status> {
    let is_type = |text: &str| text.parse::<ProfileType>().is_ok();
    let named =
        selector.take_equal_if(METRIC_NAME_LABEL, is_type).or_else(|| selector.take_equal(METRIC_NAME_LABEL));
    let type_id = named.ok_or_else(|| {
        invalid_argument(format!("{parameter} names no profile type; write type{{selector}}"))
    })?;
    // Both places may name the same type.
    while selector.take_equal_if(METRIC_NAME_LABEL, |other| other == type_id).is_some() {}
    validate::parse_profile_type(&type_id)
}

/// Parses a parameter with a time, such as `now-1h` or `2026-01-31T12:00:00Z`. Without it, the time is now.
fn parse_time(
    parameters: &UrlParameters,
    name: &str,
    resolve: impl FnOnce(TimeExpression) -> Option<Timestamp>,
) -> Result<Timestamp, Status> {
    let text = parameters.first(name).unwrap_or("now");
    TimeExpression::parse(text, TimeSyntax::Render).and_then(resolve).ok_or_else(|| {
        invalid_argument(format!(
            "{name} is {text:?}; write now-1h, 1h, 2026-01-31, 2026-01-31T12:00:00Z or a Unix time"
        ))
    })
}

/// Parses the node limit. A value that is not a number is ignored.
fn parse_max_nodes(parameters: &UrlParameters) -> Option<i64> {
    let asked = parameters.first("max-nodes").or_else(|| parameters.first("maxNodes"));
    asked.and_then(|text| text.parse().ok())
}

/// Returns a call graph as a file, with warnings as comments at its beginning.
fn graph(reader: &QueryContext, text: &str) -> Vec<u8> {
    let warnings = reader.warnings().into_iter().map(|warning| format!("// {WARNING_PREFIX}{warning}\n"));
    warnings.chain([text.to_owned()]).collect::<String>().into_bytes()
}

/// Converts a difference of two trees to a response.
fn flamebearer_of_diff(diff: &DiffTree, metadata: RenderMetadata) -> FlamebearerResponse {
    let graph = diff.to_flamegraph();
    let [left_ticks, right_ticks] = graph.ticks.map(|ticks| Some(ticks).filter(|&ticks| ticks != 0));
    let bars = FlamebearerLevels {
        names: graph.names,
        levels: graph.levels,
        num_ticks: graph.total,
        max_self: graph.max_self,
    };
    FlamebearerResponse { left_ticks, right_ticks, ..FlamebearerResponse::new(bars, metadata) }
}

/// Renders a flame graph without a timeline as JSON.
pub(crate) fn tree_to_json(tree: &Tree, value: &ValueType) -> Vec<u8> {
    let metadata = RenderMetadata::from_profile_type(&profile_type_of(value), FlamebearerFormat::Single);
    json(&FlamebearerResponse::new(FlamebearerLevels::from_flamegraph(Flamegraph::from_tree(tree)), metadata))
        .body
}

/// Renders the difference of two trees without a timeline as JSON.
pub(crate) fn diff_to_json(diff: &DiffTree, value: &ValueType) -> Vec<u8> {
    json(&flamebearer_of_diff(
        diff,
        RenderMetadata::from_profile_type(&profile_type_of(value), FlamebearerFormat::Double),
    ))
    .body
}

fn profile_type_of(value: &ValueType) -> ProfileType {
    ProfileType { name: String::new(), value: value.clone(), period: ValueType::default() }
}

fn json(flamebearer: &FlamebearerResponse) -> RenderedResponse {
    RenderedResponse::json(serde_json::to_vec(flamebearer).expect("lists and texts serialise to JSON"))
}
