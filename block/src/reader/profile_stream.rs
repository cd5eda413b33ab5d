//! Profiles of a part in order, read in batches, so that memory does not grow with their number.

use std::ops::Range;
use std::sync::Arc;

use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::store_interface::series::ProfileRow;
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{Int32Type, Int64Type};

use crate::format::columns::TableReader;
use crate::format::error::BlockError;
use crate::format::meta::PROFILES_FILE;
use crate::reader::column_rows::read_rows;
use crate::reader::read::{TenantBlock, local_id};
use crate::reader::row_ids::RowIdReader;

/// Profiles decoded per batch.
pub(crate) const PROFILE_BATCH_ROWS: usize = 4 * 1024;

/// Profile as stored in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredProfile {
    pub(crate) row: ProfileRow,
    /// Sum of its values, modulo 2^64.
    pub(crate) total: i64,
    /// Number of profiles in the row: 1, unless it adds up a bucket.
    pub(crate) records: u64,
}

/// Reader of the profiles of one part. At the end it compares their counts and their sum with `meta.json`.
pub(crate) struct ProfileStream<'p> {
    part: &'p TenantBlock<'p>,
    table: Arc<TableReader>,
    groups: Range<usize>,
    open: Option<OpenGroup>,
    batch: Vec<StoredProfile>,
    /// Index of the next profile in the batch.
    at: usize,
    profiles: u64,
    records: u64,
    samples: u64,
    sum: u64,
}

/// Row group with rows left to read.
struct OpenGroup {
    readers: ProfileReaders,
    left: usize,
}

struct ProfileReaders {
    number: ColumnReaderImpl<Int32Type>,
    series: ColumnReaderImpl<Int32Type>,
    time: ColumnReaderImpl<Int64Type>,
    id: RowIdReader,
    duration: ColumnReaderImpl<Int64Type>,
    period: ColumnReaderImpl<Int64Type>,
    samples: ColumnReaderImpl<Int32Type>,
    total: ColumnReaderImpl<Int64Type>,
}

impl<'p> ProfileStream<'p> {
    pub(crate) fn open(part: &'p TenantBlock<'p>) -> Result<Self, BlockError> {
        Ok(ProfileStream {
            part,
            table: part.profiles_table()?,
            groups: part.row_groups(PROFILES_FILE).range(),
            open: None,
            batch: Vec::new(),
            at: 0,
            profiles: 0,
            records: 0,
            samples: 0,
            sum: 0,
        })
    }

    /// Returns the next profile, none after the last one.
    pub(crate) fn next_profile(&mut self) -> Result<Option<StoredProfile>, BlockError> {
        if self.at == self.batch.len() && !self.fill_batch()? {
            return Ok(None);
        }
        let profile = self.batch[self.at];
        self.at += 1;
        Ok(Some(profile))
    }

    /// Reads the next batch. Returns false at the end.
    fn fill_batch(&mut self) -> Result<bool, BlockError> {
        self.part.check_cancelled()?;
        self.batch.clear();
        self.at = 0;
        loop {
            let mut group = match self.open.take() {
                Some(group) => group,
                None => match self.groups.next() {
                    Some(group) => OpenGroup {
                        readers: ProfileReaders::open(&self.table, group)?,
                        left: self.table.rows(group)?,
                    },
                    None => return self.check_end().map(|()| false),
                },
            };
            let count = group.left.min(PROFILE_BATCH_ROWS);
            if count == 0 {
                continue;
            }
            self.read_batch(&mut group.readers, count)?;
            group.left -= count;
            if group.left > 0 {
                self.open = Some(group);
            }
            return Ok(true);
        }
    }

    fn read_batch(&mut self, readers: &mut ProfileReaders, count: usize) -> Result<(), BlockError> {
        let columns = readers.read(count)?;
        let first = u64::from(self.part.meta.profiles.0) + self.profiles;
        let is_in_order =
            |(expected, number): (u64, &i32)| u64::try_from(*number).is_ok_and(|number| number == expected);
        if !(first..).zip(&columns.number).all(is_in_order) {
            return Err(wrong_profiles("ids differ from those in meta.json"));
        }
        for row in 0..count {
            let samples = u32::try_from(columns.samples[row])
                .map_err(|_| wrong_profiles("negative number of samples"))?;
            let total = columns.total[row];
            let id = columns.id[row];
            let records = self.part.record_count(id);
            self.records = self.records.saturating_add(records);
            self.samples += u64::from(samples);
            self.sum = self.sum.wrapping_add(total as u64);
            self.batch.push(StoredProfile {
                row: ProfileRow {
                    series: local_id(PROFILES_FILE, columns.series[row], self.part.meta.series)?,
                    time: columns.time[row],
                    id,
                    duration: columns.duration[row],
                    period: columns.period[row],
                    samples,
                },
                total,
                records,
            });
        }
        self.profiles += count as u64;
        Ok(())
    }

    fn check_end(&self) -> Result<(), BlockError> {
        let meta = self.part.meta;
        if self.profiles != u64::from(meta.profiles.1) || self.samples != meta.samples {
            let ProfileStream { profiles, samples, .. } = self;
            let expected = meta.profiles.1;
            let of_meta = meta.samples;
            let why = format!(
                "{profiles} profiles with {samples} samples, meta.json lists {expected} with {of_meta}"
            );
            return Err(wrong_profiles(why));
        }
        self.part.check_record_count(self.records)?;
        match meta.sum {
            Some(expected) if expected != self.sum => {
                let sum = self.sum;
                Err(wrong_profiles(format!("the sum of all values is {sum}, meta.json lists {expected}")))
            }
            _ => Ok(()),
        }
    }
}

fn wrong_profiles(why: impl Into<String>) -> BlockError {
    BlockError::corrupt(PROFILES_FILE, why)
}

/// Columns of some rows.
struct ProfileBatch {
    number: Vec<i32>,
    series: Vec<i32>,
    time: Vec<i64>,
    id: Vec<ContentHash>,
    duration: Vec<i64>,
    period: Vec<i64>,
    samples: Vec<i32>,
    total: Vec<i64>,
}

impl ProfileReaders {
    fn open(table: &TableReader, group: usize) -> Result<Self, BlockError> {
        Ok(ProfileReaders {
            number: get_typed_column_reader(table.column_reader(group, 0)?),
            series: get_typed_column_reader(table.column_reader(group, 1)?),
            time: get_typed_column_reader(table.column_reader(group, 2)?),
            id: RowIdReader::open(table, group)?,
            duration: get_typed_column_reader(table.column_reader(group, 4)?),
            period: get_typed_column_reader(table.column_reader(group, 5)?),
            samples: get_typed_column_reader(table.column_reader(group, 6)?),
            total: get_typed_column_reader(table.column_reader(group, 7)?),
        })
    }

    fn read(&mut self, rows: usize) -> Result<ProfileBatch, BlockError> {
        Ok(ProfileBatch {
            number: read_rows(PROFILES_FILE, &mut self.number, rows)?,
            series: read_rows(PROFILES_FILE, &mut self.series, rows)?,
            time: read_rows(PROFILES_FILE, &mut self.time, rows)?,
            id: self.id.read(rows)?,
            duration: read_rows(PROFILES_FILE, &mut self.duration, rows)?,
            period: read_rows(PROFILES_FILE, &mut self.period, rows)?,
            samples: read_rows(PROFILES_FILE, &mut self.samples, rows)?,
            total: read_rows(PROFILES_FILE, &mut self.total, rows)?,
        })
    }
}
