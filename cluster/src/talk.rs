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

mod answering;
mod frames;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use athanor_chassis::{Code, Coded, Status};
use athanor_proto::athanor::internal::v1::frame::Of;
use athanor_proto::athanor::internal::v1::{Frame, Hello};
use bytes::Bytes;
use futures::Stream;
use tokio::sync::oneshot;

pub use answering::{Answering, Hear};
pub use frames::{Assembler, BadFrame, Direction, Lanes, MESSAGE, Message, NoRoom, PART};

use crate::NodeId;
use crate::failure;
use crate::greeting::Introductions;
use crate::peers::Peers;

/// How long a peer may take to say hello.
const HELLO: Duration = Duration::from_secs(3);
/// Bytes of a frame: a part, and what it is wrapped in.
pub(crate) const FRAME: usize = PART + (4 << 10);
/// Calls to one peer that may wait for their answers.
const CALLS: usize = 8192;

/// Calls members of groups on other nodes. Cheap to clone.
#[derive(Clone)]
pub struct Talk {
    shared: Arc<Shared>,
}

struct Shared {
    peers: Peers,
    introductions: Arc<Introductions>,
    lines: Mutex<BTreeMap<NodeId, Arc<Line>>>,
}

/// Why a call was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TalkError {
    /// It was not sent.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
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

impl Coded for TalkError {
    fn code(&self) -> Code {
        match self {
            Self::NoRoom(error) => error.code(),
            Self::Broken { .. } => Code::Unavailable,
            Self::Late { .. } => Code::Deadline,
            Self::Refused { status, .. } => status.code,
        }
    }
}

/// What is between this node and one peer.
struct Line {
    to: NodeId,
    state: Mutex<LineState>,
}

#[derive(Default)]
struct LineState {
    next: u64,
    lanes: Lanes,
    waiting: BTreeMap<u64, oneshot::Sender<Result<Bytes, TalkError>>>,
    /// Whether there is a stream, or one is being opened.
    open: bool,
    /// How many streams have ended: what is left of one must not take what is meant for the next.
    ended: u64,
    /// Of the stream, when it had nothing to send.
    waker: Option<Waker>,
}

/// A call that waits; dropped, its answer is not waited for any more.
struct Waiting<'a> {
    line: &'a Line,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.line.state().waiting.remove(&self.id);
    }
}

// === impl Talk ===

impl Talk {
    /// Talks to these, as who is introduced.
    pub fn new(peers: Peers, introductions: Arc<Introductions>) -> Self {
        Self { shared: Arc::new(Shared { peers, introductions, lines: Mutex::default() }) }
    }

    /// Asks a member of a group on another node, and waits for its answer so long.
    pub async fn call(
        &self,
        to: NodeId,
        group: u32,
        request: Bytes,
        limit: Duration,
    ) -> Result<Bytes, TalkError> {
        let line = self.line(to);
        let (id, answer) = line.enter(group, request)?;
        let _waiting = Waiting { line: &line, id };
        self.open(&line);
        let answer = self.shared.peers.deps().clock.within(limit, answer).await;
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_dropped)) => {
                Err(TalkError::Broken { to, cause: "the process is shutting down".to_owned() })
            }
            Err(_) => Err(TalkError::Late { to, limit }),
        }
    }

    fn line(&self, to: NodeId) -> Arc<Line> {
        let mut lines = self.shared.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if !lines.contains_key(&to) {
            // Lines to nodes that are forgotten, and that nobody uses, go.
            let known = self.shared.peers.members().now();
            lines.retain(|node, line| known.contains_key(node) || line.state().open);
        }
        let line = lines.entry(to).or_insert_with(|| Arc::new(Line { to, state: Mutex::default() }));
        Arc::clone(line)
    }

    /// Sees to it that there is a stream.
    fn open(&self, line: &Arc<Line>) {
        if std::mem::replace(&mut line.state().open, true) {
            return;
        }
        let (shared, carried) = (Arc::clone(&self.shared), Arc::clone(line));
        let tasks = &self.shared.peers.deps().tasks;
        let token = tasks.token();
        let spawned = tasks.spawn("talk to a node", async move {
            let cause = tokio::select! {
                biased;
                () = token.cancelled() => "the process is shutting down".to_owned(),
                cause = shared.carry(&carried) => cause,
            };
            tracing::debug!(to = carried.to, cause, "talk ended");
            carried.fail(&cause);
        });
        if let Err(error) = spawned {
            line.fail(&error.to_string());
        }
    }
}

impl Shared {
    /// Carries messages until the stream ends; says why it did.
    async fn carry(&self, line: &Arc<Line>) -> String {
        match self.try_carry(line).await {
            Ok(()) => "the other side ended the stream".to_owned(),
            Err(status) => status.message,
        }
    }

