//! Plan of the tiers that a query reads.
//!
//! A row of a covered raw block is also part of one bucket in each downsampled tier. The plan assigns each time
//! of the query to one tier, so that each row counts once [INV-23]:
//!
//! 1. Time is divided into sections by the finest tier that is complete there. Retention removes old rows of
//!    fine tiers first, so sections get coarser with age.
//! 2. A coarser tier replaces whole buckets in the range of the query, each within one chart point. The coarsest
//!    such tier is read.
//! 3. The rest is read from the tier of its section. A bucket of a section counts at its end.
//!
//! Rows of uncovered blocks and heads are in no tier, so they are always read. Where they may be copies of covered
//! rows, the plan reads raw rows, so that ids can be compared.
//!
//! Spans in this module exclude their start and include their end, as buckets do.

use std::collections::BTreeMap;

use athanor_chassis::Tier;

use crate::request::profile_filter::TimeRange;
use crate::request::profile_query::{RequiredResolution, TimeGrid};
use crate::resolution::{ResolutionStretch, ResultResolution};

use self::spans::{TimeSpan, intersect_spans, join_spans, limit_spans, subtract_spans};

mod spans;
#[cfg(test)]
mod tests;

/// Maximum number of separate stretches that are read from raw blocks for the comparison of ids. Each one divides
/// the ranges of coarser tiers.
const MAX_COMPARED_STRETCHES: usize = 4;

/// Times of a source's rows, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowTimes {
    /// Time of the first row, Unix nanoseconds.
    pub first: i64,
    /// Time of the last row, Unix nanoseconds.
    pub last: i64,
}

/// Query and data of one tenant, as the plan needs them.
#[derive(Clone, Debug, Default)]
pub struct TierPlanInput {
    /// Time range of the query.
    pub range: TimeRange,
    /// Resolution that the query needs.
    pub required: RequiredResolution,
    /// Latest profile time that retention removed, by tier.
    pub expired_until: BTreeMap<Tier, i64>,
    /// Row times of raw blocks that all tiers cover.
    pub covered_raw: Vec<RowTimes>,
    /// Row times of uncovered blocks and of heads.
    pub uncovered: Vec<RowTimes>,
    /// Row times of all blocks of a downsampled tier together.
    pub downsampled: BTreeMap<Tier, RowTimes>,
}

/// Row times to read from each tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierPlan {
    /// Disjoint ranges of row times by tier, ascending. Those of the raw tier apply to covered blocks.
    pub ranges: BTreeMap<Tier, Vec<TimeRange>>,
    /// Resolution by stretch of time.
    pub resolution: ResultResolution,
    /// Time from which all single profiles exist. Present if the query needs them and some are missing.
    pub single_profiles_since: Option<i64>,
    /// Last time at which a downsampled tier replaces existing raw rows, whose ids are then not reported.
    pub unreported_until: Option<i64>,
}

/// Section of time by the finest complete tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TierSection {
    tier: Tier,
    span: TimeSpan,
}

/// Widths of buckets by tier. Tests use small ones.
#[derive(Clone, Copy, Debug)]
struct BucketWidths([i128; Tier::ALL.len()]);

/// Bucket widths and completeness of all tiers.
struct TierTimes {
    widths: BucketWidths,
    /// Time after which a tier is complete, by number.
    complete_after: [i128; Tier::ALL.len()],
    /// Sections in ascending order, without gaps.
    sections: Vec<TierSection>,
}

impl RowTimes {
    /// Returns the smallest times that include both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        RowTimes { first: self.first.min(other.first), last: self.last.max(other.last) }
    }
}

impl TierPlan {
    /// Returns the ranges of a tier that overlap row times.
    pub fn ranges_within(&self, tier: Tier, rows: RowTimes) -> Vec<TimeRange> {
        let all = self.ranges.get(&tier).into_iter().flatten();
        all.filter(|range| range.overlaps(rows.first, rows.last)).copied().collect()
    }
}

impl TierPlanInput {
    /// Returns the plan.
    pub fn plan_tiers(&self) -> TierPlan {
        self.plan_with_widths(BucketWidths(Tier::ALL.map(|tier| i128::from(tier.bucket_nanos()))))
    }

