//! From a document to a profile.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::OWN;
use super::document::{self, Document, Draft, Event, EventKind, Kind, Unit};
use super::write::SCHEMA;
use crate::bounds::{OverLimit, WrittenOut, within};
use crate::decimal::Decimal;
use crate::hash::HashedMap;
use crate::json::JsonError;
use crate::labels::SampleLabel;
use crate::model::{Dictionary, Profile, ValueType};
use crate::pprof::Limits;
use crate::sparse::{self, Cell, NoRows};
use crate::symbols::NONE;

/// The label that says of which profile of a document a sample is.
const PROFILE_NAME: &str = "profile_name";

/// Why bytes are no speedscope document that can be read. Profiles, samples and events count from 0.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpeedscopeError {
    /// No such document.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Something that does not say what it is.
    #[error("its $schema is {0:?}; that of a speedscope document is {SCHEMA:?}")]
    Schema(String),
    /// Nothing in it.
    #[error("the document has no profiles")]
    NoProfiles,
    /// A field that profiles of this kind have.
    #[error("profiles[{profile}]: missing field `{field}`")]
    Missing {
        /// The profile.
        profile: usize,
        /// The field.
        field: &'static str,
    },
    /// A number that no frame has.
    #[error(
        "profiles[{profile}].{list}[{at}]: there is no frame {frame}, shared.frames has {frames}, from 0"
    )]
    NoFrame {
        /// The profile.
        profile: usize,
        /// `samples` or `events`.
        list: &'static str,
        /// Where in it.
        at: usize,
        /// The number.
        frame: u32,
        /// How many frames there are.
        frames: usize,
    },
    /// Samples without weights, or weights without samples.
    #[error("profiles[{profile}]: {samples} samples and {weights} weights; each sample has one")]
    Weights {
        /// The profile.
        profile: usize,
        /// How many samples.
        samples: usize,
        /// How many weights.
        weights: usize,
    },
    /// Events that are not in the order of their times.
    #[error(
        "profiles[{profile}].events[{at}]: it is at {time}, before the event that it follows, at {before}"
    )]
    Backwards {
        /// The profile.
        profile: usize,
        /// The event.
        at: usize,
        /// Its time.
        time: String,
        /// The time of the one before.
        before: String,
    },
    /// The end of a frame that did not begin, or in which another one began that goes on.
    #[error("profiles[{profile}].events[{at}]: it ends frame {frame}, {}", innermost(.open))]
    NotOpen {
        /// The profile.
        profile: usize,
        /// The event.
        at: usize,
        /// The frame.
        frame: u32,
        /// The innermost one that goes on.
        open: Option<u32>,
    },
    /// A value of more than 63 bits.
    #[error(
        "profiles[{profile}]: the values of a stack add up to {sum} {from}, which is more than 63 bits of {to}"
    )]
    TooLarge {
        /// The profile.
        profile: usize,
        /// The values.
        sum: String,
        /// Their unit in the document.
        from: &'static str,
        /// Their unit in a profile.
        to: &'static str,
    },
    /// Values of more than 63 bits, of profiles that measure the same in different units.
    #[error("the values of a stack in all profiles add up to more than 63 bits of {0}")]
    Overflow(String),
    /// Over a limit.
    #[error("profiles[{profile}]: {over}")]
    OverLimit {
        /// The profile, or the one after the last.
        profile: usize,
        /// What there is too much of.
        over: OverLimit,
    },
}

fn innermost(open: &Option<u32>) -> String {
    match open {
        None => "but none has begun".to_owned(),
        Some(open) => format!("but frame {open} began later and has not ended"),
    }
}

/// Reads a document into one profile: what its profiles measure are types, those that measure the same thing are
/// added up, and a label says of which one a sample is.
///
/// What they measure is told by their unit alone. Only our own documents name it.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Profile, SpeedscopeError> {
    let mut profile = Profile::default();
    let Document { exporter, active, frames, profiles, .. } =
        document::read(bytes, limits, &mut profile.dictionary)?;
    if profiles.is_empty() {
        return Err(SpeedscopeError::NoProfiles);
    }
    let count = profiles.len();
    let over = |profile| move |over| SpeedscopeError::OverLimit { profile, over };
    let mut types = Types::default();
    let mut sums: BTreeMap<(usize, u32, Unit), Sums> = BTreeMap::new();
    let mut reading = Reading::new(&frames, limits);
    for (number, draft) in profiles.into_iter().enumerate() {
        let missing = |field| SpeedscopeError::Missing { profile: number, field };
        let unit = draft.unit.ok_or_else(|| missing("unit"))?;
        let kind = draft.kind.ok_or_else(|| missing("type"))?;
        let name = draft.name.as_deref().unwrap_or_default();
        let is_own = exporter == OWN && !name.is_empty();
        let column = types.column(if is_own { ValueType::new(name, unit.target()) } else { unit.measured() });
        within("types", types.all.len(), limits.types).map_err(over(number))?;
        if active == Some(number) {
            profile.header.default_type = types.all[column].kind.clone();
        }
        let labels = if is_own || name.is_empty() { 0 } else { named(&mut profile.dictionary, name) };
        let sums = sums.entry((column, labels, unit)).or_insert_with(|| Sums::new(number, unit));
        reading.profile((number, kind), &draft, &mut profile.dictionary, sums)?;
    }
    let mut cells = Vec::new();
    for ((column, labels, _), sums) in sums {
        for cell in sums.cells() {
            cells.push(Cell { labels, column, ..cell? });
        }
    }
    profile.samples = sparse::rows(cells, types.all.len(), limits).map_err(|error| match error {
        NoRows::Over(seen) => over(count)(seen),
        NoRows::Overflow(column) => SpeedscopeError::Overflow(types.all[column].unit.clone()),
    })?;
    profile.header.types = types.all;
    Ok(profile)
}

