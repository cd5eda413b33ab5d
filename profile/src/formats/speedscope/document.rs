//! Document with its fields as written.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::data_model::model::Dictionary;
use crate::data_model::symbols::{Function, Line, NO_ENTRY};
use crate::encoding::decimal::Decimal;
use crate::encoding::hash::{self, ContentHash, PrehashedMap};
use crate::formats::json::{
    self, JsonError, LimitGuard, ListVisitor, ObjectFields, ObjectVisitor, remark, set_once, skip_value,
};
use crate::formats::limits::OverLimitError;
use crate::formats::pprof::DecodeLimits;

/// Fields of a document, with its frames in a dictionary.
#[derive(Default)]
pub(super) struct SpeedscopeDocument {
    /// URL of the document's schema.
    pub(super) schema: Option<String>,
    /// Name of the program that wrote it.
    pub(super) exporter: String,
    /// Index of the profile to show first.
    pub(super) active: Option<usize>,
    /// Location id of each frame.
    pub(super) frames: Vec<u32>,
    pub(super) profiles: Vec<RawSpeedscopeProfile>,
}

/// Profile as written: frames are numbers, values have no unit yet.
#[derive(Default)]
pub(super) struct RawSpeedscopeProfile {
    pub(super) kind: Option<SpeedscopeProfileKind>,
    pub(super) name: Option<String>,
    pub(super) unit: Option<SpeedscopeUnit>,
    /// Start of the profile, from `startValue`.
    pub(super) start: Option<Decimal>,
    /// End of the profile, from `endValue`.
    pub(super) end: Option<Decimal>,
    pub(super) stacks: Option<SampledStacks>,
    pub(super) weights: Option<Vec<Decimal>>,
    pub(super) events: Option<Vec<FrameEvent>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SpeedscopeProfileKind {
    Evented,
    Sampled,
}

/// Unit of the values of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpeedscopeUnit {
    /// Count without a unit.
    None,
    /// Time values in nanoseconds.
    Nanoseconds,
    /// Time values in microseconds.
    Microseconds,
    /// Time values in milliseconds.
    Milliseconds,
    /// Time values in seconds.
    Seconds,
    /// Memory values in bytes.
    Bytes,
}

/// Stacks of frame numbers, root first. Most samples repeat an earlier stack.
#[derive(Default)]
pub(super) struct SampledStacks {
    /// Frames of all distinct stacks, concatenated, and the end of each stack.
    frames: Vec<u32>,
    ends: Vec<usize>,
    /// Stack number of each sample.
    samples: Vec<u32>,
}

/// Event that begins or ends a frame.
#[derive(Clone, Copy, Deserialize)]
pub(super) struct FrameEvent {
    #[serde(rename = "type")]
    pub(super) kind: FrameEventKind,
    pub(super) frame: u32,
    pub(super) at: Decimal,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum FrameEventKind {
    #[serde(rename = "O")]
    Open,
    #[serde(rename = "C")]
    Close,
}

#[derive(Deserialize)]
struct SpeedscopeFrame<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    file: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "remark")]
    line: i64,
    #[serde(default, deserialize_with = "remark")]
    col: i64,
}

impl SampledStacks {
    /// Returns the stack of each sample, root first.
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

/// Memory of a stack beside its frames while equal stacks are searched.
const STACK_OVERHEAD_BYTES: usize = 48;

/// Reads a document and adds its frames to the dictionary.
pub(super) fn read(
    bytes: &[u8],
    limits: &DecodeLimits,
    dictionary: &mut Dictionary,
) -> Result<SpeedscopeDocument, JsonError> {
    let guard = LimitGuard::new(limits);
    let pass = DocumentContext {
        guard: &guard,
        dictionary: RefCell::new(dictionary),
        samples: Cell::new(0),
        waiting: Cell::new(0),
    };
    let whole =
        DocumentFields { pass: &pass, frames: None, profiles: None, document: SpeedscopeDocument::default() };
    json::read(bytes, &guard, ObjectVisitor(whole))
}

/// State shared by all parts of the pass over a document.
struct DocumentContext<'a> {
    guard: &'a LimitGuard<'a>,
    dictionary: RefCell<&'a mut Dictionary>,
    /// Number of samples and events so far, in all profiles.
    samples: Cell<usize>,
    /// Memory of these samples and their weights, which are kept until the document is read.
    waiting: Cell<usize>,
}

