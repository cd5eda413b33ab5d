//! Column of a batch whose rows share values through a dictionary. A file may also store a value for each row.

use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int32Array};

/// Values of a column, and the value of each row.
#[derive(Clone, Copy)]
pub(crate) struct SharedColumn<'a> {
    rows: &'a ArrayRef,
    keys: Option<&'a DictionaryArray<Int32Type>>,
}

impl<'a> SharedColumn<'a> {
    /// Creates the view of a column.
    pub(crate) fn new(rows: &'a ArrayRef) -> Self {
        SharedColumn { rows, keys: rows.as_any().downcast_ref() }
    }

    /// Returns the values that rows refer to.
    pub(crate) fn values(&self) -> &'a ArrayRef {
        self.keys.map_or(self.rows, DictionaryArray::values)
    }

    /// Returns the indexes of the values of all rows. None if each row has its own value.
    pub(crate) fn keys(&self) -> Option<&'a Int32Array> {
        self.keys.map(DictionaryArray::keys)
    }

    /// Returns the index of a row's value. None if the value is null.
    pub(crate) fn value_index(&self, row: usize) -> Option<usize> {
        let index = match self.keys {
            Some(keys) => keys.key(row),
            None => Some(row),
        };
        index.filter(|&index| !self.values().is_null(index))
    }
}
