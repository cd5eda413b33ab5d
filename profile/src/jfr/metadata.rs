//! What a chunk says of its own types: a table of texts and a tree of elements that points into it.

use std::borrow::Cow;

use super::input::{ChunkCursor, EncodedText};
use super::{JfrError, check_limit};
use crate::hash::SeededMap;

/// The most texts of one chunk's metadata. The JDK has some thousands.
const MAX_TEXTS: usize = 1 << 17;
/// The most bytes of them. The JDK has some hundred thousand.
const MAX_TEXT_BYTES: usize = 1 << 24;
/// The most types. The JDK has some hundreds.
const MAX_CLASSES: usize = 1 << 15;
/// The most fields of all types.
const MAX_FIELDS: usize = 1 << 17;
/// The digits of the largest number.
const MAX_NUMBER_DIGITS: usize = 20;
/// How deep elements may lie in elements. The JDK's lie five deep.
const MAX_ELEMENT_DEPTH: usize = 16;

/// The types of a chunk.
#[derive(Default)]
pub(super) struct JfrTypeTable<'a> {
    texts: Vec<Cow<'a, str>>,
    classes: Vec<JfrClass>,
    by_id: SeededMap<u64, u32>,
    fields: usize,
}

/// A type.
#[derive(Default)]
pub(super) struct JfrClass {
    pub(super) id: u64,
    name: usize,
    pub(super) fields: Vec<JfrField>,
}

/// A field of a type.
#[derive(Clone, Copy, Default)]
pub(super) struct JfrField {
    name: usize,
    /// The type of what is in it.
    pub(super) class: u64,
    /// Whether it is written as the id of a constant.
    pub(super) constant: bool,
    /// Whether there are many, after their number.
    pub(super) array: bool,
}

/// An element's attributes, as far as they matter; texts by their place in the table.
#[derive(Default)]
struct ElementAttributes {
    name: usize,
    id: u64,
    class: u64,
    constant: bool,
    array: bool,
}

impl<'a> JfrTypeTable<'a> {
    /// Reads the metadata event that begins here.
    pub(super) fn read(mut input: ChunkCursor<'a>) -> Result<Self, JfrError> {
        let start = input.position();
        let size = input.read_int()?;
        let mut input = input.limited_to(start.saturating_add(size));
        if input.read_long()? != 0 {
            return Err(JfrError::Malformed { at: start, why: "no metadata where the header says" });
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
                return Err(JfrError::Malformed { at, why: "metadata that needs constants" });
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

    /// Reads an element with all that lies in it.
    fn read_element(&mut self, input: &mut ChunkCursor<'a>, depth: usize) -> Result<(), JfrError> {
        check_limit("elements of metadata in each other", depth, MAX_ELEMENT_DEPTH)?;
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
        let outside = JfrError::Malformed { at, why: "a text that metadata does not have" };
        if id < self.texts.len() { Ok(id) } else { Err(outside) }
    }

    fn add_class(&mut self, attributes: &ElementAttributes) -> Result<(), JfrError> {
        check_limit("types", self.classes.len() + 1, MAX_CLASSES)?;
        self.by_id.insert(attributes.id, self.classes.len() as u32);
        self.classes.push(JfrClass { id: attributes.id, name: attributes.name, fields: Vec::new() });
        Ok(())
    }

    /// Fields lie in their class, which is the last that began.
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

/// A number in digits; what is none, or has more digits than a number can have, is 0.
fn number(text: &str) -> u64 {
    if text.len() > MAX_NUMBER_DIGITS { 0 } else { text.parse().unwrap_or(0) }
}
