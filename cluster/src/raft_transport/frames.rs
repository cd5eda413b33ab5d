//! Framing of raft messages in parts, so that a small message never waits for the end of a long one.
//!
//! [`SendLanes`] splits messages: small ones go first, long ones one after the other. [`FrameAssembler`]
//! reassembles them, and rejects every frame that `SendLanes` would not send.

use std::collections::VecDeque;

use athanor_chassis::{ByteSize, ErrorCode, ErrorCodeExt};
use athanor_proto::athanor::internal::v1::frame::Of;
use athanor_proto::athanor::internal::v1::{Answer, Call, Failure, Frame, More};
use bytes::{Bytes, BytesMut};

/// Upper bound in bytes of one message.
pub const MAX_RAFT_MESSAGE_BYTES: usize = 16 << 20;
/// Upper bound in bytes of one part of a message.
pub const MAX_PART_BYTES: usize = 256 << 10;
/// Size up to which a message overtakes parts of long ones.
const SMALL_MESSAGE_BYTES: usize = 4 << 10;
/// Upper bounds in bytes of the queues: of small messages, and of long ones.
const SMALL_QUEUE_BYTES: usize = 1 << 20;
const LONG_QUEUE_BYTES: usize = 32 << 20;
/// Upper bound of messages in each queue.
const MAX_QUEUED_MESSAGES: usize = 4096;
/// Upper bound of small messages in a row while a long one waits.
const MAX_CONSECUTIVE_SMALL: u32 = 64;

/// Message of the raft transport.
#[derive(Clone, Debug, PartialEq)]
pub enum RaftMessage {
    /// Call of a raft group member.
    Call {
        /// Number that matches the response to its call.
        id: u64,
        /// Raft group that is called.
        group: u32,
        /// Encoded request of the group.
        data: Bytes,
    },
    /// Response to a call.
    Answer {
        /// Number of the call.
        id: u64,
        /// Encoded response, or the failure of the call.
        result: Result<Bytes, Failure>,
    },
}

/// Send queues of one peer, for small and for long messages.
#[derive(Debug, Default)]
pub struct SendLanes {
    small: VecDeque<RaftMessage>,
    small_bytes: usize,
    long: VecDeque<RaftMessage>,
    long_bytes: usize,
    /// Sent bytes of the first long message. None if it was not begun.
    sent: Option<usize>,
    in_a_row: u32,
}

/// Rejection of a message that exceeds a queue bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendQueueError {
    /// The message exceeds the size limit, so a retry fails too.
    #[error("a message of {size}, the limit is {}", ByteSize::bytes(MAX_RAFT_MESSAGE_BYTES as u64))]
    TooLarge {
        /// Size of the message.
        size: ByteSize,
    },
    /// Too many calls wait for their responses.
    #[error("{limit} calls to this node wait for their answers already; try again")]
    Calls {
        /// Upper bound of pending calls.
        limit: usize,
    },
    /// The queue of the peer is full.
    #[error("{waiting} wait to be sent to this node already; try again")]
    Busy {
        /// Bytes in the queue.
        waiting: ByteSize,
    },
}

/// Direction of a stream, which determines the kind of its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamDirection {
    /// Calls, sent by the node that opened the stream.
    Calls,
    /// Responses, sent by the other node.
    Answers,
}

/// Reassembles the messages of one direction of a stream.
#[derive(Debug)]
pub struct FrameAssembler {
    direction: StreamDirection,
    begun: Option<PartialMessage>,
}

#[derive(Debug)]
struct PartialMessage {
    id: u64,
    group: u32,
    data: BytesMut,
    left: usize,
}

/// Rejection of a frame that violates the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says what it is by its message")]
pub enum FrameError {
    #[error("a frame that says nothing, or what this version does not know")]
    Unknown,
    #[error("a second hello")]
    Hello,
    #[error("an answer where calls are, or a call where answers are")]
    Direction,
    #[error("a part of {0} bytes, the limit is {MAX_PART_BYTES}")]
    Part(usize),
    #[error("a message of {0} bytes, the limit is {MAX_RAFT_MESSAGE_BYTES}")]
    Message(u64),
    #[error("a long message before the end of the one before")]
    Overlap,
    #[error("a part of a message that was not begun, or beyond its end, or without a byte")]
    Stray,
}

