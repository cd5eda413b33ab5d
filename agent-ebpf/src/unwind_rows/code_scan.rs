//! Rows of code that has no call frame information, from its bytes: return from signals, and the entry of a process.

use super::page_rows::{CodePage, PAGE_BYTES, PageRows};
use super::rule::RowRule;
use crate::elf::{ElfFile, ReadError};

/// `mov $15, %rax; syscall`: return from a signal handler, as C libraries without information for it write it.
const SIGNAL_RETURN: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// `mov $15, %eax; syscall`.
const SHORT_SIGNAL_RETURN: &[u8] = &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// Bytes of code at the entry of a process that belong to it. It calls once or twice and does not return.
const MAX_ENTRY_CODE_BYTES: u64 = 96;
/// `call` with a relative target.
const CALL_OPCODE: u8 = 0xe8;
const CALL_BYTES: u64 = 5;

/// Ranges of code whose rule is known by their bytes.
#[derive(Clone, Debug)]
pub(super) struct CodeScan {
    /// Address of the entry of the process. 0 if there is none.
    entry: u64,
    /// End of its code.
    entry_end: u64,
}

impl CodeScan {
    /// Finds the end of the entry code of a file.
    pub(super) fn new(file: &ElfFile) -> Self {
        let entry = file.entry();
        let is_code = file.code_segments().any(|segment| {
            entry.checked_sub(segment.address).is_some_and(|distance| distance < segment.file_size)
        });
        if entry == 0 || !is_code {
            return Self { entry: 0, entry_end: 0 };
        }
        let code = file.read_address(entry, MAX_ENTRY_CODE_BYTES).unwrap_or_default();
        Self { entry, entry_end: entry.saturating_add(entry_code_bytes(&code)) }
    }

    /// Returns rows for what is recognized in the gaps of a page.
    ///
    /// # Errors
    ///
    /// Fails if the code cannot be read.
    pub(super) fn rows_of_gaps(
        &self,
        file: &ElfFile,
        page: CodePage,
        gaps: &[(u64, u64)],
    ) -> Result<PageRows, ReadError> {
        let mut ranges = self.signal_returns(file, page, gaps)?;
        if self.entry_end > self.entry {
            ranges.push((self.entry, self.entry_end, RowRule::END));
        }
        ranges.sort_unstable_by_key(|(start, _, _)| *start);
        let mut rows = PageRows::new(page);
        let mut covered = 0;
        for (start, end, rule) in ranges {
            rows.append(start.max(covered), end, rule);
            covered = covered.max(end);
        }
        Ok(rows)
    }

    fn signal_returns(
        &self,
        file: &ElfFile,
        page: CodePage,
        gaps: &[(u64, u64)],
    ) -> Result<Vec<(u64, u64, RowRule)>, ReadError> {
        let shortest = SHORT_SIGNAL_RETURN.len() as u64;
        if gaps.iter().all(|(start, end)| end - start < shortest) {
            return Ok(Vec::new());
        }
        let mut ranges = Vec::new();
        for segment in file.code_segments() {
            let start = segment.address.max(page.start());
            let end = segment.address.saturating_add(segment.file_size).min(page.end());
            if start >= end {
                continue;
            }
            let code = file.read_address(start, PAGE_BYTES.min(end - start))?;
            for (gap_start, gap_end) in gaps {
                let from = gap_start.saturating_sub(start) as usize;
                let to = (gap_end.saturating_sub(start) as usize).min(code.len());
                let found = find_signal_returns(code.get(from..to).unwrap_or_default());
                ranges.extend(found.map(|(position, length)| {
                    let address = start + (from + position) as u64;
                    (address, address + length as u64, RowRule::SIGNAL)
                }));
            }
        }
        Ok(ranges)
    }
}

/// Returns position and length of all returns from signals in code.
fn find_signal_returns(code: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let length_at = |position: usize| {
        let rest = code.get(position..)?;
        let patterns = [SIGNAL_RETURN, SHORT_SIGNAL_RETURN];
        patterns.iter().find(|pattern| rest.starts_with(pattern)).map(|pattern| pattern.len())
    };
    (0..code.len()).filter_map(move |position| Some((position, length_at(position)?)))
}

/// Returns the length of the code at the entry of a process: up to a function behind it that it calls.
fn entry_code_bytes(code: &[u8]) -> u64 {
    let mut end = code.len() as u64;
    for (position, call) in code.windows(CALL_BYTES as usize).enumerate() {
        let [CALL_OPCODE, displacement @ ..] = call else { continue };
        let Ok(displacement) = displacement.try_into().map(i32::from_le_bytes) else { continue };
        let return_address = position as u64 + CALL_BYTES;
        let target = return_address.checked_add_signed(displacement.into());
        if let Some(target) = target.filter(|target| *target >= return_address) {
            end = end.min(target);
        }
    }
    end
}
