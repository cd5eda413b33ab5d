//! Averages of gauges: sums divided by a number of profiles.

use crate::analysis::top_table::{FunctionWeights, TopTable};
use crate::call_tree::tree::Tree;

/// Divisor of the values of a response or view. Values of a gauge are averages over profiles, all others are sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueDivisor {
    /// Number of profiles. 0 if values are sums.
    profiles: u64,
}

impl ValueDivisor {
    /// Creates the divisor for averages over a number of profiles. 0 keeps sums.
    pub fn from_profiles(profiles: u64) -> Self {
        ValueDivisor { profiles }
    }

    /// Returns the number of profiles that values are averages of, or 0 if they are sums.
    pub fn averaged_profiles(self) -> u64 {
        self.profiles
    }

    /// Returns the average for a sum, rounded half away from zero, or the sum itself.
    pub fn divide(self, sum: i64) -> i64 {
        if self.profiles <= 1 {
            return sum;
        }
        let half = u128::from(self.profiles / 2);
        let magnitude = (u128::from(sum.unsigned_abs()) + half) / u128::from(self.profiles);
        // The average of several profiles is at most half of the sum.
        let average = i64::try_from(magnitude).unwrap_or(i64::MAX);
        if sum < 0 { -average } else { average }
    }

    /// Returns both weights divided.
    pub fn divide_weights(self, weights: FunctionWeights) -> FunctionWeights {
        FunctionWeights { flat: self.divide(weights.flat), cum: self.divide(weights.cum) }
    }

    /// Divides the values of a table. Order and shares stay.
    pub fn divide_table(self, table: &mut TopTable) {
        table.total = self.divide(table.total);
        for row in &mut table.rows {
            row.flat = self.divide(row.flat);
            row.cum = self.divide(row.cum);
        }
    }

    /// Returns a tree with all values divided. Each is rounded by itself, so a total may differ from the sum of its
    /// parts.
    pub fn divide_tree(self, tree: &Tree) -> Tree {
        tree.map_values(|value| self.divide(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_tree::tree::tests::tree;

    #[test]
    fn averages_are_rounded_half_away_from_zero() {
        let divide = |profiles, sum| ValueDivisor::from_profiles(profiles).divide(sum);
        assert_eq!([5, -5, 4, 1, -1, 0].map(|sum| divide(2, sum)), [3, -3, 2, 1, -1, 0]);
        assert_eq!([7, 8, -8].map(|sum| divide(5, sum)), [1, 2, -2]);
        assert_eq!([0, 1].map(|profiles| divide(profiles, 9)), [9, 9]);
        assert_eq!([divide(2, i64::MIN), divide(u64::MAX, i64::MAX)], [i64::MIN / 2, 0]);
        assert_eq!(ValueDivisor::default().divide(i64::MIN), i64::MIN);
    }

    #[test]
    fn values_of_a_tree_are_divided_by_themselves() {
        let divided = ValueDivisor::from_profiles(2).divide_tree(&tree(&[("a;b", 1), ("a;c", 1), ("a", 1)]));
        let values: Vec<(i64, i64)> =
            divided.nodes().iter().map(|node| (node.total, node.self_value)).collect();
        assert_eq!(values, [(2, 0), (2, 1), (1, 1), (1, 1)]);
    }
}
