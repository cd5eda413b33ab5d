use super::*;
use proptest::prelude::*;

pub(crate) fn tree(stacks: &[(&str, i64)]) -> Tree {
    let mut dictionary = Dictionary::default();
    let mut totals = Vec::new();
    for (stack, value) in stacks {
        let id = dictionary.intern_named_stack(stack.split(';')) as usize;
        totals.resize(totals.len().max(id + 1), 0i64);
        totals[id] += value;
    }
    Tree::from_totals(&dictionary, &totals)
}

fn shown(tree: &Tree) -> Vec<(String, i64, i64)> {
    tree.nodes().iter().map(|node| (tree.name(node).to_owned(), node.total, node.self_value)).collect()
}

fn rows(expected: &[(&str, i64, i64)]) -> Vec<(String, i64, i64)> {
    expected.iter().map(|&(name, total, self_value)| (name.to_owned(), total, self_value)).collect()
}

#[test]
fn stacks_merge_by_name_level_by_level() {
    let tree = tree(&[("b;z", 1), ("b;a", 2), ("a", 4), ("b", 8), ("b;a", 16)]);
    assert_eq!(shown(&tree), rows(&[("", 31, 0), ("a", 4, 4), ("b", 27, 8), ("a", 18, 18), ("z", 1, 1)]));
    assert_eq!(tree.children(2), 3..5);
}

#[test]
fn inlined_lines_are_frames_and_unnamed_code_is_its_binary() {
    use crate::data_model::symbols::{Function, Line};
    let mut dictionary = Dictionary::default();
    let symbols = &mut dictionary.symbols;
    let mut function = |name: &str| {
        let name = symbols.strings.intern(name);
        symbols.intern_function(Function { name, system_name: 0, filename: 0, start_line: 0 })
    };
    let lines = [function("inner"), function("outer")].map(|function| Line { function, line: 1, column: 0 });
    let inlined = symbols.intern_location(NO_ENTRY, 5, false, &lines);
    let bare = symbols.intern_location(NO_ENTRY, 255, false, &[]);
    let stack = dictionary.stacks.intern(&dictionary.symbols, &[bare, inlined]);
    assert_eq!(stack, 0);
    let tree = Tree::from_totals(&dictionary, &[7]);
    assert_eq!(shown(&tree), rows(&[("", 7, 0), ("outer", 7, 0), ("inner", 7, 0), ("[unknown]", 7, 7)]));
    let tree = Tree::with_addresses(&dictionary, &[7]);
    assert_eq!(shown(&tree), rows(&[("", 7, 0), ("outer", 7, 0), ("inner", 7, 0), ("0xff", 7, 7)]));
}

/// One node for each binary: its addresses, which nobody can read, would be hundreds.
#[test]
fn unnamed_frames_of_one_binary_are_one_node_unless_addresses_are_asked_for() {
    use crate::data_model::symbols::Mapping;
    let mut dictionary = Dictionary::default();
    let symbols = &mut dictionary.symbols;
    let mut mapping = |build_id: &str| {
        let (filename, build_id) =
            (symbols.strings.intern("/lib/libc.so.6"), symbols.strings.intern(build_id));
        symbols.intern_mapping(Mapping { start: 0, size: 9, offset: 0, filename, build_id, flags: 0 })
    };
    let (old, new) = (mapping("0123456789abcdef"), mapping("fedcba9876543210"));
    let named = dictionary.intern_named_location("main");
    let mut at = |mapping, address| dictionary.symbols.intern_location(mapping, address, false, &[]);
    let [one, two, other] = [at(old, 0x10), at(old, 0x20), at(new, 0x10)];
    let leaf_first = [&[one, two, named][..], &[two, named], &[other, named, one], &[one, other, named]];
    let stacks = leaf_first.map(|path| dictionary.stacks.intern(&dictionary.symbols, path));
    assert_eq!(stacks, [0, 1, 2, 3]);
    let (old, new) = ("libc.so.6@01234567", "libc.so.6@fedcba98");
    let tree = Tree::from_totals(&dictionary, &[1, 2, 4, 8]);
    let expected = [
        ("", 15, 0),
        (old, 4, 0),
        ("main", 11, 0),
        ("main", 4, 0),
        (old, 3, 3),
        (new, 8, 0),
        (new, 4, 4),
        (old, 8, 8),
    ];
    assert_eq!(shown(&tree), rows(&expected));
    let names: Vec<Vec<String>> = stacks.map(|stack| dictionary.frame_names(stack)).to_vec();
    assert_eq!(names, [vec!["main", old], vec!["main", old], vec![old, "main", new], vec!["main", new, old]]);
    let addresses = Tree::with_addresses(&dictionary, &[1, 0, 4, 0]);
    let at = |name: &str, address: u64| format!("{name}+0x{address:x}");
    let (deep, leaf, other) = (at(old, 0x20), at(old, 0x10), at(new, 0x10));
    let expected = [
        ("", 5, 0),
        (leaf.as_str(), 4, 0),
        ("main", 1, 0),
        ("main", 4, 0),
        (deep.as_str(), 1, 0),
        (other.as_str(), 4, 4),
        (leaf.as_str(), 1, 1),
    ];
    assert_eq!(shown(&addresses), rows(&expected));
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
        whole.clone().subtree_below(&names)
    };
    assert_eq!(below(&["main", "a"]), tree(&[("main;a;b", 4), ("main;a", 2)]));
    assert_eq!(below(&["main", "b"]), tree(&[("main;b", 1)]));
    assert_eq!(below(&["b"]), Tree::default());
    assert_eq!(below(&[]), whole);
}

