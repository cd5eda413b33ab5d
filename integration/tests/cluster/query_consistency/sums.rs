//! What plain lists of records add up to, and how much of it is shown.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::query_consistency::decoded::{Calls, Lines, Stacks};
use crate::query_consistency::naive::{Record, Row};

/// What each stack has in the rows that are meant.
pub fn lines<'n>(records: impl Iterator<Item = &'n Record>, is_meant: impl Fn(&Row) -> bool) -> Lines {
    let mut lines = Lines::new();
    for row in records.flat_map(|record| &record.rows).filter(|row| is_meant(row)) {
        *lines.entry(row.stack.clone()).or_default() += row.value;
    }
    lines
}

/// The same by names.
pub fn stacks<'n>(records: impl Iterator<Item = &'n Record>, is_meant: impl Fn(&Row) -> bool) -> Stacks<1> {
    let mut stacks = Stacks::new();
    for row in records.flat_map(|record| &record.rows).filter(|row| is_meant(row)) {
        stacks.entry(names(row)).or_insert([0])[0] += row.value;
    }
    stacks
}

/// The functions of a row.
pub fn names(row: &Row) -> Vec<String> {
    row.stack.iter().map(|(name, _)| name.clone()).collect()
}

/// Two sides beside each other.
pub fn beside(left: Stacks<1>, right: Stacks<1>) -> Stacks<2> {
    let mut both = Stacks::new();
    for (side, of_side) in [left, right].into_iter().enumerate() {
        of_side.into_iter().for_each(|(stack, [value])| both.entry(stack).or_insert([0, 0])[side] = value);
    }
    both
}

