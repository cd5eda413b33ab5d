//! Samples: one row for each stack of each profile.
//!
//! | column | type | content |
//! |---|---|---|
//! | `profile_id` | dictionary of utf8 | UUID of the profile, as profile id selectors take it |
//! | `time` | timestamp, nanoseconds, UTC | timestamp of the profile |
//! | `labels` | dictionary of map from utf8 to utf8 | labels of the series |
//! | `stack` | dictionary of list of frames | frames, leaf first: function, file, line, binary |
//! | `value` | int64 | sum of the samples of the row |
//! | `span_id`, `trace_id` | dictionary of utf8 | hexadecimal ids, null if the samples have none |
//! | `cursor` | dictionary of utf8 | cursor that continues after the batch of the row |
//! | `warnings` | dictionary of utf8 | warnings so far, a line for each, null if there are none |
//!
//! All indexes of dictionaries are int32.

use std::str::FromStr;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use athanor_profile::encoding::hash::ContentHash;

use crate::metadata::{StreamMetadata, UNIT_KEY};

mod batch;
pub mod reader;
pub mod sample_profile;
mod stack_table;
pub mod writer;

/// Column of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SampleColumn {
    /// UUID of the profile.
    ProfileId,
    /// Timestamp of the profile.
    Time,
    /// Labels of the series.
    Labels,
    /// Frames, leaf first.
    Stack,
    /// Sum of the samples of the row.
    Value,
    /// Id of the span.
    SpanId,
    /// Id of the trace.
    TraceId,
    /// Cursor that continues after the batch of the row.
    Cursor,
    /// Warnings so far.
    Warnings,
}

/// All columns, in the order of the schema.
const ALL_COLUMNS: [SampleColumn; 9] = [
    SampleColumn::ProfileId,
    SampleColumn::Time,
    SampleColumn::Labels,
    SampleColumn::Stack,
    SampleColumn::Value,
    SampleColumn::SpanId,
    SampleColumn::TraceId,
    SampleColumn::Cursor,
    SampleColumn::Warnings,
];

/// Error for a name that no column has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("columns has {0:?}, which is no column of samples; use {names}", names = column_names())]
pub struct UnknownColumnError(String);

/// Returns the names of all columns as a list in text.
fn column_names() -> String {
    let [first @ .., last] = ALL_COLUMNS.map(SampleColumn::name);
    format!("{} or {last}", first.join(", "))
}

impl SampleColumn {
    /// Returns the name in the schema.
    pub fn name(self) -> &'static str {
        match self {
            SampleColumn::ProfileId => "profile_id",
            SampleColumn::Time => "time",
            SampleColumn::Labels => "labels",
            SampleColumn::Stack => "stack",
            SampleColumn::Value => "value",
            SampleColumn::SpanId => "span_id",
            SampleColumn::TraceId => "trace_id",
            SampleColumn::Cursor => "cursor",
            SampleColumn::Warnings => "warnings",
        }
    }

    fn data_type(self) -> DataType {
        match self {
            SampleColumn::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            SampleColumn::Value => DataType::Int64,
            SampleColumn::Labels => dictionary_of(labels_type()),
            SampleColumn::Stack => dictionary_of(DataType::List(frame_field())),
            SampleColumn::ProfileId
            | SampleColumn::SpanId
            | SampleColumn::TraceId
            | SampleColumn::Cursor
            | SampleColumn::Warnings => dictionary_of(DataType::Utf8),
        }
    }

    fn is_nullable(self) -> bool {
        matches!(
            self,
            SampleColumn::SpanId | SampleColumn::TraceId | SampleColumn::Cursor | SampleColumn::Warnings
        )
    }

    fn field(self, unit: &str) -> Field {
        let field = Field::new(self.name(), self.data_type(), self.is_nullable());
        if self == SampleColumn::Value && !unit.is_empty() {
            return field.with_metadata([(UNIT_KEY.to_owned(), unit.to_owned())]);
        }
        field
    }
}

impl FromStr for SampleColumn {
    type Err = UnknownColumnError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = ALL_COLUMNS.into_iter().find(|column| column.name() == name);
        known.ok_or_else(|| UnknownColumnError(name.to_owned()))
    }
}

/// Columns of a stream, in the order of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleColumns(Vec<SampleColumn>);

