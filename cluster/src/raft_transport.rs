//! Messages of groups between nodes: all groups share one stream to each peer.
//!
//! ```text
//!  call ─► Line ─► Lanes ─► parts ═══ stream ═══► Assembler ─► Hear
//!            ▲                                                  │
//!            └──── Assembler ◄═══════════════════ Lanes ◄───────┘      Answering, at the other side
//! ```
//! A call is answered by its own answer, or fails: when its limit is up, when there is no room for it, or when the
//! stream ends, which fails all that wait on it. A stream is opened by the first call, and by the next one after it
//! has ended. Whoever no longer waits for an answer does not stop the message.

mod frames;
mod server;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use athanor_chassis::{ErrorCode, ErrorCodeExt, Status};
use athanor_proto::athanor::internal::v1::frame::Of;
use athanor_proto::athanor::internal::v1::{Frame, Hello};
use bytes::Bytes;
use futures::Stream;
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

/// How long a peer may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of a frame: a part, and what it is wrapped in.
pub(crate) const MAX_FRAME_BYTES: usize = MAX_PART_BYTES + (4 << 10);
/// Calls to one peer that may wait for their answers.
const MAX_PENDING_CALLS: usize = 8192;

/// Calls members of groups on other nodes. Cheap to clone.
#[derive(Clone)]
pub struct RaftTransport {
    shared: Arc<RaftTransportShared>,
}

struct RaftTransportShared {
    peers: PeerPool,
    introductions: Arc<PeerHandshake>,
    lines: Mutex<BTreeMap<NodeId, Arc<PeerStream>>>,
}

/// Why a call was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// It was not sent.
    #[error(transparent)]
    NoRoom(#[from] SendQueueError),
    /// It may have arrived, or not.
    #[error("node {to} was not reached: {cause}")]
    Broken {
        /// Who was called.
        to: NodeId,
        /// What went wrong.
        cause: String,
    },
    /// It may have arrived, or not.
    #[error("node {to} did not answer within {limit:?}")]
    Late {
        /// Who was called.
        to: NodeId,
        /// How long that was waited for.
        limit: Duration,
    },
    /// It arrived, and was refused.
    #[error("node {to} refused: {status}")]
    Refused {
        /// Who was called.
        to: NodeId,
        /// What it said.
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

/// What is between this node and one peer.
struct PeerStream {
    to: NodeId,
    state: Mutex<PeerStreamState>,
}

#[derive(Default)]
struct PeerStreamState {
    next: u64,
    lanes: SendLanes,
    waiting: BTreeMap<u64, oneshot::Sender<Result<Bytes, TransportError>>>,
    /// Whether there is a stream, or one is being opened.
    open: bool,
    /// How many streams have ended: what is left of one must not take what is meant for the next.
    ended: u64,
    /// Of the stream, when it had nothing to send.
    waker: Option<Waker>,
}

/// A call that waits; dropped, its answer is not waited for any more.
struct PendingCall<'a> {
    line: &'a PeerStream,
    id: u64,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        self.line.state().waiting.remove(&self.id);
    }
}

// === impl Talk ===

impl RaftTransport {
    /// Talks to these, as who is introduced.
    pub fn new(peers: PeerPool, introductions: Arc<PeerHandshake>) -> Self {
        Self { shared: Arc::new(RaftTransportShared { peers, introductions, lines: Mutex::default() }) }
    }

    /// Asks a member of a group on another node, and waits for its answer so long.
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
        let mut lines = self.shared.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if !lines.contains_key(&to) {
            // Lines to nodes that are forgotten, and that nobody uses, go.
            let known = self.shared.peers.members().current();
            lines.retain(|node, line| known.contains_key(node) || line.state().open);
        }
        let line = lines.entry(to).or_insert_with(|| Arc::new(PeerStream { to, state: Mutex::default() }));
        Arc::clone(line)
    }

    /// Sees to it that there is a stream.
    fn ensure_stream(&self, line: &Arc<PeerStream>) {
        if std::mem::replace(&mut line.state().open, true) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let carried = Arc::clone(line);
        let tasks = &self.shared.peers.deps().tasks;
        let token = tasks.shutdown_token();
        let spawned = tasks.spawn("talk to a node", async move {
            let cause = tokio::select! {
                biased;
                () = token.cancelled() => "the process is shutting down".to_owned(),
                cause = shared.run_stream(&carried) => cause,
            };
            tracing::debug!(to = carried.to, cause, "talk ended");
            carried.fail_pending_calls(&cause);
        });
        if let Err(error) = spawned {
            line.fail_pending_calls(&error.to_string());
        }
    }
}

