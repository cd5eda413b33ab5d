//! Trees: stacks merged by function name.
//!
//! A tree is laid out level by level, siblings lexicographically by name, and its name table is sorted, so
//! equal trees are equal arrays and two trees merge in one walk. Nothing here recurses: stacks may be deep.

use std::collections::HashMap;

use crate::hash::HashedMap;
use crate::model::{Dictionary, Profile};
use crate::symbols::{NONE, Strings, Symbols};

/// What the remainder of a truncation is called where names are all there is. See [`Node::other`].
pub const OTHER: &str = "other";

/// A function in the context of its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Index in [`Tree::names`].
    pub name: u32,
    /// The caller, [`NONE`] at the root.
    pub parent: u32,
    /// The first callee; callees lie side by side.
    pub first_child: u32,
    /// How many callees.
    pub child_count: u32,
    /// Own value and that of all callees.
    pub total: i64,
    /// Own value.
    pub own: i64,
    /// Stands for what a truncation cut off; never true of a function, whatever its name.
    pub other: bool,
}

/// Stacks merged by function name, below one nameless root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    names: Vec<Box<str>>,
    nodes: Vec<Node>,
}

impl Default for Tree {
    fn default() -> Self {
        Tree { names: vec!["".into()], nodes: vec![root()] }
    }
}

fn root() -> Node {
    Node { name: 0, parent: NONE, first_child: 1, child_count: 0, total: 0, own: 0, other: false }
}

/// A node before it has its place.
#[derive(Clone, Copy)]
pub(crate) struct Draft {
    pub(crate) parent: u32,
    pub(crate) name: u32,
    pub(crate) other: bool,
    pub(crate) own: i64,
}

/// Nodes in the order of discovery, callers before callees.
pub(crate) struct Drafts {
    names: Strings,
    nodes: Vec<Draft>,
    /// By caller, name, and whether it is a remainder.
    children: HashedMap<u64, u32>,
}

impl Default for Drafts {
    fn default() -> Self {
        let root = Draft { parent: NONE, name: 0, other: false, own: 0 };
        Drafts { names: Strings::default(), nodes: vec![root], children: HashedMap::default() }
    }
}

impl Drafts {
    pub(crate) fn name(&mut self, name: &str) -> u32 {
        self.names.intern(name)
    }
    pub(crate) fn child(&mut self, parent: u32, name: u32, other: bool) -> u32 {
        // No tree has 2^31 nodes.
        let key = u64::from(parent) << 33 | u64::from(other) << 32 | u64::from(name);
        *self.children.entry(key).or_insert_with(|| {
            self.nodes.push(Draft { parent, name, other, own: 0 });
            self.nodes.len() as u32 - 1
        })
    }
    pub(crate) fn add(&mut self, node: u32, value: i64) {
        let own = &mut self.nodes[node as usize].own;
        *own = own.wrapping_add(value);
    }
    pub(crate) fn finish(self) -> Tree {
        let mut totals: Vec<i64> = self.nodes.iter().map(|node| node.own).collect();
        let mut live: Vec<bool> = totals.iter().map(|&own| own != 0).collect();
        for (at, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let parent = node.parent as usize;
            totals[parent] = totals[parent].wrapping_add(totals[at]);
            live[parent] |= live[at];
        }
        live[0] = true;
        let (names, ranks) = self.sorted_names(&live);
        let (first, order) = self.callees(&live, &ranks);
        let mut nodes = vec![Node { total: totals[0], own: self.nodes[0].own, ..root() }];
        let mut drafts = vec![0u32];
        let mut at = 0;
        while at < nodes.len() {
            let draft = drafts[at] as usize;
            let callees = &order[first[draft] as usize..first[draft + 1] as usize];
            nodes[at].first_child = nodes.len() as u32;
            nodes[at].child_count = callees.len() as u32;
            for &callee in callees {
                let Draft { name, other, own, .. } = self.nodes[callee as usize];
                let (name, total) = (ranks[name as usize], totals[callee as usize]);
                nodes.push(Node { name, parent: at as u32, total, own, other, ..root() });
                drafts.push(callee);
            }
            at += 1;
        }
        Tree { names, nodes }
    }
    /// The live callees of each node by name: where they begin, and all of them.
    fn callees(&self, live: &[bool], ranks: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let callees = || (1u32..).zip(&self.nodes[1..]).filter(|(at, _)| live[*at as usize]);
        let mut first = vec![0u32; self.nodes.len() + 1];
        callees().for_each(|(_, node)| first[node.parent as usize + 1] += 1);
        for at in 1..first.len() {
            first[at] += first[at - 1];
        }
        let mut order = vec![0u32; first[self.nodes.len()] as usize];
        let mut next = first.clone();
        for (at, node) in callees() {
            let place = &mut next[node.parent as usize];
            order[*place as usize] = at;
            *place += 1;
        }
        for of_one in first.windows(2) {
            order[of_one[0] as usize..of_one[1] as usize].sort_unstable_by_key(|&at| {
                let node = &self.nodes[at as usize];
                (ranks[node.name as usize], node.other)
            });
        }
        (first, order)
    }
    /// The names in use, sorted, and the rank of each id. The empty name is always first.
    fn sorted_names(&self, live: &[bool]) -> (Vec<Box<str>>, Vec<u32>) {
        let mut used = vec![false; self.names.len()];
        let live = self.nodes.iter().zip(live).filter(|(_, live)| **live);
        live.for_each(|(node, _)| used[node.name as usize] = true);
        let used = (0u32..).zip(used).filter(|(_, used)| *used);
        let mut names: Vec<(&str, u32)> = used.map(|(id, _)| (self.names.get(id), id)).collect();
        names.sort_unstable();
        let mut ranks = vec![0; self.names.len()];
        (0..).zip(&names).for_each(|(rank, (_, id))| ranks[*id as usize] = rank);
        (names.into_iter().map(|(name, _)| name.into()).collect(), ranks)
    }
}

