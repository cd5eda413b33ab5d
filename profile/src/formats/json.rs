//! Streaming JSON decoder: one pass, with limits, and errors with line and column.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use crate::encoding::decimal::Decimal;
use crate::formats::limits::{OverLimitError, check_limit};
use crate::formats::pprof::DecodeLimits;

/// Reason why a document was rejected. Lines and columns count from 1, columns in bytes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum JsonError {
    /// The document is not valid UTF-8.
    #[error("line {line}, column {column}: not valid UTF-8")]
    NotUtf8 {
        /// Line of the first invalid byte.
        line: usize,
        /// Column of the first invalid byte.
        column: usize,
    },
    /// The document is not JSON, or a field is missing or has the wrong type.
    #[error("line {line}, column {column}: {why}")]
    Malformed {
        /// Line of the error.
        line: usize,
        /// Column at which the parser detected the error.
        column: usize,
        /// Error message of the parser.
        why: String,
    },
    /// The document exceeds a limit.
    #[error("line {line}, column {column}: {over}")]
    OverLimit {
        /// Line of the error.
        line: usize,
        /// Column at which the parser detected the error.
        column: usize,
        /// Limit that was exceeded.
        over: OverLimitError,
    },
}

/// Checker of limits that remembers the exceeded one, because errors of the parser carry only text.
pub(crate) struct LimitGuard<'a> {
    pub(crate) limits: &'a DecodeLimits,
    over: Cell<Option<OverLimitError>>,
}

impl<'a> LimitGuard<'a> {
    pub(crate) fn new(limits: &'a DecodeLimits) -> Self {
        LimitGuard { limits, over: Cell::new(None) }
    }

    /// Returns and records an error if an amount exceeds its limit.
    pub(crate) fn check_limit(
        &self,
        what: &'static str,
        seen: usize,
        limit: usize,
    ) -> Result<(), OverLimitError> {
        check_limit(what, seen, limit).inspect_err(|over| self.over.set(Some(*over)))
    }
}

/// Decodes a whole document.
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

/// Visitor that passes the elements of a list to a function, one after the other.
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

/// Fields of an object, decoded key by key.
pub(crate) trait ObjectFields<'de> {
    /// Key of a field; unknown keys are a value of this type too.
    type FieldKey: Deserialize<'de>;
    /// Result of decoding all fields.
    type Read;

    /// Description of the object for error messages.
    const OBJECT_DESCRIPTION: &'static str;

    /// Decodes the value of one key.
    fn read_field<A: MapAccess<'de>>(&mut self, key: Self::FieldKey, map: &mut A) -> Result<(), A::Error>;

    /// Returns the result after the last key.
    fn finish<E: Error>(self) -> Result<Self::Read, E>;
}

/// Visitor that decodes an object by its [`ObjectFields`].
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

/// Skips the value of a key.
pub(crate) fn skip_value<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(drop)
}

/// Stores the value of a field, or returns an error if the field occurs twice.
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

/// Decodes a number that is optional information: any other value becomes 0.
pub(crate) fn remark<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    Ok(<&RawValue>::deserialize(deserializer)?.get().parse().unwrap_or_default())
}
