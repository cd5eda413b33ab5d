//! Conversion of a document to a profile.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::OWN_EXPORTER_NAME;
use super::document::{
    self, FrameEvent, FrameEventKind, RawSpeedscopeProfile, SpeedscopeDocument, SpeedscopeProfileKind,
    SpeedscopeUnit,
};
use super::write::SCHEMA_URL;
use crate::data_model::labels::SampleLabel;
use crate::data_model::model::{Dictionary, Profile, ValueType};
use crate::data_model::symbols::NO_ENTRY;
use crate::encoding::decimal::Decimal;
use crate::encoding::hash::PrehashedMap;
use crate::formats::json::JsonError;
use crate::formats::limits::{ExpandedFrameCounter, OverLimitError, check_limit};
use crate::formats::pprof::DecodeLimits;
use crate::formats::sparse_values::{self, SparseCell, SparseRowsError};

/// Label with the name of the document's profile that a sample belongs to.
const PROFILE_NAME_LABEL: &str = "profile_name";

/// Reason that bytes are not a readable speedscope document. Profiles, samples and events count from 0.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpeedscopeError {
    /// The bytes are not such a document.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The document has another schema.
    #[error("$schema is {0:?}; must be {SCHEMA_URL:?}")]
    Schema(String),
    /// The document has no profiles.
    #[error("the document has no profiles")]
    NoProfiles,
    /// Missing field that profiles of this kind need.
    #[error("profiles[{profile}]: missing field `{field}`")]
    Missing {
        /// Index of the profile.
        profile: usize,
        /// Name of the field.
        field: &'static str,
    },
    /// Frame number that is out of range.
    #[error(
        "profiles[{profile}].{list}[{at}]: frame index {frame} is out of range, shared.frames has {frames} entries"
    )]
    NoFrame {
        /// Index of the profile.
        profile: usize,
        /// Name of the list, `samples` or `events`.
        list: &'static str,
        /// Index in the list.
        at: usize,
        /// Frame number that was given.
        frame: u32,
        /// Number of frames in the document.
        frames: usize,
    },
    /// Numbers of samples and weights that differ.
    #[error("profiles[{profile}]: {samples} samples and {weights} weights; each sample needs one weight")]
    Weights {
        /// Index of the profile.
        profile: usize,
        /// Number of samples in the profile.
        samples: usize,
        /// Number of weights in the profile.
        weights: usize,
    },
    /// Event with a time before that of its predecessor.
    #[error("profiles[{profile}].events[{at}]: time {time} is before that of the previous event, {before}")]
    Backwards {
        /// Index of the profile.
        profile: usize,
        /// Index of the event.
        at: usize,
        /// Time of the event.
        time: String,
        /// Time of the previous event.
        before: String,
    },
    /// Event that ends a frame other than the innermost open one.
    #[error("profiles[{profile}].events[{at}]: ends frame {frame}, {}", innermost(.open))]
    NotOpen {
        /// Index of the profile.
        profile: usize,
        /// Index of the event.
        at: usize,
        /// Frame that the event ends.
        frame: u32,
        /// Innermost open frame, if any.
        open: Option<u32>,
    },
    /// Value that does not fit into 63 bits.
    #[error(
        "profiles[{profile}]: the values of a stack add up to {sum} {from}, which is more than 63 bits of {to}"
    )]
    TooLarge {
        /// Index of the profile.
        profile: usize,
        /// Sum of the values.
        sum: String,
        /// Unit in the document.
        from: &'static str,
        /// Unit in the resulting profile.
        to: &'static str,
    },
    /// Values of several profiles with different units of one type that do not fit into 63 bits.
    #[error("the values of a stack in all profiles add up to more than 63 bits of {0}")]
    Overflow(String),
    /// Quantity over a limit.
    #[error("profiles[{profile}]: {over}")]
    OverLimit {
        /// Index of the profile, or the one after the last.
        profile: usize,
        /// Quantity, value seen and limit.
        over: OverLimitError,
    },
}

