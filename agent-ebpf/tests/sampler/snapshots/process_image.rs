//! Mappings of a process with the files behind them, and their unwind rows as the maps of the BPF program hold them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use athanor_agent_ebpf::elf::{BoundedFile, ElfFile, MemoryImage};
use athanor_agent_ebpf::frame::{FileId, FrameCode, PackedFrame};
use athanor_agent_ebpf::layout::{
    CfaRule, MappingValue, PAGE_EMPTY, PAGE_LOADED, PROCESS_LOADED, PageKey, PageValue, ProcessValue,
    ROW_PAGE_SHIFT, ROWS_PER_CHUNK, RbpRule, UnwindRow,
};
use athanor_agent_ebpf::unwind_rows::RowSource;

use super::{ThreadSnapshot, frame_address};
use crate::host_unwinder::{UnwindTables, UnwoundStack};

/// File of a process.
pub struct ImageFile {
    /// Path or name of the mapping.
    pub path: String,
    /// Parsed file.
    pub elf: ElfFile,
    /// Address in the process − address in the file.
    pub bias: u64,
    /// Executable mappings.
    pub ranges: Vec<std::ops::Range<u64>>,
}

/// Process with its executable mappings.
pub struct ProcessImage {
    /// Files by number − 1.
    pub files: Vec<ImageFile>,
    tables: UnwindTables,
}

impl ProcessImage {
    /// Reads the mappings of a process, and builds all rows of its files.
    pub fn of(pid: u32) -> Self {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let mut files: Vec<ImageFile> = Vec::new();
        let mut mappings = Vec::new();
        for line in maps.lines() {
            let Some(line) = MapsLine::parse(line) else { continue };
            let Some(number) = file_of(&mut files, pid, &line) else { continue };
            files[number].ranges.push(line.start..line.end);
            mappings.push(MappingValue {
                start: line.start,
                end: line.end,
                bias: files[number].bias,
                file: number as u32 + 1,
                reserved: 0,
            });
        }
        let mut tables = UnwindTables {
            pid,
            process: ProcessValue { start_nanos: 1, requested_at: 0, exec_id: 1, state: PROCESS_LOADED },
            stack_start: 0,
            mappings,
            pages: Vec::new(),
            rows: Vec::new(),
            memory: Vec::new(),
        };
        for (number, file) in files.iter().enumerate() {
            add_rows(&mut tables, number as u32 + 1, file);
        }
        Self { files, tables }
    }

    /// Returns the tables for a thread: the parts of its stacks are the only readable memory.
    pub fn tables(&self, snapshot: &ThreadSnapshot) -> UnwindTables {
        UnwindTables { memory: snapshot.memory.clone(), ..self.tables.clone() }
    }

    /// Returns the addresses of the frames in the process, as they are looked up: inside of the calling instruction.
    pub fn lookup_addresses(&self, stack: &UnwoundStack) -> Vec<u64> {
        stack.frames.iter().map(|frame| self.address_of(*frame)).collect()
    }

    /// Returns the instruction pointer and the return addresses of the frames.
    pub fn return_addresses(&self, stack: &UnwoundStack) -> Vec<u64> {
        let mut is_exact = true;
        let mut addresses = Vec::new();
        for frame in &stack.frames {
            addresses.push(self.address_of(*frame) + u64::from(!is_exact));
            is_exact = self.is_signal(*frame);
        }
        addresses
    }

    /// Returns whether each frame has a row.
    pub fn is_covered(&self, stack: &UnwoundStack) -> bool {
        !stack.frames.iter().any(|frame| frame.is_frame_pointer())
    }

    /// Returns whether the row of a frame needs more than rsp, rbp and an offset.
    pub fn needs_rule_of_ours(&self, frame: PackedFrame) -> bool {
        let rules = [CfaRule::Register, CfaRule::Signal, CfaRule::DerefRsp, CfaRule::DerefRbp, CfaRule::Plt];
        self.row_of(frame).is_some_and(|row| {
            row.rule >> 4 == RbpRule::AtRbp as u8 || rules.iter().any(|rule| row.rule & 15 == *rule as u8)
        })
    }

    /// Returns whether the row of a frame reads below the stack pointer: the frame address, or an rbp that an epilogue
    /// has already taken from there.
    pub fn reads_below_stack(&self, frame: PackedFrame) -> bool {
        let Some(row) = self.row_of(frame) else { return false };
        let is_at_cfa = row.rule >> 4 == RbpRule::AtCfa as u8;
        match row.rule & 15 {
            rule if rule == CfaRule::DerefRsp as u8 => (row.cfa as u16).cast_signed() < 0,
            rule if rule == CfaRule::Rsp as u8 => is_at_cfa && row.cfa + 8 * i32::from(row.rbp_offset8) < 0,
            _ => false,
        }
    }

    /// Returns whether the row says that the frame is the outermost one.
    pub fn is_outermost(&self, frame: PackedFrame) -> bool {
        self.row_of(frame).is_some_and(|row| row.rule & 15 == CfaRule::End as u8)
    }

    /// Returns whether the frame is the return from a signal handler.
    pub fn is_signal(&self, frame: PackedFrame) -> bool {
        self.row_of(frame).is_some_and(|row| row.rule & 15 == CfaRule::Signal as u8)
    }

