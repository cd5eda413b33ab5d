//! What this server can do, on the wire.

use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_proto::capabilities::v1::{FeatureFlag, GetFeatureFlagsRequest, GetFeatureFlagsResponse};
use athanor_proto::vcs::v1::{Nothing, Question};
use athanor_proto::version::v1::{VersionRequest, VersionResponse};

use crate::companion::TenantSettings;

/// Of the calls that are answered.
const API_VERSION: u64 = 1;
/// What pages look for, and whether it is here. Rules are kept, but no metrics are made by them.
const FEATURE_FLAGS: [(&str, bool, &str); 4] = [
    ("pyroscopeRuler", false, "Rules are kept, but not evaluated yet."),
    ("pyroscopeRulerFunctions", false, "Rules of single functions are kept, but not evaluated yet."),
    ("utf8LabelNames", true, "Names of labels may be any text."),
    ("v2StorageLayer", true, "Blocks in object storage."),
];

impl TenantSettings {
    /// Which features there are.
    pub async fn feature_flags(
        &self,
        _: &TenantId,
        _: GetFeatureFlagsRequest,
    ) -> Result<GetFeatureFlagsResponse, Status> {
        let flag = |(name, enabled, description): (&str, bool, &str)| FeatureFlag {
            name: name.to_owned(),
            enabled,
            description: Some(description.to_owned()),
            documentation_url: None,
        };
        Ok(GetFeatureFlagsResponse { feature_flags: FEATURE_FLAGS.map(flag).into() })
    }

    /// The version of the calls.
    pub async fn version(&self, _: &TenantId, _: VersionRequest) -> Result<VersionResponse, Status> {
        Ok(VersionResponse { querier_api: API_VERSION })
    }

    /// Source code, of which there is none here.
    pub async fn source_code(&self, _: &TenantId, _: Question) -> Result<Nothing, Status> {
        let message = "no source code is configured at this server, and it cannot be yet; open the file where it is kept";
        Err(Status::new(ErrorCode::Unimplemented, message))
    }
}
