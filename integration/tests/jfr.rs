//! Flight recordings, compared with what the JDK's own reader says of them: how many events of each type have a stack, what
//! they add up to, and which functions are on top.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use athanor_integration::leave_out;
use athanor_profile::jfr::{About, Limits, Snapshot, read};
use athanor_profile::pprof;
use serde_json::Value;

/// Samples in a second.
const RATE: u32 = 100;
/// By type of event: the first type of its profile, and the field that says how much.
const KINDS: [(&str, &str, &str); 6] = [
    ("jdk.ExecutionSample", "cpu", ""),
    ("jdk.ObjectAllocationInNewTLAB", "alloc_in_new_tlab_objects", "tlabSize"),
    ("jdk.ObjectAllocationOutsideTLAB", "alloc_outside_tlab_objects", "allocationSize"),
    ("jdk.ObjectAllocationSample", "alloc_sample_objects", "weight"),
    ("jdk.JavaMonitorEnter", "mutex", "duration"),
    ("jdk.ThreadPark", "block", "duration"),
];

/// What is told of events of one type.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    events: i64,
    amount: i64,
    /// Events by the function on top, but for names that differ in each process.
    tops: BTreeMap<String, i64>,
}

/// A text such as `PT0.012345678S`, in nanoseconds.
fn nanoseconds(text: &str) -> i64 {
    let seconds = text.strip_prefix("PT").and_then(|text| text.strip_suffix('S')).expect("seconds");
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, ""));
    format!("{whole}{part:0<9}").parse().expect("a number")
}

fn is_lasting(name: &str) -> bool {
    !["0x", "Lambda", "Accessor", ".so", "Native"].iter().any(|part| name.contains(part))
}

fn with_jdk(file: &Path) -> BTreeMap<String, Told> {
    let names = KINDS.map(|(name, ..)| name).join(",");
    let output = Command::new("jfr").args(["print", "--json", "--events", &names]).arg(file).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut told: BTreeMap<String, Told> = BTreeMap::new();
    for event in printed["recording"]["events"].as_array().expect("events") {
        let (name, values) = (event["type"].as_str().expect("a name"), &event["values"]);
        let Some(frame) = values["stackTrace"]["frames"].get(0) else { continue };
        if values["state"] == "STATE_SLEEPING" {
            continue;
        }
        let (_, kind, amount) =
            KINDS.iter().find(|(known, ..)| *known == name).expect("one that was asked for");
        let told = told.entry((*kind).to_owned()).or_default();
        told.events += 1;
        told.amount += match &values[*amount] {
            Value::String(text) => nanoseconds(text),
            number => number.as_i64().unwrap_or(0),
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let class = text(&frame["method"]["type"]["name"]);
        let top = format!("{class}.{}", text(&frame["method"]["name"]));
        if is_lasting(&top) && !class.is_empty() {
            *told.tops.entry(top).or_default() += 1;
        }
    }
    told
}

fn ours(raw: &[u8]) -> BTreeMap<String, Told> {
    let about = About { sample_rate: RATE, ..About::default() };
    let recording = read(raw, &about, &Snapshot::default(), &Limits::default()).expect("it is sound");
    let mut told = BTreeMap::new();
    for made in recording.profiles {
        let (profile, _) = pprof::decode(&made.pprof, &pprof::Limits::default()).expect("it is sound");
        let width = profile.header.types.len();
        let unit = if width == 1 { 1_000_000_000 / i64::from(RATE) } else { 1 };
        let amount = if width == 1 { 0 } else { profile.total(1) };
        let mut of_kind = Told { events: profile.total(0) / unit, amount, ..Told::default() };
        for (stack, _, values) in profile.samples.rows(width) {
            let top = profile.dictionary.frames(stack).pop().expect("no stack is empty");
            if is_lasting(&top) && top.contains('.') {
                *of_kind.tops.entry(top).or_default() += values[0] / unit;
            }
        }
        told.insert(made.kind.name().to_owned(), of_kind);
    }
    told
}

/// Whether the JDK's reader is here.
fn has_jdk() -> bool {
    let has = Command::new("jfr").arg("version").output().is_ok_and(|output| output.status.success());
    if !has {
        leave_out("there is no JDK to compare flight recordings with");
    }
    has
}

fn compare(file: &Path) -> BTreeMap<String, Told> {
    let told = ours(&std::fs::read(file).expect("readable"));
    let mut expected = with_jdk(file);
    for (kind, expected) in &mut expected {
        let Some(told) = told.get(kind) else { continue };
        // Ticks of a processor are no nanoseconds, and the JDK rounds those of each event in its own way.
        let slack = if matches!(kind.as_str(), "mutex" | "block") { told.events } else { 0 };
        if (told.amount - expected.amount).abs() <= slack {
            expected.amount = told.amount;
        }
    }
    assert_eq!(told, expected, "{}", file.display());
    told
}

#[test]
fn a_recording_says_what_the_jdk_says_of_it() {
    if !has_jdk() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("busy.jfr");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/java/Busy.java");
    let run = Command::new("java").arg(program).arg(&file).output().expect("it runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let told = compare(&file);
    for kind in ["cpu", "alloc_in_new_tlab_objects", "alloc_outside_tlab_objects", "mutex", "block"] {
        assert!(told.get(kind).is_some_and(|told| told.events > 0), "{kind}: {told:?}");
    }
    assert!(told["cpu"].tops.contains_key("Busy.knownBusyFunction"), "{told:?}");

    let twice = folder.path().join("twice.jfr");
    let bytes = std::fs::read(&file).expect("readable");
    std::fs::write(&twice, [&bytes[..], &bytes].concat()).expect("writable");
    assert_eq!(compare(&twice)["cpu"].events, 2 * told["cpu"].events);
}

#[test]
fn recordings_of_others_say_what_the_jdk_says_of_them() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/jfr");
    let Ok(entries) = std::fs::read_dir(data) else {
        println!("skip: no flight recordings at ../shared/data/jfr");
        return;
    };
    if !has_jdk() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    let is_recording = |path: &&PathBuf| path.to_string_lossy().contains(".jfr");
    let recordings: Vec<&PathBuf> = paths.iter().filter(is_recording).collect();
    for path in &recordings {
        let bytes = std::fs::read(path).expect("readable");
        let plain = folder.path().join("plain.jfr");
        std::fs::write(&plain, pprof::inflate(&bytes, 1 << 30).expect("it is sound")).expect("writable");
        assert!(!compare(&plain).is_empty(), "{}", path.display());
    }
    assert!(recordings.len() >= 4, "{paths:?}");
}
