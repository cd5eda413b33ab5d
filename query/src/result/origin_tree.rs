//! Tree of functions with their origins.

use athanor_profile::analysis::origin_table::OriginTable;
use athanor_profile::call_tree::tree::Tree;

/// Stacks by function name, and where the functions come from. It is far smaller than the stacks with all details.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginTree {
    /// Stacks by function name.
    pub tree: Tree,
    /// Weights of the places of each function.
    pub origins: OriginTable,
    /// Number of merged profiles.
    pub profiles: u64,
}

impl OriginTree {
    /// Adds the stacks of other sources.
    pub(crate) fn merge(&mut self, other: &OriginTree) {
        self.tree.merge(&other.tree);
        self.origins.merge(&other.origins);
        self.profiles = self.profiles.saturating_add(other.profiles);
    }

    /// Returns the approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.tree.bytes() + self.origins.bytes()
    }
}
