//! A tree for each set of values of some labels.

use std::collections::BTreeMap;

use athanor_profile::tree::Tree;
use athanor_profile::{Labels, Source};

use super::{Picked, frames_of, group, passing, tree_of};
use crate::ask::{AskError, Selection, Trees};

/// The trees of one source. Series of one group are read together, so a source is asked once for each group.
pub(super) fn trees(
    picked: &Picked,
    selection: &Selection,
    asked: &Trees,
    source: &dyn Source,
) -> Result<BTreeMap<Labels, Tree>, AskError> {
    let mut all_labels = picked.labels();
    let mut places: BTreeMap<Labels, Vec<u32>> = BTreeMap::new();
    for &place in &picked.places {
        let labels = all_labels.of(picked.profiles[place as usize].series);
        places.entry(group(labels, &asked.group_by)).or_default().push(place);
    }
    drop(all_labels);
    let passing = passing(source, &frames_of(&asked.stacks))?;
    let mut trees = BTreeMap::new();
    for (group, places) in places {
        let tree = tree_of(&places, selection, (&asked.stacks, passing.as_deref()), source)?;
        trees.insert(group, tree);
    }
    Ok(trees)
}