    /// Returns whether framehop analyzes the instructions of the innermost frame: a frame that is not set up yet.
    pub fn is_innermost_analyzed(&self, frame: PackedFrame) -> bool {
        self.row_of(frame).is_none_or(|row| row.rule & 15 == CfaRule::Rsp as u8 && row.cfa == 8)
    }

    /// Returns both stacks as lines, side by side.
    pub fn describe(&self, ours: &UnwoundStack, other: &[u64]) -> String {
        let mine = self.lookup_addresses(ours);
        let mut lines = vec![format!("{:?}, {} and {} frames", ours.end, mine.len(), other.len())];
        let common = mine.iter().zip(other).take_while(|(mine, other)| mine == other).count();
        let shown = common.saturating_sub(3)..(common + 4).min(mine.len().max(other.len()));
        for index in shown {
            let row = ours.frames.get(index).and_then(|frame| self.row_of(*frame));
            let text =
                |address: Option<&u64>| address.map_or("-".to_owned(), |address| self.name_of(*address));
            lines.push(format!("  {:<36} {:<36} {row:?}", text(mine.get(index)), text(other.get(index))));
        }
        lines.join("\n")
    }

    fn name_of(&self, address: u64) -> String {
        let file = self.files.iter().find(|file| file.ranges.iter().any(|range| range.contains(&address)));
        let Some(file) = file else { return format!("{address:#x}") };
        format!("{}+{:#x}", file.path.rsplit('/').next().unwrap_or_default(), address.wrapping_sub(file.bias))
    }

    fn address_of(&self, frame: PackedFrame) -> u64 {
        match frame.code() {
            FrameCode::File { file: FileId(number), address } => {
                address.wrapping_add(self.files[number as usize - 1].bias)
            }
            _ => frame_address(frame),
        }
    }

    /// Returns the row of a frame, by a plain search.
    fn row_of(&self, frame: PackedFrame) -> Option<UnwindRow> {
        let FrameCode::File { file: FileId(file), address } = frame.code() else { return None };
        let key = PageKey { file, page: (address >> ROW_PAGE_SHIFT) as u32 };
        let (_, page) = self.tables.pages.iter().find(|(other, _)| *other == key)?;
        let first = page.chunk as usize * ROWS_PER_CHUNK as usize + page.first_row as usize;
        let rows = &self.tables.rows[first..first + page.row_count as usize];
        rows.iter().rev().find(|row| row.pc <= address as u16).copied()
    }
}

/// Line of /proc/PID/maps.
struct MapsLine<'a> {
    start: u64,
    end: u64,
    offset: u64,
    path: &'a str,
}

impl<'a> MapsLine<'a> {
    /// Returns an executable mapping of a file or the vdso.
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let permissions = words.next()?;
        let offset = words.next()?;
        let path = words.nth(2)?.trim();
        let is_file = path.starts_with('/') || path == "[vdso]";
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let parsed = Self { start: hex(start)?, end: hex(end)?, offset: hex(offset)?, path };
        (permissions.contains('x') && is_file).then_some(parsed)
    }
}

/// Returns the index of the file of a mapping. None if it is no ELF file.
fn file_of(files: &mut Vec<ImageFile>, pid: u32, line: &MapsLine<'_>) -> Option<usize> {
    if let Some(known) = files.iter().position(|file| file.path == line.path) {
        return Some(known);
    }
    let elf = if line.path == "[vdso]" {
        let mut bytes = vec![0; (line.end - line.start) as usize];
        let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
        memory.read_exact_at(&mut bytes, line.start).unwrap();
        ElfFile::open(Arc::new(MemoryImage(bytes))).unwrap()
    } else {
        let file = File::open(format!("/proc/{pid}/root{}", line.path)).ok()?;
        ElfFile::open(Arc::new(BoundedFile::new(file).ok()?)).ok()?
    };
    let bias = elf.bias_of(line.start, line.offset, line.end - line.start)?;
    files.push(ImageFile { path: line.path.to_owned(), elf, bias, ranges: Vec::new() });
    Some(files.len() - 1)
}

/// Builds the rows of all pages of code of a file.
fn add_rows(tables: &mut UnwindTables, number: u32, file: &ImageFile) {
    let source = RowSource::open(&file.elf).unwrap();
    let mut pages = BTreeMap::new();
    for range in &file.ranges {
        let first = range.start.wrapping_sub(file.bias) >> ROW_PAGE_SHIFT;
        let last = (range.end - 1).wrapping_sub(file.bias) >> ROW_PAGE_SHIFT;
        for page in first..=last {
            pages.insert(page as u32, source.rows_of_page(page as u32).unwrap());
        }
    }
    for (page, rows) in pages {
        // No page reaches into a second chunk.
        let used = tables.rows.len() % ROWS_PER_CHUNK as usize;
        if used + rows.len() > ROWS_PER_CHUNK as usize {
            let filler = UnwindRow::new(0, CfaRule::Unsupported, 0, RbpRule::Same, 0);
            tables.rows.resize(tables.rows.len().next_multiple_of(ROWS_PER_CHUNK as usize), filler);
        }
        let value = PageValue {
            state: if rows.is_empty() { PAGE_EMPTY } else { PAGE_LOADED },
            chunk: tables.rows.len() as u32 / ROWS_PER_CHUNK,
            first_row: tables.rows.len() as u32 % ROWS_PER_CHUNK,
            row_count: rows.len() as u32,
            used_in: 0,
            reserved: 0,
        };
        tables.rows.extend(rows);
        tables.pages.push((PageKey { file: number, page }, value));
    }
}