impl ErrorCodeExt for SendQueueError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::TooLarge { .. } => ErrorCode::TooLarge,
            Self::Calls { .. } | Self::Busy { .. } => ErrorCode::Exhausted,
        }
    }
}

// === impl RaftMessage ===

impl RaftMessage {
    fn id(&self) -> u64 {
        match self {
            Self::Call { id, .. } | Self::Answer { id, .. } => *id,
        }
    }

    fn data(&self) -> Option<&Bytes> {
        match self {
            Self::Call { data, .. } | Self::Answer { result: Ok(data), .. } => Some(data),
            Self::Answer { result: Err(_), .. } => None,
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Answer { result: Err(failure), .. } => failure.message.len(),
            _ => self.data().map_or(0, Bytes::len),
        }
    }

    /// Returns the first frame, with the data up to `end`.
    fn first_frame(&self, end: usize) -> Frame {
        let part = || self.data().map(|data| data.slice(..end)).unwrap_or_default();
        // The size limit of a message keeps the rest within `u32`.
        let left = self.data().map_or(0, |data| data.len() - end) as u32;
        let of = match self {
            Self::Call { id, group, .. } => Of::Call(Call { id: *id, group: *group, data: part(), left }),
            Self::Answer { id, result } => {
                Of::Answer(Answer { id: *id, data: part(), left, failure: result.clone().err() })
            }
        };
        Frame { of: Some(of) }
    }
}

// === impl SendLanes ===

impl SendLanes {
    /// Queues a message, or rejects it if its queue is full.
    pub fn push(&mut self, message: RaftMessage) -> Result<(), SendQueueError> {
        let size = message.size();
        if size > MAX_RAFT_MESSAGE_BYTES {
            return Err(SendQueueError::TooLarge { size: ByteSize::bytes(size as u64) });
        }
        let small = size <= SMALL_MESSAGE_BYTES;
        let (lane, bytes, room) = if small {
            (&mut self.small, &mut self.small_bytes, SMALL_QUEUE_BYTES)
        } else {
            (&mut self.long, &mut self.long_bytes, LONG_QUEUE_BYTES)
        };
        if *bytes + size > room || lane.len() >= MAX_QUEUED_MESSAGES {
            return Err(SendQueueError::Busy { waiting: ByteSize::bytes(*bytes as u64) });
        }
        *bytes += size;
        lane.push_back(message);
        Ok(())
    }

    fn next_part(&mut self) -> Option<Frame> {
        let message = self.long.front()?;
        let total = message.size();
        let start = self.sent.unwrap_or_default();
        let end = (start + MAX_PART_BYTES).min(total);
        let frame = match self.sent {
            None => message.first_frame(end),
            Some(_) => {
                let data = message.data().map(|data| data.slice(start..end)).unwrap_or_default();
                let answer = matches!(message, RaftMessage::Answer { .. });
                Frame { of: Some(Of::More(More { id: message.id(), data, answer })) }
            }
        };
        if end == total {
            self.long.pop_front();
            self.long_bytes -= total;
            self.sent = None;
        } else {
            self.sent = Some(end);
        }
        Some(frame)
    }
}

/// Yields frames in the order to send them. After `None`, later calls may yield more.
impl Iterator for SendLanes {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        if (self.in_a_row < MAX_CONSECUTIVE_SMALL || self.long.is_empty())
            && let Some(message) = self.small.pop_front()
        {
            self.in_a_row += u32::from(!self.long.is_empty());
            self.small_bytes -= message.size();
            return Some(message.first_frame(message.data().map_or(0, Bytes::len)));
        }
        self.in_a_row = 0;
        self.next_part()
    }
}

// === impl FrameAssembler ===

impl FrameAssembler {
    /// Creates an assembler for one direction of a new stream.
    pub fn new(direction: StreamDirection) -> Self {
        Self { direction, begun: None }
    }

