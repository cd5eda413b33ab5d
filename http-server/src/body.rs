//! Bodies: read within bounds, decompressed within bounds, and compressed for clients that take it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use athanor_chassis::memory_budget::MemoryReservation;
use athanor_chassis::requests::tenant_shares::TenantShares;
use athanor_chassis::{ByteSize, CpuActivity, ErrorCode, ErrorCodeExt, Status, TenantId};
use athanor_profile::formats::pprof::{DecodeError, gzip_fast, inflate};
use axum::body::Body;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH};
use axum::http::{HeaderMap, HeaderValue};
use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};

use crate::decoded_size::BodyPolicy;
use crate::pace::PacedBody;
use crate::request_budget::RequestBudget;

/// Size above which work on a body runs on the compute pool instead of a connection thread.
pub const LARGE_BODY_BYTES: usize = 32 * 1024;
/// Time limit for the arrival of a body.
const BODY_READ_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
/// Step in which memory is reserved. A body up to the large step reserves in small steps.
pub const BUDGET_STEP_BYTES: u64 = 16 * 1024;
const SMALL_BUDGET_STEP_BYTES: u64 = 1024;
/// Size below which chunks are copied together, so that a few bytes do not pin their network buffer.
const MIN_CHUNK_BYTES: usize = 4 * 1024;
/// Retry delay that a client receives while bodies use the whole budget.
const BUSY_RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(1);

/// Compression of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentEncoding {
    /// Body in gzip format.
    Gzip,
    /// Body in zstd format.
    Zstd,
}

impl ContentEncoding {
    /// Returns the encoding that the header `Content-Encoding` names. None means that the body is not encoded.
    ///
    /// # Errors
    ///
    /// The encoding is unknown.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, Status> {
        match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None | Some(b"" | b"identity") => Ok(None),
            Some(b"gzip") => Ok(Some(Self::Gzip)),
            Some(b"zstd") => Ok(Some(Self::Zstd)),
            Some(other) => {
                let other = String::from_utf8_lossy(other);
                let message =
                    format!("unknown compression {other:?}: supported encodings are gzip, zstd and identity");
                Err(Status::new(ErrorCode::Invalid, message).with_reason("unsupported_encoding"))
            }
        }
    }
}

/// Body in memory, with its memory reservation until drop.
#[derive(Default)]
pub struct BufferedBody {
    /// Bytes of the body.
    pub bytes: Bytes,
    memory: Option<MemoryReservation>,
    shares: Vec<TenantShareGuard>,
}

/// Bytes that are charged to a tenant until drop.
struct TenantShareGuard {
    shares: Arc<TenantShares>,
    tenant: TenantId,
    bytes: u64,
}

impl Drop for TenantShareGuard {
    fn drop(&mut self) {
        self.shares.release(std::slice::from_ref(&self.tenant), self.bytes);
    }
}

/// Body of one chunk, followed by trailers.
pub struct BodyWithTrailers {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl BodyWithTrailers {
    /// Creates a body from its chunk and trailers.
    pub fn new(data: Bytes, trailers: HeaderMap) -> Self {
        Self { data: Some(data), trailers: Some(trailers) }
    }
}

impl http_body::Body for BodyWithTrailers {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.data.take().map(Frame::data);
        Poll::Ready(data.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }

    /// The size is not exact: with an exact length HTTP/1.1 sends no chunks, and trailers require chunks.
    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_lower(self.data.as_ref().map_or(0, |data| data.len() as u64));
        hint
    }
}

impl RequestBudget {
    /// Reads a whole body into memory.
    pub async fn read(
        &self,
        headers: &HeaderMap,
        body: Body,
        admits: &BodyPolicy,
    ) -> Result<BufferedBody, Status> {
        if let Some(length) = announced_length(headers).filter(|&length| length > admits.limit.get()) {
            return Err(admits.too_large(length));
        }
        let received = self.clock.timeout(BODY_READ_TIMEOUT, self.receive(body, admits)).await;
        received.unwrap_or_else(|elapsed| {
            let message = format!(
                "failed to read the body: {elapsed}; send smaller batches or use a faster connection"
            );
            Err(Status::new(ErrorCode::Deadline, message))
        })
    }

