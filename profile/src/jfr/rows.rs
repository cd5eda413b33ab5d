//! Rows of a profile while events are read, and the profile as pprof when all are.

use super::kinds::{KINDS, Kind, KindId};
use super::snapshot::Snapshot;
use super::stacks::Stacks;
use super::{JfrError, Limits};
use crate::hash::SeededMap;
use crate::numbering::{Numbering, Texts};
use crate::pprof::wire::{message, number, packed};

/// What one kind of profile adds up to.
#[derive(Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
    places: SeededMap<u64, u32>,
    /// Samples that were left out since they have no stack.
    pub(super) without_stack: u64,
    /// Why this kind is refused, whatever else it would have.
    refused: Option<JfrError>,
}

struct Row {
    stack: u32,
    context: u32,
    values: [i64; 2],
}

/// What a sample's labels come from; numbers that the snapshot of labels explains, or ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Context {
    pub(super) labels: u64,
    pub(super) span: u64,
    pub(super) span_name: u64,
    pub(super) trace: [u64; 2],
}

/// When a recording was made, and how often threads were looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) start: i64,
    pub(super) duration: i64,
    pub(super) period: i64,
}

impl Rows {
    /// Whether the recording says nothing of this kind.
    pub(super) fn is_unknown(&self) -> bool {
        self.rows.is_empty() && self.without_stack == 0 && self.refused.is_none()
    }

    /// Whether what is added is still of use.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.refused.is_none()
    }

    /// Adds to a stack with its context.
    #[inline]
    pub(super) fn add(&mut self, kind: KindId, (stack, context): (u32, u32), values: [i64; 2], limit: usize) {
        let key = u64::from(stack) << 32 | u64::from(context);
        let new = self.rows.len() as u32;
        let place = *self.places.entry(key).or_insert(new);
        if place == new {
            if self.rows.len() == limit {
                let (kind, what, seen) = (KINDS[kind].name(), "samples", limit + 1);
                self.refuse(JfrError::Profile { kind, what, seen, limit });
            } else {
                self.rows.push(Row { stack, context, values });
            }
            return;
        }
        let sums = &mut self.rows[place as usize].values;
        match (sums[0].checked_add(values[0]), sums[1].checked_add(values[1])) {
            (Some(first), Some(second)) => *sums = [first, second],
            _ => self.refuse(JfrError::Overflow { kind: KINDS[kind].name() }),
        }
    }

    /// Lets go of what was added, and keeps why.
    pub(super) fn refuse(&mut self, error: JfrError) {
        let without_stack = self.without_stack;
        *self = Rows { without_stack, refused: Some(error), ..Rows::default() };
    }
}

/// Writes profiles of one recording.
pub(super) struct Writer<'a> {
    pub(super) stacks: &'a Stacks,
    pub(super) contexts: &'a [Context],
    pub(super) snapshot: &'a Snapshot<'a>,
    pub(super) times: Times,
    pub(super) limits: &'a Limits,
}

impl Writer<'_> {
    /// A profile as pprof that is not compressed; nothing if no sample has a stack.
    pub(super) fn pprof(&self, kind: &'static Kind, rows: &Rows) -> Result<Vec<u8>, JfrError> {
        if let Some(error) = &rows.refused {
            return Err(error.clone());
        }
        if rows.rows.is_empty() {
            return Ok(Vec::new());
        }
        let mut out = Vec::new();
        let numbers = vec![0; self.snapshot.places()];
        let mut known = Known { snapshot: self.snapshot, texts: Texts::default(), numbers };
        for value_type in kind.types {
            self.value_type(&mut out, 1, *value_type, &mut known.texts);
        }
        let mut locations = Numbering::default();
        let mut content = Vec::new();
        for row in &rows.rows {
            content.clear();
            let path = self.stacks.locations(row.stack).iter();
            packed(&mut content, 1, path.map(|&location| locations.number(location)));
            packed(&mut content, 2, row.values[..kind.types.len()].iter().map(|&value| value as u64));
            known.labels(&mut content, &self.contexts[row.context as usize]);
            message(&mut out, 2, &content);
            self.check(kind, out.len())?;
        }
        let Known { mut texts, .. } = known;
        let mut functions = Numbering::default();
        for (id, &location) in (1..).zip(&locations.order) {
            let (function, line) = self.stacks.locations[location as usize];
            content.clear();
            let mut inner = Vec::new();
            number(&mut inner, 1, functions.number(function));
            number(&mut inner, 2, u64::from(line));
            number(&mut content, 1, id);
            message(&mut content, 4, &inner);
            message(&mut out, 4, &content);
            self.check(kind, out.len())?;
        }
        if let Some(period) = kind.period {
            self.value_type(&mut out, 11, period, &mut texts);
        }
        if kind.is_time() {
            number(&mut out, 12, self.times.period as u64);
        }
        number(&mut out, 9, self.times.start as u64);
        number(&mut out, 10, self.times.duration as u64);
        texts.iter().for_each(|text| message(&mut out, 6, text.as_bytes()));
        self.check(kind, out.len())?;
        let first = texts.iter().count() as u64;
        for (id, &function) in (1..).zip(&functions.order) {
            content.clear();
            number(&mut content, 1, id);
            number(&mut content, 2, first + id - 1);
            message(&mut out, 5, &content);
            message(&mut out, 6, self.stacks.functions.get(function).as_bytes());
            self.check(kind, out.len())?;
        }
        Ok(out)
    }

    fn value_type(&self, out: &mut Vec<u8>, field: u64, (kind, unit): (&str, &str), texts: &mut Texts) {
        let mut content = Vec::new();
        number(&mut content, 1, texts.number(kind));
        number(&mut content, 2, texts.number(unit));
        message(out, field, &content);
    }

    fn check(&self, kind: &'static Kind, seen: usize) -> Result<(), JfrError> {
        let limit = self.limits.profile;
        if seen > limit {
            Err(JfrError::Profile { kind: kind.name(), what: "bytes", seen, limit })
        } else {
            Ok(())
        }
    }
}

/// The texts of one profile, and which of them are those of the snapshot: each of these is read once.
struct Known<'a> {
    snapshot: &'a Snapshot<'a>,
    texts: Texts,
    /// By place in the snapshot; 0 where it was not read yet, which no text has that says something.
    numbers: Vec<u64>,
}

impl Known<'_> {
    fn number(&mut self, place: u32) -> u64 {
        let number = &mut self.numbers[place as usize];
        if *number == 0 {
            *number = self.texts.number(&String::from_utf8_lossy(self.snapshot.text(place)));
        }
        *number
    }

    /// Writes the labels of a sample.
    fn labels(&mut self, content: &mut Vec<u8>, context: &Context) {
        if *context == Context::default() {
            return;
        }
        let mut label = |name: u64, value: u64| {
            let mut inner = Vec::new();
            number(&mut inner, 1, name);
            number(&mut inner, 2, value);
            message(content, 3, &inner);
        };
        for (name, value) in self.snapshot.labels(context.labels) {
            label(self.number(name), self.number(value));
        }
        if context.span != 0 {
            let span = format!("{:016x}", context.span);
            label(self.texts.number("profile_id"), self.texts.number(&span));
        }
        if let Some(place) = self.snapshot.place(context.span_name) {
            label(self.texts.number("span_name"), self.number(place));
        }
        if context.trace != [0; 2] {
            let trace = format!("{:016x}{:016x}", context.trace[0], context.trace[1]);
            label(self.texts.number("trace_id"), self.texts.number(&trace));
        }
    }
}