fn innermost(open: &Option<u32>) -> String {
    match open {
        None => "but no frame is open".to_owned(),
        Some(open) => format!("but the innermost open frame is {open}"),
    }
}

/// Reads a document into one profile. Each type of its profiles becomes a value type. Profiles of the same
/// type are added up, and a label has the name of the profile that a sample belongs to.
///
/// The unit alone gives the type. Only documents of our own writer name it.
pub fn parse(bytes: &[u8], limits: &DecodeLimits) -> Result<Profile, SpeedscopeError> {
    let mut profile = Profile::default();
    let SpeedscopeDocument { exporter, active, frames, profiles, .. } =
        document::read(bytes, limits, &mut profile.dictionary)?;
    if profiles.is_empty() {
        return Err(SpeedscopeError::NoProfiles);
    }
    let count = profiles.len();
    let over = |profile| move |over| SpeedscopeError::OverLimit { profile, over };
    let mut types = ValueTypeColumns::default();
    let mut sums: BTreeMap<(usize, u32, SpeedscopeUnit), SpeedscopeStackSums> = BTreeMap::new();
    let mut reading = SpeedscopeReader::new(&frames, limits);
    for (number, draft) in profiles.into_iter().enumerate() {
        let missing = |field| SpeedscopeError::Missing { profile: number, field };
        let unit = draft.unit.ok_or_else(|| missing("unit"))?;
        let kind = draft.kind.ok_or_else(|| missing("type"))?;
        let name = draft.name.as_deref().unwrap_or_default();
        let is_own = exporter == OWN_EXPORTER_NAME && !name.is_empty();
        let column = types.column(if is_own {
            ValueType::new(name, unit.profile_unit())
        } else {
            unit.default_value_type()
        });
        check_limit("types", types.all.len(), limits.types).map_err(over(number))?;
        if active == Some(number) {
            profile.header.default_type = types.all[column].kind.clone();
        }
        let labels = if is_own || name.is_empty() { 0 } else { named(&mut profile.dictionary, name) };
        let sums =
            sums.entry((column, labels, unit)).or_insert_with(|| SpeedscopeStackSums::new(number, unit));
        reading.add_profile(number, kind, &draft, &mut profile.dictionary, sums)?;
    }
    let mut cells = Vec::new();
    for ((column, labels, _), sums) in sums {
        for cell in sums.into_cells() {
            cells.push(SparseCell { labels, column, ..cell? });
        }
    }
    profile.samples =
        sparse_values::rows_from_cells(cells, types.all.len(), limits).map_err(|error| match error {
            SparseRowsError::Over(seen) => over(count)(seen),
            SparseRowsError::Overflow(column) => SpeedscopeError::Overflow(types.all[column].unit.clone()),
        })?;
    profile.header.types = types.all;
    Ok(profile)
}

/// Value types in the order of a document.
#[derive(Default)]
struct ValueTypeColumns {
    all: Vec<ValueType>,
    columns: BTreeMap<ValueType, usize>,
}

impl ValueTypeColumns {
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
    let label = SampleLabel {
        key: strings.intern(PROFILE_NAME_LABEL),
        text: strings.intern(name),
        number: 0,
        unit: 0,
    };
    dictionary.label_sets.intern(strings, &[label])
}

/// Sums of values by stack, in one unit.
pub(super) struct SpeedscopeStackSums {
    /// First profile with values in these sums.
    first: usize,
    unit: SpeedscopeUnit,
    of_stacks: PrehashedMap<u32, Decimal>,
}

impl SpeedscopeStackSums {
    pub(super) fn new(first: usize, unit: SpeedscopeUnit) -> Self {
        SpeedscopeStackSums { first, unit, of_stacks: PrehashedMap::default() }
    }

