//! Folded stacks: one `root;caller;leaf count` per line.
//!
//! The format has no escapes. The writer therefore replaces `;` by `:` and a line break by a space, so that
//! its output parses to exactly those stacks. Counts may be negative, as in differences.

use std::fmt::Write;

use crate::call_tree::tree::{Tree, path_to_node};
use crate::data_model::model::{Profile, ValueType};
use crate::formats::pprof::DecodeLimits;

/// Number of frames between two checks of the memory limit.
const FRAMES_PER_MEMORY_CHECK: usize = 1024;

/// Reason why a text was rejected. Lines and columns count from 1, columns in bytes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FoldedError {
    /// The line does not end in a number.
    #[error("line {line}, column {column}: the line does not end in a space and a count")]
    NoCount {
        /// Line of the error.
        line: usize,
        /// Column at which the count is expected.
        column: usize,
    },
    /// The count exceeds 64 bits.
    #[error(
        "line {line}, column {column}: count {count:?} is not between -9223372036854775808 and 9223372036854775807"
    )]
    BadCount {
        /// Line of the error.
        line: usize,
        /// Column of the count.
        column: usize,
        /// Count as text.
        count: String,
    },
    /// The text is not valid UTF-8.
    #[error("line {line}, column {column}: not valid UTF-8")]
    NotUtf8 {
        /// Line of the error.
        line: usize,
        /// Column of the first invalid byte.
        column: usize,
    },
    /// The text exceeds a limit.
    #[error("line {line}: {seen} {what}, the limit is {limit}")]
    OverLimit {
        /// Line at which the limit was exceeded.
        line: usize,
        /// Name of the limited quantity.
        what: &'static str,
        /// Amount seen so far, a lower bound of the total.
        seen: usize,
        /// Limit that was exceeded.
        limit: usize,
    },
}

fn check(line: usize, what: &'static str, seen: usize, limit: usize) -> Result<(), FoldedError> {
    if seen > limit { Err(FoldedError::OverLimit { line, what, seen, limit }) } else { Ok(()) }
}

/// Decodes folded stacks to a profile of one type. Skips empty lines and sums equal stacks.
pub fn parse(bytes: &[u8], value_type: ValueType, limits: &DecodeLimits) -> Result<Profile, FoldedError> {
    check(1, "bytes", bytes.len(), limits.bytes)?;
    let mut profile = Profile::default();
    profile.header.types = vec![value_type];
    let mut unweighed = 0;
    let mut last = 1;
    let weigh = |line, profile: &Profile| {
        let memory = profile.dictionary.memory() + profile.samples.memory();
        check(line, "bytes of tables in memory", memory, limits.tables)
    };
    for (line, content) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
        let content = std::str::from_utf8(content)
            .map_err(|error| FoldedError::NotUtf8 { line, column: error.valid_up_to() + 1 })?;
        let content = content.strip_suffix('\r').unwrap_or(content);
        if content.is_empty() {
            continue;
        }
        let (stack, count) =
            content.rsplit_once(' ').ok_or(FoldedError::NoCount { line, column: content.len() + 1 })?;
        let column = stack.len() + 2;
        let digits = count.strip_prefix('-').unwrap_or(count);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(FoldedError::NoCount { line, column });
        }
        let bad = || FoldedError::BadCount { line, column, count: count.into() };
        let value: i64 = count.parse().map_err(|_| bad())?;
        let depth = stack.bytes().filter(|&byte| byte == b';').count() + 1;
        check(line, "frames", depth, limits.depth)?;
        check(line, "samples", profile.samples.len() + 1, limits.samples)?;
        let frames = stack.split(';').filter(|_| !stack.is_empty());
        let stack = profile.dictionary.intern_named_stack(frames);
        profile.samples.push(stack, 0, &[value]);
        (unweighed, last) = (unweighed + depth, line);
        if unweighed >= FRAMES_PER_MEMORY_CHECK {
            weigh(line, &profile)?;
            unweighed = 0;
        }
    }
    weigh(last, &profile)?;
    profile.compact();
    Ok(profile)
}

/// Encodes a tree: one line for each self value, with its path.
pub fn write(tree: &Tree) -> String {
    let mut text = String::new();
    for (at, node) in (0..).zip(tree.nodes()).filter(|(_, node)| node.self_value != 0) {
        for (depth, frame) in path_to_node(tree, at).into_iter().enumerate() {
            if depth > 0 {
                text.push(';');
            }
            text.extend(tree.name(&tree.nodes()[frame as usize]).chars().map(plain));
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, " {}", node.self_value);
    }
    text
}

