//! Transport of raft messages between nodes. All raft groups share one stream to each peer.
//!
//! ```text
//!  call ─► PeerStream ─► SendLanes ─► frames ═══ stream ═══► FrameAssembler ─► RaftHandler
//!             ▲                                                                    │
//!             └──── FrameAssembler ◄═════════════════════════ SendLanes ◄──────────┘
//! ```
//! The lower half of the diagram is [`RaftTransportServer`] on the peer.
//!
//! A call ends with its own response or with an error. It fails when its timeout expires, when a queue is
//! full, or when the stream ends. The end of a stream fails every call that waits on it. The first call opens
//! a stream, and the next call after its end opens a new one. Dropping the future of a call does not cancel
//! its message.

mod frames;
mod server;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use athanor_chassis::{ErrorCode, ErrorCodeExt, Status};
use athanor_proto::athanor::internal::v1::raft_frame::Frame;
use athanor_proto::athanor::internal::v1::{Hello, RaftFrame};
use bytes::Bytes;
use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::oneshot;

pub use frames::{
    FrameAssembler, FrameError, MAX_PART_BYTES, MAX_RAFT_MESSAGE_BYTES, RaftMessage, SendLanes,
    SendQueueError, StreamDirection,
};
pub use server::{RaftHandler, RaftTransportServer};

use crate::NodeId;
use crate::handshake::PeerHandshake;
use crate::peers::PeerPool;
use crate::status_codec;

/// Timeout for opening a stream, until the peer's hello is received.
const HELLO_TIMEOUT: Duration = Duration::from_secs(3);
/// Upper bound of a frame in bytes: one message part plus its envelope.
pub(crate) const MAX_FRAME_BYTES: usize = MAX_PART_BYTES + (4 << 10);
/// Upper bound of calls to one peer that wait for their responses.
const MAX_PENDING_CALLS: usize = 8192;

/// Client that calls raft group members on other nodes. Cheap to clone.
#[derive(Clone)]
pub struct RaftTransport {
    shared: Arc<RaftTransportShared>,
}

struct RaftTransportShared {
    peers: PeerPool,
    handshake: Arc<PeerHandshake>,
    lines: Mutex<BTreeMap<NodeId, Arc<PeerStream>>>,
}

/// Failure of a call to a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The send queues or the table of pending calls are full. The call was not sent.
    #[error(transparent)]
    NoRoom(#[from] SendQueueError),
    /// The stream failed or ended. The call may have arrived.
    #[error("node {to} was not reached: {cause}")]
    Broken {
        /// Node that was called.
        to: NodeId,
        /// Cause of the failure.
        cause: String,
    },
    /// The call timed out. The call may have arrived.
    #[error("node {to} did not respond within {limit:?}")]
    Late {
        /// Node that was called.
        to: NodeId,
        /// Timeout of the call.
        limit: Duration,
    },
    /// The peer received the call and returned an error.
    #[error("node {to} refused: {status}")]
    Refused {
        /// Node that was called.
        to: NodeId,
        /// Error status that the peer returned.
        status: Status,
    },
}

impl ErrorCodeExt for TransportError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NoRoom(error) => error.code(),
            Self::Broken { .. } => ErrorCode::Unavailable,
            Self::Late { .. } => ErrorCode::Deadline,
            Self::Refused { status, .. } => status.code,
        }
    }
}

/// Stream to one peer and its pending calls, shared by callers and by the task that runs the stream.
struct PeerStream {
    to: NodeId,
    state: Mutex<PeerStreamState>,
}

#[derive(Default)]
struct PeerStreamState {
    next: u64,
    lanes: SendLanes,
    waiting: BTreeMap<u64, oneshot::Sender<Result<Bytes, TransportError>>>,
    /// True while a stream is open or a task opens one.
    open: bool,
    /// Number of streams that have ended. A leftover of an ended stream must not take frames of the next one.
    ended: u64,
    /// Waker of the stream, set while it has no frame to send.
    waker: Option<Waker>,
}

/// Registration of a pending call. Dropping it discards the response.
struct PendingCall<'a> {
    line: &'a PeerStream,
    id: u64,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        self.line.state.lock().waiting.remove(&self.id);
    }
}

// === impl RaftTransport ===

