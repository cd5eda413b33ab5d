//! Removal of Go's shapes from names. Go names a generic function after one of its shapes, the first that the
//! linker processes. `Map[go.shape.int].Get` and `Map[go.shape.string].Get` are the same code and cannot be
//! distinguished. Readers of these profiles expect names without the shape.
//!
//! Only profiles that certainly come from Go lose shapes. Any of these is proof:
//!
//! - the client,
//! - a build id in the format of Go's linker,
//! - a function of Go's runtime with the source file that Go's compiler writes.
//!
//! A name alone proves nothing. In any other profile two names that differ by such a text are two functions.

use std::borrow::Cow;

use memchr::memmem;

use crate::data_model::labels::Labels;
use crate::formats::pprof::{DecodeError, DecodeLimits, any_function, build_ids, rewrite_strings};

const GO_SHAPE_PREFIX: &str = "[go.shape.";
/// Labels by which clients declare the language, with the values that mean Go.
const GO_LABELS: [(&str, &[&str]); 3] = [
    ("pyroscope_spy", &["gospy", "scrape"]),
    ("telemetry.sdk.language", &["go"]),
    ("process.runtime.name", &["go"]),
];
/// Values of these labels that mean another language: profilers, SDKs, runtimes.
const NON_GO_LANGUAGES: [&str; 26] = [
    "pyspy",
    "rbspy",
    "phpspy",
    "dotnetspy",
    "javaspy",
    "nodespy",
    "rustspy",
    "pyroscope-rs",
    "scripting",
    "python",
    "cpython",
    "ruby",
    "php",
    "dotnet",
    "java",
    "jvm",
    "nodejs",
    "node",
    "javascript",
    "webjs",
    "rust",
    "cpp",
    "swift",
    "erlang",
    "perl",
    "lua",
];
/// Number of parts in a build id of Go's linker, separated by slashes.
const BUILD_ID_PARTS: usize = 4;

/// Returns whether the client profiles Go, by the first sent label with a known language. Other values, such
/// as `unknown`, are ignored.
pub fn is_go_sender(sent: &Labels) -> Option<bool> {
    GO_LABELS.iter().find_map(|(name, go_values)| {
        let value = sent.get(name)?;
        let is_go = go_values.contains(&value);
        (is_go || NON_GO_LANGUAGES.contains(&value)).then_some(is_go)
    })
}

/// Returns whether an uncompressed profile proves that Go's compiler or linker built the profiled program.
pub(crate) fn is_built_by_go(raw: &[u8], limits: &DecodeLimits) -> Result<bool, DecodeError> {
    Ok(build_ids(raw, limits)?.into_iter().any(is_go_build_id) || any_function(raw, limits, is_of_runtime)?)
}

/// Returns whether a function belongs to Go's runtime: `runtime.main` in `/usr/local/go/src/runtime/proc.go`.
fn is_of_runtime(name: &str, file: &str) -> bool {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let is_folder = folder == "runtime" || folder.ends_with("/runtime");
    name.starts_with("runtime.") && is_folder && file.ends_with(".go")
}

fn is_go_build_id(build_id: &str) -> bool {
    let is_part = |part: &str| {
        let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !part.is_empty() && part.bytes().all(is_digit)
    };
    build_id.split('/').count() == BUILD_ID_PARTS && build_id.split('/').all(is_part)
}

/// Returns whether some text of an uncompressed profile contains a shape.
pub(crate) fn has_go_shapes(raw: &[u8]) -> bool {
    memmem::find(raw, GO_SHAPE_PREFIX.as_bytes()).is_some()
}

/// Returns an uncompressed profile without Go's shapes. Most profiles have none and are returned unchanged.
pub fn strip_go_shapes(raw: &[u8]) -> Result<Cow<'_, [u8]>, DecodeError> {
    if !has_go_shapes(raw) {
        return Ok(Cow::Borrowed(raw));
    }
    rewrite_strings(raw, |text| {
        let text = std::str::from_utf8(text).ok()?;
        text.contains(GO_SHAPE_PREFIX).then(|| strip_shapes(text).into_owned().into_bytes())
    })
    .map(Cow::Owned)
}

