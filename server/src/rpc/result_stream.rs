//! Framed responses between nodes: parts of the result, then messages about it, then a checksum. The checksum
//! covers the request as well, so the receiver detects a response to another request.

use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_profile::encoding::hash::{self, ContentHash};
use bytes::Bytes;
use futures::stream::{Stream, TryStreamExt};
use prost::Message;

/// Tags of frame kinds in checksums.
const PART_FRAME_TAG: u64 = 1;
const DONE_FRAME_TAG: u64 = 2;

/// Frame of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultFrame {
    /// Part of the requested result.
    Partial(Bytes),
    /// Encoded message about the result. No part follows after the first such frame.
    Done(Bytes),
    /// Checksum of all frames before it. Ends the response.
    Sum(Bytes),
    /// Frame of a kind that this version does not support.
    Unknown,
}

/// Reason why a call returned no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultStreamError {
    /// The remote node failed.
    There(Status),
    /// This node cannot process the response.
    Here(Status),
}

/// Running checksum of a request and of the frames of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamChecksum(ContentHash);

impl StreamChecksum {
    /// Starts a checksum with a request as the caller encoded it. `about` has one item per requested object.
    pub fn for_request(tenant: &TenantId, ask: &[u8], about: impl Iterator<Item = Vec<u8>>) -> Self {
        let first = [tenant.as_str().as_bytes(), ask].map(hash::hash_bytes);
        let all: Vec<ContentHash> =
            first.into_iter().chain(about.map(|one| hash::hash_bytes(&one))).collect();
        Self(hash::hash_list(&all))
    }

    /// Returns the checksum extended by one frame.
    #[must_use]
    fn and(self, kind: u64, piece: &[u8]) -> Self {
        Self(hash::hash_list(&[self.0, hash::hash_tagged(kind, piece)]))
    }

    fn packed(self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_be_bytes())
    }
}

/// Builds all frames of the response to a request.
pub fn build_frames<D: Message>(
    question: StreamChecksum,
    parts: impl Iterator<Item = Bytes>,
    done: impl Iterator<Item = D>,
) -> Vec<ResultFrame> {
    let mut sum = question;
    let mut pieces = Vec::new();
    for part in parts {
        sum = sum.and(PART_FRAME_TAG, &part);
        pieces.push(ResultFrame::Partial(part));
    }
    for done in done {
        let done = Bytes::from(done.encode_to_vec());
        sum = sum.and(DONE_FRAME_TAG, &done);
        pieces.push(ResultFrame::Done(done));
    }
    pieces.push(ResultFrame::Sum(sum.packed()));
    pieces
}

/// Receives all frames of the response to a request and passes each part to `take`. Accepts at most `most`
/// messages. If this fails, the caller must discard all parts.
pub async fn collect_frames<D: Message + Default>(
    pieces: impl Stream<Item = Result<ResultFrame, Status>>,
    question: StreamChecksum,
    most: usize,
    mut take: impl FnMut(Bytes) -> Result<(), Status>,
) -> Result<Vec<D>, ResultStreamError> {
    let mut sum = question;
    let mut done = Vec::new();
    let mut is_whole = false;
    let mut pieces = std::pin::pin!(pieces);
    while let Some(piece) = pieces.try_next().await.map_err(ResultStreamError::There)? {
        match piece {
            ResultFrame::Partial(part) if done.is_empty() && !is_whole => {
                sum = sum.and(PART_FRAME_TAG, &part);
                take(part).map_err(ResultStreamError::Here)?;
            }
            ResultFrame::Done(of) if done.len() < most && !is_whole => {
                sum = sum.and(DONE_FRAME_TAG, &of);
                done.push(of);
            }
            ResultFrame::Sum(theirs) if !is_whole => {
                if theirs != sum.packed() {
                    let why = "is not what was sent, or to another question: its sum is another";
                    return Err(broken(ErrorCode::Unavailable, why));
                }
                is_whole = true;
            }
            _ => {
                return Err(broken(
                    ErrorCode::Internal,
                    "says what was not asked for; is it of another version?",
                ));
            }
        }
        // A long response may be fully buffered, so the task yields regularly.
        tokio::task::consume_budget().await;
    }
    if !is_whole {
        return Err(broken(ErrorCode::Unavailable, "broke off"));
    }
    let unreadable = |_| broken(ErrorCode::Internal, "cannot be read; is it of another version?");
    done.into_iter().map(|of| D::decode(of).map_err(unreadable)).collect()
}

