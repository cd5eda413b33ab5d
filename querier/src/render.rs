//! `GET /pyroscope/render` and `/pyroscope/render-diff`: one flame graph with its timeline, for older clients.

use athanor_chassis::Status;
use athanor_profile::diff::DiffTree;
use athanor_profile::flamegraph::Flamegraph;
use athanor_profile::series::METRIC_NAME;
use athanor_profile::tree::Tree;
use athanor_profile::{ProfileType, ValueType};
use athanor_query::{Selection, Selector, StackFilter, TimeRange};

use crate::again::Answer;
use crate::check::{self, Application, MILLI, Nodes, invalid};
use crate::merge::{BAR, GraphQuery, GraphStyle, LACKS, StacksAsked};
use crate::points::PointsAsked;
use crate::{Querier, Reader};

mod attime;
mod export;
mod flamebearer;
mod parameters;
mod timeline;
mod wire;

pub use parameters::parse as parse_parameters;

use flamebearer::{Bars, Flamebearer, Format, Metadata};
use parameters::Parameters;
use timeline::Timeline;

/// The content type of a graph.
const DOT: &str = "text/plain; charset=utf-8";
/// That of a document.
const JSON: &str = "application/json";

/// An answer to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// What it is.
    pub content_type: &'static str,
    /// Its bytes.
    pub body: Vec<u8>,
}

impl Rendered {
    /// A document of JSON.
    pub(crate) fn json(body: Vec<u8>) -> Self {
        Rendered { content_type: JSON, body }
    }
}

/// As bytes it says what it is in a line before all else.
impl Answer for Rendered {
    fn packed(&self) -> usize {
        self.content_type.len() + 1 + self.body.len()
    }

    fn to_bytes(&self) -> Vec<u8> {
        [self.content_type.as_bytes(), b"\n", &self.body].concat()
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
        let said = parts.next()?;
        let content_type = [JSON, DOT].into_iter().find(|content_type| content_type.as_bytes() == said)?;
        Some(Rendered { content_type, body: parts.next()?.to_vec() })
    }
}

/// A checked query of one side.
struct Side {
    selection: Selection,
    stacks: StacksAsked,
    /// Without a period where the query is an application's name.
    profile_type: ProfileType,
    /// Milliseconds, both ends in it.
    start: i64,
    end: i64,
}

impl Side {
    fn into_query(self) -> GraphQuery {
        GraphQuery { selection: self.selection, stacks: self.stacks }
    }
}

impl Querier {
    /// A flame graph and a timeline as JSON, or a call graph as DOT. `query` is what follows `?` in the URL.
    pub async fn render(&self, reader: &Reader, query: &str) -> Result<Rendered, Status> {
        let parameters = Parameters::parse(query)?;
        let side = self.side(&parameters, ["query", "from", "until"]).await?;
        let (max_nodes, graph_nodes) = self.nodes(reader, &parameters)?;
        // Times may be told from now on.
        let request = format!("{} {} {query}", side.start, side.end);
        if parameters.first("format") == Some("dot") {
            return self.again(reader, "render", request, |_| self.graph(reader, side, graph_nodes)).await;
        }
        let mut group_by: Vec<String> = parameters.all("groupBy").map(str::to_owned).collect();
        check::labels(&group_by)?;
        // The answer has a name of one label for each group.
        group_by.truncate(1);
        let step = timeline::step(side.start, side.end);
        let asked = PointsAsked {
            selection: side.selection.clone(),
            start: side.start,
            end: side.end,
            step: step.saturating_mul(1_000 * MILLI),
            group_by,
            stacks: StackFilter::default(),
            mean: matches!(parameters.first("aggregation"), Some("avg" | "average")),
            exemplars: false,
        };
        self.again(reader, "render", request, |_| self.drawn(reader, side, asked, max_nodes)).await
    }

    /// A call graph of so many nodes.
    async fn graph(&self, reader: &Reader, side: Side, max_nodes: usize) -> Result<Rendered, Status> {
        let graph_style = GraphStyle { unit: side.profile_type.value.unit, max_nodes };
        let text = self.call_graph(reader, side.selection, side.stacks, graph_style).await?;
        Ok(Rendered { content_type: DOT, body: graph(reader, &text) })
    }

