//! Rows of a column without levels.

use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::DataType;

use crate::format::error::BlockError;
use crate::format::parquet_reads::{catch_parquet_panic, truncated_column};

/// Reads exactly `rows` rows of a column without levels.
pub(crate) fn read_rows<T: DataType>(
    file: &str,
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
) -> Result<Vec<T::T>, BlockError> {
    let mut values = Vec::with_capacity(rows);
    fill_rows(file, reader, rows, &mut values)?;
    Ok(values)
}

/// Reads rows of a column until `out` has `rows` values.
pub(crate) fn fill_rows<T: DataType>(
    file: &str,
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    out: &mut Vec<T::T>,
) -> Result<(), BlockError> {
    while out.len() < rows {
        let missing = rows - out.len();
        let (records, _, _) = catch_parquet_panic(file, || reader.read_records(missing, None, None, out))?;
        if records == 0 {
            return Err(truncated_column(file));
        }
    }
    Ok(())
}
