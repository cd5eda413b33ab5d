//! What a table and a flame graph say, from nothing but sums by path: maps of strings, no ids, no tree.

use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::call_tree::flamegraph::Flamegraph;

/// Sums by path, root first.
pub type Totals = BTreeMap<Vec<String>, i64>;

/// Flat and cumulative value by function; a function that recurs in a path counts once.
pub fn table(totals: &Totals) -> BTreeMap<String, (i64, i64)> {
    let mut table = BTreeMap::<String, (i64, i64)>::new();
    for (path, total) in totals {
        if let Some(leaf) = path.last() {
            let flat = &mut table.entry(leaf.clone()).or_default().0;
            *flat = flat.wrapping_add(*total);
        }
        for name in path.iter().collect::<BTreeSet<_>>() {
            let cum = &mut table.entry(name.clone()).or_default().1;
            *cum = cum.wrapping_add(*total);
        }
    }
    table.retain(|_, weights| *weights != (0, 0));
    table
}

/// A bar of a flame graph: its level, where it starts, its total, its self value and its name.
pub type Bar = (usize, i64, i64, i64, String);

/// The bars that are not empty: callees lie side by side by name, behind their caller's self part.
pub fn bars(totals: &Totals) -> Vec<Bar> {
    let mut by_path: BTreeMap<&[String], (i64, i64)> = BTreeMap::new();
    for (path, total) in totals {
        for depth in 0..=path.len() {
            let of_prefix = &mut by_path.entry(&path[..depth]).or_default().0;
            *of_prefix = of_prefix.wrapping_add(*total);
        }
        let self_value = &mut by_path.entry(path).or_default().1;
        *self_value = self_value.wrapping_add(*total);
    }
    let mut next: BTreeMap<&[String], i64> = BTreeMap::new();
    let mut bars = Vec::new();
    for (path, (total, self_value)) in by_path {
        let caller = path.split_last().map(|(_, caller)| caller);
        let start = caller.map_or(0, |caller| next[caller]);
        if let Some(caller) = caller {
            next.insert(caller, start.wrapping_add(total));
        }
        next.insert(path, start.wrapping_add(self_value));
        bars.push((
            path.len(),
            start,
            total,
            self_value,
            path.last().map_or("total", String::as_str).to_owned(),
        ));
    }
    in_order(bars)
}

/// The same of a flame graph, whose bars say how far they are from the one to the left.
pub fn bars_of(graph: &Flamegraph) -> Vec<Bar> {
    let mut bars = Vec::new();
    for (level, of_level) in graph.levels.iter().enumerate() {
        let mut end = 0i64;
        for bar in of_level.chunks_exact(4) {
            let start = end.wrapping_add(bar[0]);
            bars.push((level, start, bar[1], bar[2], graph.names[bar[3] as usize].clone()));
            end = start.wrapping_add(bar[1]);
        }
    }
    in_order(bars)
}

/// Without those that stacks left behind which cancel out.
fn in_order(mut bars: Vec<Bar>) -> Vec<Bar> {
    bars.retain(|&(_, _, total, self_value, _)| (total, self_value) != (0, 0));
    bars.sort_unstable();
    bars
}
