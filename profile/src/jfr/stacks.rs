//! Stacks of all chunks, by what they are: each chunk numbers its own anew.

use std::borrow::Cow;

use super::chunk::Chunk;
use super::input::Text;
use super::metadata::Types;
use super::names::lasting;
use super::plan::{Plan, SLOTS};
use super::pools::Pool;
use super::{FRAMES, JfrError, LINES, Limits, NAMES, READ_BYTES, within};
use crate::hash::{self, Hash, HashedMap, SeededMap};
use crate::symbols::Strings;

/// Bytes of texts that are read for each byte that a recording may have.
const READ: usize = 4;

/// Functions, lines and stacks.
#[derive(Default)]
pub(super) struct Stacks {
    /// What functions are called; the empty name is none.
    pub(super) functions: Strings,
    /// Function and line.
    pub(super) locations: Vec<(u32, u32)>,
    location_ids: SeededMap<u64, u32>,
    frames: Vec<u32>,
    /// Where the frames of each stack begin and end.
    ranges: Vec<(u32, u32)>,
    ids: HashedMap<Hash, u32>,
    recent: Recent,
    /// Where names of functions are put together.
    name: String,
    /// Bytes of texts that were read, those that were known already counted again.
    read: usize,
}

impl Stacks {
    /// The locations of a stack, leaf first.
    pub(super) fn locations(&self, stack: u32) -> &[u32] {
        let (from, to) = self.ranges[stack as usize];
        &self.frames[from as usize..to as usize]
    }

    fn location(&mut self, function: u32, line: u32, limits: &Limits) -> Result<u32, JfrError> {
        let seen = self.locations.len() + 1;
        let id = *self.location_ids.entry(u64::from(function) << 32 | u64::from(line)).or_insert_with(|| {
            self.locations.push((function, line));
            seen as u32 - 1
        });
        within(LINES, self.locations.len(), limits.constants).map(|()| id)
    }

    /// Constants are shared, so what is read may have far more bytes than a recording.
    pub(super) fn count_read(&mut self, bytes: usize, limits: &Limits) -> Result<(), JfrError> {
        self.read = self.read.saturating_add(bytes);
        within(READ_BYTES, self.read, limits.bytes.saturating_mul(READ))
    }

