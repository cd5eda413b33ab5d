use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::call_tree::tree::Tree;
use crate::data_model::model::{Profile, ValueType};
use crate::formats::folded;
use crate::formats::pprof::DecodeLimits;
use crate::generate::arbitrary_profile;

/// A document with frames main, run and work.
fn document(profiles: &str) -> String {
    format!(
        r#"{{"profiles": [{profiles}], "shared": {{"frames": [{{"name": "main"}}, {{"name": "run"}}, {{"name": "work"}}]}}}}"#
    )
}

fn sampled(unit: &str, samples: &str, weights: &str) -> String {
    document(&format!(
        r#"{{"type": "sampled", "name": "p", "unit": "{unit}", "samples": {samples}, "weights": {weights}}}"#
    ))
}

fn evented(rest: &str) -> String {
    document(&format!(r#"{{"type": "evented", "name": "e", "unit": "seconds", {rest}}}"#))
}

fn read(document: &str) -> Profile {
    parse(document.as_bytes(), &DecodeLimits::default()).unwrap()
}

fn stacks(profile: &Profile, column: usize) -> Vec<String> {
    let mut lines: Vec<String> =
        folded::write(&Tree::from_profile(profile, column)).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

fn refused(document: &str) -> String {
    let limits = DecodeLimits {
        depth: 4,
        samples: 5,
        entries: 4,
        frames: 8,
        tables: 600,
        bytes: 2_000,
        types: 2,
        ..DecodeLimits::default()
    };
    parse(document.as_bytes(), &limits).unwrap_err().to_string()
}

fn types(profile: &Profile) -> Vec<String> {
    profile.header.types.iter().map(|value| format!("{}/{}", value.kind, value.unit)).collect()
}

/// The stacks and weights that the answers of another server were recorded for, where it was right.
#[test]
fn every_unit_counts_for_what_it_is() {
    for (unit, scale, of) in [
        ("seconds", 1_000_000_000u64, "wall/nanoseconds"),
        ("milliseconds", 1_000_000, "wall/nanoseconds"),
        ("microseconds", 1_000, "wall/nanoseconds"),
        ("nanoseconds", 1, "wall/nanoseconds"),
        ("none", 1, "samples/count"),
        ("bytes", 1, "space/bytes"),
    ] {
        let profile = read(&sampled(unit, "[[0, 1], [0, 1, 2], [0]]", "[1, 2, 3]"));
        assert_eq!(types(&profile), [of]);
        let wanted = [
            format!("main {}", 3 * scale),
            format!("main;run {scale}"),
            format!("main;run;work {}", 2 * scale),
        ];
        assert_eq!(stacks(&profile, 0), wanted, "{unit}");
    }
}

#[test]
fn fractions_count() {
    let profile = read(&sampled("seconds", "[[0, 1], [0, 1, 2], [0]]", "[0.5, 1.5, 2.25]"));
    assert_eq!(stacks(&profile, 0), ["main 2250000000", "main;run 500000000", "main;run;work 1500000000"]);
    // Ten tenths are one, and what is not whole becomes so when it is added up.
    let (samples, weights) = (["[0]"; 10].join(","), ["0.1"; 10].join(","));
    assert_eq!(
        stacks(&read(&sampled("none", &format!("[{samples}]"), &format!("[{weights}]"))), 0),
        ["main 1"]
    );
    let thirds = sampled("seconds", "[[0], [0], [0]]", "[0.0000000003, 3e-10, 0.3E-9]");
    assert_eq!(stacks(&read(&thirds), 0), ["main 1"]);
    assert!(read(&sampled("bytes", "[[0]]", "[0.4]")).samples.is_empty());
}

#[test]
fn time_belongs_to_the_innermost_frame() {
    let profile = read(&evented(
        r#""startValue": 0, "endValue": 9, "events": [{"type": "O", "frame": 0, "at": 0}, {"type": "O", "frame": 1, "at": 2},
            {"type": "C", "frame": 1, "at": 5}, {"type": "C", "frame": 0, "at": 9}]"#,
    ));
    assert_eq!(stacks(&profile, 0), ["main 6000000000", "main;run 3000000000"]);
    // A clock of nanoseconds since 1970 in seconds, idle time at its beginning and between two calls, recursion.
    let profile = read(&evented(
        r#""startValue": 1700000000, "endValue": 1700000010, "events": [
            {"at": 1700000001.000000001, "frame": 0, "type": "O"}, {"at": 1700000001.000000003, "frame": 0, "type": "C"},
            {"at": 1700000005, "frame": 0, "type": "O"}, {"at": 1700000005, "frame": 0, "type": "O"},
            {"at": 1700000005.000000007, "frame": 0, "type": "C"}, {"at": 1700000005.000000008, "frame": 0, "type": "C"}]"#,
    ));
    assert_eq!(stacks(&profile, 0), ["main 3", "main;main 7"]);
    // What goes on at the end does so until the end.
    let cut = |end: &str| {
        let events = r#""events": [{"type": "O", "frame": 0, "at": 1}, {"type": "O", "frame": 2, "at": 2}]"#;
        stacks(&read(&evented(&format!("{end}{events}"))), 0)
    };
    assert_eq!(cut(r#""endValue": 4, "#), ["main 1000000000", "main;work 2000000000"]);
    assert_eq!(cut(r#""endValue": 1, "#), ["main 1000000000"]);
    assert_eq!(cut(""), ["main 1000000000"]);
}

#[test]
fn profiles_of_one_type_add_up_and_others_are_types() {
    let one = |name: &str, unit: &str, weight: u32| {
        format!(
            r#"{{"name": "{name}", "type": "sampled", "weights": [{weight}], "samples": [[0]], "unit": "{unit}"}}"#
        )
    };
    let all = [
        one("a", "milliseconds", 1),
        one("b", "bytes", 5),
        one("a", "nanoseconds", 7),
        one("", "seconds", 2),
    ];
    let profile = read(&document(&all.join(",")));
    assert_eq!(types(&profile), ["wall/nanoseconds", "space/bytes"]);
    assert_eq!(
        (stacks(&profile, 0), stacks(&profile, 1)),
        (vec!["main 2001000007".into()], vec!["main 5".into()])
    );
    // Whose they are stays known.
    let strings = &profile.dictionary.symbols.strings;
    let label = |set: u32| {
        let labels = profile.dictionary.label_sets.get(set).iter();
        labels.map(|label| [strings.get(label.key), strings.get(label.text)].join("=")).collect::<String>()
    };
    let mut rows: Vec<(String, &[i64])> =
        profile.samples.rows(2).map(|(_, labels, values)| (label(labels), values)).collect();
    rows.sort_unstable();
    let wanted: [(&str, &[i64]); 3] =
        [("", &[2_000_000_000, 0]), ("profile_name=a", &[1_000_007, 0]), ("profile_name=b", &[0, 5])];
    assert_eq!(rows, wanted.map(|(label, values)| (label.to_owned(), values)));
}

#[test]
fn the_profile_that_is_shown_is_the_active_one() {
    let of = |active: &str| {
        let one =
            |unit: &str| format!(r#"{{"type": "sampled", "unit": "{unit}", "samples": [], "weights": []}}"#);
        let document = document(&[one("bytes"), one("none"), one("seconds")].join(","));
        read(&format!(r#"{{"activeProfileIndex": {active}, {}"#, &document[1..])).header.shown_type()
    };
    assert_eq!([of("0"), of("1"), of("2"), of("null"), of("7"), of("-1"), of("1e99")], [0, 1, 2, 2, 2, 2, 2]);
}

#[test]
fn frames_keep_file_and_line() {
    let frames = r#"{"shared": {"frames": [{"name": "m\"ain", "file": "a.c", "line": 12, "col": 3}, {"name": "b", "file": null,
        "line": null, "more": {}}, {"name": "c", "line": "x"}]}, "profiles": [
        {"type": "sampled", "unit": "none", "samples": [[0, 1, 2]], "weights": [1]}]}"#;
    let profile = read(frames);
    assert_eq!(stacks(&profile, 0), ["m\"ain;b;c 1"]);
    let symbols = &profile.dictionary.symbols;
    let root = profile.dictionary.stacks.locations(0).last().unwrap();
    let line = symbols.lines(root)[0];
    let file = symbols.strings.get(symbols.functions()[line.function as usize].filename);
    assert_eq!((file, line.line, line.column), ("a.c", 12, 3));
}

/// Documents, and what must be said of each.
fn all_refused<const COUNT: usize>(documents: [(String, &str); COUNT]) {
    for (document, wanted) in documents {
        let said = refused(&document);
        assert!(said.contains(wanted), "{said}\nwanted {wanted}");
    }
}

#[test]
fn errors_say_where_and_what() {
    let deep = |frames: &str| sampled("none", &format!("[{frames}]"), "[1]");
    all_refused([
        (document(""), "the document has no profiles"),
        (r#"{"profiles": []}"#.into(), "line 1, column 16: missing field `shared`"),
        (r#"{"shared": {"frames": []}}"#.into(), "line 1, column 26: missing field `profiles`"),
        (r#"{"shared": {"frames": [{"file": "a"}]}}"#.into(), "line 1, column 36: missing field `name`"),
        (
            "{\n\"shared\":\n 7}".into(),
            "line 3, column 2: invalid type: integer `7`, expected an object with frames",
        ),
        (sampled("parsecs", "[]", "[]"), "unknown variant `parsecs`, expected one of `none`, `nanoseconds`"),
        (document(r#"{"type": "other"}"#), "unknown variant `other`, expected `evented` or `sampled`"),
        (document(r#"{"type": "sampled"}"#), "profiles[0]: missing field `unit`"),
        (document(r#"{"unit": "none"}"#), "profiles[0]: missing field `type`"),
        (document(r#"{"unit": "none", "unit": "none"}"#), "duplicate field `unit`"),
        (evented(r#""endValue": 1"#), "profiles[0]: missing field `events`"),
        (
            document(r#"{"type": "sampled", "unit": "none", "weights": []}"#),
            "profiles[0]: missing field `samples`",
        ),
        (
            sampled("none", "[[0], [0]]", "[1]"),
            "profiles[0]: 2 samples and 1 weights; each sample needs one weight",
        ),
        (deep("[7]"), "profiles[0].samples[0]: frame index 7 is out of range, shared.frames has 3 entries"),
        (deep("[4294967296]"), "invalid value: integer `4294967296`, expected u32"),
        (deep("[-1]"), "invalid value: integer `-1`, expected u32"),
        (sampled("none", "[[0]]", "[NaN]"), "line 1, column "),
        (sampled("none", "[[0]]", "[\"1\"]"), "expected a number of at most 64 bits, found \"1\""),
        (sampled("none", "[[0]]", "[1e999]"), "expected a number of at most 64 bits, found 1e999"),
        (sampled("none", "[[0]]", "[null]"), "expected a number of at most 64 bits, found null"),
        (
            sampled("seconds", "[[0]]", "[9223372037]"),
            "profiles[0]: the values of a stack add up to 9223372037 seconds, which is more than 63 bits of nanoseconds",
        ),
        (
            sampled("none", "[[0], [0]]", "[9223372036854775807, 1]"),
            "add up to 9223372036854775808 without unit",
        ),
        (format!("{} x", document("")), "trailing characters"),
    ]);
    let said = parse(b"{\"shared\":\n\"\xff\"}", &DecodeLimits::default()).unwrap_err().to_string();
    assert_eq!(said, "line 2, column 2: not valid UTF-8");
}

#[test]
fn errors_of_events_and_over_limits_say_where_and_what() {
    let events = |events: &str| evented(&format!(r#""events": [{events}]"#));
    let open = |frame: u32, at: f64| format!(r#"{{"type": "O", "frame": {frame}, "at": {at}}}"#);
    let close = |frame: u32, at: f64| open(frame, at).replace('O', "C");
    let deep = sampled("none", "[[0, 0, 0, 0, 0]]", "[1]");
    all_refused([
        (events(&close(0, 1.5)), "profiles[0].events[0]: ends frame 0, but no frame is open"),
        (
            events(&[open(0, 0.0), open(1, 0.0), close(0, 1.0)].join(",")),
            "profiles[0].events[2]: ends frame 0, but the innermost open frame is 1",
        ),
        (
            events(&[open(0, 5.0), close(0, 1.25)].join(",")),
            "profiles[0].events[1]: time 1.25 is before that of the previous event, 5",
        ),
        (events(&open(3, 0.0)), "profiles[0].events[0]: frame index 3 is out of range"),
        (events(r#"{"type": "X"}"#), "unknown variant `X`, expected `O` or `C`"),
        (events(r#"{"type": "O", "frame": 0}"#), "missing field `at`"),
        (deep, "5 frames in a stack, the limit is 4"),
        (events(&vec![open(0, 0.0); 5].join(",")), "profiles[0]: 5 frames in a stack, the limit is 4"),
        (events(&vec![open(0, 0.0); 6].join(",")), "6 events, the limit is 5"),
        (sampled("none", "[[], [], [], [], [], []]", "[]"), "6 samples, the limit is 5"),
        (sampled("none", "[]", "[1, 1, 1, 1, 1, 1]"), "profiles[0]: 0 samples and 6 weights"),
        (
            document(&[r#"{"weights": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}"#; 4].join(",")),
            "608 bytes of samples in memory, the limit is 600",
        ),
        (document(&["{}"; 5].join(",")), "5 profiles, the limit is 4"),
        (
            r#"{"shared": {"frames": [{"name":""},{"name":""},{"name":""},{"name":""},{"name":""}]}}"#.into(),
            "5 frames, the limit is 4",
        ),
        (" ".repeat(2_001), "line 1, column 1: 2001 bytes, the limit is 2000"),
        (
            events(
                &(0..4).map(|at| open(0, f64::from(at))).chain([close(0, 9.0)]).collect::<Vec<_>>().join(","),
            ),
            "profiles[0]: 10 frames of all expanded stacks, the limit is 8",
        ),
    ]);
}

#[test]
fn what_nests_deeply_is_no_matter() {
    let deep = "[".repeat(200_000);
    let limits = DecodeLimits::default();
    let closed = format!("{deep}{}", "]".repeat(200_000));
    let ignored = format!(r#"{{"x": {closed}, {}"#, &sampled("none", "[[0]]", "[1]")[1..]);
    assert_eq!(stacks(&read(&ignored), 0), ["main 1"]);
    for document in [
        format!(r#"{{"profiles": {deep}"#),
        format!(r#"{{"shared": {{"frames": {deep}"#),
        sampled("none", &deep, "[]"),
        sampled("none", "[[0]]", &format!("[{closed}]")),
    ] {
        assert!(parse(document.as_bytes(), &limits).is_err());
    }
}

/// Values that few rows have cost something in all rows: they take no more bytes than were read.
#[test]
fn many_types_of_few_rows_are_bounded() {
    let profile = |name: u32, frame: u32| {
        format!(r#"{{"type":"sampled","name":"{name}","unit":"none","samples":[[{frame}]],"weights":[1]}}"#)
    };
    let profiles: Vec<String> = (0..1200).map(|at| profile(at % 1000, at)).collect();
    let frames: Vec<String> = (0..1200).map(|at| format!(r#"{{"name":"{at}"}}"#)).collect();
    let (profiles, frames) = (profiles.join(","), frames.join(","));
    let document =
        format!(r#"{{"exporter":"athanor","profiles":[{profiles}],"shared":{{"frames":[{frames}]}}}}"#);
    let of = |bytes| {
        parse(document.as_bytes(), &DecodeLimits { bytes, ..DecodeLimits::default() })
            .map(|profile| types(&profile).len())
    };
    assert_eq!(of(8 * 1200 * 1000), Ok(1000));
    let refused = of(8 * 1200 * 1000 - 1).unwrap_err().to_string();
    assert_eq!(refused, "profiles[1200]: 1200000 values, samples times types, the limit is 1199999");
}

#[test]
fn real_documents_are_what_they_are() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/speedscope");
    if !folder.is_dir() {
        println!("skip: no documents of speedscope at ../shared/data/speedscope");
        return;
    }
    let read = |name: &str| read(&std::fs::read_to_string(folder.join(name)).unwrap());
    let evented = read("simple.speedscope.json");
    assert_eq!(types(&evented), ["samples/count"]);
    assert_eq!(stacks(&evented, 0), ["a;b 5", "a;b;c 5", "a;b;d 4"]);
    let two = read("two-sampled.speedscope.json");
    assert_eq!(types(&two), ["wall/nanoseconds"]);
    assert_eq!(stacks(&two, 0), ["a;b 10000000000", "a;b;c 10000000000", "a;b;d 8000000000"]);
}

fn trees(profile: &Profile) -> Vec<Tree> {
    (0..profile.header.types.len()).map(|column| Tree::from_profile(profile, column)).collect()
}

#[test]
fn units_that_the_format_does_not_know_are_counts() {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("a", "widgets"), ValueType::new("b", "seconds")];
    let stack = profile.dictionary.intern_named_stack(["main"].into_iter());
    profile.samples.push(stack, 0, &[3, 4]);
    let again = read(&write(&profile, "x"));
    assert_eq!(types(&again), ["a/count", "b/nanoseconds"]);
    assert_eq!((again.total(0), again.total(1)), (3, 4_000_000_000));
}

#[test]
fn profiles_are_read_one_by_one_and_equal_ones_are_one() {
    let profile = |name: &str, unit: &str, start: u8| {
        format!(
            r#"{{"type": "sampled", "name": "{name}", "unit": "{unit}", "startValue": {start}, "samples": [[0], [0, 1]], "weights": [1.5, 2]}}"#
        )
    };
    let all =
        [("a", "seconds", 0), ("b", "bytes", 0), ("a", "seconds", 0), ("a", "seconds", 1), ("a", "none", 0)];
    let all: Vec<String> = all.iter().map(|(name, unit, start)| profile(name, unit, *start)).collect();
    let text = document(&all.join(", "));
    let refused = read_profiles(text.as_bytes(), &DecodeLimits::default()).unwrap_err().to_string();
    assert!(refused.starts_with("$schema is \"\"; must be \"https://"), "{refused}");

    let text = text.replacen('{', &format!(r#"{{"$schema": "{}", "#, write::SCHEMA_URL), 1);
    let SpeedscopeProfiles { dictionary, parts } =
        read_profiles(text.as_bytes(), &DecodeLimits::default()).unwrap();
    let seen: Vec<(&str, SpeedscopeUnit, &[i64])> = parts
        .iter()
        .map(|part| (part.name.as_str(), part.unit, &part.samples.as_ref().unwrap().values[..]))
        .collect();
    let expected: [(&str, SpeedscopeUnit, &[i64]); 4] = [
        ("a", SpeedscopeUnit::Seconds, &[3_000_000_000, 4_000_000_000]),
        ("b", SpeedscopeUnit::Bytes, &[2, 2]),
        ("a", SpeedscopeUnit::Seconds, &[1_500_000_000, 2_000_000_000]),
        ("a", SpeedscopeUnit::None, &[2, 2]),
    ];
    assert_eq!(seen, expected);
    assert_eq!(dictionary.frame_names(parts[0].samples.as_ref().unwrap().stacks[1]), ["main", "run"]);
}

#[test]
fn a_profile_that_is_too_much_is_refused_alone_and_by_its_number() {
    let profile = |name: &str, weights: &str| {
        format!(
            r#"{{"type": "sampled", "name": "{name}", "unit": "seconds", "samples": [[0], [0, 1]], "weights": {weights}}}"#
        )
    };
    let all = [
        profile("a", "[1, 2]"),
        profile("a", "[1, 2]"),
        profile("b", "[1, 9e9]"),
        profile("b", "[1, 9e9]"),
        profile("c", "[1, 0]"),
    ];
    let schema = format!(r#"{{"$schema": "{}", "#, write::SCHEMA_URL);
    let text = document(&all.join(", ")).replacen('{', &schema, 1);
    let of = |limits: &DecodeLimits| -> Vec<Result<i64, String>> {
        let parts = read_profiles(text.as_bytes(), limits).unwrap().parts;
        let sum = |part: super::SpeedscopeProfile| part.samples.map(|samples| samples.values.iter().sum());
        parts.into_iter().map(|part| sum(part).map_err(|error| error.to_string())).collect()
    };
    let large = "profiles[2]: the values of a stack add up to 18000000000 seconds, which is more than 63 bits of nanoseconds";
    assert_eq!(of(&DecodeLimits::default()), [Ok(6_000_000_000), Err(large.to_owned()), Ok(1_000_000_000)]);
}

#[test]
fn units_that_meet_in_one_type_do_not_wrap() {
    let profile = |unit: &str, weight: &str| {
        format!(
            r#"{{"type": "sampled", "name": "", "unit": "{unit}", "samples": [[0]], "weights": [{weight}]}}"#
        )
    };
    let text = document(&[profile("seconds", "9e9"), profile("nanoseconds", "9e18")].join(", "));
    let refused = parse(text.as_bytes(), &DecodeLimits::default()).unwrap_err().to_string();
    assert_eq!(refused, "the values of a stack in all profiles add up to more than 63 bits of nanoseconds");
}

proptest! {
    #[test]
    fn what_was_written_reads_back(seed: u64) {
        let profile = arbitrary_profile(seed);
        let again = read(&write(&profile, "x"));
        prop_assert_eq!(&again.header.types, &profile.header.types);
        prop_assert_eq!(again.header.shown_type(), profile.header.shown_type());
        prop_assert_eq!(trees(&again), trees(&profile));
    }

    /// Whoever lays the same calls out as events says the same as with samples.
    #[test]
    fn events_say_what_samples_say(calls in prop::collection::vec((prop::collection::vec(0usize..3, 0..5), 0u64..2_000_000), 0..20)) {
        let (mut samples, mut weights, mut events) = (Vec::new(), Vec::new(), Vec::new());
        let (mut at, mut open) = (0, Vec::new());
        let micros = |nanos: u64| -> Value { format!("{}.{:03}", nanos / 1000, nanos % 1000).parse().unwrap() };
        for (stack, nanos) in &calls {
            samples.push(stack);
            weights.push(micros(if stack.is_empty() { 0 } else { *nanos }));
            let common = stack.iter().zip(&open).take_while(|(a, b)| a == b).count();
            for frame in open.drain(common..).rev() {
                events.push(json!({ "type": "C", "frame": frame, "at": micros(at) }));
            }
            for frame in &stack[common..] {
                events.push(json!({ "type": "O", "frame": frame, "at": micros(at) }));
                open.push(*frame);
            }
            at += nanos;
        }
        let of = |kind: &str, fields: Value| {
            let mut one = json!({ "type": kind, "unit": "microseconds", "endValue": micros(at) });
            one.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            trees(&read(&document(&one.to_string())))
        };
        prop_assert_eq!(of("evented", json!({ "events": events })), of("sampled", json!({ "samples": samples, "weights": weights })));
    }

    /// Of documents that are damaged somewhere.
    #[test]
    fn any_document_is_read_or_refused(seed: u64, at: prop::sample::Index, byte in "[\\[\\]{}\",:0-9eE.\\-]") {
        let mut text = if seed % 2 == 0 {
            evented(r#""events": [{"type": "O", "frame": 0, "at": 0}, {"type": "C", "frame": 0, "at": 9.5}], "endValue": 1e1"#)
        } else {
            write(&arbitrary_profile(seed), "x")
        }
        .into_bytes();
        let at = at.index(text.len());
        text[at] = byte.as_bytes()[0];
        if let Ok(profile) = parse(&text, &DecodeLimits::default()) {
            let _ = trees(&profile);
        }
    }
}