    fn plan_with_widths(&self, widths: BucketWidths) -> TierPlan {
        let whole = TimeSpan::from_range(self.range);
        let times = TierTimes::new(widths, &self.expired_until);
        if whole.is_empty() {
            return TierPlan::default();
        }
        if self.required.single_profiles {
            return self.plan_of_raw(&times);
        }
        let compared = self.compared_spans(&times, whole);
        let mut free = vec![whole];
        let mut by_tier: BTreeMap<Tier, Vec<TimeSpan>> = BTreeMap::new();
        let mut unreported_until = None;
        let raw_section = times.sections.last().filter(|last| last.tier.is_raw()).map(|last| last.span);
        let raw_rows = intersect_spans(&spans_of(&self.covered_raw), raw_section.as_slice());
        for tier in Tier::DOWNSAMPLED.into_iter().rev() {
            let claimed = intersect_spans(&self.whole_buckets(&times, tier, whole, &compared), &free);
            free = subtract_spans(&free, &claimed);
            unreported_until =
                unreported_until.max(intersect_spans(&claimed, &raw_rows).last().map(|span| span.until));
            by_tier.entry(tier).or_default().extend(claimed);
        }
        for TierSection { tier, span } in &times.sections {
            by_tier.entry(*tier).or_default().extend(intersect_spans(&free, &[*span]));
        }
        let by_tier: BTreeMap<Tier, Vec<TimeSpan>> = by_tier
            .into_iter()
            .filter(|(_, spans)| !spans.is_empty())
            .map(|(tier, spans)| (tier, join_spans(spans)))
            .collect();
        TierPlan {
            resolution: self.resolution_of(&times, whole, &by_tier),
            ranges: by_tier
                .iter()
                .map(|(tier, spans)| (*tier, spans.iter().map(|span| span.to_range()).collect()))
                .collect(),
            single_profiles_since: None,
            unreported_until: unreported_until.map(spans::clamp_nanos),
        }
    }

    /// Returns the resolution of the data. Where a tier has no rows, all data is raw.
    fn resolution_of(
        &self,
        times: &TierTimes,
        whole: TimeSpan,
        by_tier: &BTreeMap<Tier, Vec<TimeSpan>>,
    ) -> ResultResolution {
        let of_tier = |(tier, spans): (&Tier, &Vec<TimeSpan>)| {
            let with_rows = intersect_spans(spans, self.bucket_span(times, *tier).as_slice());
            with_rows.into_iter().map(|span| span.to_stretch(*tier)).collect::<Vec<_>>()
        };
        let stretches = by_tier.iter().flat_map(of_tier);
        ResultResolution::from_stretches(stretches.chain([whole.to_stretch(Tier::Raw)]))
    }

    /// Returns the time of all buckets in the blocks of a downsampled tier. None if there is no block.
    fn bucket_span(&self, times: &TierTimes, tier: Tier) -> Option<TimeSpan> {
        let RowTimes { first, last } = *self.downsampled.get(&tier)?;
        let rows = TimeSpan { after: i128::from(first) - 1, until: i128::from(last) };
        Some(rows.widen(times.widths.of(tier)))
    }

    /// Returns the plan of a query that needs single profiles: all raw rows that exist.
    fn plan_of_raw(&self, times: &TierTimes) -> TierPlan {
        let since = times.complete_after(Tier::Raw);
        let is_incomplete = since >= i128::from(self.range.from);
        TierPlan {
            ranges: BTreeMap::from([(Tier::Raw, vec![self.range])]),
            resolution: ResultResolution::from_stretches([
                TimeSpan::from_range(self.range).to_stretch(Tier::Raw)
            ]),
            single_profiles_since: is_incomplete.then(|| spans::clamp_nanos(since)),
            unreported_until: None,
        }
    }

    /// Returns the times at which ids must be compared: an uncovered source and a covered raw block may both have
    /// rows there, and the raw rows exist.
    fn compared_spans(&self, times: &TierTimes, whole: TimeSpan) -> Vec<TimeSpan> {
        let Some(raw) = times.sections.last().filter(|last| last.tier.is_raw()) else { return Vec::new() };
        let shared = intersect_spans(&spans_of(&self.uncovered), &spans_of(&self.covered_raw));
        let within = intersect_spans(&intersect_spans(&shared, &[raw.span]), &[whole]);
        limit_spans(within, MAX_COMPARED_STRETCHES)
    }

