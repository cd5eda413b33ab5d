//! JSON read in one pass: what comes is taken in as it comes, and refused with its place.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use crate::decimal::Decimal;
use crate::limits::{OverLimitError, check_limit};
use crate::pprof::DecodeLimits;

/// Why a text is not the document that it should be. Lines and columns count from 1, columns in bytes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum JsonError {
    /// Bytes that are no text.
    #[error("line {line}, column {column}: not valid UTF-8")]
    NotUtf8 {
        /// The line.
        line: usize,
        /// The first wrong byte.
        column: usize,
    },
    /// No JSON, or a field that is missing or of another kind.
    #[error("line {line}, column {column}: {why}")]
    Malformed {
        /// The line.
        line: usize,
        /// Where it was noticed.
        column: usize,
        /// What is wrong.
        why: String,
    },
    /// Over a limit.
    #[error("line {line}, column {column}: {over}")]
    OverLimit {
        /// The line.
        line: usize,
        /// Where it was noticed.
        column: usize,
        /// What there is too much of.
        over: OverLimitError,
    },
}

/// Holds what is read to the limits, and remembers which was passed: errors of the parser are only words.
pub(crate) struct LimitGuard<'a> {
    pub(crate) limits: &'a DecodeLimits,
    over: Cell<Option<OverLimitError>>,
}

impl<'a> LimitGuard<'a> {
    pub(crate) fn new(limits: &'a DecodeLimits) -> Self {
        LimitGuard { limits, over: Cell::new(None) }
    }

    /// Refuses what is over a limit.
    pub(crate) fn check_limit(
        &self,
        what: &'static str,
        seen: usize,
        limit: usize,
    ) -> Result<(), OverLimitError> {
        check_limit(what, seen, limit).inspect_err(|over| self.over.set(Some(*over)))
    }
}

/// Reads a whole text.
pub(crate) fn read<'de, S: DeserializeSeed<'de>>(
    bytes: &'de [u8],
    guard: &LimitGuard<'_>,
    seed: S,
) -> Result<S::Value, JsonError> {
    let over_limit = |over| JsonError::OverLimit { line: 1, column: 1, over };
    check_limit("bytes", bytes.len(), guard.limits.bytes).map_err(over_limit)?;
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let of_line = before.rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
        JsonError::NotUtf8 { line, column: of_line.len() + 1 }
    })?;
    let mut parser = serde_json::Deserializer::from_str(text);
    let value = seed.deserialize(&mut parser).and_then(|value| parser.end().map(|()| value));
    value.map_err(|error| {
        let line = error.line();
        let column = error.column();
        match guard.over.get() {
            Some(over) => JsonError::OverLimit { line, column, over },
            None => {
                let words = error.to_string();
                let why = words.rsplit_once(" at line ").map_or(words.as_str(), |(why, _)| why);
                JsonError::Malformed { line, column, why: why.to_owned() }
            }
        }
    })
}

/// Takes the elements of a list in, one after the other.
pub(crate) struct ListVisitor<T, F> {
    what: &'static str,
    take: F,
    of: PhantomData<T>,
}

impl<T, F: FnMut(T) -> Result<(), OverLimitError>> ListVisitor<T, F> {
    pub(crate) fn new(what: &'static str, take: F) -> Self {
        ListVisitor { what, take, of: PhantomData }
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), OverLimitError>> DeserializeSeed<'de>
    for ListVisitor<T, F>
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), OverLimitError>> Visitor<'de> for ListVisitor<T, F> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a list of {}", self.what)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element()? {
            (self.take)(element).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// What is read of an object, key by key.
pub(crate) trait ObjectFields<'de> {
    /// A key: one that says something here, or another.
    type FieldKey: Deserialize<'de>;
    /// What all of them say.
    type Read;

    /// What the object is called.
    const OBJECT_DESCRIPTION: &'static str;

    /// Takes in what a key says.
    fn read_field<A: MapAccess<'de>>(&mut self, key: Self::FieldKey, map: &mut A) -> Result<(), A::Error>;

    /// No key is left.
    fn finish<E: Error>(self) -> Result<Self::Read, E>;
}

/// Reads an object.
pub(crate) struct ObjectVisitor<F>(pub(crate) F);

impl<'de, F: ObjectFields<'de>> DeserializeSeed<'de> for ObjectVisitor<F> {
    type Value = F::Read;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<F::Read, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: ObjectFields<'de>> Visitor<'de> for ObjectVisitor<F> {
    type Value = F::Read;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(F::OBJECT_DESCRIPTION)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<F::Read, A::Error> {
        let ObjectVisitor(mut fields) = self;
        while let Some(key) = map.next_key()? {
            fields.read_field(key, &mut map)?;
        }
        fields.finish()
    }
}

/// Passes over what a key says.
pub(crate) fn skip_value<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(drop)
}

/// Puts what a field says in its place, which must be empty.
pub(crate) fn set_once<T, E: Error>(place: &mut Option<T>, field: &'static str, value: T) -> Result<(), E> {
    if place.replace(value).is_some() { Err(E::duplicate_field(field)) } else { Ok(()) }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        Decimal::parse(text).ok_or_else(|| {
            let seen: String = text.chars().take(40).collect();
            D::Error::custom(format!("expected a number of at most 64 bits, found {seen}"))
        })
    }
}

/// What a number says that is a remark only: anything else says nothing.
pub(crate) fn remark<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    Ok(<&RawValue>::deserialize(deserializer)?.get().parse().unwrap_or_default())
}
