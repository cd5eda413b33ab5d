//! Uploads on the wire: in the words of Parca, and in those of Pyroscope.

use athanor_chassis::{Code, Status, TenantId};
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

use super::shelf::{Begun, Place};
use super::state::{Asked, Kind, Reason};
use super::{Debuginfo, Listed, delete_debuginfo};

/// The longest id in Pyroscope's words, in digits.
const GNU: std::ops::RangeInclusive<usize> = 2..=40;
/// The shortest id in Parca's words.
const SHORTEST: usize = 3;
/// The longest text that describes a file: a hash, a name, an id.
const TEXT: usize = 1_024;

fn invalid(message: String) -> Status {
    Status::new(Code::Invalid, message).because("malformed_request")
}

/// Where a file of Parca's goes.
fn place(tenant: &TenantId, build_id: &str, kind: i32) -> Result<Place, Status> {
    let bad = |why: String| invalid(format!("build_id {}: {why}", shortened(build_id)));
    if build_id.len() < SHORTEST {
        return Err(bad(format!("it has {} bytes, at least {SHORTEST} are needed", build_id.len())));
    }
    let build = BuildId::new(build_id)
        .map_err(|_| bad(format!("write {SHORTEST} to {} letters, digits and signs", BuildId::MAX)))?;
    let kind = match DebuginfoType::try_from(kind) {
        Ok(DebuginfoType::DebuginfoUnspecified) => Kind::Debuginfo,
        Ok(DebuginfoType::Executable) => Kind::Executable,
        Ok(DebuginfoType::Sources) => Kind::Sources,
        Ok(DebuginfoType::SourceMap) => Kind::SourceMap,
        Err(_) => return Err(invalid(format!("type {kind} is not known, known are 0 to 3"))),
    };
    Ok(Place { tenant: tenant.clone(), build, kind })
}

/// Where a file of Pyroscope's goes.
fn executable(tenant: &TenantId, id: &str) -> Result<Place, Status> {
    let is_number = id.chars().all(|c| c.is_ascii_hexdigit());
    let build = BuildId::new(id).ok().filter(|_| is_number && GNU.contains(&id.len()));
    let bad = || {
        let (least, most) = (GNU.start(), GNU.end());
        invalid(format!("invalid gnu_build_id {}: write {least} to {most} hexadecimal digits", shortened(id)))
    };
    Ok(Place { tenant: tenant.clone(), build: build.ok_or_else(bad)?, kind: Kind::Executable })
}

fn shortened(text: &str) -> String {
    format!("{:?}", text.chars().take(BuildId::MAX).collect::<String>())
}

fn bounded(name: &str, text: String) -> Result<String, Status> {
    if text.len() <= TEXT {
        return Ok(text);
    }
    Err(invalid(format!("{name} has {} bytes, the limit is {TEXT}: send a shorter one", text.len())))
}

fn number(upload_id: &str) -> Result<u128, Status> {
    let read = u128::from_str_radix(upload_id, 16).ok().filter(|number| written(*number) == upload_id);
    let bad = || format!("upload_id {}: take the one that InitiateUpload answered", shortened(upload_id));
    read.ok_or_else(|| invalid(bad()).because("unknown_upload"))
}

fn written(number: u128) -> String {
    format!("{number:032x}")
}

// === Parca ===

