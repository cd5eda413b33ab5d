//! Bounded lists for administrators: the largest rows out of any number.

use serde_json::{Value, json};

/// Maximum number of rows in a response.
const MAX_LISTED_ROWS: usize = 500;

/// Largest rows of those that were added, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct LargestRows {
    rows: Vec<(u64, Value)>,
    added: usize,
    bytes: u64,
}

impl LargestRows {
    /// Adds a row with its size in bytes.
    pub(super) fn add(&mut self, bytes: u64, row: Value) {
        self.rows.push((bytes, row));
        self.added += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.rows.len() >= 2 * MAX_LISTED_ROWS {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        self.rows.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        self.rows.truncate(MAX_LISTED_ROWS);
    }

    /// Returns the largest rows under a name, the total bytes of all rows, and the number of omitted rows.
    pub(super) fn into_json(mut self, name: &str) -> Value {
        self.shorten();
        let omitted = self.added - self.rows.len();
        let rows: Vec<Value> = self.rows.into_iter().map(|(_, row)| row).collect();
        json!({ name: rows, "bytes": self.bytes, "omitted": omitted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_rows_are_kept_and_others_counted() {
        let mut ranking = LargestRows::default();
        for size in 0..10 * MAX_LISTED_ROWS as u64 {
            ranking.add(size, json!(size));
        }
        assert!(ranking.rows.len() < 2 * MAX_LISTED_ROWS);
        let listed = ranking.into_json("rows");
        assert_eq!(
            (listed["rows"].as_array().unwrap().len(), &listed["rows"][0]),
            (MAX_LISTED_ROWS, &json!(4_999))
        );
        assert_eq!(listed["omitted"], 9 * MAX_LISTED_ROWS);
    }
}
