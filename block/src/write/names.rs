//! Writing the tables of names.

use athanor_profile::Dictionary;
use athanor_profile::symbols::{Function, Mapping, NONE};
use parquet::data_type::ByteArray;

use crate::columns::{Column, GROUP_ROWS, GROUP_TEXT};
use crate::error::BlockError;
use crate::meta::{FUNCTIONS, LOCATIONS, MAPPINGS, STACKS, TenantMeta};
use crate::number::Numbering;

/// Writes a row group of a file.
type Write<'w> = dyn FnMut(&'static str, &[Column<'_>]) -> Result<(), BlockError> + 'w;

/// Runs of entries whose texts fill a row group, so that no more than those are held twice. None is empty.
pub(super) fn of_text<T>(entries: &[T], length: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    let mut rest = entries;
    std::iter::from_fn(move || {
        let (mut count, mut bytes) = (0, 0);
        while count < rest.len().min(GROUP_ROWS) && bytes < GROUP_TEXT {
            bytes += length(&rest[count]);
            count += 1;
        }
        let (group, later) = rest.split_at(count);
        rest = later;
        (!group.is_empty()).then_some(group)
    })
}

impl Numbering {
    /// Writes stacks, locations, functions and mappings.
    pub(super) fn write(
        &self,
        dictionary: &Dictionary,
        meta: &TenantMeta,
        write: &mut Write<'_>,
    ) -> Result<(), BlockError> {
        let based = |id: u32, base: u32| if id == NONE { -1 } else { (base + id) as i32 };
        let mut first = meta.nodes.0 as i32;
        for nodes in self.nodes.chunks(GROUP_ROWS) {
            let ids: Vec<i32> = (first..).take(nodes.len()).collect();
            first += nodes.len() as i32;
            let parents: Vec<i32> = nodes.iter().map(|node| based(node.parent, meta.nodes.0)).collect();
            let locations: Vec<i32> =
                nodes.iter().map(|node| based(node.location, meta.locations.0)).collect();
            write(STACKS, &[Column::I32(&ids), Column::I32(&parents), Column::I32(&locations)])?;
        }
        self.write_locations(dictionary, meta, write)?;
        self.write_functions(dictionary, meta, write)?;
        self.write_mappings(dictionary, meta, write)
    }

    fn write_functions(
        &self,
        dictionary: &Dictionary,
        meta: &TenantMeta,
        write: &mut Write<'_>,
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
        for group in of_text(&self.functions, length) {
            let functions: Vec<_> = group.iter().map(of).collect();
            let column = |of: fn(&Function) -> u32| {
                functions.iter().map(|function| text(of(function))).collect::<Vec<_>>()
            };
            let (names, systems) =
                (column(|function| function.name), column(|function| function.system_name));
            let files = column(|function| function.filename);
            let lines: Vec<i64> = functions.iter().map(|function| function.start_line).collect();
            let ids: Vec<i32> = (first..).take(group.len()).collect();
            first += group.len() as i32;
            write(
                FUNCTIONS,
                &[
                    Column::I32(&ids),
                    Column::Text(&names),
                    Column::Text(&systems),
                    Column::Text(&files),
                    Column::I64(&lines),
                ],
            )?;
        }
        Ok(())
    }

    fn write_mappings(
        &self,
        dictionary: &Dictionary,
        meta: &TenantMeta,
        write: &mut Write<'_>,
    ) -> Result<(), BlockError> {
        let strings = &dictionary.symbols.strings;
        let text = |id: u32| ByteArray::from(strings.get(id));
        let of = |&id: &u32| dictionary.symbols.mappings()[id as usize];
        let length = |id: &u32| strings.get(of(id).filename).len() + strings.get(of(id).build_id).len();
        let mut first = meta.mappings.0 as i32;
        for group in of_text(&self.mappings, length) {
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
                MAPPINGS,
                &[
                    Column::I32(&ids),
                    Column::I64(&number(|mapping| mapping.start)),
                    Column::I64(&number(|mapping| mapping.size)),
                    Column::I64(&number(|mapping| mapping.offset)),
                    Column::Text(&files),
                    Column::Text(&builds),
                    Column::I32(&flags),
                ],
            )?;
        }
        Ok(())
    }

    /// A row for each line, the innermost at depth 0; a location without lines has one row with function −1.
    fn write_locations(
        &self,
        dictionary: &Dictionary,
        meta: &TenantMeta,
        write: &mut Write<'_>,
    ) -> Result<(), BlockError> {
        let symbols = &dictionary.symbols;
        let mut rows = Locations::default();
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
                if rows.ids.len() == GROUP_ROWS {
                    std::mem::take(&mut rows).write(write)?;
                }
            }
        }
        rows.write(write)
    }
}

#[derive(Default)]
struct Locations {
    ids: Vec<i32>,
    depths: Vec<i32>,
    mappings: Vec<i32>,
    addresses: Vec<i64>,
    folded: Vec<bool>,
    functions: Vec<i32>,
    lines: Vec<i64>,
    columns: Vec<i64>,
}

impl Locations {
    fn write(self, write: &mut Write<'_>) -> Result<(), BlockError> {
        if self.ids.is_empty() {
            return Ok(());
        }
        write(
            LOCATIONS,
            &[
                Column::I32(&self.ids),
                Column::I32(&self.depths),
                Column::I32(&self.mappings),
                Column::I64(&self.addresses),
                Column::Bool(&self.folded),
                Column::I32(&self.functions),
                Column::I64(&self.lines),
                Column::I64(&self.columns),
            ],
        )
    }
}
