//! Rows of each profile while events are read, and their encoding as pprof.

use super::profile_kinds::{JfrProfileKind, JfrProfileKindId, PROFILE_KINDS};
use super::snapshot::LabelsSnapshot;
use super::stacks::JfrStacks;
use super::{JfrError, JfrLimits};
use crate::encoding::hash::SeededMap;
use crate::encoding::numbering::{EntryNumbering, TextNumbering};
use crate::formats::pprof::wire::{write_message, write_number, write_packed};

/// Rows of one kind of profile.
#[derive(Default)]
pub(super) struct JfrRows {
    rows: Vec<JfrRow>,
    places: SeededMap<u64, u32>,
    /// Number of samples that were dropped because they have no stack.
    pub(super) without_stack: u64,
    /// Error that rejected this kind. Further samples are ignored.
    refused: Option<JfrError>,
}

struct JfrRow {
    stack: u32,
    context: u32,
    values: [i64; 2],
}

/// Source of a sample's labels: ids, and numbers that refer to the labels snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct JfrSampleContext {
    pub(super) labels: u64,
    pub(super) span: u64,
    pub(super) span_name: u64,
    pub(super) trace: [u64; 2],
}

/// Start, duration and sampling period of a recording.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordingTimes {
    pub(super) start: i64,
    pub(super) duration: i64,
    pub(super) period: i64,
}

impl JfrRows {
    /// Returns whether the recording has no sample of this kind.
    pub(super) fn is_unknown(&self) -> bool {
        self.rows.is_empty() && self.without_stack == 0 && self.refused.is_none()
    }

    /// Returns whether the kind still accepts samples.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.refused.is_none()
    }

    /// Adds values to the row of a stack and a context.
    #[inline]
    pub(super) fn add(
        &mut self,
        kind: JfrProfileKindId,
        stack: u32,
        context: u32,
        values: [i64; 2],
        limit: usize,
    ) {
        let key = u64::from(stack) << 32 | u64::from(context);
        let new = self.rows.len() as u32;
        let place = *self.places.entry(key).or_insert(new);
        if place == new {
            if self.rows.len() == limit {
                let kind = PROFILE_KINDS[kind].name();
                let what = "samples";
                let seen = limit + 1;
                self.refuse(JfrError::Profile { kind, what, seen, limit });
            } else {
                self.rows.push(JfrRow { stack, context, values });
            }
            return;
        }
        let sums = &mut self.rows[place as usize].values;
        match (sums[0].checked_add(values[0]), sums[1].checked_add(values[1])) {
            (Some(first), Some(second)) => *sums = [first, second],
            _ => self.refuse(JfrError::Overflow { kind: PROFILE_KINDS[kind].name() }),
        }
    }

    /// Rejects the kind: drops its rows and keeps the error.
    pub(super) fn refuse(&mut self, error: JfrError) {
        let without_stack = self.without_stack;
        *self = JfrRows { without_stack, refused: Some(error), ..JfrRows::default() };
    }
}

/// Encoder of the profiles of one recording.
pub(super) struct JfrPprofWriter<'a> {
    pub(super) stacks: &'a JfrStacks,
    pub(super) contexts: &'a [JfrSampleContext],
    pub(super) snapshot: &'a LabelsSnapshot<'a>,
    pub(super) times: RecordingTimes,
    pub(super) limits: &'a JfrLimits,
}

