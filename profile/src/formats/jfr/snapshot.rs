//! Labels snapshot that a profiler sends beside a recording. Events refer to its labels by number:
//! `LabelsSnapshot{map<int64, Context> contexts = 1; map<int64, string> strings = 2}`, and
//! `Context{map<int64, int64> labels = 1}`.

use super::JfrError;
use super::input::MAX_TEXT_LENGTH;
use crate::encoding::hash::SeededMap;
use crate::formats::pprof::wire::{WireCursor, WireValue};
use crate::formats::pprof::{DecodeError, check_limit};

/// Limit on the entries of all maps.
const MAX_ENTRIES: usize = 1 << 18;
/// Limit on the labels of one context, equal to that of a pprof sample.
const MAX_LABELS_PER_CONTEXT: usize = 1_000;

/// Labels by context, and texts by number.
#[derive(Debug, Default)]
pub struct LabelsSnapshot<'a> {
    /// Begin and end of each context's labels.
    contexts: SeededMap<u64, (u32, u32)>,
    /// Indexes of the texts of each label's name and value; `None` if either is missing.
    labels: Vec<Option<(u32, u32)>>,
    texts: Vec<&'a [u8]>,
    /// Index of each text by its number.
    places: SeededMap<u64, u32>,
}

impl<'a> LabelsSnapshot<'a> {
    /// Parses the protobuf message.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, JfrError> {
        let mut snapshot = LabelsSnapshot::default();
        let labels = snapshot.read(bytes).map_err(|error| match error {
            DecodeError::OverLimit { what, seen, limit } => JfrError::LabelsOverLimit { what, seen, limit },
            DecodeError::Truncated { at, .. } => JfrError::Labels { at, why: "truncated data" },
            DecodeError::Malformed { at, why } => JfrError::Labels { at, why },
            _ => JfrError::Labels { at: 0, why: "not a labels message" },
        })?;
        let place = |id: &u64| snapshot.text_index(*id);
        let pairs = labels.iter().map(|(name, value)| Some((place(name)?, place(value)?)));
        snapshot.labels = pairs.collect();
        Ok(snapshot)
    }

    /// Reads contexts and texts. Returns the labels as numbers of texts, because texts may follow the
    /// contexts that use them.
    fn read(&mut self, bytes: &'a [u8]) -> Result<Vec<(u64, u64)>, DecodeError> {
        let mut cursor = WireCursor::new(bytes);
        let mut labels = Vec::new();
        while !cursor.is_done() {
            let (field, value) = cursor.field("labels")?;
            let WireValue::Bytes(start, end) = value else { continue };
            let (key, value) = read_map_entry(cursor.range(start, end))?;
            match (field, value) {
                (1, WireValue::Bytes(start, end)) => {
                    let from = labels.len();
                    context(cursor.range(start, end), &mut labels)?;
                    self.contexts.insert(key, (from as u32, labels.len() as u32));
                }
                // A context without labels may omit its message.
                (1, _) => drop(self.contexts.insert(key, (0, 0))),
                (2, WireValue::Bytes(start, end)) => {
                    check_limit("bytes in one text", end - start, MAX_TEXT_LENGTH)?;
                    self.places.insert(key, self.texts.len() as u32);
                    self.texts.push(&bytes[start..end]);
                }
                _ => {}
            }
            check_limit("contexts and texts", self.contexts.len() + self.texts.len(), MAX_ENTRIES)?;
        }
        Ok(labels)
    }

    /// Returns the labels of a context as indexes of texts. Labels without name or value are omitted.
    pub(super) fn labels(&self, context: u64) -> impl Iterator<Item = (u32, u32)> {
        let (from, to) = self.contexts.get(&context).copied().unwrap_or_default();
        self.labels[from as usize..to as usize].iter().flatten().copied()
    }

    /// Returns the index of a text by its number; `None` if the text is missing or empty.
    pub(super) fn text_index(&self, id: u64) -> Option<u32> {
        self.places.get(&id).copied().filter(|&place| !self.text(place).is_empty())
    }

    /// Returns the text at an index.
    pub(super) fn text(&self, place: u32) -> &'a [u8] {
        self.texts[place as usize]
    }

    /// Returns the number of texts.
    pub(super) fn text_count(&self) -> usize {
        self.texts.len()
    }
}

/// Reads the labels of one context.
fn context(mut cursor: WireCursor<'_>, labels: &mut Vec<(u64, u64)>) -> Result<(), DecodeError> {
    let from = labels.len();
    while !cursor.is_done() {
        let (field, value) = cursor.field("labels")?;
        let (1, WireValue::Bytes(start, end)) = (field, value) else { continue };
        let (key, value) = read_map_entry(cursor.range(start, end))?;
        let WireValue::Varint(value) = value else { continue };
        labels.push((key, value));
        check_limit("labels of one context", labels.len() - from, MAX_LABELS_PER_CONTEXT)?;
        check_limit("labels of all contexts", labels.len(), MAX_ENTRIES)?;
    }
    Ok(())
}

/// Reads the key and value of a map entry; either defaults to 0.
fn read_map_entry(mut cursor: WireCursor<'_>) -> Result<(u64, WireValue), DecodeError> {
    let mut key = 0;
    let mut content = WireValue::Varint(0);
    while !cursor.is_done() {
        match cursor.field("labels")? {
            (1, WireValue::Varint(number)) => key = number,
            (2, value) => content = value,
            _ => {}
        }
    }
    Ok((key, content))
}
