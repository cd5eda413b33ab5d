//! Column of texts with a dictionary for each batch.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, StringArray};
use arrow_schema::ArrowError;
use athanor_profile::encoding::hash::{ContentHash, PrehashedMap, hash_bytes};

/// Texts of the rows of a batch. Each different text is stored once.
#[derive(Default)]
pub(crate) struct TextColumn {
    texts: Vec<String>,
    places: PrehashedMap<ContentHash, i32>,
    rows: Vec<Option<i32>>,
}

impl TextColumn {
    /// Appends rows with one text.
    pub(crate) fn push_text(&mut self, text: &str, rows: usize) {
        let next = self.texts.len() as i32;
        let texts = &mut self.texts;
        let place = *self.places.entry(hash_bytes(text.as_bytes())).or_insert_with(|| {
            texts.push(text.to_owned());
            next
        });
        self.rows.extend(std::iter::repeat_n(Some(place), rows));
    }

    /// Appends rows without a text.
    pub(crate) fn push_nulls(&mut self, rows: usize) {
        self.rows.extend(std::iter::repeat_n(None, rows));
    }

    /// Returns the array of all rows.
    pub(crate) fn into_array(self) -> Result<ArrayRef, ArrowError> {
        let values = StringArray::from_iter_values(self.texts);
        let keys = Int32Array::from(self.rows);
        Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(keys, Arc::new(values))?))
    }
}