    /// Adds the next frame. Returns a message when its last part is added.
    pub fn add_frame(&mut self, frame: Frame) -> Result<Option<RaftMessage>, FrameError> {
        match (frame.of, self.direction) {
            (None, _) => Err(FrameError::Unknown),
            (Some(Of::Hello(_)), _) => Err(FrameError::Hello),
            (Some(Of::Call(call)), StreamDirection::Calls) => {
                let whole = self.begin_message(call.id, call.group, call.data, call.left)?;
                Ok(whole.map(|data| RaftMessage::Call { id: call.id, group: call.group, data }))
            }
            (Some(Of::Answer(Answer { id, failure: Some(failure), .. })), StreamDirection::Answers) => {
                Ok(Some(RaftMessage::Answer { id, result: Err(failure) }))
            }
            (Some(Of::Answer(answer)), StreamDirection::Answers) => {
                let whole = self.begin_message(answer.id, 0, answer.data, answer.left)?;
                Ok(whole.map(|data| RaftMessage::Answer { id: answer.id, result: Ok(data) }))
            }
            (Some(Of::More(more)), direction) if more.answer == (direction == StreamDirection::Answers) => {
                self.continue_message(more.id, &more.data)
            }
            (Some(_), _) => Err(FrameError::Direction),
        }
    }

    /// Begins a message with its first part. Returns the data if it is complete.
    fn begin_message(
        &mut self,
        id: u64,
        group: u32,
        data: Bytes,
        left: u32,
    ) -> Result<Option<Bytes>, FrameError> {
        if data.len() > MAX_PART_BYTES {
            return Err(FrameError::Part(data.len()));
        }
        if left == 0 {
            return Ok(Some(data));
        }
        let total = data.len() as u64 + u64::from(left);
        if total > MAX_RAFT_MESSAGE_BYTES as u64 {
            return Err(FrameError::Message(total));
        }
        if self.begun.is_some() {
            return Err(FrameError::Overlap);
        }
        // The claimed size is not reserved before the data arrives.
        let mut begun = PartialMessage {
            id,
            group,
            data: BytesMut::with_capacity(2 * MAX_PART_BYTES),
            left: left as usize,
        };
        begun.data.extend_from_slice(&data);
        self.begun = Some(begun);
        Ok(None)
    }

