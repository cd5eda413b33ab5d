//! Series by the values of some labels, and a tree for each set of these.

use std::collections::BTreeMap;

use athanor_profile::tree::Tree;
use athanor_profile::{Labels, Source};

use super::{Picked, frames_of, group, passing, series_labels, tree_of};
use crate::ask::{AskError, Selection, Trees};

/// Groups of series, numbered as they are met: which one a series is in is found out once.
pub(crate) struct Groups<'p> {
    picked: &'p Picked,
    by: &'p [String],
    /// By the place of a series; beyond all groups where it is not known yet.
    of_series: Vec<u32>,
    numbers: BTreeMap<Labels, u32>,
}

impl<'p> Groups<'p> {
    pub(crate) fn new(picked: &'p Picked, by: &'p [String]) -> Self {
        Groups { picked, by, of_series: vec![u32::MAX; picked.series.len()], numbers: BTreeMap::new() }
    }

    /// The group of a series, by its place.
    pub(crate) fn of(&mut self, series: u32) -> usize {
        let known = &mut self.of_series[series as usize];
        if *known == u32::MAX {
            let labels = group(&series_labels(&self.picked.series[series as usize]), self.by);
            let next = self.numbers.len() as u32;
            *known = *self.numbers.entry(labels).or_insert(next);
        }
        *known as usize
    }

    /// What was gathered of each group, by its labels.
    pub(crate) fn named<T: Default>(self, mut gathered: Vec<T>) -> BTreeMap<Labels, T> {
        let mut take =
            |number: u32| gathered.get_mut(number as usize).map(std::mem::take).unwrap_or_default();
        self.numbers.into_iter().map(|(labels, number)| (labels, take(number))).collect()
    }
}

/// The one of a group, whose number may be new.
pub(crate) fn of_group<T: Default>(gathered: &mut Vec<T>, group: usize) -> &mut T {
    if gathered.len() <= group {
        gathered.resize_with(group + 1, T::default);
    }
    &mut gathered[group]
}

/// The trees of one source. Series of one group are read together, so a source is asked once for each group.
pub(super) fn trees(
    picked: &Picked,
    selection: &Selection,
    asked: &Trees,
    source: &dyn Source,
) -> Result<BTreeMap<Labels, Tree>, AskError> {
    let (mut groups, mut places) = (Groups::new(picked, &asked.group_by), Vec::new());
    for &place in &picked.places {
        of_group::<Vec<u32>>(&mut places, groups.of(picked.profiles[place as usize].series)).push(place);
    }
    let passing = passing(source, &frames_of(&asked.stacks))?;
    let mut trees = BTreeMap::new();
    for (group, places) in groups.named(places) {
        let tree = tree_of(&places, selection, (&asked.stacks, passing.as_deref()), source)?;
        trees.insert(group, tree);
    }
    Ok(trees)
}
