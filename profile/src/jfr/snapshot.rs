//! The labels that a profiler sends beside a recording, in which events only name them by a number:
//! `LabelsSnapshot{map<int64, Context> contexts = 1; map<int64, string> strings = 2}`, and
//! `Context{map<int64, int64> labels = 1}`.

use super::JfrError;
use crate::hash::HashedMap;
use crate::pprof::DecodeError;
use crate::pprof::wire::{Cursor, Value};

/// The most entries of all maps.
const ENTRIES: usize = 1 << 18;

/// Labels by context, texts by number.
#[derive(Debug, Default)]
pub struct Snapshot<'a> {
    /// Where the labels of each context begin and end.
    contexts: HashedMap<u64, (u32, u32)>,
    labels: Vec<(u64, u64)>,
    texts: HashedMap<u64, &'a [u8]>,
}

impl<'a> Snapshot<'a> {
    /// Reads the message.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, JfrError> {
        let mut snapshot = Snapshot::default();
        snapshot.read(bytes).map_err(|error| match error {
            DecodeError::OverLimit { what, seen, limit } => JfrError::OverLimit { what, seen, limit },
            DecodeError::Truncated { at, .. } => JfrError::Labels { at, why: "they are cut off" },
            DecodeError::Malformed { at, why } => JfrError::Labels { at, why },
            _ => JfrError::Labels { at: 0, why: "no such message" },
        })?;
        Ok(snapshot)
    }

    fn read(&mut self, bytes: &'a [u8]) -> Result<(), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        while !cursor.is_done() {
            let (field, value) = cursor.field("labels")?;
            let Value::Bytes(start, end) = value else { continue };
            let (key, value) = entry(cursor.range(start, end))?;
            match (field, value) {
                (1, Value::Bytes(start, end)) => {
                    let from = self.labels.len();
                    self.context(cursor.range(start, end))?;
                    self.contexts.insert(key, (from as u32, self.labels.len() as u32));
                }
                // A context of no labels may leave its message out.
                (1, _) => drop(self.contexts.insert(key, (0, 0))),
                (2, Value::Bytes(start, end)) => drop(self.texts.insert(key, &bytes[start..end])),
                _ => {}
            }
            within(self.contexts.len() + self.texts.len())?;
        }
        Ok(())
    }

    fn context(&mut self, mut cursor: Cursor<'_>) -> Result<(), DecodeError> {
        while !cursor.is_done() {
            let (field, value) = cursor.field("labels")?;
            let (1, Value::Bytes(start, end)) = (field, value) else { continue };
            let (key, value) = entry(cursor.range(start, end))?;
            let Value::Varint(value) = value else { continue };
            self.labels.push((key, value));
            within(self.labels.len())?;
        }
        Ok(())
    }

    /// Names and values of a context's labels, without those that have no name.
    pub(super) fn labels(&self, context: u64) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let (from, to) = self.contexts.get(&context).copied().unwrap_or_default();
        let labels = self.labels[from as usize..to as usize].iter();
        labels.filter_map(|(name, value)| Some((self.text(*name)?, self.text(*value)?)))
    }

    /// A text, if there is one and it says something.
    pub(super) fn text(&self, id: u64) -> Option<&'a [u8]> {
        self.texts.get(&id).copied().filter(|text| !text.is_empty())
    }
}

/// Key and value of a map's entry; each is 0 where it is left out.
fn entry(mut cursor: Cursor<'_>) -> Result<(u64, Value), DecodeError> {
    let (mut key, mut content) = (0, Value::Varint(0));
    while !cursor.is_done() {
        match cursor.field("labels")? {
            (1, Value::Varint(number)) => key = number,
            (2, value) => content = value,
            _ => {}
        }
    }
    Ok((key, content))
}

fn within(seen: usize) -> Result<(), DecodeError> {
    if seen > ENTRIES {
        return Err(DecodeError::OverLimit { what: "labels", seen, limit: ENTRIES });
    }
    Ok(())
}
