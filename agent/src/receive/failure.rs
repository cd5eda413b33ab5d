//! Reasons for refusing a received request.

use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_profile::formats::otlp::OtlpJsonError;
use athanor_profile::labeling::app_name::AppNameError;

use super::wire::WireError;

/// Reason for refusing a received request.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// A push has no profile.
    #[error("no profiles received; send a series with a sample")]
    NoProfiles,
    /// The parameter `name` of `/ingest` is invalid.
    #[error("parameter name: {0}")]
    Name(#[from] AppNameError),
    /// The value of the tenant label is no tenant.
    #[error("label {label} is {value:?} and is no tenant (receive.tenant.label): {reason}")]
    TenantLabel {
        /// Name of the label.
        label: String,
        /// First characters of its value.
        value: String,
        /// Reason for refusing it.
        reason: String,
    },
    /// The export is no protobuf message.
    #[error("failed to decode the export: {0}")]
    Export(String),
    /// The export has no resources.
    #[error("the export has no resource_profiles; send at least one profile")]
    NoResources,
    /// The export is not valid JSON, or too large as protobuf.
    #[error("failed to convert the export from JSON: {0}")]
    Json(#[from] OtlpJsonError),
}

impl From<WireError> for ReceiveError {
    fn from(error: WireError) -> Self {
        Self::Export(error.to_string())
    }
}

impl ErrorCodeExt for ReceiveError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Json(OtlpJsonError::TooLarge { .. }) => ErrorCode::TooLarge,
            _ => ErrorCode::Invalid,
        }
    }
}
