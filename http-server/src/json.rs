//! JSON messages, as lenient as protobuf's JSON mapping: `10.0` and `"1e3"` are integers, `null` stands for
//! an absent value.
//!
//! The generated deserializers accept neither. [`FieldDeserializer`] wraps the parser and converts each value
//! once. No intermediate tree is built, strings are borrowed, and duplicate fields are still rejected.

use std::fmt;

use serde::de::value::SeqDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};

/// Largest magnitude up to which a float represents integers exactly.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Error of a body that is not a valid message.
#[derive(Debug, thiserror::Error)]
pub enum MessageJsonError {
    /// A field has a value of the wrong type.
    #[error("{path}: {source}")]
    Field {
        /// Path of the field, such as `series[0].labels[1].name`.
        path: String,
        /// Error of the JSON parser.
        source: serde_json::Error,
    },
    /// The body is not valid JSON.
    #[error(transparent)]
    Body(#[from] serde_json::Error),
}

/// Deserializes one message that spans all of `bytes`.
pub fn read<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, MessageJsonError> {
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let message = M::deserialize(FieldDeserializer { value: &mut parser, null: NullDefault::Refused });
    let message = message.map_err(|error| placed::<M>(bytes, error))?;
    parser.end()?;
    Ok(message)
}

/// Deserializes a second time with path tracking, to locate the error.
fn placed<M: DeserializeOwned>(bytes: &[u8], error: serde_json::Error) -> MessageJsonError {
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let again = serde_path_to_error::deserialize(FieldDeserializer {
        value: &mut parser,
        null: NullDefault::Refused,
    });
    match again {
        Err::<M, _>(again) if again.path().iter().next().is_some() => {
            MessageJsonError::Field { path: again.path().to_string(), source: again.into_inner() }
        }
        _ => MessageJsonError::Body(error),
    }
}

/// Returns the expected value of a number field by its deserializer's type name. The deserializer's own
/// message names its internals.
fn of_number<T>() -> Option<String> {
    let name = std::any::type_name::<T>();
    let (_, rest) = name.split_once("NumberDeserialize<")?;
    let range = |least: &dyn fmt::Display, most: &dyn fmt::Display| {
        Some(format!("must be a whole number from {least} to {most}"))
    };
    match rest.split('>').next()? {
        "i32" => range(&i32::MIN, &i32::MAX),
        "u32" => range(&u32::MIN, &u32::MAX),
        "i64" => range(&i64::MIN, &i64::MAX),
        "u64" => range(&u64::MIN, &u64::MAX),
        _ => Some("must be a number".to_owned()),
    }
}

/// Replaces an error of the deserializer `T` by a message for the author of the request.
fn in_words<T, E: Error>(error: E) -> E {
    match of_number::<T>() {
        Some(words) => E::custom(words),
        None => error,
    }
}

/// Replacement values of `null`.
#[derive(Clone, Copy)]
enum NullDefault {
    /// `null` is rejected: in lists, and as the whole message.
    Refused,
    /// Default of a field with a type that is not yet known.
    Default,
    /// Default of a number or an enum.
    Zero,
    Text,
    No,
    Empty,
}

impl NullDefault {
    /// Resolves the default once the type is known.
    fn known(self, as_type: Self) -> Self {
        if matches!(self, Self::Default) { as_type } else { self }
    }
}

/// Deserializer of a value that resolves `null` and lenient numbers.
struct FieldDeserializer<D> {
    value: D,
    null: NullDefault,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for FieldDeserializer<D> {
    type Error = D::Error;

    /// Numbers and enums call this method.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.value.deserialize_any(LenientVisitor {
            visitor,
            null: self.null.known(NullDefault::Zero),
            number: true,
        })
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.value.deserialize_any(LenientVisitor {
            visitor,
            null: self.null.known(NullDefault::No),
            number: false,
        })
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.value.deserialize_any(LenientVisitor {
            visitor,
            null: self.null.known(NullDefault::Text),
            number: false,
        })
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.value.deserialize_any(LenientVisitor {
            visitor,
            null: self.null.known(NullDefault::Empty),
            number: false,
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.value.deserialize_map(LenientVisitor { visitor, null: NullDefault::Refused, number: false })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.value.deserialize_option(LenientVisitor { visitor, null: NullDefault::Refused, number: false })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.value.deserialize_ignored_any(visitor)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct enum identifier
    }
}

/// Visitor of a field that resolves `null` and lenient numbers.
struct LenientVisitor<V> {
    visitor: V,
    null: NullDefault,
    /// True if strings may contain numbers.
    number: bool,
}

/// Returns the integer value of a float without a fraction.
fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() <= MAX_EXACT_INTEGER).then_some(number as i64)
}

