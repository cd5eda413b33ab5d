//! Line numbers of the settings in a YAML text.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// Returns the lines of a text, by path of the setting: the line of the key, or of the list item. Empty if
/// the text is not YAML. An alias has the line where it is used.
pub(super) fn lines_by_path(text: &str) -> BTreeMap<String, u32> {
    let mut lines = BTreeMap::new();
    if let Ok(root) = serde_saphyr::from_str::<YamlNode>(text) {
        root.collect_lines("", &mut lines);
    }
    lines
}

/// YAML node without its scalar values.
enum YamlNode {
    Table(Vec<(Spanned<String>, YamlNode)>),
    List(Vec<Spanned<YamlNode>>),
    Scalar,
}

impl YamlNode {
    fn collect_lines(&self, path: &str, lines: &mut BTreeMap<String, u32>) {
        match self {
            Self::Scalar => {}
            Self::Table(entries) => {
                for (key, node) in entries {
                    let name = &key.value;
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    node.collect_lines(&path, lines);
                    lines.insert(path, line_of(key));
                }
            }
            Self::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    item.value.collect_lines(&path, lines);
                    lines.insert(path, line_of(item));
                }
            }
        }
    }
}

fn line_of<T>(spanned: &Spanned<T>) -> u32 {
    u32::try_from(spanned.referenced.line()).unwrap_or(u32::MAX)
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlNodeVisitor)
    }
}

struct YamlNodeVisitor;

impl<'de> Visitor<'de> for YamlNodeVisitor {
    type Value = YamlNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML node")
    }

    fn visit_bool<E>(self, _: bool) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_i128<E>(self, _: i128) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_u128<E>(self, _: u128) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_none<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlNode, D::Error> {
        YamlNode::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlNode, D::Error> {
        YamlNode::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<YamlNode, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(YamlNode::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlNode, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key()? {
            entries.push((key, map.next_value()?));
        }
        Ok(YamlNode::Table(entries))
    }

    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, data: A) -> Result<YamlNode, A::Error> {
        data.variant::<IgnoredAny>().map(|_| YamlNode::Scalar)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_nested_keys_are_those_of_the_keys() {
        let text = "# first\nname: x\ncut:\n  max_size: 1\n  deep:\n    more: [a,\n      b]\npeers:\n- one\n- {a: 1,\n   b: 2}\n";
        let lines = lines_by_path(text);
        let expected = [
            ("cut", 3),
            ("cut.deep", 5),
            ("cut.deep.more", 6),
            ("cut.deep.more[0]", 6),
            ("cut.deep.more[1]", 7),
            ("cut.max_size", 4),
            ("name", 2),
            ("peers", 8),
            ("peers[0]", 9),
            ("peers[1]", 10),
            ("peers[1].a", 10),
            ("peers[1].b", 11),
        ];
        let lines: Vec<(&str, u32)> = lines.iter().map(|(path, line)| (path.as_str(), *line)).collect();
        assert_eq!(lines, expected);
        assert!(lines_by_path("a: [").is_empty() && lines_by_path("").is_empty());
    }
}
