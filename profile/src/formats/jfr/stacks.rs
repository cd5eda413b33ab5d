//! Stacks of all chunks, deduplicated by content, because each chunk has its own numbering.

use std::borrow::Cow;

use super::chunk::JfrChunk;
use super::decode_plan::{DecodePlan, SLOT_COUNT};
use super::input::EncodedText;
use super::metadata::JfrTypeTable;
use super::pools::ConstantPoolKind;
use super::stable_names::stable_name;
use super::{
    FRAMES_LIMIT_NAME, JfrError, JfrLimits, LINES_LIMIT_NAME, NAMES_LIMIT_NAME, READ_BYTES_LIMIT_NAME,
    check_limit,
};
use crate::data_model::symbols::StringTable;
use crate::encoding::hash::{self, ContentHash, PrehashedMap, SeededMap};

/// Factor of the limit on bytes of texts read, relative to the limit on the recording's bytes.
const MAX_READ_FACTOR: usize = 4;

/// Functions, locations and stacks of a recording.
#[derive(Default)]
pub(super) struct JfrStacks {
    /// Names of functions; the empty name means none.
    pub(super) functions: StringTable,
    /// Function and line of each location.
    pub(super) locations: Vec<(u32, u32)>,
    location_ids: SeededMap<u64, u32>,
    frames: Vec<u32>,
    /// Begin and end of each stack's frames.
    ranges: Vec<(u32, u32)>,
    ids: PrehashedMap<ContentHash, u32>,
    recent: JfrFrameCache,
    /// Buffer for composing function names.
    name: String,
    /// Bytes of texts read so far, duplicates included.
    read: usize,
}

impl JfrStacks {
    /// Returns the locations of a stack, leaf first.
    pub(super) fn locations(&self, stack: u32) -> &[u32] {
        let (from, to) = self.ranges[stack as usize];
        &self.frames[from as usize..to as usize]
    }

    fn intern_location(&mut self, function: u32, line: u32, limits: &JfrLimits) -> Result<u32, JfrError> {
        let seen = self.locations.len() + 1;
        let id = *self.location_ids.entry(u64::from(function) << 32 | u64::from(line)).or_insert_with(|| {
            self.locations.push((function, line));
            seen as u32 - 1
        });
        check_limit(LINES_LIMIT_NAME, self.locations.len(), limits.constants).map(|()| id)
    }

    /// Counts bytes of texts. Events share constants, so the texts may have far more bytes than the
    /// recording.
    pub(super) fn count_read(&mut self, bytes: usize, limits: &JfrLimits) -> Result<(), JfrError> {
        self.read = self.read.saturating_add(bytes);
        check_limit(READ_BYTES_LIMIT_NAME, self.read, limits.bytes.saturating_mul(MAX_READ_FACTOR))
    }

    /// Interns the stack of all frames from `start` on. Returns `None` if there is no frame.
    fn finish(&mut self, start: usize) -> Option<u32> {
        let end = self.frames.len();
        if start == end {
            return None;
        }
        let hash = hash::hash_bytes(bytemuck::cast_slice(&self.frames[start..]));
        let new = self.ranges.len() as u32;
        let id = *self.ids.entry(hash).or_insert(new);
        if id == new {
            self.ranges.push((start as u32, end as u32));
        } else {
            self.frames.truncate(start);
        }
        Some(id)
    }
}

/// Direct-mapped cache of recently found frames. Most frames recur soon and then need no map lookup.
#[derive(Default)]
struct JfrFrameCache {
    frames: Vec<CachedJfrFrame>,
    /// Number of chunks so far, because each chunk has its own numbering of methods.
    chunk: u32,
}

#[derive(Clone, Copy, Default)]
struct CachedJfrFrame {
    method: u64,
    line: u32,
    /// Chunk of the entry; 0 marks an empty entry.
    chunk: u32,
    location: u32,
}

/// Base-2 logarithm of the cache's number of entries.
const FRAME_CACHE_BITS: u32 = 12;

impl JfrFrameCache {
    fn begin_chunk(&mut self) {
        self.frames.resize(1 << FRAME_CACHE_BITS, CachedJfrFrame::default());
        self.chunk += 1;
    }

