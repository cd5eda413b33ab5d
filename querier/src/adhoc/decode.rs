//! Decoder of uploaded profiles in all supported formats.

use athanor_chassis::{ByteSize, ErrorCode, Status};
use athanor_profile::formats::format::{InputFormat, ProfileReadError, SUPPORTED_FORMATS};
use athanor_profile::formats::pprof::{DecodeError, DecodeLimits};
use athanor_profile::{Profile, ValueType, formats::pprof};

use crate::config::DECODED_SIZE_FACTOR;
use crate::validate::invalid_argument;

/// Maximum number of frames of a stack.
const MAX_STACK_DEPTH: usize = 10_000;
/// Maximum number of frames of all stacks per byte of the size limit, in formats that store shared frames
/// once. The cost of distinguishing stacks grows with their frames.
const MAX_FRAMES_PER_BYTE: usize = 4;
/// Minimum budget for tables in bytes.
const MIN_TABLE_BYTES: usize = 1 << 20;

/// Decompresses an upload.
pub(super) fn inflate(bytes: &[u8], limit: ByteSize) -> Result<Vec<u8>, Status> {
    pprof::inflate(bytes, limit.as_usize()).map_err(|error| refused(&error.into(), limit))
}

fn refused(error: &ProfileReadError, limit: ByteSize) -> Status {
    if let ProfileReadError::Pprof(DecodeError::OverLimit { what: "bytes", seen, .. }) = error {
        let message = format!(
            "profile has {seen} bytes or more, the limit is {limit} (querier.adhoc.max_profile_bytes); upload a shorter one"
        );
        return Status::new(ErrorCode::TooLarge, message);
    }
    invalid_argument(format!("profile cannot be read: {error}; upload {SUPPORTED_FORMATS}"))
}

/// Decodes a profile from decompressed bytes.
pub(super) fn read_profile(raw: &[u8], limit: ByteSize) -> Result<Profile, Status> {
    if raw.trim_ascii().is_empty() {
        return Err(invalid_argument(format!("profile is empty; upload {SUPPORTED_FORMATS}")));
    }
    let bytes = limit.as_usize();
    let frames = bytes.saturating_mul(MAX_FRAMES_PER_BYTE);
    let tables = raw.len().saturating_mul(DECODED_SIZE_FACTOR).max(MIN_TABLE_BYTES);
    let limits = DecodeLimits { bytes, depth: MAX_STACK_DEPTH, frames, tables, ..DecodeLimits::default() };
    let read = InputFormat::detect(raw).and_then(|format| format.read(raw, &limits));
    let profile = read.map_err(|error| refused(&error, limit))?;
    if profile.samples.values.iter().any(|&value| value < 0) {
        return Err(invalid_argument(
            "profile has negative values, as a difference of profiles has; upload both profiles and compare them",
        ));
    }
    Ok(profile)
}

/// Profile types of one profile, or the common types of two.
pub(super) struct ProfileTypeColumns {
    /// Types with their columns in both profiles. The columns are equal if there is one profile.
    all: Vec<(ValueType, [usize; 2])>,
    /// Index of the default type.
    first: usize,
    /// Error message if there is no type.
    none: &'static str,
}

impl ProfileTypeColumns {
    pub(super) fn from_profile(profile: &Profile) -> Self {
        let types = &profile.header.types;
        let all = (0..).zip(types).map(|(column, value)| (value.clone(), [column; 2])).collect();
        let none = "profile has no sample type; upload a profile with at least one";
        ProfileTypeColumns { all, first: profile.header.shown_type(), none }
    }

    /// Returns the types that both profiles have, in the same unit.
    pub(super) fn common_types(left: &ProfileTypeColumns, right: &ProfileTypeColumns) -> Self {
        let column =
            |value: &ValueType| right.all.iter().find(|(other, _)| other == value).map(|(_, of)| of[0]);
        let common = left.all.iter().filter_map(|(value, of)| Some((value.clone(), [of[0], column(value)?])));
        let all: Vec<(ValueType, [usize; 2])> = common.collect();
        let shown = left.all.get(left.first).map(|(value, _)| value);
        let first = all.iter().position(|(value, _)| Some(value) == shown).unwrap_or_default();
        ProfileTypeColumns {
            all,
            first,
            none: "profiles have no sample type of the same unit in common; compare profiles of the same type",
        }
    }

    /// Returns the names of the types: the kind, with its unit if the kind is ambiguous.
    pub(super) fn names(&self) -> Vec<String> {
        let name = |value: &ValueType| {
            let is_alone = self.all.iter().filter(|(other, _)| other.kind == value.kind).count() == 1;
            if is_alone { value.kind.clone() } else { format!("{}:{}", value.kind, value.unit) }
        };
        self.all.iter().map(|(value, _)| name(value)).collect()
    }