    /// A flame graph, a timeline and those of groups.
    async fn drawn(
        &self,
        reader: &Reader,
        side: Side,
        asked: PointsAsked,
        max_nodes: Nodes,
    ) -> Result<Rendered, Status> {
        let (step, group_by) = (asked.step / (1_000 * MILLI), asked.group_by.clone());
        let (tree, series) = futures::try_join!(
            self.tree(reader, side.selection.clone(), side.stacks.clone()),
            self.points(reader, asked)
        )?;
        let tree = self.cut(reader, tree, max_nodes).await?;
        let (querier, held) = (self.clone(), reader.clone());
        self.shape(reader, move || {
            let Side { profile_type, start, end, .. } = side;
            // With several series there is no one timeline.
            let points = if let [one] = series.as_slice() { one.points.as_slice() } else { &[] };
            let timeline = Timeline::new(start, end, step, points);
            let of_groups = if group_by.is_empty() { 0 } else { timeline.bytes() * series.len() };
            querier.make_room(&held, tree.nodes().len() * BAR + of_groups)?;
            let group = group_by.first();
            let groups = group.map(|label| {
                timeline::groups(&series, label, |points| Timeline::new(start, end, step, points))
            });
            let bars = Bars::of(Flamegraph::of(&tree));
            let metadata = Metadata::of(&profile_type, Format::Single);
            let graph = Flamebearer::new(bars, metadata);
            Ok(json(&Flamebearer { timeline: Some(timeline), groups, missing: held.missing(), ..graph }))
        })
        .await?
    }

    /// Two flame graphs laid over each other, as JSON, or their call graphs as DOT.
    pub async fn render_diff(&self, reader: &Reader, query: &str) -> Result<Rendered, Status> {
        let parameters = Parameters::parse(query)?;
        let left = self.side(&parameters, ["leftQuery", "leftFrom", "leftUntil"]).await?;
        let right = self.side(&parameters, ["rightQuery", "rightFrom", "rightUntil"]).await?;
        if left.profile_type != right.profile_type {
            let (left, right) = (left.profile_type, right.profile_type);
            return Err(invalid(format!("sides measure {left} and {right}; compare the same type")));
        }
        let nodes = self.nodes(reader, &parameters)?;
        let is_graph = parameters.first("format") == Some("dot");
        let times = [&left, &right].map(|side| format!("{} {}", side.start, side.end)).join(" ");
        let overlaid = |_| self.overlaid(reader, [left, right], nodes, is_graph);
        self.again(reader, "render-diff", format!("{times} {query}"), overlaid).await
    }

    async fn overlaid(
        &self,
        reader: &Reader,
        [left, right]: [Side; 2],
        (max_nodes, graph_nodes): (Nodes, usize),
        is_graph: bool,
    ) -> Result<Rendered, Status> {
        if is_graph {
            let unit = left.profile_type.value.unit.clone();
            let graph_style = GraphStyle { unit, max_nodes: graph_nodes };
            let text = self.call_graph_diff(reader, [left, right].map(Side::into_query), graph_style).await?;
            return Ok(Rendered { content_type: DOT, body: graph(reader, &text) });
        }
        let (before, after) = futures::try_join!(
            self.tree(reader, left.selection, left.stacks),
            self.tree(reader, right.selection, right.stacks),
        )?;
        let metadata = Metadata::of(&left.profile_type, Format::Double);
        self.make_room(reader, (before.nodes().len() + after.nodes().len()) * BAR)?;
        let missing = reader.missing();
        self.shape(reader, move || {
            let mut diff = DiffTree::of(&before, &after);
            diff.truncate_to_bars(max_nodes.asked, max_nodes.most);
            json(&Flamebearer { missing, ..double(&diff, metadata) })
        })
        .await
    }

    /// How many bars a flame graph has, and how many nodes a call graph.
    fn nodes(&self, reader: &Reader, parameters: &Parameters) -> Result<(Nodes, usize), Status> {
        let asked = asked_nodes(parameters);
        let max_nodes = check::max_nodes(asked, &self.limits(reader))?;
        let is_asked = asked.is_some_and(|asked| asked > 0);
        Ok((max_nodes.as_bars(), check::graph_nodes(is_asked.then_some(max_nodes))))
    }

