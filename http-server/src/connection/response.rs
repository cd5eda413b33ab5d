//! Response bodies, in chunks that hold the slot and the memory budget of the response until the last byte is
//! sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use athanor_chassis::Status;
use athanor_chassis::requests::result_budget::{ResultBudget, ResultReservation};
use axum::body::Body;
use axum::http::{HeaderMap, Response};
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

use super::requests::RequestSlot;
use super::send_progress::SendProgress;
use super::stream;

/// Number of bytes that the transport takes of a body at once. A longer response ends only when all its
/// chunks are sent.
pub const SEND_CHUNK_BYTES: usize = 16 * 1024;

/// Memory budget of a response. Goes with the response as an extension.
#[derive(Clone, Debug, Default)]
pub struct ResponseBudget(Vec<Arc<ResultReservation>>);

/// Resources of a response. The body and each of its chunks hold them.
struct ResponseHold {
    _slot: Option<RequestSlot>,
    _budget: Option<ResponseBudget>,
    /// Present on HTTP/2 only. A client of HTTP/1 that reads nothing stalls its connection.
    progress: Option<Arc<SendProgress>>,
}

/// Body of a response that is being sent.
pub struct SentBody {
    body: Body,
    /// Data of `body` that the transport has not taken.
    rest: Bytes,
    /// End of `body`, with the trailers if there are any, once it was read.
    end: Option<Option<HeaderMap>>,
    taken_bytes: usize,
    hold: Arc<ResponseHold>,
}

/// Bytes that the transport has taken but not yet sent.
struct BodyChunk {
    bytes: Bytes,
    hold: Arc<ResponseHold>,
}

/// Moves the memory reservation of a result to its response. `take` returns the reservation, reduced to the
/// response's bytes.
pub fn keep_budget(response: &mut Response<Body>, take: impl FnOnce(usize) -> Option<ResultReservation>) {
    if let Some(taken) = take(body_bytes(response)) {
        response.extensions_mut().insert(ResponseBudget(vec![Arc::new(taken)]));
    }
}

/// Reserves memory for a response, beyond the reservation of its result. A response that fits one chunk needs
/// none.
pub fn fit_budget(response: &mut Response<Body>, room: &Arc<ResultBudget>) -> Result<(), Status> {
    let bytes = body_bytes(response);
    let mut budget = response.extensions_mut().remove::<ResponseBudget>().unwrap_or_default();
    let held: usize = budget.0.iter().map(|taken| taken.bytes()).sum();
    if bytes > held && bytes > SEND_CHUNK_BYTES {
        budget.0.push(Arc::new(room.reserve(bytes - held)?));
    }
    response.extensions_mut().insert(budget);
    Ok(())
}

/// Returns the minimum number of bytes of a response.
fn body_bytes(response: &Response<Body>) -> usize {
    usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX)
}

impl SentBody {
    /// Wraps the body of a response. Takes the budget out of the response's extensions.
    pub fn wrap(mut response: Response<Body>, slot: Option<RequestSlot>) -> Response<Body> {
        let budget = response.extensions_mut().remove::<ResponseBudget>();
        let hold = ResponseHold { _slot: slot, _budget: budget, progress: stream::current_progress() };
        response.map(|body| Body::new(Self::new(body, hold)))
    }

    fn new(body: Body, hold: ResponseHold) -> Self {
        Self { body, rest: Bytes::new(), end: None, taken_bytes: 0, hold: Arc::new(hold) }
    }

    /// Takes the next chunk of the data that was read.
    fn next_piece(&mut self) -> Bytes {
        let bytes = self.rest.split_to(self.rest.len().min(SEND_CHUNK_BYTES));
        self.taken_bytes += bytes.len();
        if let Some(progress) = &self.hold.progress {
            progress.piece_taken();
        }
        Bytes::from_owner(BodyChunk { bytes, hold: Arc::clone(&self.hold) })
    }

    /// Returns the progress that the end of the body waits for. While the end is withheld, the stream exists
    /// and can be reset.
    fn awaited_progress(&self) -> Option<&SendProgress> {
        self.hold.progress.as_deref().filter(|_| self.taken_bytes > SEND_CHUNK_BYTES)
    }
}

