//! Reading what people upload, in the formats that are known.

use athanor_chassis::{ByteSize, Code, Status};
use athanor_profile::pprof::{DecodeError, Limits};
use athanor_profile::{Profile, ValueType, folded, pprof};

use crate::check::invalid;

/// What can be read, for those who send something else.
const KNOWN: &str = "upload pprof (plain, gzip or zstd) or folded stacks (lines such as main;work 12)";
/// Frames of a stack.
const DEPTH: usize = 10_000;
/// Where control characters are looked for.
const BEGINNING: usize = 4_096;

/// The plain bytes of what was uploaded.
pub(super) fn inflate(bytes: &[u8], limit: ByteSize) -> Result<Vec<u8>, Status> {
    pprof::inflate(bytes, limit.as_usize()).map_err(|error| refused(&error, limit))
}

fn refused(error: &DecodeError, limit: ByteSize) -> Status {
    if let DecodeError::OverLimit { what: "bytes", seen, .. } = error {
        let message = format!(
            "profile has {seen} bytes or more, the limit is {limit} (querier.adhoc_profile); upload a shorter one"
        );
        return Status::new(Code::TooLarge, message);
    }
    invalid(format!("{error}; {KNOWN}"))
}

/// The profile in plain bytes: pprof has control characters near its beginning, text has none.
pub(super) fn read(raw: &[u8], limit: ByteSize) -> Result<Profile, Status> {
    let limits = Limits { bytes: limit.as_usize(), depth: DEPTH, ..Limits::default() };
    let is_control = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\t' | b'\n' | b'\r');
    let profile = if raw.iter().take(BEGINNING).any(is_control) {
        pprof::decode(raw, &limits).map_err(|error| refused(&error, limit))?.0
    } else {
        match raw.trim_ascii_start().first() {
            None => return Err(invalid(format!("profile is empty; {KNOWN}"))),
            Some(b'{' | b'[') => return Err(invalid(format!("profile is JSON, which is not read; {KNOWN}"))),
            Some(_) => {}
        }
        let read = folded::parse(raw, ValueType::new("samples", "count"), &limits);
        read.map_err(|error| invalid(format!("profile is no folded stacks: {error}; {KNOWN}")))?
    };
    if profile.samples.values.iter().any(|&value| value < 0) {
        return Err(invalid(
            "profile has values below 0, as differences have; upload both sides and compare them",
        ));
    }
    Ok(profile)
}

/// What profiles measure: one profile, or what two have in common.
pub(super) struct Types {
    /// Each with its columns of either profile, which are equal where there is one.
    all: Vec<(ValueType, [usize; 2])>,
    /// The one that is shown unless another one is asked for.
    first: usize,
    /// What to say where there is none.
    none: &'static str,
}

impl Types {
    pub(super) fn of(profile: &Profile) -> Self {
        let types = &profile.header.types;
        let all = (0..).zip(types).map(|(column, value)| (value.clone(), [column; 2])).collect();
        let none = "profile measures nothing: it names no type of its values; upload one that does";
        Types { all, first: profile.header.shown_type(), none }
    }

    /// What both have, in one unit.
    pub(super) fn both(left: &Types, right: &Types) -> Self {
        let column =
            |value: &ValueType| right.all.iter().find(|(other, _)| other == value).map(|(_, of)| of[0]);
        let common = left.all.iter().filter_map(|(value, of)| Some((value.clone(), [of[0], column(value)?])));
        let all: Vec<(ValueType, [usize; 2])> = common.collect();
        let shown = left.all.get(left.first).map(|(value, _)| value);
        let first = all.iter().position(|(value, _)| Some(value) == shown).unwrap_or_default();
        Types {
            all,
            first,
            none: "profiles measure nothing that both have, in one unit; compare such of one kind",
        }
    }

    /// By which people choose from them: by kind, and by unit where that does not say which.
    pub(super) fn names(&self) -> Vec<String> {
        let name = |value: &ValueType| {
            let is_alone = self.all.iter().filter(|(other, _)| other.kind == value.kind).count() == 1;
            if is_alone { value.kind.clone() } else { format!("{}:{}", value.kind, value.unit) }
        };
        self.all.iter().map(|(value, _)| name(value)).collect()
    }

