//! Writer of profiles in the OpenTelemetry format.
//!
//! All names of a file are in one dictionary. Its tables begin with an empty entry. An OTLP profile has one
//! type of values, so each column becomes a separate profile.

use std::collections::BTreeMap;

use crate::data_model::model::{Profile, ValueType};
use crate::data_model::symbols::{NO_ENTRY, SymbolTable};
use crate::encoding::codec::put_varint;
use crate::encoding::numbering::{EntryNumbering, TextNumbering};
use crate::formats::pprof::wire::{write_message, write_number, write_packed};

/// Attribute of a mapping with its build id.
const BUILD_ID_ATTRIBUTE: &str = super::BUILD_ID_ATTRIBUTES[0];

/// Encodes a profile as the message `ProfilesData`. `resource` has attributes of the profiled service, such
/// as `service.name`.
pub fn encode(profile: &Profile, resource: &[(&str, &str)]) -> Vec<u8> {
    let mut tables = OtlpDictionaryBuilder::new(&profile.dictionary.symbols);
    let mut scope_profiles = Vec::new();
    let mut scope = Vec::new();
    write_message(&mut scope, 1, b"athanor");
    write_message(&mut scope_profiles, 1, &scope);
    for column in 0..profile.header.types.len() {
        let content = tables.profile(profile, column);
        write_message(&mut scope_profiles, 2, &content);
    }
    let mut attributes = Vec::new();
    for (key, value) in resource {
        let mut attribute = Vec::new();
        write_message(&mut attribute, 1, key.as_bytes());
        write_message(&mut attribute, 2, &any_value(value));
        write_message(&mut attributes, 1, &attribute);
    }
    let mut resource_profiles = Vec::new();
    write_message(&mut resource_profiles, 1, &attributes);
    write_message(&mut resource_profiles, 2, &scope_profiles);
    let mut out = Vec::new();
    write_message(&mut out, 1, &resource_profiles);
    write_message(&mut out, 2, &tables.dictionary(profile));
    out
}

/// Encodes the message `ExportProfilesServiceResponse` with rejected profiles.
pub fn partial_success(rejected: u64, why: &str) -> Vec<u8> {
    let mut partial = Vec::new();
    let mut out = Vec::new();
    write_number(&mut partial, 1, rejected);
    write_message(&mut partial, 2, why.as_bytes());
    write_message(&mut out, 1, &partial);
    out
}

/// Encodes an `AnyValue` with a text.
fn any_value(text: &str) -> Vec<u8> {
    let mut value = Vec::new();
    write_message(&mut value, 1, text.as_bytes());
    value
}

/// Encodes an `AnyValue` with a number, which is written even if it is 0.
fn whole_number(number: i64) -> Vec<u8> {
    let mut value = vec![3 << 3];
    put_varint(&mut value, number as u64);
    value
}

struct OtlpDictionaryBuilder<'a> {
    symbols: &'a SymbolTable,
    texts: TextNumbering,
    stacks: EntryNumbering,
    locations: EntryNumbering,
    functions: EntryNumbering,
    mappings: EntryNumbering,
    /// Key, value and unit of each attribute, with its index.
    attributes: BTreeMap<(String, AttributeValue, String), u64>,
    in_order: Vec<(String, AttributeValue, String)>,
}

/// Value of a label's attribute.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum AttributeValue {
    Text(String),
    Number(i64),
}

impl<'a> OtlpDictionaryBuilder<'a> {
    fn new(symbols: &'a SymbolTable) -> Self {
        OtlpDictionaryBuilder {
            symbols,
            texts: TextNumbering::default(),
            stacks: EntryNumbering::default(),
            locations: EntryNumbering::default(),
            functions: EntryNumbering::default(),
            mappings: EntryNumbering::default(),
            attributes: BTreeMap::new(),
            in_order: Vec::new(),
        }
    }

    fn attribute(&mut self, key: &str, value: AttributeValue, unit: &str) -> u64 {
        let attribute = (key.to_owned(), value, unit.to_owned());
        let next = self.in_order.len() as u64 + 1;
        let index = *self.attributes.entry(attribute.clone()).or_insert(next);
        if index == next {
            self.in_order.push(attribute);
        }
        index
    }

    fn value_type(&mut self, of: &ValueType) -> Vec<u8> {
        let mut content = Vec::new();
        write_number(&mut content, 1, self.texts.assign_number(&of.kind));
        write_number(&mut content, 2, self.texts.assign_number(&of.unit));
        content
    }

    /// Encodes one column, without rows of zeros.
    fn profile(&mut self, profile: &Profile, column: usize) -> Vec<u8> {
        let header = &profile.header;
        let width = profile.header.types.len();
        let mut out = Vec::new();
        let value_type = self.value_type(&header.types[column]);
        write_message(&mut out, 1, &value_type);
        let rows = profile.samples.rows(width).filter(|(_, _, values)| values[column] != 0);
        for (stack, labels, values) in rows {
            let mut sample = Vec::new();
            write_number(&mut sample, 1, self.stacks.assign_number(stack));
            let attributes = self.labels(profile, labels);
            write_packed(&mut sample, 2, attributes.into_iter());
            write_packed(&mut sample, 4, std::iter::once(values[column] as u64));
            write_message(&mut out, 2, &sample);
        }
        fixed(&mut out, 3, header.time_nanos.max(0) as u64);
        write_number(&mut out, 4, header.duration_nanos.max(0) as u64);
        if let Some(period_type) = &header.period_type {
            let period_type = self.value_type(period_type);
            write_message(&mut out, 5, &period_type);
        }
        write_number(&mut out, 6, header.period as u64);
        out
    }

