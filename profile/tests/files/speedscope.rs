//! Documents of speedscope.

use athanor_profile::call_tree::tree::Tree;
use athanor_profile::formats::speedscope;
use athanor_profile::generate::arbitrary_profile;
use proptest::prelude::*;
use serde_json::Value;

use crate::paths::{Paths, add, of_profile, of_tree};

/// The stacks of one profile of a document, whose weights add up to its length.
fn paths(document: &Value, profile: &Value) -> Paths {
    let frames = document["shared"]["frames"].as_array().unwrap();
    let (samples, weights) = (profile["samples"].as_array().unwrap(), profile["weights"].as_array().unwrap());
    assert_eq!(samples.len(), weights.len());
    let (mut paths, mut length) = (Paths::new(), 0i64);
    for (sample, weight) in samples.iter().zip(weights) {
        let name =
            |frame: &Value| frames[frame.as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned();
        let weight = weight.as_i64().unwrap();
        assert_ne!(weight, 0);
        add(&mut paths, sample.as_array().unwrap().iter().map(name).collect(), weight);
        length = length.wrapping_add(weight);
    }
    assert_eq!(paths.len(), samples.len(), "no stack is there twice");
    assert_eq!((profile["startValue"].as_i64(), profile["endValue"].as_i64()), (Some(0), Some(length)));
    paths
}

proptest! {
    #[test]
    fn any_document_has_the_stacks_of_its_profile(seed: u64) {
        let profile = arbitrary_profile(seed);
        let document: Value = serde_json::from_str(&speedscope::write(&profile, "größe")).unwrap();
        prop_assert_eq!(&document["name"], "größe");
        let mut names: Vec<&str> =
            document["shared"]["frames"].as_array().unwrap().iter().map(|frame| frame["name"].as_str().unwrap()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        prop_assert_eq!(names.len(), count, "no frame is there twice");
        let profiles = document["profiles"].as_array().unwrap();
        prop_assert_eq!(profiles.len(), profile.header.types.len());
        for (column, (one, of)) in profiles.iter().zip(&profile.header.types).enumerate() {
            prop_assert_eq!((&one["type"], &one["name"]), (&Value::from("sampled"), &Value::from(of.kind.as_str())));
            let found = paths(&document, one);
            prop_assert_eq!(&found, &of_profile(&profile, column));
            prop_assert_eq!(found, of_tree(&Tree::from_profile(&profile, column)));
        }
    }
}