    /// The columns of the type that is asked for, and its name.
    pub(super) fn pick(&self, asked: Option<&str>) -> Result<([usize; 2], String), Status> {
        let mut names = self.names();
        if names.is_empty() {
            return Err(invalid(self.none));
        }
        let found = match asked.filter(|asked| !asked.is_empty()) {
            None => Some(self.first),
            Some(asked) => names.iter().position(|name| name == asked),
        };
        let Some((place, (_, columns))) = found.and_then(|place| Some((place, self.all.get(place)?))) else {
            let asked = asked.unwrap_or_default();
            return Err(invalid(format!("profile has no type {asked:?}; there are {}", names.join(", "))));
        };
        Ok((*columns, names.swap_remove(place)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: ByteSize = ByteSize::kib(1);

    fn said(bytes: &[u8]) -> String {
        let read = inflate(bytes, LIMIT).and_then(|raw| read(&raw, LIMIT));
        read.map(|profile| profile.total(0).to_string()).unwrap_or_else(|status| status.message)
    }

    #[test]
    fn what_is_no_profile_is_told_what_would_be() {
        assert_eq!(said(b"main;f 3\nmain 2\n"), "5");
        for (bytes, why) in [
            (&b""[..], "profile is empty"),
            (b" \n", "profile is empty"),
            (b"{\"flamebearer\":{}}", "profile is JSON"),
            (b"swapper 0 [000] 1.0: cycles:", "profile is no folded stacks: line 1"),
            (b"\x1f\x8b\x08\0\0", "gzip stream is damaged"),
            (b"\0\x01\x02", "not a pprof profile"),
        ] {
            let said = said(bytes);
            assert!(said.starts_with(why) && said.contains("upload pprof"), "{bytes:?}: {said}");
        }
        assert!(said(&[b'a'; 1025]).contains("the limit is 1KiB (querier.adhoc_profile)"));
        assert!(said(b"main -3\n").contains("values below 0"));
    }

    #[test]
    fn types_have_names_of_their_own() {
        let of = |types: &[(&str, &str)], default: &str| {
            let mut profile = Profile::default();
            profile.header.types = types.iter().map(|(kind, unit)| ValueType::new(kind, unit)).collect();
            profile.header.default_type = default.to_owned();
            Types::of(&profile)
        };
        let left = of(&[("cpu", "ns"), ("alloc", "count"), ("alloc", "bytes")], "");
        assert_eq!(left.names(), ["cpu", "alloc:count", "alloc:bytes"]);
        assert_eq!(left.pick(None).unwrap(), ([2, 2], "alloc:bytes".to_owned()));
        assert_eq!(left.pick(Some("cpu")).unwrap().0, [0, 0]);
        assert!(left.pick(Some("alloc")).unwrap_err().message.contains("there are cpu, alloc:count"));
        let both = Types::both(&left, &of(&[("wall", "ns"), ("cpu", "ns")], "wall"));
        assert_eq!((both.names(), both.pick(None).unwrap().0), (vec!["cpu".to_owned()], [0, 1]));
        let none = Types::both(&left, &of(&[("wall", "ns")], ""));
        assert!(none.pick(None).is_err() && none.pick(Some("cpu")).is_err());
        assert!(of(&[], "").pick(None).unwrap_err().message.starts_with("profile measures nothing:"));
    }

    #[test]
    fn types_are_compared_with_their_units() {
        let of = |types: &[(&str, &str)]| {
            let mut profile = Profile::default();
            profile.header.types = types.iter().map(|(kind, unit)| ValueType::new(kind, unit)).collect();
            Types::of(&profile)
        };
        let nanoseconds = of(&[("cpu", "nanoseconds")]);
        let others = Types::both(&nanoseconds, &of(&[("cpu", "milliseconds")]));
        assert!(others.pick(None).unwrap_err().message.contains("in one unit"));
        // What both have has a name of its own, whatever it is called in either.
        let common = Types::both(&nanoseconds, &of(&[("cpu", "count"), ("cpu", "nanoseconds")]));
        assert_eq!((common.names(), common.pick(None).unwrap().0), (vec!["cpu".to_owned()], [0, 1]));
    }
}
