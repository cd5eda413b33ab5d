//! Flight recordings, compared with what the JDK's own reader says of them: how many events of each type have a stack, what
//! they add up to, and which functions are on top.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use athanor_integration::clients::{copy_files, run_program};
use athanor_integration::readers::jdk::{self, JfrEventTotals, is_stable_name};
use athanor_integration::report_skipped;
use athanor_integration::server::TestServer;
use athanor_profile::formats::jfr::{JfrLimits, LabelsSnapshot, RecordingInfo, read};
use athanor_profile::formats::pprof;
use prost::Message;

/// Samples in a second.
const RATE: u32 = 100;
/// Whose everything is where nobody says whose.
const TENANT: &str = "anonymous";

fn ours(raw: &[u8]) -> BTreeMap<String, JfrEventTotals> {
    let about = RecordingInfo { sample_rate: RATE, ..RecordingInfo::default() };
    let recording =
        read(raw, &about, &LabelsSnapshot::default(), &JfrLimits::default()).expect("it is sound");
    let mut told = BTreeMap::new();
    for made in recording.profiles {
        let raw = made.pprof.expect("it is within limits");
        if raw.is_empty() {
            continue;
        }
        let (profile, _) = pprof::decode(&raw, &pprof::DecodeLimits::default()).expect("it is sound");
        let width = profile.header.types.len();
        let is_time = profile.header.types[0].unit == "nanoseconds";
        let unit = if is_time { 1_000_000_000 / i64::from(RATE) } else { 1 };
        let amount = if width == 1 { 0 } else { profile.total(1) };
        let mut of_kind =
            JfrEventTotals { events: profile.total(0) / unit, amount, ..JfrEventTotals::default() };
        for (stack, _, values) in profile.samples.rows(width) {
            let top = profile.dictionary.frame_names(stack).pop().expect("no stack is empty");
            if is_stable_name(&top) && top.contains('.') {
                *of_kind.tops.entry(top).or_default() += values[0] / unit;
            }
        }
        told.insert(made.kind.name().to_owned(), of_kind);
    }
    told
}

/// Whether the JDK's reader is here.
fn has_jdk() -> bool {
    let has = jdk::is_available();
    if !has {
        report_skipped("no JDK to compare flight recordings with", "");
    }
    has
}

fn compare(file: &Path) -> BTreeMap<String, JfrEventTotals> {
    let bytes = std::fs::read(file).expect("readable");
    let told = ours(&bytes);
    let mut expected = jdk::read_totals(file);
    for (kind, expected) in &mut expected {
        let Some(told) = told.get(kind) else { continue };
        // Ticks of a processor are no nanoseconds, and the JDK rounds those of each event in its own way.
        let slack = if matches!(kind.as_str(), "mutex" | "block") { told.events } else { 0 };
        if (told.amount - expected.amount).abs() <= slack {
            expected.amount = told.amount;
        }
    }
    assert_eq!(told, expected, "{}", file.display());
    // What a server stores of it is that, too.
    let server = TestServer::start(|config| config.limits.reject_older_than = Duration::ZERO);
    let answer = server.post("/ingest?name=app&format=jfr", &[], &bytes);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(server.query_totals(TENANT), jdk::totals_by_type(&expected), "{}", file.display());
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
        report_skipped("no flight recordings at ../shared/data/jfr", "");
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

#[test]
fn a_recording_of_the_agents_profiler_says_what_the_jdk_says_of_it() {
    if !has_jdk() {
        return;
    }
    let environment = tempfile::tempdir().expect("a folder");
    let folder = environment.path();
    let prepared = || {
        copy_files("java-agent", &["pom.xml", "Record.java"], folder)?;
        run_program("mvn", &["--quiet", "--batch-mode", "dependency:copy-dependencies"], folder)?;
        run_program("javac", &["-cp", "lib/agent.jar", "Record.java"], folder)
    };
    if let Err(why) = prepared() {
        return report_skipped("no client of java-agent", &why);
    }
    run_program("java", &["-cp", "lib/agent.jar:.", "Record", "all.jfr"], folder).expect("it runs");
    let told = compare(&folder.join("all.jfr"));
    let wanted = [
        ("cpu", "Record.knownBusyFunction"),
        ("wall", "Record.knownBusyFunction"),
        ("alloc_in_new_tlab_objects", "Record.knownGreedyFunction"),
        ("live", "Record.knownGreedyFunction"),
        ("mutex", "Record.knownBlockedFunction"),
    ];
    for (kind, function) in wanted {
        assert!(told.get(kind).is_some_and(|told| told.tops.contains_key(function)), "{kind}: {told:?}");
    }
    // On top of these is the allocator itself.
    assert!(told.get("malloc_objects").is_some_and(|told| told.amount >= 50 << 16), "{told:?}");
}

/// Labels that a profiler sends beside a recording.
#[derive(Message)]
struct Labels {
    #[prost(map = "int64, message", tag = "1")]
    contexts: HashMap<i64, Context>,
    #[prost(map = "int64, string", tag = "2")]
    texts: HashMap<i64, String>,
}

/// Numbers of names, and of values.
#[derive(PartialEq, Message)]
struct Context {
    #[prost(map = "int64, int64", tag = "1")]
    labels: HashMap<i64, i64>,
}

#[test]
fn labels_beside_a_recording_are_those_of_its_events() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/jfr");
    let Ok(sent) = std::fs::read(data.join("dump1.labels.pb.gz")) else {
        return report_skipped("no flight recordings at ../shared/data/jfr", "");
    };
    if !has_jdk() {
        return;
    }
    let inflated = |bytes: &[u8]| pprof::inflate(bytes, 1 << 30).expect("it is sound");
    let (sent, raw) =
        (inflated(&sent), inflated(&std::fs::read(data.join("dump1.jfr.gz")).expect("readable")));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("plain.jfr");
    std::fs::write(&file, &raw).expect("writable");

    let labels = Labels::decode(&sent[..]).expect("it is sound");
    let mut expected: BTreeMap<Vec<(String, String)>, i64> = BTreeMap::new();
    for (_, event) in jdk::events(&file) {
        let context = labels.contexts.get(&event["contextId"].as_i64().expect("a number"));
        let pairs = context.into_iter().flat_map(|context| &context.labels);
        let text = |number: &i64| labels.texts[number].clone();
        let mut pairs: Vec<_> = pairs.map(|(name, value)| (text(name), text(value))).collect();
        pairs.sort();
        *expected.entry(pairs).or_default() += 1_000_000_000 / i64::from(RATE);
    }
    assert!(expected.len() > 3, "{expected:?}");

    let about = RecordingInfo { sample_rate: RATE, ..RecordingInfo::default() };
    let snapshot = LabelsSnapshot::parse(&sent).expect("it is sound");
    let recording = read(&raw, &about, &snapshot, &JfrLimits::default()).expect("it is sound");
    let [made] = &recording.profiles[..] else { panic!("one profile") };
    let (profile, _) =
        pprof::decode(made.pprof.as_ref().expect("it is within limits"), &pprof::DecodeLimits::default())
            .expect("it is sound");
    let mut found = BTreeMap::new();
    for (_, set, values) in profile.samples.rows(1) {
        let (dictionary, text) =
            (&profile.dictionary, |id| profile.dictionary.symbols.strings.get(id).to_owned());
        let pairs = dictionary.label_sets.get(set).to_vec().into_iter();
        let mut pairs: Vec<_> = pairs.map(|label| (text(label.key), text(label.text))).collect();
        pairs.sort();
        *found.entry(pairs).or_default() += values[0];
    }
    assert_eq!(found, expected);
}
