//! Tables of all versions, written by hand, and damaged ones.

use std::sync::Arc;

use proptest::prelude::*;

use crate::elf::{ElfFile, MemoryImage};
use crate::go_pclntab::{FunctionTableError, GoFunctionTable, TableVersion};
use crate::layout::{CfaRule, RbpRule, UnwindRow};

const TEXT_ADDRESS: u64 = 0x1000;
const TABLE_OFFSET: usize = 0x3000;
const DATA_OFFSET: usize = 0x4000;
const NAMES: [&str; 3] = ["main.main", "runtime.goexit", "crypto.block"];
/// Starts of the functions and the end of the last one, from the text start.
const STARTS: [u64; 4] = [0, 0x40, 0x60, 0x90];
/// Depths by pc: 0 for one byte, 8 for four, 40 for 40, then 0. Changes are in zigzag.
const DEPTHS: [u8; 9] = [2, 1, 16, 4, 64, 40, 79, 19, 0];

fn put(bytes: &mut Vec<u8>, value: u64, length: usize) {
    bytes.extend(&value.to_le_bytes()[..length]);
}

/// Bytes of a table with three functions.
struct WrittenTable {
    version: TableVersion,
    text_start: u64,
}

impl WrittenTable {
    fn bytes(&self) -> Vec<u8> {
        let magic: u32 = match self.version {
            TableVersion::Go2 => 0xffff_fffb,
            TableVersion::Go16 => 0xffff_fffa,
            TableVersion::Go18 => 0xffff_fff0,
            TableVersion::Go20 => 0xffff_fff1,
        };
        let is_relative = self.version >= TableVersion::Go18;
        let field = if is_relative { 4 } else { 8 };
        let entry_base = if is_relative { 0 } else { TEXT_ADDRESS };
        let names_at = 0x100u64;
        let depths_at = 0x180u64;
        let functions_at = if self.version == TableVersion::Go2 { 0 } else { 0x200u64 };
        let entries_at = if self.version == TableVersion::Go2 { 16 } else { 0x200usize };
        let records_at = 0x300u64;
        // Offsets are relative to the names and depths, which Go 1.2 counts from the table.
        let is_old = self.version == TableVersion::Go2;
        let name_base = if is_old { names_at } else { 0 };
        let depth_base = if is_old { depths_at } else { 0 };
        let mut bytes = Vec::new();
        put(&mut bytes, u64::from(magic), 4);
        bytes.extend([0, 0, 1, 8]);
        let mut words = vec![NAMES.len() as u64];
        match self.version {
            TableVersion::Go2 => {}
            TableVersion::Go16 => words.extend([0, names_at, 0, 0, depths_at, functions_at]),
            _ => words.extend([0, self.text_start, names_at, 0, 0, depths_at, functions_at]),
        }
        words.into_iter().for_each(|word| put(&mut bytes, word, 8));
        let mut entries = Vec::new();
        for (index, start) in STARTS.iter().enumerate() {
            put(&mut entries, entry_base + start, field);
            put(&mut entries, records_at + index as u64 * 64 - functions_at, field);
        }
        let mut place = |at: usize, content: &[u8]| {
            bytes.resize(bytes.len().max(at + content.len()), 0);
            bytes[at..at + content.len()].copy_from_slice(content);
        };
        place(entries_at, &entries);
        let mut names = Vec::new();
        for (index, name) in NAMES.iter().enumerate() {
            let mut record = Vec::new();
            put(&mut record, entry_base + STARTS[index], field);
            put(&mut record, name_base + names.len() as u64, 4);
            put(&mut record, 0, 8);
            // Go 1.16 and later use 0 for functions without a table.
            put(&mut record, depth_base + 1, 4);
            record.resize(64, 0);
            let id_at = field
                + if is_old {
                    28
                } else if self.version == TableVersion::Go20 {
                    36
                } else {
                    32
                };
            record[id_at] = index as u8;
            record[id_at + 1] = if *name == "crypto.block" { 4 } else { 0 };
            place(records_at as usize + index * 64, &record);
            names.extend(name.bytes());
            names.push(0);
        }
        place(names_at as usize, &names);
        place(depths_at as usize + 1, &DEPTHS);
        bytes.resize(0x400, 0);
        bytes
    }

