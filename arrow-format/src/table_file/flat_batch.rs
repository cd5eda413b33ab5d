//! Batches without dictionaries of lists and maps, which Parquet cannot hold.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use arrow_select::take::take;

use crate::shared_column::SharedColumn;

/// Returns the schema of flat batches.
pub(super) fn flat_schema(schema: &Schema) -> SchemaRef {
    let flat = |field: &Arc<Field>| match nested_values(field.data_type()) {
        Some(values) => Arc::new(field.as_ref().clone().with_data_type(values.clone())),
        None => Arc::clone(field),
    };
    let fields: Vec<Arc<Field>> = schema.fields().iter().map(flat).collect();
    Arc::new(Schema::new(fields).with_metadata(schema.metadata().clone()))
}

/// Returns a batch whose rows have their own lists and maps.
pub(super) fn flatten(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let flat = |column: &ArrayRef| {
        if nested_values(column.data_type()).is_none() {
            return Ok(Arc::clone(column));
        }
        let column = SharedColumn::new(column);
        match column.keys() {
            Some(keys) => take(column.values(), keys, None),
            None => Err(ArrowError::CastError("dictionary has no int32 keys".to_owned())),
        }
    };
    let columns = batch.columns().iter().map(flat).collect::<Result<_, _>>()?;
    RecordBatch::try_new(flat_schema(batch.schema_ref()), columns)
}

/// Returns the type of the values of a dictionary of lists or maps.
fn nested_values(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::Dictionary(_, values) if values.is_nested() => Some(values),
        _ => None,
    }
}
