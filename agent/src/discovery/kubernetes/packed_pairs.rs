//! Packed pairs: labels or annotations of an object in two allocations.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// Names and values of labels or annotations. One text holds all of them, so that an object of a large cluster
/// takes little memory.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PackedPairs {
    text: Box<str>,
    /// End of each name and value in `text`: two for each pair.
    ends: Box<[u32]>,
}

struct PairsVisitor;

impl PackedPairs {
    /// Returns names and values in the order of the API.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ends.chunks_exact(2).enumerate().map(|(index, ends)| {
            let start = index.checked_sub(1).map_or(0, |before| self.ends[2 * before + 1] as usize);
            let name_end = ends[0] as usize;
            (&self.text[start..name_end], &self.text[name_end..ends[1] as usize])
        })
    }

    /// Returns the value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }
}

impl fmt::Debug for PackedPairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'de> Deserialize<'de> for PackedPairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor)
    }
}

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = PackedPairs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PackedPairs, A::Error> {
        let mut text = String::new();
        let mut ends = Vec::new();
        while let Some((name, value)) = map.next_entry::<Cow<'de, str>, Option<Cow<'de, str>>>()? {
            for part in [name, value.unwrap_or_default()] {
                text.push_str(&part);
                let end = u32::try_from(text.len());
                ends.push(end.map_err(|_| A::Error::custom("labels of an object have over 4 GiB"))?);
            }
        }
        Ok(PackedPairs { text: text.into_boxed_str(), ends: ends.into_boxed_slice() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_keep_order_and_empty_parts() {
        let pairs: PackedPairs =
            serde_json::from_str(r#"{"a": "1", "": "", "b\n": null, "c": "ü\t"}"#).unwrap();
        assert_eq!(pairs.iter().collect::<Vec<_>>(), [("a", "1"), ("", ""), ("b\n", ""), ("c", "ü\t")]);
        assert_eq!(pairs.get("c"), Some("ü\t"));
        assert_eq!(pairs.get("d"), None);
        assert_eq!(PackedPairs::default().iter().count(), 0);
    }

    #[test]
    fn pairs_of_other_types_are_rejected() {
        for text in [r#"{"a": 1}"#, r#"{"a": {}}"#, "[]", "3"] {
            assert!(serde_json::from_str::<PackedPairs>(text).is_err(), "{text}");
        }
    }
}
