//! Folded text as SDKs send it: `root;caller;leaf 12` per line, or a line for each sample.
//!
//! The parser is more lenient than for folded stacks in files. A line without a count is skipped, counts of
//! zero and below are ignored, and empty frames are kept.

use athanor_profile::formats::pprof::{DecodeLimits, StackAccumulator, StackAccumulatorError};
use hashbrown::HashTable;
use memchr::{memchr_iter, memrchr};
use xxhash_rust::xxh3::xxh3_64;

/// Reason for refusing folded text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FoldedTextError {
    /// The text after the last space is not a number.
    #[error("line {line}: {count:?} after the last space is not a count")]
    BadCount {
        /// Line number, from 1.
        line: usize,
        /// Beginning of the text in place of the count.
        count: String,
    },
    /// The text is not valid UTF-8.
    #[error("line {line}: not valid UTF-8")]
    NotUtf8 {
        /// Line number, from 1.
        line: usize,
    },
    /// The sum of the stacks overflows or is over a limit.
    #[error("line {line}: {why}")]
    Tally {
        /// Line number, from 1.
        line: usize,
        /// Error of the accumulator.
        why: StackAccumulatorError,
    },
}

/// Reads folded text and adds up equal stacks. If `counted` is set, lines end with a count.
pub(crate) fn parse_folded(
    bytes: &[u8],
    counted: bool,
    limits: &DecodeLimits,
) -> Result<StackAccumulator, FoldedTextError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = memchr_iter(b'\n', &bytes[..error.valid_up_to()]).count() + 1;
        FoldedTextError::NotUtf8 { line }
    })?;
    let mut tally = StackAccumulator::new(limits);
    let mut stacks = StackTextIndex::default();
    let ends = memchr_iter(b'\n', bytes).chain([bytes.len()]);
    let mut start = 0;
    for (line, end) in (1..).zip(ends) {
        let content = &text[start..end];
        start = end + 1;
        let content = content.strip_suffix('\r').unwrap_or(content);
        let Some((stack, value)) = parse_sample(content, counted, line)? else { continue };
        let added = stacks.stack_number(stack, &mut tally).and_then(|stack| tally.add(stack, value));
        added.map_err(|why| FoldedTextError::Tally { line, why })?;
    }
    Ok(tally)
}

/// Returns the stack and count of a line, or `None` for a line that counts nothing.
fn parse_sample(content: &str, counted: bool, line: usize) -> Result<Option<(&str, i64)>, FoldedTextError> {
    if !counted {
        return Ok((!content.is_empty()).then_some((content, 1)));
    }
    let Some(space) = memrchr(b' ', content.as_bytes()) else { return Ok(None) };
    let stack = &content[..space];
    let count = &content[space + 1..];
    let bad = |_| FoldedTextError::BadCount { line, count: count.chars().take(50).collect() };
    let value: i64 = count.parse().map_err(bad)?;
    Ok((value > 0).then_some((stack, value)))
}

/// Index from a stack's text to its number. A text seen before costs one hash.
#[derive(Default)]
struct StackTextIndex<'a> {
    known: HashTable<(&'a str, u32)>,
    path: Vec<u32>,
}

impl<'a> StackTextIndex<'a> {
    fn stack_number(
        &mut self,
        text: &'a str,
        tally: &mut StackAccumulator,
    ) -> Result<u32, StackAccumulatorError> {
        let hash = xxh3_64(text.as_bytes());
        if let Some(&(_, stack)) = self.known.find(hash, |(known, _)| *known == text) {
            return Ok(stack);
        }
        self.path.clear();
        let mut start = 0;
        // Frames below the kept depth are not read, so they do not distinguish stacks.
        let ends = memchr_iter(b';', text.as_bytes()).chain([text.len()]).take(tally.kept_depth());
        for end in ends {
            self.path.push(tally.intern_frame(&text[start..end])?);
            start = end + 1;
        }
        let stack = tally.intern_stack(&self.path)?;
        self.known.insert_unique(hash, (text, stack), |(text, _)| xxh3_64(text.as_bytes()));
        Ok(stack)
    }
}

#[cfg(test)]
mod tests {
    use athanor_profile::call_tree::tree::Tree;
    use athanor_profile::formats::pprof::decode;
    use athanor_profile::{ProfileHeader, ValueType, formats::folded};
    use proptest::prelude::*;

    use super::*;

    fn read(text: &[u8], counted: bool) -> Result<String, String> {
        let limits = DecodeLimits { samples: 3, kept_depth: 4, bytes: 200, ..DecodeLimits::default() };
        let tally = parse_folded(text, counted, &limits).map_err(|error| error.to_string())?;
        let header =
            ProfileHeader { types: vec![ValueType::new("samples", "count")], ..ProfileHeader::default() };
        let pprof = tally.write(&header, 1).expect("values are small");
        Ok(folded::write(&Tree::from_profile(&decode(&pprof, &DecodeLimits::default()).unwrap().0, 0)))
    }

    #[test]
    fn equal_stacks_add_up_and_empty_frames_count() {
        for (text, expected) in [
            ("main;run 5\nmain;run 3\nmain 1\n", "main 1\nmain;run 8\n"),
            ("main loop;do work 4\r\n a;b  2\r\n", " a;b  2\nmain loop;do work 4\n"),
            (";x 1\na;;b 1\n 7", " 7\n;x 1\na;;b 1\n"),
            ("a;b 0\nc +1\nd -3\nwithout\n\n", "c 1\n"),
            ("a;b;c;d;e 1\na;b;c;d;f 2", "a;b;c;d 3\n"),
            ("", ""),
        ] {
            let read = read(text.as_bytes(), true).unwrap();
            let sorted = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(sorted(&read), sorted(expected));
        }
        assert_eq!(
            read(b"main;run\nmain;run\r\n\nwith space 3", false).unwrap(),
            "with space 3 1\nmain;run 2\n"
        );
    }

    #[test]
    fn what_is_no_count_or_too_much_is_refused() {
        let long = format!("{} 1", "x".repeat(190));
        for (text, expected) in [
            (&b"a 1\nb x"[..], "line 2: \"x\" after the last space is not a count"),
            (b"a ", "line 1: \"\" after the last space is not a count"),
            (b"a 9223372036854775808", "line 1: \"9223372036854775808\" after the last space is not a count"),
            (b"a 9223372036854775807\nb 1", "line 2: the profile's counts add up to over 63 bits"),
            (b"a\xff 1", "line 1: not valid UTF-8"),
            (b"a 1\nb 1\nc 1\na 1\nd 1", "line 5: profile has 4 stacks, the limit is 3"),
            (long.as_bytes(), "line 1: profile has 206 bytes, the limit is 200"),
        ] {
            assert_eq!(read(text, true).unwrap_err(), expected);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..60), counted: bool) {
            let _ = read(&text, counted);
        }
    }
}
