//! RPCs for uploads: the API of Parca and the API of Pyroscope.

use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_proto::debuginfo::v1alpha1 as pyroscope;
use athanor_proto::debuginfo::v1alpha1::object_metadata::State;
use athanor_proto::google::protobuf::Timestamp;
use athanor_proto::parca::debuginfo::v1alpha1 as parca;
use athanor_proto::parca::debuginfo::v1alpha1::DebuginfoType;
use athanor_proto::parca::debuginfo::v1alpha1::upload_instructions::UploadStrategy;
use athanor_proto::parca::debuginfo::v1alpha1::upload_request::Data;
use athanor_storage::path::BuildId;
use bytes::Bytes;
use futures::{Stream, StreamExt};

use super::store::{DebuginfoKey, UploadAnnouncement};
use super::upload_state::{DebuginfoKind, UploadDecision, UploadIntent};
use super::{DebuginfoFile, DebuginfoService, delete_debuginfo};

/// Range of the length of a build id in Pyroscope's API, in hexadecimal digits.
const BUILD_ID_DIGITS_RANGE: std::ops::RangeInclusive<usize> = 2..=40;
/// Minimum length of a build id in Parca's API.
const MIN_BUILD_ID_BYTES: usize = 3;
/// Maximum length of a text that describes a file: hash, name or id.
const MAX_TEXT_BYTES: usize = 1_024;

fn invalid_status(message: String) -> Status {
    Status::new(ErrorCode::Invalid, message).with_reason("malformed_request")
}

/// Returns the key of a file in Parca's API.
fn parca_key(tenant: &TenantId, build_id: &str, kind: i32) -> Result<DebuginfoKey, Status> {
    let bad = |why: String| invalid_status(format!("build_id {}: {why}", shorten_text(build_id)));
    if build_id.len() < MIN_BUILD_ID_BYTES {
        return Err(bad(format!(
            "length is {} bytes, must be at least {MIN_BUILD_ID_BYTES}",
            build_id.len()
        )));
    }
    let build = BuildId::new(build_id).map_err(|_| {
        bad(format!("write {MIN_BUILD_ID_BYTES} to {} letters, digits and signs", BuildId::MAX_LENGTH_BYTES))
    })?;
    let kind = match DebuginfoType::try_from(kind) {
        Ok(DebuginfoType::DebuginfoUnspecified) => DebuginfoKind::Debuginfo,
        Ok(DebuginfoType::Executable) => DebuginfoKind::Executable,
        Ok(DebuginfoType::Sources) => DebuginfoKind::Sources,
        Ok(DebuginfoType::SourceMap) => DebuginfoKind::SourceMap,
        Err(_) => return Err(invalid_status(format!("unknown type {kind}, must be 0 to 3"))),
    };
    Ok(DebuginfoKey { tenant: tenant.clone(), build, kind })
}

/// Returns the key of a file in Pyroscope's API.
fn executable_key(tenant: &TenantId, id: &str) -> Result<DebuginfoKey, Status> {
    let is_number = id.chars().all(|c| c.is_ascii_hexdigit());
    let build = BuildId::new(id).ok().filter(|_| is_number && BUILD_ID_DIGITS_RANGE.contains(&id.len()));
    let bad = || {
        let least = BUILD_ID_DIGITS_RANGE.start();
        let most = BUILD_ID_DIGITS_RANGE.end();
        invalid_status(format!(
            "invalid gnu_build_id {}: write {least} to {most} hexadecimal digits",
            shorten_text(id)
        ))
    };
    Ok(DebuginfoKey {
        tenant: tenant.clone(),
        build: build.ok_or_else(bad)?,
        kind: DebuginfoKind::Executable,
    })
}

fn shorten_text(text: &str) -> String {
    format!("{:?}", text.chars().take(BuildId::MAX_LENGTH_BYTES).collect::<String>())
}

