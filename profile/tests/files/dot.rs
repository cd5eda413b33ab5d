//! Call graphs: functions, calls and what they weigh.

use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::Profile;
use athanor_profile::generate::arbitrary_profile;
use athanor_profile::render::dot::{self, StackTotals};
use proptest::prelude::*;

use crate::paths::{Paths, of_lines};

/// Values on one side, or on each of two.
type Values<const N: usize> = [i64; N];

/// What a graph says.
#[derive(Debug, Default, PartialEq)]
struct Graph<const N: usize> {
    /// By their names in full: what each has by itself and what in all.
    functions: BTreeMap<String, (Values<N>, Values<N>)>,
    /// By caller and callee: what it weighs, and whether something that is not shown may lie between.
    calls: BTreeMap<(String, String), (Values<N>, bool)>,
    /// How many nodes there are where not all are shown.
    of: Option<usize>,
}

/// The text between quotes at the beginning, in parts that `\n` divides.
fn quoted(text: &str) -> Vec<String> {
    let (mut parts, mut letters) = (vec![String::new()], text.chars());
    while let Some(letter) = letters.next() {
        match (letter, parts.last_mut().unwrap()) {
            ('"', _) => return parts,
            ('\\', last) => match letters.next().unwrap() {
                'n' => parts.push(String::new()),
                other => last.push(other),
            },
            (other, last) => last.push(other),
        }
    }
    panic!("{text:?} does not end");
}

/// A value, with its share behind it, or one before and one after.
fn values<const N: usize>(text: &str) -> Values<N> {
    let value = |text: &str| text.split(' ').next().unwrap().parse::<i64>().unwrap();
    let (before, after) = text.split_once(" -> ").unwrap_or((text, text));
    std::array::from_fn(|side| value(if side == 0 { before } else { after }))
}

fn read<const N: usize>(text: &str) -> Graph<N> {
    let (mut graph, mut names) = (Graph::default(), BTreeMap::new());
    for line in text.lines() {
        let Some((place, label)) = line.split_once(" [label=\"") else { continue };
        let parts = quoted(label);
        if let Some((caller, callee)) = place.split_once(" -> ") {
            let is_dotted = line.contains(" style=\"dotted\"");
            let pair = [caller, callee].map(|number| String::clone(&names[number]));
            let [caller, callee] = pair;
            let call = (values(parts[0].trim_start()), is_dotted);
            assert_eq!(graph.calls.insert((caller, callee), call), None);
        } else if place == "graph" {
            graph.of = parts[0].split(' ').nth(2).unwrap().parse().ok();
        } else {
            let (self_value, all) = match &parts[parts.len() - 2..] {
                [own, all] if all.starts_with("of ") => (own.as_str(), all.strip_prefix("of ").unwrap()),
                [_, both] => both.split_once(" of ").unwrap_or((both, both)),
                other => panic!("{other:?}"),
            };
            let (_, tooltip) = line.rsplit_once(" tooltip=\"").unwrap();
            let name = quoted(tooltip).remove(0);
            let (name, _) = name.rsplit_once(" (").unwrap();
            assert_eq!(graph.functions.insert(name.to_owned(), (values(self_value), values(all))), None);
            names.insert(place.to_owned(), name.to_owned());
            assert_eq!(place, format!("N{}", names.len()));
        }
    }
    graph
}

fn add<const N: usize>(sums: &mut Values<N>, values: &Values<N>) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
}

/// The graph of all lines: each stack counts once for a line that is in it, and once for a call.
fn expected<const N: usize>(sides: &[Paths; N]) -> Graph<N> {
    let mut paths: BTreeMap<&[String], Values<N>> = BTreeMap::new();
    for (side, of_side) in sides.iter().enumerate() {
        of_side.iter().for_each(|(path, value)| paths.entry(path).or_insert([0; N])[side] = *value);
    }
    let mut functions: BTreeMap<&String, (Values<N>, Values<N>)> = BTreeMap::new();
    let mut calls: BTreeMap<(String, String), (Values<N>, bool)> = BTreeMap::new();
    for (path, values) in paths.iter().filter(|(path, _)| !path.is_empty()) {
        add(&mut functions.entry(path.last().unwrap()).or_insert(([0; N], [0; N])).0, values);
        for name in path.iter().collect::<BTreeSet<_>>() {
            add(&mut functions.entry(name).or_insert(([0; N], [0; N])).1, values);
        }
        for pair in path.windows(2).map(|two| (two[0].clone(), two[1].clone())).collect::<BTreeSet<_>>() {
            add(&mut calls.entry(pair).or_insert(([0; N], false)).0, values);
        }
    }
    let is_node = |(_, values): &(&String, (Values<N>, Values<N>))| *values != ([0; N], [0; N]);
    let functions = functions.into_iter().filter(is_node);
    let functions: BTreeMap<String, (Values<N>, Values<N>)> =
        functions.map(|(name, values)| (name.clone(), values)).collect();
    calls.retain(|(caller, callee), (values, _)| {
        *values != [0; N] && functions.contains_key(caller) && functions.contains_key(callee)
    });
    Graph { functions, calls, of: None }
}

fn side(profile: &Profile, totals: &[i64]) -> String {
    dot::write(StackTotals { dictionary: &profile.dictionary, totals, addresses: false }, "count", usize::MAX)
}

proptest! {
    #[test]
    fn any_graph_has_the_lines_and_calls_of_its_profile(seed: u64, shown in 1..20usize) {
        let profile = arbitrary_profile(seed);
        for column in 0..profile.header.types.len() {
            let totals = profile.totals_by_stack(column);
            // Numbers without a unit are not rounded.
            let whole = read::<1>(&side(&profile, &totals));
            prop_assert_eq!(&whole, &expected(&[of_lines(&profile, column)]));
            let stacks = StackTotals { dictionary: &profile.dictionary, totals: &totals, addresses: false };
            let part = read::<1>(&dot::write(stacks, "count", shown));
            let count = whole.functions.len();
            prop_assert_eq!(part.functions.len(), count.min(shown));
            prop_assert_eq!(part.of, (count > shown).then_some(count));
            prop_assert!(part.functions.iter().all(|(name, values)| whole.functions[name] == *values));
        }
    }

    #[test]
    fn any_two_graphs_have_those_of_both(left: u64, right: u64) {
        assert_graph_of_both(left, right)?;
    }
}

/// Two stacks of these profiles have equal lines and cancel each other, and so does the call in them.
#[test]
fn a_call_whose_stacks_cancel_is_left_out() {
    assert_graph_of_both(3_350_280_403_558_630_847, 0).unwrap();
}

fn assert_graph_of_both(left: u64, right: u64) -> Result<(), TestCaseError> {
    let (left, right) = (arbitrary_profile(left), arbitrary_profile(right));
    let totals = [&left, &right].map(|profile| profile.totals_by_stack(0));
    let [one, other] = [(&left, &totals[0]), (&right, &totals[1])].map(|(profile, totals)| StackTotals {
        dictionary: &profile.dictionary,
        totals,
        addresses: false,
    });
    let text = dot::write_diff(one, other, "count", usize::MAX);
    let expected = expected(&[of_lines(&left, 0), of_lines(&right, 0)]);
    prop_assert_eq!(read::<2>(&text), expected);
    Ok(())
}
