//! Sandwich view of one function: its callers and its callees.

use crate::call_tree::tree::{Tree, TreeDraft};

/// Function with all its callers and callees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandwichView {
    /// Inverted tree: below the root is the function, below it its callers, and so on to the roots.
    pub callers: Tree,
    /// Below the root is the function, below it its callees.
    pub callees: Tree,
}

impl SandwichView {
    /// Returns all callers and callees of `function`, at most `depth` frames away from it in either
    /// direction.
    ///
    /// Each stack counts once, however often the function recurs in it: the outermost frame is taken. Both
    /// totals are therefore the function's cumulative value. Values beyond `depth` count at the last frame
    /// shown.
    pub fn from_tree(tree: &Tree, function: &str, depth: usize) -> SandwichView {
        let Some(name) = find_function_name(tree, function) else { return SandwichView::default() };
        let is_it = |at: usize| is_function(tree, at, name);
        let mut callers = TreeDraft::default();
        let mut callees = TreeDraft::default();
        // For each node, its index in `callees` and its distance from the function.
        let mut places: Vec<Option<(u32, usize)>> = Vec::with_capacity(tree.nodes().len());
        for (at, node) in tree.nodes().iter().enumerate() {
            let above = places.get(node.parent as usize).copied().flatten();
            let place = match above {
                Some((place, away)) if away >= depth => Some((place, away)),
                Some((parent, away)) => {
                    let name = callees.name(&tree.names()[node.name as usize]);
                    Some((callees.child(parent, name, node.other), away + 1))
                }
                None if is_it(at) => {
                    let name = callees.name(function);
                    add_callers(tree, at, depth, &mut callers);
                    Some((callees.child(0, name, false), 0))
                }
                None => None,
            };
            if let Some((place, _)) = place {
                callees.add(place, node.self_value);
            }
            places.push(place);
        }
        SandwichView { callers: callers.finish(), callees: callees.finish() }
    }
}

impl SandwichView {
    /// Returns the number of frames visited to find the callers, which bounds the number of nodes in the
    /// result.
    pub fn count_visited_frames(tree: &Tree, function: &str, depth: usize) -> usize {
        let Some(name) = find_function_name(tree, function) else { return 0 };
        let mut frames = 0usize;
        // For each node, its depth and whether it is the function or below it.
        let mut places: Vec<(usize, bool)> = Vec::with_capacity(tree.nodes().len());
        for (at, node) in tree.nodes().iter().enumerate() {
            let (above, is_below) =
                places.get(node.parent as usize).map_or((0, false), |(level, is_in)| (level + 1, *is_in));
            let is_it = is_function(tree, at, name);
            if is_it && !is_below {
                frames = frames.saturating_add(above.min(depth.saturating_add(1)));
            }
            places.push((above, is_below || is_it));
        }
        frames
    }
}

impl SandwichView {
    /// Returns the callers and callees of each occurrence of `function`, recursive ones included.
    ///
    /// A stack counts once for each occurrence. If the function recurs, both totals exceed its cumulative
    /// value, and the function appears among its own callers and callees as often as it recurs.
    pub fn from_all_occurrences(tree: &Tree, function: &str) -> SandwichView {
        let Some(name) = find_function_name(tree, function) else { return SandwichView::default() };
        let mut callers = TreeDraft::default();
        let mut callees = TreeDraft::default();
        // For each node, its indexes in `callees`, once for each occurrence at or above it.
        let mut places: Vec<Vec<u32>> = Vec::with_capacity(tree.nodes().len());
        for (at, node) in tree.nodes().iter().enumerate() {
            let above = places.get(node.parent as usize).map_or(&[][..], Vec::as_slice);
            let mut here = Vec::new();
            if !above.is_empty() {
                let name = callees.name(&tree.names()[node.name as usize]);
                here.extend(above.iter().map(|&caller| callees.child(caller, name, node.other)));
            }
            if is_function(tree, at, name) {
                add_callers(tree, at, usize::MAX - 1, &mut callers);
                let name = callees.name(function);
                here.push(callees.child(0, name, false));
            }
            here.iter().for_each(|&place| callees.add(place, node.self_value));
            places.push(here);
        }
        SandwichView { callers: callers.finish(), callees: callees.finish() }
    }

