//! Sample rows as a head keeps them: a few bytes each, by stack.
//!
//! One profile's rows are sorted by stack; each is the step to its stack, its value and, where some row of the
//! profile has them, its span and trace, and the moments at which it was measured. They stay so from the log entry to
//! the cut: a query walks them as they are, and passes moments over.

use athanor_profile::Moments;
use athanor_profile::packed::{PackedError, Unpacker, put, put_bytes, put_signed};

/// Some row names a span.
const SPANS: u8 = 1;
/// Some row names a trace.
const TRACES: u8 = 2;
/// Some row says moments: the first of all follows, and each row has its own as steps from there.
const MOMENTS: u8 = 4;

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The stack.
    pub stack: u32,
    /// The span that was running, 0 if none is known.
    pub span: u64,
    /// The trace that the span belongs to, 0 if none is known.
    pub trace: u128,
    /// The value.
    pub value: i64,
}

/// A row as it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The stack.
    pub stack: u32,
    /// Its place in the profile, where its moments are.
    pub place: u32,
    /// The span that was running, 0 if none is known.
    pub span: u64,
    /// The trace that the span belongs to, 0 if none is known.
    pub trace: u128,
    /// The value.
    pub value: i64,
}

impl Sent {
    /// What rows that are added up have in common.
    pub fn key(&self) -> (u32, u64, u128) {
        (self.stack, self.span, self.trace)
    }
}

/// Sorts rows, and forgets them where nothing is left of any stack and span.
pub fn normalise(rows: &mut Vec<Sent>) {
    rows.sort_unstable_by_key(Sent::key);
    if kept(rows).next().is_none() {
        rows.clear();
    }
}

/// Sorts rows, adds up those of one stack and span, drops what is then zero, and appends the rest; gives their number.
pub fn pack(rows: &mut [Sent], moments: &Moments, out: &mut Vec<u8>) -> u32 {
    rows.sort_unstable_by_key(Sent::key);
    let mut flags = 0;
    let mut base = None;
    for (same, _) in kept(rows) {
        flags |= if same[0].span != 0 { SPANS } else { 0 } | if same[0].trace != 0 { TRACES } else { 0 };
        if !moments.is_empty() {
            let first = times(same, moments).min();
            base = base.into_iter().chain(first).min();
        }
    }
    let (mut of_row, mut steps) = (Vec::new(), Vec::new());
    let (mut before, mut count) = (0, 0);
    for (same, value) in kept(rows) {
        if count == 0 {
            out.push(flags | if base.is_some() { MOMENTS } else { 0 });
            base.into_iter().for_each(|base| put_signed(out, base));
        }
        let Sent { stack, span, trace, .. } = same[0];
        put(out, u64::from(stack - before));
        put_signed(out, value);
        if flags & SPANS != 0 {
            out.extend_from_slice(&span.to_le_bytes());
        }
        if flags & TRACES != 0 {
            out.extend_from_slice(&trace.to_le_bytes());
        }
        if let Some(base) = base {
            of_row.clear();
            of_row.extend(times(same, moments));
            put_times(base, &mut of_row, &mut steps);
            put_bytes(out, &steps);
        }
        (before, count) = (stack, count + 1);
    }
    count
}

/// Rows of one stack and span, and their sum, where that is not zero.
pub fn kept(rows: &[Sent]) -> impl Iterator<Item = (&[Sent], i64)> {
    let sums = rows.chunk_by(|a, b| a.key() == b.key()).map(|same| {
        let sum = same.iter().fold(0, |sum: i64, row| sum.wrapping_add(row.value));
        (same, sum)
    });
    sums.filter(|(_, sum)| *sum != 0)
}

fn times<'a>(rows: &'a [Sent], moments: &'a Moments) -> impl Iterator<Item = i64> + 'a {
    rows.iter().flat_map(|row| moments.of(row.place as usize)).copied()
}

/// The steps from `base` to the first and on to the last; none comes before it.
fn put_times(base: i64, times: &mut [i64], out: &mut Vec<u8>) {
    times.sort_unstable();
    out.clear();
    let mut at = base;
    for &time in &*times {
        put(out, time.wrapping_sub(at) as u64);
        at = time;
    }
}

/// Walks packed rows.
#[inline]
pub fn each(packed: &[u8], mut row: impl FnMut(Row)) -> Result<(), PackedError> {
    walk(packed, |of_row, _, _| {
        row(of_row);
        Ok(())
    })
}