impl<V> LenientVisitor<V> {
    /// Returns the integer of a string with a fraction or an exponent.
    fn quoted(&self, text: &str) -> Option<i64> {
        let candidate = self.number && text.len() <= 32 && text.bytes().any(|byte| b".eE".contains(&byte));
        candidate.then(|| text.parse().ok().and_then(whole))?
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for LenientVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(formatter)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<V::Value, E> {
        self.visitor.visit_bool(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<V::Value, E> {
        self.visitor.visit_i64(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<V::Value, E> {
        self.visitor.visit_u64(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        match whole(value) {
            Some(number) => self.visitor.visit_i64(number),
            None => self.visitor.visit_f64(value),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<V::Value, E> {
        match self.quoted(value) {
            Some(number) => self.visitor.visit_i64(number),
            None => self.visitor.visit_str(value),
        }
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<V::Value, E> {
        match self.quoted(value) {
            Some(number) => self.visitor.visit_i64(number),
            None => self.visitor.visit_borrowed_str(value),
        }
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        match self.null {
            NullDefault::Refused | NullDefault::Default => self.visitor.visit_unit(),
            NullDefault::Zero => self.visitor.visit_i64(0),
            NullDefault::Text => self.visitor.visit_borrowed_str(""),
            NullDefault::No => self.visitor.visit_bool(false),
            NullDefault::Empty => self.visitor.visit_seq(SeqDeserializer::new(std::iter::empty::<i64>())),
        }
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(FieldDeserializer { value, null: NullDefault::Refused })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_seq(NestedAccess { inner: list, null: NullDefault::Refused })
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(NestedAccess { inner: fields, null: NullDefault::Default })
    }
}

/// Access to the elements of a list or the fields of a message.
struct NestedAccess<T> {
    inner: T,
    null: NullDefault,
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for NestedAccess<T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<T::Value, D::Error> {
        self.inner.deserialize(FieldDeserializer { value, null: self.null })
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for NestedAccess<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        self.inner.next_element_seed(NestedAccess { inner: seed, null: self.null }).map_err(in_words::<T, _>)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for NestedAccess<A> {
    type Error = A::Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        self.inner.next_key_seed(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.inner.next_value_seed(NestedAccess { inner: seed, null: self.null }).map_err(in_words::<T, _>)
    }
}

#[cfg(test)]
mod tests {
    use athanor_proto::push::v1::PushRequest;
    use athanor_proto::querier::v1::{SelectMergeStacktracesRequest as Graph, SelectSeriesRequest as Points};

    use super::*;

    fn nodes(number: &str) -> Option<i64> {
        read::<Graph>(format!("{{\"maxNodes\":{number}}}").as_bytes()).ok()?.max_nodes
    }

    #[test]
    fn whole_numbers_have_many_spellings() {
        for ten in ["10", "10.0", "1e1", "\"10\"", "\"1e1\"", "\"10.0\"", "100e-1"] {
            assert_eq!(nodes(ten), Some(10), "{ten}");
        }
        assert_eq!(nodes("9223372036854775807"), Some(i64::MAX));
        assert_eq!(nodes("\"-9223372036854775808\""), Some(i64::MIN));
        for no in ["10.5", "\"10.5\"", "1e30", "9007199254740994.0", "\"\"", "\" 10\"", "true", "[1]", "{}"] {
            assert_eq!(nodes(no), None, "{no}");
        }
        let points: Points = read(br#"{"step":"1.5","start":1.5e3}"#).unwrap();
        assert_eq!((points.step, points.start), (1.5, 1500));
    }

    #[test]
    fn an_error_names_the_field_and_what_it_takes() {
        let said = |body: &str| read::<Graph>(body.as_bytes()).unwrap_err().to_string();
        let whole = "must be a whole number from -9223372036854775808 to 9223372036854775807";
        for (body, expected) in [
            (r#"{"maxNodes":18446744073709551615}"#, format!("maxNodes: {whole}")),
            (r#"{"max_nodes":1.5}"#, format!("max_nodes: {whole}")),
            (r#"{"start":"abc"}"#, format!("start: {whole}")),
            (r#"{"start":[]}"#, format!("start: {whole}")),
            (r#"{"labelSelector":1}"#, "labelSelector: invalid type".to_owned()),
            ("[]", "invalid type".to_owned()),
        ] {
            assert!(said(body).starts_with(&expected), "{}", said(body));
        }
        let push = read::<PushRequest>(br#"{"series":[{"labels":[{"name":1}]}]}"#).unwrap_err().to_string();
        assert!(push.starts_with("series[0].labels[0].name: invalid type"), "{push}");
        let step = read::<Points>(br#"{"step":"x"}"#).unwrap_err().to_string();
        assert!(step.starts_with("step: must be a number"), "{step}");
    }

    #[test]
    fn null_is_what_is_absent() {
        let fields =
            r#"{"maxNodes":null,"stackTraceSelector":null,"format":null,"labelSelector":null,"start":null}"#;
        assert_eq!(read::<Graph>(fields.as_bytes()).unwrap(), Graph::default());
        assert_eq!(read::<Points>(br#"{"groupBy":null,"step":null}"#).unwrap(), Points::default());
        let lists = br#"{"series":[{"labels":null,"samples":[{"rawProfile":null,"ID":null}]}]}"#;
        assert!(read::<PushRequest>(lists).unwrap().series[0].samples[0].raw_profile.is_empty());
        for no in [r#"{"groupBy":[null]}"#, "null", r#"{"groupBy":["a",null]}"#] {
            assert!(read::<Points>(no.as_bytes()).is_err(), "{no}");
        }
    }

    #[test]
    fn enums_without_a_name_are_unspecified() {
        for format in ["99", "\"profile_format_tree\"", "null", "-1"] {
            let graph: Graph = read(format!("{{\"format\":{format}}}").as_bytes()).unwrap();
            assert_eq!(graph.format, 0, "{format}");
        }
        for tree in ["2", "\"PROFILE_FORMAT_TREE\""] {
            assert_eq!(
                read::<Graph>(format!("{{\"format\":{tree}}}").as_bytes()).unwrap().format,
                2,
                "{tree}"
            );
        }
    }

    #[test]
    fn texts_stay_what_they_are() {
        let graph: Graph = read(br#"{"labelSelector":"1e3","unknown":{"a":[null,1e400]}}"#).unwrap();
        assert_eq!(graph.label_selector, "1e3");
        let body = br#"{"series":[{"samples":[{"rawProfile":"H4sI"}]}]}"#;
        assert_eq!(read::<PushRequest>(body).unwrap().series[0].samples[0].raw_profile[..], [0x1f, 0x8b, 8]);
        assert!(read::<Graph>(br#"{"labelSelector":1}"#).is_err());
    }

    #[test]
    fn a_body_is_one_message_with_each_field_once() {
        let twice = r#"{"labelSelector":"a","label_selector":"a"}"#;
        for no in [twice, "{}{}", "\u{feff}{}", "[]", "", "{\"start\":1"] {
            assert!(read::<Graph>(no.as_bytes()).is_err(), "{no}");
        }
        assert!(read::<Graph>(b" \n{ }\n").is_ok());
        // What is skipped is skipped without recursion.
        let deep = format!("{{\"unknown\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(read::<Graph>(deep.as_bytes()).is_ok());
    }
}