/// A tree that is built by frames, by whoever has no [`Dictionary`].
#[derive(Default)]
pub struct Builder(Drafts);

impl Builder {
    /// The nameless root.
    pub const ROOT: u32 = 0;

    /// With room for so many nodes.
    pub fn with_room(nodes: usize) -> Self {
        let mut drafts = Drafts::default();
        drafts.nodes.reserve(nodes);
        drafts.children.reserve(nodes);
        Builder(drafts)
    }

    /// The id of a name.
    pub fn name(&mut self, name: &str) -> u32 {
        self.0.name(name)
    }
    /// The callee of that name, added if new.
    pub fn child(&mut self, caller: u32, name: u32) -> u32 {
        self.0.child(caller, name, false)
    }
    /// Adds to a node's own value.
    pub fn add(&mut self, node: u32, value: i64) {
        self.0.add(node, value);
    }
    /// The tree of all nodes that have a value or call one that has.
    pub fn finish(self) -> Tree {
        self.0.finish()
    }
}

/// The function names of a location, outermost first, as ids of a drafts' name table.
struct FrameNames<'a> {
    symbols: &'a Symbols,
    of_string: Vec<u32>,
    of_address: HashMap<u32, u32>,
}

impl FrameNames<'_> {
    fn push_down(&mut self, drafts: &mut Drafts, mut parent: u32, location: u32) -> u32 {
        let lines = self.symbols.lines(location);
        if lines.is_empty() {
            let name = *self
                .of_address
                .entry(location)
                .or_insert_with(|| drafts.names.intern(&self.symbols.address_name(location)));
            return drafts.child(parent, name, false);
        }
        for line in lines.iter().rev() {
            let string = self.symbols.functions()[line.function as usize].name;
            let name = &mut self.of_string[string as usize];
            if *name == NONE {
                *name = drafts.names.intern(self.symbols.strings.get(string));
            }
            parent = drafts.child(parent, *name, false);
        }
        parent
    }
}

impl Tree {
    /// The tree of one value of a profile.
    pub fn of(profile: &Profile, value: usize) -> Tree {
        Tree::from_totals(&profile.dictionary, &profile.by_stack(value))
    }

    /// The tree of totals by stack id. Stacks without a total are not looked at.
    pub fn from_totals(dictionary: &Dictionary, totals: &[i64]) -> Tree {
        let path = dictionary.stacks.nodes();
        let mut own = vec![0i64; path.len()];
        let mut live = vec![false; path.len()];
        let mut drafts = Drafts::default();
        for (stack, &total) in (0..).zip(totals).filter(|(_, total)| **total != 0) {
            match dictionary.stacks.leaf(stack) {
                NONE => drafts.add(0, total),
                leaf => {
                    own[leaf as usize] = own[leaf as usize].wrapping_add(total);
                    live[leaf as usize] = true;
                }
            }
        }
        for (at, node) in path.iter().enumerate().rev() {
            if node.parent != NONE {
                live[node.parent as usize] |= live[at];
            }
        }
        let symbols = &dictionary.symbols;
        let of_string = vec![NONE; symbols.strings.len()];
        let mut names = FrameNames { symbols, of_string, of_address: HashMap::new() };
        let mut places = vec![0u32; path.len()];
        for (at, node) in path.iter().enumerate().filter(|(at, _)| live[*at]) {
            let parent = if node.parent == NONE { 0 } else { places[node.parent as usize] };
            places[at] = names.push_down(&mut drafts, parent, node.location);
            drafts.add(places[at], own[at]);
        }
        drafts.finish()
    }