/// As [`each`], with the moments of each row, ascending.
pub fn each_with_moments(packed: &[u8], mut row: impl FnMut(Row, &[i64])) -> Result<(), PackedError> {
    let mut times = Vec::new();
    walk(packed, |of_row, base, steps| {
        times.clear();
        let (mut unpacker, mut at) = (Unpacker::new(steps), base);
        while !unpacker.is_done() {
            at = at.wrapping_add(unpacker.number()? as i64);
            times.push(at);
        }
        row(of_row, &times);
        Ok(())
    })
}

/// Walks packed rows, with what all moments begin at and the steps of each row's.
#[inline]
fn walk(
    packed: &[u8],
    mut row: impl FnMut(Row, i64, &[u8]) -> Result<(), PackedError>,
) -> Result<(), PackedError> {
    let mut unpacker = Unpacker::new(packed);
    let flags = unpacker.take(1)?[0];
    if flags & !(SPANS | TRACES | MOMENTS) != 0 {
        return Err(unpacker.wrong("rows with what this version does not know"));
    }
    let base = if flags & MOMENTS != 0 { unpacker.signed()? } else { 0 };
    let mut stack = 0u32;
    while !unpacker.is_done() {
        let wrong = unpacker.wrong("a stack over 32 bits");
        stack = stack.checked_add(unpacker.small()?).ok_or(wrong)?;
        let value = unpacker.signed()?;
        let (mut span, mut trace) = ([0; 8], [0; 16]);
        if flags & SPANS != 0 {
            span.copy_from_slice(unpacker.take(8)?);
        }
        if flags & TRACES != 0 {
            trace.copy_from_slice(unpacker.take(16)?);
        }
        let steps = if flags & MOMENTS != 0 { unpacker.bytes()? } else { &[] };
        let of_row = Row { stack, span: u64::from_le_bytes(span), trace: u128::from_le_bytes(trace), value };
        row(of_row, base, steps)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A row's stack, span, trace, value and moments.
    type Raw = (u32, u64, u128, i64, Vec<i64>);

    fn raw() -> impl Strategy<Value = Vec<Raw>> {
        let moments = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(any::<i64>(), 0..4)];
        prop::collection::vec((0u32..50, 0u64..3, 0u128..2, any::<i64>(), moments), 0..60)
    }

    proptest! {
        #[test]
        fn rows_come_back_added_up_and_in_order(raw in raw()) {
            let (mut sent, mut moments) = (Vec::new(), Moments::default());
            let mut expected: BTreeMap<(u32, u64, u128), (i64, Vec<i64>)> = BTreeMap::new();
            for (place, (stack, span, trace, value, times)) in (0u32..).zip(&raw) {
                let (stack, span, trace, value) = (*stack, *span, *trace, *value);
                sent.push(Sent { stack, place, span, trace, value });
                moments.add(place as usize, times.iter().copied());
                let of_key = expected.entry((stack, span, trace)).or_default();
                of_key.0 = of_key.0.wrapping_add(value);
                of_key.1.extend(times);
                of_key.1.sort_unstable();
            }
            expected.retain(|_, (value, _)| *value != 0);
            let mut packed = Vec::new();
            let count = pack(&mut sent, &moments, &mut packed);
            prop_assert_eq!((count as usize, packed.is_empty()), (expected.len(), expected.is_empty()));
            if packed.is_empty() {
                return Ok(());
            }
            let rows = expected.into_iter().map(|((stack, span, trace), (value, times))| {
                (Row { stack, span, trace, value }, times)
            });
            let (rows, times): (Vec<Row>, Vec<Vec<i64>>) = rows.unzip();
            let (mut plain, mut with, mut of_rows) = (Vec::new(), Vec::new(), Vec::new());
            each(&packed, |row| plain.push(row)).unwrap();
            each_with_moments(&packed, |row, times| {
                with.push(row);
                of_rows.push(times.to_vec());
            })
            .unwrap();
            prop_assert_eq!((&plain, &with, &of_rows), (&rows, &rows, &times));
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let plain = each(&bytes, |_| {});
            let with = each_with_moments(&bytes, |_, _| {});
            prop_assert!(plain.is_ok() || with.is_err());
        }
    }

    /// As versions wrote them that knew no moments.
    #[test]
    fn rows_without_moments_are_the_bytes_that_they_were() {
        let row = |stack, span, value| Sent { stack, place: 0, span, trace: 0, value };
        let mut packed = Vec::new();
        pack(&mut [row(3, 0, 1), row(2, 0, 5)], &Moments::default(), &mut packed);
        pack(&mut [row(1, 7, -1)], &Moments::default(), &mut packed);
        assert_eq!(packed, [0, 2, 10, 1, 2, 1, 1, 1, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert!(each(&[8, 1, 2], |_| {}).is_err(), "a later version may write what is not read here");
    }
}