    #[inline(always)]
    fn place(method: u64, line: u32) -> usize {
        let mixed = (method << 16 ^ u64::from(line)).wrapping_mul(hash::HASH_FACTOR);
        (mixed >> (u64::BITS - FRAME_CACHE_BITS)) as usize
    }

    #[inline(always)]
    fn location(&self, method: u64, line: u32) -> Option<u32> {
        let found = self.frames[Self::place(method, line)];
        let is_it = found.chunk == self.chunk && found.method == method && found.line == line;
        is_it.then_some(found.location)
    }

    fn put(&mut self, method: u64, line: u32, location: u32) {
        self.frames[Self::place(method, line)] = CachedJfrFrame { method, line, chunk: self.chunk, location };
    }
}

/// Decode plans of the constants that stacks consist of.
struct StackDecodePlans {
    /// Plan of the fields before the frames of a stack.
    before_frames: DecodePlan,
    frame: DecodePlan,
    method: DecodePlan,
    class: DecodePlan,
}

const LINE_SLOT: usize = 2;

impl StackDecodePlans {
    /// Returns the plans of a chunk; `None` if its stacks are missing or have an unknown layout.
    fn from_types(types: &JfrTypeTable<'_>) -> Option<Self> {
        let stack = types.find_class(ConstantPoolKind::Stack.type_name())?;
        let frames = stack.fields.iter().position(|field| types.field_name(field) == "frames")?;
        let frame = Some(stack.fields[frames]).filter(|field| field.array && !field.constant)?.class;
        let plan = |pool: ConstantPoolKind, wanted| {
            DecodePlan::for_class(types, types.find_class(pool.type_name())?, wanted)
        };
        Some(StackDecodePlans {
            before_frames: DecodePlan::for_fields(types, stack, 0..frames, &[])?,
            frame: DecodePlan::for_class(types, types.class_by_id(frame)?, &["method", "lineNumber"])?,
            method: plan(ConstantPoolKind::Method, &["type", "name"])?,
            class: plan(ConstantPoolKind::Class, &["name"])?,
        })
    }
}

/// Reader that maps the stacks of a chunk to the stacks of the recording.
pub(super) struct StackReader {
    plans: Option<StackDecodePlans>,
    known: SeededMap<u64, Option<u32>>,
    functions: SeededMap<u64, Option<u32>>,
}

impl StackReader {
    pub(super) fn new(types: &JfrTypeTable<'_>, all: &mut JfrStacks) -> Self {
        all.recent.begin_chunk();
        StackReader {
            plans: StackDecodePlans::from_types(types),
            known: SeededMap::default(),
            functions: SeededMap::default(),
        }
    }

    /// Returns a stack by its id in the chunk; `None` if the stack is missing or empty.
    #[inline]
    pub(super) fn find_stack(
        &mut self,
        chunk: &JfrChunk<'_>,
        id: u64,
        all: &mut JfrStacks,
        limits: &JfrLimits,
    ) -> Result<Option<u32>, JfrError> {
        match self.known.get(&id) {
            Some(&known) => Ok(known),
            None => self.new_stack(chunk, id, all, limits),
        }
    }

    fn new_stack(
        &mut self,
        chunk: &JfrChunk<'_>,
        id: u64,
        all: &mut JfrStacks,
        limits: &JfrLimits,
    ) -> Result<Option<u32>, JfrError> {
        let (Some(plans), Some(place)) =
            (&self.plans, chunk.pools.constant_position(ConstantPoolKind::Stack, id))
        else {
            return Ok(None);
        };
        let mut input = chunk.input.at_position(place);
        plans.before_frames.run(&mut input, &mut [0; SLOT_COUNT])?;
        let start = all.frames.len();
        let mut slots = [0; SLOT_COUNT];
        for _ in 0..input.read_int()? {
            let at = input.position();
            plans.frame.run(&mut input, &mut slots)?;
            if input.position() == at {
                return Err(JfrError::Malformed { at, why: "stack frames without fields" });
            }
            let method = slots[1];
            let line = (slots[LINE_SLOT] as i32).max(0) as u32;
            let location = match all.recent.location(method, line) {
                Some(location) => location,
                None => {
                    let functions = &mut self.functions;
                    let Some(function) = find_function(plans, functions, chunk, method, all, limits)? else {
                        continue;
                    };
                    let location = all.intern_location(function, line, limits)?;
                    all.recent.put(method, line, location);
                    location
                }
            };
            all.frames.push(location);
            check_limit(FRAMES_LIMIT_NAME, all.frames.len(), limits.frames)?;
        }
        let stack = all.finish(start);
        self.known.insert(id, stack);
        Ok(stack)
    }
}