    fn labels(&mut self, profile: &Profile, set: u32) -> Vec<u64> {
        let labels = profile.dictionary.label_sets.get(set).to_vec();
        let symbols = self.symbols;
        let text = |id| symbols.strings.get(id);
        let attribute = |label: crate::data_model::labels::SampleLabel| match text(label.text) {
            "" => self.attribute(text(label.key), AttributeValue::Number(label.number), text(label.unit)),
            value => self.attribute(text(label.key), AttributeValue::Text(value.to_owned()), ""),
        };
        labels.into_iter().map(attribute).collect()
    }

    /// Encodes all entries in use. Each table is written before the tables that it refers to.
    fn dictionary(mut self, profile: &Profile) -> Vec<u8> {
        let mut out = Vec::new();
        let nothing = Vec::new();
        let stacks = std::mem::take(&mut self.stacks.order);
        write_message(&mut out, 7, &nothing);
        for stack in stacks {
            let path = profile.dictionary.stacks.locations(stack);
            let mut content = Vec::new();
            write_packed(&mut content, 1, path.map(|location| self.locations.assign_number(location)));
            write_message(&mut out, 7, &content);
        }
        let locations = std::mem::take(&mut self.locations.order);
        write_message(&mut out, 2, &nothing);
        for location in locations {
            let content = self.location(location);
            write_message(&mut out, 2, &content);
        }
        self.mappings(&mut out);
        self.functions(&mut out);
        write_message(&mut out, 4, &nothing);
        write_message(&mut out, 6, &nothing);
        for (key, value, unit) in std::mem::take(&mut self.in_order) {
            let mut content = Vec::new();
            write_number(&mut content, 1, self.texts.assign_number(&key));
            let value = match value {
                AttributeValue::Text(value) => any_value(&value),
                AttributeValue::Number(value) => whole_number(value),
            };
            write_message(&mut content, 2, &value);
            write_number(&mut content, 3, self.texts.assign_number(&unit));
            write_message(&mut out, 6, &content);
        }
        for text in self.texts.iter() {
            write_message(&mut out, 5, text.as_bytes());
        }
        out
    }

    fn location(&mut self, location: u32) -> Vec<u8> {
        let symbols = self.symbols;
        let entry = symbols.locations()[location as usize];
        let mut content = Vec::new();
        if entry.mapping != NO_ENTRY {
            write_number(&mut content, 1, self.mappings.assign_number(entry.mapping));
        }
        write_number(&mut content, 2, symbols.sent_address(&entry));
        for line in symbols.lines(location) {
            let mut inner = Vec::new();
            write_number(&mut inner, 1, self.functions.assign_number(line.function));
            write_number(&mut inner, 2, line.line as u64);
            write_number(&mut inner, 3, line.column as u64);
            write_message(&mut content, 3, &inner);
        }
        content
    }

    fn mappings(&mut self, out: &mut Vec<u8>) {
        let symbols = self.symbols;
        let order = std::mem::take(&mut self.mappings.order);
        write_message(out, 1, &[]);
        for mapping in order {
            let entry = symbols.mappings()[mapping as usize];
            let mut content = Vec::new();
            write_number(&mut content, 1, entry.start);
            write_number(&mut content, 2, entry.start.wrapping_add(entry.size));
            write_number(&mut content, 3, entry.offset);
            write_number(&mut content, 4, self.texts.assign_number(symbols.strings.get(entry.filename)));
            let build_id = symbols.strings.get(entry.build_id);
            let attributes = (!build_id.is_empty())
                .then(|| self.attribute(BUILD_ID_ATTRIBUTE, AttributeValue::Text(build_id.to_owned()), ""));
            write_packed(&mut content, 5, attributes.into_iter());
            write_message(out, 1, &content);
        }
    }

    fn functions(&mut self, out: &mut Vec<u8>) {
        let symbols = self.symbols;
        let order = std::mem::take(&mut self.functions.order);
        write_message(out, 3, &[]);
        for function in order {
            let entry = symbols.functions()[function as usize];
            let mut content = Vec::new();
            write_number(&mut content, 1, self.texts.assign_number(symbols.strings.get(entry.name)));
            write_number(&mut content, 2, self.texts.assign_number(symbols.strings.get(entry.system_name)));
            write_number(&mut content, 3, self.texts.assign_number(symbols.strings.get(entry.filename)));
            write_number(&mut content, 4, entry.start_line as u64);
            write_message(out, 3, &content);
        }
    }
}

/// Writes a number field of eight bytes. 0 is the default and is not written.
fn fixed(out: &mut Vec<u8>, field: u8, value: u64) {
    if value != 0 {
        out.push(field << 3 | 1);
        out.extend_from_slice(&value.to_le_bytes());
    }
}
