//! OTLP in JSON, written as protobuf: then all reading is one.
//!
//! Names of fields are taken as `camelCase` and as `snake_case`, numbers as numbers and as texts, bytes in base64 and ids
//! in hexadecimal too, as OTLP has them. What nobody knows is left out. A message is written where it is met, so that no
//! more is in memory than the text and the bytes.

use std::fmt;

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::packed::put;

/// Why a text was refused.
#[derive(Debug, thiserror::Error)]
pub enum JsonRefused {
    /// No JSON, or a field of another kind.
    #[error("the request cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Over a limit.
    #[error(
        "the request has over {limit} bytes as protobuf, which is limits.ingestion_body_limit: send smaller batches"
    )]
    TooLarge {
        /// The limit.
        limit: usize,
    },
}

/// The bytes of an `ExportProfilesServiceRequest` for its JSON, at most `limit` of them.
pub fn from_json(text: &[u8], limit: usize) -> Result<Vec<u8>, JsonRefused> {
    let mut out = Out { bytes: Vec::new(), limit, is_over: false };
    let mut parser = serde_json::Deserializer::from_slice(text);
    let read = Body { message: &REQUEST, out: &mut out }.deserialize(&mut parser).and_then(|()| parser.end());
    if out.is_over {
        return Err(JsonRefused::TooLarge { limit });
    }
    read?;
    Ok(out.bytes)
}