/// Returns the function of a method by its id in the chunk; `None` if its name is missing.
fn find_function(
    plans: &StackDecodePlans,
    functions: &mut SeededMap<u64, Option<u32>>,
    chunk: &JfrChunk<'_>,
    method: u64,
    all: &mut JfrStacks,
    limits: &JfrLimits,
) -> Result<Option<u32>, JfrError> {
    if let Some(&known) = functions.get(&method) {
        return Ok(known);
    }
    // Missing methods are not cached, because the number of unknown ids is unbounded.
    let Some(place) = chunk.pools.constant_position(ConstantPoolKind::Method, method) else {
        return Ok(None);
    };
    let function = function(plans, chunk, place, all, limits)?;
    functions.insert(method, function);
    Ok(function)
}

/// Returns the function of the method at a position; `None` if the chunk lacks its name.
fn function(
    plans: &StackDecodePlans,
    chunk: &JfrChunk<'_>,
    method: usize,
    all: &mut JfrStacks,
    limits: &JfrLimits,
) -> Result<Option<u32>, JfrError> {
    let mut slots = [0; SLOT_COUNT];
    plans.method.run(&mut chunk.input.at_position(method), &mut slots)?;
    let class = slots[1];
    let name = slots[2];
    let Some(place) = chunk.pools.constant_position(ConstantPoolKind::Class, class) else { return Ok(None) };
    plans.class.run(&mut chunk.input.at_position(place), &mut slots)?;
    let class = symbol(chunk, slots[1])?;
    let name = symbol(chunk, name)?;
    all.count_read(class.len() + name.len(), limits)?;
    let class = stable_name(&class);
    let name = stable_name(&name);
    let dot = if class.is_empty() || name.is_empty() { "" } else { "." };
    let seen = all.functions.bytes() + class.len() + dot.len() + name.len();
    check_limit(NAMES_LIMIT_NAME, seen, limits.names)?;
    all.name.clear();
    [&class, dot, &name].into_iter().for_each(|part| all.name.push_str(part));
    let id = all.functions.intern(&all.name);
    Ok((id != 0).then_some(id))
}

fn symbol<'a>(chunk: &JfrChunk<'a>, id: u64) -> Result<Cow<'a, str>, JfrError> {
    let Some(place) = chunk.pools.constant_position(ConstantPoolKind::Symbol, id) else {
        return Ok(Cow::Borrowed(""));
    };
    chunk.text(place)
}

impl<'a> JfrChunk<'a> {
    /// Returns the text at a position, which may refer to a constant.
    pub(super) fn text(&self, place: usize) -> Result<Cow<'a, str>, JfrError> {
        let id = match self.input.at_position(place).read_text()? {
            EncodedText::Plain(text) => return Ok(text),
            EncodedText::Constant(id) => id,
        };
        let Some(place) = self.pools.constant_position(ConstantPoolKind::Text, id) else {
            return Ok(Cow::Borrowed(""));
        };
        match self.input.at_position(place).read_text()? {
            EncodedText::Plain(text) => Ok(text),
            EncodedText::Constant(_) => Ok(Cow::Borrowed("")),
        }
    }

    /// Returns whether the text at a position equals `wanted`. A longer text is not read.
    pub(super) fn is_text(&self, place: usize, wanted: &str) -> Result<bool, JfrError> {
        let id = match self.input.at_position(place).read_short_text(wanted.len())? {
            Some(EncodedText::Constant(id)) => id,
            Some(EncodedText::Plain(text)) => return Ok(text == wanted),
            None => return Ok(false),
        };
        let Some(place) = self.pools.constant_position(ConstantPoolKind::Text, id) else {
            return Ok(wanted.is_empty());
        };
        let text = self.input.at_position(place).read_short_text(wanted.len())?;
        Ok(matches!(text, Some(EncodedText::Plain(text)) if text == wanted))
    }
}
