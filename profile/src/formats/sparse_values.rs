//! Conversion of single-type values, as some formats give them, to rows of all types.

use crate::data_model::model::Samples;
use crate::formats::limits::{OverLimitError, check_limit};
use crate::formats::pprof::DecodeLimits;

/// Value of one type for a stack and label set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SparseCell {
    /// Id of the stack.
    pub(crate) stack: u32,
    /// Id of the label set.
    pub(crate) labels: u32,
    /// Index of the type.
    pub(crate) column: usize,
    /// Value for this type.
    pub(crate) value: i64,
}

/// Reason that values cannot become rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SparseRowsError {
    /// Rows times types are over the limit.
    Over(OverLimitError),
    /// The sum of a stack in this column does not fit into 63 bits.
    Overflow(usize),
}

/// Minimum for the limit on bytes of values.
const MIN_VALUE_BYTES_LIMIT: usize = 8 << 20;

/// Returns rows in the order of their stacks. Equal rows are added up, and rows with only zeros are left out.
/// A type with few rows takes memory in all of them. The limit is therefore the bytes that were read, or one
/// value per cell.
pub(crate) fn rows_from_cells(
    mut cells: Vec<SparseCell>,
    types: usize,
    limits: &DecodeLimits,
) -> Result<Samples, SparseRowsError> {
    cells.retain(|cell| cell.value != 0);
    cells.sort_unstable_by_key(|cell| (cell.stack, cell.labels));
    let of_rows = || cells.chunk_by(|a, b| (a.stack, a.labels) == (b.stack, b.labels));
    let values = of_rows().count().saturating_mul(types);
    let most = (limits.bytes.max(MIN_VALUE_BYTES_LIMIT) / size_of::<i64>()).max(cells.len());
    check_limit("values, samples times types", values, most).map_err(SparseRowsError::Over)?;
    let mut samples = Samples::default();
    let mut row = vec![0i64; types];
    for of_row in of_rows() {
        row.fill(0);
        for cell in of_row {
            let sum = row[cell.column].checked_add(cell.value);
            row[cell.column] = sum.ok_or(SparseRowsError::Overflow(cell.column))?;
        }
        if row.iter().any(|&value| value != 0) {
            samples.push(of_row[0].stack, of_row[0].labels, &row);
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(stack: u32, labels: u32, column: usize, value: i64) -> SparseCell {
        SparseCell { stack, labels, column, value }
    }

    #[test]
    fn equal_rows_are_one_and_zeros_none() {
        let cells = vec![
            cell(2, 0, 1, 5),
            cell(1, 0, 0, 3),
            cell(2, 0, 0, 7),
            cell(2, 0, 1, -1),
            cell(3, 0, 0, 0),
            cell(1, 1, 0, 9),
            cell(4, 0, 0, 6),
            cell(4, 0, 0, -6),
        ];
        let samples = rows_from_cells(cells, 2, &DecodeLimits::default()).unwrap();
        let seen: Vec<(u32, u32, &[i64])> = samples.rows(2).collect();
        assert_eq!(seen, [(1, 0, &[3, 0][..]), (1, 1, &[9, 0]), (2, 0, &[7, 4])]);
    }

    #[test]
    fn there_are_no_more_bytes_of_values_than_were_read() {
        let cells: Vec<SparseCell> =
            (0..MIN_VALUE_BYTES_LIMIT as u32 / 8).map(|stack| cell(stack, 0, 0, 1)).collect();
        let limits = |bytes| DecodeLimits { bytes, ..DecodeLimits::default() };
        assert!(rows_from_cells(cells.clone(), 1, &limits(0)).is_ok());
        assert!(rows_from_cells(cells.clone(), 3, &limits(3 * MIN_VALUE_BYTES_LIMIT)).is_ok());
        let what = "values, samples times types";
        let over = SparseRowsError::Over(OverLimitError {
            what,
            seen: 3 * MIN_VALUE_BYTES_LIMIT / 8,
            limit: 3 * MIN_VALUE_BYTES_LIMIT / 8 - 1,
        });
        assert_eq!(rows_from_cells(cells, 3, &limits(3 * MIN_VALUE_BYTES_LIMIT - 1)).unwrap_err(), over);
    }

    #[test]
    fn sums_of_over_63_bits_are_no_rows() {
        let cells = vec![cell(1, 0, 1, i64::MAX), cell(1, 0, 1, 1)];
        assert_eq!(
            rows_from_cells(cells, 2, &DecodeLimits::default()).unwrap_err(),
            SparseRowsError::Overflow(1)
        );
    }
}
