//! Detection of input formats from the content. Clients do not send the format, and file names are
//! unreliable.
//!
//! ```text
//!  FLR ───────────────────────────────────► flight recording
//!  control characters near the beginning ─► pprof
//!  { and a field of a known format ───────► speedscope, flamebearer
//!  a first line that begins a sample ─────► perf script
//!  any other text ────────────────────────► folded stacks
//! ```

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::data_model::model::{Profile, ValueType};
use crate::formats::flamebearer::{self, FlamebearerError};
use crate::formats::folded::{self, FoldedError};
use crate::formats::jfr::{self, RecordingError};
use crate::formats::perf_script::{self, PerfScriptError};
use crate::formats::pprof::{self, DecodeError, DecodeLimits};
use crate::formats::speedscope::{self, SpeedscopeError};

/// Supported formats, for messages about unsupported input.
pub const SUPPORTED_FORMATS: &str = "pprof (plain, gzip or zstd), folded stacks (lines such as main;work 12), speedscope, \
                         flamebearer JSON, a Java flight recording, or the output of perf script";
/// Number of bytes that are scanned for control characters.
const CONTROL_SCAN_BYTES: usize = 4_096;

/// Supported input format of profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputFormat {
    /// Profile in pprof format, uncompressed.
    Pprof,
    /// Folded stacks as text.
    Folded,
    /// Speedscope document in JSON.
    Speedscope,
    /// Flame graph of a single profile in JSON.
    Flamebearer,
    /// Output of `perf script`.
    PerfScript,
    /// Recording of Java Flight Recorder or async-profiler; its profiles are merged into one.
    Jfr,
}