impl JfrPprofWriter<'_> {
    /// Returns a profile as uncompressed pprof; empty if no sample has a stack.
    pub(super) fn pprof(&self, kind: &'static JfrProfileKind, rows: &JfrRows) -> Result<Vec<u8>, JfrError> {
        if let Some(error) = &rows.refused {
            return Err(error.clone());
        }
        if rows.rows.is_empty() {
            return Ok(Vec::new());
        }
        let mut out = Vec::new();
        let numbers = vec![0; self.snapshot.text_count()];
        let mut known = SnapshotTexts { snapshot: self.snapshot, texts: TextNumbering::default(), numbers };
        for &(type_name, unit) in kind.types {
            self.value_type(&mut out, 1, type_name, unit, &mut known.texts);
        }
        let mut locations = EntryNumbering::default();
        let mut content = Vec::new();
        for row in &rows.rows {
            content.clear();
            let path = self.stacks.locations(row.stack).iter();
            write_packed(&mut content, 1, path.map(|&location| locations.assign_number(location)));
            write_packed(&mut content, 2, row.values[..kind.types.len()].iter().map(|&value| value as u64));
            known.labels(&mut content, &self.contexts[row.context as usize]);
            write_message(&mut out, 2, &content);
            self.check(kind, out.len())?;
        }
        let SnapshotTexts { mut texts, .. } = known;
        let mut functions = EntryNumbering::default();
        for (id, &location) in (1..).zip(&locations.order) {
            let (function, line) = self.stacks.locations[location as usize];
            content.clear();
            let mut inner = Vec::new();
            write_number(&mut inner, 1, functions.assign_number(function));
            write_number(&mut inner, 2, u64::from(line));
            write_number(&mut content, 1, id);
            write_message(&mut content, 4, &inner);
            write_message(&mut out, 4, &content);
            self.check(kind, out.len())?;
        }
        if let Some((type_name, unit)) = kind.period {
            self.value_type(&mut out, 11, type_name, unit, &mut texts);
        }
        if kind.is_time() {
            write_number(&mut out, 12, self.times.period as u64);
        }
        write_number(&mut out, 9, self.times.start as u64);
        write_number(&mut out, 10, self.times.duration as u64);
        texts.iter().for_each(|text| write_message(&mut out, 6, text.as_bytes()));
        self.check(kind, out.len())?;
        let first = texts.iter().count() as u64;
        for (id, &function) in (1..).zip(&functions.order) {
            content.clear();
            write_number(&mut content, 1, id);
            write_number(&mut content, 2, first + id - 1);
            write_message(&mut out, 5, &content);
            write_message(&mut out, 6, self.stacks.functions.get(function).as_bytes());
            self.check(kind, out.len())?;
        }
        Ok(out)
    }

    fn value_type(
        &self,
        out: &mut Vec<u8>,
        field: u64,
        type_name: &str,
        unit: &str,
        texts: &mut TextNumbering,
    ) {
        let mut content = Vec::new();
        write_number(&mut content, 1, texts.assign_number(type_name));
        write_number(&mut content, 2, texts.assign_number(unit));
        write_message(out, field, &content);
    }

    fn check(&self, kind: &'static JfrProfileKind, seen: usize) -> Result<(), JfrError> {
        let limit = self.limits.profile;
        if seen > limit {
            Err(JfrError::Profile { kind: kind.name(), what: "bytes", seen, limit })
        } else {
            Ok(())
        }
    }
}

/// String table of one profile. Each text of the snapshot is interned once.
struct SnapshotTexts<'a> {
    snapshot: &'a LabelsSnapshot<'a>,
    texts: TextNumbering,
    /// Number of each snapshot text in the string table; 0 if not interned yet. Only the empty text has
    /// number 0.
    numbers: Vec<u64>,
}

impl SnapshotTexts<'_> {
    fn number(&mut self, place: u32) -> u64 {
        let number = &mut self.numbers[place as usize];
        if *number == 0 {
            *number = self.texts.assign_number(&String::from_utf8_lossy(self.snapshot.text(place)));
        }
        *number
    }

    /// Writes the labels of a sample's context.
    fn labels(&mut self, content: &mut Vec<u8>, context: &JfrSampleContext) {
        if *context == JfrSampleContext::default() {
            return;
        }
        let mut label = |name: u64, value: u64| {
            let mut inner = Vec::new();
            write_number(&mut inner, 1, name);
            write_number(&mut inner, 2, value);
            write_message(content, 3, &inner);
        };
        for (name, value) in self.snapshot.labels(context.labels) {
            label(self.number(name), self.number(value));
        }
        if context.span != 0 {
            let span = format!("{:016x}", context.span);
            label(self.texts.assign_number("profile_id"), self.texts.assign_number(&span));
        }
        if let Some(place) = self.snapshot.text_index(context.span_name) {
            label(self.texts.assign_number("span_name"), self.number(place));
        }
        if context.trace != [0; 2] {
            let trace = format!("{:016x}{:016x}", context.trace[0], context.trace[1]);
            label(self.texts.assign_number("trace_id"), self.texts.assign_number(&trace));
        }
    }
}
