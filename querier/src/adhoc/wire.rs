//! Uploaded profiles on the wire.

use athanor_chassis::Status;
use athanor_proto::adhocprofiles::v1::{
    AdHocProfilesDiffRequest, AdHocProfilesDiffResponse, AdHocProfilesGetRequest, AdHocProfilesGetResponse,
    AdHocProfilesListRequest, AdHocProfilesListResponse, AdHocProfilesProfileMetadata,
    AdHocProfilesUploadRequest,
};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::{AdhocProfile, AdhocProfileService, RenderedGraph, first_tenant};
use crate::QueryContext;
use crate::validate::invalid_argument;

/// As clients write it, with padding or without.
const BASE64_ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl AdhocProfileService {
    /// Keeps a profile and shows it.
    pub async fn upload(
        &self,
        reader: &QueryContext,
        request: AdHocProfilesUploadRequest,
    ) -> Result<AdHocProfilesGetResponse, Status> {
        let nodes = self.parse_node_limit(reader, request.max_nodes)?;
        let AdHocProfilesUploadRequest { name, profile, .. } = request;
        let decoded =
            self.querier.compute_on_pool(reader, move || BASE64_ENGINE.decode(profile.as_bytes())).await?;
        let bytes = decoded
            .map_err(|error| invalid_argument(format!("profile is no base64: {error}; encode its bytes")))?;
        let (upload, shown) = self.store_profile(reader, name, bytes, nodes).await?;
        Ok(answer(&upload, shown))
    }

    /// Shows one that is kept.
    pub async fn get_upload(
        &self,
        reader: &QueryContext,
        request: AdHocProfilesGetRequest,
    ) -> Result<AdHocProfilesGetResponse, Status> {
        let nodes = self.parse_node_limit(reader, request.max_nodes)?;
        let (upload, shown) =
            self.render_stored(reader, &request.id, request.profile_type.as_deref(), nodes).await?;
        Ok(answer(&upload, shown))
    }

    /// Those that are kept, the newest first.
    pub async fn list_uploads(
        &self,
        reader: &QueryContext,
        _: AdHocProfilesListRequest,
    ) -> Result<AdHocProfilesListResponse, Status> {
        let uploads = self.list(first_tenant(reader)).await?;
        let profiles = uploads.iter().rev().map(|upload| AdHocProfilesProfileMetadata {
            id: upload.id(),
            name: upload.name.clone(),
            uploaded_at: upload.uploaded_at(),
        });
        Ok(AdHocProfilesListResponse { profiles: profiles.collect() })
    }

    /// Shows two, laid over each other.
    pub async fn diff_uploads(
        &self,
        reader: &QueryContext,
        request: AdHocProfilesDiffRequest,
    ) -> Result<AdHocProfilesDiffResponse, Status> {
        let nodes = self.parse_node_limit(reader, request.max_nodes)?;
        let ids = [request.left_id.as_str(), request.right_id.as_str()];
        let shown = self.render_diff(reader, ids, request.profile_type.as_deref(), nodes).await?;
        Ok(AdHocProfilesDiffResponse { profile_types: shown.profile_types, flamebearer_profile: shown.json })
    }
}

fn answer(upload: &AdhocProfile, shown: RenderedGraph) -> AdHocProfilesGetResponse {
    AdHocProfilesGetResponse {
        id: upload.id(),
        name: upload.name.clone(),
        uploaded_at: upload.uploaded_at(),
        profile_type: shown.profile_type,
        profile_types: shown.profile_types,
        flamebearer_profile: shown.json,
    }
}
