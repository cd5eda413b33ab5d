//! Encoding of sample rows in a head: a few bytes each, by stack.
//!
//! The rows of a profile are sorted by stack. Each is the step to its stack, its value and, if some row of
//! the profile has them, its span, trace and timestamps. The encoding stays the same from log entry to flush:
//! queries walk it as it is and skip timestamps.

use athanor_profile::SampleTimestamps;
use athanor_profile::encoding::codec::{CodecError, CodecReader, put_bytes, put_signed_varint, put_varint};

/// Flag: some row names a span.
const SPANS_FLAG: u8 = 1;
/// Flag: some row names a trace.
const TRACES_FLAG: u8 = 2;
/// Flag: some row has timestamps. The first of all follows, and each row has its own as steps from there.
const TIMESTAMPS_FLAG: u8 = 4;

/// Row of a head, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeadRow {
    /// Stack id in the head's dictionary.
    pub stack: u32,
    /// The span that was running, 0 if none is known.
    pub span: u64,
    /// The trace that the span belongs to, 0 if none is known.
    pub trace: u128,
    /// Value of the row.
    pub value: i64,
}

/// Row of an upload as it was sent.
#[derive(Clone, Copy, Debug)]
pub struct InputRow {
    /// Stack id in the head's dictionary.
    pub stack: u32,
    /// Place in the profile, by which its timestamps are found.
    pub place: u32,
    /// The span that was running, 0 if none is known.
    pub span: u64,
    /// The trace that the span belongs to, 0 if none is known.
    pub trace: u128,
    /// Value of the row.
    pub value: i64,
}

impl InputRow {
    /// Returns the key by which rows are added up.
    pub fn key(&self) -> (u32, u64, u128) {
        (self.stack, self.span, self.trace)
    }
}

/// Sorts rows, and clears them if all sums are zero.
pub fn normalize_rows(rows: &mut Vec<InputRow>) {
    rows.sort_unstable_by_key(InputRow::key);
    if summed_rows(rows).next().is_none() {
        rows.clear();
    }
}