impl RaftTransportShared {
    /// Carries messages until the stream ends; says why it did.
    async fn run_stream(&self, line: &Arc<PeerStream>) -> String {
        match self.try_run_stream(line).await {
            Ok(()) => "the other side ended the stream".to_owned(),
            Err(status) => status.message,
        }
    }

    async fn try_run_stream(&self, line: &Arc<PeerStream>) -> Result<(), Status> {
        let to = line.to;
        let clock = &self.peers.deps().clock;
        let hello = Hello { caller: Some(self.introductions.caller(to, HELLO_TIMEOUT)) };
        let stream = line.state().ended;
        let outgoing = OutgoingFrames { line: Arc::clone(line), stream, hello: Some(hello) };
        let mut client = self.peers.raft(to).max_decoding_message_size(MAX_FRAME_BYTES);
        let ended = |status: tonic::Status| status_codec::from_grpc(&status);
        let opened = async {
            let mut incoming = client.talk(outgoing).await.map_err(ended)?.into_inner();
            let first = incoming.message().await.map_err(ended)?;
            let caller = match first.and_then(|frame| frame.of) {
                Some(Of::Hello(hello)) => hello.caller,
                _ => None,
            };
            let checked = self.introductions.check_responder(to, caller.as_ref());
            checked.map_err(|stranger| Status::from_error(&stranger)).map(|()| incoming)
        };
        let late = |_| Status::new(ErrorCode::Deadline, format!("it said no hello within {HELLO_TIMEOUT:?}"));
        let mut incoming = clock.timeout(HELLO_TIMEOUT, opened).await.map_err(late)??;
        let mut assembler = FrameAssembler::new(StreamDirection::Answers);
        while let Some(frame) = incoming.message().await.map_err(ended)? {
            let bad = |error: FrameError| Status::new(ErrorCode::Invalid, format!("it sent {error}"));
            if let Some(RaftMessage::Answer { id, result }) = assembler.add_frame(frame).map_err(bad)? {
                line.complete_call(id, result.map_err(|why| status_codec::decode_status(&why)));
            }
        }
        Ok(())
    }
}

// === impl Line ===

impl PeerStream {
    fn state(&self) -> MutexGuard<'_, PeerStreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enqueue_call(
        &self,
        group: u32,
        data: Bytes,
    ) -> Result<(u64, oneshot::Receiver<Result<Bytes, TransportError>>), TransportError> {
        let mut state = self.state();
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
        let waiting = self.state().waiting.remove(&id);
        if let Some(answer) = waiting {
            // Who no longer waits does not care.
            let _ = answer.send(result.map_err(|status| TransportError::Refused { to: self.to, status }));
        }
    }

    /// The stream has ended: fails all who wait, and forgets what was not sent.
    fn fail_pending_calls(&self, cause: &str) {
        let waiting = {
            let mut state = self.state();
            let waiting = std::mem::take(&mut state.waiting);
            // Numbers go on: an answer that is late is nobody else's.
            *state =
                PeerStreamState { next: state.next, ended: state.ended + 1, ..PeerStreamState::default() };
            waiting
        };
        for answer in waiting.into_values() {
            let _ = answer.send(Err(TransportError::Broken { to: self.to, cause: cause.to_owned() }));
        }
    }
}

/// What this node sends on a stream: hello, then calls as they come.
struct OutgoingFrames {
    line: Arc<PeerStream>,
    /// How many had ended before.
    stream: u64,
    hello: Option<Hello>,
}

impl Stream for OutgoingFrames {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Frame>> {
        if let Some(hello) = self.hello.take() {
            return Poll::Ready(Some(Frame { of: Some(Of::Hello(hello)) }));
        }
        let mut state = self.line.state();
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
        let frame = second.next().now_or_never().flatten().and_then(|frame| frame.of);
        assert!(matches!(frame, Some(Of::Call(call)) if call.id == id && id == 1));
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