    async fn side(&self, parameters: &Parameters, names: [&str; 3]) -> Result<Side, Status> {
        let [query, from, until] = names;
        let text = parameters.first(query).unwrap_or_default();
        if text.is_empty() {
            return Err(invalid(format!("request has no {query}; write type{{selector}}")));
        }
        let addresses = matches!(parameters.first("addresses"), Some("true" | "1"));
        let stacks = StacksAsked { addresses, ..StacksAsked::default() };
        let owned = text.to_owned();
        let read = move || {
            let of_application = Application::of(&owned).map(|application| application.profile_type);
            Ok((check::selector(&owned)?, of_application))
        };
        let (mut selector, of_application) = self.checked(&[text], read).await?;
        if let Some(profile_type) = of_application {
            let (start, end, time) = self.times_of(parameters, [from, until])?;
            return Ok(Side {
                selection: Selection { selector, time, ..Selection::default() },
                stacks,
                profile_type,
                start,
                end,
            });
        }
        let profile_type = take_type(&mut selector, query)?;
        let (start, end, time) = self.times_of(parameters, [from, until])?;
        let selection =
            Selection { selector, profile_type: Some(profile_type.clone()), time, ..Selection::default() };
        Ok(Side { selection, stacks, profile_type, start, end })
    }

    /// Milliseconds, both ends in them, and the range that they are.
    fn times_of(&self, parameters: &Parameters, names: [&str; 2]) -> Result<(i64, i64, TimeRange), Status> {
        let [from, until] = names;
        let now = self.deps.clock.wall().nanos();
        let time = |name: &str| {
            let text = parameters.first(name).unwrap_or("now");
            parse_time(name, text, now)
        };
        // What was stored a moment ago was stored before now.
        let end = time(until)?;
        let (start, end) =
            (time(from)?.div_euclid(MILLI), end.div_euclid(MILLI) + i64::from(end % MILLI != 0));
        Ok((start, end, check::range(start, end)?))
    }
}

/// Takes the profile type out of a selector. The type stands before the braces or in them, as the value of `__name__`. What
/// else is asked of `__name__` stays, and is asked of the metric: `TYPE{__name__="process_cpu"}`.
fn take_type(selector: &mut Selector, parameter: &str) -> Result<ProfileType, Status> {
    let is_type = |text: &str| text.parse::<ProfileType>().is_ok();
    let named = selector.take_equal_if(METRIC_NAME, is_type).or_else(|| selector.take_equal(METRIC_NAME));
    let type_id =
        named.ok_or_else(|| invalid(format!("{parameter} names no profile type; write type{{selector}}")))?;
    // The same type may be named in both places.
    while selector.take_equal_if(METRIC_NAME, |other| other == type_id).is_some() {}
    check::profile_type(&type_id)
}

/// Unix nanoseconds of a time in a URL, such as `now-1h`; `name` is the parameter's.
pub fn parse_time(name: &str, text: &str, now: i64) -> Result<i64, Status> {
    attime::parse(text, now)
        .ok_or_else(|| invalid(format!("{name} is {text:?}; write now-1h or a Unix time")))
}

/// What is no number is as if it were not there.
fn asked_nodes(parameters: &Parameters) -> Option<i64> {
    let asked = parameters.first("max-nodes").or_else(|| parameters.first("maxNodes"));
    asked.and_then(|text| text.parse().ok())
}

/// A call graph as a file: comments at its beginning say what it lacks.
fn graph(reader: &Reader, text: &str) -> Vec<u8> {
    let lacks = reader.all_missing().into_iter().map(|words| format!("// {LACKS}{words}\n"));
    lacks.chain([text.to_owned()]).collect::<String>().into_bytes()
}

/// Two graphs laid over each other.
fn double(diff: &DiffTree, metadata: Metadata) -> Flamebearer {
    let graph = diff.flamegraph();
    let [left_ticks, right_ticks] = graph.ticks.map(|ticks| Some(ticks).filter(|&ticks| ticks != 0));
    let bars =
        Bars { names: graph.names, levels: graph.levels, num_ticks: graph.total, max_self: graph.max_self };
    Flamebearer { left_ticks, right_ticks, ..Flamebearer::new(bars, metadata) }
}

/// A flame graph of no time, as JSON.
pub(crate) fn show(tree: &Tree, value: &ValueType) -> Vec<u8> {
    let metadata = Metadata::of(&measuring(value), Format::Single);
    json(&Flamebearer::new(Bars::of(Flamegraph::of(tree)), metadata)).body
}

/// And two.
pub(crate) fn show_diff(diff: &DiffTree, value: &ValueType) -> Vec<u8> {
    json(&double(diff, Metadata::of(&measuring(value), Format::Double))).body
}

fn measuring(value: &ValueType) -> ProfileType {
    ProfileType { name: String::new(), value: value.clone(), period: ValueType::default() }
}

fn json(flamebearer: &Flamebearer) -> Rendered {
    Rendered::json(serde_json::to_vec(flamebearer).expect("lists and texts serialise to JSON"))
}
