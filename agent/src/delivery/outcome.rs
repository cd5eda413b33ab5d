//! Meaning of failed requests.

use athanor_chassis::{ErrorCode, Status};
use athanor_client::{REDIRECT_REASON, is_temporary};

/// Reason of a response that is not one of a profiling server.
pub(super) const NOT_A_SERVER_REASON: &str = "not_a_profiling_server";

/// Text of a rejection because of age: of this server, then of servers with the same protocol.
const TOO_OLD_TEXTS: [[&str; 2]; 2] = [
    ["not in the ingestion window", "reject_older_than"],
    ["outside of ingestion window", "ingestion window starts at"],
];

/// Meaning of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseClass {
    /// The same request may succeed later: no response, or status 408, 429 or 5xx.
    Temporary,
    /// The server accepts no request of this agent until an operator changes a setting.
    Access,
    /// A profile is older than the server accepts.
    TooOld,
    /// The server rejects the content of the request.
    Rejected,
}

/// Returns the meaning of a failed request.
pub fn classify_failure(status: &Status) -> ResponseClass {
    if matches!(status.reason, Some(NOT_A_SERVER_REASON | REDIRECT_REASON)) {
        return ResponseClass::Access;
    }
    match status.code {
        ErrorCode::Unauthenticated
        | ErrorCode::PermissionDenied
        | ErrorCode::NotFound
        | ErrorCode::Unimplemented => ResponseClass::Access,
        _ if is_temporary(status) => ResponseClass::Temporary,
        ErrorCode::Cancelled | ErrorCode::DataLoss => ResponseClass::Temporary,
        _ if is_too_old(&status.message) => ResponseClass::TooOld,
        _ => ResponseClass::Rejected,
    }
}

fn is_too_old(message: &str) -> bool {
    TOO_OLD_TEXTS.iter().any(|texts| texts.iter().all(|text| message.contains(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_classified_by_status_and_text() {
        for (http, class) in [
            (400, ResponseClass::Rejected),
            (401, ResponseClass::Access),
            (403, ResponseClass::Access),
            (404, ResponseClass::Access),
            (408, ResponseClass::Temporary),
            (409, ResponseClass::Rejected),
            (413, ResponseClass::Rejected),
            (422, ResponseClass::Rejected),
            (429, ResponseClass::Temporary),
            (500, ResponseClass::Temporary),
            (503, ResponseClass::Temporary),
        ] {
            assert_eq!(classify_failure(&Status::new(ErrorCode::from_http(http), "")), class, "{http}");
        }
        let old = "invalid_argument: not in the ingestion window: the profile is 2h old, the limit is 1h \
                   (limits.reject_older_than)";
        assert_eq!(classify_failure(&Status::new(ErrorCode::Invalid, old)), ResponseClass::TooOld);
        let new = old.replace("reject_older_than", "reject_newer_than");
        assert_eq!(classify_failure(&Status::new(ErrorCode::Invalid, new)), ResponseClass::Rejected);
        let redirect = Status::new(ErrorCode::Invalid, "").with_reason(REDIRECT_REASON);
        assert_eq!(classify_failure(&redirect), ResponseClass::Access);
    }
}
