//! Selection of the sources that report profile ids, because other sources may hold duplicates.
//!
//! A profile's id includes its timestamp, so a duplicate has the same timestamp. Only sources that hold
//! profiles of the same time can hold duplicates. The time ranges of blocks and of local heads are known.
//! Those of remote heads are assumed at first, and checked against their responses.

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

/// Pairs the heads of a shard with their source ids, the oldest first.
pub fn number_heads<V>(shard: ShardId, heads: Vec<V>) -> impl Iterator<Item = (SourceId, V)> {
    (0..).zip(heads).map(move |(n, head)| (SourceId::Head { shard, n }, head))
}

/// Returns for each span the part that it shares with any other span: first and last shared timestamp.
pub fn find_overlaps(spans: &[NanosSpan]) -> Vec<Option<NanosSpan>> {
    let mut by_first: Vec<usize> = (0..spans.len()).collect();
    by_first.sort_by_key(|&at| spans[at].first);
    let mut lows = vec![None; spans.len()];
    let mut reach: Option<i64> = None;
    for (n, &at) in by_first.iter().enumerate() {
        let NanosSpan { first, last } = spans[at];
        lows[at] = match by_first.get(n + 1).map(|&next| spans[next].first) {
            _ if reach.is_some_and(|reach| reach >= first) => Some(first),
            Some(next) if next <= last => Some(next),
            _ => None,
        };
        reach = reach.max(Some(last));
    }
    let mut by_last = by_first;
    by_last.sort_by_key(|&at| std::cmp::Reverse(spans[at].last));
    let mut reach: Option<i64> = None;
    let mut shared = vec![None; spans.len()];
    for (n, &at) in by_last.iter().enumerate() {
        let NanosSpan { first, last } = spans[at];
        let high = match by_last.get(n + 1).map(|&next| spans[next].last) {
            _ if reach.is_some_and(|reach| reach <= last) => Some(last),
            Some(next) if next >= first => Some(next),
            _ => None,
        };
        shared[at] = lows[at].zip(high).map(|(first, last)| NanosSpan { first, last });
        reach = Some(reach.map_or(first, |reach| reach.min(first)));
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

    fn spans() -> impl Strategy<Value = Vec<NanosSpan>> {
        let span = (0..40i64, 0..12i64).prop_map(|(first, length)| NanosSpan { first, last: first + length });
        prop::collection::vec(span, 0..9)
    }

    proptest! {
        #[test]
        fn what_is_shared_is_what_another_holds(spans in spans()) {
            for (at, seen) in find_overlaps(&spans).into_iter().enumerate() {
                let others = spans.iter().enumerate().filter(|(other, _)| *other != at);
                let others: Vec<NanosSpan> = others.map(|(_, span)| *span).collect();
                let held = |moment: &i64| others.iter().any(|other| other.first <= *moment && *moment <= other.last);
                let moments: Vec<i64> = (spans[at].first..=spans[at].last).filter(held).collect();
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
