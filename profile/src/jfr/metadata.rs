//! What a chunk says of its own types: a table of texts and a tree of elements that points into it.

use std::borrow::Cow;

use super::input::{Input, Text};
use super::{JfrError, within};
use crate::hash::SeededMap;

/// The most texts of one chunk's metadata. The JDK has some thousands.
const TEXTS: usize = 1 << 17;
/// The most bytes of them. The JDK has some hundred thousand.
const TEXT_BYTES: usize = 1 << 24;
/// The most types. The JDK has some hundreds.
const CLASSES: usize = 1 << 15;
/// The most fields of all types.
const FIELDS: usize = 1 << 17;
/// The digits of the largest number.
const DIGITS: usize = 20;
/// How deep elements may lie in elements. The JDK's lie five deep.
const DEPTH: usize = 16;

/// The types of a chunk.
#[derive(Default)]
pub(super) struct Types<'a> {
    texts: Vec<Cow<'a, str>>,
    classes: Vec<Class>,
    by_id: SeededMap<u64, u32>,
    fields: usize,
}

/// A type.
#[derive(Default)]
pub(super) struct Class {
    pub(super) id: u64,
    name: usize,
    pub(super) fields: Vec<Field>,
}

/// A field of a type.
#[derive(Clone, Copy, Default)]
pub(super) struct Field {
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
struct Attributes {
    name: usize,
    id: u64,
    class: u64,
    constant: bool,
    array: bool,
}

impl<'a> Types<'a> {
    /// Reads the metadata event that begins here.
    pub(super) fn read(mut input: Input<'a>) -> Result<Self, JfrError> {
        let start = input.place();
        let size = input.int()?;
        let mut input = input.until(start.saturating_add(size));
        if input.long()? != 0 {
            return Err(JfrError::Malformed { at: start, why: "no metadata where the header says" });
        }
        for _ in ["start", "duration", "id"] {
            input.long()?;
        }
        let mut types = Types::default();
        let texts = input.int()?;
        within("texts of metadata", texts, TEXTS)?;
        let mut bytes = 0;
        for _ in 0..texts {
            let at = input.place();
            let Text::Plain(text) = input.text()? else {
                return Err(JfrError::Malformed { at, why: "metadata that needs constants" });
            };
            bytes += text.len();
            within("bytes of texts of metadata", bytes, TEXT_BYTES)?;
            types.texts.push(text);
        }
        types.element(&mut input, 0)?;
        Ok(types)
    }

    pub(super) fn class(&self, id: u64) -> Option<&Class> {
        self.by_id.get(&id).map(|&place| &self.classes[place as usize])
    }
    pub(super) fn named(&self, name: &str) -> Option<&Class> {
        self.classes.iter().find(|class| self.name(class) == name)
    }
    pub(super) fn name(&self, class: &Class) -> &str {
        &self.texts[class.name]
    }
    pub(super) fn field_name(&self, field: &Field) -> &str {
        &self.texts[field.name]
    }

    /// Reads an element with all that lies in it.
    fn element(&mut self, input: &mut Input<'a>, depth: usize) -> Result<(), JfrError> {
        within("elements of metadata in each other", depth, DEPTH)?;
        let name = self.text_id(input)?;
        let attributes = self.attributes(input)?;
        match &*self.texts[name] {
            "class" => self.add_class(&attributes)?,
            "field" => self.add_field(&attributes)?,
            _ => {}
        }
        for _ in 0..input.int()? {
            self.element(input, depth + 1)?;
        }
        Ok(())
    }

    fn attributes(&self, input: &mut Input<'a>) -> Result<Attributes, JfrError> {
        let mut attributes = Attributes::default();
        for _ in 0..input.int()? {
            let (key, value) = (self.text_id(input)?, self.text_id(input)?);
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

    fn text_id(&self, input: &mut Input<'a>) -> Result<usize, JfrError> {
        let at = input.place();
        let id = input.int()?;
        let outside = JfrError::Malformed { at, why: "a text that metadata does not have" };
        if id < self.texts.len() { Ok(id) } else { Err(outside) }
    }

    fn add_class(&mut self, attributes: &Attributes) -> Result<(), JfrError> {
        within("types", self.classes.len() + 1, CLASSES)?;
        self.by_id.insert(attributes.id, self.classes.len() as u32);
        self.classes.push(Class { id: attributes.id, name: attributes.name, fields: Vec::new() });
        Ok(())
    }

    /// Fields lie in their class, which is the last that began.
    fn add_field(&mut self, attributes: &Attributes) -> Result<(), JfrError> {
        self.fields += 1;
        within("fields of types", self.fields, FIELDS)?;
        let &Attributes { name, class, constant, array, .. } = attributes;
        if let Some(last) = self.classes.last_mut() {
            last.fields.push(Field { name, class, constant, array });
        }
        Ok(())
    }
}

/// A number in digits; what is none, or has more digits than a number can have, is 0.
fn number(text: &str) -> u64 {
    if text.len() > DIGITS { 0 } else { text.parse().unwrap_or(0) }
}