    /// Reserves memory for received bytes, not for announced ones. Otherwise a client that sends nothing
    /// would block others.
    async fn receive(&self, body: Body, admits: &BodyPolicy) -> Result<BufferedBody, Status> {
        let mut held = BufferedBody::default();
        let mut body = PacedBody::new(body, self.clock.clone());
        let mut pieces = ChunkBuffer::default();
        let mut entered = 0u64;
        while let Some(piece) = body.next_piece().await {
            let piece = piece?;
            let length = body.length();
            if length > admits.limit.get() {
                return Err(admits.too_large(length));
            }
            if length > entered {
                let step =
                    if length <= BUDGET_STEP_BYTES { SMALL_BUDGET_STEP_BYTES } else { BUDGET_STEP_BYTES };
                let more = (length - entered).next_multiple_of(step);
                self.reserve_memory(&mut held, more)?;
                entered += more;
            }
            pieces.push(piece);
        }
        held.bytes = pieces.join();
        Ok(held)
    }

    /// Reserves memory for more bytes.
    pub fn reserve_memory(&self, held: &mut BufferedBody, bytes: u64) -> Result<(), Status> {
        let taken = held.memory.as_ref().map_or(0, MemoryReservation::bytes);
        let limit = self.memory.limit();
        if taken + bytes > limit.get() {
            let needed = ByteSize::bytes(taken + bytes).to_approximate_string();
            let message = format!(
                "request needs {needed} of memory, the limit of all requests together is {limit} \
                 (max_inflight_request_bytes); send smaller batches"
            );
            return Err(Status::new(ErrorCode::TooLarge, message).with_reason("body_size_limit_exceeded"));
        }
        self.take_share(held, bytes)?;
        let more = self.memory.try_reserve(bytes).map_err(|exceeded| {
            let message = format!("too many bytes in flight: {exceeded}; retry later");
            let status = Status::new(exceeded.code(), message).with_reason("inflight_limit");
            status.with_retry_after(BUSY_RETRY_AFTER)
        })?;
        match &mut held.memory {
            Some(all) => all.merge(more),
            None => held.memory = Some(more),
        }
        Ok(())
    }

    /// Charges more bytes to the tenant of the request.
    fn take_share(&self, held: &mut BufferedBody, bytes: u64) -> Result<(), Status> {
        let Some(tenant) = &self.tenant else { return Ok(()) };
        let own: u64 = held.shares.iter().map(|share| share.bytes).sum();
        let taken = self.shares.reserve(std::slice::from_ref(tenant), bytes).or_else(|exceeded| {
            // A single request of a tenant may exceed the share. Otherwise it would be rejected forever.
            if exceeded.held > own {
                return Err(exceeded);
            }
            self.shares.reserve_unchecked(std::slice::from_ref(tenant), bytes);
            Ok(())
        });
        taken.map_err(|exceeded| {
            let message = format!(
                "too many bytes in flight: tenant {tenant} holds {}, this request needs {} more, the limit per tenant \
                 is {}, half of max_inflight_request_bytes; retry later",
                ByteSize::bytes(exceeded.held).to_approximate_string(),
                ByteSize::bytes(bytes).to_approximate_string(),
                ByteSize::bytes(exceeded.share)
            );
            Status::new(ErrorCode::Exhausted, message).with_reason("inflight_limit").with_retry_after(BUSY_RETRY_AFTER)
        })?;
        held.shares.push(TenantShareGuard {
            shares: Arc::clone(&self.shares),
            tenant: tenant.clone(),
            bytes,
        });
        Ok(())
    }