#[test]
fn ties_stay() {
    let mut cut = tree(&[("a;b", 4), ("a;c", 4), ("d", 2)]);
    cut.truncate_with_ties(2, 9);
    assert_eq!(shown(&cut), rows(&[("", 10, 0), ("other", 2, 2), ("a", 8, 0), ("b", 4, 4), ("c", 4, 4)]));
    let mut many = tree(&[("a;b", 4), ("a;c", 4), ("d", 2)]);
    many.truncate_with_ties(2, 2);
    assert_eq!(shown(&many), rows(&[("", 10, 0), ("other", 2, 2), ("a", 8, 0), ("other", 8, 8)]));
    let mut nothing = tree(&[("a", 1)]);
    nothing.truncate_with_ties(0, 9);
    assert_eq!(shown(&nothing), rows(&[("", 1, 0), ("other", 1, 1)]));
}

#[test]
fn deep_stacks_need_no_deep_stack() {
    let mut dictionary = Dictionary::default();
    let names: Vec<String> = (0..100_000).map(|depth| depth.to_string()).collect();
    dictionary.intern_named_stack(names.iter().map(String::as_str));
    let mut deep = Tree::from_totals(&dictionary, &[1]);
    assert_eq!(deep.nodes().len(), 100_001);
    deep.truncate(10);
    assert_eq!((deep.nodes().len(), deep.total()), (12, 1));
}

pub(crate) fn any_tree() -> impl Strategy<Value = Tree> {
    let stack =
        prop::collection::vec(prop::sample::select(vec!["a", "b", "c", OTHER_NAME, "total", ""]), 1..5);
    prop::collection::vec((stack, -5i64..50), 0..12).prop_map(|stacks| {
        let stacks: Vec<(String, i64)> = stacks.iter().map(|(path, n)| (path.join(";"), *n)).collect();
        tree(&stacks.iter().map(|(path, n)| (path.as_str(), *n)).collect::<Vec<_>>())
    })
}

proptest! {
    #[test]
    fn a_shape_gives_the_tree_of_any_totals(
        stacks in prop::collection::vec(prop::collection::vec(prop::sample::select(vec!["", "a", "b", OTHER_NAME]), 0..5), 1..12),
        totals in prop::collection::vec(prop_oneof![2 => Just(0i64), 4 => -5i64..50, 1 => Just(i64::MAX), 1 => Just(i64::MIN)], 12),
    ) {
        let mut dictionary = Dictionary::default();
        stacks.iter().for_each(|stack| { dictionary.intern_named_stack(stack.iter().copied()); });
        let totals = &totals[..dictionary.stacks.len()];
        let of_shape = TreeShape::from_dictionary(&dictionary).tree_from_totals(totals);
        let of_dictionary = Tree::from_totals(&dictionary, totals);
        prop_assert_eq!(&of_shape, &of_dictionary);
        // Equality of trees compares none of these.
        let facts = |tree: &Tree| (tree.magnitude, tree.has_positive_totals, tree.has_remainders);
        prop_assert_eq!(facts(&of_shape), facts(&of_dictionary));
    }

    #[test]
    fn flags_agree_with_nodes(whole in any_tree(), other in any_tree(), max in 0usize..20) {
        let mut truncated = whole.clone();
        truncated.truncate(max);
        let mut merged = truncated.clone();
        merged.merge(&other);
        let inverted = truncated.inverted();
        let halved = truncated.subtree(0, 1);
        for tree in [whole, truncated, merged, inverted, halved] {
            prop_assert!(tree.has_remainders || tree.nodes.iter().all(|node| !node.other));
            let sum = |at: u32| tree.children(at).map(|child| i128::from(tree.nodes[child as usize].total)).sum::<i128>();
            let adds_up = |(at, node): (u32, &TreeNode)| {
                node.self_value >= 0 && i128::from(node.total) == i128::from(node.self_value) + sum(at)
            };
            prop_assert!(!tree.has_positive_totals || (0..).zip(&tree.nodes).all(adds_up));
            prop_assert_eq!(tree.has_positive_totals, tree.nodes.iter().all(|node| node.self_value >= 0));
        }
    }

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
            prop_assert_eq!(node.total, node.self_value + callees);
        }
    }
}
