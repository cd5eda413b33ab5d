//! IDs of the rows of `profiles.parquet`. A row of a downsampled tier has the counts of its profiles instead.

use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::store_interface::series::BucketCounts;
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{FixedLenByteArray, FixedLenByteArrayType, Int64Type};

use crate::format::columns::{COUNT_COLUMNS, TableReader};
use crate::format::error::BlockError;
use crate::format::meta::PROFILES_FILE;
use crate::reader::column_rows::read_rows;

/// Column index of the IDs.
pub(crate) const ID_COLUMN: usize = 3;

/// Reader of the IDs of one row group, or of the counts.
pub(crate) enum RowIdReader {
    Ids(Box<ColumnReaderImpl<FixedLenByteArrayType>>),
    Counts { records: Box<ColumnReaderImpl<Int64Type>>, profiles: Box<ColumnReaderImpl<Int64Type>> },
}

impl RowIdReader {
    pub(crate) fn open(table: &TableReader, group: usize) -> Result<Self, BlockError> {
        if table.columns().counts {
            let [records, profiles] = COUNT_COLUMNS;
            return Ok(RowIdReader::Counts {
                records: Box::new(get_typed_column_reader(table.column_reader(group, records)?)),
                profiles: Box::new(get_typed_column_reader(table.column_reader(group, profiles)?)),
            });
        }
        Ok(RowIdReader::Ids(Box::new(get_typed_column_reader(table.column_reader(group, ID_COLUMN)?))))
    }

    /// Reads the next rows: IDs, or packed counts.
    pub(crate) fn read(&mut self, rows: usize) -> Result<Vec<ContentHash>, BlockError> {
        match self {
            RowIdReader::Ids(reader) => parse_ids(&read_rows(PROFILES_FILE, reader, rows)?),
            RowIdReader::Counts { records, profiles } => {
                let records = read_rows(PROFILES_FILE, records, rows)?;
                pack_counts(&records, &read_rows(PROFILES_FILE, profiles, rows)?)
            }
        }
    }
}

/// Reads the IDs of all rows of a group, or their packed counts.
pub(crate) fn read_row_ids(table: &TableReader, group: usize) -> Result<Vec<ContentHash>, BlockError> {
    if table.columns().counts {
        let [records, profiles] = COUNT_COLUMNS;
        let records = table.read_column::<Int64Type>(group, records)?;
        return pack_counts(&records, &table.read_column::<Int64Type>(group, profiles)?);
    }
    parse_ids(&table.read_column::<FixedLenByteArrayType>(group, ID_COLUMN)?)
}

fn parse_ids(ids: &[FixedLenByteArray]) -> Result<Vec<ContentHash>, BlockError> {
    let parse = |id: &FixedLenByteArray| id.data().try_into().map(ContentHash::from_be_bytes);
    let parsed: Result<_, _> = ids.iter().map(parse).collect();
    parsed.map_err(|_| BlockError::corrupt(PROFILES_FILE, "profile id is not 16 bytes long"))
}

fn pack_counts(records: &[i64], profiles: &[i64]) -> Result<Vec<ContentHash>, BlockError> {
    let pack = |(&records, &profiles): (&i64, &i64)| {
        if profiles < 0 || profiles > records {
            let why = format!("a row counts {profiles} profiles and {records} records");
            return Err(BlockError::corrupt(PROFILES_FILE, why));
        }
        Ok(BucketCounts { records: records as u64, profiles: profiles as u64 }.to_row_id())
    };
    records.iter().zip(profiles).map(pack).collect()
}
