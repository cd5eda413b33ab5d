//! Selection of the sources that report profile ids, because other sources may hold duplicates.
//!
//! A profile's id includes its timestamp, so a duplicate has the same timestamp. Only sources that hold
//! profiles of the same time can hold duplicates. The time ranges of blocks and of local heads are known.
//! Those of remote heads are assumed at first, and checked against their responses.
//! A compaction job removes the duplicates across all of its outputs, so these are not compared with each
//! other [INV-20]. Outputs of different jobs are: late profiles may exist in both until they are merged.

use athanor_catalog::ShardId;
use athanor_chassis::{ErrorCode, Status};
use athanor_profile::encoding::hash::ContentHash;
use athanor_proto::athanor::internal::v1 as wire;
use athanor_query::{DuplicateExclusions, ExcludedIds, SourceId, TimeRange};
use bytes::Bytes;

/// Grid of reported ranges: one hour. Aligned reports can be cached and reused by later queries.
const REPORT_GRID_NANOS: i64 = 3_600_000_000_000;
/// Bytes of an id on the wire.
const PROFILE_ID_BYTES: usize = size_of::<ContentHash>();

/// First and last timestamp in nanoseconds, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NanosSpan {
    /// First timestamp of the span.
    pub first: i64,
    /// Last timestamp of the span.
    pub last: i64,
}

/// Time span of the profiles in one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceSpan {
    /// Span of the source's profiles within the query's time range.
    pub span: NanosSpan,
    /// Token of the job that wrote the source, absent for heads and flushed blocks.
    pub job: Option<u64>,
}

/// Farthest ends of the spans before a position, for spans of any job.
#[derive(Default)]
struct FarthestEnds {
    /// Span with the last end.
    farthest: Option<SourceSpan>,
    /// Last end of the spans that may share profiles with the farthest one.
    other: Option<i64>,
}

impl SourceSpan {
    /// Creates the span of a source that may share profiles with every other one.
    pub fn unmerged(span: NanosSpan) -> Self {
        Self { span, job: None }
    }

    /// Returns whether the same job wrote both sources. Then they share no profile.
    fn is_of_same_job(&self, other: &Self) -> bool {
        self.job.is_some() && self.job == other.job
    }

    /// Returns the span on the reversed time axis. A bitwise complement reverses the order of all integers.
    fn mirrored(self) -> Self {
        let NanosSpan { first, last } = self.span;
        Self { span: NanosSpan { first: !last, last: !first }, ..self }
    }
}

impl FarthestEnds {
    /// Returns the last end of the added spans that may share profiles with a source.
    fn end_beside(&self, source: &SourceSpan) -> Option<i64> {
        let farthest = self.farthest?;
        if farthest.is_of_same_job(source) { self.other } else { Some(farthest.span.last) }
    }

    fn add(&mut self, source: SourceSpan) {
        let Some(farthest) = self.farthest.replace(source) else { return };
        let is_farther = source.span.last > farthest.span.last;
        match (farthest.is_of_same_job(&source), is_farther) {
            (true, true) => {}
            (false, true) => self.other = Some(farthest.span.last),
            (true, false) => self.farthest = Some(farthest),
            (false, false) => {
                self.farthest = Some(farthest);
                self.other = self.other.max(Some(source.span.last));
            }
        }
    }
}

/// Pairs the heads of a shard with their source ids, the oldest first.
pub fn number_heads<V>(shard: ShardId, heads: Vec<V>) -> impl Iterator<Item = (SourceId, V)> {
    (0..).zip(heads).map(move |(n, head)| (SourceId::Head { shard, n }, head))
}

/// Returns for each source the part of its span that it shares with sources of other jobs: first and last
/// shared timestamp.
pub fn find_overlaps(sources: &[SourceSpan]) -> Vec<Option<NanosSpan>> {
    let mirrored: Vec<SourceSpan> = sources.iter().map(|source| source.mirrored()).collect();
    let firsts = first_shared_times(sources).into_iter();
    let lasts = first_shared_times(&mirrored).into_iter().map(|last| last.map(|last| !last));
    firsts.zip(lasts).map(|(first, last)| Some(NanosSpan { first: first?, last: last? })).collect()
}