/// How a field is written.
#[derive(Clone, Copy)]
enum Kind {
    /// A number that may have a sign.
    Number,
    Fixed,
    Double,
    Truth,
    Text,
    Bytes,
    /// An id of so many bytes, in hexadecimal or base64.
    Id(usize),
    Message(&'static [Field]),
}

/// The name of a field in camelCase, its number, how it is written, and whether it is a list.
struct Field(&'static str, u64, Kind, bool);

const ONE: bool = false;
const MANY: bool = true;

type Fields = [Field];

static REQUEST: [Field; 2] = [
    Field("resourceProfiles", 1, Kind::Message(&RESOURCE_PROFILES), MANY),
    Field("dictionary", 2, Kind::Message(&DICTIONARY), ONE),
];
static RESOURCE_PROFILES: [Field; 2] = [
    Field("resource", 1, Kind::Message(&RESOURCE), ONE),
    Field("scopeProfiles", 2, Kind::Message(&SCOPE_PROFILES), MANY),
];
static RESOURCE: [Field; 2] = [
    Field("attributes", 1, Kind::Message(&KEY_VALUE), MANY),
    Field("droppedAttributesCount", 2, Kind::Number, ONE),
];
static SCOPE_PROFILES: [Field; 2] =
    [Field("scope", 1, Kind::Message(&SCOPE), ONE), Field("profiles", 2, Kind::Message(&PROFILE), MANY)];
static SCOPE: [Field; 2] = [
    Field("attributes", 3, Kind::Message(&KEY_VALUE), MANY),
    Field("droppedAttributesCount", 4, Kind::Number, ONE),
];
static KEY_VALUE: [Field; 3] = [
    Field("key", 1, Kind::Text, ONE),
    Field("value", 2, Kind::Message(&ANY_VALUE), ONE),
    Field("keyStrindex", 3, Kind::Number, ONE),
];
static ANY_VALUE: [Field; 8] = [
    Field("stringValue", 1, Kind::Text, ONE),
    Field("boolValue", 2, Kind::Truth, ONE),
    Field("intValue", 3, Kind::Number, ONE),
    Field("doubleValue", 4, Kind::Double, ONE),
    Field("arrayValue", 5, Kind::Message(&ARRAY), ONE),
    Field("kvlistValue", 6, Kind::Message(&KEY_VALUES), ONE),
    Field("bytesValue", 7, Kind::Bytes, ONE),
    Field("stringValueStrindex", 8, Kind::Number, ONE),
];
static ARRAY: [Field; 1] = [Field("values", 1, Kind::Message(&ANY_VALUE), MANY)];
static KEY_VALUES: [Field; 1] = [Field("values", 1, Kind::Message(&KEY_VALUE), MANY)];
static PROFILE: [Field; 12] = [
    Field("sampleType", 1, Kind::Message(&VALUE_TYPE), ONE),
    Field("samples", 2, Kind::Message(&SAMPLE), MANY),
    // As it was called in 1.8, when its fields had the names of today.
    Field("sample", 2, Kind::Message(&SAMPLE), MANY),
    Field("timeUnixNano", 3, Kind::Fixed, ONE),
    Field("durationNano", 4, Kind::Number, ONE),
    Field("periodType", 5, Kind::Message(&VALUE_TYPE), ONE),
    Field("period", 6, Kind::Number, ONE),
    Field("profileId", 7, Kind::Id(16), ONE),
    Field("droppedAttributesCount", 8, Kind::Number, ONE),
    Field("originalPayloadFormat", 9, Kind::Text, ONE),
    Field("originalPayload", 10, Kind::Bytes, ONE),
    Field("attributeIndices", 11, Kind::Number, MANY),
];
static SAMPLE: [Field; 5] = [
    Field("stackIndex", 1, Kind::Number, ONE),
    Field("attributeIndices", 2, Kind::Number, MANY),
    Field("linkIndex", 3, Kind::Number, ONE),
    Field("values", 4, Kind::Number, MANY),
    Field("timestampsUnixNano", 5, Kind::Fixed, MANY),
];
static VALUE_TYPE: [Field; 2] =
    [Field("typeStrindex", 1, Kind::Number, ONE), Field("unitStrindex", 2, Kind::Number, ONE)];
static DICTIONARY: [Field; 7] = [
    Field("mappingTable", 1, Kind::Message(&MAPPING), MANY),
    Field("locationTable", 2, Kind::Message(&LOCATION), MANY),
    Field("functionTable", 3, Kind::Message(&FUNCTION), MANY),
    Field("linkTable", 4, Kind::Message(&LINK), MANY),
    Field("stringTable", 5, Kind::Text, MANY),
    Field("attributeTable", 6, Kind::Message(&ATTRIBUTE), MANY),
    Field("stackTable", 7, Kind::Message(&STACK), MANY),
];
static MAPPING: [Field; 5] = [
    Field("memoryStart", 1, Kind::Number, ONE),
    Field("memoryLimit", 2, Kind::Number, ONE),
    Field("fileOffset", 3, Kind::Number, ONE),
    Field("filenameStrindex", 4, Kind::Number, ONE),
    Field("attributeIndices", 5, Kind::Number, MANY),
];
static LOCATION: [Field; 5] = [
    Field("mappingIndex", 1, Kind::Number, ONE),
    Field("address", 2, Kind::Number, ONE),
    Field("lines", 3, Kind::Message(&LINE), MANY),
    Field("line", 3, Kind::Message(&LINE), MANY),
    Field("attributeIndices", 4, Kind::Number, MANY),
];
static LINE: [Field; 3] = [
    Field("functionIndex", 1, Kind::Number, ONE),
    Field("line", 2, Kind::Number, ONE),
    Field("column", 3, Kind::Number, ONE),
];
static FUNCTION: [Field; 4] = [
    Field("nameStrindex", 1, Kind::Number, ONE),
    Field("systemNameStrindex", 2, Kind::Number, ONE),
    Field("filenameStrindex", 3, Kind::Number, ONE),
    Field("startLine", 4, Kind::Number, ONE),
];
static LINK: [Field; 2] = [Field("traceId", 1, Kind::Id(16), ONE), Field("spanId", 2, Kind::Id(8), ONE)];
static ATTRIBUTE: [Field; 3] = [
    Field("keyStrindex", 1, Kind::Number, ONE),
    Field("value", 2, Kind::Message(&ANY_VALUE), ONE),
    Field("unitStrindex", 3, Kind::Number, ONE),
];
static STACK: [Field; 1] = [Field("locationIndices", 1, Kind::Number, MANY)];

/// What is written.
struct Out {
    bytes: Vec<u8>,
    limit: usize,
    is_over: bool,
}

impl Out {
    /// Refuses more than may be.
    fn check<E: Error>(&mut self) -> Result<(), E> {
        self.is_over |= self.bytes.len() > self.limit;
        if self.is_over { Err(E::custom("too large")) } else { Ok(()) }
    }

    fn content(&mut self, field: u64, content: &[u8]) {
        put(&mut self.bytes, field << 3 | 2);
        put(&mut self.bytes, content.len() as u64);
        self.bytes.extend_from_slice(content);
    }

    /// Begins content whose length is not known yet, and gives where.
    fn begin(&mut self, field: u64) -> usize {
        put(&mut self.bytes, field << 3 | 2);
        self.bytes.push(0);
        self.bytes.len()
    }

    /// Writes the length of what began there; long content moves for it.
    fn end(&mut self, start: usize) {
        let mut length = Vec::with_capacity(10);
        put(&mut length, (self.bytes.len() - start) as u64);
        self.bytes.splice(start - 1..start, length);
    }
}

/// The fields of one message, written without a length.
struct Body<'o> {
    message: &'static Fields,
    out: &'o mut Out,
}

impl<'de> DeserializeSeed<'de> for Body<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Body<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        // What was sent is not told back: it may be long.
        Err(E::invalid_type(serde::de::Unexpected::Other("a text"), &self))
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(Named(self.message))? {
            match field {
                Some(field) => map.next_value_seed(One {
                    field,
                    place: if field.3 { Place::List } else { Place::Alone },
                    out: &mut *self.out,
                })?,
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

/// The field of a name.
struct Named(&'static Fields);

impl<'de> DeserializeSeed<'de> for Named {
    type Value = Option<&'static Field>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Named {
    type Value = Option<&'static Field>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }
    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|field| is_name(field.0, name)))
    }
}

/// Whether a name is that of a field, in either case.
fn is_name(camel: &str, name: &str) -> bool {
    let snake = || {
        camel.bytes().flat_map(|byte| {
            let upper = byte.is_ascii_uppercase();
            upper.then_some(b'_').into_iter().chain([byte.to_ascii_lowercase()])
        })
    };
    camel == name || name.bytes().eq(snake())
}

/// The value of a field.
struct One<'o> {
    field: &'static Field,
    place: Place,
    out: &'o mut Out,
}

