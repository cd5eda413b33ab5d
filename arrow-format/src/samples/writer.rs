//! Writer of samples.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use athanor_profile::encoding::hash::{ContentHash, PrehashedMap};
use athanor_profile::{Dictionary, SpanContext};
use bytes::Bytes;

use super::batch::{BatchColumns, SampleRowValue};
use super::sample_profile::{SampleProfile, SampleValue};
use super::stack_table::{MAX_TABLE_BYTES, ShownStack, StackTable, TextHashes};
use super::{SampleColumns, SamplePosition};
use crate::metadata::StreamMetadata;
use crate::{ArrowStreamError, MAX_BATCH_ROWS, write_options};

/// Number of rows of a profile from which they are in order of their stacks, so that batches may divide them.
const MAX_UNSORTED_ROWS: usize = 4096;
/// Bytes of the stacks of a profile from which the same holds. With a smaller profile no table of stacks exceeds its
/// size by more.
const MAX_UNSORTED_BYTES: usize = MAX_TABLE_BYTES / 2;

/// Row of a profile: the sum of all samples of a stack and span.
struct StackRow {
    hash: ContentHash,
    /// Bytes of the stack in a table.
    bytes: usize,
    stack: u32,
    span: SpanContext,
    value: i64,
}

/// Stack of a source dictionary that a row had before.
#[derive(Clone, Copy)]
struct KnownStack {
    shown: ShownStack,
    /// Index in the table of stacks, if it is of the same generation.
    place: i32,
    generation: u32,
}

/// Function that makes the cursor of a place.
pub type CursorEncoder = Box<dyn Fn(SamplePosition) -> String + Send>;

/// Writer of a stream of samples. It holds at most one batch of rows and one dictionary of stacks.
pub struct SampleWriter {
    out: StreamWriter<Vec<u8>>,
    batch: BatchColumns,
    stacks: StackTable,
    /// Number of tables of stacks before the current one.
    generation: u32,
    position: SamplePosition,
    encode_cursor: CursorEncoder,
    warnings: String,
}

impl SampleWriter {
    /// Creates a writer, which has written the schema.
    pub fn new(
        columns: SampleColumns,
        metadata: &StreamMetadata,
        encode_cursor: CursorEncoder,
    ) -> Result<Self, ArrowStreamError> {
        let schema = columns.to_schema(metadata);
        let out = StreamWriter::try_new_with_options(Vec::new(), &schema, write_options()?)?;
        let warnings = metadata.warnings.join("\n");
        Ok(SampleWriter {
            out,
            batch: BatchColumns::new(columns, schema),
            stacks: StackTable::default(),
            generation: 0,
            position: SamplePosition::default(),
            encode_cursor,
            warnings,
        })
    }

    /// Replaces the warnings. All rows that were not written yet have them.
    pub fn set_warnings(&mut self, warnings: &[String]) {
        self.warnings = warnings.join("\n");
    }

    /// Returns a writer of profiles with this dictionary.
    pub fn with_dictionary<'a>(&'a mut self, dictionary: &'a Dictionary) -> SampleProfileWriter<'a> {
        let known = vec![None; dictionary.stacks.len()];
        SampleProfileWriter { writer: self, dictionary, known, texts: TextHashes::default() }
    }

    /// Returns the bytes of the stream since the last call.
    pub fn take_bytes(&mut self) -> Bytes {
        Bytes::from(std::mem::take(self.out.get_mut()))
    }

    /// Returns the number of bytes that [`take_bytes`](Self::take_bytes) would return.
    pub fn pending_bytes(&self) -> usize {
        self.out.get_ref().len()
    }

    /// Returns the last bytes of the stream.
    pub fn finish(mut self) -> Result<Bytes, ArrowStreamError> {
        self.write_batch()?;
        self.out.finish()?;
        Ok(self.take_bytes())
    }

    fn write_batch(&mut self) -> Result<(), ArrowStreamError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let cursor = (self.encode_cursor)(self.position);
        let batch: RecordBatch = self.batch.take_batch(&mut self.stacks, &cursor, &self.warnings)?;
        self.out.write(&batch)?;
        if self.stacks.is_full() {
            self.stacks = StackTable::default();
            self.generation += 1;
        }
        Ok(())
    }
}

