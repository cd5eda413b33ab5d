//! Codec of streamed results between nodes: partial frames, then trailers, then a checksum. The checksum covers
//! the request as well, so the receiver detects a response to another request.

use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_profile::encoding::hash::{self, ContentHash};
use athanor_proto::athanor::internal::v1::ResultFrame;
use athanor_proto::athanor::internal::v1::result_frame::Frame;
use bytes::Bytes;
use futures::stream::{Stream, TryStreamExt};
use prost::Message;

/// Tags of frame kinds in checksums.
const PARTIAL_FRAME_TAG: u64 = 1;
const TRAILER_FRAME_TAG: u64 = 2;

/// Error of a streamed result, by the node that caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultStreamError {
    /// The remote node failed.
    Remote(Status),
    /// This node cannot process the response.
    Local(Status),
}

/// Running checksum of a request and of the frames of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamChecksum(ContentHash);

impl StreamChecksum {
    /// Starts a checksum with a request as the caller encoded it. `items` has one item per requested object.
    pub fn for_request(tenant: &TenantId, query: &[u8], items: impl Iterator<Item = Vec<u8>>) -> Self {
        let first = [tenant.as_str().as_bytes(), query].map(hash::hash_bytes);
        let hashes: Vec<ContentHash> =
            first.into_iter().chain(items.map(|item| hash::hash_bytes(&item))).collect();
        Self(hash::hash_list(&hashes))
    }

    /// Returns the checksum extended by one frame.
    #[must_use]
    fn with_frame(self, tag: u64, content: &[u8]) -> Self {
        Self(hash::hash_list(&[self.0, hash::hash_tagged(tag, content)]))
    }

    fn to_bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_be_bytes())
    }
}

/// Encodes all frames of the response to a request.
pub fn encode_frames<T: Message>(
    request: StreamChecksum,
    partials: impl Iterator<Item = Bytes>,
    trailers: impl Iterator<Item = T>,
) -> Vec<ResultFrame> {
    let mut checksum = request;
    let mut frames = Vec::new();
    let mut push = |frame| frames.push(ResultFrame { frame: Some(frame) });
    for partial in partials {
        checksum = checksum.with_frame(PARTIAL_FRAME_TAG, &partial);
        push(Frame::Partial(partial));
    }
    for trailer in trailers {
        let trailer = Bytes::from(trailer.encode_to_vec());
        checksum = checksum.with_frame(TRAILER_FRAME_TAG, &trailer);
        push(Frame::Trailer(trailer));
    }
    push(Frame::Checksum(checksum.to_bytes()));
    frames
}

/// Receives all frames of the response to a request, passes each partial frame to `on_partial` and returns the
/// trailers. Accepts at most `max_trailers`. If this fails, the caller must discard all partial frames.
pub async fn decode_frames<T: Message + Default>(
    frames: impl Stream<Item = Result<ResultFrame, Status>>,
    request: StreamChecksum,
    max_trailers: usize,
    mut on_partial: impl FnMut(Bytes) -> Result<(), Status>,
) -> Result<Vec<T>, ResultStreamError> {
    let mut checksum = request;
    let mut trailers = Vec::new();
    let mut is_complete = false;
    let mut frames = std::pin::pin!(frames);
    while let Some(frame) = frames.try_next().await.map_err(ResultStreamError::Remote)? {
        match frame.frame {
            Some(Frame::Partial(partial)) if trailers.is_empty() && !is_complete => {
                checksum = checksum.with_frame(PARTIAL_FRAME_TAG, &partial);
                on_partial(partial).map_err(ResultStreamError::Local)?;
            }
            Some(Frame::Trailer(trailer)) if trailers.len() < max_trailers && !is_complete => {
                checksum = checksum.with_frame(TRAILER_FRAME_TAG, &trailer);
                trailers.push(trailer);
            }
            Some(Frame::Checksum(received)) if !is_complete => {
                if received != checksum.to_bytes() {
                    let why = "response does not match the request, or was corrupted: checksum mismatch";
                    return Err(protocol_error(ErrorCode::Unavailable, why));
                }
                is_complete = true;
            }
            _ => {
                let why = "unexpected frame in a response; run the same release on all nodes";
                return Err(protocol_error(ErrorCode::Internal, why));
            }
        }
        // A long response may be fully buffered, so the task yields regularly.
        tokio::task::consume_budget().await;
    }
    if !is_complete {
        return Err(protocol_error(ErrorCode::Unavailable, "response ended before its checksum"));
    }
    let unreadable = |_| {
        let why = "trailer of a response is unreadable; run the same release on all nodes";
        protocol_error(ErrorCode::Internal, why)
    };
    trailers.into_iter().map(|trailer| T::decode(trailer).map_err(unreadable)).collect()
}

