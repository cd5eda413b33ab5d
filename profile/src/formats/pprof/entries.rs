//! Table entries as they are in the file.
//!
//! Nearly all writers write fields in the order of their numbers. The first fields are therefore expected in
//! that order, which avoids mispredicted branches. The loops after that handle any other order.

use super::wire::{WireCursor, WireValue};
use super::{DecodeError, DecodeLimits, check_limit};
use crate::data_model::symbols::ELF_ADDRESSES_FLAG;

/// Field of a mapping that pprof does not have: its locations have ELF file addresses. Other readers skip it.
pub(crate) const ELF_ADDRESSES_FIELD: u64 = 1000;
/// Field with the timestamps of a sample, Unix nanoseconds: packed numbers of eight bytes. pprof has no such
/// field, and other readers skip it.
pub(crate) const TIMESTAMPS_FIELD: u64 = 1000;
/// Root of truncated stacks for which no other stack of the profile supplies the missing frames.
pub const TRUNCATED_ROOT_NAME: &str = "[truncated]";

#[derive(Clone, Copy, Default)]
pub(super) struct RawFunction {
    pub(super) id: u64,
    pub(super) name: i64,
    pub(super) system_name: i64,
    pub(super) filename: i64,
    pub(super) start_line: i64,
}

#[derive(Clone, Copy, Default)]
pub(super) struct RawMapping {
    pub(super) id: u64,
    pub(super) start: u64,
    pub(super) limit: u64,
    pub(super) offset: u64,
    pub(super) filename: i64,
    pub(super) build_id: i64,
    pub(super) flags: u8,
}

#[derive(Clone, Copy, Default)]
pub(super) struct RawLocation {
    pub(super) id: u64,
    pub(super) mapping_id: u64,
    pub(super) address: u64,
    pub(super) folded: bool,
    pub(super) first_line: u32,
    pub(super) line_count: u32,
}

#[derive(Clone, Copy, Default)]
pub(super) struct RawLine {
    pub(super) function_id: u64,
    pub(super) line: i64,
    pub(super) column: i64,
}

pub(super) fn read_value_type(mut cursor: WireCursor<'_>) -> Result<(i64, i64), DecodeError> {
    let mut kind = 0;
    let mut unit = 0;
    while !cursor.is_done() {
        match cursor.field("a sample type")? {
            (1, WireValue::Varint(index)) => kind = index as i64,
            (2, WireValue::Varint(index)) => unit = index as i64,
            _ => {}
        }
    }
    Ok((kind, unit))
}

pub(super) fn read_function(mut cursor: WireCursor<'_>) -> Result<RawFunction, DecodeError> {
    let mut function = RawFunction::default();
    let what = "a function";
    if let Some(id) = cursor.expect(1, what)? {
        function.id = id;
    }
    if let Some(index) = cursor.expect(2, what)? {
        function.name = index as i64;
    }
    if let Some(index) = cursor.expect(3, what)? {
        function.system_name = index as i64;
    }
    if let Some(index) = cursor.expect(4, what)? {
        function.filename = index as i64;
    }
    while !cursor.is_done() {
        match cursor.field(what)? {
            (1, WireValue::Varint(id)) => function.id = id,
            (2, WireValue::Varint(index)) => function.name = index as i64,
            (3, WireValue::Varint(index)) => function.system_name = index as i64,
            (4, WireValue::Varint(index)) => function.filename = index as i64,
            (5, WireValue::Varint(line)) => function.start_line = line as i64,
            _ => {}
        }
    }
    Ok(function)
}

pub(super) fn read_mapping(mut cursor: WireCursor<'_>) -> Result<RawMapping, DecodeError> {
    let mut mapping = RawMapping::default();
    while !cursor.is_done() {
        match cursor.field("a mapping")? {
            (1, WireValue::Varint(id)) => mapping.id = id,
            (2, WireValue::Varint(start)) => mapping.start = start,
            (3, WireValue::Varint(limit)) => mapping.limit = limit,
            (4, WireValue::Varint(offset)) => mapping.offset = offset,
            (5, WireValue::Varint(index)) => mapping.filename = index as i64,
            (6, WireValue::Varint(index)) => mapping.build_id = index as i64,
            (flag @ 7..=10, WireValue::Varint(set)) => mapping.flags |= u8::from(set != 0) << (flag - 7),
            (ELF_ADDRESSES_FIELD, WireValue::Varint(set)) if set != 0 => mapping.flags |= ELF_ADDRESSES_FLAG,
            _ => {}
        }
    }
    Ok(mapping)
}

/// Reads a location and appends its lines to those of all locations.
pub(super) fn read_location(
    mut cursor: WireCursor<'_>,
    lines: &mut Vec<RawLine>,
    limits: &DecodeLimits,
) -> Result<RawLocation, DecodeError> {
    let mut location = RawLocation { first_line: lines.len() as u32, ..RawLocation::default() };
    let what = "a location";
    if let Some(id) = cursor.expect(1, what)? {
        location.id = id;
    }
    if let Some(id) = cursor.expect(2, what)? {
        location.mapping_id = id;
    }
    if let Some(address) = cursor.expect(3, what)? {
        location.address = address;
    }
    while !cursor.is_done() {
        match cursor.field(what)? {
            (1, WireValue::Varint(id)) => location.id = id,
            (2, WireValue::Varint(id)) => location.mapping_id = id,
            (3, WireValue::Varint(address)) => location.address = address,
            (4, WireValue::Bytes(start, end)) => {
                check_limit("lines", lines.len() + 1, limits.entries)?;
                lines.push(read_line(cursor.range(start, end))?);
                location.line_count += 1;
            }
            (5, WireValue::Varint(folded)) => location.folded = folded != 0,
            _ => {}
        }
    }
    Ok(location)
}

fn read_line(mut cursor: WireCursor<'_>) -> Result<RawLine, DecodeError> {
    let mut line = RawLine::default();
    let what = "a line";
    if let Some(id) = cursor.expect(1, what)? {
        line.function_id = id;
    }
    if let Some(number) = cursor.expect(2, what)? {
        line.line = number as i64;
    }
    while !cursor.is_done() {
        match cursor.field(what)? {
            (1, WireValue::Varint(id)) => line.function_id = id,
            (2, WireValue::Varint(number)) => line.line = number as i64,
            (3, WireValue::Varint(column)) => line.column = column as i64,
            _ => {}
        }
    }
    Ok(line)
}

/// Label of a sample. Texts are indexes into the string table.
#[derive(Clone, Copy, Default)]
pub(super) struct RawLabel {
    pub(super) key: i64,
    pub(super) text: i64,
    pub(super) number: i64,
    pub(super) unit: i64,
}

pub(super) fn read_label(mut cursor: WireCursor<'_>) -> Result<RawLabel, DecodeError> {
    let mut label = RawLabel::default();
    while !cursor.is_done() {
        match cursor.field("a label")? {
            (1, WireValue::Varint(index)) => label.key = index as i64,
            (2, WireValue::Varint(index)) => label.text = index as i64,
            (3, WireValue::Varint(number)) => label.number = number as i64,
            (4, WireValue::Varint(index)) => label.unit = index as i64,
            _ => {}
        }
    }
    Ok(label)
}