    /// Returns the number of frames that [`from_all_occurrences`](Self::from_all_occurrences) visits, which
    /// bounds its nodes.
    pub fn count_visited_frames_of_all(tree: &Tree, function: &str) -> usize {
        let Some(name) = find_function_name(tree, function) else { return 0 };
        let mut frames = 0usize;
        // For each node, its depth and the number of occurrences at or above it.
        let mut places: Vec<(usize, usize)> = Vec::with_capacity(tree.nodes().len());
        for (at, node) in tree.nodes().iter().enumerate() {
            let above = places.get(node.parent as usize);
            let (depth, open) = above.map_or((0, 0), |(depth, open)| (depth + 1, *open));
            let is_it = is_function(tree, at, name);
            let open = open + usize::from(is_it);
            frames = frames.saturating_add(open).saturating_add(if is_it { depth } else { 0 });
            places.push((depth, open));
        }
        frames
    }
}

/// Returns the index of a function among the names of a tree.
fn find_function_name(tree: &Tree, function: &str) -> Option<usize> {
    tree.names().binary_search_by(|probe| (**probe).cmp(function)).ok()
}

/// Returns whether a node is the function with a name.
fn is_function(tree: &Tree, at: usize, name: usize) -> bool {
    let node = &tree.nodes()[at];
    at > 0 && node.name as usize == name && !node.other
}

fn add_callers(tree: &Tree, function: usize, depth: usize, callers: &mut TreeDraft) {
    let mut place = 0;
    let mut at = function;
    for _ in 0..=depth {
        if at == 0 {
            break;
        }
        let node = &tree.nodes()[at];
        let name = callers.name(tree.name(node));
        place = callers.child(place, name, false);
        at = node.parent as usize;
    }
    callers.add(place, tree.nodes()[function].total);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_tree::tree::tests::tree;

    #[test]
    fn callers_stand_on_their_heads() {
        let whole = tree(&[("a;f;x", 1), ("b;f", 2), ("a;c;f;f;y", 4), ("a", 8)]);
        let sandwich = SandwichView::from_tree(&whole, "f", usize::MAX - 1);
        assert_eq!(sandwich.callees, tree(&[("f;x", 1), ("f", 2), ("f;f;y", 4)]));
        assert_eq!(sandwich.callers, tree(&[("f;a", 1), ("f;b", 2), ("f;c;a", 4)]));
        let near = SandwichView::from_tree(&whole, "f", 1);
        assert_eq!(near.callees, tree(&[("f;x", 1), ("f", 2), ("f;f", 4)]));
        assert_eq!(near.callers, tree(&[("f;a", 1), ("f;b", 2), ("f;c", 4)]));
        assert_eq!(SandwichView::from_tree(&whole, "nobody", 9), SandwichView::default());
        let frames = |depth| SandwichView::count_visited_frames(&whole, "f", depth);
        assert_eq!([frames(0), frames(1), frames(9)], [3, 6, 7]);
        assert_eq!(SandwichView::count_visited_frames(&whole, "nobody", 9), 0);
    }

    #[test]
    fn recursive_function_stands_on_both_sides_at_each_depth() {
        let whole = tree(&[("root;f;f;f", 2), ("root;g;f;x", 3)]);
        let sandwich = SandwichView::from_all_occurrences(&whole, "f");
        let callers = [("f;root", 2), ("f;f;root", 2), ("f;f;f;root", 2), ("f;g;root", 3)];
        assert_eq!(sandwich.callers, tree(&callers));
        assert_eq!(sandwich.callees, tree(&[("f", 2), ("f;f", 2), ("f;f;f", 2), ("f;x", 3)]));
        // Callers: 2 + 3 + 4 frames, and 3 of the other branch. Callees: 1 + 2 + 3, and 1 + 1.
        assert_eq!(SandwichView::count_visited_frames_of_all(&whole, "f"), 12 + 8);
        assert_eq!(SandwichView::from_all_occurrences(&whole, "nobody"), SandwichView::default());
        assert_eq!(SandwichView::count_visited_frames_of_all(&whole, "nobody"), 0);
    }
}
