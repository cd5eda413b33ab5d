//! Types of raft, and the runtime that its tasks use.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use athanor_chassis::Random;
use bytes::Bytes;
use openraft::{AsyncRuntime, CommittedLeaderId, EmptyNode, LogId, OptionalSend, TokioRuntime};
use parking_lot::Mutex;

openraft::declare_raft_types!(
    /// Types of one raft group. With `single-term-leader`, term and index identify an entry, as in the log.
    pub(crate) Types:
        D = RaftProposal,
        R = ProposalResult,
        NodeId = u64,
        Node = EmptyNode,
        SnapshotData = Bytes,
        AsyncRuntime = RaftRuntime,
);

pub(crate) type RaftHandle = openraft::Raft<Types>;
pub(crate) type RaftLogId = LogId<u64>;
pub(crate) type RaftEntry = openraft::Entry<Types>;
pub(crate) type RaftMembership = openraft::StoredMembership<u64, EmptyNode>;
pub(crate) type RaftStorageError = openraft::StorageError<u64>;

/// Proposal: bytes that only the state machine interprets.
#[derive(Clone)]
pub(crate) struct RaftProposal(pub(crate) Bytes);

/// Result from the state machine, empty for raft's own entries.
pub(crate) struct ProposalResult(Mutex<Option<Box<dyn Any + Send>>>);

/// Tokio runtime with injected randomness.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RaftRuntime;

/// Random number generator with the interface that raft requires.
#[derive(Debug)]
pub(crate) struct RaftRandom(Random);

static PROCESS_RANDOM: OnceLock<Random> = OnceLock::new();
thread_local!(static THREAD: RefCell<Option<Random>> = const { RefCell::new(None) });

/// Sets the source of raft's random timeouts for this thread. In a simulation that is the only thread. The
/// first call also sets it for all threads without a source.
pub(crate) fn seed_random(random: &Random) {
    THREAD.with_borrow_mut(|own| *own = Some(random.split()));
    PROCESS_RANDOM.get_or_init(|| random.split());
}

/// First term of a group that begins with a snapshot.
pub(super) const FIRST_TERM: u64 = 1;

pub(crate) fn log_id(term: u64, index: u64) -> RaftLogId {
    LogId::new(CommittedLeaderId::new(term, 0), index)
}

/// Jitter of a tick in microseconds, as long as a tick. So members that ticked together drift apart. With
/// less jitter, members of a busy machine start elections together several times in a row.
const TICK_JITTER_MICROS: u64 = 300_000;

// === impl RaftProposal ===

impl fmt::Debug for RaftProposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

// === impl ProposalResult ===

impl ProposalResult {
    pub(crate) fn empty() -> Self {
        Self(Mutex::new(None))
    }

    pub(crate) fn from_value<A: Send + 'static>(answer: A) -> Self {
        Self(Mutex::new(Some(Box::new(answer))))
    }

    pub(crate) fn take<A: 'static>(self) -> Option<A> {
        let answer = self.0.into_inner()?;
        answer.downcast().ok().map(|answer| *answer)
    }
}

impl fmt::Debug for ProposalResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}

// === impl RaftRandom ===

impl rand::RngCore for RaftRandom {
    fn next_u32(&mut self) -> u32 {
        (self.0.next_u64() >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), rand::Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

// === impl RaftRuntime ===

#[expect(clippy::disallowed_methods, reason = "raft names its sleeps by type, so a Clock cannot give them")]
impl AsyncRuntime for RaftRuntime {
    type JoinError = tokio::task::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = tokio::task::JoinHandle<T>;
    type Sleep = tokio::time::Sleep;
    type Instant = openraft::TokioInstant;
    type TimeoutError = tokio::time::error::Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = tokio::time::Timeout<T>;
    type ThreadLocalRng = RaftRandom;
    type OneshotSender<T: OptionalSend> = <TokioRuntime as AsyncRuntime>::OneshotSender<T>;
    type OneshotReceiver<T: OptionalSend> = tokio::sync::oneshot::Receiver<T>;
    type OneshotReceiverError = tokio::sync::oneshot::error::RecvError;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        tokio::time::sleep(duration)
    }

    /// Sleeps slightly longer than requested. Raft's ticks use this sleep, and a member draws its election
    /// timeout only once. Without the jitter, members that started together would start every election
    /// together.
    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        tokio::time::sleep_until(
            deadline + Duration::from_micros(Self::thread_rng().0.next_below(TICK_JITTER_MICROS)),
        )
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        tokio::time::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        tokio::time::timeout_at(deadline, future)
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        error.is_panic()
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        let own = THREAD.with_borrow(Clone::clone);
        RaftRandom(own.unwrap_or_else(|| PROCESS_RANDOM.get_or_init(Random::system).clone()))
    }

    fn oneshot<T: OptionalSend>() -> (Self::OneshotSender<T>, Self::OneshotReceiver<T>) {
        TokioRuntime::oneshot()
    }
}