    fn continue_message(&mut self, id: u64, data: &Bytes) -> Result<Option<RaftMessage>, FrameError> {
        if data.len() > MAX_PART_BYTES {
            return Err(FrameError::Part(data.len()));
        }
        let fits =
            |begun: &&mut PartialMessage| begun.id == id && !data.is_empty() && data.len() <= begun.left;
        let begun = self.begun.as_mut().filter(fits).ok_or(FrameError::Stray)?;
        begun.data.extend_from_slice(data);
        begun.left -= data.len();
        if begun.left > 0 {
            return Ok(None);
        }
        let whole = self.begun.take();
        Ok(whole.map(|PartialMessage { id, group, data, .. }| match self.direction {
            StreamDirection::Calls => RaftMessage::Call { id, group, data: data.freeze() },
            StreamDirection::Answers => RaftMessage::Answer { id, result: Ok(data.freeze()) },
        }))
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Random;

    use super::*;

    fn call(id: u64, size: usize) -> RaftMessage {
        RaftMessage::Call { id, group: 7, data: vec![id as u8; size].into() }
    }

    fn answer(id: u64, size: usize) -> RaftMessage {
        RaftMessage::Answer { id, result: Ok(vec![id as u8; size].into()) }
    }

    fn all(lanes: &mut SendLanes, direction: StreamDirection) -> Vec<RaftMessage> {
        let mut assembler = FrameAssembler::new(direction);
        lanes.by_ref().filter_map(|frame| assembler.add_frame(frame).unwrap()).collect()
    }

    #[test]
    fn messages_arrive_whole_and_once_whatever_their_sizes() {
        let random = Random::from_seed(1);
        for round in 0..50 {
            let mut lanes = SendLanes::default();
            let edges = [
                0,
                1,
                SMALL_MESSAGE_BYTES,
                SMALL_MESSAGE_BYTES + 1,
                MAX_PART_BYTES - 1,
                MAX_PART_BYTES,
                MAX_PART_BYTES + 1,
                2 * MAX_PART_BYTES,
                5 * MAX_PART_BYTES + 3,
            ];
            let sizes: Vec<_> =
                (0..20).map(|_| edges[random.next_below(edges.len() as u64) as usize]).collect();
            let make = |(id, size): (usize, &usize)| match round % 2 {
                0 => call(id as u64, *size),
                _ => answer(id as u64, *size),
            };
            let sent: Vec<_> = sizes.iter().enumerate().map(make).collect();
            sent.iter().for_each(|message| lanes.push(message.clone()).unwrap());
            let direction = if round % 2 == 0 { StreamDirection::Calls } else { StreamDirection::Answers };
            let mut came = all(&mut lanes, direction);
            came.sort_by_key(RaftMessage::id);
            assert!(came == sent);
            assert_eq!((lanes.small_bytes, lanes.long_bytes), (0, 0));
        }
    }

    #[test]
    fn small_messages_overtake_parts_and_never_for_ever() {
        let mut lanes = SendLanes::default();
        lanes.push(call(1, MAX_RAFT_MESSAGE_BYTES)).unwrap();
        assert!(lanes.next().is_some());
        lanes.push(call(2, 10)).unwrap();
        let failure = Failure { message: "no".to_owned(), ..Failure::default() };
        lanes.push(RaftMessage::Answer { id: 3, result: Err(failure) }).unwrap();
        let next = |lanes: &mut SendLanes| lanes.next().and_then(|frame| frame.of).unwrap();
        assert!(matches!(next(&mut lanes), Of::Call(Call { id: 2, left: 0, .. })));
        assert!(matches!(next(&mut lanes), Of::Answer(Answer { id: 3, .. })));
        assert!(matches!(next(&mut lanes), Of::More(More { id: 1, .. })));
        let mut small = 0;
        loop {
            lanes.push(call(4, 10)).unwrap();
            match next(&mut lanes) {
                Of::More(_) => break,
                _ => small += 1,
            }
        }
        assert_eq!(small, MAX_CONSECUTIVE_SMALL);
    }

    #[test]
    fn what_waits_has_a_bound() {
        let mut lanes = SendLanes::default();
        let large = lanes.push(call(1, MAX_RAFT_MESSAGE_BYTES + 1)).unwrap_err();
        assert_eq!(large.to_string(), "a message of 16777217B, the limit is 16MiB");
        lanes.push(call(1, MAX_RAFT_MESSAGE_BYTES)).unwrap();
        lanes.push(call(2, MAX_RAFT_MESSAGE_BYTES)).unwrap();
        assert_eq!(lanes.push(call(3, MAX_PART_BYTES)).unwrap_err().code(), ErrorCode::Exhausted);
        (0..MAX_QUEUED_MESSAGES as u64).for_each(|id| lanes.push(call(id, 0)).unwrap());
        assert!(lanes.push(call(3, 0)).is_err());
        while lanes.next().is_some() {}
        (0..256).for_each(|id| lanes.push(call(id, SMALL_MESSAGE_BYTES)).unwrap());
        assert!(lanes.push(call(3, 1)).is_err());
    }

    #[test]
    fn what_nobody_would_send_is_refused() {
        let frame = |of| Frame { of: Some(of) };
        let begin = |left| frame(Of::Call(Call { id: 1, group: 0, data: vec![0; 9].into(), left }));
        let more = |id, size| frame(Of::More(More { id, data: vec![0; size].into(), answer: false }));
        let refused = |frames: Vec<Frame>| {
            let mut assembler = FrameAssembler::new(StreamDirection::Calls);
            frames.into_iter().find_map(|frame| assembler.add_frame(frame).err())
        };
        assert_eq!(refused(vec![begin(20), more(1, 10), more(1, 10)]), None);
        assert_eq!(refused(vec![Frame { of: None }]), Some(FrameError::Unknown));
        assert_eq!(refused(vec![frame(Of::Hello(Default::default()))]), Some(FrameError::Hello));
        assert_eq!(refused(vec![frame(Of::Answer(Default::default()))]), Some(FrameError::Direction));
        assert_eq!(
            refused(vec![begin(MAX_RAFT_MESSAGE_BYTES as u32)]),
            Some(FrameError::Message(MAX_RAFT_MESSAGE_BYTES as u64 + 9))
        );
        assert_eq!(refused(vec![begin(20), begin(20)]), Some(FrameError::Overlap));
        for stray in [vec![more(1, 1)], vec![begin(20), more(2, 1)], vec![begin(20), more(1, 21)]] {
            assert_eq!(refused(stray), Some(FrameError::Stray));
        }
        assert_eq!(refused(vec![begin(20), more(1, 0)]), Some(FrameError::Stray));
        assert_eq!(refused(vec![more(1, MAX_PART_BYTES + 1)]), Some(FrameError::Part(MAX_PART_BYTES + 1)));
        let answers = frame(Of::More(More { id: 1, data: Bytes::new(), answer: true }));
        assert_eq!(refused(vec![begin(20), answers]), Some(FrameError::Direction));
    }
}