    /// Returns the first profile with values in these sums.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    pub(super) fn unit(&self) -> SpeedscopeUnit {
        self.unit
    }

    /// Returns the sums as one column of samples without labels.
    pub(super) fn into_cells(self) -> impl Iterator<Item = Result<SparseCell, SpeedscopeError>> {
        let SpeedscopeStackSums { first, unit, of_stacks } = self;
        of_stacks.into_iter().map(move |(stack, sum)| {
            let value = sum.to_units(unit.digits()).ok_or_else(|| unit.too_large(first, sum))?;
            Ok(SparseCell { stack, labels: 0, column: 0, value })
        })
    }

    fn add(&mut self, profile: usize, stack: u32, value: Decimal) -> Result<(), SpeedscopeError> {
        let sum = self.of_stacks.entry(stack).or_default();
        *sum = sum.checked_add(value).ok_or_else(|| self.unit.too_large(profile, *sum))?;
        Ok(())
    }
}

// === samples and events ===

pub(super) struct SpeedscopeReader<'a> {
    frames: &'a [u32],
    limits: &'a DecodeLimits,
    written_out: ExpandedFrameCounter,
}

impl<'a> SpeedscopeReader<'a> {
    pub(super) fn new(frames: &'a [u32], limits: &'a DecodeLimits) -> Self {
        SpeedscopeReader { frames, limits, written_out: ExpandedFrameCounter::default() }
    }

    /// Adds the values of the profile with index `number`.
    pub(super) fn add_profile(
        &mut self,
        number: usize,
        kind: SpeedscopeProfileKind,
        draft: &RawSpeedscopeProfile,
        dictionary: &mut Dictionary,
        sums: &mut SpeedscopeStackSums,
    ) -> Result<(), SpeedscopeError> {
        match kind {
            SpeedscopeProfileKind::Sampled => self.add_sampled(number, draft, dictionary, sums),
            SpeedscopeProfileKind::Evented => self.add_evented(number, draft, dictionary, sums),
        }
    }

    fn location(
        &self,
        frame: u32,
        profile: usize,
        list: &'static str,
        at: usize,
    ) -> Result<u32, SpeedscopeError> {
        let frames = self.frames.len();
        let no_frame = || SpeedscopeError::NoFrame { profile, list, at, frame, frames };
        self.frames.get(frame as usize).copied().ok_or_else(no_frame)
    }

    fn add_sampled(
        &self,
        profile: usize,
        draft: &RawSpeedscopeProfile,
        dictionary: &mut Dictionary,
        sums: &mut SpeedscopeStackSums,
    ) -> Result<(), SpeedscopeError> {
        let missing = |field| SpeedscopeError::Missing { profile, field };
        let stacks = draft.stacks.as_ref().ok_or_else(|| missing("samples"))?;
        let weights = draft.weights.as_ref().ok_or_else(|| missing("weights"))?;
        if stacks.len() != weights.len() {
            let samples = stacks.len();
            let weights = weights.len();
            return Err(SpeedscopeError::Weights { profile, samples, weights });
        }
        let mut path = Vec::new();
        for (at, (stack, &weight)) in stacks.iter().zip(weights).enumerate() {
            path.clear();
            for &frame in stack.iter().rev() {
                path.push(self.location(frame, profile, "samples", at)?);
            }
            let stack = dictionary.stacks.intern(&dictionary.symbols, &path);
            check_limit("frames in different stacks", dictionary.stacks.nodes().len(), self.limits.frames)
                .map_err(|over| SpeedscopeError::OverLimit { profile, over })?;
            sums.add(profile, stack, weight)?;
        }
        Ok(())
    }