impl http_body::Body for SentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        loop {
            if !this.rest.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(this.next_piece()))));
            }
            if this.end.is_some() {
                if this.awaited_progress().is_some_and(|progress| !progress.is_sent(context)) {
                    return Poll::Pending;
                }
                let trailers = this.end.replace(None).flatten();
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            }
            match std::task::ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(frame) => this.end = frame.into_trailers().ok().map(Some),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => this.end = Some(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_read = self.rest.is_empty() && (self.end == Some(None) || self.body.is_end_stream());
        is_read && self.awaited_progress().is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let mut hint = self.body.size_hint();
        let upper = hint.upper();
        // The upper bound first: it may not be below the lower one.
        if let Some(upper) = upper {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

impl AsRef<[u8]> for BodyChunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for BodyChunk {
    fn drop(&mut self) {
        if let Some(progress) = &self.hold.progress {
            progress.piece_sent();
        }
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::memory_budget::BudgetLimit;
    use athanor_chassis::{ByteSize, Clock, ErrorCode};
    use axum::http::HeaderValue;
    use futures::future::poll_immediate;
    use http_body_util::BodyExt;

    use super::*;
    use crate::body::BodyWithTrailers;

    fn sent(body: Body, progress: Option<Arc<SendProgress>>, budget: Option<ResponseBudget>) -> SentBody {
        SentBody::new(body, ResponseHold { _slot: None, _budget: budget, progress })
    }

    #[tokio::test]
    async fn budget_is_held_until_the_last_piece_is_sent() {
        let bound = BudgetLimit { limit: ByteSize::mib(1), setting: "x" };
        let room = ResultBudget::new(bound, bound);
        let mut response = Response::new(Body::from(vec![7; 100_000]));
        keep_budget(&mut response, |bytes| room.reserve(bytes / 2).ok());
        fit_budget(&mut response, &room).unwrap();
        assert_eq!(room.stats().taken, 100_000);
        let budget = response.extensions_mut().remove();
        let mut body = sent(Body::from(vec![7; 100_000]), None, budget);
        assert_eq!(body.size_hint().exact(), Some(100_000));
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().await {
            pieces.push(frame.unwrap().into_data().unwrap());
            assert_eq!(body.is_end_stream(), body.size_hint().exact() == Some(0));
        }
        assert!(pieces.iter().all(|piece| piece.len() <= SEND_CHUNK_BYTES));
        assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), 100_000);
        drop(body);
        let last = pieces.pop();
        drop(pieces);
        assert_eq!(room.stats().taken, 100_000);
        drop(last);
        assert_eq!(room.stats().taken, 0);
    }

    #[tokio::test]
    async fn long_body_of_a_stream_ends_when_its_pieces_are_sent() {
        let trailers = || HeaderMap::from_iter([("a".parse().unwrap(), HeaderValue::from_static("b"))]);
        for (size, waits) in [(10, false), (SEND_CHUNK_BYTES + 1, true)] {
            let progress = Arc::new(SendProgress::new(Clock::system()));
            let framed = BodyWithTrailers::new(vec![7; size].into(), trailers());
            let mut body = sent(Body::new(framed), Some(Arc::clone(&progress)), None);
            let mut pieces = Vec::new();
            let end = loop {
                match poll_immediate(body.frame()).await {
                    Some(Some(frame)) => match frame.unwrap().into_data() {
                        Ok(piece) => pieces.push(piece),
                        Err(frame) => break Some(frame.into_trailers().unwrap()),
                    },
                    Some(None) => panic!("there are trailers"),
                    None => break None,
                }
            };
            assert_eq!(end.is_none(), waits, "{size}");
            drop(pieces);
            if waits {
                assert_eq!(body.frame().await.unwrap().unwrap().into_trailers().unwrap(), trailers());
            }
            assert!(body.is_end_stream() || waits);
            assert!(body.frame().await.is_none());
        }
    }

    #[test]
    fn response_over_the_budget_is_refused() {
        let bound = |bytes| BudgetLimit { limit: ByteSize::bytes(bytes), setting: "x" };
        let room = ResultBudget::new(bound(1 << 20), bound(100_000));
        let fit = |bytes| {
            let mut response = Response::new(Body::from(vec![7; bytes]));
            fit_budget(&mut response, &room).map(|()| response).map_err(|status| status.code)
        };
        let first = fit(60_000).unwrap();
        assert_eq!(fit(60_000).map(drop), Err(ErrorCode::Exhausted));
        assert!(fit(SEND_CHUNK_BYTES).is_ok());
        drop(first);
        assert!(fit(60_000).is_ok());
    }

    #[test]
    fn empty_body_ends_with_its_head() {
        assert!(
            sent(Body::empty(), Some(Arc::new(SendProgress::new(Clock::system()))), None).is_end_stream()
        );
    }
}