/// Sorts rows, adds up those of one stack and span, and appends the sums that are not zero. Returns their
/// number.
pub fn pack_rows(rows: &mut [InputRow], moments: &SampleTimestamps, out: &mut Vec<u8>) -> u32 {
    rows.sort_unstable_by_key(InputRow::key);
    let mut flags = 0;
    let mut base = None;
    for (same, _) in summed_rows(rows) {
        flags |=
            if same[0].span != 0 { SPANS_FLAG } else { 0 } | if same[0].trace != 0 { TRACES_FLAG } else { 0 };
        if !moments.is_empty() {
            let first = times(same, moments).min();
            base = base.into_iter().chain(first).min();
        }
    }
    let mut of_row = Vec::new();
    let mut steps = Vec::new();
    let mut before = 0;
    let mut count = 0;
    for (same, value) in summed_rows(rows) {
        if count == 0 {
            out.push(flags | if base.is_some() { TIMESTAMPS_FLAG } else { 0 });
            base.into_iter().for_each(|base| put_signed_varint(out, base));
        }
        let InputRow { stack, span, trace, .. } = same[0];
        put_varint(out, u64::from(stack - before));
        put_signed_varint(out, value);
        if flags & SPANS_FLAG != 0 {
            out.extend_from_slice(&span.to_le_bytes());
        }
        if flags & TRACES_FLAG != 0 {
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

/// Returns groups of sorted rows with one stack and span, and their sums that are not zero.
pub fn summed_rows(rows: &[InputRow]) -> impl Iterator<Item = (&[InputRow], i64)> {
    let sums = rows.chunk_by(|a, b| a.key() == b.key()).map(|same| {
        let sum = same.iter().fold(0, |sum: i64, row| sum.wrapping_add(row.value));
        (same, sum)
    });
    sums.filter(|(_, sum)| *sum != 0)
}

fn times<'a>(rows: &'a [InputRow], moments: &'a SampleTimestamps) -> impl Iterator<Item = i64> + 'a {
    rows.iter().flat_map(|row| moments.row_timestamps(row.place as usize)).copied()
}

/// Encodes timestamps as steps from `base` on; none comes before it.
fn put_times(base: i64, times: &mut [i64], out: &mut Vec<u8>) {
    times.sort_unstable();
    out.clear();
    let mut at = base;
    for &time in &*times {
        put_varint(out, time.wrapping_sub(at) as u64);
        at = time;
    }
}

/// Visits the rows of packed bytes.
#[inline]
pub fn for_each_row(packed: &[u8], mut row: impl FnMut(HeadRow)) -> Result<(), CodecError> {
    walk(packed, |of_row, _, _| {
        row(of_row);
        Ok(())
    })
}

/// Visits rows as [`for_each_row`] does, with the timestamps of each, ascending.
pub fn for_each_timed_row(packed: &[u8], mut row: impl FnMut(HeadRow, &[i64])) -> Result<(), CodecError> {
    let mut times = Vec::new();
    walk(packed, |of_row, base, steps| {
        times.clear();
        let mut unpacker = CodecReader::new(steps);
        let mut at = base;
        while !unpacker.is_done() {
            at = at.wrapping_add(unpacker.read_number()? as i64);
            times.push(at);
        }
        row(of_row, &times);
        Ok(())
    })
}

/// Walks packed rows, with the base of all timestamps and the encoded steps of each row.
#[inline]
fn walk(
    packed: &[u8],
    mut row: impl FnMut(HeadRow, i64, &[u8]) -> Result<(), CodecError>,
) -> Result<(), CodecError> {
    let mut unpacker = CodecReader::new(packed);
    let flags = unpacker.read_slice(1)?[0];
    if flags & !(SPANS_FLAG | TRACES_FLAG | TIMESTAMPS_FLAG) != 0 {
        return Err(unpacker.error_here("unknown row flags, which another version may have written"));
    }
    let base = if flags & TIMESTAMPS_FLAG != 0 { unpacker.read_signed()? } else { 0 };
    let mut stack = 0u32;
    while !unpacker.is_done() {
        let wrong = unpacker.error_here("stack id over 32 bits");
        stack = stack.checked_add(unpacker.read_u32()?).ok_or(wrong)?;
        let value = unpacker.read_signed()?;
        let mut span = [0; 8];
        let mut trace = [0; 16];
        if flags & SPANS_FLAG != 0 {
            span.copy_from_slice(unpacker.read_slice(8)?);
        }
        if flags & TRACES_FLAG != 0 {
            trace.copy_from_slice(unpacker.read_slice(16)?);
        }
        let steps = if flags & TIMESTAMPS_FLAG != 0 { unpacker.read_bytes()? } else { &[] };
        let of_row =
            HeadRow { stack, span: u64::from_le_bytes(span), trace: u128::from_le_bytes(trace), value };
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
            let (mut sent, mut moments) = (Vec::new(), SampleTimestamps::default());
            let mut expected: BTreeMap<(u32, u64, u128), (i64, Vec<i64>)> = BTreeMap::new();
            for (place, (stack, span, trace, value, times)) in (0u32..).zip(&raw) {
                let (stack, span, trace, value) = (*stack, *span, *trace, *value);
                sent.push(InputRow { stack, place, span, trace, value });
                moments.add(place as usize, times.iter().copied());
                let of_key = expected.entry((stack, span, trace)).or_default();
                of_key.0 = of_key.0.wrapping_add(value);
                of_key.1.extend(times);
                of_key.1.sort_unstable();
            }
            expected.retain(|_, (value, _)| *value != 0);
            let mut packed = Vec::new();
            let count = pack_rows(&mut sent, &moments, &mut packed);
            prop_assert_eq!((count as usize, packed.is_empty()), (expected.len(), expected.is_empty()));
            if packed.is_empty() {
                return Ok(());
            }
            let rows = expected.into_iter().map(|((stack, span, trace), (value, times))| {
                (HeadRow { stack, span, trace, value }, times)
            });
            let (rows, times): (Vec<HeadRow>, Vec<Vec<i64>>) = rows.unzip();
            let (mut plain, mut with, mut of_rows) = (Vec::new(), Vec::new(), Vec::new());
            for_each_row(&packed, |row| plain.push(row)).unwrap();
            for_each_timed_row(&packed, |row, times| {
                with.push(row);
                of_rows.push(times.to_vec());
            })
            .unwrap();
            prop_assert_eq!((&plain, &with, &of_rows), (&rows, &rows, &times));
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let plain = for_each_row(&bytes, |_| {});
            let with = for_each_timed_row(&bytes, |_, _| {});
            prop_assert!(plain.is_ok() || with.is_err());
        }
    }

    /// As versions wrote them that knew no moments.
    #[test]
    fn rows_without_moments_are_the_bytes_that_they_were() {
        let row = |stack, span, value| InputRow { stack, place: 0, span, trace: 0, value };
        let mut packed = Vec::new();
        pack_rows(&mut [row(3, 0, 1), row(2, 0, 5)], &SampleTimestamps::default(), &mut packed);
        pack_rows(&mut [row(1, 7, -1)], &SampleTimestamps::default(), &mut packed);
        assert_eq!(packed, [0, 2, 10, 1, 2, 1, 1, 1, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert!(for_each_row(&[8, 1, 2], |_| {}).is_err(), "a later version may write what is not read here");
    }
}
