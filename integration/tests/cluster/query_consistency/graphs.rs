//! Merged profiles: graphs, trees, pprof, differences; of some spans, traces, profiles and stacks.

use athanor_proto::google::v1::Profile;
use athanor_proto::querier::v1::{
    DiffRequest, FlameGraph, FlameGraphDiff, ProfileFormat, SelectMergeProfileRequest,
    SelectMergeSpanProfileRequest, SelectMergeStacktracesRequest,
};
use athanor_proto::types::v1::{GoPgo, Location, StackFrameFilter, StackTraceSelector};

use crate::query_consistency::asker::{Answers, Asker, whole};
use crate::query_consistency::decoded::{self, Graph, Lines, Stacks};
use crate::query_consistency::naive::{Naive, Record, Row, ids_of_profiles, ids_of_records};
use crate::query_consistency::profiles::{SAMPLES, TRACED, TYPE};
use crate::query_consistency::sums::{beside, calls, cut, lines, names, stacks};

/// Frames that a graph is cut down to.
const FEW: usize = 5;
/// Functions of a call graph.
const FUNCTIONS: usize = 7;
/// What the Go compiler is given: so many frames.
const KEPT: usize = 2;

/// The stacks that many of the questions are about.
pub fn selector() -> StackTraceSelector {
    let frames = StackFrameFilter {
        include_function_names: vec!["main".to_owned()],
        exclude_function_name_regexes: vec!["^own.*[13579]$".to_owned()],
        include_function_name_regexes: vec!["erv".to_owned()],
        ..StackFrameFilter::default()
    };
    let call_site = ["main", "serve"].map(|name| Location { name: name.to_owned() }).to_vec();
    StackTraceSelector { call_site, frame_filter: Some(frames), ..StackTraceSelector::default() }
}

/// Whether a row is of these stacks.
pub fn is_selected(row: &Row) -> bool {
    let names = names(row);
    let is_odd_own = |name: &String| name.starts_with("own") && name.ends_with(['1', '3', '5', '7', '9']);
    names.len() > 1 && names[..2] == ["main", "serve"] && !names.iter().any(is_odd_own)
}

/// Stacks as the Go compiler wants them: the last calls, and the leaf without its line wherever it is.
fn go_pgo(all: &Lines) -> Lines {
    let mut shaped = Lines::new();
    for (stack, value) in all {
        let mut stack = stack[stack.len().saturating_sub(KEPT)..].to_vec();
        let leaf = stack.last().unwrap().clone();
        stack.iter_mut().filter(|frame| **frame == leaf).for_each(|frame| frame.1 = 0);
        *shaped.entry(stack).or_default() += value;
    }
    shaped
}

fn any(_: &Row) -> bool {
    true
}

fn in_spans(row: &Row) -> bool {
    [1, 2].contains(&row.span)
}

fn in_trace(row: &Row) -> bool {
    row.span == 3 && row.span > TRACED
}

/// A merged profile: what it says of itself, and its stacks, if there are any.
fn said(lines: Lines, end: i64) -> String {
    let cpu = ["cpu".to_owned(), "nanoseconds".to_owned()];
    let header = (vec![cpu.clone(), cpu], 1_000_000_000, [end * 1_000_000, 0]);
    format!("{:?}", (header, lines))
}

/// What is to be answered.
pub fn expected(naive: &Naive) -> Answers {
    let graph = |stacks: Stacks<1>| format!("{:?}", Graph::of(stacks));
    let usual = |is_meant: fn(&Row) -> bool| stacks(naive.usual(), is_meant);
    let is_plain = |record: &&Record| {
        ["pod1", "pod2"].contains(&record.label("pod")) && record.label("endpoint").is_empty()
    };
    let by_id = |record: &&Record| naive.is_picked(record) && record.label("endpoint").is_empty();
    let of_profiles = |record: &&Record| naive.is_picked(record);
    let samples = lines(naive.within().filter(|record| record.is_of(SAMPLES)), any);
    let merged = |lines: Lines| said(lines, naive.end);
    let side = |is_meant: fn(&&Record) -> bool| stacks(naive.usual().filter(is_meant), any);
    let both =
        beside(side(|record| record.label("pod") == "pod1"), side(|record| record.label("pod") != "pod1"));
    let of_spans = beside(usual(|row| row.span == 1), usual(|row| row.span == 2));
    let cut_names = cut(&usual(any), FEW);
    Answers::from([
        ("graph", graph(usual(any))),
        ("graph, cut", graph(cut(&usual(any), FEW))),
        ("graph of labels", graph(stacks(naive.usual().filter(is_plain), any))),
        ("graph of spans", graph(usual(in_spans))),
        ("graph of a trace", graph(usual(in_trace))),
        ("graph of records", graph(stacks(naive.usual().filter(by_id), any))),
        ("graph of profiles", graph(stacks(naive.usual().filter(of_profiles), any))),
        ("graph of stacks", graph(usual(is_selected))),
        ("graph of stacks in spans", graph(usual(|row| is_selected(row) && in_spans(row)))),
        ("tree", format!("{:?}", usual(any))),
        ("tree of a trace, cut", format!("{:?}", cut(&usual(in_trace), 3))),
        ("calls", format!("{:?}", calls([&samples], 1_000))),
        ("calls, cut", format!("{:?}", calls([&samples], FUNCTIONS))),
        ("pprof", merged(lines(naive.usual(), any))),
        ("pprof for go", merged(go_pgo(&lines(naive.usual(), any)))),
        ("pprof of spans, cut", format!("{:?}", cut(&usual(in_spans), FEW))),
        ("SelectMergeProfile", merged(lines(naive.usual(), any))),
        (
            "SelectMergeProfile of stacks",
            merged(lines(naive.usual(), |row| is_selected(row) && in_trace(row))),
        ),
        ("SelectMergeProfile of profiles", merged(go_pgo(&lines(naive.usual().filter(of_profiles), any)))),
        ("SelectMergeProfile, cut", format!("{cut_names:?}")),
        ("SelectMergeSpanProfile", graph(usual(in_spans))),
        ("SelectMergeSpanProfile, tree", format!("{:?}", cut(&usual(in_spans), FEW))),
        ("Diff", format!("{:?}", Graph::of(both.clone()))),
        ("Diff, cut", format!("{:?}", Graph::of(cut(&both, FEW)))),
        ("Diff of spans", format!("{:?}", Graph::of(of_spans))),
    ])
}