    /// Decompresses a body declared as gzip.
    pub async fn gunzip(&self, held: &mut BufferedBody, admits: &BodyPolicy) -> Result<(), Status> {
        self.decompress(held, admits, ContentEncoding::Gzip).await
    }

    /// Decompresses a body declared as the given encoding.
    pub async fn decompress(
        &self,
        held: &mut BufferedBody,
        admits: &BodyPolicy,
        packing: ContentEncoding,
    ) -> Result<(), Status> {
        let (name, magic): (_, &[u8]) = match packing {
            ContentEncoding::Gzip => ("gzip", &[0x1f, 0x8b]),
            ContentEncoding::Zstd => ("zstd", &[0x28, 0xb5, 0x2f, 0xfd]),
        };
        if !held.bytes.starts_with(magic) {
            return Err(Status::new(
                ErrorCode::Invalid,
                format!("the body is declared as {name} but has another format"),
            ));
        }
        // Both formats contain the plain length, reliable only in a valid body of a single frame. The memory
        // is reserved by that length before decompression and corrected afterwards.
        let length = match packing {
            ContentEncoding::Gzip => {
                held.bytes.last_chunk::<4>().map(|length| u32::from_le_bytes(*length).into())
            }
            ContentEncoding::Zstd => zstd_length(&held.bytes),
        };
        let length = length.unwrap_or(0).min(admits.limit.get());
        self.reserve_memory(held, length)?;
        let bytes = std::mem::take(&mut held.bytes);
        let limit = admits.limit.as_usize();
        let plain =
            self.run_on_compute(CpuActivity::HttpBody, bytes.len(), move || inflate(&bytes, limit)).await?;
        held.bytes = match plain {
            Ok(plain) => plain.into(),
            Err(DecodeError::OverLimit { seen, .. }) => return Err(admits.too_large(seen as u64)),
            Err(error) => {
                return Err(Status::new(
                    ErrorCode::Invalid,
                    format!("failed to decompress the body: {error}"),
                ));
            }
        };
        self.reserve_memory(held, (held.bytes.len() as u64).saturating_sub(length))
    }

    /// Compresses a response with gzip.
    pub async fn gzip(&self, bytes: Bytes) -> Result<Bytes, Status> {
        // Acknowledgements are empty, and creating a compressor takes longer than the rest of their response.
        static EMPTY_GZIP: LazyLock<Bytes> = LazyLock::new(|| gzip_fast(b"").into());
        if bytes.is_empty() {
            return Ok(EMPTY_GZIP.clone());
        }
        self.run_on_compute(CpuActivity::Query, bytes.len(), move || gzip_fast(&bytes).into()).await
    }

    /// Runs small work inline and large work on the compute pool.
    pub async fn run_on_compute<R: Send + 'static>(
        &self,
        activity: CpuActivity,
        size: usize,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, Status> {
        if size <= LARGE_BODY_BYTES {
            return Ok(work());
        }
        self.compute.run_as(activity, work).await.map_err(|error| Status::from_error(&error))
    }
}

/// Returns the Content-Length that the client announced.
pub fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns the plain length in the first zstd frame header, if it is present.
fn zstd_length(bytes: &[u8]) -> Option<u64> {
    let described = *bytes.get(4)?;
    let is_single = described & 0x20 != 0;
    let dictionary = [0, 1, 2, 4][usize::from(described & 3)];
    let length = match described >> 6 {
        0 => usize::from(is_single),
        flag => 1 << flag,
    };
    let at = 5 + usize::from(!is_single) + dictionary;
    let mut number = [0; 8];
    number.get_mut(..length)?.copy_from_slice(bytes.get(at..at + length)?);
    // Two-byte lengths have an offset of 256, the end of the one-byte range.
    let from = if length == 2 { 256 } else { 0 };
    (length > 0).then(|| u64::from_le_bytes(number).saturating_add(from))
}

