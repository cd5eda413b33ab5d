//! JSON form of `querier.v1.ProfileFormat`, which distinguishes an unknown name from an absent one.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::querier::v1::ProfileFormat;

impl Serialize for ProfileFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str_name())
    }
}

impl<'de> Deserialize<'de> for ProfileFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FormatVisitor)
    }
}

struct FormatVisitor;

impl Visitor<'_> for FormatVisitor {
    type Value = ProfileFormat;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the name of a format, such as PROFILE_FORMAT_FLAMEGRAPH, or its number")
    }

    /// Accepts names in upper case. A known name in other case counts as unspecified, as on other servers.
    fn visit_str<E: Error>(self, name: &str) -> Result<ProfileFormat, E> {
        let is_spelled_otherwise = ProfileFormat::from_str_name(&name.to_ascii_uppercase()).is_some();
        Ok(match ProfileFormat::from_str_name(name) {
            Some(format) => format,
            None if is_spelled_otherwise => ProfileFormat::Unspecified,
            None => ProfileFormat::UnknownName,
        })
    }

    /// Maps a number without a name to the default, as in protobuf.
    fn visit_i64<E: Error>(self, number: i64) -> Result<ProfileFormat, E> {
        Ok(i32::try_from(number).ok().and_then(|number| number.try_into().ok()).unwrap_or_default())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<ProfileFormat, E> {
        self.visit_i64(i64::try_from(number).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_name_is_told_from_none() {
        let read = |text: &str| serde_json::from_str::<ProfileFormat>(text).expect("a format");
        for (text, format) in [
            ("\"PROFILE_FORMAT_TREE\"", ProfileFormat::Tree),
            ("\"PROFILE_FORMAT_FUNCTIONS\"", ProfileFormat::Functions),
            ("\"profile_format_tree\"", ProfileFormat::Unspecified),
            ("\"PROFILE_FORMAT_FUNCTION_TREE\"", ProfileFormat::UnknownName),
            ("\"\"", ProfileFormat::UnknownName),
            ("2", ProfileFormat::Tree),
            ("99", ProfileFormat::Unspecified),
            ("-1", ProfileFormat::Unspecified),
            ("18446744073709551615", ProfileFormat::Unspecified),
        ] {
            assert_eq!(read(text), format, "{text}");
        }
        assert!(serde_json::from_str::<ProfileFormat>("[]").is_err());
        let written = serde_json::to_string(&ProfileFormat::Sandwich).expect("a name");
        assert_eq!(written, "\"PROFILE_FORMAT_SANDWICH\"");
    }
}