/// What is answered.
pub async fn asked(asker: &Asker) -> Answers {
    let mut answers = graphs(asker).await;
    answers.extend(profiles(asker).await);
    answers.extend(differences(asker).await);
    answers
}

fn flame(graph: Option<FlameGraph>) -> Graph<1> {
    let FlameGraph { names, levels, total, max_self } = graph.unwrap();
    let levels: Vec<Vec<i64>> = levels.into_iter().map(|level| level.values).collect();
    let read = decoded::graph(&names, &levels);
    assert_eq!(([total], max_self), (read.totals, read.max_self));
    read
}

fn flames(graph: Option<FlameGraphDiff>) -> Graph<2> {
    let FlameGraphDiff { names, levels, total, max_self, left_ticks, right_ticks } = graph.unwrap();
    let levels: Vec<Vec<i64>> = levels.into_iter().map(|level| level.values).collect();
    let read = decoded::graph(&names, &levels);
    assert_eq!(([left_ticks, right_ticks], max_self), (read.totals, read.max_self));
    assert_eq!(total, left_ticks + right_ticks);
    read
}

fn merged(profile: &Profile) -> String {
    format!("{:?}", (decoded::header(profile), decoded::pprof(profile)))
}

fn spans(numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|span| format!("{span:016x}")).collect()
}

fn trace() -> Vec<String> {
    vec![format!("{:032x}", 3)]
}

fn pgo() -> StackTraceSelector {
    let go_pgo = Some(GoPgo { keep_locations: KEPT as u32, aggregate_callees: true });
    StackTraceSelector { go_pgo, ..StackTraceSelector::default() }
}

async fn graphs(asker: &Asker) -> Answers {
    let (mut answers, ids) = (Answers::new(), &asker.ids);
    let all = asker.merge();
    let request = || asker.merge();
    let asked = [
        ("graph", request()),
        ("graph, cut", SelectMergeStacktracesRequest { max_nodes: Some(FEW as i64), ..request() }),
        ("graph of labels", {
            let label_selector = r#"{pod=~"pod[12]",endpoint=""}"#.to_owned();
            SelectMergeStacktracesRequest { label_selector, ..request() }
        }),
        ("graph of spans", SelectMergeStacktracesRequest { span_selector: spans(&[1, 2]), ..request() }),
        ("graph of a trace", SelectMergeStacktracesRequest { trace_id_selector: trace(), ..request() }),
        ("graph of records", {
            let profile_id_selector = ids_of_records(&asker.picked, ids);
            SelectMergeStacktracesRequest { profile_id_selector, ..request() }
        }),
        ("graph of profiles", {
            let profile_id_selector = ids_of_profiles(&asker.picked, ids);
            SelectMergeStacktracesRequest { profile_id_selector, ..request() }
        }),
        ("graph of stacks", {
            SelectMergeStacktracesRequest { stack_trace_selector: Some(selector()), ..request() }
        }),
        ("graph of stacks in spans", {
            let stack_trace_selector = Some(selector());
            SelectMergeStacktracesRequest { stack_trace_selector, span_selector: spans(&[1, 2]), ..request() }
        }),
    ];
    for (question, request) in asked {
        let answer = whole!(asker, select_merge_stacktraces, request);
        answers.insert(question, format!("{:?}", flame(answer.flamegraph)));
    }
    let tree = ProfileFormat::Tree as i32;
    let of_trace = SelectMergeStacktracesRequest {
        format: tree,
        max_nodes: Some(3),
        trace_id_selector: trace(),
        ..request()
    };
    let whole_tree = SelectMergeStacktracesRequest { format: tree, ..all };
    for (question, request) in [("tree", whole_tree), ("tree of a trace, cut", of_trace)] {
        let answer = whole!(asker, select_merge_stacktraces, request);
        answers.insert(question, format!("{:?}", decoded::tree(&answer.tree)));
    }
    let of_samples = || SelectMergeStacktracesRequest {
        profile_type_id: SAMPLES.to_owned(),
        format: ProfileFormat::Dot as i32,
        ..request()
    };
    let few = SelectMergeStacktracesRequest { max_nodes: Some(FUNCTIONS as i64), ..of_samples() };
    for (question, request) in [("calls", of_samples()), ("calls, cut", few)] {
        let answer = whole!(asker, select_merge_stacktraces, request);
        answers.insert(question, format!("{:?}", decoded::calls::<1>(&answer.dot)));
    }
    answers
}

