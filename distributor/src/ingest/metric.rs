//! What a profile is called: from the end of the application's name for text, from the sample types for pprof.

use std::collections::BTreeMap;

use athanor_profile::ValueType;
use serde::Deserialize;

const CPU: &str = "process_cpu";
const WALL: &str = "wall";
const MEMORY: &str = "memory";
const MUTEX: &str = "mutex";
const BLOCK: &str = "block";

/// What a text profile counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextMetric<'a> {
    /// The label `__name__`.
    pub(crate) metric: &'static str,
    /// The sample type before any scaling.
    pub(crate) value_type: ValueType,
    /// The application's name without the end that said so.
    pub(crate) app: &'a str,
}

impl<'a> TextMetric<'a> {
    /// Reads the part after the last dot of an application's name; without one it is CPU time. None where that
    /// part says nothing known.
    pub(crate) fn of(name: &'a str) -> Option<Self> {
        let (app, suffix) = name.rsplit_once('.').unwrap_or((name, "cpu"));
        let (metric, kind, unit) = match suffix {
            "cpu" | "itimer" => (CPU, "samples", "count"),
            "wall" | "seconds" | "nanoseconds" | "microseconds" | "milliseconds" => {
                (WALL, "samples", "count")
            }
            "inuse_objects"
            | "alloc_objects"
            | "alloc_in_new_tlab_objects"
            | "alloc_outside_tlab_objects"
            | "live" => (MEMORY, suffix, "count"),
            "inuse_space" | "alloc_space" | "alloc_in_new_tlab_bytes" | "alloc_outside_tlab_bytes" => {
                (MEMORY, suffix, "bytes")
            }
            "bytes" => (MEMORY, "samples", "bytes"),
            "goroutines" => ("goroutine", suffix, "count"),
            "mutex_count" => (MUTEX, "contentions", "count"),
            "mutex_duration" => (MUTEX, "delay", "nanoseconds"),
            "block_count" | "lock_count" => (BLOCK, "contentions", "count"),
            "block_duration" | "lock_duration" => (BLOCK, "delay", "nanoseconds"),
            "exceptions" => ("exceptions", "samples", "count"),
            _ => return None,
        };
        Some(TextMetric { metric, value_type: ValueType::new(kind, unit), app })
    }

    /// The name of the time that samples of this metric stand for, if they do.
    pub(crate) fn sampled_time(&self) -> Option<&'static str> {
        match self.metric {
            CPU => Some("cpu"),
            WALL => Some("wall"),
            _ => None,
        }
    }
}

/// What a client says of its sample types, by type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeConfig(BTreeMap<String, String>);

/// One entry; whatever else it says is about showing and has no effect.
#[derive(Deserialize)]
struct TypeEntry {
    #[serde(default, rename = "display-name")]
    display_name: Option<String>,
}

impl Default for TypeConfig {
    /// What Go's profiles mean by their types.
    fn default() -> Self {
        let names = [
            ("samples", "cpu"),
            ("goroutine", "goroutines"),
            ("contentions", "mutex_count"),
            ("delay", "mutex_duration"),
        ];
        TypeConfig(names.map(|(kind, name)| (kind.to_owned(), name.to_owned())).into())
    }
}

impl TypeConfig {
    /// Reads the form's field `sample_type_config`, which stands in place of the default.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let entries: Option<BTreeMap<String, Option<TypeEntry>>> = serde_json::from_slice(json)?;
        let Some(entries) = entries else { return Ok(Self::default()) };
        let name = |entry: Option<TypeEntry>| entry.and_then(|entry| entry.display_name).unwrap_or_default();
        Ok(TypeConfig(entries.into_iter().map(|(kind, entry)| (kind, name(entry))).collect()))
    }

    /// Whether the client says anything of a type.
    pub(crate) fn names(&self, kind: &str) -> bool {
        self.0.contains_key(kind)
    }

    /// The metric of a profile with these types: the first that says one; else the last type's own name.
    pub(crate) fn metric<'a>(&'a self, types: &[&'a str]) -> &'a str {
        if types.contains(&WALL) {
            return WALL;
        }
        let mut shown = "";
        for kind in types {
            shown = self.0.get(*kind).map(String::as_str).filter(|name| !name.is_empty()).unwrap_or(kind);
            let says = |part| shown.contains(part);
            if says("cpu") {
                return CPU;
            }
            if says("alloc_") || says("inuse_") || shown == "space" || shown == "objects" {
                return MEMORY;
            }
            for (part, metric) in [("mutex_", MUTEX), ("block_", BLOCK), ("goroutines", "goroutines")] {
                if says(part) {
                    return metric;
                }
            }
        }
        shown
    }
}

/// The metric that a profile of these types gets where its sender names none.
pub fn metric_of(types: &[&str]) -> String {
    TypeConfig::default().metric(types).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_says_what_text_counts() {
        for (name, expected) in [
            ("app", "process_cpu samples count app"),
            ("app.cpu", "process_cpu samples count app"),
            ("a.b.itimer", "process_cpu samples count a.b"),
            ("app.seconds", "wall samples count app"),
            ("app.live", "memory live count app"),
            ("app.alloc_outside_tlab_bytes", "memory alloc_outside_tlab_bytes bytes app"),
            ("app.bytes", "memory samples bytes app"),
            ("app.goroutines", "goroutine goroutines count app"),
            ("app.mutex_duration", "mutex delay nanoseconds app"),
            ("app.lock_count", "block contentions count app"),
            ("app.exceptions", "exceptions samples count app"),
        ] {
            let metric = TextMetric::of(name).unwrap();
            let ValueType { kind, unit } = &metric.value_type;
            assert_eq!(format!("{} {kind} {unit} {}", metric.metric, metric.app), expected);
        }
        assert_eq!(TextMetric::of("app.nosuch"), None);
        assert_eq!(TextMetric::of("app."), None);
    }

    #[test]
    fn types_say_what_a_pprof_is_called() {
        let own = |json: &str| TypeConfig::parse(json.as_bytes()).unwrap();
        let default = TypeConfig::default();
        for (config, types, expected) in [
            (&default, &["samples", "wall"][..], "wall"),
            (&default, &["samples", "cpu"], "process_cpu"),
            (&default, &["alloc_objects", "alloc_space"], "memory"),
            (&default, &["objects"], "memory"),
            (&default, &["contentions", "delay"], "mutex"),
            (&default, &["goroutine", "extra"], "goroutines"),
            (&default, &["apples", "pears"], "pears"),
            (&own("null"), &["samples"], "process_cpu"),
            (&own("{}"), &["samples"], "samples"),
            (
                &own(r#"{"samples": {"display-name": "my_cpu", "sampled": true}}"#),
                &["samples"],
                "process_cpu",
            ),
            (&own(r#"{"contentions": {"display-name": "block_count"}}"#), &["contentions", "delay"], "block"),
            (&own(r#"{"things": null, "x": {}}"#), &["things"], "things"),
        ] {
            assert_eq!(config.metric(types), expected, "{types:?}");
        }
        assert!(TypeConfig::parse(b"{").is_err() && TypeConfig::parse(b"[]").is_err());
    }
}
