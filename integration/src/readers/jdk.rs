//! Reader of flight recordings that runs `jfr` of the JDK.

#![expect(clippy::missing_panics_doc, reason = "what does not work fails the test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Event type, the first type of its profile, and the event field that holds its amount.
const EVENT_KINDS: [(&str, &str, &str); 9] = [
    ("jdk.ExecutionSample", "cpu", ""),
    ("profiler.WallClockSample", "wall", "samples"),
    ("jdk.ObjectAllocationInNewTLAB", "alloc_in_new_tlab_objects", "tlabSize"),
    ("jdk.ObjectAllocationOutsideTLAB", "alloc_outside_tlab_objects", "allocationSize"),
    ("jdk.ObjectAllocationSample", "alloc_sample_objects", "weight"),
    ("profiler.LiveObject", "live", ""),
    ("profiler.Malloc", "malloc_objects", "size"),
    ("jdk.JavaMonitorEnter", "mutex", "duration"),
    ("jdk.ThreadPark", "block", "duration"),
];

/// Nanoseconds per sample, at 100 samples per second.
const SAMPLE_NANOS: i64 = 10_000_000;

/// Totals of all events of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JfrEventTotals {
    /// Number of events that have a stack.
    pub events: i64,
    /// Sum of the amount field over these events.
    pub amount: i64,
    /// Events by top function, without names that differ in each process.
    pub tops: BTreeMap<String, i64>,
}

/// Returns whether `jfr` is installed.
#[must_use]
pub fn is_available() -> bool {
    Command::new("jfr").arg("version").output().is_ok_and(|output| output.status.success())
}

/// Parses a duration such as `PT0.012345678S` into nanoseconds.
fn nanoseconds(text: &str) -> i64 {
    let seconds = text.strip_prefix("PT").and_then(|text| text.strip_suffix('S')).expect("seconds");
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, ""));
    format!("{whole}{part:0<9}").parse().expect("a number")
}

/// Returns whether a function has the same name in every process.
#[must_use]
pub fn is_stable_name(name: &str) -> bool {
    !["0x", "Lambda", "Accessor", ".so", "Native"].iter().any(|part| name.contains(part))
}

/// Returns the events of an uncompressed recording, by the first type of their profile.
#[must_use]
pub fn events(file: &Path) -> Vec<(&'static str, Value)> {
    let names = EVENT_KINDS.map(|(name, ..)| name).join(",");
    let output = Command::new("jfr").args(["print", "--json", "--events", &names]).arg(file).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let Value::Array(events) = printed["recording"]["events"].take() else { panic!("no events") };
    let kind = |mut event: Value| {
        let name = event["type"].as_str().expect("a name");
        let (_, kind, _) =
            EVENT_KINDS.iter().find(|(known, ..)| *known == name).expect("one that was asked for");
        (*kind, event["values"].take())
    };
    events.into_iter().map(kind).collect()
}

/// Returns the totals of a recording by the first type of each profile. Samples of sleeping threads do not
/// count as CPU time.
#[must_use]
pub fn read_totals(file: &Path) -> BTreeMap<String, JfrEventTotals> {
    let mut told: BTreeMap<String, JfrEventTotals> = BTreeMap::new();
    for (kind, values) in events(file) {
        let Some(frame) = values["stackTrace"]["frames"].get(0) else { continue };
        if kind == "cpu" && values["state"] == "STATE_SLEEPING" {
            continue;
        }
        let (.., amount) = EVENT_KINDS.iter().find(|(_, known, _)| *known == kind).expect("a known one");
        let told = told.entry(kind.to_owned()).or_default();
        let amount = match &values[*amount] {
            Value::String(text) => nanoseconds(text),
            number => number.as_i64().unwrap_or(0),
        };
        // A wall-clock sample stands for several samples.
        let times = if kind == "wall" { amount } else { 1 };
        told.events += times;
        told.amount += if kind == "wall" { 0 } else { amount };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let class = text(&frame["method"]["type"]["name"]);
        let top = format!("{class}.{}", text(&frame["method"]["name"]));
        if is_stable_name(&top) && !class.is_empty() {
            *told.tops.entry(top).or_default() += times;
        }
    }
    told
}

/// Returns the totals by profile type, converted to the unit of each type.
#[must_use]
pub fn totals_by_type(told: &BTreeMap<String, JfrEventTotals>) -> BTreeMap<String, i64> {
    let mut totals = BTreeMap::<String, i64>::new();
    for (kind, JfrEventTotals { events, amount, .. }) in told {
        let mut put = |id: String, total: i64| *totals.entry(id).or_default() += total;
        match kind.as_str() {
            "cpu" => put("process_cpu:cpu:nanoseconds:cpu:nanoseconds".to_owned(), events * SAMPLE_NANOS),
            "wall" => put("wall:wall:nanoseconds:wall:nanoseconds".to_owned(), events * SAMPLE_NANOS),
            "live" => put("memory:live:count:objects:count".to_owned(), *events),
            "mutex" | "block" => {
                put(format!("{kind}:contentions:count:{kind}:count"), *events);
                put(format!("{kind}:delay:nanoseconds:{kind}:count"), *amount);
            }
            objects => {
                let period = if objects == "malloc_objects" { ":" } else { "space:bytes" };
                put(format!("memory:{objects}:count:{period}"), *events);
                put(format!("memory:{}:bytes:{period}", objects.replace("_objects", "_bytes")), *amount);
            }
        }
    }
    totals.retain(|_, total| *total != 0);
    totals
}
