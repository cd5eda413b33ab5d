//! Names of the attributes of an OpenTelemetry export.
//!
//! For a server, the attributes of a resource have precedence over those of scopes and profiles. So a label is
//! added to a resource only if no attribute below it has that name. The attributes of profiles are entries of the
//! dictionary, and all of them count, whichever profile refers to them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::failure::ReceiveError;
use super::sender_labels::canonical_label_name;
use super::wire::{WireContent, WireFields};

/// Field of the dictionary with strings.
const STRING_TABLE_FIELD: u64 = 5;
/// Field of the dictionary with attributes.
const ATTRIBUTE_TABLE_FIELD: u64 = 6;
/// Maximum number of texts that attributes refer to.
const MAX_REFERRED_TEXTS: usize = 200_000;

/// Text in place, or as an index into the string table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextRef<'a> {
    Inline(&'a [u8]),
    Index(u64),
}

/// Attribute of a resource or a scope.
#[derive(Clone, Copy, Debug)]
struct Attribute<'a> {
    key: TextRef<'a>,
    /// Value, if it is a text.
    value: Option<TextRef<'a>>,
}

/// Texts that attributes refer to, and names in the dictionary.
#[derive(Default)]
pub(super) struct AttributeTexts<'a> {
    texts: HashMap<u64, &'a [u8]>,
    /// Canonical names of the attributes that profiles refer to.
    profile_names: BTreeSet<String>,
}

/// Attributes by canonical name. Values that are no texts are None.
pub(super) type AttributeMap = BTreeMap<String, Option<String>>;

impl<'a> AttributeTexts<'a> {
    /// Reads the texts of all dictionaries. `holders` are resources and scopes, each with the field number of its
    /// attributes.
    pub(super) fn read(dictionaries: &[&'a [u8]], holders: &[(&'a [u8], u64)]) -> Result<Self, ReceiveError> {
        let mut wanted = HashSet::new();
        let mut profile_keys = HashSet::new();
        for dictionary in dictionaries {
            for field in WireFields::new(dictionary) {
                let field = field?;
                if let (ATTRIBUTE_TABLE_FIELD, WireContent::Bytes(entry)) = (field.number, field.content) {
                    profile_keys.insert(attribute_key_index(entry)?);
                    check_count(profile_keys.len())?;
                }
            }
        }
        wanted.extend(&profile_keys);
        for (holder, number) in holders {
            for attribute in attributes(holder, *number) {
                let attribute = attribute?;
                for text in [Some(attribute.key), attribute.value].into_iter().flatten() {
                    if let TextRef::Index(index) = text {
                        wanted.insert(index);
                    }
                }
                check_count(wanted.len())?;
            }
        }
        let texts = read_strings(dictionaries, &wanted)?;
        let mut found = Self { texts, profile_names: BTreeSet::new() };
        let names = profile_keys.into_iter().map(|key| found.text(TextRef::Index(key)));
        found.profile_names = names.map(|name| canonical_label_name(&name)).collect();
        Ok(found)
    }

    /// Returns whether an attribute of profiles has a canonical name.
    pub(super) fn has_profile_name(&self, name: &str) -> bool {
        self.profile_names.contains(name)
    }

    /// Adds the attributes of a resource or scope, of which the first with a name counts.
    pub(super) fn add_attributes(
        &self,
        holder: &'a [u8],
        number: u64,
        found: &mut AttributeMap,
    ) -> Result<(), ReceiveError> {
        for attribute in attributes(holder, number) {
            let attribute = attribute?;
            let name = canonical_label_name(&self.text(attribute.key));
            found.entry(name).or_insert_with(|| attribute.value.map(|value| self.text(value)));
        }
        Ok(())
    }

    fn text(&self, text: TextRef<'a>) -> String {
        let bytes = match text {
            TextRef::Inline(bytes) => bytes,
            TextRef::Index(index) => self.texts.get(&index).copied().unwrap_or_default(),
        };
        String::from_utf8_lossy(bytes).into_owned()
    }
}

fn check_count(count: usize) -> Result<(), ReceiveError> {
    if count <= MAX_REFERRED_TEXTS {
        return Ok(());
    }
    let message = format!(
        "attributes refer to over {MAX_REFERRED_TEXTS} texts, which is a fixed limit; send smaller batches"
    );
    Err(ReceiveError::Export(message))
}

fn read_strings<'a>(
    dictionaries: &[&'a [u8]],
    wanted: &HashSet<u64>,
) -> Result<HashMap<u64, &'a [u8]>, ReceiveError> {
    let mut texts = HashMap::with_capacity(wanted.len());
    let mut index = 0;
    // Strings of a second dictionary follow those of the first.
    for dictionary in dictionaries {
        for field in WireFields::new(dictionary) {
            let field = field?;
            if let (STRING_TABLE_FIELD, WireContent::Bytes(text)) = (field.number, field.content) {
                if wanted.contains(&index) {
                    texts.insert(index, text);
                }
                index += 1;
            }
        }
    }
    Ok(texts)
}

/// Returns the index of the key of an entry in the attribute table.
fn attribute_key_index(entry: &[u8]) -> Result<u64, ReceiveError> {
    let mut key = 0;
    for field in WireFields::new(entry) {
        let field = field?;
        if let (1, WireContent::Varint(index)) = (field.number, field.content) {
            key = index;
        }
    }
    Ok(key)
}

/// Returns the attributes of a resource or scope, from its field `number`.
fn attributes(holder: &[u8], number: u64) -> impl Iterator<Item = Result<Attribute<'_>, ReceiveError>> {
    WireFields::new(holder).filter_map(move |field| match field {
        Err(error) => Some(Err(error.into())),
        Ok(field) => match field.content {
            WireContent::Bytes(pair) if field.number == number => Some(read_attribute(pair)),
            _ => None,
        },
    })
}

fn read_attribute(pair: &[u8]) -> Result<Attribute<'_>, ReceiveError> {
    let mut key: &[u8] = &[];
    let mut named = 0;
    let mut value = None;
    for field in WireFields::new(pair) {
        let field = field?;
        match (field.number, field.content) {
            (1, WireContent::Bytes(text)) => key = text,
            (2, WireContent::Bytes(any)) => value = read_text_value(any)?,
            (3, WireContent::Varint(index)) => named = index,
            _ => {}
        }
    }
    let key = if key.is_empty() { TextRef::Index(named) } else { TextRef::Inline(key) };
    Ok(Attribute { key, value })
}

fn read_text_value(any: &[u8]) -> Result<Option<TextRef<'_>>, ReceiveError> {
    let mut value = None;
    for field in WireFields::new(any) {
        let field = field?;
        value = match (field.number, field.content) {
            (1, WireContent::Bytes(text)) => Some(TextRef::Inline(text)),
            (8, WireContent::Varint(index)) => Some(TextRef::Index(index)),
            _ => None,
        };
    }
    Ok(value)
}