async fn profiles(asker: &Asker) -> Answers {
    let mut answers = Answers::new();
    let pprof = || SelectMergeStacktracesRequest { format: ProfileFormat::Pprof as i32, ..asker.merge() };
    let for_go = SelectMergeStacktracesRequest { stack_trace_selector: Some(pgo()), ..pprof() };
    for (question, request) in [("pprof", pprof()), ("pprof for go", for_go)] {
        let answer = whole!(asker, select_merge_stacktraces, request);
        answers.insert(question, merged(&answer.pprof.unwrap().profile.unwrap()));
    }
    let few = SelectMergeStacktracesRequest {
        max_nodes: Some(FEW as i64),
        span_selector: spans(&[1, 2]),
        ..pprof()
    };
    let few = whole!(asker, select_merge_stacktraces, few).pprof.unwrap().profile.unwrap();
    answers.insert("pprof of spans, cut", format!("{:?}", decoded::by_names(&decoded::pprof(&few))));
    let request = || SelectMergeProfileRequest {
        profile_type_id: TYPE.to_owned(),
        label_selector: "{}".to_owned(),
        start: asker.start,
        end: asker.end,
        ..SelectMergeProfileRequest::default()
    };
    let of_stacks = SelectMergeProfileRequest {
        stack_trace_selector: Some(selector()),
        trace_id_selector: trace(),
        ..request()
    };
    let of_profiles = SelectMergeProfileRequest {
        profile_id_selector: ids_of_profiles(&asker.picked, &asker.ids),
        stack_trace_selector: Some(pgo()),
        ..request()
    };
    let asked = [
        ("SelectMergeProfile", request()),
        ("SelectMergeProfile of stacks", of_stacks),
        ("SelectMergeProfile of profiles", of_profiles),
    ];
    for (question, request) in asked {
        answers.insert(question, merged(&whole!(asker, select_merge_profile, request)));
    }
    let few = SelectMergeProfileRequest { max_nodes: Some(FEW as i64), ..request() };
    let few = whole!(asker, select_merge_profile, few);
    answers.insert("SelectMergeProfile, cut", format!("{:?}", decoded::by_names(&decoded::pprof(&few))));
    answers
}

async fn differences(asker: &Asker) -> Answers {
    let mut answers = Answers::new();
    let in_spans = |format: ProfileFormat, max_nodes| SelectMergeSpanProfileRequest {
        profile_type_id: TYPE.to_owned(),
        label_selector: "{}".to_owned(),
        span_selector: spans(&[1, 2]),
        start: asker.start,
        end: asker.end,
        max_nodes,
        format: format as i32,
    };
    let answer = whole!(asker, select_merge_span_profile, in_spans(ProfileFormat::Unspecified, None));
    answers.insert("SelectMergeSpanProfile", format!("{:?}", flame(answer.flamegraph)));
    let answer = whole!(asker, select_merge_span_profile, in_spans(ProfileFormat::Tree, Some(FEW as i64)));
    answers.insert("SelectMergeSpanProfile, tree", format!("{:?}", decoded::tree(&answer.tree)));

    let of = |selector: &str, max_nodes| {
        let label_selector = selector.to_owned();
        Some(SelectMergeStacktracesRequest { label_selector, max_nodes, ..asker.merge() })
    };
    let (one, others) = (r#"{pod="pod1"}"#, r#"{pod!="pod1"}"#);
    let in_span =
        |span: usize| Some(SelectMergeStacktracesRequest { span_selector: spans(&[span]), ..asker.merge() });
    let sides = |left, right| DiffRequest { left, right, ..DiffRequest::default() };
    let asked = [
        ("Diff", sides(of(one, None), of(others, None))),
        ("Diff, cut", sides(of(one, Some(FEW as i64)), of(others, None))),
        ("Diff of spans", sides(in_span(1), in_span(2))),
    ];
    for (question, request) in asked {
        let answer = whole!(asker, diff, request);
        answers.insert(question, format!("{:?}", flames(answer.flamegraph)));
    }
    answers
}
