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

use super::{AdHoc, Shown, Upload, tenant};
use crate::Reader;
use crate::check::invalid;

/// As clients write it, with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl AdHoc {
    /// Keeps a profile and shows it.
    pub async fn upload(
        &self,
        reader: &Reader,
        request: AdHocProfilesUploadRequest,
    ) -> Result<AdHocProfilesGetResponse, Status> {
        let nodes = self.nodes(reader, request.max_nodes)?;
        let AdHocProfilesUploadRequest { name, profile, .. } = request;
        let decoded = self.querier.compute(reader, move || BASE64.decode(profile.as_bytes())).await?;
        let bytes =
            decoded.map_err(|error| invalid(format!("profile is no base64: {error}; encode its bytes")))?;
        let (upload, shown) = self.keep(reader, name, bytes, nodes).await?;
        Ok(answer(&upload, shown))
    }

    /// Shows one that is kept.
    pub async fn get_upload(
        &self,
        reader: &Reader,
        request: AdHocProfilesGetRequest,
    ) -> Result<AdHocProfilesGetResponse, Status> {
        let nodes = self.nodes(reader, request.max_nodes)?;
        let (upload, shown) = self.get(reader, &request.id, request.profile_type.as_deref(), nodes).await?;
        Ok(answer(&upload, shown))
    }

    /// Those that are kept, the newest first.
    pub async fn list_uploads(
        &self,
        reader: &Reader,
        _: AdHocProfilesListRequest,
    ) -> Result<AdHocProfilesListResponse, Status> {
        let uploads = self.list(tenant(reader)).await?;
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
        reader: &Reader,
        request: AdHocProfilesDiffRequest,
    ) -> Result<AdHocProfilesDiffResponse, Status> {
        let nodes = self.nodes(reader, request.max_nodes)?;
        let ids = [request.left_id.as_str(), request.right_id.as_str()];
        let shown = self.diff(reader, ids, request.profile_type.as_deref(), nodes).await?;
        Ok(AdHocProfilesDiffResponse { profile_types: shown.profile_types, flamebearer_profile: shown.json })
    }
}

fn answer(upload: &Upload, shown: Shown) -> AdHocProfilesGetResponse {
    AdHocProfilesGetResponse {
        id: upload.id(),
        name: upload.name.clone(),
        uploaded_at: upload.uploaded_at(),
        profile_type: shown.profile_type,
        profile_types: shown.profile_types,
        flamebearer_profile: shown.json,
    }
}
