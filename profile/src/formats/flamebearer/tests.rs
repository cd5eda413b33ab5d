use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::call_tree::flamegraph::Flamegraph;
use crate::call_tree::tree::Tree;
use crate::formats::folded;
use crate::generate::arbitrary_profile;

fn read(document: &Value) -> Profile {
    parse(document.to_string().as_bytes(), &DecodeLimits::default()).unwrap()
}

fn refused(document: &Value) -> String {
    let limits =
        DecodeLimits { depth: 2, samples: 6, entries: 3, frames: 4, bytes: 1_000, ..DecodeLimits::default() };
    parse(document.to_string().as_bytes(), &limits).unwrap_err().to_string()
}

fn stacks(profile: &Profile) -> Vec<String> {
    let mut lines: Vec<String> =
        folded::write(&Tree::from_profile(profile, 0)).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

fn graph(names: &[&str], levels: Value) -> Value {
    json!({ "version": 1, "flamebearer": { "names": names, "levels": levels } })
}

/// As `/pyroscope/render` has it.
fn document(tree: &Tree) -> Value {
    let Flamegraph { names, levels, total, max_self } = Flamegraph::from_tree(tree);
    json!({
        "version": 1,
        "flamebearer": { "names": names, "levels": levels, "numTicks": total, "maxSelf": max_self },
        "metadata": { "format": "single", "spyName": "", "sampleRate": 100, "units": "bytes", "name": "inuse_space" },
        "timeline": null, "groups": null, "heatmap": null,
    })
}

/// A graph as another server answered it, and what it was made of.
#[test]
fn bars_are_the_stacks_that_they_were_made_of() {
    let names = ["total", "main", "gc", "serve", "syscall.Read", "handle", "db.query"];
    let levels = json!([
        [0, 1250, 0, 0],
        [0, 1250, 0, 1],
        [0, 250, 150, 2, 0, 1000, 0, 3],
        [150, 100, 100, 4, 0, 1000, 0, 5],
        [250, 1000, 0, 6],
        [250, 1000, 1000, 4]
    ]);
    let profile = read(&graph(&names, levels));
    assert_eq!(
        stacks(&profile),
        ["main;gc 150", "main;gc;syscall.Read 100", "main;serve;handle;db.query;syscall.Read 1000"]
    );
}

#[test]
fn only_the_whole_is_no_function() {
    // What is measured nowhere belongs to the whole itself, and a function may be called as that is.
    let profile = read(&graph(&["total", "a"], json!([[0, 9, 2, 0], [2, 4, 4, 0, 0, 3, 3, 1]])));
    assert_eq!(stacks(&profile), [" 2", "a 3", "total 4"]);
    for levels in [json!([[0, 9, 9, 1]]), json!([[0, 4, 4, 1, 0, 5, 5, 1]])] {
        assert_eq!(stacks(&read(&graph(&["total", "a"], levels))), ["a 9"]);
    }
    // Bars of nothing are nowhere, wherever they lie.
    let levels = json!([[0, 3, 0, 0], [0, 0, 0, 1, 0, 3, 3, 1, 5, 0, 0, 1], [0, 0, 0, 1]]);
    assert_eq!(stacks(&read(&graph(&["total", "a"], levels))), ["a 3"]);
    for levels in [json!([]), json!([[]]), json!([[0, 0, 0, 0]])] {
        let profile = read(&graph(&["total"], levels));
        assert!(profile.samples.is_empty() && profile.header.types.len() == 1);
    }
}

#[test]
fn what_is_measured_is_told_by_units_rate_and_name() {
    let of = |metadata: Value| {
        let mut document = graph(&["total"], json!([[0, 6, 6, 0]]));
        document["metadata"] = metadata;
        let profile = read(&document);
        let ValueType { kind, unit } = &profile.header.types[0];
        (format!("{kind}/{unit}"), profile.header.period)
    };
    for (units, rate, name, expected, period) in [
        ("samples", 1_000_000_000, "cpu", "cpu/nanoseconds", 0),
        ("samples", 100, "cpu", "samples/count", 10_000_000),
        ("samples", 97, "app.cpu{}", "samples/count", 10_309_278),
        ("samples", 0, "", "samples/count", 0),
        ("objects", 100, "inuse_objects", "inuse_objects/count", 0),
        ("objects", 100, "samples", "samples/count", 0),
        ("objects", 100, "my.app", "objects/count", 0),
        ("bytes", 100, "inuse_space", "inuse_space/bytes", 0),
        ("bytes", 100, "", "space/bytes", 0),
        ("count", 100, "contentions", "contentions/count", 0),
        ("nanoseconds", 100, "delay", "delay/nanoseconds", 0),
        ("lock_nanoseconds", 100, "app", "app/nanoseconds", 0),
        ("lock_samples", 100, "a b", "contentions/count", 0),
        ("goroutines", 100, "a:b", "goroutine/count", 0),
        ("widgets", 100, "", "samples/widgets", 0),
    ] {
        let metadata = json!({ "units": units, "sampleRate": rate, "name": name, "spyName": null });
        assert_eq!(of(metadata.clone()), (expected.to_owned(), period), "{metadata}");
    }
    assert_eq!(of(Value::Null), ("samples/count".to_owned(), 0));
    assert_eq!(of(json!({ "units": null, "sampleRate": "x", "format": "single" })).0, "samples/count");
}

#[test]
fn errors_say_where_and_what() {
    let levels = |levels: Value| graph(&["total", "a"], levels);
    let with = |key: &str, value: Value| {
        let mut document = levels(json!([[0, 9, 9, 0]]));
        document[key] = value;
        document
    };
    let mut ticks = levels(json!([[0, 9, 9, 0]]));
    ticks["flamebearer"]["numTicks"] = json!(10);
    let most = i64::MAX;
    for (document, wanted) in [
        (with("version", json!(2)), "version is 2; the supported version is 1"),
        (
            with("metadata", json!({ "format": "double" })),
            "metadata.format is \"double\", a comparison of two profiles; export each profile separately",
        ),
        (ticks, "flamebearer.numTicks is 10, but the bars of level 0 have 9"),
        (levels(json!([[0, 9, 9, 0], [0, 1, 1, 0, 2, 2, 1]])), "levels[1] has 7 numbers; a bar has 4"),
        (levels(json!([[0, -9, 9, 0]])), "flamebearer.levels[0], bar 0: total is -9, below 0"),
        (levels(json!([[0, 9, -1, 0]])), "self value is -1, below 0"),
        (
            levels(json!([[0, 9, 0, 0], [0, 9, 9, 1, -1, 1, 1, 1]])),
            "levels[1], bar 1: distance is -1, below 0",
        ),
        (levels(json!([[0, 9, 9, 2]])), "name index 2 is out of range, flamebearer.names has 2 entries"),
        (levels(json!([[0, 9, 9, -1]])), "name index -1 is out of range"),
        (levels(json!([[0, most, most, 1, 1, 1, 1, 1]])), "levels[0], bar 1: end exceeds 63 bits"),
        (levels(json!([[most, 1, 1, 1]])), "levels[0], bar 0: end exceeds 63 bits"),
        (levels(json!([[0, 9, 9, 0], [9, 1, 1, 1]])), "levels[1], bar 0: range 9 to 10 is within no bar"),
        (levels(json!([[0, 4, 4, 1, 0, 4, 4, 1], [3, 2, 2, 1]])), "range 3 to 5 is within no bar"),
        (
            levels(json!([[0, 9, 5, 0], [0, 5, 5, 1]])),
            "levels[0], bar 0: total is 9, but the self value and the bars below add up to 10",
        ),
        (
            levels(json!([[0, 9, 5, 0], [0, 3, 3, 1]])),
            "total is 9, but the self value and the bars below add up to 8",
        ),
        (levels(json!([[0, 9, 0, 0], [0, 9, 8, 1]])), "levels[1], bar 0: total is 9, but the self value and"),
        (levels(json!([[0, 0, 5, 0]])), "total is 0, but the self value and the bars below add up to 5"),
        (levels(json!([[0, 1.5, 5, 0]])), "invalid type: floating point `1.5`, expected i64"),
        (json!({ "flamebearer": { "names": [] } }), "line 1, column 27: missing field `levels`"),
        (json!({ "version": 1 }), "missing field `flamebearer`"),
        (graph(&["a"; 4], json!([])), "4 names, the limit is 3"),
        (levels(json!([vec![0; 52]])), "13 bars, the limit is 12"),
        (levels(json!([[], [], [], []])), "3 frames in a stack, the limit is 2"),
        (
            levels(json!([[0, 9, 0, 0], [0, 9, 1, 1], [1, 4, 4, 1, 0, 4, 4, 0]])),
            "5 frames of all expanded stacks, the limit is 4",
        ),
        (graph(&[&"x".repeat(1_000)], json!([])), "bytes, the limit is 1000"),
    ] {
        let said = refused(&document);
        assert!(said.contains(wanted), "{said}\nwanted {wanted}");
    }
}

#[test]
fn a_graph_that_was_cut_keeps_its_total() {
    let mut tree = Tree::from_profile(&arbitrary_tree(7), 0);
    let total = tree.total();
    tree.truncate(3);
    let again = Tree::from_profile(&read(&document(&tree)), 0);
    assert_eq!(again.total(), total);
    assert!(again.nodes().iter().any(|node| again.name(node) == "other"));
}

/// With values that a graph can show.
fn arbitrary_tree(seed: u64) -> Profile {
    let mut profile = arbitrary_profile(seed);
    profile.samples.values.iter_mut().for_each(|value| *value = (*value % 1_000_000).abs());
    profile
}

proptest! {
    #[test]
    fn what_is_shown_reads_back(seed: u64) {
        let tree = Tree::from_profile(&arbitrary_tree(seed), 0);
        let again = read(&document(&tree));
        prop_assert_eq!(&again.header.types, &[ValueType::new("inuse_space", "bytes")]);
        prop_assert_eq!(Tree::from_profile(&again, 0), tree);
    }

    /// Of graphs of which a number is another, or a character.
    #[test]
    fn any_document_is_read_or_refused(
        seed: u64, at: prop::sample::Index, byte in "[\\[\\]{}\",:0-9eE.\\-]", numbers in prop::collection::vec(-9i64..9, 0..40)
    ) {
        let mut text = document(&Tree::from_profile(&arbitrary_tree(seed), 0)).to_string().into_bytes();
        let at = at.index(text.len());
        text[at] = byte.as_bytes()[0];
        let levels: Vec<&[i64]> = numbers.chunks(8).collect();
        for text in [text, graph(&["total", "a"], json!(levels)).to_string().into_bytes()] {
            if let Ok(profile) = parse(&text, &DecodeLimits::default()) {
                let tree = Tree::from_profile(&profile, 0);
                prop_assert_eq!(Tree::from_profile(&read(&document(&tree)), 0), tree);
            }
        }
    }
}