/// Where a value stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Alone.
    Alone,
    /// It is the whole list.
    List,
    /// In a list, whose messages and texts have a key each.
    Listed,
    /// In a list of numbers, which has one key for all.
    Packed,
}

impl<'de> DeserializeSeed<'de> for One<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl One<'_> {
    fn number<E: Error>(self, number: i128) -> Result<(), E> {
        let Field(name, field, kind, _) = *self.field;
        let fits = i128::from(i64::MIN) <= number && number <= i128::from(u64::MAX);
        let bits = number as u64;
        match kind {
            _ if self.place == Place::List => {
                return Err(E::invalid_type(serde::de::Unexpected::Other("a number"), &self));
            }
            Kind::Number if fits => {
                if self.place != Place::Packed {
                    put(&mut self.out.bytes, field << 3);
                }
                put(&mut self.out.bytes, bits);
            }
            Kind::Fixed if fits && number >= 0 => self.eight(bits.to_le_bytes()),
            Kind::Double => self.eight((number as f64).to_le_bytes()),
            _ => return Err(E::custom(format_args!("{number} cannot be the value of {name}"))),
        }
        Ok(())
    }

    fn eight(self, bytes: [u8; 8]) {
        if self.place != Place::Packed {
            put(&mut self.out.bytes, self.field.1 << 3 | 1);
        }
        self.out.bytes.extend_from_slice(&bytes);
    }
}