impl Debuginfo {
    /// Whether a file is wanted.
    pub async fn should_initiate(
        &self,
        tenant: &TenantId,
        request: parca::ShouldInitiateUploadRequest,
    ) -> Result<parca::ShouldInitiateUploadResponse, Status> {
        let answered = async {
            let place = place(tenant, &request.build_id, request.r#type)?;
            self.wanted(&place, Asked { hash: &request.hash, force: request.force }).await
        };
        let reason = answered.await.inspect_err(|status| self.refused(status))?;
        Ok(parca::ShouldInitiateUploadResponse {
            should_initiate_upload: reason.accepts(),
            reason: reason.text().to_owned(),
        })
    }

    /// Begins an upload.
    pub async fn initiate(
        &self,
        tenant: &TenantId,
        request: parca::InitiateUploadRequest,
    ) -> Result<parca::InitiateUploadResponse, Status> {
        let kind = request.r#type;
        let build_id = request.build_id.clone();
        let begun = self.initiated(tenant, request).await.inspect_err(|status| self.refused(status))?;
        let instructions = parca::UploadInstructions {
            build_id,
            upload_id: written(begun),
            upload_strategy: UploadStrategy::Grpc.into(),
            signed_url: String::new(),
            r#type: kind,
        };
        Ok(parca::InitiateUploadResponse { upload_instructions: Some(instructions) })
    }

    async fn initiated(
        &self,
        tenant: &TenantId,
        request: parca::InitiateUploadRequest,
    ) -> Result<u128, Status> {
        let parca::InitiateUploadRequest { build_id, size, hash, force, r#type, build_id_type: _ } = request;
        let place = place(tenant, &build_id, r#type)?;
        if hash.is_empty() {
            return Err(invalid("hash must be set".to_owned()));
        }
        let limit = self.deps.overrides.of(tenant).debuginfo_upload_max_size;
        match u64::try_from(size) {
            Ok(1..) => {}
            _ => return Err(invalid(format!("size is {size}: it must be set to the bytes of the file"))),
        }
        if size as u64 > limit.get() {
            let message = format!(
                "size is {size} bytes, the limit is {limit} (limits.debuginfo_upload_max_size): strip what is not needed, or \
                 raise the limit"
            );
            return Err(Status::new(Code::Invalid, message).because("debuginfo_too_large"));
        }
        let begun = Begun { hash: bounded("hash", hash)?, size: size as u64, ..Begun::default() };
        match self.begin(&place, &begun, force).await? {
            (_, Some(number)) => Ok(number),
            (Reason::Equal, None) => Err(Status::new(Code::Conflict, Reason::Equal.text()).because("equal")),
            (reason, None) => {
                let message = format!(
                    "the upload is not wanted, ShouldInitiateUpload would have said: {}",
                    reason.text()
                );
                Err(Status::new(Code::Precondition, message).because("not_wanted"))
            }
        }
    }

    /// Takes a file: first the info, then chunks.
    pub async fn upload(
        &self,
        tenant: &TenantId,
        messages: impl Stream<Item = Result<parca::UploadRequest, Status>> + Send,
    ) -> Result<parca::UploadResponse, Status> {
        self.uploaded(tenant, messages).await.inspect_err(|status| self.refused(status))
    }

    async fn uploaded(
        &self,
        tenant: &TenantId,
        messages: impl Stream<Item = Result<parca::UploadRequest, Status>> + Send,
    ) -> Result<parca::UploadResponse, Status> {
        let mut messages = std::pin::pin!(messages);
        let first = messages.next().await.transpose()?.and_then(|message| message.data);
        let Some(Data::Info(info)) = first else {
            return Err(invalid(
                "the first message of an upload is its info: build_id and upload_id".to_owned(),
            ));
        };
        let place = place(tenant, &info.build_id, info.r#type)?;
        let mut receiving = self.receive(&place, Some(number(&info.upload_id)?)).await?;
        while let Some(message) = messages.next().await.transpose()? {
            match message.data {
                Some(Data::ChunkData(bytes)) => receiving.push(bytes).await?,
                Some(Data::Info(_)) => {
                    return Err(invalid("a second info came: each upload is a call of its own".to_owned()));
                }
                None => {}
            }
        }
        Ok(parca::UploadResponse { build_id: info.build_id, size: receiving.done().await? })
    }

    /// Ends an upload.
    pub async fn mark_finished(
        &self,
        tenant: &TenantId,
        request: parca::MarkUploadFinishedRequest,
    ) -> Result<parca::MarkUploadFinishedResponse, Status> {
        let answered = async {
            let place = place(tenant, &request.build_id, request.r#type)?;
            self.finish(&place, Some(number(&request.upload_id)?)).await
        };
        answered.await.inspect_err(|status| self.refused(status))?;
        Ok(parca::MarkUploadFinishedResponse {})
    }
}

// === Pyroscope ===

impl Debuginfo {
    /// Whether a file is wanted; if so, its upload has begun.
    pub async fn should_initiate_upload(
        &self,
        tenant: &TenantId,
        request: pyroscope::ShouldInitiateUploadRequest,
    ) -> Result<pyroscope::ShouldInitiateUploadResponse, Status> {
        let answered = async {
            let missing = || invalid("file is missing; say which one with file.gnu_build_id".to_owned());
            let file = request.file.ok_or_else(missing)?;
            let place = executable(tenant, &file.gnu_build_id)?;
            let no_text = match file.r#type() {
                pyroscope::file_metadata::Type::ExecutableFull => false,
                pyroscope::file_metadata::Type::ExecutableNoText => true,
            };
            let begun = Begun {
                hash: String::new(),
                size: 0,
                name: bounded("name", file.name)?,
                go_build_id: bounded("go_build_id", file.go_build_id)?,
                otel_file_id: bounded("otel_file_id", file.otel_file_id)?,
                no_text,
            };
            self.begin(&place, &begun, false).await
        };
        let (reason, _) = answered.await.inspect_err(|status| self.refused(status))?;
        Ok(pyroscope::ShouldInitiateUploadResponse {
            should_initiate_upload: reason.accepts(),
            reason: reason.text().to_owned(),
        })
    }

    /// Takes a file, as it is.
    pub async fn upload_file(
        &self,
        tenant: &TenantId,
        gnu_build_id: &str,
        pieces: impl Stream<Item = Result<Bytes, Status>> + Send,
    ) -> Result<(), Status> {
        let taken = async {
            let mut receiving = self.receive(&executable(tenant, gnu_build_id)?, None).await?;
            let mut pieces = std::pin::pin!(pieces);
            while let Some(piece) = pieces.next().await.transpose()? {
                receiving.push(piece).await?;
            }
            receiving.done().await
        };
        taken.await.map(drop).inspect_err(|status| self.refused(status))
    }

    /// Ends an upload.
    pub async fn upload_finished(
        &self,
        tenant: &TenantId,
        request: pyroscope::UploadFinishedRequest,
    ) -> Result<pyroscope::UploadFinishedResponse, Status> {
        let answered = async {
            if self.finish(&executable(tenant, &request.gnu_build_id)?, None).await? {
                return Ok(pyroscope::UploadFinishedResponse {});
            }
            let message = "what was sent is no ELF file; send the binary itself, uncompressed";
            Err(Status::new(Code::Invalid, message).because("no_elf"))
        };
        answered.await.inspect_err(|status| self.refused(status))
    }

    /// All binaries of a tenant.
    pub async fn list_debuginfo(
        &self,
        tenant: &TenantId,
        _: pyroscope::ListDebuginfoRequest,
    ) -> Result<pyroscope::ListDebuginfoResponse, Status> {
        let listed = self.list(tenant).await.inspect_err(|status| self.refused(status))?;
        let binaries = listed.into_iter().filter(|listed| listed.place.kind.is_elf());
        Ok(pyroscope::ListDebuginfoResponse { object: binaries.map(object).collect() })
    }

    /// Removes what there is of a binary.
    pub async fn delete_debuginfo(
        &self,
        tenant: &TenantId,
        request: pyroscope::DeleteDebuginfoRequest,
    ) -> Result<pyroscope::DeleteDebuginfoResponse, Status> {
        let answered = async {
            // Whatever is listed can be removed, be it named in Parca's words.
            let id = &request.gnu_build_id;
            let bad =
                |_| invalid(format!("gnu_build_id {} is none that ListDebuginfo answers", shortened(id)));
            delete_debuginfo(&self.deps.store, tenant, &BuildId::new(id).map_err(bad)?).await
        };
        answered.await.inspect_err(|status| self.refused(status))?;
        Ok(pyroscope::DeleteDebuginfoResponse {})
    }
}

fn object(listed: Listed) -> pyroscope::ObjectMetadata {
    let Listed { place, seen, begun, finished } = listed;
    let Begun { name, go_build_id, otel_file_id, no_text, hash: _, size: _ } = begun;
    let no_text = no_text || place.kind == Kind::Debuginfo;
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
    let state = if finished.is_some() { State::Uploaded } else { State::Uploading };
    pyroscope::ObjectMetadata {
        file: Some(file),
        state: state.into(),
        started_at: Some(moment(seen.begun_millis())),
        finished_at: finished.as_ref().map(|(_, millis)| moment(*millis)),
        size_bytes: finished.map_or(0, |(sent, _)| i64::try_from(sent.size).unwrap_or(i64::MAX)),
    }
}
