//! Sample rows as a head keeps them: a few bytes each, by stack.
//!
//! One profile's rows are sorted by stack; each is the step to its stack, its value and, where some row of the
//! profile has them, its span and trace. They stay so from the log entry to the cut: a query walks them as they are.

use athanor_profile::packed::{PackedError, Unpacker, put, put_signed};

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

/// Sorts rows, adds up those of one stack and span, and drops what is then zero.
pub fn normalise(rows: &mut Vec<Row>) {
    rows.sort_unstable_by_key(|row| (row.stack, row.span, row.trace));
    rows.dedup_by(|later, first| {
        let same = (later.stack, later.span, later.trace) == (first.stack, first.span, first.trace);
        if same {
            first.value = first.value.wrapping_add(later.value);
        }
        same
    });
    rows.retain(|row| row.value != 0);
}

/// Appends normalised rows.
pub fn pack(rows: &[Row], out: &mut Vec<u8>) {
    let spans = rows.iter().any(|row| row.span != 0);
    let traces = rows.iter().any(|row| row.trace != 0);
    out.push(u8::from(spans) | u8::from(traces) << 1);
    let mut before = 0;
    for row in rows {
        put(out, u64::from(row.stack - before));
        put_signed(out, row.value);
        if spans {
            out.extend_from_slice(&row.span.to_le_bytes());
        }
        if traces {
            out.extend_from_slice(&row.trace.to_le_bytes());
        }
        before = row.stack;
    }
}

/// Walks packed rows.
#[inline]
pub fn each(packed: &[u8], mut row: impl FnMut(Row)) -> Result<(), PackedError> {
    let mut unpacker = Unpacker::new(packed);
    let flags = unpacker.take(1)?[0];
    let mut stack = 0u32;
    while !unpacker.is_done() {
        let wrong = unpacker.wrong("a stack over 32 bits");
        stack = stack.checked_add(unpacker.small()?).ok_or(wrong)?;
        let value = unpacker.signed()?;
        let (mut span, mut trace) = ([0; 8], [0; 16]);
        if flags & 1 != 0 {
            span.copy_from_slice(unpacker.take(8)?);
        }
        if flags & 2 != 0 {
            trace.copy_from_slice(unpacker.take(16)?);
        }
        row(Row { stack, span: u64::from_le_bytes(span), trace: u128::from_le_bytes(trace), value });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_come_back_as_they_were(raw in prop::collection::vec((0u32..50, 0u64..3, 0u128..2, any::<i64>()), 0..60)) {
            let mut rows: Vec<Row> =
                raw.iter().map(|&(stack, span, trace, value)| Row { stack, span, trace, value }).collect();
            normalise(&mut rows);
            let mut packed = Vec::new();
            pack(&rows, &mut packed);
            let mut read = Vec::new();
            each(&packed, |row| read.push(row)).unwrap();
            prop_assert_eq!(&read, &rows);
            let sum = |rows: &mut dyn Iterator<Item = i64>| rows.fold(0i64, i64::wrapping_add);
            prop_assert_eq!(sum(&mut read.iter().map(|row| row.value)), sum(&mut raw.iter().map(|row| row.3)));
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = each(&bytes, |_| {});
        }
    }
}