impl RaftTransport {
    /// Creates a transport that connects over `peers` and identifies this node by `handshake`.
    pub fn new(peers: PeerPool, handshake: Arc<PeerHandshake>) -> Self {
        Self { shared: Arc::new(RaftTransportShared { peers, handshake, lines: Mutex::default() }) }
    }

    /// Calls a group member on another node and waits for its response, at most `limit`.
    pub async fn call(
        &self,
        to: NodeId,
        group: u32,
        request: Bytes,
        limit: Duration,
    ) -> Result<Bytes, TransportError> {
        let line = self.peer_stream(to);
        let (id, answer) = line.enqueue_call(group, request)?;
        let _waiting = PendingCall { line: &line, id };
        self.ensure_stream(&line);
        let answer = self.shared.peers.deps().clock.timeout(limit, answer).await;
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_dropped)) => {
                Err(TransportError::Broken { to, cause: "the process is shutting down".to_owned() })
            }
            Err(_) => Err(TransportError::Late { to, limit }),
        }
    }

    fn peer_stream(&self, to: NodeId) -> Arc<PeerStream> {
        let mut lines = self.shared.lines.lock();
        if !lines.contains_key(&to) {
            // Streams to nodes that gossip has forgotten are removed unless they are open.
            let known = self.shared.peers.members().current();
            lines.retain(|node, line| known.contains_key(node) || line.state.lock().open);
        }
        let line = lines.entry(to).or_insert_with(|| Arc::new(PeerStream { to, state: Mutex::default() }));
        Arc::clone(line)
    }

    /// Spawns the task that runs the stream, unless it is open already.
    fn ensure_stream(&self, line: &Arc<PeerStream>) {
        if std::mem::replace(&mut line.state.lock().open, true) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let carried = Arc::clone(line);
        let tasks = &self.shared.peers.deps().tasks;
        let token = tasks.shutdown_token();
        let spawned = tasks.spawn("raft stream", async move {
            let cause = tokio::select! {
                biased;
                () = token.cancelled() => "the process is shutting down".to_owned(),
                cause = shared.run_stream(&carried) => cause,
            };
            tracing::debug!(to = carried.to, cause, "raft stream ended");
            carried.fail_pending_calls(&cause);
        });
        if let Err(error) = spawned {
            line.fail_pending_calls(&error.to_string());
        }
    }
}

impl RaftTransportShared {
    /// Runs the stream until it ends and returns the cause of its end.
    async fn run_stream(&self, line: &Arc<PeerStream>) -> String {
        match self.try_run_stream(line).await {
            Ok(()) => "the peer closed the stream".to_owned(),
            Err(status) => status.message,
        }
    }

    async fn try_run_stream(&self, line: &Arc<PeerStream>) -> Result<(), Status> {
        let to = line.to;
        let clock = &self.peers.deps().clock;
        let hello = Hello { header: Some(self.handshake.call_header(to, HELLO_TIMEOUT)) };
        let stream = line.state.lock().ended;
        let outgoing = OutgoingFrames { line: Arc::clone(line), stream, hello: Some(hello) };
        let mut client = self.peers.raft(to).max_decoding_message_size(MAX_FRAME_BYTES);
        let ended = |status: tonic::Status| status_codec::from_grpc(&status);
        let opened = async {
            let mut incoming = client.stream(outgoing).await.map_err(ended)?.into_inner();
            let first = incoming.message().await.map_err(ended)?;
            let header = match first.and_then(|frame| frame.frame) {
                Some(Frame::Hello(hello)) => hello.header,
                _ => None,
            };
            let checked = self.handshake.check_responder(to, header.as_ref());
            checked.map_err(|error| Status::from_error(&error)).map(|()| incoming)
        };
        let late =
            |_| Status::new(ErrorCode::Deadline, format!("peer sent no hello within {HELLO_TIMEOUT:?}"));
        let mut incoming = clock.timeout(HELLO_TIMEOUT, opened).await.map_err(late)??;
        let mut assembler = FrameAssembler::new(StreamDirection::Responses);
        while let Some(frame) = incoming.message().await.map_err(ended)? {
            let bad = |error: FrameError| Status::new(ErrorCode::Invalid, format!("peer sent {error}"));
            if let Some(RaftMessage::Response { id, result }) = assembler.add_frame(frame).map_err(bad)? {
                line.complete_call(id, result.map_err(|why| status_codec::decode_status(&why)));
            }
        }
        Ok(())
    }
}