    /// The total of everything.
    pub fn total(&self) -> i64 {
        self.nodes[0].total
    }
    /// All names, sorted; the empty one, of the root, is first.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }
    /// All nodes, level by level; the root is first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
    /// The name of a node.
    pub fn name(&self, node: &Node) -> &str {
        if node.other { OTHER } else { &self.names[node.name as usize] }
    }
    /// Where the callees of a node lie.
    pub fn children(&self, node: u32) -> std::ops::Range<u32> {
        let node = &self.nodes[node as usize];
        node.first_child..node.first_child + node.child_count
    }

    /// Adds another tree. Exact, associative and commutative.
    pub fn merge(&mut self, other: &Tree) {
        let mut drafts = Drafts::default();
        self.draft(&mut drafts);
        other.draft(&mut drafts);
        *self = drafts.finish();
    }

    /// Only what these functions, root first, called, below them as before.
    pub fn below(self, call_site: &[String]) -> Tree {
        let mut drafts = Drafts::default();
        let mut node = 0;
        let mut place = 0;
        for wanted in call_site {
            let is_it = |&child: &u32| {
                let child = &self.nodes[child as usize];
                !child.other && *self.names[child.name as usize] == **wanted
            };
            let Some(child) = self.children(node).find(is_it) else { return Tree::default() };
            let name = drafts.name(wanted);
            (node, place) = (child, drafts.child(place, name, false));
        }
        if node == 0 {
            return self;
        }
        let names: Vec<u32> = self.names.iter().map(|name| drafts.name(name)).collect();
        let mut places = vec![NONE; self.nodes.len()];
        places[node as usize] = place;
        for (at, below) in self.nodes.iter().enumerate().skip(node as usize) {
            if at > node as usize && places[below.parent as usize] != NONE {
                let parent = places[below.parent as usize];
                places[at] = drafts.child(parent, names[below.name as usize], below.other);
            }
            if places[at] != NONE {
                drafts.add(places[at], below.own);
            }
        }
        drafts.finish()
    }

    fn draft(&self, drafts: &mut Drafts) {
        let names: Vec<u32> = self.names.iter().map(|name| drafts.name(name)).collect();
        let mut places = vec![0; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            if at > 0 {
                let parent = places[node.parent as usize];
                places[at] = drafts.child(parent, names[node.name as usize], node.other);
            }
            drafts.add(places[at], node.own);
        }
    }

    /// Cuts down to the `max_nodes` heaviest nodes, the root not counted. To be done once, at the very end:
    /// a truncated tree still merges, but what it lost is lost.
    ///
    /// What is cut becomes one child of its nearest kept caller, flagged [`Node::other`]; these remainders
    /// come on top of `max_nodes`, at most one per kept node. No total changes. Of equally heavy nodes the
    /// upper, then the left one stays, so that the number holds also where totals are equal.
    pub fn truncate(&mut self, max_nodes: usize) {
        let others = self.nodes.iter().filter(|node| node.other).count();
        if self.nodes.len() - 1 - others > max_nodes {
            self.keep(&self.heaviest(max_nodes));
        }
    }

    /// As [`truncate`](Self::truncate), but nodes as heavy as the last one that stays do stay, so that the
    /// result does not depend on names.
    pub fn truncate_with_ties(&mut self, max_nodes: usize) {
        let weights = self.weights();
        let least = least_weight(self.nodes.iter().zip(&weights).skip(1), max_nodes);
        let mut keep: Vec<bool> =
            self.nodes.iter().zip(weights).map(|(node, weight)| weight >= least && !node.other).collect();
        keep[0] = true;
        self.keep(&keep);
    }

