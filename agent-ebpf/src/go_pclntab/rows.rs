//! Unwind rows of Go code, a page at a time.
//!
//! A table of each function has the bytes on the stack below the return address, by pc. A frame that is not empty has
//! the caller's frame pointer right below the return address.

use super::frame_kind::{COMPARED_NAME_BYTES, FrameKind, FunctionMarks};
use super::functions::{FunctionEntry, GoFunctionTable};
use super::header::TableVersion;
use crate::elf::ElfFile;
use crate::layout::{CfaRule, ROW_PAGE_SHIFT, RbpRule, UnwindRow};
use crate::symbols::window_reader::WindowReader;

/// Maximum number of functions in a page. Functions are aligned to 16 bytes.
const MAX_FUNCTIONS_PER_PAGE: usize = 8192;
/// Maximum number of steps of the tables that are read for a page.
const MAX_STEPS_PER_PAGE: usize = 1 << 18;
/// Position of the saved frame pointer: below the return address, in words from the CFA.
const SAVED_RBP_OFFSET8: i8 = -2;
/// Opcode of `push rbp`.
const PUSH_RBP_OPCODE: u8 = 0x55;
/// First bytes of `mov [rsp + n], rbp`.
const STORE_RBP_OPCODE: [u8; 3] = [0x48, 0x89, 0x6c];

impl GoFunctionTable {
    /// Builds the rows of a page of code. Code outside of Go functions gets [`CfaRule::None`]. Empty if no Go function
    /// lies in the page.
    pub fn rows_of_page(&self, file: &ElfFile, page: u32) -> Vec<UnwindRow> {
        let start = u64::from(page) << ROW_PAGE_SHIFT;
        let mut rows = PageRows::new(start);
        let range = self.address_range();
        if range.end <= start || range.start >= rows.end() {
            return Vec::new();
        }
        let mut readers = RowReaders::new(self, file);
        // A signal handler returns to the first byte of a function, and callers are looked up one byte before. So the
        // first function of the next page counts too.
        let first = self.find_index(&mut readers.entries, start.max(range.start)).unwrap_or_default();
        for index in (first..self.function_count()).take(MAX_FUNCTIONS_PER_PAGE) {
            let Some(entry) = self.entry(&mut readers.entries, index) else { continue };
            if entry.start > rows.end() {
                break;
            }
            let kind = self.frame_kind(&mut readers, &entry);
            self.function_rows(&mut readers, &entry, kind, &mut rows);
        }
        rows.push(range.end, CfaRule::None, 0, RbpRule::Same);
        rows.finish()
    }

    fn frame_kind(&self, readers: &mut RowReaders<'_>, entry: &FunctionEntry) -> FrameKind {
        let record = entry.record.saturating_add(self.version().function_id_offset());
        let id = readers.records.byte(record).unwrap_or_default();
        let flags = readers.records.byte(record.saturating_add(1)).unwrap_or_default();
        let marks = FunctionMarks { id, flags };
        if self.version() >= TableVersion::Go18 && !marks.may_be_special() {
            return FrameKind::Depth;
        }
        let name = self.name(&mut readers.names, entry, COMPARED_NAME_BYTES).unwrap_or_default();
        FrameKind::from_name(&name, marks)
    }

    fn function_rows(
        &self,
        readers: &mut RowReaders<'_>,
        entry: &FunctionEntry,
        kind: FrameKind,
        rows: &mut PageRows,
    ) {
        match kind {
            FrameKind::Root => return rows.push(entry.start, CfaRule::End, 0, RbpRule::Same),
            FrameKind::SignalReturn => {
                return rows.push(entry.start.saturating_sub(1), CfaRule::Signal, 0, RbpRule::Same);
            }
            FrameKind::Depth | FrameKind::AssemblyDepth | FrameKind::StackSwitch => {}
        }
        let Some(mut steps) = self.stack_depths(readers, entry) else {
            return rows.push(entry.start, CfaRule::None, 0, RbpRule::Same);
        };
        let mut saves_rbp = None;
        while let Some(step) = steps.next(&mut readers.depths) {
            if step.from >= rows.end() || !rows.count_step() {
                return;
            }
            if step.depth > 0 && saves_rbp.is_none() {
                saves_rbp = Some(kind != FrameKind::AssemblyDepth || readers.saves_rbp(step.from));
            }
            push_step(rows, kind, step, saves_rbp.unwrap_or_default());
        }
    }

    fn stack_depths(&self, readers: &mut RowReaders<'_>, entry: &FunctionEntry) -> Option<StackDepths> {
        let field = entry.record.checked_add(self.version().entry_field_bytes() + 12)?;
        let table = readers.records.number32(field)?;
        if table == 0 {
            return None;
        }
        let at = self.header.pc_values.checked_add(u64::from(table))?;
        Some(StackDepths { at, pc: entry.start, end: entry.end, depth: -1, is_first: true })
    }
}