impl DocumentContext<'_> {
    fn count_sample(&self, what: &'static str, bytes: usize) -> Result<(), OverLimitError> {
        self.samples.set(self.samples.get() + 1);
        self.guard.check_limit(what, self.samples.get(), self.guard.limits.samples)?;
        self.charge_memory(bytes)
    }

    fn charge_memory(&self, bytes: usize) -> Result<(), OverLimitError> {
        self.waiting.set(self.waiting.get() + bytes);
        self.guard.check_limit("bytes of samples in memory", self.waiting.get(), self.guard.limits.tables)
    }

    /// Adds a frame of the shared list.
    fn frame(&self, frame: &SpeedscopeFrame<'_>, frames: &mut Vec<u32>) -> Result<(), OverLimitError> {
        self.guard.check_limit("frames", frames.len() + 1, self.guard.limits.entries)?;
        let symbols = &mut self.dictionary.borrow_mut().symbols;
        let name = symbols.strings.intern(&frame.name);
        let filename = symbols.strings.intern(frame.file.as_deref().unwrap_or_default());
        let function = symbols.intern_function(Function { name, system_name: 0, filename, start_line: 0 });
        let line = Line { function, line: frame.line, column: frame.col };
        frames.push(symbols.intern_location(NO_ENTRY, 0, false, &[line]));
        Ok(())
    }
}

// === the document ===

struct DocumentFields<'a> {
    pass: &'a DocumentContext<'a>,
    frames: Option<Vec<u32>>,
    profiles: Option<Vec<RawSpeedscopeProfile>>,
    /// Other fields of the document.
    document: SpeedscopeDocument,
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

impl<'de> ObjectFields<'de> for DocumentFields<'_> {
    type FieldKey = Key;
    type Read = SpeedscopeDocument;

    const OBJECT_DESCRIPTION: &'static str = "a speedscope document";

    fn read_field<A: MapAccess<'de>>(&mut self, key: Key, map: &mut A) -> Result<(), A::Error> {
        let DocumentFields { pass, frames, profiles, document } = self;
        match key {
            Key::Schema => {
                document.schema = map.next_value()?;
                Ok(())
            }
            Key::Shared => set_once(
                frames,
                "shared",
                map.next_value_seed(ObjectVisitor(SharedFields { pass, frames: None }))?,
            ),
            Key::Profiles => {
                set_once(profiles, "profiles", map.next_value_seed(SpeedscopeProfilesVisitor(pass))?)
            }
            Key::Exporter => {
                document.exporter = map.next_value::<Option<String>>()?.unwrap_or_default();
                Ok(())
            }
            Key::ActiveProfileIndex => {
                let active: Option<f64> = map.next_value()?;
                document.active = active.filter(|active| *active >= 0.0).map(|active| active as usize);
                Ok(())
            }
            Key::Other => skip_value(map),
        }
    }

    fn finish<E: Error>(self) -> Result<SpeedscopeDocument, E> {
        let frames = self.frames.ok_or_else(|| E::missing_field("shared"))?;
        let profiles = self.profiles.ok_or_else(|| E::missing_field("profiles"))?;
        Ok(SpeedscopeDocument { frames, profiles, ..self.document })
    }
}

/// Fields shared by all profiles.
struct SharedFields<'a> {
    pass: &'a DocumentContext<'a>,
    frames: Option<Vec<u32>>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum SharedKey {
    Frames,
    #[serde(other)]
    Other,
}

impl<'de> ObjectFields<'de> for SharedFields<'_> {
    type FieldKey = SharedKey;
    type Read = Vec<u32>;

    const OBJECT_DESCRIPTION: &'static str = "an object with frames";

    fn read_field<A: MapAccess<'de>>(&mut self, key: SharedKey, map: &mut A) -> Result<(), A::Error> {
        match key {
            SharedKey::Frames => {
                let mut frames = Vec::new();
                let take = |frame: SpeedscopeFrame<'de>| self.pass.frame(&frame, &mut frames);
                map.next_value_seed(ListVisitor::new("frames", take))?;
                set_once(&mut self.frames, "frames", frames)
            }
            SharedKey::Other => skip_value(map),
        }
    }

    fn finish<E: Error>(self) -> Result<Vec<u32>, E> {
        self.frames.ok_or_else(|| E::missing_field("frames"))
    }
}

// === profiles ===

struct SpeedscopeProfilesVisitor<'a>(&'a DocumentContext<'a>);