/// Writer of profiles that share a dictionary.
pub struct SampleProfileWriter<'a> {
    writer: &'a mut SampleWriter,
    dictionary: &'a Dictionary,
    known: Vec<Option<KnownStack>>,
    texts: TextHashes,
}

impl SampleProfileWriter<'_> {
    /// Writes the rows of a profile. Leaves out the first `skip` rows, and those after the next `limit` ones. Returns the
    /// number of written rows.
    pub fn write_profile(
        &mut self,
        profile: &SampleProfile<'_>,
        skip: u64,
        limit: u64,
    ) -> Result<u64, ArrowStreamError> {
        let mut rows = self.sum_rows(profile.samples)?;
        let stack_bytes = rows.iter().fold(0, |sum: usize, row| sum.saturating_add(row.bytes));
        let is_divided = skip > 0
            || rows.len() as u64 > limit
            || rows.len() > MAX_UNSORTED_ROWS
            || stack_bytes > MAX_UNSORTED_BYTES;
        if is_divided {
            rows.sort_unstable_by_key(|row| (row.hash, row.span));
        } else if rows.is_empty() {
            return Ok(0);
        } else if self.writer.batch.len() + rows.len() > MAX_BATCH_ROWS || self.writer.stacks.is_full() {
            self.writer.write_batch()?;
        }
        let count = rows.len();
        let first = usize::try_from(skip).unwrap_or(usize::MAX).min(count);
        let end = first + usize::try_from(limit).unwrap_or(usize::MAX).min(count - first);
        for (number, row) in rows.iter().enumerate().take(end).skip(first) {
            if self.writer.batch.len() >= MAX_BATCH_ROWS || (is_divided && self.writer.stacks.is_full()) {
                self.writer.write_batch()?;
            }
            let place = self.place(row)?;
            let value = SampleRowValue { place, value: row.value, span: row.span };
            self.writer.batch.push_row(profile, value);
            let rows = if number + 1 == count { 0 } else { number as u64 + 1 };
            self.writer.position = SamplePosition { time: profile.time, profile: profile.id, rows };
        }
        Ok((end - first) as u64)
    }

    /// Returns the sums of equal stacks and spans, in order of first occurrence.
    fn sum_rows(&mut self, samples: &[SampleValue]) -> Result<Vec<StackRow>, ArrowStreamError> {
        let mut rows: Vec<StackRow> = Vec::with_capacity(samples.len());
        let mut places: PrehashedMap<ContentHash, usize> = PrehashedMap::default();
        let mut span_places: BTreeMap<(ContentHash, SpanContext), usize> = BTreeMap::new();
        for &SampleValue { stack, value, span } in samples {
            let ShownStack { hash, bytes } = self.shown(stack);
            let next = rows.len();
            let place = match span == SpanContext::default() {
                true => *places.entry(hash).or_insert(next),
                false => *span_places.entry((hash, span)).or_insert(next),
            };
            match rows.get_mut(place) {
                Some(row) => {
                    let sum = row.value.checked_add(value);
                    row.value = sum.ok_or(ArrowStreamError::SumTooLarge)?;
                }
                None => rows.push(StackRow { hash, bytes, stack, span, value }),
            }
        }
        Ok(rows)
    }

    fn shown(&mut self, stack: u32) -> ShownStack {
        if let Some(known) = self.known[stack as usize] {
            return known.shown;
        }
        let shown = self.texts.measure(self.dictionary, stack);
        self.known[stack as usize] = Some(KnownStack { shown, place: -1, generation: u32::MAX });
        shown
    }

    /// Returns the index of a row's stack in the table.
    fn place(&mut self, row: &StackRow) -> Result<i32, ArrowStreamError> {
        let generation = self.writer.generation;
        if let Some(known) = self.known[row.stack as usize]
            && known.generation == generation
        {
            return Ok(known.place);
        }
        if row.bytes > MAX_TABLE_BYTES {
            return Err(ArrowStreamError::StackTooLarge { bytes: row.bytes, limit: MAX_TABLE_BYTES });
        }
        let place = self.writer.stacks.intern(row.hash, self.dictionary, row.stack);
        let shown = ShownStack { hash: row.hash, bytes: row.bytes };
        self.known[row.stack as usize] = Some(KnownStack { shown, place, generation });
        Ok(place)
    }
}
