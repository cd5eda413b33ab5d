//! Tables as CSV: a header, then a line for each row. Null is an empty cell.

use std::io::Write;

use arrow_array::{
    Array, ArrayRef, DurationNanosecondArray, Float64Array, Int64Array, ListArray, MapArray, RecordBatch,
    StringArray, StructArray, TimestampNanosecondArray,
};
use arrow_schema::{DataType, Schema, TimeUnit};

use super::write_failure;
use crate::ArrowStreamError;
use crate::shared_column::SharedColumn;

/// Writer of CSV.
pub(super) struct CsvWriter<W> {
    out: W,
}

impl<W: Write> CsvWriter<W> {
    /// Creates a writer, which has written the header.
    pub(super) fn new(mut out: W, schema: &Schema) -> Result<Self, ArrowStreamError> {
        let mut line = String::new();
        for (number, field) in schema.fields().iter().enumerate() {
            push_cell(&mut line, number, field.name());
        }
        line.push('\n');
        out.write_all(line.as_bytes()).map_err(write_failure)?;
        Ok(CsvWriter { out })
    }

    /// Writes the rows of a batch.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowStreamError> {
        let schema = batch.schema_ref();
        let columns = schema.fields().iter().zip(batch.columns());
        let mut columns: Vec<CellColumn<'_>> =
            columns.map(|(field, column)| CellColumn::new(field.name(), column)).collect::<Result<_, _>>()?;
        let mut line = String::new();
        for row in 0..batch.num_rows() {
            line.clear();
            for (number, column) in columns.iter_mut().enumerate() {
                push_cell(&mut line, number, column.text(row));
            }
            line.push('\n');
            self.out.write_all(line.as_bytes()).map_err(write_failure)?;
        }
        Ok(())
    }

    pub(super) fn into_inner(self) -> W {
        self.out
    }
}

/// Appends a cell to a line, quoted if it needs to be.
fn push_cell(line: &mut String, number: usize, text: &str) {
    if number > 0 {
        line.push(',');
    }
    if !text.contains([',', '"', '\n', '\r']) {
        line.push_str(text);
        return;
    }
    line.push('"');
    line.push_str(&text.replace('"', "\"\""));
    line.push('"');
}

/// Column with the texts of its values. A value that rows share is formatted once.
struct CellColumn<'a> {
    rows: SharedColumn<'a>,
    values: CellValues<'a>,
    texts: Vec<Option<String>>,
}

impl<'a> CellColumn<'a> {
    fn new(name: &str, column: &'a ArrayRef) -> Result<Self, ArrowStreamError> {
        let rows = SharedColumn::new(column);
        let values = CellValues::new(rows.values()).ok_or_else(|| ArrowStreamError::CsvType {
            name: name.to_owned(),
            found: column.data_type().to_string(),
        })?;
        Ok(CellColumn { rows, values, texts: vec![None; rows.values().len()] })
    }

    fn text(&mut self, row: usize) -> &str {
        let Some(index) = self.rows.value_index(row) else { return "" };
        let values = &self.values;
        self.texts.get_mut(index).map_or("", |text| text.get_or_insert_with(|| values.format(index)))
    }
}

/// Values of a column, by type.
enum CellValues<'a> {
    Text(&'a StringArray),
    Integer(&'a Int64Array),
    Number(&'a Float64Array),
    Time(&'a TimestampNanosecondArray),
    Duration(&'a DurationNanosecondArray),
    Labels(LabelTexts<'a>),
    Stack(&'a ListArray, &'a StringArray),
}

/// Names and values of label sets.
struct LabelTexts<'a> {
    sets: &'a MapArray,
    names: &'a StringArray,
    values: &'a StringArray,
}

impl<'a> CellValues<'a> {
    fn new(values: &'a ArrayRef) -> Option<Self> {
        let any = values.as_any();
        match values.data_type() {
            DataType::Utf8 => any.downcast_ref().map(CellValues::Text),
            DataType::Int64 => any.downcast_ref().map(CellValues::Integer),
            DataType::Float64 => any.downcast_ref().map(CellValues::Number),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => any.downcast_ref().map(CellValues::Time),
            DataType::Duration(TimeUnit::Nanosecond) => any.downcast_ref().map(CellValues::Duration),
            DataType::Map(..) => {
                let sets: &MapArray = any.downcast_ref()?;
                let names = sets.keys().as_any().downcast_ref()?;
                let values = sets.values().as_any().downcast_ref()?;
                Some(CellValues::Labels(LabelTexts { sets, names, values }))
            }
            DataType::List(_) => {
                let stacks: &ListArray = any.downcast_ref()?;
                let frames: &StructArray = stacks.values().as_any().downcast_ref()?;
                let functions = frames.column_by_name("function")?.as_any().downcast_ref()?;
                Some(CellValues::Stack(stacks, functions))
            }
            _ => None,
        }
    }

    /// Returns the text of a value: numbers in digits, times in RFC 3339, durations in nanoseconds, labels as a JSON
    /// object, stacks as functions from the root.
    fn format(&self, index: usize) -> String {
        match self {
            CellValues::Text(texts) => texts.value(index).to_owned(),
            CellValues::Integer(values) => values.value(index).to_string(),
            CellValues::Number(values) => values.value(index).to_string(),
            CellValues::Duration(values) => values.value(index).to_string(),
            CellValues::Time(times) => match times.value_as_datetime(index) {
                Some(time) => format!("{time:?}Z"),
                None => times.value(index).to_string(),
            },
            CellValues::Labels(LabelTexts { sets, names, values }) => {
                let entries = entry_range(sets.value_offsets(), index);
                let pair = |entry| (names.value(entry).to_owned(), values.value(entry).into());
                serde_json::Value::Object(entries.map(pair).collect()).to_string()
            }
            CellValues::Stack(stacks, functions) => {
                let frames = entry_range(stacks.value_offsets(), index).rev();
                let names = frames.map(|frame| functions.value(frame).replace(';', ":"));
                names.collect::<Vec<_>>().join(";")
            }
        }
    }
}

fn entry_range(offsets: &[i32], index: usize) -> std::ops::Range<usize> {
    offsets[index] as usize..offsets[index + 1] as usize
}
