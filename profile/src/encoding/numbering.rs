//! Numbering of a file's table entries, in the order of their first use.

use std::collections::BTreeMap;

use crate::encoding::hash::PrehashedMap;

/// Entries of a dictionary, numbered from 1.
#[derive(Default)]
pub(crate) struct EntryNumbering {
    ids: PrehashedMap<u32, u64>,
    /// Ids that have a number, in the order of their numbers.
    pub(crate) order: Vec<u32>,
}

impl EntryNumbering {
    pub(crate) fn assign_number(&mut self, id: u32) -> u64 {
        *self.ids.entry(id).or_insert_with(|| {
            self.order.push(id);
            self.order.len() as u64
        })
    }
}

/// Texts, numbered from 0; number 0 is the empty text.
pub(crate) struct TextNumbering {
    ids: BTreeMap<String, u64>,
    order: Vec<String>,
}

impl Default for TextNumbering {
    fn default() -> Self {
        let mut texts = Self { ids: BTreeMap::new(), order: Vec::new() };
        texts.assign_number("");
        texts
    }
}

impl TextNumbering {
    pub(crate) fn assign_number(&mut self, text: &str) -> u64 {
        if let Some(&number) = self.ids.get(text) {
            return number;
        }
        let number = self.order.len() as u64;
        self.order.push(text.to_owned());
        self.ids.insert(text.to_owned(), number);
        number
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.order.iter().map(String::as_str)
    }
}
