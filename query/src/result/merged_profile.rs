//! Merged stacks by location. They are truncated and converted to a profile once, after all merges.

use std::collections::HashMap;

use athanor_profile::call_tree::tree::{OTHER_NAME, min_shown_weight};
use athanor_profile::data_model::symbols::{Function, Line, NO_ENTRY};
use athanor_profile::encoding::hash::{self, ContentHash};
use athanor_profile::{Dictionary, Profile, ProfileHeader, Samples, StackCopier};

use crate::request::profile_query::ProfileQueryError;
use crate::result::partial::MergedProfile;

impl MergedProfile {
    /// Truncates stacks below the `max_nodes` heaviest frames, and those as heavy as the last of them. The
    /// truncated part of a stack becomes one frame called `other`. The sum stays.
    pub fn truncate(&mut self, max_nodes: usize, most: usize) -> Result<(), ProfileQueryError> {
        let dictionary = &self.dictionary;
        let nodes = dictionary.stacks.nodes();
        let (frames, count) = frames(dictionary);
        let mut weights = vec![0u64; count];
        let mut of_nodes = vec![0u64; nodes.len()];
        for (stack, total) in (0..).zip(&self.totals) {
            if let Some(weight) = of_nodes.get_mut(dictionary.stacks.leaf(stack) as usize) {
                *weight = weight.saturating_add(total.unsigned_abs());
            }
        }
        for (at, node) in nodes.iter().enumerate().rev() {
            let weight = of_nodes[at];
            weights[frames[at] as usize] = weights[frames[at] as usize].saturating_add(weight);
            if node.parent != NO_ENTRY {
                of_nodes[node.parent as usize] = of_nodes[node.parent as usize].saturating_add(weight);
            }
        }
        let of_used: Vec<u64> = weights.iter().copied().filter(|&weight| weight > 0).collect();
        if of_used.len() <= max_nodes {
            return Ok(());
        }
        let least = min_shown_weight(&of_used, max_nodes, most);
        let mut cut = MergedProfile { profiles: self.profiles, ..MergedProfile::default() };
        let other = other_location(&mut cut.dictionary);
        let mut copier = StackCopier::new(dictionary);
        for (stack, &total) in (0..).zip(&self.totals).filter(|(_, total)| **total != 0) {
            let leaf = dictionary.stacks.leaf(stack);
            let mut at = leaf;
            while at != NO_ENTRY && weights[frames[at as usize] as usize] < least {
                at = nodes[at as usize].parent;
            }
            if at == leaf {
                cut.add_foreign_stack(&mut copier, stack, total)?;
                continue;
            }
            let kept = dictionary.stacks.path(at);
            let symbols = &mut cut.dictionary.symbols;
            let adopted = kept.map(|location| symbols.adopt_location(&dictionary.symbols, location));
            let path: Vec<u32> = std::iter::once(other).chain(adopted).collect();
            let stack = cut.dictionary.stacks.intern(&cut.dictionary.symbols, &path);
            cut.add_own_stack(stack, total)?;
        }
        *self = cut;
        Ok(())
    }

    /// Returns the number of frames of all stacks that have a total. A shared frame counts for each stack.
    pub fn frames(&self) -> usize {
        let stacks = &self.dictionary.stacks;
        let mut depths: Vec<u32> = Vec::with_capacity(stacks.nodes().len());
        for node in stacks.nodes() {
            depths.push(depths.get(node.parent as usize).map_or(1, |depth| depth + 1));
        }
        let of_stack =
            |stack: u32| depths.get(stacks.leaf(stack) as usize).map_or(0, |depth| *depth as usize);
        let rows = (0..).zip(&self.totals).filter(|(_, total)| **total != 0);
        rows.map(|(stack, _)| of_stack(stack)).sum()
    }

    /// Converts to a profile with one value: without zero rows, and sorted by content hash.
    pub fn into_profile(self, header: ProfileHeader) -> Profile {
        let MergedProfile { dictionary, totals, .. } = self;
        let rows = (0..).zip(totals).filter(|(_, total)| *total != 0);
        let mut rows: Vec<(u32, i64)> = rows.collect();
        rows.sort_unstable_by_key(|&(stack, _)| dictionary.stacks.hash(stack));
        let mut samples = Samples::default();
        rows.into_iter().for_each(|(stack, total)| samples.push(stack, 0, &[total]));
        Profile { header, samples, dictionary }
    }
}

/// Returns the frame of every node, and the number of frames. Nodes with equal names from the root on are one
/// frame, so that truncation equals that of a flame graph with as many nodes.
fn frames(dictionary: &Dictionary) -> (Vec<u32>, usize) {
    let symbols = &dictionary.symbols;
    let mut ids: HashMap<(u32, ContentHash), u32> = HashMap::new();
    let mut frames: Vec<u32> = Vec::with_capacity(dictionary.stacks.nodes().len());
    for node in dictionary.stacks.nodes() {
        let above = frames.get(node.parent as usize).copied().unwrap_or(NO_ENTRY);
        let lines = symbols.lines(node.location).iter();
        let name = |line: &Line| symbols.strings.hash(symbols.functions()[line.function as usize].name);
        let names: Vec<ContentHash> = lines.map(name).collect();
        let names =
            if names.is_empty() { symbols.location_hash(node.location) } else { hash::hash_list(&names) };
        let next = ids.len() as u32;
        frames.push(*ids.entry((above, names)).or_insert(next));
    }
    (frames, ids.len())
}

fn other_location(dictionary: &mut Dictionary) -> u32 {
    let symbols = &mut dictionary.symbols;
    let name = symbols.strings.intern(OTHER_NAME);
    let function = symbols.intern_function(Function { name, system_name: name, filename: 0, start_line: 0 });
    symbols.intern_location(NO_ENTRY, 0, false, &[Line { function, line: 0, column: 0 }])
}

#[cfg(test)]
mod tests {
    use athanor_profile::call_tree::tree::Tree;

    use super::*;

    #[test]
    fn what_is_cut_off_stays_in_the_sum() {
        let mut merged = MergedProfile::default();
        for (path, total) in [("a;b;c", 4), ("a;b", 2), ("a;d;e", 1), ("f", 2), ("", 8)] {
            let names = path.split(';').filter(|name| !name.is_empty());
            let stack = merged.dictionary.intern_named_stack(names);
            merged.add_own_stack(stack, total).unwrap();
        }
        let whole = Tree::from_totals(&merged.dictionary, &merged.totals);
        let same = |merged: &MergedProfile| Tree::from_totals(&merged.dictionary, &merged.totals) == whole;
        merged.truncate(6, 9).unwrap();
        assert!(same(&merged), "there are six frames");
        assert_eq!(merged.frames(), 3 + 2 + 3 + 1);
        merged.truncate(2, 9).unwrap();
        let cut = Tree::from_totals(&merged.dictionary, &merged.totals);
        let shown: Vec<(&str, i64, i64)> =
            cut.nodes().iter().map(|node| (cut.name(node), node.total, node.self_value)).collect();
        assert_eq!(
            shown,
            [("", 17, 8), ("a", 7, 0), ("other", 2, 2), ("b", 6, 2), ("other", 1, 1), ("other", 4, 4),]
        );
    }
}