/// Only the heaviest frames in their context, and those as heavy as the last of them; what lies below becomes one.
pub fn cut<const N: usize>(stacks: &Stacks<N>, shown: usize) -> Stacks<N> {
    let mut weights: BTreeMap<&[String], i64> = BTreeMap::new();
    for (stack, values) in stacks {
        for depth in 1..=stack.len() {
            *weights.entry(&stack[..depth]).or_default() += values.iter().sum::<i64>();
        }
    }
    let mut heaviest: Vec<i64> = weights.values().copied().collect();
    heaviest.sort_unstable_by_key(|weight| Reverse(*weight));
    let least = heaviest.get(shown - 1).copied().unwrap_or_default();
    let mut left = Stacks::new();
    for (stack, values) in stacks {
        let kept = (1..=stack.len()).take_while(|depth| weights[&stack[..*depth]] >= least).count();
        let mut path = stack[..kept].to_vec();
        path.extend((kept < stack.len()).then(|| "other".to_owned()));
        let sums = left.entry(path).or_insert([0; N]);
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    left
}

/// A call graph of stacks of lines, of which only some lines may be shown.
fn connected<const N: usize>(
    stacks: &[(Vec<String>, [i64; N])],
    is_shown: impl Fn(&String) -> bool,
) -> Calls<N> {
    let mut graph = Calls::default();
    let add = |sums: &mut [i64; N], values: &[i64; N]| {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    };
    for (stack, values) in stacks {
        // Of equal calls of a stack the first one counts.
        let (mut pairs, mut last): (BTreeMap<_, bool>, Option<usize>) = (BTreeMap::new(), None);
        for at in (0..stack.len()).filter(|at| is_shown(&stack[*at])) {
            let is_dotted = last.is_some_and(|last| last + 1 < at);
            if let Some(caller) = last.filter(|last| stack[*last] != stack[at] || !is_dotted) {
                pairs.entry((stack[caller].clone(), stack[at].clone())).or_insert(is_dotted);
            }
            last = Some(at);
        }
        for (pair, is_dotted) in pairs {
            let (sums, may_hide) = graph.calls.entry(pair).or_insert(([0; N], false));
            add(sums, values);
            *may_hide |= is_dotted;
        }
        for line in stack.iter().filter(|line| is_shown(line)).collect::<BTreeSet<_>>() {
            add(&mut graph.functions.entry(line.clone()).or_insert(([0; N], [0; N])).1, values);
        }
        if let Some(leaf) = stack.last().filter(|line| is_shown(line)) {
            add(&mut graph.functions.get_mut(leaf).unwrap().0, values);
        }
    }
    graph
}

/// How much each line of a graph tells: the more, the less plainly values pass through it.
fn scores<const N: usize>(graph: &Calls<N>) -> BTreeMap<String, i64> {
    let weight = |of: &[i64; N]| of.iter().sum::<i64>() as f64;
    let entropy = |parts: &mut Vec<f64>| {
        parts.sort_unstable_by(f64::total_cmp);
        let total: f64 = parts.iter().sum();
        let parts = parts.iter().filter(|part| **part > 0.0);
        parts.map(|part| -(part / total) * (part / total).log2()).sum::<f64>()
    };
    let score = |name: &String| {
        let others = || graph.calls.iter().filter(|((caller, callee), _)| caller != callee);
        let mut callers: Vec<f64> =
            others().filter(|((_, to), _)| to == name).map(|(_, of)| weight(&of.0)).collect();
        let mut callees: Vec<f64> =
            others().filter(|((from, _), _)| from == name).map(|(_, of)| weight(&of.0)).collect();
        let (self_value, all) = &graph.functions[name];
        let into = if callers.is_empty() { 1.0 } else { entropy(&mut callers) };
        let is_leaf = callees.is_empty();
        callees.push(weight(self_value));
        let out = if is_leaf { 1.0 } else { entropy(&mut callees) };
        ((into + out) * weight(all)) as i64 + weight(self_value) as i64
    };
    graph.functions.keys().map(|name| (name.clone(), score(name))).collect()
}

/// Whether one line reaches another without one of the calls.
fn is_reached<const N: usize>(graph: &Calls<N>, (from, to): &(String, String)) -> bool {
    let (mut seen, mut waiting) = (BTreeSet::from([to]), vec![to]);
    while let Some(next) = waiting.pop() {
        for (caller, callee) in graph.calls.keys().filter(|(caller, callee)| (caller, callee) != (from, to)) {
            if callee == next && seen.insert(caller) {
                if caller == from {
                    return true;
                }
                waiting.push(caller);
            }
        }
    }
    false
}

/// The call graph of the lines that tell most, as `go tool pprof -dot -lines` chooses and connects them.
pub fn calls<const N: usize>(sides: [&Lines; N], shown: usize) -> Calls<N> {
    let mut stacks: BTreeMap<Vec<String>, [i64; N]> = BTreeMap::new();
    for (side, lines) in sides.into_iter().enumerate() {
        for (stack, value) in lines {
            let path = stack.iter().map(|(name, line)| format!("{name} :{line}")).collect();
            stacks.entry(path).or_insert([0; N])[side] += value;
        }
    }
    let stacks: Vec<(Vec<String>, [i64; N])> = stacks.into_iter().collect();
    let whole = connected(&stacks, |_| true);
    let order = |scores: BTreeMap<String, i64>| {
        let mut order: Vec<(String, i64)> = scores.into_iter().collect();
        order.sort_by_key(|(name, score)| (Reverse(*score), name.clone()));
        order.into_iter().map(|(name, _)| name).collect::<Vec<String>>()
    };
    let heaviest = order(scores(&whole));
    let kept: BTreeSet<&String> = heaviest.iter().take(shown).collect();
    let of = (heaviest.len() > shown).then_some(heaviest.len());
    let mut graph = Calls { of, ..connected(&stacks, |line| kept.contains(line)) };
    for callee in order(scores(&graph)).into_iter().rev() {
        let weight = |of: &([i64; N], bool)| of.0.iter().sum::<i64>();
        let callers = graph.calls.iter().filter(|((from, to), _)| *to == callee && from != to);
        let mut callers: Vec<_> = callers.map(|(pair, of)| (weight(of), pair.clone(), of.1)).collect();
        callers.sort_by_key(|(weight, (caller, _), _)| (*weight, Reverse(caller.clone())));
        for (_, pair, is_dotted) in callers {
            if !is_dotted {
                break;
            }
            if is_reached(&graph, &pair) {
                graph.calls.remove(&pair);
            }
        }
    }
    graph
}
