//! Rows of the next record batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Int32Array, Int64Array, MapArray, RecordBatch, StringArray, StructArray,
    TimestampNanosecondArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, SchemaRef};
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::{Labels, SpanContext};

use super::sample_profile::SampleProfile;
use super::stack_table::StackTable;
use super::{SampleColumn, SampleColumns, format_profile_id, label_field, label_fields};
use crate::text_column::TextColumn;

/// Columns of the next batch, by row. Columns that the stream lacks stay empty.
pub(super) struct BatchColumns {
    columns: SampleColumns,
    schema: SchemaRef,
    values: Vec<i64>,
    stacks: Vec<i32>,
    times: Vec<i64>,
    profiles: Vec<ProfileRows>,
    spans: Vec<SpanContext>,
}

/// Consecutive rows of one profile.
struct ProfileRows {
    id: ContentHash,
    labels: Labels,
    rows: usize,
}

impl BatchColumns {
    pub(super) fn new(columns: SampleColumns, schema: SchemaRef) -> Self {
        BatchColumns {
            columns,
            schema,
            values: Vec::new(),
            stacks: Vec::new(),
            times: Vec::new(),
            profiles: Vec::new(),
            spans: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Appends a row of a profile.
    pub(super) fn push_row(&mut self, profile: &SampleProfile<'_>, row: SampleRowValue) {
        self.values.push(row.value);
        self.stacks.push(row.place);
        self.times.push(profile.time);
        self.spans.push(row.span);
        match self.profiles.last_mut().filter(|last| last.id == profile.id) {
            Some(last) => last.rows += 1,
            None => {
                let labels = profile.labels.clone();
                self.profiles.push(ProfileRows { id: profile.id, labels, rows: 1 });
            }
        }
    }

    /// Returns the batch of all rows, and removes them.
    pub(super) fn take_batch(
        &mut self,
        stacks: &mut StackTable,
        cursor: &str,
        warnings: &str,
    ) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<SampleColumn> = self.columns.iter().collect();
        let arrays = columns.into_iter().map(|column| match column {
            SampleColumn::ProfileId => self.profile_ids(),
            SampleColumn::Time => {
                let times = TimestampNanosecondArray::from(self.times.clone());
                Ok(Arc::new(times.with_timezone("UTC")) as ArrayRef)
            }
            SampleColumn::Labels => self.labels(),
            SampleColumn::Stack => dictionary(self.stacks.clone(), stacks.share_array()?),
            SampleColumn::Value => Ok(Arc::new(Int64Array::from(self.values.clone())) as ArrayRef),
            SampleColumn::SpanId => self.ids(|span| (span.span != 0).then(|| format!("{:016x}", span.span))),
            SampleColumn::TraceId => {
                self.ids(|span| (span.trace != 0).then(|| format!("{:032x}", span.trace)))
            }
            SampleColumn::Cursor => self.shared_text(cursor),
            SampleColumn::Warnings => self.shared_text(warnings),
        });
        let arrays: Vec<ArrayRef> = arrays.collect::<Result<_, _>>()?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays)?;
        self.values.clear();
        self.stacks.clear();
        self.times.clear();
        self.profiles.clear();
        self.spans.clear();
        Ok(batch)
    }

    fn profile_ids(&self) -> Result<ArrayRef, ArrowError> {
        let mut column = TextColumn::default();
        for profile in &self.profiles {
            column.push_text(&format_profile_id(profile.id), profile.rows);
        }
        column.into_array()
    }

    fn ids(&self, text: impl Fn(&SpanContext) -> Option<String>) -> Result<ArrayRef, ArrowError> {
        let mut column = TextColumn::default();
        for span in &self.spans {
            match text(span) {
                Some(text) => column.push_text(&text, 1),
                None => column.push_nulls(1),
            }
        }
        column.into_array()
    }

    /// Returns a column with one text in all rows, null if it is empty.
    fn shared_text(&self, text: &str) -> Result<ArrayRef, ArrowError> {
        let mut column = TextColumn::default();
        match text.is_empty() {
            true => column.push_nulls(self.len()),
            false => column.push_text(text, self.len()),
        }
        column.into_array()
    }

    fn labels(&self) -> Result<ArrayRef, ArrowError> {
        let mut sets: Vec<&Labels> = Vec::new();
        let mut places = BTreeMap::new();
        let mut keys = Vec::with_capacity(self.len());
        for profile in &self.profiles {
            let place = *places.entry(&profile.labels).or_insert_with(|| {
                sets.push(&profile.labels);
                sets.len() as i32 - 1
            });
            keys.extend(std::iter::repeat_n(place, profile.rows));
        }
        let pairs = || sets.iter().flat_map(|labels| labels.iter());
        let names = StringArray::from_iter_values(pairs().map(|(name, _)| name));
        let values = StringArray::from_iter_values(pairs().map(|(_, value)| value));
        let entries = StructArray::try_new(label_fields(), vec![Arc::new(names), Arc::new(values)], None)?;
        let offsets = OffsetBuffer::from_lengths(sets.iter().map(|labels| labels.len()));
        let maps = MapArray::try_new(label_field(), offsets, entries, None, false)?;
        dictionary(keys, Arc::new(maps))
    }
}

/// Row of a batch beside its profile.
pub(super) struct SampleRowValue {
    /// Index in the table of stacks.
    pub(super) place: i32,
    pub(super) value: i64,
    pub(super) span: SpanContext,
}

fn dictionary(keys: Vec<i32>, values: ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(Int32Array::from(keys), values)?))
}
