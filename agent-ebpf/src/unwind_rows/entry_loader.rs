//! Loads single entries of call frame information and evaluates their programs.

use std::collections::HashMap;

use gimli::{BaseAddresses, CommonInformationEntry, DebugFrame, EhFrame, EndianSlice, FrameDescriptionEntry};
use gimli::{LittleEndian, Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression};
use gimli::{UnwindSection, UnwindTableRow};

use super::RowError;
use super::rule::{ExpressionSource, RowRule, rule_of_row};
use super::section::{CfiSection, EntryHeader, SectionFormat, SectionWindow};

/// Bytes of entries that are read at once. The entries of a page follow each other, as a rule.
const ENTRY_WINDOW_BYTES: u64 = 2 << 10;
/// Bytes that are read for a common entry.
const COMMON_WINDOW_BYTES: u64 = 256;
/// Common entries that are in memory at once.
const MAX_COMMON_ENTRIES: usize = 64;
const MAX_COMMON_ENTRY_BYTES: u64 = 4 << 10;
/// Bytes of programs that are evaluated for one page. A byte makes at most one row.
const MAX_EVALUATED_BYTES: u64 = 2 << 20;
const ADDRESS_BYTES: u8 = 8;
/// Encoding of a pointer to a pointer.
const ENCODING_INDIRECT: u8 = 0x80;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Storage of the evaluation: for the registers of x86-64, so that saving them costs little.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RowStorage;

impl UnwindContextStorage<usize> for RowStorage {
    type Rules = [(Register, RegisterRule<usize>); 48];
    type Stack = Box<[UnwindTableRow<usize, Self>; 8]>;
}

/// Addresses of code of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeRange {
    /// First address.
    pub start: u64,
    /// Address behind the last one.
    pub end: u64,
}

/// Addresses with one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RangeRule {
    /// Addresses.
    pub range: CodeRange,
    /// Rule.
    pub rule: RowRule,
}

/// Loader of entries for one page of code.
pub(super) struct EntryLoader<'a> {
    section: &'a CfiSection,
    entry_window: SectionWindow,
    common_window: SectionWindow,
    common_entries: HashMap<u64, Box<[u8]>>,
    context: Box<UnwindContext<usize, RowStorage>>,
    /// Common entry and entry, as if they were a section of their own.
    pair: Vec<u8>,
    evaluated_bytes: u64,
}

/// Place of an entry in the pair.
struct PairLayout {
    entry_position: usize,
    /// Address of the first byte of the pair, so that the entry is at its own address.
    address: u64,
}

impl<'a> EntryLoader<'a> {
    /// Starts without entries.
    pub(super) fn new(section: &'a CfiSection) -> Self {
        Self {
            section,
            entry_window: SectionWindow::new(ENTRY_WINDOW_BYTES),
            common_window: SectionWindow::new(COMMON_WINDOW_BYTES),
            common_entries: HashMap::new(),
            context: Box::new(UnwindContext::new_in()),
            pair: Vec::new(),
            evaluated_bytes: 0,
        }
    }

    /// Returns the start of the entry at a position. None at the terminator and for damaged entries.
    pub(super) fn entry_header(&mut self, position: u64) -> Option<EntryHeader> {
        self.section.entry_header(&mut self.entry_window, position)
    }

    /// Returns the addresses of the entry at a position. None if it is damaged, empty, or for removed code.
    pub(super) fn code_range(&mut self, position: u64) -> Option<CodeRange> {
        let layout = self.load_pair(position)?;
        match self.section.format {
            SectionFormat::EhFrame => range_in(&eh_frame(&self.pair), &layout),
            SectionFormat::DebugFrame => range_in(&debug_frame(&self.pair), &layout),
        }
    }

    /// Appends the rules of the entry at a position for a range of its addresses. Where the program of the entry is
    /// damaged, its rules are unsupported.
    ///
    /// # Errors
    ///
    /// Fails if programs were evaluated for longer than one page may take.
    pub(super) fn append_rules(
        &mut self,
        position: u64,
        wanted: CodeRange,
        rules: &mut Vec<RangeRule>,
    ) -> Result<(), RowError> {
        let Some(layout) = self.load_pair(position) else { return Ok(()) };
        self.evaluated_bytes += self.pair.len() as u64;
        if self.evaluated_bytes > MAX_EVALUATED_BYTES {
            return Err(RowError::TooLarge { what: "bytes of programs", limit: MAX_EVALUATED_BYTES });
        }
        let context = &mut self.context;
        match self.section.format {
            SectionFormat::EhFrame => evaluate(&eh_frame(&self.pair), &layout, context, wanted, rules),
            SectionFormat::DebugFrame => evaluate(&debug_frame(&self.pair), &layout, context, wanted, rules),
        }
        Ok(())
    }

