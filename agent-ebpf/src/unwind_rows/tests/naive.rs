//! Evaluation of a whole section by gimli, to compare with.

use std::collections::BTreeMap;

use gimli::UnwindSection;
use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindContext, UnwindExpression};

use crate::elf::ElfFile;
use crate::layout::UnwindRow;
use crate::unwind_rows::entry_loader::RowStorage;
use crate::unwind_rows::rule::{ExpressionSource, RowRule, rule_of_row};

/// Rules of a file: of entries in the order of their first address.
pub struct NaiveRules {
    entries: Vec<NaiveEntry>,
    /// Entries of a page, in their order.
    by_page: BTreeMap<u32, Vec<usize>>,
}

struct NaiveEntry {
    start: u64,
    end: u64,
    rules: Vec<(u64, u64, RowRule)>,
}

struct SectionExpressions<'a>(EhFrame<EndianSlice<'a, LittleEndian>>);

impl ExpressionSource for SectionExpressions<'_> {
    fn expression(&self, expression: &UnwindExpression<usize>) -> &[u8] {
        expression.get(&self.0).map(|found| found.0.slice()).unwrap_or_default()
    }
}

impl NaiveRules {
    /// Evaluates `.eh_frame` of a file with section headers.
    pub fn of_file(file: &ElfFile) -> Self {
        let section = file.section(".eh_frame").expect("a section");
        let bytes = file.read_section(section, 64 << 20).unwrap();
        Self::of_section(&bytes, section.address)
    }

    /// Evaluates a section at an address.
    pub fn of_section(bytes: &[u8], address: u64) -> Self {
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        let bases = BaseAddresses::default().set_eh_frame(address);
        let expressions = SectionExpressions(section);
        let mut context = UnwindContext::<usize, RowStorage>::new_in();
        let mut found = Vec::new();
        let mut entries = section.entries(&bases);
        while let Some(entry) = entries.next().unwrap() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else { continue };
            let start = entry.initial_address();
            let Some(end) = start.checked_add(entry.len()).filter(|end| start != 0 && *end > start) else {
                continue;
            };
            let mut rules = Vec::new();
            let mut covered = start;
            if let Ok(mut table) = entry.rows(&section, &bases, &mut context) {
                while let Ok(Some(row)) = table.next_row() {
                    let rule = rule_of_row(row, &expressions);
                    rules.push((row.start_address().min(end), row.end_address().min(end), rule));
                    covered = row.end_address().min(end);
                }
            }
            rules.push((covered, end, RowRule::UNSUPPORTED));
            found.push(NaiveEntry { start, end, rules });
        }
        found.sort_by_key(|entry| entry.start);
        let mut by_page: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, entry) in found.iter().enumerate() {
            for page in (entry.start >> 16)..=((entry.end - 1) >> 16) {
                by_page.entry(page as u32).or_default().push(index);
            }
        }
        Self { entries: found, by_page }
    }

    /// Returns the number of entries.
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// Returns all pages with a rule.
    pub fn pages(&self) -> Vec<u32> {
        self.by_page.keys().copied().collect()
    }

    /// Returns the rule at each address of a page. The entry that starts last counts.
    pub fn page(&self, page: u32) -> Vec<RowRule> {
        let page_start = u64::from(page) << 16;
        let page_end = page_start + 0x1_0000;
        let mut painted = vec![RowRule::NONE; 0x1_0000];
        for index in self.by_page.get(&page).into_iter().flatten() {
            for (start, end, rule) in &self.entries[*index].rules {
                let start = (*start).clamp(page_start, page_end);
                let end = (*end).clamp(start, page_end);
                painted[(start - page_start) as usize..(end - page_start) as usize].fill(*rule);
            }
        }
        painted
    }
}

/// Returns the rule at each address of a page of rows.
pub fn paint(rows: &[UnwindRow]) -> Vec<RowRule> {
    let mut painted = vec![RowRule::NONE; 0x1_0000];
    for row in rows {
        painted[usize::from(row.pc)..].fill(RowRule::from_row(row));
    }
    painted
}

/// Asserts what holds for all pages: sorted, from pc 0, neighbors that differ.
pub fn assert_well_formed(rows: &[UnwindRow]) {
    if let Some(first) = rows.first() {
        assert_eq!(first.pc, 0);
    }
    for pair in rows.windows(2) {
        assert!(pair[0].pc < pair[1].pc, "{pair:?}");
        assert_ne!(RowRule::from_row(&pair[0]), RowRule::from_row(&pair[1]), "{pair:?}");
    }
}
