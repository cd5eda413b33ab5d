//! Call graphs: functions, calls and what they weigh.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::dot;
use athanor_profile::generate::arbitrary;
use athanor_profile::tree::Tree;
use proptest::prelude::*;

use crate::paths::{Paths, of_profile};

/// Values on one side, or on each of two.
type Values<const N: usize> = [i64; N];

/// What a graph says.
#[derive(Debug, Default, PartialEq)]
struct Graph<const N: usize> {
    /// In the order of their numbers: the name, what it has by itself and what in all.
    functions: Vec<(String, Values<N>, Values<N>)>,
    /// By the numbers of caller and callee: what it weighs, and whether something that is not shown may lie between.
    calls: BTreeMap<(usize, usize), (Values<N>, bool)>,
    /// How many functions there are where not all are shown.
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
    let mut graph = Graph::default();
    for line in text.lines() {
        let Some((place, label)) = line.split_once(" [label=\"") else { continue };
        let parts = quoted(label);
        let number = |place: &str| place.strip_prefix('N').unwrap().parse::<usize>().unwrap();
        if let Some((caller, callee)) = place.split_once(" -> ") {
            let is_dotted = line.contains(" style=\"dotted\"");
            let call = (values(parts[0].trim_start()), is_dotted);
            assert!(graph.calls.insert((number(caller), number(callee)), call).is_none());
        } else if place == "graph" {
            graph.of = parts[0].split(' ').nth(2).unwrap().parse().ok();
        } else {
            let (own, all) = match &parts[1..] {
                [own, all] => (own.as_str(), all.strip_prefix("of ").unwrap()),
                [both] => both.split_once(" of ").unwrap_or((both, both)),
                other => panic!("{other:?}"),
            };
            graph.functions.push((parts[0].clone(), values(own), values(all)));
            assert_eq!(number(place), graph.functions.len());
        }
    }
    graph
}

fn add<const N: usize>(sums: &mut Values<N>, values: &Values<N>) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
}

/// The graph of some stacks: each counts once for a function that is in it, and once for a call.
fn expected<const N: usize>(sides: &[Paths; N], shown: usize) -> Graph<N> {
    let mut paths: BTreeMap<&[String], Values<N>> = BTreeMap::new();
    for (side, of_side) in sides.iter().enumerate() {
        of_side.iter().for_each(|(path, value)| paths.entry(path).or_insert([0; N])[side] = *value);
    }
    let mut functions: BTreeMap<&String, (Values<N>, Values<N>)> = BTreeMap::new();
    for (path, values) in paths.iter().filter(|(path, _)| !path.is_empty()) {
        add(&mut functions.entry(path.last().unwrap()).or_insert(([0; N], [0; N])).0, values);
        for name in path.iter().collect::<BTreeSet<_>>() {
            add(&mut functions.entry(name).or_insert(([0; N], [0; N])).1, values);
        }
    }
    let size = |of: &Values<N>| of.iter().fold(0u64, |sum, value| sum.saturating_add(value.unsigned_abs()));
    let mut order: Vec<_> = functions.into_iter().collect();
    order.sort_by_key(|(_, (own, all))| Reverse((size(all), size(own))));
    let of = (order.len() > shown).then_some(order.len());
    order.truncate(shown);
    let number = |name: &String| order.iter().position(|(of, _)| *of == name).map(|at| at + 1);
    let mut calls: BTreeMap<(usize, usize), (Values<N>, bool)> = BTreeMap::new();
    for (path, values) in &paths {
        let numbers: Vec<Option<usize>> = path.iter().map(number).collect();
        let direct: BTreeSet<_> = numbers.windows(2).filter_map(|two| two[0].zip(two[1])).collect();
        let seen: Vec<usize> = numbers.into_iter().flatten().collect();
        for pair in seen.windows(2).map(|two| (two[0], two[1])).collect::<BTreeSet<_>>() {
            let (sums, is_dotted) = calls.entry(pair).or_insert(([0; N], true));
            add(sums, values);
            *is_dotted &= !direct.contains(&pair);
        }
    }
    let written = |name: &str| name.replace(['\n', '\r'], " ");
    let functions = order.into_iter().map(|(name, (own, all))| (written(name), own, all));
    Graph { functions: functions.collect(), calls, of }
}

proptest! {
    #[test]
    fn any_graph_has_the_functions_and_calls_of_its_profile(seed: u64, shown in 1..20usize) {
        let profile = arbitrary(seed);
        for column in 0..profile.header.types.len() {
            // Numbers without a unit are not rounded.
            let text = dot::write(&Tree::of(&profile, column), "count", shown);
            prop_assert_eq!(read::<1>(&text), expected(&[of_profile(&profile, column)], shown));
        }
    }

    #[test]
    fn any_two_graphs_have_those_of_both(left: u64, right: u64, shown in 1..20usize) {
        let (left, right) = (arbitrary(left), arbitrary(right));
        let text = dot::write_diff(&Tree::of(&left, 0), &Tree::of(&right, 0), "count", shown);
        let expected = expected(&[of_profile(&left, 0), of_profile(&right, 0)], shown);
        prop_assert_eq!(read::<2>(&text), expected);
    }
}