impl<'de> Visitor<'de> for One<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.field.2 {
            _ if self.place == Place::List => "a list",
            Kind::Number | Kind::Fixed => "a whole number",
            Kind::Double => "a number",
            Kind::Truth => "true or false",
            Kind::Text => "a text",
            Kind::Bytes => "bytes in base64",
            Kind::Id(_) => "an id in hexadecimal or base64",
            Kind::Message(_) => "an object",
        };
        write!(f, "{kind} in {}", self.field.0)
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        match self.place {
            Place::Alone | Place::List => Ok(()),
            // Left out, it would shift those behind it, which others refer to by their places.
            Place::Listed | Place::Packed => Err(E::invalid_type(serde::de::Unexpected::Unit, &self)),
        }
    }
    fn visit_bool<E: Error>(self, truth: bool) -> Result<(), E> {
        match self.field.2 {
            Kind::Truth => {
                put(&mut self.out.bytes, self.field.1 << 3);
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
            Kind::Double => self.eight(number.to_le_bytes()),
            // Some write whole numbers as 1e9 or 1.0.
            Kind::Number | Kind::Fixed if number.fract() == 0.0 => return self.number(number as i128),
            _ => return Err(E::invalid_type(serde::de::Unexpected::Float(number), &self)),
        }
        Ok(())
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if self.place == Place::List {
            return Err(E::invalid_type(serde::de::Unexpected::Other("a text"), &self));
        }
        match self.field.2 {
            Kind::Text => self.out.content(self.field.1, text.as_bytes()),
            Kind::Bytes => {
                let bytes =
                    base64(text).ok_or_else(|| E::custom(format_args!("{} is no base64", self.field.0)))?;
                self.out.content(self.field.1, &bytes);
            }
            Kind::Id(length) => {
                let bytes = hexadecimal(text, length).or_else(|| base64(text));
                let bytes = bytes.ok_or_else(|| E::custom(format_args!("{} is no id", self.field.0)))?;
                self.out.content(self.field.1, &bytes);
            }
            Kind::Double => {
                let number =
                    text.parse().map_err(|_| E::custom(format_args!("{} is no number", self.field.0)))?;
                return self.visit_f64(number);
            }
            Kind::Number | Kind::Fixed => match text.parse::<i128>() {
                Ok(number) => return self.number(number),
                Err(_) => return Err(E::custom(format_args!("{} is no whole number", self.field.0))),
            },
            Kind::Truth | Kind::Message(_) => {
                return Err(E::invalid_type(serde::de::Unexpected::Other("a text"), &self));
            }
        }
        self.out.check()
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let (Kind::Message(message), Place::Alone | Place::Listed) = (self.field.2, self.place) else {
            return Err(A::Error::invalid_type(serde::de::Unexpected::Map, &self));
        };
        let start = self.out.begin(self.field.1);
        Body { message, out: &mut *self.out }.visit_map(map)?;
        self.out.end(start);
        self.out.check()
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.place != Place::List {
            return Err(A::Error::invalid_type(serde::de::Unexpected::Seq, &self));
        }
        // Numbers are packed: which layout samples have is seen by that.
        let packed = matches!(self.field.2, Kind::Number | Kind::Fixed).then(|| self.out.begin(self.field.1));
        let place = if packed.is_some() { Place::Packed } else { Place::Listed };
        while let Some(()) = list.next_element_seed(One { field: self.field, place, out: &mut *self.out })? {
            self.out.check()?;
        }
        if let Some(start) = packed {
            self.out.end(start);
        }
        Ok(())
    }
}

/// Base64 of either alphabet, with padding or without.
fn base64(text: &str) -> Option<Vec<u8>> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    GeneralPurpose::new(alphabet, config).decode(text).ok()
}

fn hexadecimal(text: &str, length: usize) -> Option<Vec<u8>> {
    let is_one = text.len() == 2 * length && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_one.then(|| {
        (0..length).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap_or_default()).collect()
    })
}
