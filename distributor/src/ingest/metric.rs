//! What a pprof is called: its sample types say so.

use std::collections::BTreeMap;

use athanor_profile::suffix::{BLOCK, CPU, MEMORY, MUTEX, WALL};
use serde::Deserialize;

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
