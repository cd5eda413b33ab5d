//! Writer of pprof. Only entries that the rows refer to are written, numbered from one in the order of first
//! use.

use super::entries::ELF_ADDRESSES_FIELD;
use super::entries::TIMESTAMPS_FIELD;
use super::wire::{write_message, write_number, write_packed};
use crate::data_model::model::{Profile, ValueType};
use crate::data_model::symbols::{ELF_ADDRESSES_FLAG, NO_ENTRY, SymbolTable};
use crate::encoding::hash::PrehashedMap;
use crate::encoding::numbering::EntryNumbering;

/// Encodes the profile as uncompressed pprof.
pub fn encode(profile: &Profile) -> Vec<u8> {
    PprofEncoder { symbols: &profile.dictionary.symbols, tables: PprofTables::default() }.profile(profile)
}

#[derive(Default)]
struct PprofTables {
    texts: Vec<String>,
    text_ids: PrehashedMap<u32, u64>,
    /// Indexes of header texts, which are not in the dictionary.
    loose: std::collections::BTreeMap<String, u64>,
    functions: EntryNumbering,
    mappings: EntryNumbering,
    locations: EntryNumbering,
}

struct PprofEncoder<'a> {
    symbols: &'a SymbolTable,
    tables: PprofTables,
}

impl PprofEncoder<'_> {
    fn profile(mut self, profile: &Profile) -> Vec<u8> {
        self.loose("");
        let mut out = Vec::new();
        let header = &profile.header;
        for value_type in &header.types {
            let content = self.value_type(value_type);
            write_message(&mut out, 1, &content);
        }
        self.samples(profile, &mut out);
        self.locations(&mut out);
        self.mappings(&mut out);
        self.functions(&mut out);
        write_number(&mut out, 7, self.loose(&header.drop_frames));
        write_number(&mut out, 8, self.loose(&header.keep_frames));
        write_number(&mut out, 9, header.time_nanos as u64);
        write_number(&mut out, 10, header.duration_nanos as u64);
        if let Some(period_type) = &header.period_type {
            let content = self.value_type(period_type);
            write_message(&mut out, 11, &content);
        }
        write_number(&mut out, 12, header.period as u64);
        let comments: Vec<u64> = header.comments.iter().map(|comment| self.loose(comment)).collect();
        write_packed(&mut out, 13, comments.into_iter());
        write_number(&mut out, 14, self.loose(&header.default_type));
        write_number(&mut out, 15, self.loose(&header.doc_url));
        for text in &self.tables.texts {
            write_message(&mut out, 6, text.as_bytes());
        }
        out
    }

    /// Returns the index of a text in the file's string table.
    fn loose(&mut self, text: &str) -> u64 {
        if let Some(&index) = self.tables.loose.get(text) {
            return index;
        }
        let index = self.tables.texts.len() as u64;
        self.tables.texts.push(text.to_owned());
        self.tables.loose.insert(text.to_owned(), index);
        index
    }

    fn text(&mut self, id: u32) -> u64 {
        if let Some(&index) = self.tables.text_ids.get(&id) {
            return index;
        }
        let index = self.loose(self.symbols.strings.get(id));
        self.tables.text_ids.insert(id, index);
        index
    }

    fn value_type(&mut self, value_type: &ValueType) -> Vec<u8> {
        let mut content = Vec::new();
        write_number(&mut content, 1, self.loose(&value_type.kind));
        write_number(&mut content, 2, self.loose(&value_type.unit));
        content
    }

    fn samples(&mut self, profile: &Profile, out: &mut Vec<u8>) {
        let dictionary = &profile.dictionary;
        let mut content = Vec::new();
        let mut times = Vec::new();
        for (row, (stack, labels, values)) in profile.samples.rows(profile.header.types.len()).enumerate() {
            content.clear();
            let path = dictionary.stacks.locations(stack);
            write_packed(&mut content, 1, path.map(|location| self.tables.locations.assign_number(location)));
            write_packed(&mut content, 2, values.iter().map(|&value| value as u64));
            for label in dictionary.label_sets.get(labels) {
                let mut inner = Vec::new();
                write_number(&mut inner, 1, self.text(label.key));
                write_number(&mut inner, 2, self.text(label.text));
                write_number(&mut inner, 3, label.number as u64);
                write_number(&mut inner, 4, self.text(label.unit));
                write_message(&mut content, 3, &inner);
            }
            times.clear();
            times.extend(
                profile.samples.moments.row_timestamps(row).iter().flat_map(|time| time.to_le_bytes()),
            );
            if !times.is_empty() {
                write_message(&mut content, TIMESTAMPS_FIELD, &times);
            }
            write_message(out, 2, &content);
        }
    }

    fn locations(&mut self, out: &mut Vec<u8>) {
        let order = std::mem::take(&mut self.tables.locations.order);
        for (id, &location) in (1..).zip(&order) {
            let entry = self.symbols.locations()[location as usize];
            let mut content = Vec::new();
            write_number(&mut content, 1, id);
            if entry.mapping != NO_ENTRY {
                write_number(&mut content, 2, self.tables.mappings.assign_number(entry.mapping));
            }
            write_number(&mut content, 3, self.symbols.sent_address(&entry));
            for line in self.symbols.lines(location) {
                let mut inner = Vec::new();
                write_number(&mut inner, 1, self.tables.functions.assign_number(line.function));
                write_number(&mut inner, 2, line.line as u64);
                write_number(&mut inner, 3, line.column as u64);
                write_message(&mut content, 4, &inner);
            }
            write_number(&mut content, 5, u64::from(entry.folded));
            write_message(out, 4, &content);
        }
    }

    fn mappings(&mut self, out: &mut Vec<u8>) {
        let order = std::mem::take(&mut self.tables.mappings.order);
        for (id, &mapping) in (1..).zip(&order) {
            let entry = self.symbols.mappings()[mapping as usize];
            let mut content = Vec::new();
            write_number(&mut content, 1, id);
            write_number(&mut content, 2, entry.start);
            write_number(&mut content, 3, entry.start.wrapping_add(entry.size));
            write_number(&mut content, 4, entry.offset);
            write_number(&mut content, 5, self.text(entry.filename));
            write_number(&mut content, 6, self.text(entry.build_id));
            for flag in 0..4 {
                write_number(&mut content, 7 + flag, u64::from(entry.flags >> flag & 1));
            }
            write_number(&mut content, ELF_ADDRESSES_FIELD, u64::from(entry.flags & ELF_ADDRESSES_FLAG != 0));
            write_message(out, 3, &content);
        }
    }

    fn functions(&mut self, out: &mut Vec<u8>) {
        let order = std::mem::take(&mut self.tables.functions.order);
        for (id, &function) in (1..).zip(&order) {
            let entry = self.symbols.functions()[function as usize];
            let mut content = Vec::new();
            write_number(&mut content, 1, id);
            write_number(&mut content, 2, self.text(entry.name));
            write_number(&mut content, 3, self.text(entry.system_name));
            write_number(&mut content, 4, self.text(entry.filename));
            write_number(&mut content, 5, entry.start_line as u64);
            write_message(out, 5, &content);
        }
    }
}
