//! Converter from OTLP JSON to protobuf, so that only protobuf has a reader.
//!
//! Field names are accepted in `camelCase` and `snake_case`, numbers also as strings. Bytes are in base64,
//! ids in base64 or hexadecimal, as OTLP has them. Unknown fields are dropped. Messages are written as they
//! are parsed, so memory holds only the text and the output.

use std::fmt;

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::encoding::codec::put_varint;
use crate::encoding::hex::decode_hex;

/// Reason for refusing a JSON request.
#[derive(Debug, thiserror::Error)]
pub enum OtlpJsonError {
    /// Invalid JSON, or a field of the wrong type.
    #[error("the request cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The protobuf output is over the limit.
    #[error(
        "request exceeds {limit} bytes as protobuf, the limit (limits.ingestion_body_limit): send smaller batches"
    )]
    TooLarge {
        /// Maximum bytes as protobuf.
        limit: usize,
    },
}

/// Converts JSON to the bytes of an `ExportProfilesServiceRequest`, at most `limit` of them.
pub fn from_json(text: &[u8], limit: usize) -> Result<Vec<u8>, OtlpJsonError> {
    let mut out = OtlpProtobufWriter { bytes: Vec::new(), limit, is_over: false };
    let mut parser = serde_json::Deserializer::from_slice(text);
    let read = OtlpMessageVisitor { message: &REQUEST_FIELDS, out: &mut out }
        .deserialize(&mut parser)
        .and_then(|()| parser.end());
    if out.is_over {
        return Err(OtlpJsonError::TooLarge { limit });
    }
    read?;
    Ok(out.bytes)
}