    fn keep(&mut self, keep: &[bool]) {
        let mut drafts = Drafts::default();
        let names: Vec<u32> = self.names.iter().map(|name| drafts.name(name)).collect();
        let mut places = vec![0; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            if at > 0 {
                let parent = places[node.parent as usize];
                let above_is_other = drafts.nodes[parent as usize].other;
                places[at] = match (keep[at], above_is_other) {
                    (true, _) => drafts.child(parent, names[node.name as usize], false),
                    (false, true) => parent,
                    (false, false) => drafts.child(parent, 0, true),
                };
            }
            drafts.add(places[at], node.own);
        }
        *self = drafts.finish();
    }

    /// The weight sums magnitudes, so that callers outweigh callees also where values are negative; else it is
    /// the total.
    fn weights(&self) -> Vec<u64> {
        let mut weights: Vec<u64> = self.nodes.iter().map(|node| node.own.unsigned_abs()).collect();
        for (at, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let parent = node.parent as usize;
            weights[parent] = weights[parent].saturating_add(weights[at]);
        }
        weights
    }

    /// Which nodes are heaviest.
    fn heaviest(&self, max_nodes: usize) -> Vec<bool> {
        let weights = self.weights();
        let mut order: Vec<usize> = (1..self.nodes.len()).filter(|&at| !self.nodes[at].other).collect();
        if max_nodes < order.len() {
            order.select_nth_unstable_by_key(max_nodes, |&at| (std::cmp::Reverse(weights[at]), at));
        }
        let mut keep = vec![false; self.nodes.len()];
        keep[0] = true;
        order.iter().take(max_nodes).for_each(|&at| keep[at] = true);
        keep
    }
}

/// The weight of the `max_nodes`-th heaviest node; remainders do not count.
fn least_weight<'a>(nodes: impl Iterator<Item = (&'a Node, &'a u64)>, max_nodes: usize) -> u64 {
    let mut weights: Vec<u64> = nodes.filter(|(node, _)| !node.other).map(|(_, &weight)| weight).collect();
    nth_heaviest(&mut weights, max_nodes)
}

/// The `count`-th of the heaviest weights: what is as heavy stays.
pub fn nth_heaviest(weights: &mut [u64], count: usize) -> u64 {
    match count {
        0 => u64::MAX,
        _ if count > weights.len() => 0,
        _ => *weights.select_nth_unstable_by_key(count - 1, |&weight| std::cmp::Reverse(weight)).1,
    }
}

