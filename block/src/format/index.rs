//! Index from functions to the services that call them.

use athanor_profile::data_model::symbols::NO_ENTRY;

use crate::format::error::BlockError;

/// Upper bound of pairs in memory.
const MAX_PAIRS_IN_MEMORY: usize = 1 << 20;

/// Tree of stacks, as the index reads it.
pub(crate) trait StackNodes {
    /// Returns the number of nodes. The first ones are the leaves of whole stacks, in their order.
    fn count(&self) -> usize;
    /// Returns the caller of a node, or [`NO_ENTRY`].
    fn parent(&self, node: usize) -> u32;
    /// Returns the functions of a node.
    fn functions(&self, node: usize) -> &[u32];
}

/// Stacks of one service. They are few of all stacks, so they are listed.
#[derive(Default)]
pub(crate) struct StackSet {
    stacks: Vec<u32>,
    /// Length after the last dedup.
    once: usize,
}

impl StackSet {
    pub(crate) fn add(&mut self, stacks: &[u32]) {
        self.stacks.extend_from_slice(stacks);
        if self.stacks.len() > 2 * self.once + 1024 {
            self.dedup();
        }
    }
    /// Returns the stacks ascending and without duplicates.
    pub(crate) fn into_sorted(mut self) -> Vec<u32> {
        self.dedup();
        self.stacks
    }
    fn dedup(&mut self) {
        self.stacks.sort_unstable();
        self.stacks.dedup();
        self.once = self.stacks.len();
    }
}

/// Passes each pair of a function and a service index in order, in chunks. A service is paired with the
/// functions of its stacks.
pub(crate) fn for_each_function_service(
    nodes: &impl StackNodes,
    functions: usize,
    services: &[(String, Vec<u32>)],
    take: impl FnMut(&[(u32, u32)]) -> Result<(), BlockError>,
) -> Result<(), BlockError> {
    for_each_pair_chunk(nodes, functions, services, MAX_PAIRS_IN_MEMORY, take)
}

/// The pairs may exceed memory. So they are counted first, and then built for a few functions at a time.
fn for_each_pair_chunk(
    nodes: &impl StackNodes,
    functions: usize,
    services: &[(String, Vec<u32>)],
    most: usize,
    mut take: impl FnMut(&[(u32, u32)]) -> Result<(), BlockError>,
) -> Result<(), BlockError> {
    let mut counts = vec![0u32; functions];
    let mut walk = ServiceWalk::new(nodes.count(), functions);
    walk.visit_functions(nodes, services, |function, _| counts[function as usize] += 1);
    let mut pairs: Vec<(u32, u32)> = Vec::new();
    let mut from = 0;
    while from < functions {
        let mut to = from;
        let mut held = 0;
        while to < functions && (to == from || held + counts[to] as usize <= most) {
            held += counts[to] as usize;
            to += 1;
        }
        let wanted = from as u32..to as u32;
        if held > 0 {
            pairs.clear();
            walk.visit_functions(nodes, services, |function, service| {
                if wanted.contains(&function) {
                    pairs.push((function, service));
                }
            });
            pairs.sort_unstable();
            pairs.chunks(most).try_for_each(&mut take)?;
        }
        from = to;
    }
    Ok(())
}

/// Last service that visited each node and each function. Services are numbered consecutively across walks.
struct ServiceWalk {
    nodes: Vec<u32>,
    functions: Vec<u32>,
    next: u32,
}

impl ServiceWalk {
    fn new(nodes: usize, functions: usize) -> Self {
        ServiceWalk { nodes: vec![NO_ENTRY; nodes], functions: vec![NO_ENTRY; functions], next: 0 }
    }

    /// Visits each function of each service once.
    fn visit_functions(
        &mut self,
        nodes: &impl StackNodes,
        services: &[(String, Vec<u32>)],
        mut visit: impl FnMut(u32, u32),
    ) {
        for (place, (_, stacks)) in (0u32..).zip(services) {
            let at = self.next;
            self.next += 1;
            for &stack in stacks {
                let mut node = stack as usize;
                // A node that this service visited before needs no further walk, as its callers were visited
                // too.
                while self.nodes[node] != at {
                    self.nodes[node] = at;
                    for &function in nodes.functions(node) {
                        if self.functions[function as usize] != at {
                            self.functions[function as usize] = at;
                            visit(function, place);
                        }
                    }
                    match nodes.parent(node) {
                        NO_ENTRY => break,
                        parent => node = parent as usize,
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Tree {
        parents: Vec<u32>,
        functions: Vec<Vec<u32>>,
    }

    impl StackNodes for Tree {
        fn count(&self) -> usize {
            self.parents.len()
        }
        fn parent(&self, node: usize) -> u32 {
            self.parents[node]
        }
        fn functions(&self, node: usize) -> &[u32] {
            &self.functions[node]
        }
    }

    proptest! {
        #[test]
        fn a_set_holds_each_once(lists in prop::collection::vec(prop::collection::vec(0u32..3000, 0..900), 0..8)) {
            let mut set = StackSet::default();
            lists.iter().for_each(|list| set.add(list));
            let mut expected = lists.concat();
            expected.sort_unstable();
            expected.dedup();
            prop_assert!(set.stacks.len() <= 2 * expected.len() + 1024 + 900);
            prop_assert_eq!(set.into_sorted(), expected);
        }

        #[test]
        fn pairs_come_in_order_whatever_the_pieces(
            parents in prop::collection::vec(any::<prop::sample::Index>(), 1..30),
            functions in prop::collection::vec(prop::collection::vec(0u32..9, 0..3), 30),
            services in prop::collection::vec(prop::collection::btree_set(0u32..30, 0..6), 0..6),
            most in 1usize..8,
        ) {
            let parent = |(at, index): (usize, &prop::sample::Index)| match index.index(at + 1) {
                own if own == at => NO_ENTRY,
                parent => parent as u32,
            };
            let tree = Tree { parents: parents.iter().enumerate().map(parent).collect(), functions };
            let mut expected = std::collections::BTreeSet::new();
            let mut named: Vec<(String, Vec<u32>)> = Vec::new();
            for (place, stacks) in services.into_iter().enumerate() {
                let stacks: Vec<u32> = stacks.into_iter().filter(|&stack| (stack as usize) < tree.count()).collect();
                for &stack in &stacks {
                    let mut node = stack;
                    while node != NO_ENTRY {
                        expected.extend(tree.functions(node as usize).iter().map(|&function| (function, place as u32)));
                        node = tree.parent(node as usize);
                    }
                }
                named.push((place.to_string(), stacks));
            }
            let mut seen = Vec::new();
            for_each_pair_chunk(&tree, 9, &named, most, |pairs| {
                assert!(!pairs.is_empty() && pairs.len() <= most);
                seen.extend_from_slice(pairs);
                Ok(())
            }).unwrap();
            prop_assert_eq!(seen, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