    /// Adds an evented profile. The time between two events belongs to the innermost open frame. If no frame
    /// is open, the time is not counted. Frames still open at the last event last until the profile ends.
    fn add_evented(
        &mut self,
        profile: usize,
        draft: &RawSpeedscopeProfile,
        dictionary: &mut Dictionary,
        sums: &mut SpeedscopeStackSums,
    ) -> Result<(), SpeedscopeError> {
        let events = draft.events.as_ref();
        let events = events.ok_or(SpeedscopeError::Missing { profile, field: "events" })?;
        // Open frames, with their nodes in the tree of stacks.
        let mut open: Vec<(u32, u32)> = Vec::new();
        let mut passed: PrehashedMap<u32, Decimal> = PrehashedMap::default();
        let mut last = events.first().map(|event| event.at).unwrap_or_default();
        let unit = sums.unit;
        let mut pass = |open: &[(u32, u32)], time: Decimal| -> Result<(), SpeedscopeError> {
            let Some(&(_, node)) = open.last() else { return Ok(()) };
            let sum = passed.entry(node).or_default();
            *sum = sum.checked_add(time).ok_or_else(|| unit.too_large(profile, *sum))?;
            Ok(())
        };
        for (at, &FrameEvent { kind, frame, at: time }) in events.iter().enumerate() {
            let since = time.checked_sub(last).filter(|since| *since >= Decimal::default());
            let since = since.ok_or_else(|| {
                let time = time.to_string();
                let before = last.to_string();
                SpeedscopeError::Backwards { profile, at, time, before }
            })?;
            pass(&open, since)?;
            last = time;
            if kind == FrameEventKind::Open {
                let location = self.location(frame, profile, "events", at)?;
                let parent = open.last().map_or(NO_ENTRY, |&(_, node)| node);
                open.push((frame, dictionary.stacks.intern_child(parent, location)));
                check_limit("frames in a stack", open.len(), self.limits.depth)
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
        let rest = draft.end.and_then(|end| end.checked_sub(last)).unwrap_or_default();
        pass(&open, rest.max(Decimal::default()))?;
        let mut passed: Vec<(u32, Decimal)> = passed.into_iter().collect();
        passed.retain(|(_, time)| *time != Decimal::default());
        passed.sort_unstable_by_key(|(node, _)| *node);
        for (node, time) in passed {
            let (stack, depth) = dictionary.intern_stack_at(node);
            let counted = self.written_out.add_stack(depth, self.limits);
            counted.map_err(|over| SpeedscopeError::OverLimit { profile, over })?;
            sums.add(profile, stack, time)?;
        }
        Ok(())
    }
}

// === units ===

impl SpeedscopeUnit {
    fn name(self) -> &'static str {
        match self {
            SpeedscopeUnit::None => "without unit",
            SpeedscopeUnit::Nanoseconds => "nanoseconds",
            SpeedscopeUnit::Microseconds => "microseconds",
            SpeedscopeUnit::Milliseconds => "milliseconds",
            SpeedscopeUnit::Seconds => "seconds",
            SpeedscopeUnit::Bytes => "bytes",
        }
    }

    /// Returns the unit of the values in the resulting profile.
    pub(super) fn profile_unit(self) -> &'static str {
        match self {
            SpeedscopeUnit::None => "count",
            SpeedscopeUnit::Bytes => "bytes",
            _ => "nanoseconds",
        }
    }

    /// Returns the value type of a profile with only a unit.
    fn default_value_type(self) -> ValueType {
        let kind = match self {
            SpeedscopeUnit::None => "samples",
            SpeedscopeUnit::Bytes => "space",
            _ => "wall",
        };
        ValueType::new(kind, self.profile_unit())
    }

    /// Returns the number of decimal places that become whole in the resulting profile.
    fn digits(self) -> u32 {
        match self {
            SpeedscopeUnit::None | SpeedscopeUnit::Nanoseconds | SpeedscopeUnit::Bytes => 0,
            SpeedscopeUnit::Microseconds => 3,
            SpeedscopeUnit::Milliseconds => 6,
            SpeedscopeUnit::Seconds => 9,
        }
    }

    fn too_large(self, profile: usize, sum: Decimal) -> SpeedscopeError {
        let sum = sum.to_string();
        let from = self.name();
        let to = self.profile_unit();
        SpeedscopeError::TooLarge { profile, sum, from, to }
    }
}
