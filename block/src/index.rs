//! The index over functions: which services call them.

use std::collections::BTreeMap;

use athanor_profile::symbols::NONE;

/// The tree of stacks, as the index sees it.
pub(crate) trait Nodes {
    /// How many nodes there are; the first are the leaves of whole stacks, in their order.
    fn count(&self) -> usize;
    /// The caller of a node, or [`NONE`].
    fn parent(&self, node: usize) -> u32;
    /// The functions of a node.
    fn functions(&self, node: usize) -> &[u32];
}

/// Each function with each service that has it in one of its stacks, by both.
pub(crate) fn pairs<'s>(
    nodes: &impl Nodes,
    functions: usize,
    services: &'s BTreeMap<String, Vec<bool>>,
) -> Vec<(u32, &'s str)> {
    let mut pairs: Vec<(u32, &str)> = Vec::new();
    let mut seen = vec![NONE; nodes.count()];
    for (at, (service, stacks)) in (0u32..).zip(services) {
        let mut called = vec![false; functions];
        for stack in stacks.iter().enumerate().filter_map(|(stack, &has)| has.then_some(stack)) {
            let mut node = stack;
            // A node that this service has been at before has had its callers visited.
            while seen[node] != at {
                seen[node] = at;
                for &function in nodes.functions(node) {
                    called[function as usize] = true;
                }
                match nodes.parent(node) {
                    NONE => break,
                    parent => node = parent as usize,
                }
            }
        }
        let called = (0u32..).zip(called).filter_map(|(function, called)| called.then_some(function));
        pairs.extend(called.map(|function| (function, service.as_str())));
    }
    pairs.sort_unstable();
    pairs
}