impl Default for SampleColumns {
    /// Returns all columns.
    fn default() -> Self {
        SampleColumns(ALL_COLUMNS.to_vec())
    }
}

impl SampleColumns {
    /// Returns the columns of these names. No names mean all columns.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, UnknownColumnError> {
        let mut columns: Vec<SampleColumn> = names.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        columns.sort_unstable();
        columns.dedup();
        Ok(if columns.is_empty() { SampleColumns::default() } else { SampleColumns(columns) })
    }

    /// Returns the columns and the warnings. Without them a partial result might look complete.
    pub fn with_warnings(mut self) -> Self {
        if !self.contains(SampleColumn::Warnings) {
            // The last one in the order of the schema.
            self.0.push(SampleColumn::Warnings);
        }
        self
    }

    /// Returns the columns.
    pub fn iter(&self) -> impl Iterator<Item = SampleColumn> {
        self.0.iter().copied()
    }

    /// Returns true if the stream has the column.
    pub fn contains(&self, column: SampleColumn) -> bool {
        self.0.contains(&column)
    }

    /// Returns the schema of a stream.
    pub fn to_schema(&self, metadata: &StreamMetadata) -> SchemaRef {
        let fields: Vec<Field> = self.iter().map(|column| column.field(&metadata.unit)).collect();
        Arc::new(Schema::new(fields).with_metadata(metadata.to_entries()))
    }
}

/// Place in the order of all rows of a query: by time, then by profile id, then by stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SamplePosition {
    /// Timestamp of the last profile before the place, Unix nanoseconds.
    pub time: i64,
    /// Id of that profile.
    pub profile: ContentHash,
    /// Number of rows of that profile before the place. Zero means all of them.
    pub rows: u64,
}

fn dictionary_of(values: DataType) -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(values))
}

/// Returns the fields of a frame.
fn frame_fields() -> Fields {
    Fields::from(vec![
        Field::new("function", DataType::Utf8, false),
        Field::new("file", DataType::Utf8, true),
        Field::new("line", DataType::Int64, true),
        Field::new("binary", DataType::Utf8, true),
    ])
}

/// Returns the field of the frames in a stack.
fn frame_field() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Struct(frame_fields()), false))
}

/// Returns the fields of a label in a map.
pub(crate) fn label_fields() -> Fields {
    Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, false)])
}

/// Returns the field of the labels in a map.
pub(crate) fn label_field() -> Arc<Field> {
    Arc::new(Field::new("entries", DataType::Struct(label_fields()), false))
}

fn labels_type() -> DataType {
    DataType::Map(label_field(), false)
}

/// Returns a profile id as a UUID.
pub(crate) fn format_profile_id(id: ContentHash) -> String {
    let digits = format!("{id:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_of_the_names_in_order_of_the_schema() {
        let columns = SampleColumns::from_names(["value", "stack", "value"]).unwrap();
        assert_eq!(columns.iter().collect::<Vec<_>>(), [SampleColumn::Stack, SampleColumn::Value]);
        let expected = [SampleColumn::Stack, SampleColumn::Value, SampleColumn::Warnings];
        assert_eq!(columns.with_warnings().iter().collect::<Vec<_>>(), expected);
        assert_eq!(SampleColumns::default().with_warnings(), SampleColumns::default());
        assert_eq!(SampleColumns::from_names([]).unwrap(), SampleColumns::default());
        let refused = SampleColumns::from_names(["stacks"]).unwrap_err().to_string();
        assert!(refused.contains("\"stacks\"") && refused.contains("cursor or warnings"), "{refused}");
    }

    #[test]
    fn schema_names_units_at_the_values() {
        let metadata = StreamMetadata { unit: "bytes".to_owned(), ..StreamMetadata::default() };
        let schema = SampleColumns::default().to_schema(&metadata);
        assert_eq!(schema.field_with_name("value").unwrap().metadata()[UNIT_KEY], "bytes");
        assert_eq!(schema.metadata()[UNIT_KEY], "bytes");
        assert_eq!(schema.fields().len(), ALL_COLUMNS.len());
    }

    #[test]
    fn profile_ids_are_uuids() {
        let id = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
        assert_eq!(format_profile_id(id), "01234567-89ab-cdef-0011-223344556677");
    }
}
