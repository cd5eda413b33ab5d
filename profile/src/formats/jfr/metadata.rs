//! Metadata of a chunk, which describes its types: a string table and a tree of elements that refer to it.

use std::borrow::Cow;

use super::input::{ChunkCursor, EncodedText};
use super::{JfrError, check_limit};
use crate::encoding::hash::SeededMap;

/// Limit on the texts of one chunk's metadata. The JDK has some thousands.
const MAX_TEXTS: usize = 1 << 17;
/// Limit on the bytes of these texts. The JDK has some hundred thousand.
const MAX_TEXT_BYTES: usize = 1 << 24;
/// Limit on the number of types. The JDK has some hundreds.
const MAX_CLASSES: usize = 1 << 15;
/// Limit on the fields of all types.
const MAX_FIELDS: usize = 1 << 17;
/// Digits of the largest 64-bit number.
const MAX_NUMBER_DIGITS: usize = 20;
/// Limit on the nesting of elements. The JDK nests five deep.
const MAX_ELEMENT_DEPTH: usize = 16;

/// Types of a chunk by id.
#[derive(Default)]
pub(super) struct JfrTypeTable<'a> {
    texts: Vec<Cow<'a, str>>,
    classes: Vec<JfrClass>,
    by_id: SeededMap<u64, u32>,
    fields: usize,
}

/// Type with its fields.
#[derive(Default)]
pub(super) struct JfrClass {
    pub(super) id: u64,
    name: usize,
    pub(super) fields: Vec<JfrField>,
}

/// Field of a type.
#[derive(Clone, Copy, Default)]
pub(super) struct JfrField {
    name: usize,
    /// Type id of the field's value.
    pub(super) class: u64,
    /// Set if the value is stored as the id of a constant.
    pub(super) constant: bool,
    /// Set if the field holds a counted list of values.
    pub(super) array: bool,
}

/// Attributes of an element that the decoder uses; texts are indexes into the string table.
#[derive(Default)]
struct ElementAttributes {
    name: usize,
    id: u64,
    class: u64,
    constant: bool,
    array: bool,
}

impl<'a> JfrTypeTable<'a> {
    /// Reads the metadata event at the cursor.
    pub(super) fn read(mut input: ChunkCursor<'a>) -> Result<Self, JfrError> {
        let start = input.position();
        let size = input.read_int()?;
        let mut input = input.limited_to(start.saturating_add(size));
        if input.read_long()? != 0 {
            return Err(JfrError::Malformed { at: start, why: "missing metadata event" });
        }
        for _ in ["start", "duration", "id"] {
            input.read_long()?;
        }
        let mut types = JfrTypeTable::default();
        let texts = input.read_int()?;
        check_limit("texts of metadata", texts, MAX_TEXTS)?;
        let mut bytes = 0;
        for _ in 0..texts {
            let at = input.position();
            let EncodedText::Plain(text) = input.read_text()? else {
                return Err(JfrError::Malformed { at, why: "metadata that refers to constants" });
            };
            bytes += text.len();
            check_limit("bytes of texts of metadata", bytes, MAX_TEXT_BYTES)?;
            types.texts.push(text);
        }
        types.read_element(&mut input, 0)?;
        Ok(types)
    }

    pub(super) fn class_by_id(&self, id: u64) -> Option<&JfrClass> {
        self.by_id.get(&id).map(|&place| &self.classes[place as usize])
    }
    pub(super) fn find_class(&self, name: &str) -> Option<&JfrClass> {
        self.classes.iter().find(|class| self.name(class) == name)
    }
    pub(super) fn name(&self, class: &JfrClass) -> &str {
        &self.texts[class.name]
    }
    pub(super) fn field_name(&self, field: &JfrField) -> &str {
        &self.texts[field.name]
    }

    /// Reads an element with all nested elements.
    fn read_element(&mut self, input: &mut ChunkCursor<'a>, depth: usize) -> Result<(), JfrError> {
        check_limit("nested elements of metadata", depth, MAX_ELEMENT_DEPTH)?;
        let name = self.read_text_id(input)?;
        let attributes = self.read_attributes(input)?;
        match &*self.texts[name] {
            "class" => self.add_class(&attributes)?,
            "field" => self.add_field(&attributes)?,
            _ => {}
        }
        for _ in 0..input.read_int()? {
            self.read_element(input, depth + 1)?;
        }
        Ok(())
    }

    fn read_attributes(&self, input: &mut ChunkCursor<'a>) -> Result<ElementAttributes, JfrError> {
        let mut attributes = ElementAttributes::default();
        for _ in 0..input.read_int()? {
            let key = self.read_text_id(input)?;
            let value = self.read_text_id(input)?;
            let text = &*self.texts[value];
            match &*self.texts[key] {
                "name" => attributes.name = value,
                "id" => attributes.id = number(text),
                "class" => attributes.class = number(text),
                "constantPool" => attributes.constant = text == "true",
                "dimension" => attributes.array = number(text) > 0,
                _ => {}
            }
        }
        Ok(attributes)
    }

    fn read_text_id(&self, input: &mut ChunkCursor<'a>) -> Result<usize, JfrError> {
        let at = input.position();
        let id = input.read_int()?;
        let outside = JfrError::Malformed { at, why: "an unknown text index" };
        if id < self.texts.len() { Ok(id) } else { Err(outside) }
    }

    fn add_class(&mut self, attributes: &ElementAttributes) -> Result<(), JfrError> {
        check_limit("types", self.classes.len() + 1, MAX_CLASSES)?;
        self.by_id.insert(attributes.id, self.classes.len() as u32);
        self.classes.push(JfrClass { id: attributes.id, name: attributes.name, fields: Vec::new() });
        Ok(())
    }

    /// Adds a field to the class that was added last, because fields are nested in their class.
    fn add_field(&mut self, attributes: &ElementAttributes) -> Result<(), JfrError> {
        self.fields += 1;
        check_limit("fields of types", self.fields, MAX_FIELDS)?;
        let &ElementAttributes { name, class, constant, array, .. } = attributes;
        if let Some(last) = self.classes.last_mut() {
            last.fields.push(JfrField { name, class, constant, array });
        }
        Ok(())
    }
}

/// Parses a decimal number; invalid and too long texts become 0.
fn number(text: &str) -> u64 {
    if text.len() > MAX_NUMBER_DIGITS { 0 } else { text.parse().unwrap_or(0) }
}