    /// Returns the columns and the name of the requested type.
    pub(super) fn select_type(&self, asked: Option<&str>) -> Result<([usize; 2], String), Status> {
        let mut names = self.names();
        if names.is_empty() {
            return Err(invalid_argument(self.none));
        }
        let found = match asked.filter(|asked| !asked.is_empty()) {
            None => Some(self.first),
            Some(asked) => names.iter().position(|name| name == asked),
        };
        let Some((place, (_, columns))) = found.and_then(|place| Some((place, self.all.get(place)?))) else {
            let asked = asked.unwrap_or_default();
            return Err(invalid_argument(format!(
                "profile has no type {asked:?}; existing types: {}",
                names.join(", ")
            )));
        };
        Ok((*columns, names.swap_remove(place)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: ByteSize = ByteSize::kib(1);

    fn said(bytes: &[u8]) -> String {
        let read = inflate(bytes, LIMIT).and_then(|raw| read_profile(&raw, LIMIT));
        read.map(|profile| profile.total(0).to_string()).unwrap_or_else(|status| status.message)
    }

    #[test]
    fn what_is_no_profile_is_told_what_would_be() {
        assert_eq!(said(b"main;f 3\nmain 2\n"), "5");
        assert_eq!(said(b"{main};f 3\n"), "3");
        for (bytes, why) in [
            (&b""[..], "profile is empty"),
            (b" \n", "profile is empty"),
            (b"{\"flamebearer\":{}}", "profile cannot be read: not a flamebearer document: line 1, column "),
            (b"{\"shared\":{}}", "profile cannot be read: not a speedscope document: line 1, column "),
            (b"[{}]", "profile cannot be read: JSON is neither"),
            (
                b"swapper 0 [000] 1.0: cycles:\n\tx",
                "profile cannot be read: not the output of perf script: line 2",
            ),
            (b"main;f", "profile cannot be read: not folded stacks: line 1"),
            (b"\x1f\x8b\x08\0\0", "profile cannot be read: gzip stream is damaged"),
            (b"\0\x01\x02", "profile cannot be read: not a pprof profile"),
        ] {
            let said = said(bytes);
            assert!(said.starts_with(why) && said.contains("upload pprof"), "{bytes:?}: {said}");
        }
        assert!(said(&[b'a'; 1025]).contains("the limit is 1KiB (querier.adhoc.max_profile_bytes)"));
        assert!(said(b"main -3\n").contains("negative values"));
    }

    /// Events write a frame once for all that it calls: what takes a few bytes more for each call may be deep.
    #[test]
    fn stacks_that_were_written_once_are_bounded_written_out() {
        let document = |depth: usize| {
            let event = |at| format!(r#"{{"type":"O","frame":0,"at":{at}}}"#);
            let events: Vec<String> = (0..depth).map(event).collect();
            let profile = format!(r#"{{"type":"evented","unit":"none","events":[{}]}}"#, events.join(","));
            format!(r#"{{"shared":{{"frames":[{{"name":"a"}}]}},"profiles":[{profile}]}}"#)
        };
        let limit = ByteSize::kib(4);
        assert!(read_profile(document(100).as_bytes(), limit).is_ok());
        let bytes = document(1_000);
        assert!(bytes.len() < 40 << 10);
        let refused = read_profile(bytes.as_bytes(), ByteSize::kib(40)).unwrap_err();
        assert!(refused.message.contains("frames of all expanded stacks"), "{refused}");
    }

    #[test]
    fn types_have_names_of_their_own() {
        let of = |types: &[(&str, &str)], default: &str| {
            let mut profile = Profile::default();
            profile.header.types = types.iter().map(|(kind, unit)| ValueType::new(kind, unit)).collect();
            profile.header.default_type = default.to_owned();
            ProfileTypeColumns::from_profile(&profile)
        };
        let left = of(&[("cpu", "ns"), ("alloc", "count"), ("alloc", "bytes")], "");
        assert_eq!(left.names(), ["cpu", "alloc:count", "alloc:bytes"]);
        assert_eq!(left.select_type(None).unwrap(), ([2, 2], "alloc:bytes".to_owned()));
        assert_eq!(left.select_type(Some("cpu")).unwrap().0, [0, 0]);
        assert!(
            left.select_type(Some("alloc")).unwrap_err().message.contains("existing types: cpu, alloc:count")
        );
        let both = ProfileTypeColumns::common_types(&left, &of(&[("wall", "ns"), ("cpu", "ns")], "wall"));
        assert_eq!((both.names(), both.select_type(None).unwrap().0), (vec!["cpu".to_owned()], [0, 1]));
        let none = ProfileTypeColumns::common_types(&left, &of(&[("wall", "ns")], ""));
        assert!(none.select_type(None).is_err() && none.select_type(Some("cpu")).is_err());
        assert!(
            of(&[], "").select_type(None).unwrap_err().message.starts_with("profile has no sample type;")
        );
    }

    #[test]
    fn types_are_compared_with_their_units() {
        let of = |types: &[(&str, &str)]| {
            let mut profile = Profile::default();
            profile.header.types = types.iter().map(|(kind, unit)| ValueType::new(kind, unit)).collect();
            ProfileTypeColumns::from_profile(&profile)
        };
        let nanoseconds = of(&[("cpu", "nanoseconds")]);
        let others = ProfileTypeColumns::common_types(&nanoseconds, &of(&[("cpu", "milliseconds")]));
        assert!(others.select_type(None).unwrap_err().message.contains("of the same unit"));
        // What both have has a name of its own, whatever it is called in either.
        let common =
            ProfileTypeColumns::common_types(&nanoseconds, &of(&[("cpu", "count"), ("cpu", "nanoseconds")]));
        assert_eq!((common.names(), common.select_type(None).unwrap().0), (vec!["cpu".to_owned()], [0, 1]));
    }
}
