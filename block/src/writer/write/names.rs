//! Writing the name tables of a part.

use athanor_profile::Dictionary;
use athanor_profile::data_model::symbols::{Function, Mapping, NO_ENTRY};
use parquet::data_type::ByteArray;

use crate::format::columns::{ColumnValues, GROUP_TEXT_BYTES};
use crate::format::error::BlockError;
use crate::format::meta::MAX_ROWS_PER_GROUP;
use crate::format::meta::{FUNCTIONS_FILE, LOCATIONS_FILE, MAPPINGS_FILE, STACKS_FILE, TenantMeta};
use crate::writer::stack_numbering::StackNumbering;

/// Sink that writes a row group of a file.
type RowGroupSink<'w> = dyn FnMut(&'static str, &[ColumnValues<'_>]) -> Result<(), BlockError> + 'w;

/// Splits entries into nonempty chunks with the texts of one row group, so only one chunk is held twice.
pub(super) fn chunk_by_text<T>(entries: &[T], length: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    let mut rest = entries;
    std::iter::from_fn(move || {
        let mut count = 0;
        let mut bytes = 0;
        while count < rest.len().min(MAX_ROWS_PER_GROUP) && bytes < GROUP_TEXT_BYTES {
            bytes += length(&rest[count]);
            count += 1;
        }
        let (group, later) = rest.split_at(count);
        rest = later;
        (!group.is_empty()).then_some(group)
    })
}

impl StackNumbering {
    /// Writes stacks, locations, functions and mappings.
    pub(super) fn write_tables(
        &self,
        dictionary: &Dictionary,
        meta: &TenantMeta,
        write: &mut RowGroupSink<'_>,
    ) -> Result<(), BlockError> {
        let based = |id: u32, base: u32| if id == NO_ENTRY { -1 } else { (base + id) as i32 };
        let mut first = meta.nodes.0 as i32;
        for nodes in self.nodes.chunks(MAX_ROWS_PER_GROUP) {
            let ids: Vec<i32> = (first..).take(nodes.len()).collect();
            first += nodes.len() as i32;
            let parents: Vec<i32> = nodes.iter().map(|node| based(node.parent, meta.nodes.0)).collect();
            let locations: Vec<i32> =
                nodes.iter().map(|node| based(node.location, meta.locations.0)).collect();
            write(
                STACKS_FILE,
                &[ColumnValues::I32(&ids), ColumnValues::I32(&parents), ColumnValues::I32(&locations)],
            )?;
        }
        self.write_locations(dictionary, meta, write)?;
        self.write_functions(dictionary, meta, write)?;
        self.write_mappings(dictionary, meta, write)
    }

    fn write_functions(
        &self,
        dictionary: &Dictionary,
        meta: &TenantMeta,
        write: &mut RowGroupSink<'_>,
    ) -> Result<(), BlockError> {
        let strings = &dictionary.symbols.strings;
        let text = |id: u32| ByteArray::from(strings.get(id));
        let of = |&id: &u32| dictionary.symbols.functions()[id as usize];
        let length = |id: &u32| {
            let function = of(id);
            let texts = [function.name, function.system_name, function.filename];
            texts.into_iter().map(|text| strings.get(text).len()).sum()
        };
        let mut first = meta.functions.0 as i32;
        for group in chunk_by_text(&self.functions, length) {
            let functions: Vec<_> = group.iter().map(of).collect();
            let column = |of: fn(&Function) -> u32| {
                functions.iter().map(|function| text(of(function))).collect::<Vec<_>>()
            };
            let names = column(|function| function.name);
            let systems = column(|function| function.system_name);
            let files = column(|function| function.filename);
            let lines: Vec<i64> = functions.iter().map(|function| function.start_line).collect();
            let ids: Vec<i32> = (first..).take(group.len()).collect();
            first += group.len() as i32;
            write(
                FUNCTIONS_FILE,
                &[
                    ColumnValues::I32(&ids),
                    ColumnValues::Text(&names),
                    ColumnValues::Text(&systems),
                    ColumnValues::Text(&files),
                    ColumnValues::I64(&lines),
                ],
            )?;
        }
        Ok(())
    }

    fn write_mappings(
        &self,
        dictionary: &Dictionary,
        meta: &TenantMeta,
        write: &mut RowGroupSink<'_>,
    ) -> Result<(), BlockError> {
        let strings = &dictionary.symbols.strings;
        let text = |id: u32| ByteArray::from(strings.get(id));
        let of = |&id: &u32| dictionary.symbols.mappings()[id as usize];
        let length = |id: &u32| strings.get(of(id).filename).len() + strings.get(of(id).build_id).len();
        let mut first = meta.mappings.0 as i32;
        for group in chunk_by_text(&self.mappings, length) {
            let mappings: Vec<_> = group.iter().map(of).collect();
            let number = |of: fn(&Mapping) -> u64| {
                mappings.iter().map(|mapping| of(mapping) as i64).collect::<Vec<_>>()
            };
            let files: Vec<_> = mappings.iter().map(|mapping| text(mapping.filename)).collect();
            let builds: Vec<_> = mappings.iter().map(|mapping| text(mapping.build_id)).collect();
            let flags: Vec<i32> = mappings.iter().map(|mapping| i32::from(mapping.flags)).collect();
            let ids: Vec<i32> = (first..).take(group.len()).collect();
            first += group.len() as i32;
            write(
                MAPPINGS_FILE,
                &[
                    ColumnValues::I32(&ids),
                    ColumnValues::I64(&number(|mapping| mapping.start)),
                    ColumnValues::I64(&number(|mapping| mapping.size)),
                    ColumnValues::I64(&number(|mapping| mapping.offset)),
                    ColumnValues::Text(&files),
                    ColumnValues::Text(&builds),
                    ColumnValues::I32(&flags),
                ],
            )?;
        }
        Ok(())
    }

    /// Writes one row per line, the innermost at depth 0. A location without lines has one row with function
    /// −1.
    fn write_locations(
        &self,
        dictionary: &Dictionary,
        meta: &TenantMeta,
        write: &mut RowGroupSink<'_>,
    ) -> Result<(), BlockError> {
        let symbols = &dictionary.symbols;
        let mut rows = LocationColumns::default();
        for (id, &location) in meta.locations.range().zip(&self.locations) {
            let entry = symbols.locations()[location as usize];
            let mapping = self.mapping_numbers.get(entry.mapping as usize);
            let of_lines = symbols.lines(location);
            for at in 0..of_lines.len().max(1) {
                rows.ids.push(id as i32);
                rows.depths.push(at as i32);
                rows.mappings.push(mapping.map_or(-1, |&mapping| (meta.mappings.0 + mapping) as i32));
                rows.addresses.push(entry.address as i64);
                rows.folded.push(entry.folded);
                let line = of_lines.get(at);
                let function = line.map(|line| self.function_numbers[line.function as usize]);
                rows.functions.push(function.map_or(-1, |function| (meta.functions.0 + function) as i32));
                rows.lines.push(line.map_or(0, |line| line.line));
                rows.columns.push(line.map_or(0, |line| line.column));
                if rows.ids.len() == MAX_ROWS_PER_GROUP {
                    std::mem::take(&mut rows).write_row_group(write)?;
                }
            }
        }
        rows.write_row_group(write)
    }
}

#[derive(Default)]
struct LocationColumns {
    ids: Vec<i32>,
    depths: Vec<i32>,
    mappings: Vec<i32>,
    addresses: Vec<i64>,
    folded: Vec<bool>,
    functions: Vec<i32>,
    lines: Vec<i64>,
    columns: Vec<i64>,
}

impl LocationColumns {
    fn write_row_group(self, write: &mut RowGroupSink<'_>) -> Result<(), BlockError> {
        if self.ids.is_empty() {
            return Ok(());
        }
        write(
            LOCATIONS_FILE,
            &[
                ColumnValues::I32(&self.ids),
                ColumnValues::I32(&self.depths),
                ColumnValues::I32(&self.mappings),
                ColumnValues::I64(&self.addresses),
                ColumnValues::Bool(&self.folded),
                ColumnValues::I32(&self.functions),
                ColumnValues::I64(&self.lines),
                ColumnValues::I64(&self.columns),
            ],
        )
    }
}
