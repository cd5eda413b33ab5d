//! Unwind rows of programs of Go equal their call frame information and their code.

use std::collections::HashMap;

use gimli::{BaseAddresses, CfaRule as DwarfCfaRule, DebugFrame, LittleEndian, UnwindContext, UnwindSection};

use super::programs::{C_PROGRAM, GoProgram, PLAIN_PROGRAM, open, table_of};
use crate::elf::ElfFile;
use crate::go_pclntab::GoFunctionTable;
use crate::layout::{CfaRule, ROW_PAGE_SHIFT, RbpRule, UnwindRow};

const DWARF_RSP: u16 = 7;
const PUSH_RBP_OPCODE: u8 = 0x55;
/// `mov [rsp + n], rbp`.
const STORE_RBP_OPCODE: [u8; 4] = [0x48, 0x89, 0x6c, 0x24];

/// Rows of a file by page.
struct LoadedRows<'a> {
    file: &'a ElfFile,
    table: GoFunctionTable,
    pages: HashMap<u32, Vec<UnwindRow>>,
}

impl<'a> LoadedRows<'a> {
    fn new(file: &'a ElfFile) -> Self {
        Self { file, table: table_of(file), pages: HashMap::new() }
    }

    fn row_at(&mut self, address: u64) -> UnwindRow {
        let page = (address >> ROW_PAGE_SHIFT) as u32;
        let rows = self.pages.entry(page).or_insert_with(|| self.table.rows_of_page(self.file, page));
        assert_eq!(rows[0].pc, 0);
        assert!(rows.is_sorted_by_key(|row| row.pc));
        let end = rows.partition_point(|row| row.pc <= address as u16);
        rows[end - 1]
    }

    fn functions(&self) -> Vec<(u64, String)> {
        let mut functions = Vec::new();
        let mut address = self.table.address_range().start;
        while let Some(function) = self.table.function_at(self.file, address) {
            address = function.end;
            functions.push((function.start, function.name));
        }
        functions
    }

    fn address_of(&self, name: &str) -> u64 {
        let functions = self.functions();
        functions.iter().find(|(_, found)| found == name).unwrap_or_else(|| panic!("{name}")).0
    }
}

fn cfa_rule(row: UnwindRow) -> u8 {
    row.rule & 15
}

fn rbp_rule(row: UnwindRow) -> u8 {
    row.rule >> 4
}

#[test]
fn rows_equal_call_frame_information() {
    for (source, with_c) in [(PLAIN_PROGRAM, false), (C_PROGRAM, true)] {
        let program = GoProgram::new(source, with_c);
        let Some(path) = program.build("program", &["-ldflags=-compressdwarf=false"]) else { return };
        let file = open(&path);
        let section = file.section(".debug_frame").unwrap().clone();
        let bytes = file.read_section(&section, 1 << 24).unwrap();
        let mut rows = LoadedRows::new(&file);
        let range = rows.table.address_range();
        let frames = DebugFrame::new(&bytes, LittleEndian);
        let bases = BaseAddresses::default();
        let mut context = UnwindContext::new();
        let mut entries = frames.entries(&bases);
        let mut compared = 0;
        while let Some(entry) = entries.next().unwrap() {
            let gimli::CieOrFde::Fde(entry) = entry else { continue };
            let entry = entry.parse(DebugFrame::cie_from_offset).unwrap();
            let mut table = entry.rows(&frames, &bases, &mut context).unwrap();
            while let Some(expected) = table.next_row().unwrap() {
                let address = expected.start_address();
                let DwarfCfaRule::RegisterAndOffset { register, offset } = *expected.cfa() else { continue };
                let row = if range.contains(&address) { rows.row_at(address) } else { continue };
                if cfa_rule(row) == CfaRule::Rsp as u8 {
                    assert_eq!((register.0, offset), (DWARF_RSP, i64::from(row.cfa)), "{address:#x}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 4000, "{compared}");
    }
}

#[test]
fn rows_find_saved_rbp_where_code_saved_it() {
    let program = GoProgram::new(PLAIN_PROGRAM, false);
    let Some(path) = program.build("program", &[]) else { return };
    let file = open(&path);
    let mut rows = LoadedRows::new(&file);
    let mut saved = 0;
    for (start, name) in rows.functions() {
        let end = rows.table.function_at(&file, start).unwrap().end;
        // First address at which the stack is not as the caller left it.
        let grown = (start..end).find(|address| {
            let row = rows.row_at(*address);
            cfa_rule(row) == CfaRule::Rsp as u8 && row.cfa != 8
        });
        let Some(address) = grown else { continue };
        let code = file.read_address(address - 1, 5).unwrap();
        let row = rows.row_at(address);
        if code[0] == PUSH_RBP_OPCODE || code[1..] == STORE_RBP_OPCODE {
            assert_eq!((rbp_rule(row), row.rbp_offset8), (RbpRule::AtCfa as u8, -2), "{name}");
            saved += 1;
        } else {
            assert_eq!(rbp_rule(row), RbpRule::Same as u8, "{name}");
        }
    }
    assert!(saved > 1000, "{saved}");
}

#[test]
fn roots_and_switches_of_stacks_have_their_own_rules() {
    let program = GoProgram::new(C_PROGRAM, true);
    let Some(path) = program.build("program", &["-ldflags=-s -w"]) else { return };
    let file = open(&path);
    let mut rows = LoadedRows::new(&file);
    for name in ["runtime.goexit", "runtime.mstart", "runtime.mcall", "runtime.morestack", "runtime.rt0_go"] {
        let address = rows.address_of(name);
        assert_eq!(cfa_rule(rows.row_at(address)), CfaRule::End as u8, "{name}");
        assert_eq!(cfa_rule(rows.row_at(address + 1)), CfaRule::End as u8, "{name}");
    }
    for name in ["runtime.systemstack", "runtime.asmcgocall", "runtime.cgocallback"] {
        let address = rows.address_of(name);
        let entry = rows.row_at(address);
        assert_eq!((cfa_rule(entry), entry.cfa), (CfaRule::Rsp as u8, 8), "{name}");
        assert_eq!(cfa_rule(rows.row_at(address + 4)), CfaRule::FramePointer as u8, "{name}");
    }
    let signal_return = rows.address_of("runtime.sigreturn__sigaction");
    for address in [signal_return - 1, signal_return, signal_return + 7] {
        assert_eq!(cfa_rule(rows.row_at(address)), CfaRule::Signal as u8);
    }
}

#[test]
fn page_without_go_code_has_no_rows() {
    let program = GoProgram::new(PLAIN_PROGRAM, false);
    let Some(path) = program.build("program", &[]) else { return };
    let file = open(&path);
    let table = table_of(&file);
    let range = table.address_range();
    assert!(table.rows_of_page(&file, (range.end >> ROW_PAGE_SHIFT) as u32 + 1).is_empty());
    assert!(table.rows_of_page(&file, 0).is_empty());
    let last = table.rows_of_page(&file, (range.end >> ROW_PAGE_SHIFT) as u32);
    assert_eq!(
        cfa_rule(*last.last().unwrap()),
        CfaRule::None as u8,
        "code after the last function has no row"
    );
}
