//! Encoding of error statuses between nodes.

use std::time::Duration;

use athanor_chassis::{ErrorCode, Status};
use athanor_proto::athanor::internal::v1::RpcStatus;
use tonic::metadata::MetadataValue;

/// Upper bound in bytes of an error message on the wire.
const MAX_STATUS_MESSAGE_BYTES: usize = 2048;
/// gRPC metadata key that marks a computation that panicked.
const PANICKED_METADATA_KEY: &str = "athanor-panicked";

/// Encodes a status for a message. `leader` is the node that can serve the request, if known.
pub fn encode_status(status: &Status, leader: Option<u64>) -> RpcStatus {
    let retry_after = status.retry_after.unwrap_or_default().as_millis();
    RpcStatus {
        code: status.code.name().to_owned(),
        message: truncate_message(&status.message),
        retry_after_ms: u64::try_from(retry_after).unwrap_or(u64::MAX),
        leader_node_id: leader.unwrap_or_default(),
        panicked: status.panicked,
    }
}

/// Decodes a status from a message. An unknown code of a newer version becomes [`ErrorCode::Internal`].
pub fn decode_status(error: &RpcStatus) -> Status {
    let code = ErrorCode::from_name(&error.code).unwrap_or(ErrorCode::Internal);
    let status = Status { panicked: error.panicked, ..Status::new(code, error.message.clone()) };
    match error.retry_after_ms {
        0 => status,
        wait => status.with_retry_after(Duration::from_millis(wait)),
    }
}

/// Encodes a status as the end of a gRPC call.
pub fn to_grpc(status: &Status) -> tonic::Status {
    let mut end = tonic::Status::new(
        tonic::Code::from_i32(status.code.grpc_status()),
        truncate_message(&status.message),
    );
    if status.panicked {
        end.metadata_mut().insert(PANICKED_METADATA_KEY, MetadataValue::from_static("1"));
    }
    end
}

/// Decodes the end of a gRPC call. An `Unknown` code does not come from a node, so it becomes
/// [`ErrorCode::Unavailable`].
pub fn from_grpc(status: &tonic::Status) -> Status {
    let code = match status.code() {
        tonic::Code::Unknown => ErrorCode::Unavailable,
        code => ErrorCode::from_grpc(code.into()),
    };
    Status {
        panicked: status.metadata().contains_key(PANICKED_METADATA_KEY),
        ..Status::new(code, status.message())
    }
}

fn truncate_message(message: &str) -> String {
    let end = message.floor_char_boundary(MAX_STATUS_MESSAGE_BYTES);
    message[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_status_equals_encoded_status() {
        for code in ErrorCode::ALL {
            let status = Status::new(code, "why").with_retry_after(Duration::from_millis(7));
            assert_eq!(decode_status(&encode_status(&status, None)), status);
        }
        assert_eq!(
            encode_status(&Status::new(ErrorCode::NotLeader, "ask another"), Some(3)).leader_node_id,
            3
        );
        let odd = RpcStatus { code: "of tomorrow".to_owned(), ..RpcStatus::default() };
        assert_eq!(decode_status(&odd), Status::new(ErrorCode::Internal, ""));
        let broken = tonic::Status::unknown("h2 protocol error");
        assert_eq!(from_grpc(&broken).code, ErrorCode::Unavailable);
        assert!(ErrorCode::ALL.iter().all(|code| code.grpc_status() != tonic::Code::Unknown as i32));
        let crash = Status { panicked: true, ..Status::new(ErrorCode::Internal, "index out of bounds") };
        assert_eq!(
            (decode_status(&encode_status(&crash, None)), from_grpc(&to_grpc(&crash))),
            (crash.clone(), crash)
        );
        let conflict =
            from_grpc(&to_grpc(&Status::new(ErrorCode::Conflict, "é".repeat(MAX_STATUS_MESSAGE_BYTES))));
        assert_eq!((conflict.code, conflict.message.len()), (ErrorCode::Conflict, MAX_STATUS_MESSAGE_BYTES));
    }
}
