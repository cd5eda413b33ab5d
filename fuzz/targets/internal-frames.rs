//! Frames as another node may send them: refused, or messages that come out the same when sent again.
//! Each frame is two bytes of length, the lower first, and so many bytes.
#![no_main]

use athanor_chassis::ErrorCode;
use athanor_cluster::handshake::{NodeIdentity, PeerHandshake};
use athanor_cluster::raft_transport::{
    FrameAssembler, MAX_RAFT_MESSAGE_BYTES, RaftMessage, SendLanes, StreamDirection,
};
use athanor_cluster::status_codec;
use athanor_proto::athanor::internal::v1::RaftFrame;
use athanor_proto::athanor::internal::v1::raft_frame::Frame;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prost::Message as _;

fuzz_target!(|bytes: &[u8]| {
    let mut frames = Vec::new();
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let (frame, after) = after.split_at(usize::from(u16::from_le_bytes(*length)).min(after.len()));
        frames.extend(RaftFrame::decode(Bytes::copy_from_slice(frame)));
        rest = after;
    }
    let handshake = PeerHandshake::new(NodeIdentity { cluster: 7, node: 1, boot: 1 });
    for frame in &frames {
        if let Some(Frame::Hello(hello)) = &frame.frame {
            let _ = handshake.check_caller(hello.header.as_ref());
        }
    }
    for direction in [StreamDirection::Calls, StreamDirection::Responses] {
        let mut assembler = FrameAssembler::new(direction);
        // The first bad frame ends a stream.
        let taken = frames.iter().map_while(|frame| assembler.add_frame(frame.clone()).ok());
        taken.flatten().for_each(|message| sent_again(direction, message));
    }
});

fn sent_again(direction: StreamDirection, message: RaftMessage) {
    match &message {
        RaftMessage::Call { data, .. } | RaftMessage::Response { result: Ok(data), .. } => {
            assert!(data.len() <= MAX_RAFT_MESSAGE_BYTES)
        }
        RaftMessage::Response { result: Err(refused), .. } => {
            let status = status_codec::decode_status(refused);
            assert!(ErrorCode::from_name(&refused.code).is_none_or(|code| code == status.code));
        }
    }
    let (mut lanes, mut assembler) = (SendLanes::default(), FrameAssembler::new(direction));
    lanes.push(message.clone()).expect("what came fits");
    let mut came = lanes.filter_map(|frame| assembler.add_frame(frame).expect("what is sent is taken"));
    assert_eq!((came.next(), came.next()), (Some(message), None));
}