/// Reason why a profile could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProfileReadError {
    /// The data is not valid pprof.
    #[error(transparent)]
    Pprof(#[from] DecodeError),
    /// The data is not valid folded stacks.
    #[error("not folded stacks: {0}")]
    Folded(#[from] FoldedError),
    /// The data is not a valid speedscope document.
    #[error("not a speedscope document: {0}")]
    Speedscope(#[from] SpeedscopeError),
    /// The data is not a valid flame graph.
    #[error("not a flamebearer document: {0}")]
    Flamebearer(#[from] FlamebearerError),
    /// The data is not valid output of `perf script`.
    #[error("not the output of perf script: {0}")]
    PerfScript(#[from] PerfScriptError),
    /// The data is not a readable flight recording.
    #[error(transparent)]
    Jfr(#[from] RecordingError),
    /// The data is JSON of another kind.
    #[error("JSON is neither a speedscope document (shared, profiles) nor a flame graph (flamebearer)")]
    OtherJson,
}

impl InputFormat {
    /// Detects the format of uncompressed data, which need not be a valid profile.
    pub fn detect(raw: &[u8]) -> Result<InputFormat, ProfileReadError> {
        if jfr::is_recording(raw) {
            return Ok(InputFormat::Jfr);
        }
        let is_control = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\t' | b'\n' | b'\r');
        if raw.iter().take(CONTROL_SCAN_BYTES).any(is_control) {
            return Ok(InputFormat::Pprof);
        }
        if is_json(raw) {
            return detect_json(raw).ok_or(ProfileReadError::OtherJson);
        }
        let is_said = |line: &&[u8]| !line.trim_ascii().is_empty() && !line.starts_with(b"#");
        let first = raw.split(|&byte| byte == b'\n').find(is_said).unwrap_or_default();
        let begins_sample = std::str::from_utf8(first).is_ok_and(perf_script::is_sample_head);
        Ok(if begins_sample { InputFormat::PerfScript } else { InputFormat::Folded })
    }

    /// Decodes a profile of this format.
    pub fn read(self, raw: &[u8], limits: &DecodeLimits) -> Result<Profile, ProfileReadError> {
        Ok(match self {
            InputFormat::Pprof => pprof::decode(raw, limits)?.0,
            InputFormat::Folded => folded::parse(raw, ValueType::new("samples", "count"), limits)?,
            InputFormat::Speedscope => speedscope::parse(raw, limits)?,
            InputFormat::Flamebearer => flamebearer::parse(raw, limits)?,
            InputFormat::PerfScript => perf_script::parse(raw, limits)?,
            InputFormat::Jfr => jfr::read_merged(raw, limits)?,
        })
    }
}

/// Returns whether the data is JSON. The first character is not enough, because functions may be named
/// `{main}` or `[unknown]`.
fn is_json(raw: &[u8]) -> bool {
    let raw = raw.trim_ascii_start();
    let within = raw.get(1..).unwrap_or_default().trim_ascii_start();
    match raw.first() {
        Some(b'{') => within.is_empty() || within.starts_with(b"\"") || within.starts_with(b"}"),
        Some(b'[') => within.is_empty() || [b'{', b'[', b'"', b']'].iter().any(|&byte| within[0] == byte),
        _ => false,
    }
}

/// Detects the format by the first field that only one format has. The rest is not read.
fn detect_json(raw: &[u8]) -> Option<InputFormat> {
    let mut found = None;
    let mut parser = serde_json::Deserializer::from_slice(raw);
    // The parser reports the unread rest as an error. Only the detected format matters.
    let _ = parser.deserialize_map(FormatDetector(&mut found));
    found
}

struct FormatDetector<'a>(&'a mut Option<InputFormat>);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum FormatKey {
    #[serde(rename = "$schema")]
    Schema,
    Shared,
    Profiles,
    Flamebearer,
    #[serde(other)]
    Other,
}

impl<'de> Visitor<'de> for FormatDetector<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key()? {
            let format = match key {
                FormatKey::Schema | FormatKey::Shared | FormatKey::Profiles => InputFormat::Speedscope,
                FormatKey::Flamebearer => InputFormat::Flamebearer,
                FormatKey::Other => {
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
            (&b"\x0a\x04"[..], InputFormat::Pprof),
            (b"FLR\0\0\x02", InputFormat::Jfr),
            (b"main;work 12\n", InputFormat::Folded),
            (b"\n# note\n{main};work 12\n", InputFormat::Folded),
            (b"{main};work 12\n", InputFormat::Folded),
            (b"[unknown];work 12\n", InputFormat::Folded),
            (b"12 13\n", InputFormat::Folded),
            (b"", InputFormat::Folded),
            (br#"{"$schema": 1"#, InputFormat::Speedscope),
            (br#" {"name": {"flamebearer": []}, "exporter": null, "profiles": ["#, InputFormat::Speedscope),
            (br#"{"shared":"#, InputFormat::Speedscope),
            (br#"{"version": 1, "timeline": [[1]], "flamebearer": "#, InputFormat::Flamebearer),
            (b"# captured\n\nmain 12 [000] 1.5: 1 cycles:\n", InputFormat::PerfScript),
            (b"   main 12 1.5: cycles: ab f (b)\n", InputFormat::PerfScript),
            (b"main 12 cycles:\n", InputFormat::PerfScript),
        ] {
            assert_eq!(InputFormat::detect(raw), Ok(format), "{}", String::from_utf8_lossy(raw));
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
            assert_eq!(
                InputFormat::detect(raw),
                Err(ProfileReadError::OtherJson),
                "{}",
                String::from_utf8_lossy(raw)
            );
        }
    }

    #[test]
    fn errors_say_what_was_tried() {
        let said = |raw: &[u8]| {
            let read = InputFormat::detect(raw).and_then(|format| format.read(raw, &DecodeLimits::default()));
            read.unwrap_err().to_string()
        };
        for (raw, expected) in [
            (&b"\x0a\x04"[..], "profile is truncated"),
            (b"FLR\0\0\x02", "flight recording is truncated at byte 6"),
            (b"main", "not folded stacks: line 1, column 5: "),
            (b"{\"shared\": {}}", "not a speedscope document: line 1, column 13: missing field `frames`"),
            (
                b"{\"flamebearer\": []}",
                "not a flamebearer document: line 1, column 16: invalid type: sequence",
            ),
            (b"a 1 1.5: cycles:\n\tzz", "not the output of perf script: line 2: "),
            (b"{}", "JSON is neither a speedscope document"),
        ] {
            let said = said(raw);
            assert!(said.starts_with(expected), "{said}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(raw in prop::collection::vec(any::<u8>(), 0..60), json: bool) {
            let text = [if json { &b"{\"shared\":"[..] } else { b"" }, &raw].concat();
            if let Ok(format) = InputFormat::detect(&text) {
                let _ = format.read(&text, &DecodeLimits::default());
            }
        }
    }
}
