//! Folded text as SDKs send it: `root;caller;leaf 12` per line, or a line for each sample.
//!
//! More lenient than the folded stacks that people keep in files: a line without a count is skipped, counts of
//! zero and below say nothing, and empty frames are frames.

use athanor_profile::{Profile, ValueType};

/// Bounds on text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextBounds {
    /// Different stacks: `max_profile_stacktrace_samples`.
    pub(crate) stacks: usize,
    /// Frames of one stack: `max_profile_stacktrace_depth`. Deeper ones lose those nearest the leaf.
    pub(crate) depth: usize,
    /// Bytes of names and frames of all different stacks: `max_profile_size_bytes`.
    pub(crate) bytes: usize,
}

/// Why text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TextRefused {
    /// No number after the last space.
    #[error("line {line}: {count:?} after the last space is no count")]
    BadCount {
        /// The line, from 1.
        line: usize,
        /// How the text begins that should be a count.
        count: String,
    },
    /// Bytes that are no text.
    #[error("line {line}: not valid UTF-8")]
    NotUtf8 {
        /// The line.
        line: usize,
    },
    /// Over a limit.
    #[error(
        "line {line}: profile has over {limit} {what}, which is the limit ({name}): profile for a shorter time"
    )]
    OverLimit {
        /// The line.
        line: usize,
        /// What there is too much of.
        what: &'static str,
        /// The limit's name.
        name: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A sum that does not fit.
    #[error("line {line}: the profile's counts add up to over 63 bits")]
    Overflow {
        /// The line.
        line: usize,
    },
}

/// Reads text into a profile of one type; equal stacks are added up. `counted`: lines end with a count.
pub(crate) fn parse(
    text: &[u8],
    counted: bool,
    value_type: ValueType,
    bounds: &TextBounds,
) -> Result<Profile, TextRefused> {
    let mut profile = Profile::default();
    profile.header.types = vec![value_type];
    let mut totals: Vec<i64> = Vec::new();
    let (mut frames, mut sum) = (0usize, 0i64);
    for (line, content) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let content = std::str::from_utf8(content).map_err(|_| TextRefused::NotUtf8 { line })?;
        let content = content.strip_suffix('\r').unwrap_or(content);
        let Some((stack, value)) = sample(content, counted, line)? else { continue };
        sum = sum.checked_add(value).ok_or(TextRefused::Overflow { line })?;
        let path = stack.split(';').take(bounds.depth);
        let id = profile.dictionary.named_stack(path.clone()) as usize;
        if id == totals.len() {
            totals.push(0);
            frames += path.count();
            let size = frames.saturating_add(profile.dictionary.symbols.strings.bytes());
            check(line, "stacks", "limits.max_profile_stacktrace_samples", totals.len(), bounds.stacks)?;
            check(line, "bytes", "limits.max_profile_size_bytes", size, bounds.bytes)?;
        }
        totals[id] += value;
    }
    for (stack, total) in (0..).zip(totals) {
        profile.samples.push(stack, 0, &[total]);
    }
    Ok(profile)
}

/// Stack and count of a line; nothing for a line that says nothing.
fn sample(content: &str, counted: bool, line: usize) -> Result<Option<(&str, i64)>, TextRefused> {
    if !counted {
        return Ok((!content.is_empty()).then_some((content, 1)));
    }
    let Some((stack, count)) = content.rsplit_once(' ') else { return Ok(None) };
    let bad = |_| TextRefused::BadCount { line, count: count.chars().take(50).collect() };
    let value: i64 = count.parse().map_err(bad)?;
    Ok((value > 0).then_some((stack, value)))
}

fn check(
    line: usize,
    what: &'static str,
    name: &'static str,
    seen: usize,
    limit: usize,
) -> Result<(), TextRefused> {
    if seen > limit { Err(TextRefused::OverLimit { line, what, name, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use athanor_profile::folded;
    use athanor_profile::tree::Tree;
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: TextBounds = TextBounds { stacks: 3, depth: 4, bytes: 60 };

    fn read(text: &[u8], counted: bool) -> Result<String, String> {
        let profile = parse(text, counted, ValueType::new("samples", "count"), &BOUNDS);
        profile.map(|profile| folded::write(&Tree::of(&profile, 0))).map_err(|error| error.to_string())
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
        let long = format!("{} 1", "x".repeat(60));
        for (text, expected) in [
            (&b"a 1\nb x"[..], "line 2: \"x\" after the last space is no count"),
            (b"a ", "line 1: \"\" after the last space is no count"),
            (b"a 9223372036854775808", "line 1: \"9223372036854775808\" after the last space is no count"),
            (b"a 9223372036854775807\nb 1", "line 2: the profile's counts add up to over 63 bits"),
            (b"a\xff 1", "line 1: not valid UTF-8"),
            (
                b"a 1\nb 1\nc 1\na 1\nd 1",
                "line 5: profile has over 3 stacks, which is the limit (limits.max_profile_stacktrace_samples): profile \
                 for a shorter time",
            ),
            (
                long.as_bytes(),
                "line 1: profile has over 60 bytes, which is the limit (limits.max_profile_size_bytes): profile for a \
              shorter time",
            ),
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