/// Returns for each source the first timestamp that it shares with sources of other jobs.
fn first_shared_times(sources: &[SourceSpan]) -> Vec<Option<i64>> {
    let mut by_first: Vec<usize> = (0..sources.len()).collect();
    by_first.sort_by_key(|&index| sources[index].span.first);
    // Start of the next span of another job, by position in `by_first`.
    let mut next_starts = vec![None; sources.len()];
    for position in (1..sources.len()).rev() {
        let source = &sources[by_first[position - 1]];
        let next = &sources[by_first[position]];
        next_starts[position - 1] =
            if source.is_of_same_job(next) { next_starts[position] } else { Some(next.span.first) };
    }
    let mut shared = vec![None; sources.len()];
    let mut before = FarthestEnds::default();
    for (&index, next_start) in by_first.iter().zip(next_starts) {
        let source = sources[index];
        let NanosSpan { first, last } = source.span;
        let is_shared_from_start = before.end_beside(&source).is_some_and(|end| end >= first);
        shared[index] =
            if is_shared_from_start { Some(first) } else { next_start.filter(|start| *start <= last) };
        before.add(source);
    }
    shared
}

/// Returns the time range for which a block reports ids, for a shared span. The range is aligned to full
/// hours, or unlimited if it covers the whole block.
pub fn reported_range(shared: NanosSpan, block: NanosSpan) -> TimeRange {
    let from = shared.first.div_euclid(REPORT_GRID_NANOS).saturating_mul(REPORT_GRID_NANOS);
    let to = shared.last.div_euclid(REPORT_GRID_NANOS).saturating_add(1).saturating_mul(REPORT_GRID_NANOS);
    if from <= block.first && block.last < to { TimeRange::default() } else { TimeRange { from, to } }
}

/// Returns the last timestamp of a block for which it reports no ids.
pub fn unreported_until(reported: Option<TimeRange>, block: NanosSpan) -> Option<i64> {
    match reported {
        None => Some(block.last),
        Some(range) if !range.contains(block.last) => Some(block.last),
        Some(range) => (block.first < range.from).then(|| range.from - 1),
    }
}

/// Encodes ids for the wire, 16 bytes each in little-endian order.
pub fn encode_excluded_ids(ids: &ExcludedIds) -> Bytes {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>().into()
}

/// Decodes ids from the wire.
pub fn decode_excluded_ids(bytes: &[u8]) -> Result<ExcludedIds, Status> {
    let (ids, rest) = bytes.as_chunks::<PROFILE_ID_BYTES>();
    if !rest.is_empty() {
        let message =
            format!("excluded ids have {} bytes, must be a multiple of {PROFILE_ID_BYTES}", bytes.len());
        return Err(Status::new(ErrorCode::Invalid, message));
    }
    Ok(ExcludedIds::new(ids.iter().map(|id| ContentHash::from_le_bytes(*id)).collect()))
}

/// Encodes the excluded ids of a shard's heads for the wire.
pub fn encode_excluded_heads(exclusions: &DuplicateExclusions, shard: ShardId) -> Vec<wire::ExcludedIds> {
    exclusions
        .excluded_from_heads(shard)
        .map(|(head_index, ids)| wire::ExcludedIds { head_index, ids: encode_excluded_ids(ids) })
        .collect()
}