    /// Returns the spans of whole buckets for which a tier may replace finer ones.
    fn whole_buckets(
        &self,
        times: &TierTimes,
        tier: Tier,
        whole: TimeSpan,
        compared: &[TimeSpan],
    ) -> Vec<TimeSpan> {
        let width = times.widths.of(tier);
        // Outside of its blocks the tier has no rows.
        let Some(of_blocks) = self.bucket_span(times, tier) else { return Vec::new() };
        if !self.required.steps.is_none_or(|steps| has_whole_buckets(&steps, width)) {
            return Vec::new();
        }
        let usable = TimeSpan { after: times.usable_after(tier), until: spans::END_OF_TIME };
        let inner = whole.intersect(&usable).intersect(&of_blocks).narrow(width);
        let compared: Vec<TimeSpan> = join_spans(compared.iter().map(|span| span.widen(width)).collect());
        subtract_spans(&[inner], &compared)
    }
}

impl BucketWidths {
    fn of(&self, tier: Tier) -> i128 {
        self.0[usize::from(tier.number())]
    }
}

impl TierTimes {
    fn new(widths: BucketWidths, expired_until: &BTreeMap<Tier, i64>) -> Self {
        let complete_after = Tier::ALL.map(|tier| {
            let coarser = Tier::from_number(u32::from(tier.number()) + 1).unwrap_or(tier);
            let expired = expired_until.get(&tier).map(|&time| i128::from(time));
            expired.map_or(spans::START_OF_TIME, |time| spans::round_up(time, widths.of(coarser)))
        });
        let mut times = TierTimes { widths, complete_after, sections: Vec::new() };
        let all = TimeSpan { after: spans::START_OF_TIME, until: spans::END_OF_TIME };
        times.sections.push(TierSection { tier: Tier::OneDay, span: all });
        for tier in [Tier::OneHour, Tier::FiveMinutes, Tier::Raw] {
            times.add_section(tier);
        }
        times
    }

    fn complete_after(&self, tier: Tier) -> i128 {
        self.complete_after[usize::from(tier.number())]
    }

    /// Adds the section of a tier that is finer than those so far. It replaces them from its start on.
    fn add_section(&mut self, tier: Tier) {
        let complete_after = self.complete_after(tier);
        let below = self.sections.iter().rfind(|section| section.span.after < complete_after).copied();
        // The last bucket of the section below is read from there if it has all of its rows.
        let start = match below {
            Some(below) if self.complete_after(below.tier) < complete_after => {
                spans::round_up(complete_after, self.widths.of(below.tier))
            }
            Some(_) | None => complete_after,
        };
        self.sections.retain(|section| section.span.after < start);
        if let Some(last) = self.sections.last_mut() {
            last.span.until = start;
        }
        self.sections.push(TierSection { tier, span: TimeSpan { after: start, until: spans::END_OF_TIME } });
    }

    /// Returns the time after which a tier is complete and no section is coarser.
    fn usable_after(&self, tier: Tier) -> i128 {
        let first_finer = self.sections.iter().find(|section| section.tier <= tier);
        first_finer.map_or(spans::END_OF_TIME, |section| section.span.after.max(self.complete_after(tier)))
    }
}

/// Returns whether each bucket of a width lies within one point.
fn has_whole_buckets(steps: &TimeGrid, width: i128) -> bool {
    let is_multiple = |nanos: i64| i128::from(nanos).rem_euclid(width) == 0;
    is_multiple(steps.step) && is_multiple(steps.start)
}

fn spans_of(rows: &[RowTimes]) -> Vec<TimeSpan> {
    join_spans(
        rows.iter()
            .map(|rows| TimeSpan { after: i128::from(rows.first) - 1, until: i128::from(rows.last) })
            .collect(),
    )
}

impl TimeSpan {
    fn to_stretch(self, tier: Tier) -> ResolutionStretch {
        ResolutionStretch {
            tier,
            after: spans::clamp_nanos(self.after),
            until: spans::clamp_nanos(self.until),
        }
    }
}