// === impl PeerStream ===

impl PeerStream {
    fn enqueue_call(
        &self,
        group: u32,
        data: Bytes,
    ) -> Result<(u64, oneshot::Receiver<Result<Bytes, TransportError>>), TransportError> {
        let mut state = self.state.lock();
        if state.waiting.len() >= MAX_PENDING_CALLS {
            return Err(SendQueueError::Calls { limit: MAX_PENDING_CALLS }.into());
        }
        let id = state.next;
        state.lanes.push(RaftMessage::Call { id, group, data })?;
        state.next += 1;
        let (answer, answered) = oneshot::channel();
        state.waiting.insert(id, answer);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        Ok((id, answered))
    }

    fn complete_call(&self, id: u64, result: Result<Bytes, Status>) {
        let waiting = self.state.lock().waiting.remove(&id);
        if let Some(answer) = waiting {
            // A dropped receiver means that the caller stopped waiting.
            let _ = answer.send(result.map_err(|status| TransportError::Refused { to: self.to, status }));
        }
    }

    /// Fails all pending calls after the end of a stream, and discards all unsent messages.
    fn fail_pending_calls(&self, cause: &str) {
        let waiting = {
            let mut state = self.state.lock();
            let waiting = std::mem::take(&mut state.waiting);
            // Call numbers continue, so a delayed response never completes another call.
            *state =
                PeerStreamState { next: state.next, ended: state.ended + 1, ..PeerStreamState::default() };
            waiting
        };
        for answer in waiting.into_values() {
            let _ = answer.send(Err(TransportError::Broken { to: self.to, cause: cause.to_owned() }));
        }
    }
}

/// Outgoing half of a stream: the hello, then calls in the order of their lanes.
struct OutgoingFrames {
    line: Arc<PeerStream>,
    /// Value of `ended` when this stream was opened.
    stream: u64,
    hello: Option<Hello>,
}

impl Stream for OutgoingFrames {
    type Item = RaftFrame;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RaftFrame>> {
        if let Some(hello) = self.hello.take() {
            return Poll::Ready(Some(RaftFrame { frame: Some(Frame::Hello(hello)) }));
        }
        let mut state = self.line.state.lock();
        if state.ended != self.stream {
            return Poll::Ready(None);
        }
        match state.lanes.next() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::stream::StreamExt;

    use super::*;

    fn line() -> Arc<PeerStream> {
        Arc::new(PeerStream { to: 2, state: Mutex::default() })
    }

    #[test]
    fn what_is_left_of_a_stream_takes_nothing_from_the_next() {
        let line = line();
        let outgoing = |stream| OutgoingFrames { line: Arc::clone(&line), stream, hello: None };
        let (mut first, mut second) = (outgoing(0), outgoing(1));
        assert!(first.next().now_or_never().is_none());
        let (_, mut broken) = line.enqueue_call(1, Bytes::new()).unwrap();
        line.fail_pending_calls("cut");
        assert!(broken.try_recv().unwrap().is_err_and(|error| error.code() == ErrorCode::Unavailable));
        let (id, mut answered) = line.enqueue_call(1, Bytes::new()).unwrap();
        assert_eq!(first.next().now_or_never(), Some(None));
        let frame = second.next().now_or_never().flatten().and_then(|frame| frame.frame);
        assert!(matches!(frame, Some(Frame::Call(call)) if call.call_id == id && id == 1));
        line.complete_call(0, Ok(Bytes::from_static(b"late")));
        line.complete_call(id, Ok(Bytes::from_static(b"own")));
        assert_eq!(answered.try_recv(), Ok(Ok(Bytes::from_static(b"own"))));
    }

    #[test]
    fn calls_that_wait_have_a_bound() {
        let line = line();
        let mut outgoing = OutgoingFrames { line: Arc::clone(&line), stream: 0, hello: None };
        let mut waiting = Vec::new();
        for _ in 0..MAX_PENDING_CALLS {
            waiting.push(line.enqueue_call(1, Bytes::new()).unwrap());
            assert!(outgoing.next().now_or_never().is_some());
        }
        let refused = line.enqueue_call(1, Bytes::new()).map(drop).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Exhausted);
        assert!(refused.to_string().starts_with("8192 calls to this node"), "{refused}");
    }
}
