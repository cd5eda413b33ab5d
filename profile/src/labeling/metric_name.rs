//! Metric name of a pprof, from its sample types.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::formats::app_name_suffix::{BLOCK_METRIC, CPU_METRIC, MEMORY_METRIC, MUTEX_METRIC, WALL_METRIC};

/// Client settings for sample types, by type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleTypeConfig {
    /// Display name of each type.
    names: BTreeMap<String, String>,
    /// Types with cumulative values, counted since process start.
    cumulative: Vec<String>,
}

/// Entry of `sample_type_config`. Its other fields are about display and have no effect.
#[derive(Deserialize)]
struct SampleTypeEntry {
    #[serde(default, rename = "display-name")]
    display_name: Option<String>,
    #[serde(default)]
    cumulative: bool,
}

impl Default for SampleTypeConfig {
    /// Returns the meaning of the types in Go's profiles.
    fn default() -> Self {
        let names = [
            ("samples", "cpu"),
            ("goroutine", "goroutines"),
            ("contentions", "mutex_count"),
            ("delay", "mutex_duration"),
        ];
        let names = names.map(|(kind, name)| (kind.to_owned(), name.to_owned())).into();
        SampleTypeConfig { names, cumulative: Vec::new() }
    }
}

impl SampleTypeConfig {
    /// Reads the form's field `sample_type_config`, which replaces the default.
    ///
    /// # Errors
    ///
    /// Syntax error of the JSON text.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let entries: Option<BTreeMap<String, Option<SampleTypeEntry>>> = serde_json::from_slice(json)?;
        let Some(entries) = entries else { return Ok(Self::default()) };
        let counts = |entry: &Option<SampleTypeEntry>| entry.as_ref().is_some_and(|entry| entry.cumulative);
        let cumulative =
            entries.iter().filter(|(_, entry)| counts(entry)).map(|(kind, _)| kind.clone()).collect();
        let name =
            |entry: Option<SampleTypeEntry>| entry.and_then(|entry| entry.display_name).unwrap_or_default();
        let names = entries.into_iter().map(|(kind, entry)| (kind, name(entry))).collect();
        Ok(SampleTypeConfig { names, cumulative })
    }

    /// Returns the cumulative ones of `types`. Hyphens in configured names match underscores, because repairs
    /// replace them.
    pub fn cumulative_types<'a>(&self, types: &[&'a str]) -> Vec<&'a str> {
        let is = |kind: &&&str| self.cumulative.iter().any(|named| named.replace('-', "_") == **kind);
        types.iter().filter(is).copied().collect()
    }

    /// Returns whether the client's settings have an entry for a type.
    pub fn has_type(&self, kind: &str) -> bool {
        self.names.contains_key(kind)
    }

    /// Returns the metric of a profile with these types: from the first type that gives one, else the last
    /// type's own name.
    pub fn metric_name<'a>(&'a self, types: &[&'a str]) -> &'a str {
        if types.contains(&WALL_METRIC) {
            return WALL_METRIC;
        }
        let mut shown = "";
        for kind in types {
            shown = self.names.get(*kind).map(String::as_str).filter(|name| !name.is_empty()).unwrap_or(kind);
            let says = |part| shown.contains(part);
            if says("cpu") {
                return CPU_METRIC;
            }
            if says("alloc_") || says("inuse_") || shown == "space" || shown == "objects" {
                return MEMORY_METRIC;
            }
            for (part, metric) in
                [("mutex_", MUTEX_METRIC), ("block_", BLOCK_METRIC), ("goroutines", "goroutines")]
            {
                if says(part) {
                    return metric;
                }
            }
        }
        shown
    }
}

/// Returns the metric of a profile with these types, if its sender gives no settings.
pub fn default_metric_name(types: &[&str]) -> String {
    SampleTypeConfig::default().metric_name(types).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_count_are_named() {
        let json = br#"{"a-b": {"cumulative": true}, "c": {"cumulative": false}, "d": {"cumulative": true}, "e": null}"#;
        let config = SampleTypeConfig::parse(json).unwrap();
        assert_eq!(config.cumulative_types(&["c", "a_b", "e"]), ["a_b"]);
        assert_eq!(SampleTypeConfig::default().cumulative_types(&["alloc_space"]), [""; 0]);
    }

    #[test]
    fn types_say_what_a_pprof_is_called() {
        let own = |json: &str| SampleTypeConfig::parse(json.as_bytes()).unwrap();
        let default = SampleTypeConfig::default();
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
            assert_eq!(config.metric_name(types), expected, "{types:?}");
        }
        assert!(SampleTypeConfig::parse(b"{").is_err() && SampleTypeConfig::parse(b"[]").is_err());
    }
}
