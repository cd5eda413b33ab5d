//! Spans of time that exclude their start and include their end.

use crate::request::profile_filter::TimeRange;

/// Time before all others.
pub(super) const START_OF_TIME: i128 = i128::MIN / 4;
/// Time after all others.
pub(super) const END_OF_TIME: i128 = i128::MAX / 4;

/// Span of time without its start. All Unix nanoseconds and the time before them fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeSpan {
    pub(super) after: i128,
    pub(super) until: i128,
}

impl TimeSpan {
    pub(super) fn from_range(range: TimeRange) -> Self {
        if range.from >= range.to && range.from < i64::MAX {
            return TimeSpan { after: 0, until: 0 };
        }
        TimeSpan { after: i128::from(range.from) - 1, until: i128::from(range.last_timestamp()) }
    }

    pub(super) fn to_range(self) -> TimeRange {
        TimeRange { from: clamp_nanos(self.after + 1), to: clamp_nanos(self.until + 1) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.after >= self.until
    }

    pub(super) fn intersect(&self, other: &Self) -> Self {
        TimeSpan { after: self.after.max(other.after), until: self.until.min(other.until) }
    }

    /// Returns the whole buckets that the span contains.
    pub(super) fn narrow(&self, width: i128) -> Self {
        TimeSpan { after: round_up(self.after, width), until: round_down(self.until, width) }
    }

    /// Returns the whole buckets that contain the span.
    pub(super) fn widen(&self, width: i128) -> Self {
        TimeSpan { after: round_down(self.after, width), until: round_up(self.until, width) }
    }
}

/// Limits a time to Unix nanoseconds.
pub(super) fn clamp_nanos(time: i128) -> i64 {
    time.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

pub(super) fn round_up(time: i128, width: i128) -> i128 {
    match time {
        START_OF_TIME | END_OF_TIME => time,
        _ => -round_down(-time, width),
    }
}

fn round_down(time: i128, width: i128) -> i128 {
    match time {
        START_OF_TIME | END_OF_TIME => time,
        _ => time.div_euclid(width) * width,
    }
}

/// Sorts spans and joins those that touch or overlap. Drops empty ones.
pub(super) fn join_spans(mut spans: Vec<TimeSpan>) -> Vec<TimeSpan> {
    spans.retain(|span| !span.is_empty());
    spans.sort_unstable_by_key(|span| span.after);
    let mut joined: Vec<TimeSpan> = Vec::new();
    for span in spans {
        match joined.last_mut().filter(|last| span.after <= last.until) {
            Some(last) => last.until = last.until.max(span.until),
            None => joined.push(span),
        }
    }
    joined
}

/// Returns the times in both lists. Each list is ascending and disjoint.
pub(super) fn intersect_spans(left: &[TimeSpan], right: &[TimeSpan]) -> Vec<TimeSpan> {
    let mut shared = Vec::new();
    let mut left = left.iter().peekable();
    let mut right = right.iter().peekable();
    while let (Some(one), Some(other)) = (left.peek(), right.peek()) {
        let both = one.intersect(other);
        if !both.is_empty() {
            shared.push(both);
        }
        if one.until < other.until {
            left.next();
        } else {
            right.next();
        }
    }
    shared
}

/// Returns the times of one list that another lacks. Each list is ascending and disjoint.
pub(super) fn subtract_spans(from: &[TimeSpan], removed: &[TimeSpan]) -> Vec<TimeSpan> {
    let starts = std::iter::once(START_OF_TIME).chain(removed.iter().map(|span| span.until));
    let ends = removed.iter().map(|span| span.after).chain(std::iter::once(END_OF_TIME));
    let others: Vec<TimeSpan> = starts.zip(ends).map(|(after, until)| TimeSpan { after, until }).collect();
    intersect_spans(from, &others)
}

/// Joins neighbors across the smallest gaps, until there are at most so many spans.
pub(super) fn limit_spans(spans: Vec<TimeSpan>, most: usize) -> Vec<TimeSpan> {
    let Some(joins) = spans.len().checked_sub(most).filter(|joins| *joins > 0) else { return spans };
    let mut gaps: Vec<(i128, usize)> =
        spans.windows(2).map(|pair| pair[1].after - pair[0].until).zip(0..).collect();
    gaps.sort_unstable();
    let mut closed = vec![false; spans.len()];
    gaps.iter().take(joins).for_each(|(_, place)| closed[*place] = true);
    let mut limited: Vec<TimeSpan> = Vec::new();
    let mut is_open = false;
    for (span, closes) in spans.into_iter().zip(closed) {
        match limited.last_mut().filter(|_| is_open) {
            Some(last) => last.until = span.until,
            None => limited.push(span),
        }
        is_open = closes;
    }
    limited
}
