//! Stacks of a stream, which the batches share as a dictionary.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, ListArray, StringArray, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::ArrowError;
use athanor_profile::Dictionary;
use athanor_profile::data_model::symbols::{NO_ENTRY, StringTable};
use athanor_profile::encoding::hash::{ContentHash, PrehashedMap, hash_bytes};

use super::{frame_field, frame_fields};

/// Size of a table at which the next batch starts a new one. Readers hold two dictionaries at a time.
const MAX_TABLE_BYTES: usize = 8 << 20;
/// Memory of a frame beside its texts.
const FRAME_BYTES: usize = size_of::<StackFrame>();

/// Frame of a stack as it is shown. Empty texts and line 0 mean that they are unknown.
struct ShownFrame<'a> {
    function: &'a str,
    file: &'a str,
    binary: &'a str,
    line: i64,
}

/// Visits the frames of a stack, leaf first. Consecutive frames of one binary without symbols become one, as in trees.
fn visit_frames(dictionary: &Dictionary, stack: u32, mut each: impl FnMut(ShownFrame<'_>)) {
    let symbols = &dictionary.symbols;
    let text = |id| symbols.strings.get(id);
    let mut last_unnamed = None;
    for location in dictionary.stacks.locations(stack) {
        let binary = match symbols.locations()[location as usize].mapping {
            NO_ENTRY => "",
            mapping => text(symbols.mappings()[mapping as usize].filename),
        };
        let lines = symbols.lines(location);
        for line in lines {
            let function = symbols.functions()[line.function as usize];
            let (name, file) = (function.name, function.filename);
            each(ShownFrame { function: text(name), file: text(file), binary, line: line.line });
        }
        let unnamed = lines.is_empty().then(|| symbols.binary_name(location));
        if unnamed != last_unnamed
            && let Some(function) = &unnamed
        {
            each(ShownFrame { function, file: "", binary, line: 0 });
        }
        last_unnamed = unnamed;
    }
}

/// Returns the hash of the shown frames of a stack.
pub(super) fn frames_hash(dictionary: &Dictionary, stack: u32) -> ContentHash {
    let mut content = Vec::new();
    visit_frames(dictionary, stack, |frame| {
        for text in [frame.function, frame.file, frame.binary] {
            content.extend_from_slice(&(text.len() as u64).to_le_bytes());
            content.extend_from_slice(text.as_bytes());
        }
        content.extend_from_slice(&frame.line.to_le_bytes());
    });
    hash_bytes(&content)
}

/// Frame in a table. Texts are ids.
#[derive(Clone, Copy)]
struct StackFrame {
    function: u32,
    file: u32,
    binary: u32,
    line: i64,
}

/// Stacks by the hash of their shown frames. Stacks that differ only in addresses are one.
#[derive(Default)]
pub(super) struct StackTable {
    strings: StringTable,
    frames: Vec<StackFrame>,
    /// End of each stack in the list of frames.
    ends: Vec<i32>,
    places: PrehashedMap<ContentHash, i32>,
    /// Bytes of the texts in the dictionary of a batch, which repeats them for each frame.
    text_bytes: usize,
    /// Dictionary of the last batch. None if it lacks stacks of this table.
    array: Option<ArrayRef>,
}

impl StackTable {
    /// Returns the index of a stack by the hash of its frames, added if new.
    pub(super) fn intern(&mut self, hash: ContentHash, dictionary: &Dictionary, stack: u32) -> i32 {
        if let Some(&place) = self.places.get(&hash) {
            return place;
        }
        visit_frames(dictionary, stack, |frame| {
            self.text_bytes += frame.function.len() + frame.file.len() + frame.binary.len();
            let mut text = |text: &str| self.strings.intern(text);
            let [function, file, binary] = [text(frame.function), text(frame.file), text(frame.binary)];
            self.frames.push(StackFrame { function, file, binary, line: frame.line });
        });
        let place = self.ends.len() as i32;
        self.ends.push(self.frames.len() as i32);
        self.places.insert(hash, place);
        self.array = None;
        place
    }

    /// Returns true if the next batch needs a new table.
    pub(super) fn is_full(&self) -> bool {
        self.text_bytes + self.frames.len() * FRAME_BYTES >= MAX_TABLE_BYTES
    }

    /// Returns the dictionary of a batch. It is the one of the batch before, unless stacks were added.
    pub(super) fn share_array(&mut self) -> Result<ArrayRef, ArrowError> {
        if let Some(array) = &self.array {
            return Ok(Arc::clone(array));
        }
        let text = |id: u32| self.strings.get(id);
        let known_text = |id: u32| Some(text(id)).filter(|text| !text.is_empty());
        let frames = || self.frames.iter();
        let lines = frames().map(|frame| Some(frame.line).filter(|&line| line != 0));
        let fields: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(frames().map(|frame| text(frame.function)))),
            Arc::new(frames().map(|frame| known_text(frame.file)).collect::<StringArray>()),
            Arc::new(lines.collect::<Int64Array>()),
            Arc::new(frames().map(|frame| known_text(frame.binary)).collect::<StringArray>()),
        ];
        let frames = StructArray::try_new(frame_fields(), fields, None)?;
        let offsets: Vec<i32> = std::iter::once(0).chain(self.ends.iter().copied()).collect();
        let offsets = OffsetBuffer::new(offsets.into());
        let array: ArrayRef = Arc::new(ListArray::try_new(frame_field(), offsets, Arc::new(frames), None)?);
        self.array = Some(Arc::clone(&array));
        Ok(array)
    }
}