impl<'de> DeserializeSeed<'de> for SpeedscopeProfilesVisitor<'_> {
    type Value = Vec<RawSpeedscopeProfile>;

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Vec<RawSpeedscopeProfile>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for SpeedscopeProfilesVisitor<'_> {
    type Value = Vec<RawSpeedscopeProfile>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of profiles")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<RawSpeedscopeProfile>, A::Error> {
        let guard = self.0.guard;
        let mut drafts = Vec::new();
        while let Some(draft) = list.next_element_seed(ObjectVisitor(SpeedscopeProfileFields {
            pass: self.0,
            draft: RawSpeedscopeProfile::default(),
        }))? {
            guard
                .check_limit("profiles", drafts.len() + 1, guard.limits.entries)
                .map_err(A::Error::custom)?;
            drafts.push(draft);
        }
        Ok(drafts)
    }
}

struct SpeedscopeProfileFields<'a> {
    pass: &'a DocumentContext<'a>,
    draft: RawSpeedscopeProfile,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum SpeedscopeProfileKey {
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

impl<'de> ObjectFields<'de> for SpeedscopeProfileFields<'_> {
    type FieldKey = SpeedscopeProfileKey;
    type Read = RawSpeedscopeProfile;

    const OBJECT_DESCRIPTION: &'static str = "a profile";

    fn read_field<A: MapAccess<'de>>(
        &mut self,
        key: SpeedscopeProfileKey,
        map: &mut A,
    ) -> Result<(), A::Error> {
        let SpeedscopeProfileFields { pass, draft } = self;
        match key {
            SpeedscopeProfileKey::Type => set_once(&mut draft.kind, "type", map.next_value()?),
            SpeedscopeProfileKey::Name => set_once(&mut draft.name, "name", map.next_value()?),
            SpeedscopeProfileKey::Unit => set_once(&mut draft.unit, "unit", map.next_value()?),
            SpeedscopeProfileKey::StartValue => set_once(&mut draft.start, "startValue", map.next_value()?),
            SpeedscopeProfileKey::EndValue => set_once(&mut draft.end, "endValue", map.next_value()?),
            SpeedscopeProfileKey::Samples => {
                set_once(&mut draft.stacks, "samples", map.next_value_seed(SampledStacksVisitor(pass))?)
            }
            SpeedscopeProfileKey::Weights => {
                let mut weights = Vec::new();
                let take = |weight: Decimal| {
                    weights.push(weight);
                    pass.charge_memory(size_of::<Decimal>())
                };
                map.next_value_seed(ListVisitor::new("weights", take))?;
                set_once(&mut draft.weights, "weights", weights)
            }
            SpeedscopeProfileKey::Events => {
                let mut events = Vec::new();
                let take = |event: FrameEvent| {
                    events.push(event);
                    pass.count_sample("events", size_of::<FrameEvent>())
                };
                map.next_value_seed(ListVisitor::new("events", take))?;
                set_once(&mut draft.events, "events", events)
            }
            SpeedscopeProfileKey::Other => skip_value(map),
        }
    }

    fn finish<E: Error>(self) -> Result<RawSpeedscopeProfile, E> {
        Ok(self.draft)
    }
}

struct SampledStacksVisitor<'a>(&'a DocumentContext<'a>);

impl<'de> DeserializeSeed<'de> for SampledStacksVisitor<'_> {
    type Value = SampledStacks;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<SampledStacks, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for SampledStacksVisitor<'_> {
    type Value = SampledStacks;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of stacks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<SampledStacks, A::Error> {
        let SampledStacksVisitor(pass) = self;
        let mut stacks = SampledStacks::default();
        let mut known = PrehashedMap::<ContentHash, u32>::default();
        loop {
            let start = stacks.frames.len();
            let take = |frame: u32| {
                stacks.frames.push(frame);
                let depth = stacks.frames.len() - start;
                pass.guard.check_limit("frames in a stack", depth, pass.guard.limits.depth)
            };
            if list.next_element_seed(ListVisitor::new("numbers of frames", take))?.is_none() {
                return Ok(stacks);
            }
            pass.count_sample("samples", size_of::<u32>()).map_err(A::Error::custom)?;
            let stack = &stacks.frames[start..];
            let fresh = stacks.ends.len() as u32;
            let number = *known.entry(hash::hash_bytes(bytemuck::cast_slice(stack))).or_insert(fresh);
            if number == fresh {
                pass.charge_memory(STACK_OVERHEAD_BYTES + size_of_val(stack)).map_err(A::Error::custom)?;
                stacks.ends.push(stacks.frames.len());
            } else {
                stacks.frames.truncate(start);
            }
            stacks.samples.push(number);
        }
    }
}