fn plain(character: char) -> char {
    match character {
        ';' => ':',
        '\n' | '\r' => ' ',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::call_tree::tree::tests::tree;
    use crate::generate::arbitrary_profile;
    use proptest::prelude::*;

    fn read(text: &[u8]) -> Result<Tree, String> {
        let limits = DecodeLimits { depth: 3, bytes: 100, samples: 3, ..DecodeLimits::default() };
        let profile = parse(text, ValueType::new("samples", "count"), &limits);
        profile.map(|profile| Tree::from_profile(&profile, 0)).map_err(|error| error.to_string())
    }

    #[test]
    fn stacks_take_no_more_memory_than_tables_may() {
        let text: String = (0..FRAMES_PER_MEMORY_CHECK).map(|number| format!("f{number} 1\n")).collect();
        let read = |tables| {
            let limits = DecodeLimits { tables, ..DecodeLimits::default() };
            parse(text.as_bytes(), ValueType::default(), &limits).map_err(|error| error.to_string())
        };
        assert!(read(1 << 20).is_ok());
        let refused = read(10_000).unwrap_err();
        assert!(refused.starts_with("line 1024: ") && refused.contains("tables in memory"), "{refused}");
        // Few lines of many frames, and what comes after they were looked at last.
        let deep = format!("{} 1\n", vec!["a"; 2 * FRAMES_PER_MEMORY_CHECK].join(";"));
        for (text, line) in [(deep.repeat(2), "line 1: "), ("a;b 1".to_owned(), "line 1: ")] {
            let limits = DecodeLimits { tables: 100, ..DecodeLimits::default() };
            let refused = parse(text.as_bytes(), ValueType::default(), &limits).unwrap_err().to_string();
            assert!(refused.starts_with(line) && refused.contains("tables in memory"), "{refused}");
        }
    }

    #[test]
    fn lines_are_stacks() {
        let read = read(b"main;f g 3\r\n\nmain 2\nmain;f g 1").unwrap();
        assert_eq!(read, tree(&[("main;f g", 4), ("main", 2)]));
        assert_eq!(write(&read), "main 2\nmain;f g 4\n");
    }

    #[test]
    fn errors_say_where() {
        let cases: [(&[u8], &str); 8] = [
            (b"a 1\nb", "line 2, column 2: the line does not end in a space and a count"),
            (b"a x", "line 1, column 3: the line does not end in a space and a count"),
            (b"a -", "line 1, column 3: the line does not end in a space and a count"),
            (
                b"a 9223372036854775808",
                "line 1, column 3: count \"9223372036854775808\" is not between -9223372036854775808 and 9223372036854775807",
            ),
            (b"a\xff 1", "line 1, column 2: not valid UTF-8"),
            (b"a;b;c;d 1", "line 1: 4 frames, the limit is 3"),
            (b"a 1\na 1\na 1\na 1", "line 4: 4 samples, the limit is 3"),
            (&[b'a'; 101], "line 1: 101 bytes, the limit is 100"),
        ];
        for (text, error) in cases {
            assert_eq!(read(text).unwrap_err(), error);
        }
    }

    #[test]
    fn what_was_written_reads_back() {
        let mut dictionary = crate::data_model::model::Dictionary::default();
        dictionary.intern_named_stack(["a;b\nc d", "e"].into_iter());
        let text = write(&Tree::from_totals(&dictionary, &[5]));
        assert_eq!(text, "a:b c d;e 5\n");
        assert_eq!(write(&read(text.as_bytes()).unwrap()), text);
        let ends = "a -9223372036854775808\nb -1\n";
        assert_eq!(write(&read(ends.as_bytes()).unwrap()), ends);
    }

    proptest! {
        /// Two functions whose names are written alike become one.
        #[test]
        fn any_profile_reads_back_as_its_stacks(seed: u64) {
            let mut profile = arbitrary_profile(seed);
            profile.samples.values.iter_mut().for_each(|value| *value %= 1_000_000);
            let tree = Tree::from_profile(&profile, 0);
            let text = write(&tree);
            let again = parse(text.as_bytes(), ValueType::default(), &DecodeLimits::default()).unwrap();
            let again = Tree::from_profile(&again, 0);
            prop_assert_eq!(again.total(), tree.total());
            let lines: BTreeSet<String> = write(&again).lines().map(str::to_owned).collect();
            prop_assert_eq!(lines, sums(&text));
        }

        #[test]
        fn any_text_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(profile) = parse(&text, ValueType::default(), &DecodeLimits::default()) {
                let text = write(&Tree::from_profile(&profile, 0));
                prop_assert!(text.is_empty() || text.lines().all(|line| line.contains(' ')));
            }
        }
    }

    /// Lines of equal stacks added up, without those that cancel out.
    fn sums(text: &str) -> BTreeSet<String> {
        let mut sums = BTreeMap::<&str, i64>::new();
        for line in text.lines() {
            let (stack, value) = line.rsplit_once(' ').unwrap();
            let sum = sums.entry(stack).or_default();
            *sum = sum.wrapping_add(value.parse().unwrap());
        }
        sums.iter().filter(|(_, sum)| **sum != 0).map(|(stack, sum)| format!("{stack} {sum}")).collect()
    }
}
