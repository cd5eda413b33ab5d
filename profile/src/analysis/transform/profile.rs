//! Transforms of whole profiles.

use super::matcher::StackTransforms;
use super::rewriter::StackRewriter;
use crate::analysis::merge::DictionaryRemapper;
use crate::data_model::model::{Profile, Samples};

impl StackTransforms {
    /// Returns the profile with all stacks rewritten. Timestamps of samples are dropped.
    pub fn apply_to(&self, profile: &Profile) -> Profile {
        let from = &profile.dictionary;
        let mut rewriter = StackRewriter::new(self, from);
        let mut remapper = DictionaryRemapper::new(from);
        let mut rewritten = Profile { header: profile.header.clone(), ..Profile::default() };
        let mut samples = Samples::default();
        // Outer None: not rewritten yet. Inner None: dropped.
        let mut stacks: Vec<Option<Option<u32>>> = vec![None; from.stacks.len()];
        for (stack, labels, values) in profile.samples.rows(profile.header.types.len()) {
            let into = &mut rewritten.dictionary;
            let known = &mut stacks[stack as usize];
            let Some(stack) = *known.get_or_insert_with(|| rewriter.rewrite(stack, into)) else { continue };
            samples.push(stack, remapper.labels(into, labels), values);
        }
        rewritten.samples = samples;
        rewritten.compact();
        rewritten
    }
}
