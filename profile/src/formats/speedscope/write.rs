//! Writer of speedscope documents.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::call_tree::tree::{Tree, path_to_node};
use crate::data_model::model::Profile;

/// Schema URL of a document.
pub(super) const SCHEMA_URL: &str = "https://www.speedscope.app/file-format-schema.json";

/// Writes a speedscope document: one sampled profile per value type, over shared frames.
pub fn write(profile: &Profile, name: &str) -> String {
    let mut frames: Vec<Value> = Vec::new();
    let mut ids: HashMap<String, usize> = HashMap::new();
    let mut profiles: Vec<Value> = Vec::new();
    for (column, value_type) in profile.header.types.iter().enumerate() {
        let tree = Tree::from_profile(profile, column);
        let mut samples = Vec::new();
        let mut weights = Vec::new();
        let mut end = 0i128;
        for (at, node) in (0..).zip(tree.nodes()).filter(|(_, node)| node.self_value != 0) {
            let stack = path_to_node(&tree, at).into_iter().map(|frame| {
                let name = tree.name(&tree.nodes()[frame as usize]);
                *ids.entry(name.to_owned()).or_insert_with(|| {
                    frames.push(json!({ "name": name }));
                    frames.len() - 1
                })
            });
            samples.push(stack.collect::<Vec<usize>>());
            weights.push(node.self_value);
            end += i128::from(node.self_value);
        }
        profiles.push(json!({
            "type": "sampled",
            "name": value_type.kind,
            "unit": unit(&value_type.unit),
            "startValue": 0,
            "endValue": end as i64,
            "samples": samples,
            "weights": weights,
        }));
    }
    json!({
        "$schema": SCHEMA_URL,
        "exporter": super::OWN_EXPORTER_NAME,
        "name": name,
        "activeProfileIndex": profile.header.shown_type(),
        "shared": { "frames": frames },
        "profiles": profiles,
    })
    .to_string()
}

/// Returns the unit if the format has it, else `none`.
fn unit(unit: &str) -> &str {
    match unit {
        "nanoseconds" | "microseconds" | "milliseconds" | "seconds" | "bytes" => unit,
        _ => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_model::model::ValueType;

    #[test]
    fn every_type_is_a_sampled_profile_over_shared_frames() {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds"), ValueType::new("samples", "count")];
        let stack = profile.dictionary.intern_named_stack(["main", "work \"x\""].into_iter());
        profile.samples.push(stack, 0, &[70, 7]);
        let document: Value = serde_json::from_str(&write(&profile, "run")).unwrap();
        assert_eq!(document["shared"]["frames"], json!([{ "name": "main" }, { "name": "work \"x\"" }]));
        let shape = |at: usize| {
            let one = &document["profiles"][at];
            ["type", "unit", "startValue", "endValue", "samples", "weights"].map(|key| one[key].clone())
        };
        assert_eq!(
            shape(0),
            [json!("sampled"), json!("nanoseconds"), json!(0), json!(70), json!([[0, 1]]), json!([70])]
        );
        assert_eq!(shape(1)[1..4], [json!("none"), json!(0), json!(7)]);
    }
}
