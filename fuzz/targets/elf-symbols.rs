//! Arbitrary bytes as a symbol table and its names: symbols start at or before the addresses that they are found by, and
//! their names are bounded. A table with a bound counts what it leaves out.
//!
//! The first two bytes are the size of the symbol table.
#![no_main]

use athanor_agent_ebpf::elf::ElfFile;
use athanor_agent_ebpf::symbols::{MAX_NAME_BYTES, SymbolFiles, SymbolTable, readable_name};
use libfuzzer_sys::fuzz_target;

#[path = "../object_file.rs"]
mod object_file;
use object_file::{BuiltSection, CODE_ADDRESS, CODE_BYTES};

const FEW_SYMBOLS: usize = 3;
const ADDRESS_STEP: usize = 0x101;

fn read(object: &ElfFile, max_symbols: usize) -> SymbolTable {
    SymbolTable::read(SymbolFiles { object, debug: None }, max_symbols)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((size, rest)) = bytes.split_first_chunk::<2>() else { return };
    let size = usize::from(u16::from_le_bytes(*size)).min(rest.len());
    let (symbols, names) = rest.split_at(size);
    let file = object_file::build(
        &[
            BuiltSection { name: ".symtab", content: symbols, link: 3 },
            BuiltSection { name: ".strtab", content: names, link: 0 },
        ],
        true,
    );
    let table = read(&file, usize::MAX);
    let few = read(&file, FEW_SYMBOLS);
    assert!(few.len() <= FEW_SYMBOLS);
    assert_eq!(few.len() as u64 + few.dropped(), table.len() as u64 + table.dropped());
    let files = SymbolFiles { object: &file, debug: Some(&file) };
    for address in (CODE_ADDRESS..CODE_ADDRESS + CODE_BYTES).step_by(ADDRESS_STEP).chain([0, u64::MAX]) {
        if let Some(found) = table.find(files, address) {
            assert!(found.start <= address && !found.name.is_empty());
            assert!(readable_name(&found.name).len() <= MAX_NAME_BYTES);
        }
    }
});
