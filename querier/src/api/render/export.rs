//! `GET /athanor/export`: query results as files for other tools.

use athanor_chassis::Status;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::store_interface::series::SERVICE_NAME_LABEL;
use athanor_profile::{
    ProfileHeader, ProfileType, ValueType, formats::folded, formats::otlp, formats::pprof,
    formats::speedscope, render::svg,
};
use athanor_query::{
    MergedProfile, PartialResult, ProfileListQuery, ProfileQuery, ProfileSelection, QueryKind,
};

use super::{DOT_CONTENT_TYPE, RenderSide, RenderedResponse, UrlParameters, graph, parse_side};
use crate::QueryContext;
use crate::api::explore::compile_transforms;
use crate::api::merge::{
    CallGraphStyle, WARNING_PREFIX, call_graph, full_tree, merged_header, merged_stacks,
};
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::unexpected_result_type;
use crate::execute::run_query::run_query;
use crate::validate::{self, NANOS_PER_MILLI, NodeLimit, invalid_argument};
use parameters::{check_names, parse_nodes, parse_transforms, select_ids};

mod parameters;

/// Memory of a stack frame in a file: an id in memory, and its encoded form.
const FILE_FRAME_BYTES: usize = 16;
/// Memory of a stack frame in a JSON document while it is built.
const JSON_FRAME_BYTES: usize = 64;
/// Maximum length of a number in text, with its separators.
const MAX_NUMBER_BYTES: usize = 24;

/// Memory of a box in an SVG file: its tags and numbers.
const SVG_BOX_BYTES: usize = 256;
/// Copies of a name in a box: the text on hover and the label, each with escaped characters.
const SVG_NAME_COPIES: usize = 4;
/// Number of nodes of an SVG file, unless the request states another. More boxes are too small to distinguish.
const DEFAULT_SVG_NODES: i64 = 16 * 1024;

/// File format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExportFormat {
    Pprof,
    Folded,
    Speedscope,
    Dot,
    Otlp,
    Svg,
}

impl ExportFormat {
    fn parse(text: &str) -> Result<ExportFormat, Status> {
        match text {
            "" | "pprof" => Ok(ExportFormat::Pprof),
            "folded" | "collapsed" => Ok(ExportFormat::Folded),
            "speedscope" => Ok(ExportFormat::Speedscope),
            "dot" => Ok(ExportFormat::Dot),
            "otlp" => Ok(ExportFormat::Otlp),
            "svg" => Ok(ExportFormat::Svg),
            other => Err(invalid_argument(format!(
                "format is {other:?}; write pprof, folded, speedscope, dot, otlp or svg"
            ))),
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            ExportFormat::Pprof => "application/octet-stream",
            ExportFormat::Folded | ExportFormat::Dot => DOT_CONTENT_TYPE,
            ExportFormat::Speedscope => "application/json",
            ExportFormat::Otlp => "application/x-protobuf",
            ExportFormat::Svg => "image/svg+xml",
        }
    }
}

pub(crate) async fn export(
    executor: &QueryExecutor,
    reader: &QueryContext,
    query: &str,
) -> Result<RenderedResponse, Status> {
    let parameters = UrlParameters::parse(query)?;
    check_names(&parameters)?;
    let format = ExportFormat::parse(parameters.first("format").unwrap_or_default())?;
    let limits = executor.limits(reader);
    let most = i64::from(limits.max_flamegraph_nodes_max);
    let default_nodes = (format == ExportFormat::Svg).then_some(DEFAULT_SVG_NODES.min(most));
    let asked = parse_nodes(&parameters)?.or(default_nodes);
    let cut = asked.map(|nodes| validate::parse_max_nodes(Some(nodes), &limits)).transpose()?;
    let mut side = parse_side(executor, &parameters, ["query", "from", "until"]).await?;
    side.stacks.filter.transforms = compile_transforms(executor, parse_transforms(&parameters)?).await?;
    select_ids(&mut side.selection, &parameters)?;
    let body = match format {
        ExportFormat::Folded => export_folded(executor, reader, side, cut).await?,
        ExportFormat::Svg => export_svg(executor, reader, side, cut).await?,
        ExportFormat::Dot => {
            let unit = side.profile_type.value.unit;
            let graph_style = CallGraphStyle { unit, max_nodes: validate::graph_node_limit(cut) };
            graph(reader, &call_graph(executor, reader, side.selection, side.stacks, graph_style).await?)
        }
        _ => export_stacks(executor, reader, side, format, cut).await?,
    };
    Ok(RenderedResponse { content_type: format.content_type(), body })
}

