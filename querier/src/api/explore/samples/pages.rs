//! Slices of the time range of a stream, and the place from which the next one is read.

use athanor_arrow_format::SamplePosition;
use athanor_query::{ProfilePosition, SampleList, TimeRange};

/// Number of rows that a slice should have. A source ends its list there.
pub(super) const MAX_PAGE_ROWS: u64 = 1 << 16;
/// Number of profiles that the first slice should have.
const FIRST_PAGE_PROFILES: u64 = 64;
/// Factor by which slices become wider or narrower at most.
const MAX_WIDTH_FACTOR: u64 = 4;

/// Reading progress of a stream.
#[derive(Clone, Debug)]
pub(super) struct PageCursor {
    /// End of the whole time range.
    range: TimeRange,
    /// First profile of the next slice.
    first: ProfilePosition,
    /// Number of rows to skip in the first profile, if it still exists.
    skip: u64,
    /// Length of the next slice in nanoseconds.
    width: u64,
}

/// Slice of the time range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageSlice {
    pub(super) time: TimeRange,
    pub(super) first: ProfilePosition,
}

impl PageCursor {
    /// Returns the progress of a stream that begins after a position, if one is given.
    pub(super) fn new(range: TimeRange, after: Option<SamplePosition>, profiles: u64) -> Self {
        let (first, skip) = match after {
            None => (ProfilePosition { time: range.from, id: 0 }, 0),
            Some(SamplePosition { time, profile, rows: 0 }) => (next_position(time, profile), 0),
            Some(SamplePosition { time, profile, rows }) => (ProfilePosition { time, id: profile }, rows),
        };
        let span = range.to.abs_diff(range.from);
        let width = (span / (profiles / FIRST_PAGE_PROFILES).max(1)).max(1);
        PageCursor { range, first, skip, width }
    }

    /// Returns the next slice. None if the range was read.
    pub(super) fn next_slice(&self) -> Option<PageSlice> {
        let from = self.first.time.max(self.range.from);
        if from >= self.range.to {
            return None;
        }
        let to = from.saturating_add_unsigned(self.width).min(self.range.to);
        Some(PageSlice { time: TimeRange { from, to }, first: self.first })
    }

    /// Returns the number of rows to leave out of a profile.
    pub(super) fn skipped_rows(&self, profile: ProfilePosition) -> u64 {
        if profile == self.first { self.skip } else { 0 }
    }

    /// Moves behind a slice that was read.
    pub(super) fn advance(&mut self, slice: PageSlice, list: &SampleList) {
        self.skip = 0;
        self.first = list.end().unwrap_or(ProfilePosition { time: slice.time.to, id: 0 });
        let rows = list.sample_count() as u64;
        let width = slice.time.to.abs_diff(slice.time.from);
        self.width = match list.end() {
            Some(_) => (width / MAX_WIDTH_FACTOR).max(1),
            None => {
                let factor = (MAX_PAGE_ROWS / 2).checked_div(rows).unwrap_or(MAX_WIDTH_FACTOR);
                width.saturating_mul(factor.clamp(1, MAX_WIDTH_FACTOR))
            }
        };
    }
}

/// Returns the first place after a profile.
fn next_position(time: i64, id: u128) -> ProfilePosition {
    match id.checked_add(1) {
        Some(id) => ProfilePosition { time, id },
        None => ProfilePosition { time: time.saturating_add(1), id: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_RANGE: TimeRange = TimeRange { from: 100, to: 1_100 };

    #[test]
    fn slices_cover_the_range_without_overlap() {
        let mut cursor = PageCursor::new(TEST_RANGE, None, 64 * 10);
        let mut end = TEST_RANGE.from;
        let mut count = 0;
        while let Some(slice) = cursor.next_slice() {
            assert_eq!(slice.time.from, end);
            end = slice.time.to;
            cursor.advance(slice, &SampleList::default());
            count += 1;
        }
        assert_eq!((end, count), (TEST_RANGE.to, 3));
    }

    #[test]
    fn stream_continues_after_a_position() {
        let after = |rows| Some(SamplePosition { time: 500, profile: 7, rows });
        let whole = PageCursor::new(TEST_RANGE, after(0), 1).next_slice().unwrap();
        assert_eq!((whole.first, whole.time.from), (ProfilePosition { time: 500, id: 8 }, 500));
        let part = PageCursor::new(TEST_RANGE, after(3), 1);
        let first = part.next_slice().unwrap().first;
        assert_eq!((first, part.skipped_rows(first)), (ProfilePosition { time: 500, id: 7 }, 3));
        assert_eq!(part.skipped_rows(ProfilePosition { time: 500, id: 8 }), 0);
        let last = SamplePosition { time: 1_100, profile: u128::MAX, rows: 0 };
        assert_eq!(PageCursor::new(TEST_RANGE, Some(last), 1).next_slice(), None);
    }
}