/// Returns a name without `[go.shape.…]`. A bracket without an end remains with the rest of the name.
pub(crate) fn strip_shapes(name: &str) -> Cow<'_, str> {
    if !name.contains(GO_SHAPE_PREFIX) {
        return Cow::Borrowed(name);
    }
    let mut kept = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(start) = rest.find(GO_SHAPE_PREFIX) {
        let Some(length) = bracketed_length(&rest[start..]) else { break };
        kept.push_str(&rest[..start]);
        rest = &rest[start + length..];
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

/// Returns the length of the bracketed text at the beginning, brackets included.
fn bracketed_length(text: &str) -> Option<usize> {
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
    use crate::data_model::model::{Profile, ValueType};
    use crate::formats::pprof::{DecodeLimits, decode, encode};

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
            assert_eq!(strip_shapes(name), expected);
        }
    }

    fn profile(stacks: &[&str]) -> Vec<u8> {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        for stack in stacks {
            let stack = profile.dictionary.intern_named_stack(stack.split(';'));
            profile.samples.push(stack, 0, &[1]);
        }
        encode(&profile)
    }

    #[test]
    fn a_profile_with_shapes_reads_as_one_without() {
        let raw = profile(&["main;Map[go.shape.int].Get", "main;Map[go.shape.string].Get"]);
        let (mut read, _) = decode(&strip_go_shapes(&raw).unwrap(), &DecodeLimits::default()).unwrap();
        read.compact();
        assert_eq!(read.samples.values, [2]);
        assert!(read.dictionary.symbols.strings.find("Map.Get").is_some());
        let plain = profile(&["main;run"]);
        assert!(matches!(strip_go_shapes(&plain).unwrap(), Cow::Borrowed(_)));
    }

    #[test]
    fn go_is_known_by_its_sender_or_its_build_id() {
        let sent =
            |name: &str, value: &str| is_go_sender(&Labels::new([(name.to_owned(), value.to_owned())]));
        assert_eq!([sent("pyroscope_spy", "gospy"), sent("telemetry.sdk.language", "go")], [Some(true); 2]);
        assert_eq!(
            [sent("pyroscope_spy", "pyspy"), sent("telemetry.sdk.language", "java")],
            [Some(false); 2]
        );
        assert_eq!([sent("pyroscope_spy", "unknown"), sent("service_name", "go")], [None; 2]);
        assert_eq!([sent("pyroscope_spy", ""), sent("pyroscope_spy", "ebpfspy")], [None; 2]);
        for (language, is_go) in [("go", Some(true)), ("python", Some(false)), ("unknown", None)] {
            let pairs = [("pyroscope_spy", "unknown"), ("telemetry.sdk.language", language)];
            let labels = Labels::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
            assert_eq!(is_go_sender(&labels), is_go, "{language}");
        }
        let go = "hVSsYg8v8jzvhcXBdAsu/jvYYXRMzCdmnNOuvuXVA/xWzCt9mvlL8tRyp4sHqR/pOKc1qy_9-UxGnCUCWvg";
        assert!(is_go_build_id(go));
        for other in ["", "3f1b5ac01f3e4f9a", "a/b", "a/b/c/", "a/b/c/d/e", "a b/c/d/e"] {
            assert!(!is_go_build_id(other), "{other}");
        }
        assert!(is_of_runtime("runtime.main", "/usr/local/go/src/runtime/proc.go"));
        assert!(is_of_runtime("runtime.main", "runtime/proc.go"));
        for (name, file) in [("runtime.main", ""), ("runtime.main", "main.go"), ("main", "runtime/a.go")] {
            assert!(!is_of_runtime(name, file), "{name} {file}");
        }
    }

    proptest! {
        #[test]
        fn nothing_but_shapes_is_lost(name in "([ab.]|\\[go\\.shape\\.|\\[|\\])*") {
            let kept = strip_shapes(&name).into_owned();
            prop_assert!(kept.len() <= name.len());
            if !name.contains(GO_SHAPE_PREFIX) {
                prop_assert_eq!(kept, name);
            }
        }
    }
}
