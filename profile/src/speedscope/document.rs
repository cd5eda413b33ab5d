//! A document as it was written.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::bounds::OverLimit;
use crate::decimal::Decimal;
use crate::hash::{self, Hash, HashedMap};
use crate::json::{self, Each, Fields, Guard, JsonError, Object, once, pass_over, remark};
use crate::model::Dictionary;
use crate::pprof::Limits;
use crate::symbols::{Function, Line, NONE};

/// What a document says, its frames in a dictionary.
#[derive(Default)]
pub(super) struct Document {
    /// Which format it says it has.
    pub(super) schema: Option<String>,
    /// Who wrote it.
    pub(super) exporter: String,
    /// Which profile to show first.
    pub(super) active: Option<usize>,
    /// The location of each frame.
    pub(super) frames: Vec<u32>,
    pub(super) profiles: Vec<Draft>,
}

/// A profile as it was written: frames are numbers, values have no unit yet.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) kind: Option<Kind>,
    pub(super) name: Option<String>,
    pub(super) unit: Option<Unit>,
    /// When it began.
    pub(super) start: Option<Decimal>,
    /// When it ended.
    pub(super) end: Option<Decimal>,
    pub(super) stacks: Option<WrittenStacks>,
    pub(super) weights: Option<Vec<Decimal>>,
    pub(super) events: Option<Vec<Event>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Evented,
    Sampled,
}

/// What values of a document are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A count.
    None,
    /// Time.
    Nanoseconds,
    /// Time.
    Microseconds,
    /// Time.
    Milliseconds,
    /// Time.
    Seconds,
    /// Memory.
    Bytes,
}

/// Stacks of numbers of frames, root first. Most samples have one that came before.
#[derive(Default)]
pub(super) struct WrittenStacks {
    /// Those of all different stacks, one behind the other, and where each of these ends.
    frames: Vec<u32>,
    ends: Vec<usize>,
    /// Which stack each sample has.
    samples: Vec<u32>,
}

/// A frame begins or ends.
#[derive(Clone, Copy, Deserialize)]
pub(super) struct Event {
    #[serde(rename = "type")]
    pub(super) kind: EventKind,
    pub(super) frame: u32,
    pub(super) at: Decimal,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum EventKind {
    #[serde(rename = "O")]
    Open,
    #[serde(rename = "C")]
    Close,
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    file: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "remark")]
    line: i64,
    #[serde(default, deserialize_with = "remark")]
    col: i64,
}

impl WrittenStacks {
    /// The stack of each sample, root first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        self.samples.iter().map(|&stack| {
            let before = (stack as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.frames[before..self.ends[stack as usize]]
        })
    }

    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }
}

/// What a stack takes beside its frames while others are looked for that are equal.
const DIFFERENT: usize = 48;

/// Reads a document.
pub(super) fn read(
    bytes: &[u8],
    limits: &Limits,
    dictionary: &mut Dictionary,
) -> Result<Document, JsonError> {
    let guard = Guard::new(limits);
    let pass = Pass {
        guard: &guard,
        dictionary: RefCell::new(dictionary),
        samples: Cell::new(0),
        waiting: Cell::new(0),
    };
    let whole = Whole { pass: &pass, frames: None, profiles: None, document: Document::default() };
    json::read(bytes, &guard, Object(whole))
}

/// What the pass over a document needs wherever it is.
struct Pass<'a> {
    guard: &'a Guard<'a>,
    dictionary: RefCell<&'a mut Dictionary>,
    /// Samples and events so far, of all profiles.
    samples: Cell<usize>,
    /// Bytes of memory that they and their weights take, which wait until all is read.
    waiting: Cell<usize>,
}