    async fn try_carry(&self, line: &Arc<Line>) -> Result<(), Status> {
        let (to, clock) = (line.to, &self.peers.deps().clock);
        let hello = Hello { caller: Some(self.introductions.caller(to, HELLO)) };
        let stream = line.state().ended;
        let outgoing = Outgoing { line: Arc::clone(line), stream, hello: Some(hello) };
        let mut client = self.peers.raft(to).max_decoding_message_size(FRAME);
        let ended = |status: tonic::Status| failure::from_grpc(&status);
        let opened = async {
            let mut incoming = client.talk(outgoing).await.map_err(ended)?.into_inner();
            let first = incoming.message().await.map_err(ended)?;
            let caller = match first.and_then(|frame| frame.of) {
                Some(Of::Hello(hello)) => hello.caller,
                _ => None,
            };
            let checked = self.introductions.check_answer(to, caller.as_ref());
            checked.map_err(|stranger| Status::of(&stranger)).map(|()| incoming)
        };
        let late = |_| Status::new(Code::Deadline, format!("it said no hello within {HELLO:?}"));
        let mut incoming = clock.within(HELLO, opened).await.map_err(late)??;
        let mut assembler = Assembler::new(Direction::Answers);
        while let Some(frame) = incoming.message().await.map_err(ended)? {
            let bad = |error: BadFrame| Status::new(Code::Invalid, format!("it sent {error}"));
            if let Some(Message::Answer { id, result }) = assembler.take(frame).map_err(bad)? {
                line.answered(id, result.map_err(|why| failure::unpack(&why)));
            }
        }
        Ok(())
    }
}

// === impl Line ===

impl Line {
    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(
        &self,
        group: u32,
        data: Bytes,
    ) -> Result<(u64, oneshot::Receiver<Result<Bytes, TalkError>>), TalkError> {
        let mut state = self.state();
        if state.waiting.len() >= CALLS {
            return Err(NoRoom::Calls { limit: CALLS }.into());
        }
        let id = state.next;
        state.lanes.push(Message::Call { id, group, data })?;
        state.next += 1;
        let (answer, answered) = oneshot::channel();
        state.waiting.insert(id, answer);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        Ok((id, answered))
    }

    fn answered(&self, id: u64, result: Result<Bytes, Status>) {
        let waiting = self.state().waiting.remove(&id);
        if let Some(answer) = waiting {
            // Who no longer waits does not care.
            let _ = answer.send(result.map_err(|status| TalkError::Refused { to: self.to, status }));
        }
    }

    /// The stream has ended: fails all who wait, and forgets what was not sent.
    fn fail(&self, cause: &str) {
        let waiting = {
            let mut state = self.state();
            let waiting = std::mem::take(&mut state.waiting);
            // Numbers go on: an answer that is late is nobody else's.
            *state = LineState { next: state.next, ended: state.ended + 1, ..LineState::default() };
            waiting
        };
        for answer in waiting.into_values() {
            let _ = answer.send(Err(TalkError::Broken { to: self.to, cause: cause.to_owned() }));
        }
    }
}

/// What this node sends on a stream: hello, then calls as they come.
struct Outgoing {
    line: Arc<Line>,
    /// How many had ended before.
    stream: u64,
    hello: Option<Hello>,
}

impl Stream for Outgoing {
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

    fn line() -> Arc<Line> {
        Arc::new(Line { to: 2, state: Mutex::default() })
    }

    #[test]
    fn what_is_left_of_a_stream_takes_nothing_from_the_next() {
        let line = line();
        let outgoing = |stream| Outgoing { line: Arc::clone(&line), stream, hello: None };
        let (mut first, mut second) = (outgoing(0), outgoing(1));
        assert!(first.next().now_or_never().is_none());
        let (_, mut broken) = line.enter(1, Bytes::new()).unwrap();
        line.fail("cut");
        assert!(broken.try_recv().unwrap().is_err_and(|error| error.code() == Code::Unavailable));
        let (id, mut answered) = line.enter(1, Bytes::new()).unwrap();
        assert_eq!(first.next().now_or_never(), Some(None));
        let frame = second.next().now_or_never().flatten().and_then(|frame| frame.of);
        assert!(matches!(frame, Some(Of::Call(call)) if call.id == id && id == 1));
        line.answered(0, Ok(Bytes::from_static(b"late")));
        line.answered(id, Ok(Bytes::from_static(b"own")));
        assert_eq!(answered.try_recv(), Ok(Ok(Bytes::from_static(b"own"))));
    }

    #[test]
    fn calls_that_wait_have_a_bound() {
        let line = line();
        let mut outgoing = Outgoing { line: Arc::clone(&line), stream: 0, hello: None };
        let mut waiting = Vec::new();
        for _ in 0..CALLS {
            waiting.push(line.enter(1, Bytes::new()).unwrap());
            assert!(outgoing.next().now_or_never().is_some());
        }
        let refused = line.enter(1, Bytes::new()).map(drop).unwrap_err();
        assert_eq!(refused.code(), Code::Exhausted);
        assert!(refused.to_string().starts_with("8192 calls to this node"), "{refused}");
    }
}
