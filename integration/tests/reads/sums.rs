//! What plain lists of records add up to, and how much of it is shown.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::decoded::{Calls, Lines, Stacks};
use crate::naive::{Record, Row};

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

/// The call graph of the heaviest functions.
pub fn calls<const N: usize>(stacks: &Stacks<N>, shown: usize) -> Calls<N> {
    let mut functions: BTreeMap<String, ([i64; N], [i64; N])> = BTreeMap::new();
    let add = |sums: &mut [i64; N], values: &[i64; N]| {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    };
    for (stack, values) in stacks {
        add(&mut functions.entry(stack.last().unwrap().clone()).or_insert(([0; N], [0; N])).0, values);
        for name in stack.iter().collect::<BTreeSet<_>>() {
            add(&mut functions.entry(name.clone()).or_insert(([0; N], [0; N])).1, values);
        }
    }
    let weight = |of: &[i64; N]| of.iter().sum::<i64>();
    let mut order: Vec<_> = functions.into_iter().collect();
    order.sort_by_key(|(name, (own, all))| (Reverse(weight(all)), Reverse(weight(own)), name.clone()));
    let of = (order.len() > shown).then_some(order.len());
    order.truncate(shown);
    let mut found = Calls { functions: order.into_iter().collect(), calls: BTreeMap::new(), of };
    for (stack, values) in stacks {
        let mut pairs: BTreeMap<(String, String), bool> = BTreeMap::new();
        let mut last: Option<usize> = None;
        for at in (0..stack.len()).filter(|at| found.functions.contains_key(&stack[*at])) {
            if let Some(caller) = last {
                *pairs.entry((stack[caller].clone(), stack[at].clone())).or_default() |= caller + 1 == at;
            }
            last = Some(at);
        }
        for (pair, is_direct) in pairs {
            let (sums, is_dotted) = found.calls.entry(pair).or_insert(([0; N], true));
            add(sums, values);
            *is_dotted &= !is_direct;
        }
    }
    found
}
