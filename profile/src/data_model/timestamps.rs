//! Timestamps of single samples, which few profilers send. Other profiles have none.

use crate::encoding::hash::vec_memory;

/// Timestamps by row, Unix nanoseconds. Rows after the last one with timestamps take no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleTimestamps {
    /// End of each row's timestamps.
    ends: Vec<usize>,
    times: Vec<i64>,
}

impl SampleTimestamps {
    /// Returns whether no row has timestamps.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }
    /// Returns the number of timestamps in all rows.
    pub fn len(&self) -> usize {
        self.times.len()
    }
    /// Returns the timestamps of a row, in the order in which they were added.
    pub fn row_timestamps(&self, row: usize) -> &[i64] {
        let Some(&end) = self.ends.get(row) else { return &[] };
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.times[start..end]
    }
    /// Adds timestamps to a row, which must not be before the last row with timestamps.
    pub fn add(&mut self, row: usize, times: impl IntoIterator<Item = i64>) {
        debug_assert!(self.ends.len() <= row + 1, "rows come in their order");
        let before = self.times.len();
        self.times.extend(times);
        if self.times.len() > before {
            self.ends.resize(row, before);
            self.ends.push(self.times.len());
        }
    }
    /// Removes all timestamps and keeps the memory.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.times.clear();
    }
    /// Returns the allocated bytes.
    pub fn memory(&self) -> usize {
        vec_memory(&self.ends) + vec_memory(&self.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_its_own_and_rows_without_any_take_no_room() {
        let mut moments = SampleTimestamps::default();
        moments.add(7, []);
        assert_eq!((moments.is_empty(), moments.memory()), (true, 0));
        moments.add(2, [5, 3]);
        moments.add(2, [4]);
        moments.add(4, [9]);
        moments.add(5, []);
        let all: Vec<&[i64]> = (0..7).map(|row| moments.row_timestamps(row)).collect();
        assert_eq!(all, [&[][..], &[], &[5, 3, 4], &[], &[9], &[], &[]]);
        assert_eq!(moments.len(), 4);
        moments.clear();
        assert_eq!(moments, SampleTimestamps::default());
        moments.add(0, [1]);
        assert_eq!(moments.row_timestamps(0), [1]);
    }
}