/// The nodes from below the root down to `node`.
pub(crate) fn path(tree: &Tree, mut node: u32) -> Vec<u32> {
    let mut path = Vec::new();
    while node != 0 && node != NONE {
        path.push(node);
        node = tree.nodes()[node as usize].parent;
    }
    path.reverse();
    path
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn tree(stacks: &[(&str, i64)]) -> Tree {
        let mut dictionary = Dictionary::default();
        let mut totals = Vec::new();
        for (stack, value) in stacks {
            let id = dictionary.named_stack(stack.split(';')) as usize;
            totals.resize(totals.len().max(id + 1), 0i64);
            totals[id] += value;
        }
        Tree::from_totals(&dictionary, &totals)
    }

    fn shown(tree: &Tree) -> Vec<(String, i64, i64)> {
        tree.nodes().iter().map(|node| (tree.name(node).to_owned(), node.total, node.own)).collect()
    }

    fn rows(expected: &[(&str, i64, i64)]) -> Vec<(String, i64, i64)> {
        expected.iter().map(|&(name, total, own)| (name.to_owned(), total, own)).collect()
    }

    #[test]
    fn stacks_merge_by_name_level_by_level() {
        let tree = tree(&[("b;z", 1), ("b;a", 2), ("a", 4), ("b", 8), ("b;a", 16)]);
        assert_eq!(shown(&tree), rows(&[("", 31, 0), ("a", 4, 4), ("b", 27, 8), ("a", 18, 18), ("z", 1, 1)]));
        assert_eq!(tree.children(2), 3..5);
    }

    #[test]
    fn inlined_lines_are_frames_and_addresses_are_names() {
        use crate::symbols::{Function, Line};
        let mut dictionary = Dictionary::default();
        let symbols = &mut dictionary.symbols;
        let mut function = |name: &str| {
            let name = symbols.strings.intern(name);
            symbols.function(Function { name, system_name: 0, filename: 0, start_line: 0 })
        };
        let lines =
            [function("inner"), function("outer")].map(|function| Line { function, line: 1, column: 0 });
        let inlined = symbols.location(NONE, 5, false, &lines);
        let bare = symbols.location(NONE, 255, false, &[]);
        let stack = dictionary.stacks.intern(&dictionary.symbols, &[bare, inlined]);
        assert_eq!(stack, 0);
        let tree = Tree::from_totals(&dictionary, &[7]);
        assert_eq!(shown(&tree), rows(&[("", 7, 0), ("outer", 7, 0), ("inner", 7, 0), ("0xff", 7, 7)]));
    }

    #[test]
    fn a_remainder_is_no_function_named_other() {
        let mut cut = tree(&[("main;other", 9), ("main;a", 2), ("main;b;c", 1), ("main", 3)]);
        cut.truncate(2);
        assert_eq!(shown(&cut), rows(&[("", 15, 0), ("main", 15, 3), ("other", 3, 3), ("other", 9, 9)]));
        assert_eq!([cut.nodes()[2].other, cut.nodes()[3].other], [true, false]);
        cut.truncate(2);
        assert_eq!(cut.nodes().len(), 4, "a remainder does not count");
        cut.truncate(1);
        assert_eq!(shown(&cut), rows(&[("", 15, 0), ("main", 15, 3), ("other", 12, 12)]));
    }

    #[test]
    fn what_is_below_a_call_site_keeps_its_callers() {
        let whole = tree(&[("main;a;b", 4), ("main;a", 2), ("main;b", 1), ("main", 8), ("a;b", 16)]);
        let below = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            whole.clone().below(&names)
        };
        assert_eq!(below(&["main", "a"]), tree(&[("main;a;b", 4), ("main;a", 2)]));
        assert_eq!(below(&["main", "b"]), tree(&[("main;b", 1)]));
        assert_eq!(below(&["b"]), Tree::default());
        assert_eq!(below(&[]), whole);
    }

    #[test]
    fn ties_stay() {
        let mut cut = tree(&[("a;b", 4), ("a;c", 4), ("d", 2)]);
        cut.truncate_with_ties(2);
        assert_eq!(shown(&cut), rows(&[("", 10, 0), ("other", 2, 2), ("a", 8, 0), ("b", 4, 4), ("c", 4, 4)]));
        let mut nothing = tree(&[("a", 1)]);
        nothing.truncate_with_ties(0);
        assert_eq!(shown(&nothing), rows(&[("", 1, 0), ("other", 1, 1)]));
    }

    #[test]
    fn deep_stacks_need_no_deep_stack() {
        let mut dictionary = Dictionary::default();
        let names: Vec<String> = (0..100_000).map(|depth| depth.to_string()).collect();
        dictionary.named_stack(names.iter().map(String::as_str));
        let mut deep = Tree::from_totals(&dictionary, &[1]);
        assert_eq!(deep.nodes().len(), 100_001);
        deep.truncate(10);
        assert_eq!((deep.nodes().len(), deep.total()), (12, 1));
    }

    pub(crate) fn any_tree() -> impl Strategy<Value = Tree> {
        let stack = prop::collection::vec(prop::sample::select(vec!["a", "b", "c", OTHER]), 1..5);
        prop::collection::vec((stack, -5i64..50), 0..12).prop_map(|stacks| {
            let stacks: Vec<(String, i64)> = stacks.iter().map(|(path, n)| (path.join(";"), *n)).collect();
            tree(&stacks.iter().map(|(path, n)| (path.as_str(), *n)).collect::<Vec<_>>())
        })
    }

    proptest! {
        #[test]
        fn merging_is_associative_and_commutative(a in any_tree(), b in any_tree(), c in any_tree()) {
            let sum = |parts: [&Tree; 3]| {
                let mut sum = parts[0].clone();
                sum.merge(parts[1]);
                sum.merge(parts[2]);
                sum
            };
            let mut right = b.clone();
            right.merge(&c);
            let mut nested = a.clone();
            nested.merge(&right);
            prop_assert_eq!(&sum([&a, &b, &c]), &nested);
            prop_assert_eq!(sum([&c, &a, &b]), nested);
        }

        #[test]
        fn truncation_keeps_the_number_and_the_totals(whole in any_tree(), max in 0usize..20) {
            let mut cut = whole.clone();
            cut.truncate(max);
            let functions = cut.nodes().iter().skip(1).filter(|node| !node.other).count();
            prop_assert!(functions <= max);
            prop_assert!(cut.nodes().len() <= 1 + 2 * functions + 1);
            prop_assert_eq!(cut.total(), whole.total());
            for (at, node) in (0..).zip(cut.nodes()) {
                let callees: i64 = cut.children(at).map(|child| cut.nodes()[child as usize].total).sum();
                prop_assert_eq!(node.total, node.own + callees);
            }
        }
    }
}
