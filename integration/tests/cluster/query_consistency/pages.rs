//! The pages of older clients: a graph with its timeline, two graphs, values of a label.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::query_consistency::asker::{Answers, Asker, whole};
use crate::query_consistency::decoded::{self, Graph, Stacks};
use crate::query_consistency::naive::{Naive, Record};
use crate::query_consistency::points::{Group, Values, means, sums};
use crate::query_consistency::profiles::{SAMPLES, TYPE};
use crate::query_consistency::sums::{beside, calls, cut, lines, stacks};

/// The least step of a timeline, milliseconds; all that is asked for is short.
const STEP: i64 = 15_000;
const FEW: usize = 4;
/// Functions of a call graph where nobody says how many.
const FUNCTIONS: usize = 100;

/// Values at all steps of a range, whose end is not in it.
fn timeline(naive: &Naive, points: &[(i64, f64)]) -> Value {
    let count = (naive.end / 1_000 - naive.start / 1_000) / (STEP / 1_000);
    let at = |place: i64| points.iter().find(|(time, _)| *time == naive.start + place * STEP);
    let samples: Vec<u64> = (0..count).map(|place| at(place).map_or(0, |(_, value)| *value as u64)).collect();
    json!({ "startTime": naive.start / 1_000, "samples": samples, "durationDelta": STEP / 1_000, "watermarks": null })
}

/// A timeline for each value of a label.
fn groups(naive: &Naive, values: &Values) -> Value {
    let of = |(group, points): (&Group, &Vec<(i64, f64)>)| (group[0].1.clone(), timeline(naive, points));
    json!(values.iter().map(of).collect::<BTreeMap<String, Value>>())
}

/// What is to be answered.
pub fn expected(naive: &Naive) -> Answers {
    let any = |_: &_| true;
    let all = stacks(naive.usual(), any);
    let of_pod = |of: &str, pod: &str| {
        let is_meant = |record: &&Record| record.is_of(of) && record.label("pod") == pod;
        lines(naive.within().filter(is_meant), any)
    };
    let two = |of: &str| {
        let [left, right] = ["pod1", "pod2"].map(|pod| decoded::by_names(&of_pod(of, pod)));
        beside(left, right)
    };
    let [one, other] = ["pod1", "pod2"].map(|pod| of_pod(SAMPLES, pod));
    let samples = lines(naive.within().filter(|record| record.is_of(SAMPLES)), any);
    let graph = |stacks: Stacks<1>, timeline: Value, groups: Value| {
        format!("{:?} {timeline} {groups}", Graph::of(stacks))
    };
    let of_all = sums(naive, STEP, &[], any);
    let points = of_all.values().next().map_or(&[][..], Vec::as_slice);
    let of_pods = means(naive, STEP, &["pod"], any);
    // Of several there is no one timeline.
    let of_one = of_pods.values().next().filter(|_| of_pods.len() == 1).map_or(&[][..], Vec::as_slice);
    let by_pod = graph(all.clone(), timeline(naive, of_one), groups(naive, &of_pods));
    let waves =
        naive.within().filter(|record| record.label("pod") != "pod1").map(|record| record.label("wave"));
    let types = naive.within().map(|record| record.label("__profile_type__"));
    Answers::from([
        ("render", graph(all.clone(), timeline(naive, points), Value::Null)),
        // The whole is one of the bars that are drawn.
        ("render, cut", graph(cut(&all, FEW - 1), timeline(naive, points), Value::Null)),
        ("render, groups", by_pod),
        ("render, calls", format!("{:?}", calls([&samples], FUNCTIONS))),
        ("render-diff", format!("{:?}", Graph::of(two(TYPE)))),
        ("render-diff, cut", format!("{:?}", Graph::of(cut(&two(TYPE), FEW - 1)))),
        ("render-diff, calls", format!("{:?}", calls([&one, &other], FUNCTIONS))),
        ("label-values", format!("{:?}", waves.collect::<BTreeSet<_>>())),
        ("label-values, types", format!("{:?}", types.collect::<BTreeSet<_>>())),
    ])
}