/// What is measured, in the order of a document.
#[derive(Default)]
struct Types {
    all: Vec<ValueType>,
    columns: BTreeMap<ValueType, usize>,
}

impl Types {
    fn column(&mut self, value_type: ValueType) -> usize {
        match self.columns.entry(value_type) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.all.push(new.key().clone());
                *new.insert(self.all.len() - 1)
            }
        }
    }
}

fn named(dictionary: &mut Dictionary, name: &str) -> u32 {
    let strings = &mut dictionary.symbols.strings;
    let label =
        SampleLabel { key: strings.intern(PROFILE_NAME), text: strings.intern(name), number: 0, unit: 0 };
    dictionary.label_sets.intern(strings, &[label])
}

/// Values by stack, in one unit.
pub(super) struct Sums {
    /// The first profile that has a share in it.
    first: usize,
    unit: Unit,
    of_stacks: HashedMap<u32, Decimal>,
}

impl Sums {
    pub(super) fn new(first: usize, unit: Unit) -> Self {
        Sums { first, unit, of_stacks: HashedMap::default() }
    }

    /// The first profile that has a share in it.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    pub(super) fn unit(&self) -> Unit {
        self.unit
    }

    /// What it adds up to, as one column of samples without labels.
    pub(super) fn cells(self) -> impl Iterator<Item = Result<Cell, SpeedscopeError>> {
        let Sums { first, unit, of_stacks } = self;
        of_stacks.into_iter().map(move |(stack, sum)| {
            let value = sum.units(unit.digits()).ok_or_else(|| unit.too_large(first, sum))?;
            Ok(Cell { stack, labels: 0, column: 0, value })
        })
    }

    fn add(&mut self, profile: usize, stack: u32, value: Decimal) -> Result<(), SpeedscopeError> {
        let sum = self.of_stacks.entry(stack).or_default();
        *sum = sum.plus(value).ok_or_else(|| self.unit.too_large(profile, *sum))?;
        Ok(())
    }
}

// === samples and events ===

pub(super) struct Reading<'a> {
    frames: &'a [u32],
    limits: &'a Limits,
    written_out: WrittenOut,
}

impl<'a> Reading<'a> {
    pub(super) fn new(frames: &'a [u32], limits: &'a Limits) -> Self {
        Reading { frames, limits, written_out: WrittenOut::default() }
    }

    /// Adds the values of a profile, known by its number.
    pub(super) fn profile(
        &mut self,
        (number, kind): (usize, Kind),
        draft: &Draft,
        dictionary: &mut Dictionary,
        sums: &mut Sums,
    ) -> Result<(), SpeedscopeError> {
        match kind {
            Kind::Sampled => self.sampled(number, draft, dictionary, sums),
            Kind::Evented => self.evented(number, draft, dictionary, sums),
        }
    }