fn check_text_length(name: &str, text: String) -> Result<String, Status> {
    if text.len() <= MAX_TEXT_BYTES {
        return Ok(text);
    }
    Err(invalid_status(format!(
        "{name} has {} bytes, the limit is {MAX_TEXT_BYTES}: send a shorter one",
        text.len()
    )))
}

fn parse_upload_id(upload_id: &str) -> Result<u128, Status> {
    let read =
        u128::from_str_radix(upload_id, 16).ok().filter(|number| format_upload_id(*number) == upload_id);
    let bad =
        || format!("invalid upload_id {}; use the id that InitiateUpload returned", shorten_text(upload_id));
    read.ok_or_else(|| invalid_status(bad()).with_reason("unknown_upload"))
}

fn format_upload_id(number: u128) -> String {
    format!("{number:032x}")
}

// === Parca ===

impl DebuginfoService {
    /// Returns whether an upload would be accepted.
    pub async fn should_initiate(
        &self,
        tenant: &TenantId,
        request: parca::ShouldInitiateUploadRequest,
    ) -> Result<parca::ShouldInitiateUploadResponse, Status> {
        let answered = async {
            let place = parca_key(tenant, &request.build_id, request.r#type)?;
            self.decide_upload(&place, UploadIntent { hash: &request.hash, force: request.force }).await
        };
        let reason = answered.await.inspect_err(|status| self.record_refusal(status))?;
        Ok(parca::ShouldInitiateUploadResponse {
            should_initiate_upload: reason.is_accepted(),
            reason: reason.reason_text().to_owned(),
        })
    }

    /// Begins an upload and returns its instructions.
    pub async fn initiate(
        &self,
        tenant: &TenantId,
        request: parca::InitiateUploadRequest,
    ) -> Result<parca::InitiateUploadResponse, Status> {
        let kind = request.r#type;
        let build_id = request.build_id.clone();
        let begun = self
            .start_parca_upload(tenant, request)
            .await
            .inspect_err(|status| self.record_refusal(status))?;
        let instructions = parca::UploadInstructions {
            build_id,
            upload_id: format_upload_id(begun),
            upload_strategy: UploadStrategy::Grpc.into(),
            signed_url: String::new(),
            r#type: kind,
        };
        Ok(parca::InitiateUploadResponse { upload_instructions: Some(instructions) })
    }

    async fn start_parca_upload(
        &self,
        tenant: &TenantId,
        request: parca::InitiateUploadRequest,
    ) -> Result<u128, Status> {
        let parca::InitiateUploadRequest { build_id, size, hash, force, r#type, build_id_type: _ } = request;
        let place = parca_key(tenant, &build_id, r#type)?;
        if hash.is_empty() {
            return Err(invalid_status("hash must be set".to_owned()));
        }
        let limit = self.deps.overrides.for_tenant(tenant).debuginfo_max_file_bytes;
        match u64::try_from(size) {
            Ok(1..) => {}
            _ => {
                return Err(invalid_status(format!("size is {size}, must be the size of the file in bytes")));
            }
        }
        if size as u64 > limit.get() {
            let message = format!(
                "size is {size} bytes, the limit is {limit} (limits.debuginfo_max_file_bytes); strip unneeded sections, or \
                 raise the limit"
            );
            return Err(Status::new(ErrorCode::Invalid, message).with_reason("debuginfo_too_large"));
        }
        let begun = UploadAnnouncement {
            hash: check_text_length("hash", hash)?,
            size: size as u64,
            ..UploadAnnouncement::default()
        };
        match self.begin_upload(&place, &begun, force).await? {
            (_, Some(number)) => Ok(number),
            (UploadDecision::Equal, None) => {
                Err(Status::new(ErrorCode::Conflict, UploadDecision::Equal.reason_text())
                    .with_reason("already_exists"))
            }
            (reason, None) => {
                let message = format!(
                    "the upload is not needed, ShouldInitiateUpload returns: {}",
                    reason.reason_text()
                );
                Err(Status::new(ErrorCode::Precondition, message).with_reason("not_wanted"))
            }
        }
    }

    /// Receives a file: the first message is the info, the others are chunks.
    pub async fn upload(
        &self,
        tenant: &TenantId,
        messages: impl Stream<Item = Result<parca::UploadRequest, Status>> + Send,
    ) -> Result<parca::UploadResponse, Status> {
        self.store_parca_upload(tenant, messages).await.inspect_err(|status| self.record_refusal(status))
    }

    async fn store_parca_upload(
        &self,
        tenant: &TenantId,
        messages: impl Stream<Item = Result<parca::UploadRequest, Status>> + Send,
    ) -> Result<parca::UploadResponse, Status> {
        let mut messages = std::pin::pin!(messages);
        let first = messages.next().await.transpose()?.and_then(|message| message.data);
        let Some(Data::Info(info)) = first else {
            return Err(invalid_status(
                "the first message of an upload must be its info with build_id and upload_id".to_owned(),
            ));
        };
        let place = parca_key(tenant, &info.build_id, info.r#type)?;
        let mut receiving = self.receive_upload(&place, Some(parse_upload_id(&info.upload_id)?)).await?;
        while let Some(message) = messages.next().await.transpose()? {
            match message.data {
                Some(Data::ChunkData(bytes)) => receiving.push(bytes).await?,
                Some(Data::Info(_)) => {
                    return Err(invalid_status(
                        "received a second info in one call; use one call per upload".to_owned(),
                    ));
                }
                None => {}
            }
        }
        Ok(parca::UploadResponse { build_id: info.build_id, size: receiving.complete().await? })
    }

    /// Finishes an upload by its id.
    pub async fn mark_finished(
        &self,
        tenant: &TenantId,
        request: parca::MarkUploadFinishedRequest,
    ) -> Result<parca::MarkUploadFinishedResponse, Status> {
        let answered = async {
            let place = parca_key(tenant, &request.build_id, request.r#type)?;
            self.finish_upload(&place, Some(parse_upload_id(&request.upload_id)?)).await
        };
        answered.await.inspect_err(|status| self.record_refusal(status))?;
        Ok(parca::MarkUploadFinishedResponse {})
    }
}

// === Pyroscope ===

impl DebuginfoService {
    /// Begins an upload if it is accepted, and returns the decision.
    pub async fn should_initiate_upload(
        &self,
        tenant: &TenantId,
        request: pyroscope::ShouldInitiateUploadRequest,
    ) -> Result<pyroscope::ShouldInitiateUploadResponse, Status> {
        let answered = async {
            let missing = || invalid_status("file is missing; set file.gnu_build_id".to_owned());
            let file = request.file.ok_or_else(missing)?;
            let place = executable_key(tenant, &file.gnu_build_id)?;
            let no_text = match file.r#type() {
                pyroscope::file_metadata::Type::ExecutableFull => false,
                pyroscope::file_metadata::Type::ExecutableNoText => true,
            };
            let begun = UploadAnnouncement {
                hash: String::new(),
                size: 0,
                name: check_text_length("name", file.name)?,
                go_build_id: check_text_length("go_build_id", file.go_build_id)?,
                otel_file_id: check_text_length("otel_file_id", file.otel_file_id)?,
                no_text,
            };
            self.begin_upload(&place, &begun, false).await
        };
        let (reason, _) = answered.await.inspect_err(|status| self.record_refusal(status))?;
        Ok(pyroscope::ShouldInitiateUploadResponse {
            should_initiate_upload: reason.is_accepted(),
            reason: reason.reason_text().to_owned(),
        })
    }

    /// Receives the raw bytes of a file.
    pub async fn upload_file(
        &self,
        tenant: &TenantId,
        gnu_build_id: &str,
        pieces: impl Stream<Item = Result<Bytes, Status>> + Send,
    ) -> Result<(), Status> {
        let taken = async {
            let mut receiving = self.receive_upload(&executable_key(tenant, gnu_build_id)?, None).await?;
            let mut pieces = std::pin::pin!(pieces);
            while let Some(piece) = pieces.next().await.transpose()? {
                receiving.push(piece).await?;
            }
            receiving.complete().await
        };
        taken.await.map(drop).inspect_err(|status| self.record_refusal(status))
    }

    /// Finishes the newest pending upload of a build id.
    pub async fn upload_finished(
        &self,
        tenant: &TenantId,
        request: pyroscope::UploadFinishedRequest,
    ) -> Result<pyroscope::UploadFinishedResponse, Status> {
        let answered = async {
            if self.finish_upload(&executable_key(tenant, &request.gnu_build_id)?, None).await? {
                return Ok(pyroscope::UploadFinishedResponse {});
            }
            let message = "the uploaded file is not an ELF file; send the binary itself, uncompressed";
            Err(Status::new(ErrorCode::Invalid, message).with_reason("not_an_elf_file"))
        };
        answered.await.inspect_err(|status| self.record_refusal(status))
    }

    /// Lists the ELF files of a tenant.
    pub async fn list_debuginfo(
        &self,
        tenant: &TenantId,
        _: pyroscope::ListDebuginfoRequest,
    ) -> Result<pyroscope::ListDebuginfoResponse, Status> {
        let listed = self.list_files(tenant).await.inspect_err(|status| self.record_refusal(status))?;
        let binaries = listed.into_iter().filter(|listed| listed.place.kind.is_elf());
        Ok(pyroscope::ListDebuginfoResponse { object: binaries.map(object_metadata).collect() })
    }

    /// Deletes all debug information of a binary.
    pub async fn delete_debuginfo(
        &self,
        tenant: &TenantId,
        request: pyroscope::DeleteDebuginfoRequest,
    ) -> Result<pyroscope::DeleteDebuginfoResponse, Status> {
        let answered = async {
            // Every listed build id can be deleted, also those uploaded by Parca's API.
            let id = &request.gnu_build_id;
            let bad = |_| {
                invalid_status(format!(
                    "invalid gnu_build_id {}; use one that ListDebuginfo returns",
                    shorten_text(id)
                ))
            };
            delete_debuginfo(&self.deps.store, tenant, &BuildId::new(id).map_err(bad)?).await
        };
        answered.await.inspect_err(|status| self.record_refusal(status))?;
        Ok(pyroscope::DeleteDebuginfoResponse {})
    }
}

fn object_metadata(listed: DebuginfoFile) -> pyroscope::ObjectMetadata {
    let DebuginfoFile { place, seen, announcement, completed } = listed;
    let UploadAnnouncement { name, go_build_id, otel_file_id, no_text, hash: _, size: _ } = announcement;
    let no_text = no_text || place.kind == DebuginfoKind::Debuginfo;
    let of = match no_text {
        true => pyroscope::file_metadata::Type::ExecutableNoText,
        false => pyroscope::file_metadata::Type::ExecutableFull,
    };
    let file = pyroscope::FileMetadata {
        gnu_build_id: place.build.as_str().to_owned(),
        go_build_id,
        otel_file_id,
        name,
        r#type: of.into(),
    };
    let moment = |millis: i64| Timestamp::from_nanos(millis.saturating_mul(1_000_000));
    let state = if completed.is_some() { State::Uploaded } else { State::Uploading };
    pyroscope::ObjectMetadata {
        file: Some(file),
        state: state.into(),
        started_at: Some(moment(seen.started_millis())),
        finished_at: completed.as_ref().map(|(_, millis)| moment(*millis)),
        size_bytes: completed.map_or(0, |(received, _)| i64::try_from(received.size).unwrap_or(i64::MAX)),
    }
}
