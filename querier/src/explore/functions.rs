//! The table of all functions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_profile::table::{Weights, weigh};
use athanor_profile::tree::Tree;
use athanor_query::{Ask, Partial, Trees, What};

use super::Asked;
use crate::check;
use crate::{Querier, Reader, mixed_up};

mod wire;

/// Most sets of values of the labels by which a table is grouped.
const MAX_GROUPS: usize = 1_000;

/// Which functions come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Own,
    Total,
    Name,
}

/// A function, and what it weighs in all groups and in each.
struct Function<'t> {
    name: &'t str,
    weights: Weights,
    of_groups: Vec<(u32, Weights)>,
}

impl Querier {
    /// The trees of all groups.
    async fn trees(
        &self,
        reader: &Reader,
        asked: Asked,
        group_by: Vec<String>,
    ) -> Result<BTreeMap<Labels, Tree>, Status> {
        let what = What::Trees(Trees { group_by, stacks: asked.stacks.filter });
        let mut bounds = check::bounds();
        bounds.entries = MAX_GROUPS;
        match self.ask(reader, Ask { selection: asked.selection, what, bounds }).await? {
            Partial::Trees(trees) => Ok(trees),
            _ => Err(mixed_up()),
        }
    }
}

/// All functions of all groups, in an order. A function's values are the sums over its groups, since no stack is in two.
fn functions<'t>(trees: impl Iterator<Item = &'t Tree>, order: Order) -> Vec<Function<'t>> {
    let mut functions: BTreeMap<&str, Vec<(u32, Weights)>> = BTreeMap::new();
    for (group, tree) in (0..).zip(trees) {
        for (name, weights) in weigh(tree) {
            functions.entry(name).or_default().push((group, weights));
        }
    }
    let sum = |of_groups: &[(u32, Weights)]| {
        of_groups.iter().fold(Weights::default(), |sum, (_, weights)| Weights {
            flat: sum.flat.wrapping_add(weights.flat),
            cum: sum.cum.wrapping_add(weights.cum),
        })
    };
    let mut functions: Vec<Function<'t>> = functions
        .into_iter()
        .map(|(name, of_groups)| Function { name, weights: sum(&of_groups), of_groups })
        .collect();
    let (own, total) = (
        |of: &Function<'_>| of.weights.flat.unsigned_abs(),
        |of: &Function<'_>| of.weights.cum.unsigned_abs(),
    );
    // They are in the order of their names already.
    match order {
        Order::Name => {}
        Order::Own => functions.sort_by_key(|one| Reverse((own(one), total(one)))),
        Order::Total => functions.sort_by_key(|one| Reverse((total(one), own(one)))),
    }
    functions
}