impl Pass<'_> {
    fn count_sample(&self, what: &'static str, bytes: usize) -> Result<(), OverLimit> {
        self.samples.set(self.samples.get() + 1);
        self.guard.within(what, self.samples.get(), self.guard.limits.samples)?;
        self.weigh(bytes)
    }

    fn weigh(&self, bytes: usize) -> Result<(), OverLimit> {
        self.waiting.set(self.waiting.get() + bytes);
        self.guard.within("bytes of samples in memory", self.waiting.get(), self.guard.limits.tables)
    }

    /// Takes a frame of the shared list in.
    fn frame(&self, frame: &Frame<'_>, frames: &mut Vec<u32>) -> Result<(), OverLimit> {
        self.guard.within("frames", frames.len() + 1, self.guard.limits.entries)?;
        let symbols = &mut self.dictionary.borrow_mut().symbols;
        let name = symbols.strings.intern(&frame.name);
        let filename = symbols.strings.intern(frame.file.as_deref().unwrap_or_default());
        let function = symbols.function(Function { name, system_name: 0, filename, start_line: 0 });
        let line = Line { function, line: frame.line, column: frame.col };
        frames.push(symbols.location(NONE, 0, false, &[line]));
        Ok(())
    }
}

// === the document ===

struct Whole<'a> {
    pass: &'a Pass<'a>,
    frames: Option<Vec<u32>>,
    profiles: Option<Vec<Draft>>,
    /// What else it says.
    document: Document,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Key {
    #[serde(rename = "$schema")]
    Schema,
    Shared,
    Profiles,
    Exporter,
    ActiveProfileIndex,
    #[serde(other)]
    Other,
}

impl<'de> Fields<'de> for Whole<'_> {
    type Key = Key;
    type Read = Document;

    const WHAT: &'static str = "a speedscope document";

    fn field<A: MapAccess<'de>>(&mut self, key: Key, map: &mut A) -> Result<(), A::Error> {
        let Whole { pass, frames, profiles, document } = self;
        match key {
            Key::Schema => {
                document.schema = map.next_value()?;
                Ok(())
            }
            Key::Shared => {
                once(frames, "shared", map.next_value_seed(Object(Shared { pass, frames: None }))?)
            }
            Key::Profiles => once(profiles, "profiles", map.next_value_seed(Drafts(pass))?),
            Key::Exporter => {
                document.exporter = map.next_value::<Option<String>>()?.unwrap_or_default();
                Ok(())
            }
            Key::ActiveProfileIndex => {
                let active: Option<f64> = map.next_value()?;
                document.active = active.filter(|active| *active >= 0.0).map(|active| active as usize);
                Ok(())
            }
            Key::Other => pass_over(map),
        }
    }

    fn end<E: Error>(self) -> Result<Document, E> {
        let frames = self.frames.ok_or_else(|| E::missing_field("shared"))?;
        let profiles = self.profiles.ok_or_else(|| E::missing_field("profiles"))?;
        Ok(Document { frames, profiles, ..self.document })
    }
}

/// What all profiles have in common.
struct Shared<'a> {
    pass: &'a Pass<'a>,
    frames: Option<Vec<u32>>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum SharedKey {
    Frames,
    #[serde(other)]
    Other,
}

impl<'de> Fields<'de> for Shared<'_> {
    type Key = SharedKey;
    type Read = Vec<u32>;

    const WHAT: &'static str = "an object with frames";

    fn field<A: MapAccess<'de>>(&mut self, key: SharedKey, map: &mut A) -> Result<(), A::Error> {
        match key {
            SharedKey::Frames => {
                let mut frames = Vec::new();
                let take = |frame: Frame<'de>| self.pass.frame(&frame, &mut frames);
                map.next_value_seed(Each::new("frames", take))?;
                once(&mut self.frames, "frames", frames)
            }
            SharedKey::Other => pass_over(map),
        }
    }

    fn end<E: Error>(self) -> Result<Vec<u32>, E> {
        self.frames.ok_or_else(|| E::missing_field("frames"))
    }
}

// === profiles ===

struct Drafts<'a>(&'a Pass<'a>);