/// Chunks of a body in memory.
#[derive(Default)]
struct ChunkBuffer {
    whole: Vec<Bytes>,
    /// Small chunks at the end, which are copied together.
    small: BytesMut,
}

impl ChunkBuffer {
    fn push(&mut self, piece: Bytes) {
        if piece.len() < MIN_CHUNK_BYTES {
            self.small.extend_from_slice(&piece);
            return;
        }
        self.end_small();
        self.whole.push(piece);
    }

    fn end_small(&mut self) {
        if !self.small.is_empty() {
            self.whole.push(std::mem::take(&mut self.small).freeze());
        }
    }

    fn join(mut self) -> Bytes {
        self.end_small();
        if self.whole.len() == 1 {
            return self.whole.remove(0);
        }
        let mut joined = BytesMut::with_capacity(self.whole.iter().map(Bytes::len).sum());
        self.whole.iter().for_each(|piece| joined.extend_from_slice(piece));
        joined.freeze()
    }
}

/// Returns whether a client accepts gzip.
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let offers = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    offers.flat_map(|value| value.split(',')).any(|offer| {
        let (name, quality) = offer.split_once(';').unwrap_or((offer, ""));
        name.trim().eq_ignore_ascii_case("gzip") && quality.trim().trim_end_matches(['0', '.']) != "q="
    })
}

/// Value of `Content-Encoding` for gzip.
pub const GZIP_CONTENT_ENCODING: HeaderValue = HeaderValue::from_static("gzip");

#[cfg(test)]
mod tests {
    use athanor_chassis::{Clock, ComputePool};
    use axum::http::header::HeaderName;

    use super::*;

    fn door(in_flight: u64) -> RequestBudget {
        RequestBudget::new(false, ByteSize::bytes(in_flight), Clock::system(), ComputePool::inline())
    }

    fn admits(limit: u64) -> BodyPolicy {
        BodyPolicy::profiles(ByteSize::bytes(limit))
    }

