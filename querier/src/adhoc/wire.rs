//! Ad hoc profiles on the wire.

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

/// Base64 as clients send it, with or without padding.
const BASE64_ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl AdhocProfileService {
    /// Stores a profile and renders it.
    pub async fn upload(
        &self,
        reader: &QueryContext,
        request: AdHocProfilesUploadRequest,
    ) -> Result<AdHocProfilesGetResponse, Status> {
        let nodes = self.parse_node_limit(reader, request.max_nodes)?;
        let AdHocProfilesUploadRequest { name, profile, .. } = request;
        let decoded =
            self.executor.compute_on_pool(reader, move || BASE64_ENGINE.decode(profile.as_bytes())).await?;
        let bytes = decoded.map_err(|error| {
            invalid_argument(format!("profile is not base64: {error}; encode the bytes as base64"))
        })?;
        let (upload, shown) = self.store_profile(reader, name, bytes, nodes).await?;
        Ok(answer(&upload, shown))
    }

    /// Renders a stored profile.
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

    /// Lists the stored profiles, newest first.
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

    /// Renders the difference of two stored profiles.
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
