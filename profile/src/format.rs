//! Which format bytes are in, told by the bytes: nobody says it, and names of files say it badly.
//!
//! ```text
//!  FLR ───────────────────────────────────► flight recording
//!  control characters near the beginning ─► pprof
//!  { and a field that a format has ───────► speedscope, flamebearer
//!  a first line that begins a sample ─────► perf script
//!  any other text ────────────────────────► folded stacks
//! ```

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::flamebearer::{self, FlamebearerError};
use crate::folded::{self, FoldedError};
use crate::jfr::{self, WholeError};
use crate::model::{Profile, ValueType};
use crate::perf_script::{self, PerfScriptError};
use crate::pprof::{self, DecodeError, Limits};
use crate::speedscope::{self, SpeedscopeError};

/// What can be read, for those who send something else.
pub const KNOWN: &str = "pprof (plain, gzip or zstd), folded stacks (lines such as main;work 12), speedscope, \
                         flamebearer JSON, a flight recording of Java, or what perf script prints";
/// Where control characters are looked for.
const BEGINNING: usize = 4_096;

/// A format that profiles are read in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pprof, not compressed.
    Pprof,
    /// Folded stacks.
    Folded,
    /// A document of speedscope.
    Speedscope,
    /// A flame graph of one profile.
    Flamebearer,
    /// What `perf script` prints.
    PerfScript,
    /// A recording of Java Flight Recorder or async-profiler; its profiles are read into one.
    Jfr,
}