    async fn read(door: &RequestBudget, size: usize) -> Result<BufferedBody, ErrorCode> {
        let body = Body::from(vec![7u8; size]);
        door.read(&HeaderMap::new(), body, &admits(1 << 20)).await.map_err(|status| status.code)
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_while_it_comes() {
        let door = door(4 << 20);
        let most = 1 << 20;
        assert_eq!(read(&door, most).await.map(|held| held.bytes.len()), Ok(most));
        assert_eq!(read(&door, most + 1).await.map(|_| ()), Err(ErrorCode::TooLarge));
        let body = Body::from(vec![7; most + 1]);
        let refused = door.read(&HeaderMap::new(), body, &admits(most as u64)).await.err().unwrap();
        let said = "the body has at least 1048577B, the limit is 1MiB (limits.ingestion_body_limit): send smaller batches";
        assert_eq!(refused.message, said);
        let body = Body::from(vec![7; most + 1]);
        let refused = door.read(&HeaderMap::new(), body, &BodyPolicy::QUERY_BODY).await.err().unwrap();
        assert!(refused.message.contains("1MiB (fixed for queries)"), "{refused}");
    }

    #[tokio::test]
    async fn all_bodies_together_have_a_bound() {
        let door = door(64 << 10);
        let first = read(&door, 40_000).await.map_err(|code| code.name()).expect("there is room");
        assert_eq!(read(&door, 40_000).await.map(|_| ()), Err(ErrorCode::Exhausted));
        drop(first);
        assert_eq!(read(&door, 40_000).await.map(|_| ()), Ok(()));
        assert_eq!(
            read(&door, 70_000).await.map(|_| ()),
            Err(ErrorCode::TooLarge),
            "it would never have room"
        );
    }

    #[tokio::test]
    async fn who_sends_nothing_takes_no_room_and_no_time() {
        let (clock, hand) = Clock::manual(athanor_chassis::Timestamp::UNIX_EPOCH);
        let door = RequestBudget { clock, ..door(64 << 10) };
        let headers =
            HeaderMap::<HeaderValue>::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("60000"))]);
        let silent = futures::stream::pending::<Result<Bytes, Infallible>>();
        let admits = admits(1 << 20);
        let mut reading = std::pin::pin!(door.read(&headers, Body::from_stream(silent), &admits));
        assert!(futures::future::poll_immediate(&mut reading).await.is_none());
        assert_eq!(read(&door, 40_000).await.map(|_| ()), Ok(()));
        hand.advance(BODY_READ_TIMEOUT);
        assert_eq!(reading.await.map(|_| ()).map_err(|status| status.code), Err(ErrorCode::Deadline));
    }

    #[tokio::test]
    async fn what_is_compressed_reads_the_same() {
        let door = door(1 << 20);
        let text = Bytes::from(vec![b'x'; 100_000]);
        let bytes = door.gzip(text.clone()).await.unwrap();
        assert!(bytes.len() < 1000, "{}", bytes.len());
        let mut held = BufferedBody { bytes: bytes.clone(), ..BufferedBody::default() };
        let mut large = BufferedBody { bytes: bytes.clone(), ..BufferedBody::default() };
        door.gunzip(&mut held, &admits(100_000)).await.unwrap();
        assert_eq!(held.bytes, text);
        let mut plain = BufferedBody { bytes: text, ..BufferedBody::default() };
        assert_eq!(door.gunzip(&mut plain, &admits(1 << 20)).await.unwrap_err().code, ErrorCode::Invalid);
        let refused = door.gunzip(&mut large, &admits(99_999)).await.unwrap_err();
        assert_eq!(refused, admits(99_999).too_large(100_000));
    }

    #[test]
    fn gzip_is_taken_when_it_is_offered() {
        let offer = |value: &'static str| {
            accepts_gzip(&HeaderMap::<HeaderValue>::from_iter([(
                HeaderName::from_static("accept-encoding"),
                HeaderValue::from_static(value),
            )]))
        };
        assert!(offer("gzip") && offer("br, GZIP;q=0.5") && offer("deflate, gzip"));
        assert!(!offer("br, zstd") && !offer("gzip;q=0") && !offer("gzip;q=0.0") && !offer("identity"));
    }

    #[tokio::test]
    async fn both_ways_to_compress_are_undone_within_the_limit() {
        let plain = vec![7u8; 100_000];
        let zstd = zstd::encode_all(&plain[..], 0).unwrap();
        let whole = zstd::bulk::compress(&plain, 0).unwrap();
        assert_eq!((zstd_length(&zstd), zstd_length(&whole)), (None, Some(100_000)));
        assert_eq!(zstd_length(&zstd::bulk::compress(&plain[..300], 0).unwrap()), Some(300));
        assert_eq!(zstd_length(&zstd::bulk::compress(&plain[..30], 0).unwrap()), Some(30));
        for (packed, packing) in [
            (Bytes::from(gzip_fast(&plain)), ContentEncoding::Gzip),
            (zstd.into(), ContentEncoding::Zstd),
            (whole.into(), ContentEncoding::Zstd),
        ] {
            let unpacked = async |limit| {
                let mut held = BufferedBody { bytes: packed.clone(), ..BufferedBody::default() };
                let unpacked = door(1 << 20).decompress(&mut held, &admits(limit), packing).await;
                unpacked.map(|()| held.bytes.len()).map_err(|status| status.code)
            };
            assert_eq!(unpacked(100_000).await, Ok(100_000));
            assert_eq!(unpacked(99_999).await, Err(ErrorCode::TooLarge));
        }
        let mut held = BufferedBody { bytes: Bytes::from_static(b"plain"), ..BufferedBody::default() };
        let refused =
            door(1 << 20).decompress(&mut held, &admits(100), ContentEncoding::Zstd).await.unwrap_err();
        assert_eq!(refused.message, "the body is declared as zstd but has another format");
    }
}
