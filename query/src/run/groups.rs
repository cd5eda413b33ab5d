//! Groups of series by label values, and a tree for each group.

use std::collections::BTreeMap;

use athanor_profile::call_tree::tree::Tree;
use athanor_profile::{Labels, ProfileSource};

use super::labels::{group_labels, series_labels};
use super::matched_profiles::MatchedProfiles;
use super::stack_sums::TreeStacks;
use crate::request::profile_query::{GroupedTreesQuery, ProfileQueryError, ProfileSelection};

/// Groups of series, numbered in order of appearance. The group of a series is computed once.
pub(crate) struct SeriesGroups<'p> {
    picked: &'p MatchedProfiles,
    by: &'p [String],
    /// Group by series index. `u32::MAX` if it is not computed yet.
    of_series: Vec<u32>,
    numbers: BTreeMap<Labels, u32>,
}

impl<'p> SeriesGroups<'p> {
    pub(crate) fn new(picked: &'p MatchedProfiles, by: &'p [String]) -> Self {
        SeriesGroups { picked, by, of_series: vec![u32::MAX; picked.series.len()], numbers: BTreeMap::new() }
    }

    /// Returns the group of a series, by its index.
    pub(crate) fn group_of(&mut self, series: u32) -> usize {
        let known = &mut self.of_series[series as usize];
        if *known == u32::MAX {
            let labels = group_labels(&series_labels(&self.picked.series[series as usize]), self.by);
            let next = self.numbers.len() as u32;
            *known = *self.numbers.entry(labels).or_insert(next);
        }
        *known as usize
    }

    /// Returns the collected values of each group, by its labels.
    pub(crate) fn into_map<T: Default>(self, mut gathered: Vec<T>) -> BTreeMap<Labels, T> {
        let mut take =
            |number: u32| gathered.get_mut(number as usize).map(std::mem::take).unwrap_or_default();
        self.numbers.into_iter().map(|(labels, number)| (labels, take(number))).collect()
    }
}

/// Returns the entry of a group, and adds entries up to it if the group is new.
pub(crate) fn group_entry<T: Default>(gathered: &mut Vec<T>, group: usize) -> &mut T {
    if gathered.len() <= group {
        gathered.resize_with(group + 1, T::default);
    }
    &mut gathered[group]
}

/// Returns the trees of one source. All series of a group are read together, so the source is read once for
/// each group.
pub(super) fn merge_grouped_trees(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    asked: &GroupedTreesQuery,
    source: &dyn ProfileSource,
) -> Result<BTreeMap<Labels, Tree>, ProfileQueryError> {
    let mut groups = SeriesGroups::new(picked, &asked.group_by);
    let mut places = Vec::new();
    for &place in &picked.places {
        group_entry::<Vec<u32>>(&mut places, groups.group_of(picked.profiles[place as usize].series))
            .push(place);
    }
    let stacks = TreeStacks::prepare(&asked.stacks, source)?;
    let mut trees = BTreeMap::new();
    for (group, places) in groups.into_map(places) {
        let tree = stacks.build_tree(&places, selection, &asked.stacks, source)?;
        trees.insert(group, tree);
    }
    Ok(trees)
}