/// Why bytes are no profile.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReadError {
    /// No pprof.
    #[error(transparent)]
    Pprof(#[from] DecodeError),
    /// No folded stacks.
    #[error("not folded stacks: {0}")]
    Folded(#[from] FoldedError),
    /// No document of speedscope.
    #[error("not a speedscope document: {0}")]
    Speedscope(#[from] SpeedscopeError),
    /// No flame graph.
    #[error("not a flamebearer document: {0}")]
    Flamebearer(#[from] FlamebearerError),
    /// Not what `perf script` prints.
    #[error("not the output of perf script: {0}")]
    PerfScript(#[from] PerfScriptError),
    /// No flight recording that is read.
    #[error(transparent)]
    Jfr(#[from] WholeError),
    /// Another document.
    #[error("JSON that is neither of speedscope (shared, profiles) nor a flame graph (flamebearer)")]
    OtherJson,
}

impl Format {
    /// Tells the format of bytes that are not compressed. They need not be a profile.
    pub fn of(raw: &[u8]) -> Result<Format, ReadError> {
        if jfr::is_recording(raw) {
            return Ok(Format::Jfr);
        }
        let is_control = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\t' | b'\n' | b'\r');
        if raw.iter().take(BEGINNING).any(is_control) {
            return Ok(Format::Pprof);
        }
        if is_json(raw) {
            return of_document(raw).ok_or(ReadError::OtherJson);
        }
        let is_said = |line: &&[u8]| !line.trim_ascii().is_empty() && !line.starts_with(b"#");
        let first = raw.split(|&byte| byte == b'\n').find(is_said).unwrap_or_default();
        let begins_sample = std::str::from_utf8(first).is_ok_and(perf_script::is_head);
        Ok(if begins_sample { Format::PerfScript } else { Format::Folded })
    }

    /// Reads a profile in this format.
    pub fn read(self, raw: &[u8], limits: &Limits) -> Result<Profile, ReadError> {
        Ok(match self {
            Format::Pprof => pprof::decode(raw, limits)?.0,
            Format::Folded => folded::parse(raw, ValueType::new("samples", "count"), limits)?,
            Format::Speedscope => speedscope::parse(raw, limits)?,
            Format::Flamebearer => flamebearer::parse(raw, limits)?,
            Format::PerfScript => perf_script::parse(raw, limits)?,
            Format::Jfr => jfr::whole(raw, limits)?,
        })
    }
}

/// Functions may be called `{main}` and `[unknown]`: what is in brackets tells.
fn is_json(raw: &[u8]) -> bool {
    let raw = raw.trim_ascii_start();
    let within = raw.get(1..).unwrap_or_default().trim_ascii_start();
    match raw.first() {
        Some(b'{') => within.is_empty() || within.starts_with(b"\"") || within.starts_with(b"}"),
        Some(b'[') => within.is_empty() || [b'{', b'[', b'"', b']'].iter().any(|&byte| within[0] == byte),
        _ => false,
    }
}

/// Told by the first field that only one of them has; what follows is not looked at.
fn of_document(raw: &[u8]) -> Option<Format> {
    let mut found = None;
    let mut parser = serde_json::Deserializer::from_slice(raw);
    // That the rest is not read is an error, too: only what was found counts.
    let _ = parser.deserialize_map(Fields(&mut found));
    found
}

struct Fields<'a>(&'a mut Option<Format>);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    #[serde(rename = "$schema")]
    Schema,
    Shared,
    Profiles,
    Flamebearer,
    #[serde(other)]
    Other,
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key()? {
            let format = match key {
                Key::Schema | Key::Shared | Key::Profiles => Format::Speedscope,
                Key::Flamebearer => Format::Flamebearer,
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *self.0 = Some(format);
            break;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn formats_are_told_by_what_is_written() {
        for (raw, format) in [
            (&b"\x0a\x04"[..], Format::Pprof),
            (b"FLR\0\0\x02", Format::Jfr),
            (b"main;work 12\n", Format::Folded),
            (b"\n# note\n{main};work 12\n", Format::Folded),
            (b"{main};work 12\n", Format::Folded),
            (b"[unknown];work 12\n", Format::Folded),
            (b"12 13\n", Format::Folded),
            (b"", Format::Folded),
            (br#"{"$schema": 1"#, Format::Speedscope),
            (br#" {"name": {"flamebearer": []}, "exporter": null, "profiles": ["#, Format::Speedscope),
            (br#"{"shared":"#, Format::Speedscope),
            (br#"{"version": 1, "timeline": [[1]], "flamebearer": "#, Format::Flamebearer),
            (b"# captured\n\nmain 12 [000] 1.5: 1 cycles:\n", Format::PerfScript),
            (b"   main 12 1.5: cycles: ab f (b)\n", Format::PerfScript),
            (b"main 12 cycles:\n", Format::PerfScript),
        ] {
            assert_eq!(Format::of(raw), Ok(format), "{}", String::from_utf8_lossy(raw));
        }
        for raw in [
            &b"{"[..],
            b"{}",
            b"[]",
            b"[{\"name\": \"a\"}]",
            b"{\"a\": 1}",
            b"{\"a\" 1, \"shared\": 2}",
            b"[",
        ] {
            assert_eq!(Format::of(raw), Err(ReadError::OtherJson), "{}", String::from_utf8_lossy(raw));
        }
    }

    #[test]
    fn errors_say_what_was_tried() {
        let said = |raw: &[u8]| {
            let read = Format::of(raw).and_then(|format| format.read(raw, &Limits::default()));
            read.unwrap_err().to_string()
        };
        for (raw, expected) in [
            (&b"\x0a\x04"[..], "profile is cut off"),
            (b"FLR\0\0\x02", "flight recording is cut off at byte 6"),
            (b"main", "not folded stacks: line 1, column 5: "),
            (b"{\"shared\": {}}", "not a speedscope document: line 1, column 13: missing field `frames`"),
            (
                b"{\"flamebearer\": []}",
                "not a flamebearer document: line 1, column 16: invalid type: sequence",
            ),
            (b"a 1 1.5: cycles:\n\tzz", "not the output of perf script: line 2: "),
            (b"{}", "JSON that is neither of speedscope"),
        ] {
            let said = said(raw);
            assert!(said.starts_with(expected), "{said}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(raw in prop::collection::vec(any::<u8>(), 0..60), json: bool) {
            let text = [if json { &b"{\"shared\":"[..] } else { b"" }, &raw].concat();
            if let Ok(format) = Format::of(&text) {
                let _ = format.read(&text, &Limits::default());
            }
        }
    }
}