    /// The stack of all frames from `start` on; none if there is no frame.
    fn finish(&mut self, start: usize) -> Option<u32> {
        let end = self.frames.len();
        if start == end {
            return None;
        }
        let hash = hash::bytes(bytemuck::cast_slice(&self.frames[start..]));
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

/// Frames that were found last, each in a place of its own that others may take: most come again and again, and need no map.
#[derive(Default)]
struct Recent {
    frames: Vec<Found>,
    /// Chunks so far: each numbers its methods anew.
    chunk: u32,
}

#[derive(Clone, Copy, Default)]
struct Found {
    method: u64,
    line: u32,
    /// 0 for none.
    chunk: u32,
    location: u32,
}

/// The most of them, as a power of two.
const RECENT: u32 = 12;

impl Recent {
    fn begin_chunk(&mut self) {
        self.frames.resize(1 << RECENT, Found::default());
        self.chunk += 1;
    }

    #[inline(always)]
    fn place(method: u64, line: u32) -> usize {
        let mixed = (method << 16 ^ u64::from(line)).wrapping_mul(hash::FACTOR);
        (mixed >> (u64::BITS - RECENT)) as usize
    }

    #[inline(always)]
    fn location(&self, method: u64, line: u32) -> Option<u32> {
        let found = self.frames[Self::place(method, line)];
        let is_it = found.chunk == self.chunk && found.method == method && found.line == line;
        is_it.then_some(found.location)
    }

    fn put(&mut self, method: u64, line: u32, location: u32) {
        self.frames[Self::place(method, line)] = Found { method, line, chunk: self.chunk, location };
    }
}

/// How constants of a chunk are gone through that stacks are made of.
struct Plans {
    /// What lies before the frames of a stack, and a frame.
    before_frames: Plan,
    frame: Plan,
    method: Plan,
    class: Plan,
}

const LINE: usize = 2;

impl Plans {
    /// None if the chunk has no stacks, or such that cannot be read.
    fn of(types: &Types<'_>) -> Option<Self> {
        let stack = types.named(Pool::Stack.type_name())?;
        let frames = stack.fields.iter().position(|field| types.field_name(field) == "frames")?;
        let frame = Some(stack.fields[frames]).filter(|field| field.array && !field.constant)?.class;
        let plan = |pool: Pool, wanted| Plan::of(types, types.named(pool.type_name())?, wanted);
        Some(Plans {
            before_frames: Plan::of_fields(types, stack, 0..frames, &[])?,
            frame: Plan::of(types, types.class(frame)?, &["method", "lineNumber"])?,
            method: plan(Pool::Method, &["type", "name"])?,
            class: plan(Pool::Class, &["name"])?,
        })
    }
}

/// Finds the stacks of a chunk among those of all.
pub(super) struct StackReader {
    plans: Option<Plans>,
    known: SeededMap<u64, Option<u32>>,
    functions: SeededMap<u64, Option<u32>>,
}

impl StackReader {
    pub(super) fn new(types: &Types<'_>, all: &mut Stacks) -> Self {
        all.recent.begin_chunk();
        StackReader { plans: Plans::of(types), known: SeededMap::default(), functions: SeededMap::default() }
    }

    /// A stack by its id in the chunk; none if there is no such, or nothing in it.
    #[inline]
    pub(super) fn stack(
        &mut self,
        chunk: &Chunk<'_>,
        id: u64,
        all: &mut Stacks,
        limits: &Limits,
    ) -> Result<Option<u32>, JfrError> {
        match self.known.get(&id) {
            Some(&known) => Ok(known),
            None => self.new_stack(chunk, id, all, limits),
        }
    }

    fn new_stack(
        &mut self,
        chunk: &Chunk<'_>,
        id: u64,
        all: &mut Stacks,
        limits: &Limits,
    ) -> Result<Option<u32>, JfrError> {
        let (Some(plans), Some(place)) = (&self.plans, chunk.pools.place(Pool::Stack, id)) else {
            return Ok(None);
        };
        let mut input = chunk.input.at(place);
        plans.before_frames.run(&mut input, &mut [0; SLOTS])?;
        let start = all.frames.len();
        let mut slots = [0; SLOTS];
        for _ in 0..input.int()? {
            let at = input.place();
            plans.frame.run(&mut input, &mut slots)?;
            if input.place() == at {
                return Err(JfrError::Malformed { at, why: "frames of a stack that have no fields" });
            }
            let (method, line) = (slots[1], (slots[LINE] as i32).max(0) as u32);
            let location = match all.recent.location(method, line) {
                Some(location) => location,
                None => {
                    let functions = &mut self.functions;
                    let Some(location) = frame(plans, functions, chunk, (method, line), all, limits)? else {
                        continue;
                    };
                    location
                }
            };
            all.frames.push(location);
            within(FRAMES, all.frames.len(), limits.frames)?;
        }
        let stack = all.finish(start);
        self.known.insert(id, stack);
        Ok(stack)
    }
}

/// The location of a frame that did not come lately; none if the chunk does not say what its function is called.
fn frame(
    plans: &Plans,
    functions: &mut SeededMap<u64, Option<u32>>,
    chunk: &Chunk<'_>,
    (method, line): (u64, u32),
    all: &mut Stacks,
    limits: &Limits,
) -> Result<Option<u32>, JfrError> {
    let function = match functions.get(&method) {
        Some(&known) => known,
        None => {
            // What the chunk does not say is not remembered: of that there is no end.
            let Some(place) = chunk.pools.place(Pool::Method, method) else { return Ok(None) };
            let function = function(plans, chunk, place, all, limits)?;
            functions.insert(method, function);
            function
        }
    };
    let Some(function) = function else { return Ok(None) };
    let location = all.location(function, line, limits)?;
    all.recent.put(method, line, location);
    Ok(Some(location))
}

/// The function of the method that lies at a place; none if the chunk does not say what it is called.
fn function(
    plans: &Plans,
    chunk: &Chunk<'_>,
    method: usize,
    all: &mut Stacks,
    limits: &Limits,
) -> Result<Option<u32>, JfrError> {
    let mut slots = [0; SLOTS];
    plans.method.run(&mut chunk.input.at(method), &mut slots)?;
    let (class, name) = (slots[1], slots[2]);
    let Some(place) = chunk.pools.place(Pool::Class, class) else { return Ok(None) };
    plans.class.run(&mut chunk.input.at(place), &mut slots)?;
    let (class, name) = (symbol(chunk, slots[1])?, symbol(chunk, name)?);
    all.count_read(class.len() + name.len(), limits)?;
    let (class, name) = (lasting(&class), lasting(&name));
    let dot = if class.is_empty() || name.is_empty() { "" } else { "." };
    let seen = all.functions.bytes() + class.len() + dot.len() + name.len();
    within(NAMES, seen, limits.names)?;
    all.name.clear();
    [&class, dot, &name].into_iter().for_each(|part| all.name.push_str(part));
    let id = all.functions.intern(&all.name);
    Ok((id != 0).then_some(id))
}

fn symbol<'a>(chunk: &Chunk<'a>, id: u64) -> Result<Cow<'a, str>, JfrError> {
    let Some(place) = chunk.pools.place(Pool::Symbol, id) else { return Ok(Cow::Borrowed("")) };
    chunk.text(place)
}

impl<'a> Chunk<'a> {
    /// The text that begins at a place, which may be a constant itself.
    pub(super) fn text(&self, place: usize) -> Result<Cow<'a, str>, JfrError> {
        let id = match self.input.at(place).text()? {
            Text::Plain(text) => return Ok(text),
            Text::Constant(id) => id,
        };
        let Some(place) = self.pools.place(Pool::Text, id) else { return Ok(Cow::Borrowed("")) };
        match self.input.at(place).text()? {
            Text::Plain(text) => Ok(text),
            Text::Constant(_) => Ok(Cow::Borrowed("")),
        }
    }

    /// Whether such a text is `wanted`. A longer one is not read.
    pub(super) fn is_text(&self, place: usize, wanted: &str) -> Result<bool, JfrError> {
        let id = match self.input.at(place).short_text(wanted.len())? {
            Some(Text::Constant(id)) => id,
            Some(Text::Plain(text)) => return Ok(text == wanted),
            None => return Ok(false),
        };
        let Some(place) = self.pools.place(Pool::Text, id) else { return Ok(wanted.is_empty()) };
        let text = self.input.at(place).short_text(wanted.len())?;
        Ok(matches!(text, Some(Text::Plain(text)) if text == wanted))
    }
}
