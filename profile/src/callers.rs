//! One function in the middle: who called it, and what it called.

use crate::tree::{Drafts, Tree};

/// A function with all its callers and callees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandwich {
    /// Upside down: below the root stands the function, below it its callers, and so on to the roots.
    pub callers: Tree,
    /// Below the root stands the function, below it its callees.
    pub callees: Tree,
}

impl Sandwich {
    /// Everything around `function`, at most `depth` frames away from it in either direction.
    ///
    /// Each stack counts once however often the function recurs in it: the outermost frame is taken, so
    /// both totals are the function's cumulative value. What lies further away than `depth` counts at the
    /// last frame shown.
    pub fn of(tree: &Tree, function: &str, depth: usize) -> Sandwich {
        let Ok(name) = tree.names().binary_search_by(|probe| (**probe).cmp(function)) else {
            return Sandwich::default();
        };
        let is_it = |at: usize| {
            let node = &tree.nodes()[at];
            at > 0 && node.name as usize == name && !node.other
        };
        let (mut callers, mut callees) = (Drafts::default(), Drafts::default());
        // Where each node went in `callees`, and how far from the function it is.
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
                callees.add(place, node.own);
            }
            places.push(place);
        }
        Sandwich { callers: callers.finish(), callees: callees.finish() }
    }
}

impl Sandwich {
    /// How many frames are looked at to find the callers: no more nodes than that come of it.
    pub fn frames(tree: &Tree, function: &str, depth: usize) -> usize {
        let Ok(name) = tree.names().binary_search_by(|probe| (**probe).cmp(function)) else { return 0 };
        let mut frames = 0usize;
        // How deep each node lies, and whether it is the function or below it.
        let mut places: Vec<(usize, bool)> = Vec::with_capacity(tree.nodes().len());
        for (at, node) in tree.nodes().iter().enumerate() {
            let (above, is_below) =
                places.get(node.parent as usize).map_or((0, false), |(level, is_in)| (level + 1, *is_in));
            let is_it = at > 0 && node.name as usize == name && !node.other;
            if is_it && !is_below {
                frames = frames.saturating_add(above.min(depth.saturating_add(1)));
            }
            places.push((above, is_below || is_it));
        }
        frames
    }
}

fn add_callers(tree: &Tree, function: usize, depth: usize, callers: &mut Drafts) {
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
    use crate::tree::tests::tree;

    #[test]
    fn callers_stand_on_their_heads() {
        let whole = tree(&[("a;f;x", 1), ("b;f", 2), ("a;c;f;f;y", 4), ("a", 8)]);
        let sandwich = Sandwich::of(&whole, "f", usize::MAX - 1);
        assert_eq!(sandwich.callees, tree(&[("f;x", 1), ("f", 2), ("f;f;y", 4)]));
        assert_eq!(sandwich.callers, tree(&[("f;a", 1), ("f;b", 2), ("f;c;a", 4)]));
        let near = Sandwich::of(&whole, "f", 1);
        assert_eq!(near.callees, tree(&[("f;x", 1), ("f", 2), ("f;f", 4)]));
        assert_eq!(near.callers, tree(&[("f;a", 1), ("f;b", 2), ("f;c", 4)]));
        assert_eq!(Sandwich::of(&whole, "nobody", 9), Sandwich::default());
        let frames = |depth| Sandwich::frames(&whole, "f", depth);
        assert_eq!([frames(0), frames(1), frames(9)], [3, 6, 7]);
        assert_eq!(Sandwich::frames(&whole, "nobody", 9), 0);
    }
}
