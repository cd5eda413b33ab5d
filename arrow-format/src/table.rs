//! Table of a response: columns, which become record batches.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, DurationNanosecondArray, Float64Array, Int32Array, Int64Array,
    MapArray, RecordBatch, StringArray, StructArray, TimestampNanosecondArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use athanor_proto::types::v1::LabelPair;
use bytes::Bytes;

use crate::metadata::{StreamMetadata, UNIT_KEY};
use crate::samples::{label_field, label_fields};
use crate::text_column::TextColumn;
use crate::{ArrowStreamError, MAX_BATCH_ROWS, write_options};

/// Table of a response. All columns have the same number of rows.
#[derive(Default)]
pub struct ResponseTable {
    columns: Vec<(Field, ArrayRef)>,
    /// Description of the response.
    pub metadata: StreamMetadata,
}

impl ResponseTable {
    /// Appends a column of texts. Empty texts are null.
    pub fn push_texts<'a>(
        &mut self,
        name: &str,
        texts: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), ArrowError> {
        let mut column = TextColumn::default();
        for text in texts {
            match text.is_empty() {
                true => column.push_nulls(1),
                false => column.push_text(text, 1),
            }
        }
        self.push(name, column.into_array()?);
        Ok(())
    }

    /// Appends a column of integers.
    pub fn push_integers(&mut self, name: &str, values: impl IntoIterator<Item = i64>) {
        self.push(name, Arc::new(Int64Array::from_iter_values(values)));
    }

    /// Appends a column of values in a unit.
    pub fn push_values(&mut self, name: &str, unit: &str, values: impl IntoIterator<Item = i64>) {
        self.push_integers(name, values);
        if let Some((field, _)) = self.columns.last_mut()
            && !unit.is_empty()
        {
            *field = field.clone().with_metadata([(UNIT_KEY, unit)]);
        }
    }

    /// Appends a column of numbers.
    pub fn push_numbers(&mut self, name: &str, values: impl IntoIterator<Item = f64>) {
        self.push(name, Arc::new(Float64Array::from_iter_values(values)));
    }

    /// Appends a column of timestamps, Unix nanoseconds.
    pub fn push_times(&mut self, name: &str, nanos: impl IntoIterator<Item = i64>) {
        let times = TimestampNanosecondArray::from_iter_values(nanos);
        self.push(name, Arc::new(times.with_timezone("UTC")));
    }

    /// Appends a column of durations in nanoseconds.
    pub fn push_durations(&mut self, name: &str, nanos: impl IntoIterator<Item = i64>) {
        self.push(name, Arc::new(DurationNanosecondArray::from_iter_values(nanos)));
    }

    /// Appends a column of label sets, given once each, with the set of each row.
    pub fn push_labels(
        &mut self,
        name: &str,
        sets: &[&[LabelPair]],
        rows: Vec<i32>,
    ) -> Result<(), ArrowError> {
        let pairs = || sets.iter().copied().flatten();
        let names = StringArray::from_iter_values(pairs().map(|pair| pair.name.as_str()));
        let values = StringArray::from_iter_values(pairs().map(|pair| pair.value.as_str()));
        let entries = StructArray::try_new(label_fields(), vec![Arc::new(names), Arc::new(values)], None)?;
        let offsets = OffsetBuffer::from_lengths(sets.iter().map(|set| set.len()));
        let maps = MapArray::try_new(label_field(), offsets, entries, None, false)?;
        let rows = Int32Array::from(rows);
        self.push(name, Arc::new(DictionaryArray::<Int32Type>::try_new(rows, Arc::new(maps))?));
        Ok(())
    }

    /// Returns the table as an Arrow IPC stream.
    pub fn to_stream(&self) -> Result<Bytes, ArrowStreamError> {
        let fields: Vec<Field> = self.columns.iter().map(|(field, _)| field.clone()).collect();
        let schema = Arc::new(Schema::new(fields).with_metadata(self.metadata.to_entries()));
        let mut out = StreamWriter::try_new_with_options(Vec::new(), &schema, write_options()?)?;
        let arrays: Vec<ArrayRef> = self.columns.iter().map(|(_, array)| Arc::clone(array)).collect();
        let table = RecordBatch::try_new(schema, arrays)?;
        for first in (0..table.num_rows()).step_by(MAX_BATCH_ROWS) {
            out.write(&table.slice(first, MAX_BATCH_ROWS.min(table.num_rows() - first)))?;
        }
        Ok(Bytes::from(out.into_inner()?))
    }

    fn push(&mut self, name: &str, array: ArrayRef) {
        let is_nullable = array.null_count() > 0 || matches!(array.data_type(), DataType::Dictionary(..));
        self.columns.push((Field::new(name, array.data_type().clone(), is_nullable), array));
    }
}