fn protocol_error(code: ErrorCode, why: &str) -> ResultStreamError {
    ResultStreamError::Remote(Status::new(code, format!("protocol error: {why}")))
}

impl ResultStreamError {
    /// Converts the error to a status, for local and remote errors alike.
    pub fn into_status(self) -> Status {
        match self {
            ResultStreamError::Remote(status) | ResultStreamError::Local(status) => status,
        }
    }
}

#[cfg(test)]
mod tests {
    use athanor_proto::athanor::internal::v1 as wire;
    use futures::stream;

    use super::*;
    use crate::rpc::{head_query_service, store_gateway_service};

    type Trailers = Result<Vec<wire::BlockRequest>, ResultStreamError>;

    fn request() -> StreamChecksum {
        StreamChecksum::for_request(&TenantId::anonymous(), b"query", std::iter::empty())
    }

    fn trailer(covers_block: bool) -> wire::BlockRequest {
        wire::BlockRequest { block_id: Bytes::new(), covers_block, ..wire::BlockRequest::default() }
    }

    fn response(partials: &[&'static [u8]], trailers: usize) -> Vec<Result<ResultFrame, Status>> {
        let partials = partials.iter().map(|partial| Bytes::from_static(partial));
        let trailers = (0..trailers).map(|number| trailer(number > 0));
        encode_frames(request(), partials, trailers).into_iter().map(Ok).collect()
    }

    /// Result of a response, with the number of its partial frames.
    async fn received(frames: Vec<Result<ResultFrame, Status>>) -> (Trailers, usize) {
        let mut partials = 0;
        let trailers = decode_frames(stream::iter(frames), request(), 2, |bytes| {
            partials += 1;
            match bytes.is_empty() {
                true => Err(Status::new(ErrorCode::Exhausted, "out of memory")),
                false => Ok(()),
            }
        });
        (trailers.await, partials)
    }

    fn remote_code(result: Trailers) -> ErrorCode {
        match result {
            Err(ResultStreamError::Remote(status)) => status.code,
            result => panic!("{result:?}"),
        }
    }

    #[tokio::test]
    async fn incomplete_or_reordered_response_is_rejected() {
        let complete = response(&[b"a", b"b"], 2);
        assert_eq!(received(complete.clone()).await, (Ok(vec![trailer(false), trailer(true)]), 2));
        assert_eq!(received(response(&[], 0)).await.0, Ok(vec![]));
        for position in 0..complete.len() {
            let mut truncated = complete.clone();
            truncated.truncate(position);
            assert_eq!(remote_code(received(truncated).await.0), ErrorCode::Unavailable, "{position} frames");
            let mut lossy = complete.clone();
            drop(lossy.remove(position));
            let code = remote_code(received(lossy).await.0);
            assert_eq!(code, ErrorCode::Unavailable, "without frame {position}");
        }
        let mut swapped = complete.clone();
        swapped.swap(0, 1);
        assert_eq!(remote_code(received(swapped).await.0), ErrorCode::Unavailable);
        let other = StreamChecksum::for_request(&TenantId::anonymous(), b"other", std::iter::empty());
        let other = encode_frames(other, std::iter::empty(), [trailer(true)].into_iter()).into_iter().map(Ok);
        assert_eq!(remote_code(received(other.collect()).await.0), ErrorCode::Unavailable);
    }

    #[tokio::test]
    async fn frames_out_of_order_or_of_unknown_kind_are_rejected() {
        let mut late_partial = response(&[b"a"], 1);
        late_partial.swap(0, 1);
        let mut extra_trailer = response(&[], 2);
        extra_trailer.insert(0, extra_trailer[0].clone());
        let mut second_response = response(&[], 1);
        second_response.extend(response(&[], 1));
        let unknown = vec![Ok(ResultFrame { frame: None })];
        for frames in [late_partial, extra_trailer, second_response, unknown] {
            assert_eq!(remote_code(received(frames).await.0), ErrorCode::Internal);
        }
    }

    #[tokio::test]
    async fn remote_and_local_errors_are_distinguished() {
        let broken = Status::new(ErrorCode::Unavailable, "connection lost");
        let mut frames = response(&[b"a"], 1);
        frames[1] = Err(broken.clone());
        assert_eq!(received(frames).await, (Err(ResultStreamError::Remote(broken)), 1));
        let (full, _) = received(response(&[b""], 1)).await;
        assert!(matches!(full, Err(ResultStreamError::Local(why)) if why.code == ErrorCode::Exhausted));
    }

    /// Returns one copy of the messages for each bit, with that bit flipped. None if the copy does not decode.
    fn with_flipped_bits<M: Message + Default>(messages: &[M]) -> Vec<Option<Vec<M>>> {
        let encoded: Vec<Vec<u8>> = messages.iter().map(Message::encode_to_vec).collect();
        let mut copies = Vec::new();
        for (position, bytes) in encoded.iter().enumerate() {
            for bit in 0..8 * bytes.len() {
                let mut copy = encoded.clone();
                copy[position][bit / 8] ^= 1 << (bit % 8);
                copies.push(copy.iter().map(|bytes| M::decode(bytes.as_slice()).ok()).collect());
            }
        }
        copies
    }

    async fn is_rejected<T: Message + Default>(
        request: StreamChecksum,
        max_trailers: usize,
        frames: Vec<ResultFrame>,
    ) -> bool {
        let frames = stream::iter(frames.into_iter().map(Ok));
        decode_frames::<T>(frames, request, max_trailers, |_| Ok(())).await.is_err()
    }

    #[tokio::test]
    async fn flipped_bit_in_head_query_is_detected() {
        let (tenant, query) = (TenantId::anonymous(), b"some query");
        let shards = [1, 2, 3].map(|shard| {
            let excluded = vec![wire::ExcludedIds { head_index: 1, ids: Bytes::from_static(b"some") }];
            wire::ShardRequest { shard, epoch: 1, watermark: 7, report_ids: shard == 2, excluded }
        });
        let error =
            wire::RpcStatus { leader_node_id: 7, message: "no".to_owned(), ..wire::RpcStatus::default() };
        let outcomes = [
            None,
            Some(wire::shard_result::Outcome::Error(error)),
            Some(wire::shard_result::Outcome::Stale(true)),
        ];
        let trailers = shards.iter().zip(outcomes).map(|(shard, outcome)| wire::ShardResult {
            shard: shard.shard,
            lost_entries: 5,
            first_nanos: Some(-1),
            last_nanos: Some(9),
            outcome,
            ..wire::ShardResult::default()
        });
        let partials = [b"some of it".as_slice(), b"the rest"].map(Bytes::from_static);
        let request = head_query_service::request_checksum(&tenant, query, &shards);
        let sent = encode_frames(request, partials.into_iter(), trailers);
        assert!(!is_rejected::<wire::ShardResult>(request, 3, sent.clone()).await);
        for received in with_flipped_bits(&sent).into_iter().flatten() {
            assert!(is_rejected::<wire::ShardResult>(request, 3, received.clone()).await, "{received:?}");
        }
        for received in with_flipped_bits(&shards).into_iter().flatten().filter(|other| other != &shards) {
            let other = head_query_service::request_checksum(&tenant, query, &received);
            assert_ne!(other, request, "{received:?}");
        }
        assert_ne!(head_query_service::request_checksum(&tenant, b"some querz", &shards), request);
        let other = "other".parse().unwrap();
        assert_ne!(head_query_service::request_checksum(&other, query, &shards), request);
    }

    #[tokio::test]
    async fn flipped_bit_in_block_query_is_detected() {
        let (tenant, query) = (TenantId::anonymous(), b"some query");
        let block_id = |byte: u8| Bytes::from(vec![byte; 16]);
        let blocks = [(1, true), (2, false)].map(|(byte, covers_block)| wire::BlockRequest {
            block_id: block_id(byte),
            covers_block,
            report_ids_for: covers_block.then_some(wire::TimeRange { from_nanos: -5, until_nanos: 9 }),
            excluded_ids: Bytes::from_static(b"others"),
            in_tenant_folder: !covers_block,
            ranges: vec![wire::TimeRange { from_nanos: 3, until_nanos: 7 }],
        });
        let trailer =
            wire::BlocksResult { blocks: 2, not_found: vec![block_id(2)], ..wire::BlocksResult::default() };
        let partials = [b"some of it".as_slice(), b"the rest"].map(Bytes::from_static);
        let request = store_gateway_service::request_checksum(&tenant, query, &blocks);
        let sent = encode_frames(request, partials.into_iter(), [trailer].into_iter());
        assert!(!is_rejected::<wire::BlocksResult>(request, 1, sent.clone()).await);
        for received in with_flipped_bits(&sent).into_iter().flatten() {
            assert!(is_rejected::<wire::BlocksResult>(request, 1, received.clone()).await, "{received:?}");
        }
        for received in with_flipped_bits(&blocks).into_iter().flatten().filter(|other| other != &blocks) {
            let other = store_gateway_service::request_checksum(&tenant, query, &received);
            assert_ne!(other, request, "{received:?}");
        }
    }
}