/// Decodes the excluded ids of a shard's heads.
pub fn decode_excluded_heads(
    shard: ShardId,
    excluded: &[wire::ExcludedIds],
) -> Result<DuplicateExclusions, Status> {
    let decode = |head: &wire::ExcludedIds| {
        Ok((SourceId::Head { shard, n: head.head_index }, decode_excluded_ids(&head.ids)?))
    };
    excluded.iter().map(decode).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn spans() -> impl Strategy<Value = Vec<SourceSpan>> {
        let span = (0..40i64, 0..12i64).prop_map(|(first, length)| NanosSpan { first, last: first + length });
        let source = (span, prop::option::of(1..4u64)).prop_map(|(span, job)| SourceSpan { span, job });
        prop::collection::vec(source, 0..9)
    }

    proptest! {
        #[test]
        fn what_is_shared_is_what_another_holds(spans in spans()) {
            for (at, seen) in find_overlaps(&spans).into_iter().enumerate() {
                let SourceSpan { span, job } = spans[at];
                let may_share = |other: &SourceSpan| job.is_none() || other.job != job;
                let others = spans.iter().enumerate().filter(|(other, _)| *other != at);
                let others = others.map(|(_, other)| other).filter(|other| may_share(other));
                let others: Vec<NanosSpan> = others.map(|other| other.span).collect();
                let held = |moment: &i64| others.iter().any(|other| other.first <= *moment && *moment <= other.last);
                let moments: Vec<i64> = (span.first..=span.last).filter(held).collect();
                let held = moments.first().copied().zip(moments.last().copied());
                prop_assert_eq!(seen, held.map(|(first, last)| NanosSpan { first, last }));
            }
        }

        #[test]
        fn what_is_told_and_what_is_not_is_all(
            (first, length) in (-4 * REPORT_GRID_NANOS..4 * REPORT_GRID_NANOS, 0..6 * REPORT_GRID_NANOS), (low, high) in (0..6 * REPORT_GRID_NANOS, 0..6 * REPORT_GRID_NANOS),
        ) {
            let block = NanosSpan { first, last: first + length };
            let shared = NanosSpan {
                first: first + low.min(high).min(length),
                last: first + low.max(high).min(length),
            };
            let tells = reported_range(shared, block);
            prop_assert!(tells.contains(shared.first) && tells.contains(shared.last));
            match unreported_until(Some(tells), block) {
                None => prop_assert!(tells.contains(block.first) && tells.contains(block.last)),
                Some(moment) => {
                    prop_assert!(!tells.contains(moment) && block.first <= moment && moment <= block.last);
                    prop_assert!(moment == block.last || tells.contains(moment + 1) && tells.contains(block.last));
                }
            }
        }

        #[test]
        fn ids_come_as_they_were_sent(ids in prop::collection::btree_set(any::<u128>(), 0..5)) {
            let sent = ExcludedIds::new(ids);
            prop_assert_eq!(decode_excluded_ids(&encode_excluded_ids(&sent)).unwrap(), sent);
        }
    }

    #[test]
    fn outputs_of_one_job_share_time_with_other_sources_only() {
        let source = |first, last, job| SourceSpan { span: NanosSpan { first, last }, job };
        let outputs = [source(i64::MIN, 20, Some(7)), source(0, i64::MAX, Some(7))];
        assert_eq!(find_overlaps(&outputs), [None, None]);
        let late = source(10, 30, Some(9));
        let shared = |first, last| Some(NanosSpan { first, last });
        let with_late = find_overlaps(&[outputs[0], outputs[1], late]);
        assert_eq!(with_late, [shared(10, 20), shared(10, 30), shared(10, 30)]);
    }

    #[test]
    fn what_is_left_out_is_said_by_head() {
        let of = |id: u128| ExcludedIds::new(BTreeSet::from([id]));
        let all = [(SourceId::Head { shard: 7, n: 0 }, of(1)), (SourceId::Head { shard: 7, n: 2 }, of(2))];
        let others = [(SourceId::Head { shard: 8, n: 0 }, of(3)), (SourceId::Block(7), of(4))];
        let doubles: DuplicateExclusions = all.iter().chain(&others).cloned().collect();
        let sent = encode_excluded_heads(&doubles, 7);
        assert_eq!(decode_excluded_heads(7, &sent).unwrap(), all.into_iter().collect());
        let odd = wire::ExcludedIds { head_index: 0, ids: Bytes::from_static(b"odd") };
        assert_eq!(decode_excluded_heads(7, &[odd]).unwrap_err().code, ErrorCode::Invalid);
    }
}
