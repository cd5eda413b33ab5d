//! Feature flags of this server.

use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_proto::capabilities::v1::{FeatureFlag, GetFeatureFlagsRequest, GetFeatureFlagsResponse};
use athanor_proto::vcs::v1::{Nothing, Question};
use athanor_proto::version::v1::{VersionRequest, VersionResponse};

use crate::companion::TenantSettings;

/// Version of the supported API.
const API_VERSION: u64 = 1;
/// Feature flags that user interfaces query. Rules are stored, but no metrics are derived from them.
const FEATURE_FLAGS: [(&str, bool, &str); 4] = [
    ("pyroscopeRuler", false, "Rules are kept, but not evaluated yet."),
    ("pyroscopeRulerFunctions", false, "Rules of single functions are kept, but not evaluated yet."),
    ("utf8LabelNames", true, "Names of labels may be any text."),
    ("v2StorageLayer", true, "Blocks in object storage."),
];

impl TenantSettings {
    /// Returns all feature flags.
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

    /// Returns the version of the API.
    pub async fn version(&self, _: &TenantId, _: VersionRequest) -> Result<VersionResponse, Status> {
        Ok(VersionResponse { querier_api: API_VERSION })
    }

    /// Rejects requests for source code, which this server does not provide.
    pub async fn source_code(&self, _: &TenantId, _: Question) -> Result<Nothing, Status> {
        let message = "source code lookup is not supported; open the file in its repository";
        Err(Status::new(ErrorCode::Unimplemented, message))
    }
}