async fn export_folded(
    executor: &QueryExecutor,
    reader: &QueryContext,
    side: RenderSide,
    cut: Option<NodeLimit>,
) -> Result<Vec<u8>, Status> {
    let mut tree = full_tree(executor, reader, side.selection, side.stacks).await?;
    let job_executor = executor.clone();
    let held = reader.clone();
    executor
        .render_on_pool(reader, move || {
            if let Some(NodeLimit { asked, most, .. }) = cut {
                tree.truncate_with_ties(asked, most);
            }
            job_executor.reserve_memory(&held, folded_bytes(&tree))?;
            Ok(folded::write(&tree).into_bytes())
        })
        .await?
}

async fn export_svg(
    executor: &QueryExecutor,
    reader: &QueryContext,
    side: RenderSide,
    max_nodes: Option<NodeLimit>,
) -> Result<Vec<u8>, Status> {
    let service = side.selection.selector.clone().take_equal(SERVICE_NAME_LABEL);
    let RenderSide { selection, stacks, profile_type, .. } = side;
    let mut tree = full_tree(executor, reader, selection, stacks).await?;
    let job_executor = executor.clone();
    let held = reader.clone();
    executor
        .render_on_pool(reader, move || {
            if let Some(NodeLimit { asked, most, .. }) = max_nodes {
                tree.truncate_with_ties(asked, most);
            }
            job_executor.reserve_memory(&held, svg_bytes(&tree))?;
            let title = graph_title(service.as_deref(), &profile_type, &held.warnings());
            Ok(svg::write(&tree, &profile_type.value.unit, &title).into_bytes())
        })
        .await?
}

/// Returns the title of a graph: its service, its type, and the data that it lacks.
fn graph_title(service: Option<&str>, profile_type: &ProfileType, warnings: &[String]) -> String {
    let service = service.map(|service| format!("{service} · ")).unwrap_or_default();
    let lacks = if warnings.is_empty() {
        String::new()
    } else {
        format!(" · {WARNING_PREFIX}{}", warnings.join("; "))
    };
    format!("{service}{profile_type}{lacks}")
}

async fn export_stacks(
    executor: &QueryExecutor,
    reader: &QueryContext,
    side: RenderSide,
    format: ExportFormat,
    cut: Option<NodeLimit>,
) -> Result<Vec<u8>, Status> {
    let service = side.selection.selector.clone().take_equal(SERVICE_NAME_LABEL);
    let (period, mut merged) = futures::try_join!(
        shared_period(executor, reader, side.selection.clone()),
        merged_stacks(executor, reader, side.selection, side.stacks),
    )?;
    let header = file_header(reader, &side.profile_type, side.start, side.end, period);
    let job_executor = executor.clone();
    let held = reader.clone();
    executor
        .render_on_pool(reader, move || {
            if let Some(NodeLimit { asked, most, .. }) = cut {
                merged.truncate(asked, most).map_err(|error| Status::from_error(&error))?;
            }
            let of_frame =
                if format == ExportFormat::Speedscope { JSON_FRAME_BYTES } else { FILE_FRAME_BYTES };
            job_executor.reserve_memory(&held, merged.frames() * of_frame)?;
            Ok(write(merged, header, format, service.as_deref()))
        })
        .await?
}

/// Returns the period that all profiles share. Returns 0 if their periods differ or are unknown.
async fn shared_period(
    executor: &QueryExecutor,
    reader: &QueryContext,
    selection: ProfileSelection,
) -> Result<i64, Status> {
    let what = QueryKind::Profiles(ProfileListQuery::default());
    match run_query(
        executor,
        reader,
        ProfileQuery { selection, what, bounds: validate::default_result_limits() },
    )
    .await?
    {
        PartialResult::Profiles(list) => {
            let periods = list.periods.filter(|(least, most)| least == most && *least > 0);
            Ok(periods.map_or(0, |(period, _)| period))
        }
        _ => Err(unexpected_result_type()),
    }
}