    /// Puts the entry at a position behind its common entry, with a reference to it. None if one of them is damaged.
    fn load_pair(&mut self, position: u64) -> Option<PairLayout> {
        let header = self.entry_header(position)?;
        let common_position = header.common?;
        self.load_common(common_position)?;
        let common = self.common_entries.get(&common_position)?;
        let entry = self.entry_window.bytes(self.section, position, header.entry_bytes).ok()?;
        self.pair.clear();
        self.pair.extend_from_slice(common);
        let entry_position = self.pair.len();
        self.pair.extend_from_slice(entry);
        let id_position = entry_position + header.length_bytes as usize;
        let id = match self.section.format {
            SectionFormat::EhFrame => id_position as u64,
            SectionFormat::DebugFrame => 0,
        };
        let id_bytes = id.to_le_bytes();
        let id_end = id_position + header.id_bytes as usize;
        let target = self.pair.get_mut(id_position..id_end)?;
        target.copy_from_slice(id_bytes.get(..header.id_bytes as usize)?);
        let entry_address = self.section.address.wrapping_add(position);
        Some(PairLayout { entry_position, address: entry_address.wrapping_sub(entry_position as u64) })
    }

    /// Reads the common entry at a position, unless it is in memory.
    fn load_common(&mut self, position: u64) -> Option<()> {
        if self.common_entries.contains_key(&position) {
            return Some(());
        }
        let header = self.section.entry_header(&mut self.common_window, position)?;
        if header.common.is_some() || header.entry_bytes > MAX_COMMON_ENTRY_BYTES {
            return None;
        }
        let bytes = self.common_window.bytes(self.section, position, header.entry_bytes).ok()?;
        if self.common_entries.len() >= MAX_COMMON_ENTRIES {
            self.common_entries.clear();
        }
        self.common_entries.insert(position, bytes.into());
        Some(())
    }
}

fn eh_frame(pair: &[u8]) -> EhFrame<Bytes<'_>> {
    let mut section = EhFrame::new(pair, LittleEndian);
    section.set_address_size(ADDRESS_BYTES);
    section
}

fn debug_frame(pair: &[u8]) -> DebugFrame<Bytes<'_>> {
    let mut section = DebugFrame::new(pair, LittleEndian);
    section.set_address_size(ADDRESS_BYTES);
    section
}

/// Parses the entry of a pair. None if it is damaged or refers to its addresses by pointers in memory.
fn parse_entry<'b, S: UnwindSection<Bytes<'b>>>(
    section: &S,
    layout: &PairLayout,
    bases: &BaseAddresses,
) -> Option<FrameDescriptionEntry<Bytes<'b>>> {
    let common: CommonInformationEntry<Bytes<'b>> = section.cie_from_offset(bases, 0.into()).ok()?;
    if common.fde_address_encoding().is_some_and(|encoding| encoding.0 & ENCODING_INDIRECT != 0) {
        return None;
    }
    let entry =
        section.fde_from_offset(bases, layout.entry_position.into(), |_, _, _| Ok(common.clone())).ok()?;
    // Linkers set the address of removed code to 0, or to the largest addresses.
    let range_end = entry.initial_address().checked_add(entry.len())?;
    (entry.initial_address() != 0 && range_end > entry.initial_address()).then_some(entry)
}

fn bases_of(layout: &PairLayout) -> BaseAddresses {
    BaseAddresses::default().set_eh_frame(layout.address)
}

fn range_in<'b, S: UnwindSection<Bytes<'b>>>(section: &S, layout: &PairLayout) -> Option<CodeRange> {
    let entry = parse_entry(section, layout, &bases_of(layout))?;
    Some(CodeRange { start: entry.initial_address(), end: entry.initial_address().checked_add(entry.len())? })
}

/// Expressions in a pair.
struct PairExpressions<'b, 's, S> {
    section: &'s S,
    bytes: std::marker::PhantomData<&'b [u8]>,
}

impl<'b, S: UnwindSection<Bytes<'b>>> ExpressionSource for PairExpressions<'b, '_, S> {
    fn expression(&self, expression: &UnwindExpression<usize>) -> &[u8] {
        expression.get(self.section).map(|found| found.0.slice()).unwrap_or_default()
    }
}

fn evaluate<'b, S: UnwindSection<Bytes<'b>>>(
    section: &S,
    layout: &PairLayout,
    context: &mut UnwindContext<usize, RowStorage>,
    wanted: CodeRange,
    rules: &mut Vec<RangeRule>,
) {
    let bases = bases_of(layout);
    let Some(entry) = parse_entry(section, layout, &bases) else { return };
    let expressions = PairExpressions { section, bytes: std::marker::PhantomData };
    let mut covered = wanted.start;
    if let Ok(mut table) = entry.rows(section, &bases, context) {
        while covered < wanted.end
            && let Ok(Some(row)) = table.next_row()
        {
            let range =
                CodeRange { start: row.start_address().max(covered), end: row.end_address().min(wanted.end) };
            if range.start < range.end {
                rules.push(RangeRule { range, rule: rule_of_row(row, &expressions) });
                covered = range.end;
            }
        }
    }
    // The program failed before it came to the end.
    if covered < wanted.end {
        let range = CodeRange { start: covered, end: wanted.end };
        rules.push(RangeRule { range, rule: RowRule::UNSUPPORTED });
    }
}
