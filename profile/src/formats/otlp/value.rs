//! Attribute values, and their conversion to text.
//!
//! A text stays as it is. Numbers are decimal, booleans `true` or `false`, bytes base64. Lists and maps
//! become JSON, with numbers and texts in JSON syntax.

use std::borrow::Cow;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::OtlpError;
use super::tables::OtlpDictionary;
use crate::formats::pprof::wire::{WireCursor, WireValue};

/// Maximum nesting depth of lists and maps.
const MAX_VALUE_DEPTH: usize = 16;
/// Maximum bytes in the text of a label, a list or a map. Labels may have to be much shorter.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// Value of an attribute.
#[derive(Clone, Copy)]
pub(super) enum AnyValue<'a> {
    Nothing,
    Text(&'a [u8]),
    /// Text that is an entry of the string table.
    Named(u64),
    Truth(bool),
    Integer(i64),
    Double(f64),
    List(WireCursor<'a>),
    Map(WireCursor<'a>),
    Bytes(&'a [u8]),
}

/// Key and value of a resource's or scope's attribute.
pub(super) struct KeyValue<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: AnyValue<'a>,
}

impl<'a> AnyValue<'a> {
    pub(super) fn read(mut cursor: WireCursor<'a>, tables: &OtlpDictionary<'a>) -> Result<Self, OtlpError> {
        let mut value = AnyValue::Nothing;
        while !cursor.is_done() {
            value = match cursor.field("a value")? {
                (1, WireValue::Bytes(start, end)) => AnyValue::Text(tables.bytes(start, end)),
                (2, WireValue::Varint(truth)) => AnyValue::Truth(truth != 0),
                (3, WireValue::Varint(number)) => AnyValue::Integer(number as i64),
                (4, WireValue::Fixed(start, end)) => match tables.fixed(start, end) {
                    Some(bits) => AnyValue::Double(f64::from_bits(bits)),
                    None => value,
                },
                (5, WireValue::Bytes(start, end)) => AnyValue::List(tables.cursor(start, end)),
                (6, WireValue::Bytes(start, end)) => AnyValue::Map(tables.cursor(start, end)),
                (7, WireValue::Bytes(start, end)) => AnyValue::Bytes(tables.bytes(start, end)),
                (8, WireValue::Varint(index)) => AnyValue::Named(index),
                _ => value,
            };
        }
        Ok(value)
    }

    /// Converts the value to text.
    pub(super) fn to_text(self, tables: &OtlpDictionary<'a>) -> Result<Cow<'a, [u8]>, OtlpError> {
        Ok(match self {
            AnyValue::Nothing => Cow::Borrowed(&[]),
            AnyValue::Text(text) => Cow::Borrowed(text),
            AnyValue::Named(index) => Cow::Borrowed(tables.text(index, "the value of an attribute")?),
            AnyValue::Bytes(bytes) => {
                check_text_length(bytes.len())?;
                Cow::Owned(STANDARD.encode(bytes).into_bytes())
            }
            AnyValue::Double(number) if !number.is_finite() => Cow::Owned(infinite(number).into()),
            other => {
                let mut out = String::new();
                other.json(tables, 0, &mut out)?;
                Cow::Owned(out.into_bytes())
            }
        })
    }

    /// Returns the value as a series label. As in existing servers, only texts, whole numbers and one-element
    /// lists of these become labels.
    pub(super) fn to_label(self, tables: &OtlpDictionary<'a>) -> Result<Option<Cow<'a, [u8]>>, OtlpError> {
        match self {
            AnyValue::Text(_) | AnyValue::Named(_) | AnyValue::Integer(_) => self.to_text(tables).map(Some),
            AnyValue::List(list) => match single_value(list, tables)? {
                Some(one @ (AnyValue::Text(_) | AnyValue::Named(_) | AnyValue::Integer(_))) => {
                    one.to_text(tables).map(Some)
                }
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    fn json(self, tables: &OtlpDictionary<'a>, depth: usize, out: &mut String) -> Result<(), OtlpError> {
        // Writing to a string cannot fail.
        match self {
            AnyValue::Nothing => out.push_str("null"),
            AnyValue::Text(text) => quoted(text, out)?,
            AnyValue::Named(index) => quoted(tables.text(index, "the value of an attribute")?, out)?,
            AnyValue::Truth(truth) => out.push_str(if truth { "true" } else { "false" }),
            AnyValue::Integer(number) => _ = write!(out, "{number}"),
            AnyValue::Double(number) if !number.is_finite() => quoted(infinite(number).as_bytes(), out)?,
            AnyValue::Double(number) => _ = write!(out, "{number}"),
            AnyValue::Bytes(bytes) => {
                check_text_length(bytes.len())?;
                _ = write!(out, "\"{}\"", STANDARD.encode(bytes));
            }
            AnyValue::List(list) => {
                out.push('[');
                each(list, depth, |at, start, end| {
                    out.push_str(if at > 0 { "," } else { "" });
                    AnyValue::read(tables.cursor(start, end), tables)?.json(tables, depth + 1, out)?;
                    check_text_length(out.len())
                })?;
                out.push(']');
            }
            AnyValue::Map(map) => {
                out.push('{');
                each(map, depth, |at, start, end| {
                    out.push_str(if at > 0 { "," } else { "" });
                    let KeyValue { key, value } = KeyValue::read(tables.cursor(start, end), tables)?;
                    quoted(key, out)?;
                    out.push(':');
                    value.json(tables, depth + 1, out)?;
                    check_text_length(out.len())
                })?;
                out.push('}');
            }
        }
        check_text_length(out.len())
    }
}

impl<'a> KeyValue<'a> {
    pub(super) fn read(mut cursor: WireCursor<'a>, tables: &OtlpDictionary<'a>) -> Result<Self, OtlpError> {
        let mut key = &[][..];
        let mut named = 0;
        let mut value = AnyValue::Nothing;
        while !cursor.is_done() {
            match cursor.field("an attribute")? {
                (1, WireValue::Bytes(start, end)) => key = tables.bytes(start, end),
                (2, WireValue::Bytes(start, end)) => {
                    value = AnyValue::read(tables.cursor(start, end), tables)?
                }
                (3, WireValue::Varint(index)) => named = index,
                _ => {}
            }
        }
        if key.is_empty() {
            key = tables.text(named, "the key of an attribute")?;
        }
        Ok(KeyValue { key, value })
    }
}

/// Visits the entries of a list or a map.
fn each(
    mut cursor: WireCursor<'_>,
    depth: usize,
    mut visit: impl FnMut(usize, usize, usize) -> Result<(), OtlpError>,
) -> Result<(), OtlpError> {
    if depth >= MAX_VALUE_DEPTH {
        let what = "nested lists and maps of an attribute";
        return Err(OtlpError::OverLimit { what, seen: depth + 1, limit: MAX_VALUE_DEPTH, way_out: "" });
    }
    let mut at = 0;
    while !cursor.is_done() {
        if let (1, WireValue::Bytes(start, end)) = cursor.field("a value")? {
            visit(at, start, end)?;
            at += 1;
        }
    }
    Ok(())
}

/// Returns the only value of a one-element list.
fn single_value<'a>(
    mut list: WireCursor<'a>,
    tables: &OtlpDictionary<'a>,
) -> Result<Option<AnyValue<'a>>, OtlpError> {
    let mut found = None;
    while !list.is_done() {
        if let (1, WireValue::Bytes(start, end)) = list.field("a value")? {
            if found.is_some() {
                return Ok(None);
            }
            found = Some(AnyValue::read(tables.cursor(start, end), tables)?);
        }
    }
    Ok(found)
}

/// Refuses a text over the limit.
pub(super) fn check_text_length(length: usize) -> Result<(), OtlpError> {
    if length > MAX_TEXT_BYTES {
        let what = "bytes in the text of an attribute";
        let way_out = ": shorten the text";
        return Err(OtlpError::OverLimit { what, seen: length, limit: MAX_TEXT_BYTES, way_out });
    }
    Ok(())
}

fn infinite(number: f64) -> &'static str {
    match number {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    }
}

fn quoted(text: &[u8], out: &mut String) -> Result<(), OtlpError> {
    check_text_length(text.len())?;
    let what = "the value of an attribute";
    let text = std::str::from_utf8(text).map_err(|_| OtlpError::NotUtf8 { what })?;
    out.push_str(&serde_json::Value::from(text).to_string());
    Ok(())
}