/// A text as a part of a URL.
pub fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The part of a URL that says what is asked for, and of which time.
pub fn asked_for(asker: &Asker, query: &str) -> String {
    let Asker { start, end, .. } = asker;
    format!("query={}&from={start}&until={end}", encoded(query))
}

fn graph<const N: usize>(page: &Value) -> Graph<N> {
    let bars = &page["flamebearer"];
    let names: Vec<String> = serde_json::from_value(bars["names"].clone()).unwrap();
    let levels: Vec<Vec<i64>> = serde_json::from_value(bars["levels"].clone()).unwrap();
    let read: Graph<N> = decoded::graph(&names, &levels);
    let total = read.totals.iter().sum::<i64>();
    assert_eq!((&bars["numTicks"], &bars["maxSelf"]), (&json!(total), &json!(read.max_self)));
    read
}

/// What is answered.
pub async fn asked(asker: &Asker) -> Answers {
    let mut answers = Answers::new();
    let all = asked_for(asker, &format!("{TYPE}{{}}"));
    let pages = [
        ("render", all.clone()),
        ("render, cut", format!("{all}&max-nodes={FEW}")),
        ("render, groups", format!("{all}&groupBy=pod&aggregation=avg")),
    ];
    for (question, query) in pages {
        let page: Value = serde_json::from_slice(&whole!(asker, render, &query).body).unwrap();
        assert_eq!(page["metadata"]["format"], "single");
        let (timeline, groups) = (&page["timeline"], &page["groups"]);
        answers.insert(question, format!("{:?} {timeline} {groups}", graph::<1>(&page)));
    }
    let calls = whole!(asker, render, &format!("{}&format=dot", asked_for(asker, &format!("{SAMPLES}{{}}"))));
    let calls = decoded::calls::<1>(std::str::from_utf8(&calls.body).unwrap());
    answers.insert("render, calls", format!("{calls:?}"));
    answers.extend(differences(asker).await);
    let plain = asked_for(asker, r#"process_cpu{pod!="pod1"}"#);
    let lists = [
        ("label-values", format!("{plain}&label=wave")),
        ("label-values, types", { format!("from={}&until={}&label=__name__", asker.start, asker.end) }),
    ];
    for (question, query) in lists {
        let values: Vec<String> =
            serde_json::from_slice(&whole!(asker, render_label_values, &query).body).unwrap();
        let count = values.len();
        let values: BTreeSet<String> = values.into_iter().collect();
        assert_eq!(values.len(), count, "none is there twice");
        answers.insert(question, format!("{values:?}"));
    }
    answers
}

async fn differences(asker: &Asker) -> Answers {
    let (mut answers, Asker { start, end, .. }) = (Answers::new(), asker);
    let side = |name: &str, of: &str, pod: &str| {
        let query = encoded(&format!("{of}{{pod={pod:?}}}"));
        format!("{name}Query={query}&{name}From={start}&{name}Until={end}")
    };
    let sides = |of: &str| format!("{}&{}", side("left", of, "pod1"), side("right", of, "pod2"));
    let cut = format!("{}&maxNodes={FEW}", sides(TYPE));
    for (question, query) in [("render-diff", sides(TYPE)), ("render-diff, cut", cut)] {
        let page: Value = serde_json::from_slice(&whole!(asker, render_diff, &query).body).unwrap();
        assert_eq!(page["metadata"]["format"], "double");
        let read = graph::<2>(&page);
        // A side without anything says nothing.
        let ticks = [&page["leftTicks"], &page["rightTicks"]].map(|ticks| ticks.as_i64().unwrap_or_default());
        assert_eq!(ticks, read.totals);
        answers.insert(question, format!("{read:?}"));
    }
    let calls = whole!(asker, render_diff, &format!("{}&format=dot", sides(SAMPLES)));
    let calls = decoded::calls::<2>(std::str::from_utf8(&calls.body).unwrap());
    answers.insert("render-diff, calls", format!("{calls:?}"));
    answers
}