    fn location(
        &self,
        frame: u32,
        profile: usize,
        (list, at): (&'static str, usize),
    ) -> Result<u32, SpeedscopeError> {
        let frames = self.frames.len();
        let no_frame = || SpeedscopeError::NoFrame { profile, list, at, frame, frames };
        self.frames.get(frame as usize).copied().ok_or_else(no_frame)
    }

    fn sampled(
        &self,
        profile: usize,
        draft: &Draft,
        dictionary: &mut Dictionary,
        sums: &mut Sums,
    ) -> Result<(), SpeedscopeError> {
        let missing = |field| SpeedscopeError::Missing { profile, field };
        let stacks = draft.stacks.as_ref().ok_or_else(|| missing("samples"))?;
        let weights = draft.weights.as_ref().ok_or_else(|| missing("weights"))?;
        if stacks.len() != weights.len() {
            let (samples, weights) = (stacks.len(), weights.len());
            return Err(SpeedscopeError::Weights { profile, samples, weights });
        }
        let mut path = Vec::new();
        for (at, (stack, &weight)) in stacks.iter().zip(weights).enumerate() {
            path.clear();
            for &frame in stack.iter().rev() {
                path.push(self.location(frame, profile, ("samples", at))?);
            }
            let stack = dictionary.stacks.intern(&dictionary.symbols, &path);
            within("frames in different stacks", dictionary.stacks.nodes().len(), self.limits.frames)
                .map_err(|over| SpeedscopeError::OverLimit { profile, over })?;
            sums.add(profile, stack, weight)?;
        }
        Ok(())
    }

    /// Between two events time passes in the innermost frame; where none goes on, nothing is measured. What has not
    /// ended at the last event lasts until the profile does.
    fn evented(
        &mut self,
        profile: usize,
        draft: &Draft,
        dictionary: &mut Dictionary,
        sums: &mut Sums,
    ) -> Result<(), SpeedscopeError> {
        let events = draft.events.as_ref();
        let events = events.ok_or(SpeedscopeError::Missing { profile, field: "events" })?;
        // The frames that go on and where they are in the tree of stacks.
        let mut open: Vec<(u32, u32)> = Vec::new();
        let mut passed: HashedMap<u32, Decimal> = HashedMap::default();
        let mut last = events.first().map(|event| event.at).unwrap_or_default();
        let unit = sums.unit;
        let mut pass = |open: &[(u32, u32)], time: Decimal| -> Result<(), SpeedscopeError> {
            let Some(&(_, node)) = open.last() else { return Ok(()) };
            let sum = passed.entry(node).or_default();
            *sum = sum.plus(time).ok_or_else(|| unit.too_large(profile, *sum))?;
            Ok(())
        };
        for (at, &Event { kind, frame, at: time }) in events.iter().enumerate() {
            let since = time.minus(last).filter(|since| *since >= Decimal::default());
            let since = since.ok_or_else(|| {
                let (time, before) = (time.to_string(), last.to_string());
                SpeedscopeError::Backwards { profile, at, time, before }
            })?;
            pass(&open, since)?;
            last = time;
            if kind == EventKind::Open {
                let location = self.location(frame, profile, ("events", at))?;
                let parent = open.last().map_or(NONE, |&(_, node)| node);
                open.push((frame, dictionary.stacks.child(parent, location)));
                within("frames in a stack", open.len(), self.limits.depth)
                    .map_err(|over| SpeedscopeError::OverLimit { profile, over })?;
                continue;
            }
            match open.pop() {
                Some((innermost, _)) if innermost == frame => {}
                other => {
                    let open = other.map(|(frame, _)| frame);
                    return Err(SpeedscopeError::NotOpen { profile, at, frame, open });
                }
            }
        }
        let rest = draft.end.and_then(|end| end.minus(last)).unwrap_or_default();
        pass(&open, rest.max(Decimal::default()))?;
        let mut passed: Vec<(u32, Decimal)> = passed.into_iter().collect();
        passed.retain(|(_, time)| *time != Decimal::default());
        passed.sort_unstable_by_key(|(node, _)| *node);
        for (node, time) in passed {
            let (stack, depth) = dictionary.stack_at(node);
            let counted = self.written_out.add(depth, self.limits);
            counted.map_err(|over| SpeedscopeError::OverLimit { profile, over })?;
            sums.add(profile, stack, time)?;
        }
        Ok(())
    }
}

// === units ===

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::None => "of no unit",
            Unit::Nanoseconds => "nanoseconds",
            Unit::Microseconds => "microseconds",
            Unit::Milliseconds => "milliseconds",
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
        }
    }

    /// The unit that values have in a profile.
    pub(super) fn target(self) -> &'static str {
        match self {
            Unit::None => "count",
            Unit::Bytes => "bytes",
            _ => "nanoseconds",
        }
    }

    /// What a profile measures of which only the unit is known.
    fn measured(self) -> ValueType {
        let kind = match self {
            Unit::None => "samples",
            Unit::Bytes => "space",
            _ => "wall",
        };
        ValueType::new(kind, self.target())
    }

    /// How many digits behind the point are whole in a profile.
    fn digits(self) -> u32 {
        match self {
            Unit::None | Unit::Nanoseconds | Unit::Bytes => 0,
            Unit::Microseconds => 3,
            Unit::Milliseconds => 6,
            Unit::Seconds => 9,
        }
    }

    fn too_large(self, profile: usize, sum: Decimal) -> SpeedscopeError {
        let (sum, from, to) = (sum.to_string(), self.name(), self.target());
        SpeedscopeError::TooLarge { profile, sum, from, to }
    }
}