fn push_step(rows: &mut PageRows, kind: FrameKind, step: DepthStep, saves_rbp: bool) {
    let Some(cfa) = step.depth.checked_add(8).filter(|_| step.depth >= 0) else {
        return rows.push(step.from, CfaRule::None, 0, RbpRule::Same);
    };
    if step.depth == 0 {
        rows.push(step.from, CfaRule::Rsp, cfa, RbpRule::Same);
    } else if kind == FrameKind::StackSwitch {
        rows.push(step.from, CfaRule::FramePointer, 0, RbpRule::Same);
    } else if saves_rbp {
        rows.push(step.from, CfaRule::Rsp, cfa, RbpRule::AtCfa);
    } else {
        rows.push(step.from, CfaRule::Rsp, cfa, RbpRule::Same);
    }
}

/// Readers of the parts of a table, each with its own window: neighboring functions lie next to each other in all.
struct RowReaders<'a> {
    entries: WindowReader<'a>,
    records: WindowReader<'a>,
    names: WindowReader<'a>,
    depths: WindowReader<'a>,
    file: &'a ElfFile,
}

impl<'a> RowReaders<'a> {
    fn new(table: &GoFunctionTable, file: &'a ElfFile) -> Self {
        let reader = || table.reader(file);
        Self { entries: reader(), records: reader(), names: reader(), depths: reader(), file }
    }

    /// Returns whether a function in assembly saves rbp where its stack first grows, right before or after an address.
    fn saves_rbp(&self, address: u64) -> bool {
        let mut code = [0; 4];
        let before = address.checked_sub(1).and_then(|address| self.file.offset_of(address));
        if before.is_none_or(|offset| self.file.source().read_at(offset, &mut code).is_err()) {
            return false;
        }
        let [pushed, stored @ ..] = code;
        pushed == PUSH_RBP_OPCODE || stored == STORE_RBP_OPCODE
    }
}

/// Depth of the stack from an address to the next step.
#[derive(Clone, Copy, Debug)]
struct DepthStep {
    from: u64,
    depth: i32,
}

/// Decoder of one function's table of depths: pairs of a change of depth and a number of bytes of code.
struct StackDepths {
    at: u64,
    pc: u64,
    end: u64,
    depth: i32,
    is_first: bool,
}

impl StackDepths {
    fn next(&mut self, reader: &mut WindowReader<'_>) -> Option<DepthStep> {
        if self.pc >= self.end {
            return None;
        }
        let change = self.varint(reader)?;
        if change == 0 && !self.is_first {
            return None;
        }
        let length = self.varint(reader)?;
        let sign = (change & 1).wrapping_neg();
        self.depth = self.depth.wrapping_add((change >> 1 ^ sign) as i32);
        let step = DepthStep { from: self.pc, depth: self.depth };
        self.pc = self.pc.saturating_add(u64::from(length));
        self.is_first = false;
        Some(step)
    }

    fn varint(&mut self, reader: &mut WindowReader<'_>) -> Option<u32> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = reader.byte(self.at)?;
            self.at = self.at.checked_add(1)?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

/// Rows of a page, in order of their addresses.
struct PageRows {
    start: u64,
    rows: Vec<UnwindRow>,
    steps: usize,
}

impl PageRows {
    fn new(start: u64) -> Self {
        Self { start, rows: vec![UnwindRow::new(0, CfaRule::None, 0, RbpRule::Same, 0)], steps: 0 }
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(1 << ROW_PAGE_SHIFT)
    }

    /// Counts a step. Returns false after the last one that a page may take.
    fn count_step(&mut self) -> bool {
        self.steps += 1;
        self.steps <= MAX_STEPS_PER_PAGE
    }

    /// Adds the rule from an address on. An address before the page counts as its start.
    fn push(&mut self, from: u64, cfa_rule: CfaRule, cfa: i32, rbp_rule: RbpRule) {
        if from >= self.end() {
            return;
        }
        let pc = from.saturating_sub(self.start) as u16;
        let rbp_offset8 = if rbp_rule == RbpRule::AtCfa { SAVED_RBP_OFFSET8 } else { 0 };
        let row = UnwindRow::new(pc, cfa_rule, cfa, rbp_rule, rbp_offset8);
        while self.rows.last().is_some_and(|last| last.pc >= pc) {
            self.rows.pop();
        }
        let is_same = self.rows.last().is_some_and(|last| UnwindRow { pc, ..*last } == row);
        if !is_same {
            self.rows.push(row);
        }
    }

    fn finish(self) -> Vec<UnwindRow> {
        self.rows
    }
}
