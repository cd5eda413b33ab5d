//! Rows of a profile while events are read, and the profile as pprof when all are.

use super::kinds::Kind;
use super::snapshot::Snapshot;
use super::stacks::Stacks;
use super::{JfrError, Limits};
use crate::hash::HashedMap;
use crate::numbering::{Numbering, Texts};
use crate::pprof::wire::{message, number, packed};

/// What one kind of profile adds up to.
#[derive(Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
    places: HashedMap<u64, u32>,
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
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds to a stack with its context.
    #[inline]
    pub(super) fn add(
        &mut self,
        stack: u32,
        context: u32,
        values: [i64; 2],
        limit: usize,
    ) -> Result<(), usize> {
        let key = u64::from(stack) << 32 | u64::from(context);
        let new = self.rows.len() as u32;
        let place = *self.places.entry(key).or_insert(new);
        if place == new {
            if self.rows.len() == limit {
                return Err(limit + 1);
            }
            self.rows.push(Row { stack, context, values });
            return Ok(());
        }
        let row = &mut self.rows[place as usize];
        for (sum, value) in row.values.iter_mut().zip(values) {
            *sum = sum.wrapping_add(value);
        }
        Ok(())
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
    /// A profile as pprof that is not compressed.
    pub(super) fn pprof(&self, kind: &'static Kind, rows: &Rows) -> Result<Vec<u8>, JfrError> {
        let (mut out, mut texts) = (Vec::new(), Texts::default());
        for value_type in kind.types {
            self.value_type(&mut out, 1, *value_type, &mut texts);
        }
        let mut locations = Numbering::default();
        let mut content = Vec::new();
        for row in &rows.rows {
            content.clear();
            let path = self.stacks.locations(row.stack).iter();
            packed(&mut content, 1, path.map(|&location| locations.number(location)));
            packed(&mut content, 2, row.values[..kind.types.len()].iter().map(|&value| value as u64));
            self.labels(&mut content, &self.contexts[row.context as usize], &mut texts);
            message(&mut out, 2, &content);
            self.check(kind, out.len())?;
        }
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

    fn labels(&self, content: &mut Vec<u8>, context: &Context, texts: &mut Texts) {
        if *context == Context::default() {
            return;
        }
        let mut label = |name: &str, value: &str| {
            let mut inner = Vec::new();
            number(&mut inner, 1, texts.number(name));
            number(&mut inner, 2, texts.number(value));
            message(content, 3, &inner);
        };
        for (name, value) in self.snapshot.labels(context.labels) {
            label(&String::from_utf8_lossy(name), &String::from_utf8_lossy(value));
        }
        if context.span != 0 {
            label("profile_id", &format!("{:016x}", context.span));
        }
        if let Some(name) = self.snapshot.text(context.span_name) {
            label("span_name", &String::from_utf8_lossy(name));
        }
        if context.trace != [0; 2] {
            label("trace_id", &format!("{:016x}{:016x}", context.trace[0], context.trace[1]));
        }
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