    /// Returns a file without sections: code, the table, and data with a moduledata if the header lacks the text start.
    fn file(&self) -> Vec<u8> {
        let table_address = TABLE_OFFSET as u64;
        let mut file = vec![0; DATA_OFFSET + 0x400];
        let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        put(&mut header, 3, 2);
        put(&mut header, 62, 2);
        put(&mut header, 1, 4);
        [TEXT_ADDRESS, 64, 0].into_iter().for_each(|word| put(&mut header, word, 8));
        put(&mut header, 0, 4);
        [64, 56, 3, 0, 0, 0].into_iter().for_each(|half| put(&mut header, half, 2));
        let mut segment = |flags: u64, offset: u64, size: u64| {
            put(&mut header, 1, 4);
            put(&mut header, flags, 4);
            [offset, offset, offset, size, size, 0x1000]
                .into_iter()
                .for_each(|word| put(&mut header, word, 8));
        };
        segment(5, TEXT_ADDRESS, 0x1000);
        segment(4, table_address, 0x1000);
        segment(6, DATA_OFFSET as u64, 0x400);
        file[..header.len()].copy_from_slice(&header);
        let bytes = self.bytes();
        file[TABLE_OFFSET..TABLE_OFFSET + bytes.len()].copy_from_slice(&bytes);
        if self.text_start == 0 {
            let mut module = vec![0; 184];
            module[..8].copy_from_slice(&table_address.to_le_bytes());
            module[8..16].copy_from_slice(&(table_address + 0x100).to_le_bytes());
            module[160..168].copy_from_slice(&TEXT_ADDRESS.to_le_bytes());
            module[176..184].copy_from_slice(&TEXT_ADDRESS.to_le_bytes());
            file[DATA_OFFSET + 64..DATA_OFFSET + 64 + 184].copy_from_slice(&module);
        }
        file
    }
}

fn open(bytes: Vec<u8>) -> ElfFile {
    ElfFile::open(Arc::new(MemoryImage(bytes))).unwrap()
}

fn all_tables() -> Vec<WrittenTable> {
    let versions = [TableVersion::Go2, TableVersion::Go16, TableVersion::Go18, TableVersion::Go20];
    let tables = versions.into_iter().map(|version| WrittenTable { version, text_start: TEXT_ADDRESS });
    tables.chain([WrittenTable { version: TableVersion::Go20, text_start: 0 }]).collect()
}

#[test]
fn names_are_found_in_tables_of_all_versions() {
    for written in all_tables() {
        let file = open(written.file());
        let table = GoFunctionTable::find(&file).unwrap().unwrap();
        assert_eq!(table.version(), written.version);
        assert_eq!(table.address_range(), 0x1000..0x1090);
        let name = |address| table.function_at(&file, address).map(|function| function.name);
        assert_eq!(name(0x0fff), None);
        assert_eq!(name(0x1000).as_deref(), Some("main.main"));
        assert_eq!(name(0x103f).as_deref(), Some("main.main"));
        assert_eq!(name(0x1040).as_deref(), Some("runtime.goexit"));
        assert_eq!(name(0x108f).as_deref(), Some("crypto.block"));
        assert_eq!(name(0x1090), None);
    }
}

#[test]
fn rows_are_built_from_tables_of_all_versions() {
    let none = |pc| UnwindRow::new(pc, CfaRule::None, 0, RbpRule::Same, 0);
    let empty = |pc| UnwindRow::new(pc, CfaRule::Rsp, 8, RbpRule::Same, 0);
    let saved = |pc, cfa| UnwindRow::new(pc, CfaRule::Rsp, cfa, RbpRule::AtCfa, -2);
    let plain = |pc, cfa| UnwindRow::new(pc, CfaRule::Rsp, cfa, RbpRule::Same, 0);
    for written in all_tables() {
        let file = open(written.file());
        let table = GoFunctionTable::find(&file).unwrap().unwrap();
        let rows = table.rows_of_page(&file, 0);
        // The code is zeros: the assembly does not save rbp.
        let expected = [
            none(0),
            empty(0x1000),
            saved(0x1001, 16),
            saved(0x1005, 48),
            empty(0x102d),
            UnwindRow::new(0x1040, CfaRule::End, 0, RbpRule::Same, 0),
            empty(0x1060),
            plain(0x1061, 16),
            plain(0x1065, 48),
            empty(0x108d),
            none(0x1090),
        ];
        assert_eq!(rows, expected, "{:?}", written.version);
    }
}

