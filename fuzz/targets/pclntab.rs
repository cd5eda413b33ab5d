//! Arbitrary bytes as a function table of Go: refused, or functions contain the addresses that they are found by, and
//! rows are in order.
//!
//! The first byte decides whether the table is found by the name of its section or by its magic.
#![no_main]

use athanor_agent_ebpf::go_pclntab::GoFunctionTable;
use libfuzzer_sys::fuzz_target;

#[path = "../object_file.rs"]
mod object_file;
use object_file::{BuiltSection, CODE_ADDRESS, CODE_BYTES};

const MAX_FUNCTIONS: usize = 1000;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, content)) = bytes.split_first() else { return };
    let section = BuiltSection { name: ".gopclntab", content, link: 0 };
    let file = object_file::build(&[section], first & 1 == 0);
    let Ok(Some(table)) = GoFunctionTable::find(&file) else { return };
    let range = table.address_range();
    let mut address = range.start;
    for _ in 0..MAX_FUNCTIONS {
        let Some(function) = table.function_at(&file, address) else { break };
        assert!(function.start <= address && address < function.end);
        assert!(!function.name.is_empty());
        address = function.end;
    }
    for address in [0, CODE_ADDRESS, range.end.wrapping_sub(1), range.end, u64::MAX] {
        let found = table.function_at(&file, address);
        assert!(found.is_none_or(|function| (function.start..function.end).contains(&address)));
    }
    for page in [0, (CODE_BYTES >> 16) as u32, (range.start >> 16) as u32, (range.end >> 16) as u32] {
        let rows = table.rows_of_page(&file, page);
        assert!(rows.first().is_none_or(|row| row.pc == 0));
        assert!(rows.is_sorted_by(|before, after| before.pc < after.pc));
    }
});