/// Encoding of a field.
#[derive(Clone, Copy)]
enum OtlpFieldKind {
    /// Number that may have a sign.
    Number,
    Fixed,
    Double,
    Truth,
    Text,
    Bytes,
    /// Id with this many bytes, in hexadecimal or base64.
    Id(usize),
    Message(&'static [OtlpField]),
}

/// Field: name in camelCase, number, encoding, and whether it is repeated.
struct OtlpField(&'static str, u64, OtlpFieldKind, bool);

const SINGULAR_FIELD: bool = false;
const REPEATED_FIELD: bool = true;

type OtlpFieldList = [OtlpField];

static REQUEST_FIELDS: [OtlpField; 2] = [
    OtlpField("resourceProfiles", 1, OtlpFieldKind::Message(&RESOURCE_PROFILES_FIELDS), REPEATED_FIELD),
    OtlpField("dictionary", 2, OtlpFieldKind::Message(&DICTIONARY_FIELDS), SINGULAR_FIELD),
];
static RESOURCE_PROFILES_FIELDS: [OtlpField; 2] = [
    OtlpField("resource", 1, OtlpFieldKind::Message(&RESOURCE_FIELDS), SINGULAR_FIELD),
    OtlpField("scopeProfiles", 2, OtlpFieldKind::Message(&SCOPE_PROFILES_FIELDS), REPEATED_FIELD),
];
static RESOURCE_FIELDS: [OtlpField; 2] = [
    OtlpField("attributes", 1, OtlpFieldKind::Message(&KEY_VALUE_FIELDS), REPEATED_FIELD),
    OtlpField("droppedAttributesCount", 2, OtlpFieldKind::Number, SINGULAR_FIELD),
];
static SCOPE_PROFILES_FIELDS: [OtlpField; 2] = [
    OtlpField("scope", 1, OtlpFieldKind::Message(&SCOPE_FIELDS), SINGULAR_FIELD),
    OtlpField("profiles", 2, OtlpFieldKind::Message(&PROFILE_FIELDS), REPEATED_FIELD),
];
static SCOPE_FIELDS: [OtlpField; 2] = [
    OtlpField("attributes", 3, OtlpFieldKind::Message(&KEY_VALUE_FIELDS), REPEATED_FIELD),
    OtlpField("droppedAttributesCount", 4, OtlpFieldKind::Number, SINGULAR_FIELD),
];
static KEY_VALUE_FIELDS: [OtlpField; 3] = [
    OtlpField("key", 1, OtlpFieldKind::Text, SINGULAR_FIELD),
    OtlpField("value", 2, OtlpFieldKind::Message(&ANY_VALUE_FIELDS), SINGULAR_FIELD),
    OtlpField("keyStrindex", 3, OtlpFieldKind::Number, SINGULAR_FIELD),
];
static ANY_VALUE_FIELDS: [OtlpField; 8] = [
    OtlpField("stringValue", 1, OtlpFieldKind::Text, SINGULAR_FIELD),
    OtlpField("boolValue", 2, OtlpFieldKind::Truth, SINGULAR_FIELD),
    OtlpField("intValue", 3, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("doubleValue", 4, OtlpFieldKind::Double, SINGULAR_FIELD),
    OtlpField("arrayValue", 5, OtlpFieldKind::Message(&ARRAY_VALUE_FIELDS), SINGULAR_FIELD),
    OtlpField("kvlistValue", 6, OtlpFieldKind::Message(&KEY_VALUE_LIST_FIELDS), SINGULAR_FIELD),
    OtlpField("bytesValue", 7, OtlpFieldKind::Bytes, SINGULAR_FIELD),
    OtlpField("stringValueStrindex", 8, OtlpFieldKind::Number, SINGULAR_FIELD),
];
static ARRAY_VALUE_FIELDS: [OtlpField; 1] =
    [OtlpField("values", 1, OtlpFieldKind::Message(&ANY_VALUE_FIELDS), REPEATED_FIELD)];
static KEY_VALUE_LIST_FIELDS: [OtlpField; 1] =
    [OtlpField("values", 1, OtlpFieldKind::Message(&KEY_VALUE_FIELDS), REPEATED_FIELD)];
static PROFILE_FIELDS: [OtlpField; 12] = [
    OtlpField("sampleType", 1, OtlpFieldKind::Message(&VALUE_TYPE_FIELDS), SINGULAR_FIELD),
    OtlpField("samples", 2, OtlpFieldKind::Message(&SAMPLE_FIELDS), REPEATED_FIELD),
    // Name of `samples` in 1.8, which already has the current names of its fields.
    OtlpField("sample", 2, OtlpFieldKind::Message(&SAMPLE_FIELDS), REPEATED_FIELD),
    OtlpField("timeUnixNano", 3, OtlpFieldKind::Fixed, SINGULAR_FIELD),
    OtlpField("durationNano", 4, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("periodType", 5, OtlpFieldKind::Message(&VALUE_TYPE_FIELDS), SINGULAR_FIELD),
    OtlpField("period", 6, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("profileId", 7, OtlpFieldKind::Id(16), SINGULAR_FIELD),
    OtlpField("droppedAttributesCount", 8, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("originalPayloadFormat", 9, OtlpFieldKind::Text, SINGULAR_FIELD),
    OtlpField("originalPayload", 10, OtlpFieldKind::Bytes, SINGULAR_FIELD),
    OtlpField("attributeIndices", 11, OtlpFieldKind::Number, REPEATED_FIELD),
];
static SAMPLE_FIELDS: [OtlpField; 5] = [
    OtlpField("stackIndex", 1, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("attributeIndices", 2, OtlpFieldKind::Number, REPEATED_FIELD),
    OtlpField("linkIndex", 3, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("values", 4, OtlpFieldKind::Number, REPEATED_FIELD),
    OtlpField("timestampsUnixNano", 5, OtlpFieldKind::Fixed, REPEATED_FIELD),
];
static VALUE_TYPE_FIELDS: [OtlpField; 2] = [
    OtlpField("typeStrindex", 1, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("unitStrindex", 2, OtlpFieldKind::Number, SINGULAR_FIELD),
];
static DICTIONARY_FIELDS: [OtlpField; 7] = [
    OtlpField("mappingTable", 1, OtlpFieldKind::Message(&MAPPING_FIELDS), REPEATED_FIELD),
    OtlpField("locationTable", 2, OtlpFieldKind::Message(&LOCATION_FIELDS), REPEATED_FIELD),
    OtlpField("functionTable", 3, OtlpFieldKind::Message(&FUNCTION_FIELDS), REPEATED_FIELD),
    OtlpField("linkTable", 4, OtlpFieldKind::Message(&LINK_FIELDS), REPEATED_FIELD),
    OtlpField("stringTable", 5, OtlpFieldKind::Text, REPEATED_FIELD),
    OtlpField("attributeTable", 6, OtlpFieldKind::Message(&ATTRIBUTE_FIELDS), REPEATED_FIELD),
    OtlpField("stackTable", 7, OtlpFieldKind::Message(&STACK_FIELDS), REPEATED_FIELD),
];
static MAPPING_FIELDS: [OtlpField; 5] = [
    OtlpField("memoryStart", 1, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("memoryLimit", 2, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("fileOffset", 3, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("filenameStrindex", 4, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("attributeIndices", 5, OtlpFieldKind::Number, REPEATED_FIELD),
];
static LOCATION_FIELDS: [OtlpField; 5] = [
    OtlpField("mappingIndex", 1, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("address", 2, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("lines", 3, OtlpFieldKind::Message(&LINE_FIELDS), REPEATED_FIELD),
    OtlpField("line", 3, OtlpFieldKind::Message(&LINE_FIELDS), REPEATED_FIELD),
    OtlpField("attributeIndices", 4, OtlpFieldKind::Number, REPEATED_FIELD),
];
static LINE_FIELDS: [OtlpField; 3] = [
    OtlpField("functionIndex", 1, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("line", 2, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("column", 3, OtlpFieldKind::Number, SINGULAR_FIELD),
];
static FUNCTION_FIELDS: [OtlpField; 4] = [
    OtlpField("nameStrindex", 1, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("systemNameStrindex", 2, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("filenameStrindex", 3, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("startLine", 4, OtlpFieldKind::Number, SINGULAR_FIELD),
];
static LINK_FIELDS: [OtlpField; 2] = [
    OtlpField("traceId", 1, OtlpFieldKind::Id(16), SINGULAR_FIELD),
    OtlpField("spanId", 2, OtlpFieldKind::Id(8), SINGULAR_FIELD),
];
static ATTRIBUTE_FIELDS: [OtlpField; 3] = [
    OtlpField("keyStrindex", 1, OtlpFieldKind::Number, SINGULAR_FIELD),
    OtlpField("value", 2, OtlpFieldKind::Message(&ANY_VALUE_FIELDS), SINGULAR_FIELD),
    OtlpField("unitStrindex", 3, OtlpFieldKind::Number, SINGULAR_FIELD),
];
static STACK_FIELDS: [OtlpField; 1] =
    [OtlpField("locationIndices", 1, OtlpFieldKind::Number, REPEATED_FIELD)];

/// Protobuf output with its size limit.
struct OtlpProtobufWriter {
    bytes: Vec<u8>,
    limit: usize,
    is_over: bool,
}

impl OtlpProtobufWriter {
    /// Returns an error if the output is over the limit.
    fn check<E: Error>(&mut self) -> Result<(), E> {
        self.is_over |= self.bytes.len() > self.limit;
        if self.is_over { Err(E::custom("too large")) } else { Ok(()) }
    }

    fn content(&mut self, field: u64, content: &[u8]) {
        put_varint(&mut self.bytes, field << 3 | 2);
        put_varint(&mut self.bytes, content.len() as u64);
        self.bytes.extend_from_slice(content);
    }

    /// Begins a field of unknown length and returns the offset of its content.
    fn begin(&mut self, field: u64) -> usize {
        put_varint(&mut self.bytes, field << 3 | 2);
        self.bytes.push(0);
        self.bytes.len()
    }

    /// Writes the length of the content that begins at `start`. If the length needs several bytes, the
    /// content moves.
    fn end(&mut self, start: usize) {
        let mut length = Vec::with_capacity(10);
        put_varint(&mut length, (self.bytes.len() - start) as u64);
        self.bytes.splice(start - 1..start, length);
    }
}

/// Visitor of a message that writes its fields without a length.
struct OtlpMessageVisitor<'o> {
    message: &'static OtlpFieldList,
    out: &'o mut OtlpProtobufWriter,
}

impl<'de> DeserializeSeed<'de> for OtlpMessageVisitor<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OtlpMessageVisitor<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        // The error does not repeat the text, which may be long.
        Err(E::invalid_type(serde::de::Unexpected::Other("a text"), &self))
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(OtlpFieldNameVisitor(self.message))? {
            match field {
                Some(field) => map.next_value_seed(OtlpFieldValueVisitor {
                    field,
                    place: if field.3 { OtlpValuePosition::List } else { OtlpValuePosition::Alone },
                    out: &mut *self.out,
                })?,
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

/// Visitor that finds the field for a name.
struct OtlpFieldNameVisitor(&'static OtlpFieldList);

impl<'de> DeserializeSeed<'de> for OtlpFieldNameVisitor {
    type Value = Option<&'static OtlpField>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for OtlpFieldNameVisitor {
    type Value = Option<&'static OtlpField>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }
    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|field| is_name(field.0, name)))
    }
}

/// Returns whether `name` is the field's name in camelCase or snake_case.
fn is_name(camel: &str, name: &str) -> bool {
    let snake = || {
        camel.bytes().flat_map(|byte| {
            let upper = byte.is_ascii_uppercase();
            upper.then_some(b'_').into_iter().chain([byte.to_ascii_lowercase()])
        })
    };
    camel == name || name.bytes().eq(snake())
}

/// Visitor that writes the value of a field.
struct OtlpFieldValueVisitor<'o> {
    field: &'static OtlpField,
    place: OtlpValuePosition,
    out: &'o mut OtlpProtobufWriter,
}

/// Position of a value in its field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OtlpValuePosition {
    /// Value of a singular field.
    Alone,
    /// Whole list of a repeated field.
    List,
    /// Element of a list of messages or texts, which have a key each.
    Listed,
    /// Element of a packed list of numbers, which has one key in total.
    Packed,
}

impl<'de> DeserializeSeed<'de> for OtlpFieldValueVisitor<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl OtlpFieldValueVisitor<'_> {
    fn number<E: Error>(self, number: i128) -> Result<(), E> {
        let OtlpField(name, field, kind, _) = *self.field;
        let fits = i128::from(i64::MIN) <= number && number <= i128::from(u64::MAX);
        let bits = number as u64;
        match kind {
            _ if self.place == OtlpValuePosition::List => {
                return Err(E::invalid_type(serde::de::Unexpected::Other("a number"), &self));
            }
            OtlpFieldKind::Number if fits => {
                if self.place != OtlpValuePosition::Packed {
                    put_varint(&mut self.out.bytes, field << 3);
                }
                put_varint(&mut self.out.bytes, bits);
            }
            OtlpFieldKind::Fixed if fits && number >= 0 => self.eight(bits.to_le_bytes()),
            OtlpFieldKind::Double => self.eight((number as f64).to_le_bytes()),
            _ => return Err(E::custom(format_args!("{number} cannot be the value of {name}"))),
        }
        Ok(())
    }

    fn eight(self, bytes: [u8; 8]) {
        if self.place != OtlpValuePosition::Packed {
            put_varint(&mut self.out.bytes, self.field.1 << 3 | 1);
        }
        self.out.bytes.extend_from_slice(&bytes);
    }
}

impl<'de> Visitor<'de> for OtlpFieldValueVisitor<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.field.2 {
            _ if self.place == OtlpValuePosition::List => "a list",
            OtlpFieldKind::Number | OtlpFieldKind::Fixed => "a whole number",
            OtlpFieldKind::Double => "a number",
            OtlpFieldKind::Truth => "true or false",
            OtlpFieldKind::Text => "a text",
            OtlpFieldKind::Bytes => "bytes in base64",
            OtlpFieldKind::Id(_) => "an id in hexadecimal or base64",
            OtlpFieldKind::Message(_) => "an object",
        };
        write!(f, "{kind} in {}", self.field.0)
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        match self.place {
            OtlpValuePosition::Alone | OtlpValuePosition::List => Ok(()),
            // Dropping the element would shift the ones after it, and other entries refer to them by index.
            OtlpValuePosition::Listed | OtlpValuePosition::Packed => {
                Err(E::invalid_type(serde::de::Unexpected::Unit, &self))
            }
        }
    }
    fn visit_bool<E: Error>(self, truth: bool) -> Result<(), E> {
        match self.field.2 {
            OtlpFieldKind::Truth => {
                put_varint(&mut self.out.bytes, self.field.1 << 3);
                self.out.bytes.push(u8::from(truth));
                Ok(())
            }
            _ => Err(E::invalid_type(serde::de::Unexpected::Bool(truth), &self)),
        }
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.number(number.into())
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.number(number.into())
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        match self.field.2 {
            OtlpFieldKind::Double => self.eight(number.to_le_bytes()),
            // Some senders write whole numbers as 1e9 or 1.0.
            OtlpFieldKind::Number | OtlpFieldKind::Fixed if number.fract() == 0.0 => {
                return self.number(number as i128);
            }
            _ => return Err(E::invalid_type(serde::de::Unexpected::Float(number), &self)),
        }
        Ok(())
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if self.place == OtlpValuePosition::List {
            return Err(E::invalid_type(serde::de::Unexpected::Other("a text"), &self));
        }
        match self.field.2 {
            OtlpFieldKind::Text => self.out.content(self.field.1, text.as_bytes()),
            OtlpFieldKind::Bytes => {
                let bytes =
                    base64(text).ok_or_else(|| E::custom(format_args!("{} is not base64", self.field.0)))?;
                self.out.content(self.field.1, &bytes);
            }
            OtlpFieldKind::Id(length) => {
                let is_hex = text.len() == 2 * length;
                let bytes = is_hex.then(|| decode_hex(text)).flatten().or_else(|| base64(text));
                let bytes = bytes.ok_or_else(|| E::custom(format_args!("{} is not an id", self.field.0)))?;
                self.out.content(self.field.1, &bytes);
            }
            OtlpFieldKind::Double => {
                let number =
                    text.parse().map_err(|_| E::custom(format_args!("{} is not a number", self.field.0)))?;
                return self.visit_f64(number);
            }
            OtlpFieldKind::Number | OtlpFieldKind::Fixed => match text.parse::<i128>() {
                Ok(number) => return self.number(number),
                Err(_) => return Err(E::custom(format_args!("{} is not a whole number", self.field.0))),
            },
            OtlpFieldKind::Truth | OtlpFieldKind::Message(_) => {
                return Err(E::invalid_type(serde::de::Unexpected::Other("a text"), &self));
            }
        }
        self.out.check()
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let (OtlpFieldKind::Message(message), OtlpValuePosition::Alone | OtlpValuePosition::Listed) =
            (self.field.2, self.place)
        else {
            return Err(A::Error::invalid_type(serde::de::Unexpected::Map, &self));
        };
        let start = self.out.begin(self.field.1);
        OtlpMessageVisitor { message, out: &mut *self.out }.visit_map(map)?;
        self.out.end(start);
        self.out.check()
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.place != OtlpValuePosition::List {
            return Err(A::Error::invalid_type(serde::de::Unexpected::Seq, &self));
        }
        // Numbers are packed, because the layout detector relies on that.
        let packed = matches!(self.field.2, OtlpFieldKind::Number | OtlpFieldKind::Fixed)
            .then(|| self.out.begin(self.field.1));
        let place = if packed.is_some() { OtlpValuePosition::Packed } else { OtlpValuePosition::Listed };
        while let Some(()) =
            list.next_element_seed(OtlpFieldValueVisitor { field: self.field, place, out: &mut *self.out })?
        {
            self.out.check()?;
        }
        if let Some(start) = packed {
            self.out.end(start);
        }
        Ok(())
    }
}

/// Decodes base64 of either alphabet, with or without padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    GeneralPurpose::new(alphabet, config).decode(text).ok()
}
