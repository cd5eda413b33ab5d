//! Go names a generic function after one of its shapes, whichever the linker met first: `Map[go.shape.int].Get`
//! and `Map[go.shape.string].Get` are the same code and cannot be told apart. So the shape is cut out, as all
//! readers of these profiles expect.

use std::borrow::Cow;

use memchr::memmem;

use crate::pprof::{DecodeError, rewrite_strings};

const SHAPE: &str = "[go.shape.";

/// An uncompressed profile without Go's type parameters; most have none and are given back as they are.
pub fn go_names(raw: &[u8]) -> Result<Cow<'_, [u8]>, DecodeError> {
    if memmem::find(raw, SHAPE.as_bytes()).is_none() {
        return Ok(Cow::Borrowed(raw));
    }
    rewrite_strings(raw, |text| {
        let text = std::str::from_utf8(text).ok()?;
        text.contains(SHAPE).then(|| without_shapes(text).into_bytes())
    })
    .map(Cow::Owned)
}

/// A name without `[go.shape.…]`; what follows a bracket that is never closed stays.
fn without_shapes(name: &str) -> String {
    let mut kept = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(start) = rest.find(SHAPE) {
        let Some(length) = bracketed(&rest[start..]) else { break };
        kept.push_str(&rest[..start]);
        rest = &rest[start + length..];
    }
    kept.push_str(rest);
    kept
}

/// The length of the bracketed text at the beginning, its brackets included.
fn bracketed(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' if depth == 1 => return Some(at + 1),
            b']' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Profile, ValueType};
    use crate::pprof::{Limits, decode, encode};

    #[test]
    fn shapes_are_cut_out() {
        for (name, expected) in [
            ("main.run", "main.run"),
            ("slices.Sort[go.shape.[]int,go.shape.int]", "slices.Sort"),
            ("p.(*Map[go.shape.string,go.shape.int]).Get", "p.(*Map).Get"),
            ("a[go.shape.int].b[go.shape.struct { X []int }].c", "a.b.c"),
            ("a[go.shape.int", "a[go.shape.int"),
            ("a[go.shape.int].b[go.shape.[", "a.b[go.shape.["),
            ("a[...].b", "a[...].b"),
        ] {
            assert_eq!(without_shapes(name), expected);
        }
    }

    fn profile(stacks: &[&str]) -> Vec<u8> {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        for stack in stacks {
            let stack = profile.dictionary.named_stack(stack.split(';'));
            profile.samples.push(stack, 0, &[1]);
        }
        encode(&profile)
    }

    #[test]
    fn a_profile_with_shapes_reads_as_one_without() {
        let raw = profile(&["main;Map[go.shape.int].Get", "main;Map[go.shape.string].Get"]);
        let (mut read, _) = decode(&go_names(&raw).unwrap(), &Limits::default()).unwrap();
        read.compact();
        assert_eq!(read.samples.values, [2]);
        assert!(read.dictionary.symbols.strings.find("Map.Get").is_some());
        let plain = profile(&["main;run"]);
        assert!(matches!(go_names(&plain).unwrap(), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn nothing_but_shapes_is_lost(name in "([ab.]|\\[go\\.shape\\.|\\[|\\])*") {
            let kept = without_shapes(&name);
            prop_assert!(kept.len() <= name.len());
            if !name.contains(SHAPE) {
                prop_assert_eq!(kept, name);
            }
        }
    }
}