fn write(
    merged: MergedProfile,
    header: ProfileHeader,
    format: ExportFormat,
    service: Option<&str>,
) -> Vec<u8> {
    let profile = merged.into_profile(header);
    let lacks = profile.header.comments.join("; ");
    match format {
        ExportFormat::Speedscope => {
            let name = service.unwrap_or("athanor");
            let partial = if lacks.is_empty() { String::new() } else { format!(" ({lacks})") };
            speedscope::write(&profile, &format!("{name}{partial}")).into_bytes()
        }
        ExportFormat::Otlp => {
            let service = service.map(|service| ("service.name", service));
            let partial = Some(("athanor.partial", lacks.as_str())).filter(|(_, lacks)| !lacks.is_empty());
            let resource: Vec<(&str, &str)> = service.into_iter().chain(partial).collect();
            otlp::encode(&profile, &resource)
        }
        _ => pprof::encode(&profile),
    }
}

/// Header of an export file, which covers the whole time range. Some tools multiply by the period, so an
/// uncertain period is omitted.
fn file_header(
    reader: &QueryContext,
    profile_type: &ProfileType,
    start: i64,
    end: i64,
    period: i64,
) -> ProfileHeader {
    let mut header = merged_header(reader, profile_type, start.saturating_mul(NANOS_PER_MILLI));
    let period_type = header.period_type.take().filter(|of| *of != ValueType::default());
    ProfileHeader {
        duration_nanos: end.saturating_sub(start).saturating_mul(NANOS_PER_MILLI),
        // Without a period type the unit of the period is unknown.
        period: if period_type.is_some() { period } else { 0 },
        period_type,
        ..header
    }
}

/// Returns the length of the text. Each line repeats the names of a whole stack.
fn folded_bytes(tree: &Tree) -> usize {
    let mut lengths: Vec<usize> = Vec::with_capacity(tree.nodes().len());
    for node in tree.nodes() {
        let above = lengths.get(node.parent as usize).copied().unwrap_or_default();
        lengths.push(above + tree.name(node).len() + 1);
    }
    let lines = tree.nodes().iter().zip(&lengths).filter(|(node, _)| node.self_value != 0);
    lines.map(|(_, length)| length + MAX_NUMBER_BYTES).sum()
}

/// Returns the approximate length of a graph.
fn svg_bytes(tree: &Tree) -> usize {
    let names = tree.nodes().iter().map(|node| SVG_NAME_COPIES * tree.name(node).len());
    tree.nodes().len() * SVG_BOX_BYTES + names.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use athanor_profile::Dictionary;

    use super::*;

    #[test]
    fn a_text_is_no_longer_than_said() {
        let mut dictionary = Dictionary::default();
        for path in ["main;a", "main;b;größe"] {
            dictionary.intern_named_stack(path.split(';'));
        }
        let tree = Tree::from_totals(&dictionary, &[i64::MIN, 7]);
        let text = folded::write(&tree);
        assert!(text.len() <= folded_bytes(&tree) && folded_bytes(&tree) < text.len() + 2 * MAX_NUMBER_BYTES);
    }

    #[test]
    fn formats_are_known_by_their_names() {
        assert_eq!(ExportFormat::parse("").unwrap(), ExportFormat::Pprof);
        assert_eq!(ExportFormat::parse("svg").unwrap(), ExportFormat::Svg);
        assert!(ExportFormat::parse("png").unwrap_err().message.contains("speedscope"));
    }

    #[test]
    fn graph_takes_no_more_than_its_estimate() {
        let mut dictionary = Dictionary::default();
        for path in ["main;a", "main;<b> & \"c\";größe"] {
            dictionary.intern_named_stack(path.split(';'));
        }
        let tree = Tree::from_totals(&dictionary, &[i64::MAX / 2, 7]);
        let empty = svg::write(&Tree::default(), "nanoseconds", "").len();
        let written = svg::write(&tree, "nanoseconds", "").len();
        assert!(written - empty <= svg_bytes(&tree), "{written} {empty}");
    }

    #[test]
    fn title_of_a_graph_states_the_missing_data() {
        let profile_type: ProfileType = "process_cpu:cpu:nanoseconds:cpu:nanoseconds".parse().unwrap();
        let title = graph_title(Some("shop"), &profile_type, &[]);
        assert_eq!(title, "shop · process_cpu:cpu:nanoseconds:cpu:nanoseconds");
        let title = graph_title(None, &profile_type, &["one block is damaged".to_owned()]);
        assert!(title.starts_with("process_cpu") && title.ends_with("one block is damaged"), "{title}");
    }
}