#[test]
fn damaged_header_is_an_error_that_names_the_field() {
    let written = WrittenTable { version: TableVersion::Go20, text_start: TEXT_ADDRESS };
    let damage = |at: usize, value: u64| {
        let mut bytes = sectioned(&written);
        bytes[TABLE_OFFSET + at..TABLE_OFFSET + at + 8].copy_from_slice(&value.to_le_bytes());
        GoFunctionTable::find(&open(bytes))
    };
    assert!(damage(8, 3).unwrap().is_some());
    let cases = [
        (0, 0, FunctionTableError::Header { field: "magic", value: 0 }),
        (8, 0, FunctionTableError::Header { field: "number of functions", value: 0 }),
        (8, 1 << 40, FunctionTableError::TooManyFunctions { functions: 1 << 40 }),
        (8, 100_000, FunctionTableError::Truncated { offset: 0x200 + 800_004 }),
        (24, 0x9000, FunctionTableError::NoTextStart),
        (32, 1 << 50, FunctionTableError::Header { field: "names", value: 1 << 50 }),
        (64, u64::MAX, FunctionTableError::Header { field: "functions", value: u64::MAX }),
        (0x208, 0, FunctionTableError::NotSorted { entry: 1 }),
    ];
    for (at, value, expected) in cases {
        assert_eq!(damage(at, value).unwrap_err(), expected);
    }
}

/// Returns the file with sections: the table's one and names of sections.
fn sectioned(written: &WrittenTable) -> Vec<u8> {
    let mut file = written.file();
    let names_offset = file.len() as u64;
    file.extend(b"\0.gopclntab\0.shstrtab\0\0\0");
    let sections_offset = file.len() as u64;
    let table = TABLE_OFFSET as u64;
    for [name, kind, address, offset, size] in
        [[0; 5], [1, 1, table, table, 0x400], [12, 3, 0, names_offset, 22]]
    {
        put(&mut file, name, 4);
        put(&mut file, kind, 4);
        [0, address, offset, size].into_iter().for_each(|word| put(&mut file, word, 8));
        file.extend([0; 24]);
    }
    file[0x28..0x30].copy_from_slice(&sections_offset.to_le_bytes());
    file[0x3a..0x40].copy_from_slice(&[64, 0, 3, 0, 2, 0]);
    file
}

fn check_without_panic(bytes: Vec<u8>, address: u64) {
    let Ok(file) = ElfFile::open(Arc::new(MemoryImage(bytes))) else { return };
    let Ok(Some(table)) = GoFunctionTable::find(&file) else { return };
    for address in [address, 0x1000, 0x1041, 0x108f] {
        if let Some(function) = table.function_at(&file, address) {
            assert!((function.start..function.end).contains(&address));
        }
    }
    for page in [0, 1, (address >> 16) as u32] {
        let rows = table.rows_of_page(&file, page);
        assert!(rows.is_sorted_by(|before, after| before.pc < after.pc));
        assert!(rows.first().is_none_or(|row| row.pc == 0));
    }
}

fn any_word() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), (0u64..64).prop_map(|distance| u64::MAX - distance), 0u64..0x2000]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn damaged_tables_are_read_without_panic(
        version in 0usize..5,
        damage in prop::collection::vec((0usize..0x400, any::<u8>()), 0..30),
        words in prop::collection::vec((0usize..0x80, any_word()), 0..4),
        address: u64,
    ) {
        let mut bytes = all_tables()[version].file();
        for (at, value) in damage {
            bytes[TABLE_OFFSET + at] = value;
        }
        for (at, value) in words {
            let at = TABLE_OFFSET + at * 8;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        // The start of the table stays, else it is not found.
        let start = all_tables()[version].bytes();
        bytes[TABLE_OFFSET..TABLE_OFFSET + 8].copy_from_slice(&start[..8]);
        check_without_panic(bytes, address);
    }
}
