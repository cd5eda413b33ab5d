//! Functions by weight, as `go tool pprof -top` lists them.

use std::cmp::Reverse;

use crate::call_tree::tree::Tree;
use crate::data_model::model::Profile;

/// Weights of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionWeights {
    /// Value in the function itself.
    pub flat: i64,
    /// Value in the function and its callees. A stack in which the function recurs counts once.
    pub cum: i64,
}

/// Row of a function. Shares are fractions of the table's total.
#[derive(Clone, Debug, PartialEq)]
pub struct TopRow {
    /// Name of the function.
    pub name: String,
    /// Value in the function itself.
    pub flat: i64,
    /// Share of `flat` in the total.
    pub flat_share: f64,
    /// Share of `flat` in this row and all rows before it.
    pub sum_share: f64,
    /// Value in the function and its callees.
    pub cum: i64,
    /// Share of `cum` in the total.
    pub cum_share: f64,
}

/// Table of all functions of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopTable {
    /// Total that shares refer to.
    pub total: i64,
    /// Rows, the heaviest function first.
    pub rows: Vec<TopRow>,
}

/// Returns the weights of every function of a tree, in name order. Remainders of a truncation are not
/// functions.
pub fn function_weights(tree: &Tree) -> Vec<(&str, FunctionWeights)> {
    let mut weights = vec![None::<FunctionWeights>; tree.names().len()];
    let mut open = vec![0u32; tree.names().len()];
    let mut walk: Vec<(u32, bool)> = tree.children(0).map(|child| (child, true)).collect();
    while let Some((at, enter)) = walk.pop() {
        let node = &tree.nodes()[at as usize];
        let name = node.name as usize;
        if !enter {
            open[name] -= 1;
            continue;
        }
        if node.other {
            continue;
        }
        let weight = weights[name].get_or_insert_default();
        weight.flat = weight.flat.wrapping_add(node.self_value);
        if open[name] == 0 {
            weight.cum = weight.cum.wrapping_add(node.total);
        }
        open[name] += 1;
        walk.push((at, false));
        walk.extend(tree.children(at).map(|child| (child, true)));
    }
    let names = tree.names().iter().map(|name| &**name);
    names.zip(weights).filter_map(|(name, weights)| Some((name, weights?))).collect()
}

impl TopTable {
    /// Returns the table of one value of a profile.
    pub fn from_profile(profile: &Profile, value: usize) -> TopTable {
        TopTable::from_tree(&Tree::from_profile(profile, value))
    }

    /// Returns the table of a whole tree, sorted by flat, then by cumulative value, then by name.
    pub fn from_tree(tree: &Tree) -> TopTable {
        let total = tree.total();
        let share = |part: i64| if total == 0 { 0.0 } else { part as f64 / total as f64 };
        let mut functions = function_weights(tree);
        functions.sort_by_key(|(_, weight)| Reverse((weight.flat.unsigned_abs(), weight.cum.unsigned_abs())));
        let mut sum = 0i64;
        let row = |(name, weights): (&str, FunctionWeights)| {
            let FunctionWeights { flat, cum } = weights;
            sum = sum.wrapping_add(flat);
            let flat_share = share(flat);
            let sum_share = share(sum);
            let cum_share = share(cum);
            TopRow { name: name.to_owned(), flat, flat_share, sum_share, cum, cum_share }
        };
        TopTable { total, rows: functions.into_iter().map(row).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_tree::tree::tests::tree;

    #[test]
    fn rows_are_those_of_a_table_known_by_heart() {
        let table = TopTable::from_tree(&tree(&[
            ("main", 3),
            ("main;doALot", 20),
            ("main;doALot;prepare", 5),
            ("main;doLittle", 5),
            ("main;doLittle;prepare", 5),
        ]));
        let percent = |share: f64| (share * 10_000.0).round() / 100.0;
        let rows: Vec<(&str, i64, f64, f64, i64, f64)> = table
            .rows
            .iter()
            .map(|row| {
                let shares = [row.flat_share, row.sum_share, row.cum_share].map(percent);
                (row.name.as_str(), row.flat, shares[0], shares[1], row.cum, shares[2])
            })
            .collect();
        assert_eq!(table.total, 38);
        assert_eq!(
            rows,
            [
                ("doALot", 20, 52.63, 52.63, 25, 65.79),
                ("prepare", 10, 26.32, 78.95, 10, 26.32),
                ("doLittle", 5, 13.16, 92.11, 10, 26.32),
                ("main", 3, 7.89, 100.0, 38, 100.0),
            ]
        );
    }

    #[test]
    fn recursion_counts_once() {
        let table = TopTable::from_tree(&tree(&[("f;g;f", 2), ("f", 1), ("g;f", 4)]));
        let rows: Vec<(&str, i64, i64)> =
            table.rows.iter().map(|row| (row.name.as_str(), row.flat, row.cum)).collect();
        assert_eq!(rows, [("f", 7, 7), ("g", 0, 6)]);
    }
}
