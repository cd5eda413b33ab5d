//! Framing of raft messages in parts, so that a small message never waits for the end of a long one.
//!
//! [`SendLanes`] splits messages: small ones go first, long ones one after the other. [`FrameAssembler`]
//! reassembles them, and rejects every frame that `SendLanes` would not send.

use std::collections::VecDeque;

use athanor_chassis::{ByteSize, ErrorCode, ErrorCodeExt};
use athanor_proto::athanor::internal::v1::raft_frame::Frame;
use athanor_proto::athanor::internal::v1::{Continuation, RaftCall, RaftFrame, RaftResponse, RpcStatus};
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
    Response {
        /// Number of the call.
        id: u64,
        /// Encoded response, or the error of the call.
        result: Result<Bytes, RpcStatus>,
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
    #[error("the raft message has {size}, the limit is {}", ByteSize::bytes(MAX_RAFT_MESSAGE_BYTES as u64))]
    TooLarge {
        /// Size of the message.
        size: ByteSize,
    },
    /// Too many calls wait for their responses.
    #[error("{limit} calls to this node are pending, which is the limit; retry")]
    Calls {
        /// Upper bound of pending calls.
        limit: usize,
    },
    /// The queue of the peer is full.
    #[error("{waiting} are queued for this node, the queue is full; retry")]
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
    Responses,
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
    #[error("a frame of unknown kind")]
    Unknown,
    #[error("a second hello")]
    Hello,
    #[error("a response on a stream of calls, or a call on a stream of responses")]
    Direction,
    #[error("a part of {0} bytes, the limit is {MAX_PART_BYTES}")]
    Part(usize),
    #[error("a message of {0} bytes, the limit is {MAX_RAFT_MESSAGE_BYTES}")]
    Message(u64),
    #[error("a long message before the end of the previous one")]
    Overlap,
    #[error("a continuation without a message, beyond its end, or without data")]
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
            Self::Call { id, .. } | Self::Response { id, .. } => *id,
        }
    }

    fn data(&self) -> Option<&Bytes> {
        match self {
            Self::Call { data, .. } | Self::Response { result: Ok(data), .. } => Some(data),
            Self::Response { result: Err(_), .. } => None,
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Response { result: Err(error), .. } => error.message.len(),
            _ => self.data().map_or(0, Bytes::len),
        }
    }

    /// Returns the first frame, with the data up to `end`.
    fn first_frame(&self, end: usize) -> RaftFrame {
        let part = || self.data().map(|data| data.slice(..end)).unwrap_or_default();
        // The size limit of a message keeps the rest within `u32`.
        let remaining_bytes = self.data().map_or(0, |data| data.len() - end) as u32;
        let frame = match self {
            Self::Call { id, group, .. } => {
                Frame::Call(RaftCall { call_id: *id, group: *group, data: part(), remaining_bytes })
            }
            Self::Response { id, result } => Frame::Response(RaftResponse {
                call_id: *id,
                data: part(),
                remaining_bytes,
                error: result.clone().err(),
            }),
        };
        RaftFrame { frame: Some(frame) }
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

    fn next_part(&mut self) -> Option<RaftFrame> {
        let message = self.long.front()?;
        let total = message.size();
        let start = self.sent.unwrap_or_default();
        let end = (start + MAX_PART_BYTES).min(total);
        let frame = match self.sent {
            None => message.first_frame(end),
            Some(_) => {
                let data = message.data().map(|data| data.slice(start..end)).unwrap_or_default();
                let is_response = matches!(message, RaftMessage::Response { .. });
                let next = Continuation { call_id: message.id(), data, is_response };
                RaftFrame { frame: Some(Frame::Continuation(next)) }
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
    type Item = RaftFrame;

    fn next(&mut self) -> Option<RaftFrame> {
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
    pub fn add_frame(&mut self, frame: RaftFrame) -> Result<Option<RaftMessage>, FrameError> {
        match (frame.frame, self.direction) {
            (None, _) => Err(FrameError::Unknown),
            (Some(Frame::Hello(_)), _) => Err(FrameError::Hello),
            (
                Some(Frame::Call(RaftCall { call_id: id, group, data, remaining_bytes })),
                StreamDirection::Calls,
            ) => {
                let whole = self.begin_message(id, group, data, remaining_bytes)?;
                Ok(whole.map(|data| RaftMessage::Call { id, group, data }))
            }
            (Some(Frame::Response(response)), StreamDirection::Responses) => {
                let RaftResponse { call_id: id, data, remaining_bytes, error } = response;
                if let Some(error) = error {
                    return Ok(Some(RaftMessage::Response { id, result: Err(error) }));
                }
                let whole = self.begin_message(id, 0, data, remaining_bytes)?;
                Ok(whole.map(|data| RaftMessage::Response { id, result: Ok(data) }))
            }
            (Some(Frame::Continuation(next)), direction)
                if next.is_response == (direction == StreamDirection::Responses) =>
            {
                self.continue_message(next.call_id, &next.data)
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
            StreamDirection::Responses => RaftMessage::Response { id, result: Ok(data.freeze()) },
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

    fn response(id: u64, size: usize) -> RaftMessage {
        RaftMessage::Response { id, result: Ok(vec![id as u8; size].into()) }
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
                _ => response(id as u64, *size),
            };
            let sent: Vec<_> = sizes.iter().enumerate().map(make).collect();
            sent.iter().for_each(|message| lanes.push(message.clone()).unwrap());
            let direction = if round % 2 == 0 { StreamDirection::Calls } else { StreamDirection::Responses };
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
        let error = RpcStatus { message: "no".to_owned(), ..RpcStatus::default() };
        lanes.push(RaftMessage::Response { id: 3, result: Err(error) }).unwrap();
        let next = |lanes: &mut SendLanes| lanes.next().and_then(|frame| frame.frame).unwrap();
        assert!(matches!(next(&mut lanes), Frame::Call(RaftCall { call_id: 2, remaining_bytes: 0, .. })));
        assert!(matches!(next(&mut lanes), Frame::Response(RaftResponse { call_id: 3, .. })));
        assert!(matches!(next(&mut lanes), Frame::Continuation(Continuation { call_id: 1, .. })));
        let mut small = 0;
        loop {
            lanes.push(call(4, 10)).unwrap();
            match next(&mut lanes) {
                Frame::Continuation(_) => break,
                _ => small += 1,
            }
        }
        assert_eq!(small, MAX_CONSECUTIVE_SMALL);
    }

    #[test]
    fn what_waits_has_a_bound() {
        let mut lanes = SendLanes::default();
        let large = lanes.push(call(1, MAX_RAFT_MESSAGE_BYTES + 1)).unwrap_err();
        assert_eq!(large.to_string(), "the raft message has 16777217B, the limit is 16MiB");
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
        let frame = |frame| RaftFrame { frame: Some(frame) };
        let begin = |remaining_bytes| {
            frame(Frame::Call(RaftCall { call_id: 1, group: 0, data: vec![0; 9].into(), remaining_bytes }))
        };
        let more = |call_id, size| {
            let data = vec![0; size].into();
            frame(Frame::Continuation(Continuation { call_id, data, is_response: false }))
        };
        let refused = |frames: Vec<RaftFrame>| {
            let mut assembler = FrameAssembler::new(StreamDirection::Calls);
            frames.into_iter().find_map(|frame| assembler.add_frame(frame).err())
        };
        assert_eq!(refused(vec![begin(20), more(1, 10), more(1, 10)]), None);
        assert_eq!(refused(vec![RaftFrame { frame: None }]), Some(FrameError::Unknown));
        assert_eq!(refused(vec![frame(Frame::Hello(Default::default()))]), Some(FrameError::Hello));
        assert_eq!(refused(vec![frame(Frame::Response(Default::default()))]), Some(FrameError::Direction));
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
        let response =
            frame(Frame::Continuation(Continuation { call_id: 1, data: Bytes::new(), is_response: true }));
        assert_eq!(refused(vec![begin(20), response]), Some(FrameError::Direction));
    }
}
