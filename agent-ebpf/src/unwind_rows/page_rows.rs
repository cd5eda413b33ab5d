//! Rows of one page under construction.

use super::rule::RowRule;
use crate::layout::{ROW_PAGE_SHIFT, UnwindRow};

/// Bytes of code of a page.
pub(super) const PAGE_BYTES: u64 = 1 << ROW_PAGE_SHIFT;

/// Range of addresses of a page of code.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodePage {
    start: u64,
}

impl CodePage {
    /// Returns the page with a number.
    pub(super) fn new(page: u32) -> Self {
        Self { start: u64::from(page) << ROW_PAGE_SHIFT }
    }

    /// Returns the first address.
    pub(super) fn start(self) -> u64 {
        self.start
    }

    /// Returns the address behind the last one.
    pub(super) fn end(self) -> u64 {
        self.start + PAGE_BYTES
    }
}

/// Rules by address of one page. Where no rule is set, there is none.
#[derive(Clone, Debug)]
pub(super) struct PageRows {
    page: CodePage,
    /// Sorted by address. Neighbors differ.
    rules: Vec<(u64, RowRule)>,
}

impl PageRows {
    /// Starts with a page without rules.
    pub(super) fn new(page: CodePage) -> Self {
        Self { page, rules: Vec::new() }
    }

    /// Returns whether no address has a rule.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.iter().all(|(_, rule)| *rule == RowRule::NONE)
    }

    /// Sets the rule of a range behind all earlier ones. Parts outside of the page are ignored.
    pub(super) fn append(&mut self, start: u64, end: u64, rule: RowRule) {
        let start = start.max(self.page.start());
        let end = end.min(self.page.end());
        if start >= end {
            return;
        }
        match self.rules.last_mut() {
            // The end of the range before, with no gap.
            Some((address, last)) if *address == start => *last = rule,
            _ => self.rules.push((start, rule)),
        }
        if let [.., (_, before), (_, last)] = self.rules.as_slice()
            && before == last
        {
            self.rules.pop();
        }
        if rule != RowRule::NONE {
            self.rules.push((end, RowRule::NONE));
        }
    }

    /// Returns the ranges of the page without a rule.
    pub(super) fn gaps(&self) -> Vec<(u64, u64)> {
        self.ranges()
            .into_iter()
            .filter(|range| range.rule == RowRule::NONE)
            .map(|r| (r.start, r.end))
            .collect()
    }

    /// Returns the page with rules of `other` where this one has none.
    pub(super) fn with_gaps_from(&self, other: &Self) -> Self {
        let mut merged = Self::new(self.page);
        let others = other.ranges();
        let mut position = 0;
        for range in self.ranges() {
            if range.rule != RowRule::NONE {
                merged.append(range.start, range.end, range.rule);
                continue;
            }
            while let Some(filler) = others.get(position).filter(|filler| filler.start < range.end) {
                merged.append(filler.start.max(range.start), filler.end.min(range.end), filler.rule);
                if filler.end > range.end {
                    break;
                }
                position += 1;
            }
        }
        merged
    }

    /// Returns the rows. Empty if the page has no rule.
    pub(super) fn into_rows(self) -> Vec<UnwindRow> {
        if self.is_empty() {
            return Vec::new();
        }
        self.ranges()
            .into_iter()
            .map(|range| range.rule.at((range.start - self.page.start()) as u16))
            .collect()
    }

    /// Sets rules from rows of the page.
    pub(super) fn from_rows(page: CodePage, rows: &[UnwindRow]) -> Self {
        let mut result = Self::new(page);
        let mut rows = rows.iter().peekable();
        while let Some(row) = rows.next() {
            let end = rows.peek().map_or(page.end(), |next| page.start() + u64::from(next.pc));
            result.append(page.start() + u64::from(row.pc), end, RowRule::from_row(row));
        }
        result
    }

    /// Returns all ranges, which cover the page.
    fn ranges(&self) -> Vec<RuleRange> {
        let mut ranges = Vec::with_capacity(self.rules.len() + 1);
        let mut current = RuleRange { start: self.page.start(), end: self.page.end(), rule: RowRule::NONE };
        for (address, rule) in self.rules.iter().filter(|(address, _)| *address < self.page.end()) {
            if *address > current.start {
                ranges.push(RuleRange { end: *address, ..current });
            }
            current = RuleRange { start: *address, rule: *rule, ..current };
        }
        ranges.push(current);
        ranges
    }
}

/// Addresses with one rule.
#[derive(Clone, Copy)]
struct RuleRange {
    start: u64,
    end: u64,
    rule: RowRule,
}