fn broken(code: ErrorCode, why: &str) -> ResultStreamError {
    ResultStreamError::There(Status::new(code, format!("a node's answer {why}")))
}

impl ResultStreamError {
    /// Converts the error to a status, for local and remote errors alike.
    pub fn into_status(self) -> Status {
        match self {
            ResultStreamError::There(status) | ResultStreamError::Here(status) => status,
        }
    }
}

#[cfg(test)]
mod tests {
    use athanor_proto::athanor::internal::v1 as wire;
    use futures::stream;

    use super::*;
    use crate::{rpc::head_query_service, rpc::store_gateway_service};

    type Said = Result<Vec<wire::BlockAt>, ResultStreamError>;

    fn question() -> StreamChecksum {
        StreamChecksum::for_request(&TenantId::anonymous(), b"what", std::iter::empty())
    }

    fn said(whole: bool) -> wire::BlockAt {
        wire::BlockAt { block: Bytes::new(), whole, ..wire::BlockAt::default() }
    }

    fn answer(parts: &[&'static [u8]], done: usize) -> Vec<Result<ResultFrame, Status>> {
        let parts = parts.iter().map(|part| Bytes::from_static(part));
        build_frames(question(), parts, (0..done).map(|of| said(of > 0))).into_iter().map(Ok).collect()
    }

    /// What came of an answer, and how many parts.
    async fn received(pieces: Vec<Result<ResultFrame, Status>>) -> (Said, usize) {
        let mut parts = 0;
        let taken = collect_frames(stream::iter(pieces), question(), 2, |bytes| {
            parts += 1;
            match bytes.is_empty() {
                true => Err(Status::new(ErrorCode::Exhausted, "no room")),
                false => Ok(()),
            }
        });
        (taken.await, parts)
    }

    fn code(said: Said) -> ErrorCode {
        match said {
            Err(ResultStreamError::There(status)) => status.code,
            said => panic!("{said:?}"),
        }
    }

    #[tokio::test]
    async fn an_answer_is_whole_or_not_used() {
        let whole = answer(&[b"a", b"b"], 2);
        assert_eq!(received(whole.clone()).await, (Ok(vec![said(false), said(true)]), 2));
        assert_eq!(received(answer(&[], 0)).await.0, Ok(vec![]));
        for left in 0..whole.len() {
            let mut less = whole.clone();
            less.truncate(left);
            assert_eq!(code(received(less).await.0), ErrorCode::Unavailable, "{left} pieces of it");
            let mut less = whole.clone();
            drop(less.remove(left));
            assert_eq!(code(received(less).await.0), ErrorCode::Unavailable, "piece {left} is lost");
        }
        let mut swapped = whole.clone();
        swapped.swap(0, 1);
        assert_eq!(code(received(swapped).await.0), ErrorCode::Unavailable);
        let other = StreamChecksum::for_request(&TenantId::anonymous(), b"when", std::iter::empty());
        let other = build_frames(other, std::iter::empty(), [said(true)].into_iter()).into_iter().map(Ok);
        assert_eq!(code(received(other.collect()).await.0), ErrorCode::Unavailable);
    }

    #[tokio::test]
    async fn parts_come_before_what_is_said_of_them_and_nothing_after_the_sum() {
        let mut late = answer(&[b"a"], 1);
        late.swap(0, 1);
        let mut more = answer(&[], 2);
        more.insert(0, more[0].clone());
        let mut again = answer(&[], 1);
        again.extend(answer(&[], 1));
        for odd in [late, more, again, vec![Ok(ResultFrame::Unknown)]] {
            assert_eq!(code(received(odd).await.0), ErrorCode::Internal);
        }
    }

    #[tokio::test]
    async fn who_is_at_fault_is_known() {
        let broke = Status::new(ErrorCode::Unavailable, "cut");
        let mut cut = answer(&[b"a"], 1);
        cut[1] = Err(broke.clone());
        assert_eq!(received(cut).await, (Err(ResultStreamError::There(broke)), 1));
        let (full, _) = received(answer(&[b""], 1)).await;
        assert!(matches!(full, Err(ResultStreamError::Here(why)) if why.code == ErrorCode::Exhausted));
    }

    /// Each message with one bit flipped, each bit in turn; none where that is no message any more.
    fn flipped<M: Message + Default>(messages: &[M]) -> Vec<Option<Vec<M>>> {
        let packed: Vec<Vec<u8>> = messages.iter().map(Message::encode_to_vec).collect();
        let bits =
            packed.iter().enumerate().flat_map(|(at, bytes)| (0..8 * bytes.len()).map(move |bit| (at, bit)));
        let with = |(at, bit): (usize, usize)| {
            let mut packed = packed.clone();
            packed[at][bit / 8] ^= 1 << (bit % 8);
            packed.iter().map(|bytes| M::decode(bytes.as_slice()).ok()).collect()
        };
        bits.map(with).collect()
    }

    async fn is_noticed<D: Message + Default>(
        sum: StreamChecksum,
        most: usize,
        pieces: Vec<ResultFrame>,
    ) -> bool {
        collect_frames::<D>(stream::iter(pieces.into_iter().map(Ok)), sum, most, |_| Ok(())).await.is_err()
    }

    #[tokio::test]
    async fn every_flipped_bit_of_what_a_leader_answers_is_noticed() {
        let (tenant, ask) = (TenantId::anonymous(), b"what is asked");
        let shards = [1, 2, 3].map(|shard| {
            let without = vec![wire::Without { n: 1, ids: Bytes::from_static(b"some") }];
            wire::ShardAt { shard, epoch: 1, watermark: 7, tells: shard == 2, without }
        });
        let failure = wire::Failure { leader: 7, message: "no".to_owned(), ..wire::Failure::default() };
        let of =
            [None, Some(wire::shard_done::Of::Failure(failure)), Some(wire::shard_done::Of::Replan(true))];
        let done = shards.iter().zip(of).map(|(at, of)| wire::ShardDone {
            shard: at.shard,
            lost: 5,
            first_nanos: Some(-1),
            last_nanos: Some(9),
            of,
            ..wire::ShardDone::default()
        });
        let parts = [b"some of it".as_slice(), b"the rest"].map(Bytes::from_static);
        let sum = head_query_service::request_checksum(&tenant, ask, &shards);
        let sent: Vec<wire::QueryResponse> = build_frames(sum, parts.into_iter(), done)
            .into_iter()
            .map(head_query_service::encode_frame)
            .collect();
        assert!(
            !is_noticed::<wire::ShardDone>(
                sum,
                3,
                sent.iter().cloned().map(head_query_service::decode_frame).collect()
            )
            .await
        );
        for came in flipped(&sent).into_iter().flatten() {
            let pieces: Vec<ResultFrame> =
                came.iter().cloned().map(head_query_service::decode_frame).collect();
            assert!(is_noticed::<wire::ShardDone>(sum, 3, pieces).await, "{came:?}");
        }
        // So is one of the question.
        for came in flipped(&shards).into_iter().flatten().filter(|came| came != &shards) {
            assert_ne!(head_query_service::request_checksum(&tenant, ask, &came), sum, "{came:?}");
        }
        assert_ne!(head_query_service::request_checksum(&tenant, b"what is asker", &shards), sum);
        assert_ne!(head_query_service::request_checksum(&"other".parse().unwrap(), ask, &shards), sum);
    }

    #[tokio::test]
    async fn every_flipped_bit_of_what_a_gateway_answers_is_noticed() {
        let (tenant, ask) = (TenantId::anonymous(), b"what is asked");
        let name = |byte: u8| Bytes::from(vec![byte; 16]);
        let blocks = [(1, true), (2, false)].map(|(byte, whole)| wire::BlockAt {
            block: name(byte),
            whole,
            tells: whole.then_some(wire::Times { from: -5, to: 9 }),
            without: Bytes::from_static(b"others"),
        });
        let done = wire::BlocksDone { blocks: 2, gone: vec![name(2)], ..wire::BlocksDone::default() };
        let parts = [b"some of it".as_slice(), b"the rest"].map(Bytes::from_static);
        let sum = store_gateway_service::request_checksum(&tenant, ask, &blocks);
        let sent: Vec<wire::BlocksResponse> = build_frames(sum, parts.into_iter(), [done].into_iter())
            .into_iter()
            .map(store_gateway_service::encode_frame)
            .collect();
        assert!(
            !is_noticed::<wire::BlocksDone>(
                sum,
                1,
                sent.iter().cloned().map(store_gateway_service::decode_frame).collect()
            )
            .await
        );
        for came in flipped(&sent).into_iter().flatten() {
            let pieces: Vec<ResultFrame> =
                came.iter().cloned().map(store_gateway_service::decode_frame).collect();
            assert!(is_noticed::<wire::BlocksDone>(sum, 1, pieces).await, "{came:?}");
        }
        for came in flipped(&blocks).into_iter().flatten().filter(|came| came != &blocks) {
            assert_ne!(store_gateway_service::request_checksum(&tenant, ask, &came), sum, "{came:?}");
        }
    }
}
