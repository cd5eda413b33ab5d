//! YAML text as a tree whose nodes know their positions.
//!
//! Scalars keep their text: the label value `1.10` stays `1.10`, and a reader decides whether it is a number.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Options, Spanned};

use super::error::{ConfigError, Position, shorten};

/// Maximum depth of aliases within aliases. With the parser's limit of nested tables, it bounds the stack.
const MAX_ALIAS_DEPTH: usize = 4;
/// Maximum events of the text that aliases repeat.
const MAX_ALIAS_EVENTS: usize = 250_000;

/// Node of a YAML tree.
#[derive(Clone, Debug)]
pub(super) struct YamlNode {
    pub(super) value: YamlValue,
    pub(super) position: Position,
}

/// Value of a node.
#[derive(Clone, Debug)]
pub(super) enum YamlValue {
    Null,
    Scalar(YamlScalar),
    List(Vec<YamlNode>),
    Table(Vec<YamlEntry>),
}

/// Text, number or truth value.
#[derive(Clone, Debug)]
pub(super) struct YamlScalar {
    pub(super) text: String,
    /// Truth value, if the text is one and is not quoted.
    pub(super) truth: Option<bool>,
}

/// Key of a table with its value.
#[derive(Clone, Debug)]
pub(super) struct YamlEntry {
    pub(super) key: String,
    pub(super) key_position: Position,
    pub(super) node: YamlNode,
}

/// Parses a text. An empty one is null.
pub(super) fn parse_tree(text: &str) -> Result<YamlNode, ConfigError> {
    let start = Position { line: 1, column: 1 };
    if text.trim().is_empty() {
        return Ok(YamlNode { value: YamlValue::Null, position: start });
    }
    let mut options = Options::default();
    options.alias_limits.max_replay_stack_depth = MAX_ALIAS_DEPTH;
    options.alias_limits.max_total_replayed_events = MAX_ALIAS_EVENTS;
    match serde_saphyr::from_str_with_options::<Spanned<RawNode>>(text, options) {
        Ok(raw) => Ok(raw_to_node(raw, text)),
        Err(error) => {
            let position = error.location().map_or(start, position_of);
            Err(ConfigError { position, message: syntax_message(error.without_snippet()) })
        }
    }
}

/// Returns the message of the parser without the position, which the error has.
fn syntax_message(error: &serde_saphyr::Error) -> String {
    if let serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } = error {
        return format!("key {} is set twice; remove one", shorten(key));
    }
    let message = error.to_string();
    let message = message.lines().next().unwrap_or_default();
    let end = message.rfind(" at line ").unwrap_or(message.len());
    format!("the text is not YAML: {}", &message[..end])
}

fn position_of(location: Location) -> Position {
    Position { line: location.line().max(1), column: location.column().max(1) }
}

fn raw_to_node(raw: Spanned<RawNode>, text: &str) -> YamlNode {
    let position = position_of(raw.referenced);
    let value = match raw.value {
        RawNode::Null => YamlValue::Null,
        RawNode::Text(text) => YamlValue::Scalar(YamlScalar { text, truth: None }),
        RawNode::Typed { shown, truth } => {
            let text = source_text(&raw.defined, text).unwrap_or(shown);
            YamlValue::Scalar(YamlScalar { text, truth })
        }
        RawNode::List(items) => {
            YamlValue::List(items.into_iter().map(|item| raw_to_node(item, text)).collect())
        }
        RawNode::Table(entries) => {
            let entries = entries.into_iter().map(|(key, value)| {
                let key_position = position_of(key.referenced);
                YamlEntry { key: key.value, key_position, node: raw_to_node(value, text) }
            });
            YamlValue::Table(entries.collect())
        }
    };
    YamlNode { value, position }
}

/// Returns a number or truth value as it is written.
fn source_text(location: &Location, text: &str) -> Option<String> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let end = start.checked_add(usize::try_from(span.byte_len()?).ok()?)?;
    let written = text.get(start..end)?.trim();
    let is_plain = !written.is_empty() && !written.starts_with(['!', '&', '*', '"', '\'', '|', '>']);
    is_plain.then(|| written.to_owned())
}

/// Node as the deserializer yields it.
enum RawNode {
    Null,
    Text(String),
    /// Number or truth value.
    Typed {
        shown: String,
        truth: Option<bool>,
    },
    List(Vec<Spanned<RawNode>>),
    Table(Vec<(Spanned<String>, Spanned<RawNode>)>),
}

impl RawNode {
    fn number(value: impl fmt::Display) -> Self {
        RawNode::Typed { shown: value.to_string(), truth: None }
    }
}

impl<'de> Deserialize<'de> for RawNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawNodeVisitor)
    }
}

struct RawNodeVisitor;

impl<'de> Visitor<'de> for RawNodeVisitor {
    type Value = RawNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML node")
    }

    fn visit_bool<E>(self, value: bool) -> Result<RawNode, E> {
        Ok(RawNode::Typed { shown: value.to_string(), truth: Some(value) })
    }

    fn visit_i64<E>(self, value: i64) -> Result<RawNode, E> {
        Ok(RawNode::number(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<RawNode, E> {
        Ok(RawNode::number(value))
    }

    fn visit_i128<E>(self, value: i128) -> Result<RawNode, E> {
        Ok(RawNode::number(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<RawNode, E> {
        Ok(RawNode::number(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<RawNode, E> {
        Ok(RawNode::number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<RawNode, E> {
        Ok(RawNode::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<RawNode, E> {
        Ok(RawNode::Text(value))
    }

    fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<RawNode, E> {
        Err(E::custom("binary data is not a setting; write it as text"))
    }

    fn visit_unit<E>(self) -> Result<RawNode, E> {
        Ok(RawNode::Null)
    }

    fn visit_none<E>(self) -> Result<RawNode, E> {
        Ok(RawNode::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawNode, D::Error> {
        RawNode::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawNode, D::Error> {
        RawNode::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<RawNode, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(RawNode::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawNode, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key()? {
            entries.push((key, map.next_value()?));
        }
        Ok(RawNode::Table(entries))
    }

    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, _: A) -> Result<RawNode, A::Error> {
        Err(A::Error::custom("tags of an application are not settings; remove the tag"))
    }
}