impl<'de> DeserializeSeed<'de> for Drafts<'_> {
    type Value = Vec<Draft>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Draft>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Drafts<'_> {
    type Value = Vec<Draft>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of profiles")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Draft>, A::Error> {
        let guard = self.0.guard;
        let mut drafts = Vec::new();
        while let Some(draft) =
            list.next_element_seed(Object(Profile { pass: self.0, draft: Draft::default() }))?
        {
            guard.within("profiles", drafts.len() + 1, guard.limits.entries).map_err(A::Error::custom)?;
            drafts.push(draft);
        }
        Ok(drafts)
    }
}

struct Profile<'a> {
    pass: &'a Pass<'a>,
    draft: Draft,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum ProfileKey {
    Type,
    Name,
    Unit,
    StartValue,
    EndValue,
    Samples,
    Weights,
    Events,
    #[serde(other)]
    Other,
}

impl<'de> Fields<'de> for Profile<'_> {
    type Key = ProfileKey;
    type Read = Draft;

    const WHAT: &'static str = "a profile";

    fn field<A: MapAccess<'de>>(&mut self, key: ProfileKey, map: &mut A) -> Result<(), A::Error> {
        let Profile { pass, draft } = self;
        match key {
            ProfileKey::Type => once(&mut draft.kind, "type", map.next_value()?),
            ProfileKey::Name => once(&mut draft.name, "name", map.next_value()?),
            ProfileKey::Unit => once(&mut draft.unit, "unit", map.next_value()?),
            ProfileKey::StartValue => once(&mut draft.start, "startValue", map.next_value()?),
            ProfileKey::EndValue => once(&mut draft.end, "endValue", map.next_value()?),
            ProfileKey::Samples => once(&mut draft.stacks, "samples", map.next_value_seed(StacksOf(pass))?),
            ProfileKey::Weights => {
                let mut weights = Vec::new();
                let take = |weight: Decimal| {
                    weights.push(weight);
                    pass.weigh(size_of::<Decimal>())
                };
                map.next_value_seed(Each::new("weights", take))?;
                once(&mut draft.weights, "weights", weights)
            }
            ProfileKey::Events => {
                let mut events = Vec::new();
                let take = |event: Event| {
                    events.push(event);
                    pass.count_sample("events", size_of::<Event>())
                };
                map.next_value_seed(Each::new("events", take))?;
                once(&mut draft.events, "events", events)
            }
            ProfileKey::Other => pass_over(map),
        }
    }

    fn end<E: Error>(self) -> Result<Draft, E> {
        Ok(self.draft)
    }
}

struct StacksOf<'a>(&'a Pass<'a>);

impl<'de> DeserializeSeed<'de> for StacksOf<'_> {
    type Value = WrittenStacks;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WrittenStacks, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for StacksOf<'_> {
    type Value = WrittenStacks;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of stacks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<WrittenStacks, A::Error> {
        let StacksOf(pass) = self;
        let (mut stacks, mut known) = (WrittenStacks::default(), HashedMap::<Hash, u32>::default());
        loop {
            let start = stacks.frames.len();
            let take = |frame: u32| {
                stacks.frames.push(frame);
                let depth = stacks.frames.len() - start;
                pass.guard.within("frames in a stack", depth, pass.guard.limits.depth)
            };
            if list.next_element_seed(Each::new("numbers of frames", take))?.is_none() {
                return Ok(stacks);
            }
            pass.count_sample("samples", size_of::<u32>()).map_err(A::Error::custom)?;
            let stack = &stacks.frames[start..];
            let fresh = stacks.ends.len() as u32;
            let number = *known.entry(hash::bytes(bytemuck::cast_slice(stack))).or_insert(fresh);
            if number == fresh {
                pass.weigh(DIFFERENT + size_of_val(stack)).map_err(A::Error::custom)?;
                stacks.ends.push(stacks.frames.len());
            } else {
                stacks.frames.truncate(start);
            }
            stacks.samples.push(number);
        }
    }
}
