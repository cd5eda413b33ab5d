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
pub(super) const MAX_TABLE_BYTES: usize = 8 << 20;
/// Memory of a frame beside its texts.
const FRAME_BYTES: usize = size_of::<StackFrame>();

/// Text of a frame.
#[derive(Clone, Copy)]
enum FrameText<'a> {
    /// String of the dictionary.
    Interned(u32),
    /// Name of a binary without symbols.
    Made(&'a str),
}

/// Frame of a stack as it is shown. Empty texts and line 0 mean that they are unknown.
struct ShownFrame<'a> {
    function: FrameText<'a>,
    file: FrameText<'a>,
    binary: FrameText<'a>,
    line: i64,
}

/// Visits the frames of a stack, leaf first. Consecutive frames of one binary without symbols become one, as in trees.
fn visit_frames(dictionary: &Dictionary, stack: u32, mut each: impl FnMut(ShownFrame<'_>)) {
    const NO_TEXT: FrameText<'static> = FrameText::Made("");
    let symbols = &dictionary.symbols;
    let mut last_unnamed = None;
    for location in dictionary.stacks.locations(stack) {
        let binary = match symbols.locations()[location as usize].mapping {
            NO_ENTRY => NO_TEXT,
            mapping => FrameText::Interned(symbols.mappings()[mapping as usize].filename),
        };
        let lines = symbols.lines(location);
        for line in lines {
            let function = symbols.functions()[line.function as usize];
            let function_text = FrameText::Interned(function.name);
            let file = FrameText::Interned(function.filename);
            each(ShownFrame { function: function_text, file, binary, line: line.line });
        }
        let unnamed = lines.is_empty().then(|| symbols.binary_name(location));
        if unnamed != last_unnamed
            && let Some(function) = &unnamed
        {
            each(ShownFrame { function: FrameText::Made(function), file: NO_TEXT, binary, line: 0 });
        }
        last_unnamed = unnamed;
    }
}

/// Identity and size of a stack as it is shown.
#[derive(Clone, Copy)]
pub(super) struct ShownStack {
    /// Hash of the shown frames.
    pub(super) hash: ContentHash,
    /// Bytes in a table.
    pub(super) bytes: usize,
}

/// Hashes of the strings of a dictionary. A string is hashed once, however many frames have it.
#[derive(Default)]
pub(super) struct TextHashes {
    by_id: Vec<Option<ContentHash>>,
    /// Hashed content of the last stack.
    content: Vec<u8>,
}

impl TextHashes {
    fn hash(&mut self, dictionary: &Dictionary, text: FrameText<'_>) -> ContentHash {
        let id = match text {
            FrameText::Made(text) => return hash_bytes(text.as_bytes()),
            FrameText::Interned(id) => id,
        };
        let index = id as usize;
        if index >= self.by_id.len() {
            self.by_id.resize(dictionary.symbols.strings.len().max(index + 1), None);
        }
        *self.by_id[index].get_or_insert_with(|| hash_bytes(dictionary.symbols.strings.get(id).as_bytes()))
    }

    /// Returns hash and size of a stack.
    pub(super) fn measure(&mut self, dictionary: &Dictionary, stack: u32) -> ShownStack {
        let mut content = std::mem::take(&mut self.content);
        content.clear();
        let mut bytes = 0;
        visit_frames(dictionary, stack, |frame| {
            bytes += FRAME_BYTES;
            for text in [frame.function, frame.file, frame.binary] {
                bytes += text_of(dictionary, text).len();
                content.extend_from_slice(&self.hash(dictionary, text).to_le_bytes());
            }
            content.extend_from_slice(&frame.line.to_le_bytes());
        });
        let hash = hash_bytes(&content);
        self.content = content;
        ShownStack { hash, bytes }
    }
}

fn text_of<'a>(dictionary: &'a Dictionary, text: FrameText<'a>) -> &'a str {
    match text {
        FrameText::Interned(id) => dictionary.symbols.strings.get(id),
        FrameText::Made(text) => text,
    }
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
            let mut text = |text| {
                let text = text_of(dictionary, text);
                self.text_bytes += text.len();
                self.strings.intern(text)
            };
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
