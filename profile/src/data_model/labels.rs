//! Labels of series (sorted text pairs) and of samples (a text, or a number with a unit, as in pprof).

use std::fmt;
use std::sync::Arc;

use crate::data_model::symbols::StringTable;
use crate::encoding::hash::{self, ContentHash, PrehashedMap, allocation_bytes, vec_memory};

/// Labels of a series: sorted by name, each name once. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Arc<Vec<(String, String)>>);

impl Labels {
    /// Creates sorted labels. The last of several equal names wins. Empty values are dropped.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut labels = Labels::default();
        for (name, value) in pairs {
            labels.set(&name, &value);
        }
        labels
    }
    /// Returns whether another clone shares the memory.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
    /// Returns whether both share the same memory.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
    /// Returns the value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|pair| pair.0.as_str().cmp(name)).ok()?;
        Some(&self.0[at].1)
    }
    /// Sets the value of a label; an empty value removes the label.
    pub fn set(&mut self, name: &str, value: &str) {
        let place = self.0.binary_search_by(|pair| pair.0.as_str().cmp(name));
        if place.is_err() && value.is_empty() {
            return;
        }
        let pairs = Arc::make_mut(&mut self.0);
        match place {
            Ok(at) if value.is_empty() => drop(pairs.remove(at)),
            Ok(at) => value.clone_into(&mut pairs[at].1),
            Err(at) => pairs.insert(at, (name.to_owned(), value.to_owned())),
        }
    }
    /// Returns an iterator over names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
    /// Returns the total length of all names and values in bytes.
    pub fn text_bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
    /// Returns the allocated memory in bytes, as if no clone shared it.
    pub fn memory(&self) -> usize {
        let texts = self.0.iter().flat_map(|(name, value)| [name, value]);
        let texts: usize = texts.map(|text| allocation_bytes(text.capacity())).sum();
        let list = allocation_bytes(vec_memory(&self.0));
        // The shared allocation holds two reference counters and the list itself.
        allocation_bytes(2 * size_of::<usize>() + size_of_val(&*self.0)) + list + texts
    }
    /// Returns the number of labels.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Returns whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Returns the content hash. Lengths are hashed too, so that different sets never have equal input.
    pub fn hash(&self) -> ContentHash {
        let mut content = Vec::with_capacity(64);
        for (name, value) in self.iter() {
            for text in [name, value] {
                content.extend_from_slice(&(text.len() as u64).to_le_bytes());
                content.extend_from_slice(text.as_bytes());
            }
        }
        hash::hash_bytes(&content)
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("{")?;
        for (at, (name, value)) in self.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(out, "{comma}{name}={value:?}")?;
        }
        out.write_str("}")
    }
}

/// Reason why a label was rejected.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LabelError {
    /// The text has no equals sign.
    #[error("label {text:?} has no '='; write name=value")]
    NoEquals {
        /// Rejected text.
        text: String,
    },
    /// The name is not a valid label name.
    #[error("label name {name:?} is not valid; use letters, digits and _ and start with no digit")]
    BadName {
        /// Rejected name.
        name: String,
    },
}

/// Parses `name=value`, without surrounding white space.
pub fn parse_label(text: &str) -> Result<(String, String), LabelError> {
    let (name, value) = text.split_once('=').ok_or_else(|| LabelError::NoEquals { text: text.into() })?;
    let name = name.trim();
    if !is_label_name(name) {
        return Err(LabelError::BadName { name: name.into() });
    }
    Ok((name.to_owned(), value.trim().to_owned()))
}

/// Returns whether the text is a label name: letters, digits, `_`, `.`, `-`. The first character is no digit,
/// `.` or `-`.
pub fn is_label_name(name: &str) -> bool {
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    starts && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

/// Label of a sample: a text if `text` is not 0, otherwise a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleLabel {
    /// String id of the name.
    pub key: u32,
    /// String id of the value; 0 if the value is a number.
    pub text: u32,
    /// Value as a number.
    pub number: i64,
    /// String id of the unit.
    pub unit: u32,
}

/// Interned sets of sample labels; id 0 is the empty set.
#[derive(Clone, Debug)]
pub struct LabelSets {
    labels: Vec<SampleLabel>,
    ends: Vec<usize>,
    hashes: Vec<ContentHash>,
    ids: PrehashedMap<ContentHash, u32>,
}

impl Default for LabelSets {
    fn default() -> Self {
        let mut sets = LabelSets {
            labels: Vec::new(),
            ends: Vec::new(),
            hashes: Vec::new(),
            ids: PrehashedMap::default(),
        };
        sets.intern(&StringTable::default(), &[]);
        sets
    }
}

/// Returns the hash of one label, computed from the hashes of its texts.
pub fn sample_label_hash(key: ContentHash, text: ContentHash, number: i64, unit: ContentHash) -> ContentHash {
    hash::hash_list(&[key, text, number as u128, unit])
}

impl LabelSets {
    /// Returns the allocated memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        let sets = vec_memory(&self.labels) + vec_memory(&self.ends);
        sets + vec_memory(&self.hashes) + self.ids.allocation_size()
    }
    /// Interns a set of labels in any order and returns its id.
    pub fn intern(&mut self, strings: &StringTable, labels: &[SampleLabel]) -> u32 {
        let hash = labels.iter().fold(0u128, |sum, label| {
            let key = strings.hash(label.key);
            let text = strings.hash(label.text);
            sum.wrapping_add(sample_label_hash(key, text, label.number, strings.hash(label.unit)))
        });
        *self.ids.entry(hash).or_insert_with(|| {
            let start = self.labels.len();
            self.labels.extend_from_slice(labels);
            self.labels[start..].sort_by(|a, b| {
                let by_key = strings.get(a.key).cmp(strings.get(b.key));
                let by_text = by_key.then_with(|| strings.get(a.text).cmp(strings.get(b.text)));
                by_text.then(a.number.cmp(&b.number))
            });
            self.ends.push(self.labels.len());
            self.hashes.push(hash);
            self.ends.len() as u32 - 1
        })
    }
    /// Returns the id of a set by its hash: the sum of [`sample_label_hash`] over its labels.
    pub fn find(&self, hash: ContentHash) -> Option<u32> {
        self.ids.get(&hash).copied()
    }
    /// Returns the labels of a set, sorted by name.
    pub fn get(&self, id: u32) -> &[SampleLabel] {
        let id = id as usize;
        &self.labels[if id == 0 { 0 } else { self.ends[id - 1] }..self.ends[id]]
    }
    /// Returns the content hash of a set.
    pub fn hash(&self, id: u32) -> ContentHash {
        self.hashes[id as usize]
    }
    /// Returns the number of sets, the empty set included.
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    /// Always returns false, because the empty set is always present.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_all_that_was_allocated() {
        let labels = Labels::new((0..5).map(|n| (format!("name{n}"), "x".repeat(40 * n))));
        // One is empty: it is dropped.
        assert_eq!(labels.len(), 4);
        let list = labels.0.capacity() * size_of::<(String, String)>();
        let texts: usize = labels.0.iter().map(|(name, value)| name.capacity() + value.capacity()).sum();
        let counted = size_of_val(&*labels.0) + 2 * size_of::<usize>() + list + texts;
        // The list, what holds it, and eight texts; no allocation is less than four words, nor has more than that beside it.
        let (most, seen) = (counted + 10 * 4 * size_of::<usize>(), labels.memory());
        assert!(counted < seen && seen <= most, "{counted} {seen} {most}");
    }
}
