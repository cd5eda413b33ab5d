//! Delivery of one file: its requests in order, and the division of rejected ones.

use std::time::Duration;

use athanor_chassis::{ErrorCode, Status};
use athanor_client::BatchParts;

use super::compression::gzip_body;
use super::connection::{DeliveryRequest, DeliveryResponse};
use super::outcome::{NOT_A_SERVER_REASON, ResponseClass, classify_failure};
use super::server_health::RequestFailure;
use super::split::{ProfileGroup, split_request};
use super::{ACCESS_BACKOFF, Delivery, MAX_RETRY_AFTER, MISSING_METHOD_BACKOFF, RETRY_BACKOFF};
use crate::spool::{DropReason, RefusedUpload, SpoolEntry, SpoolFile, SpooledRequest};
use crate::upload::UploadRoute;

/// HTTP status of a partly rejected OTLP request.
const PARTIAL_SUCCESS_STATUS: u16 = 200;

/// HTTP status and error text of a rejection.
struct Rejection {
    status: u16,
    message: String,
}

/// Profiles of one file by their result. Counted when the file is unlinked, so a retry counts none twice.
#[derive(Debug, Default)]
struct FileResult {
    sent: u32,
    too_old: u32,
}

/// Request that has no final response.
struct UnfinishedRequest {
    status: Status,
    profiles: u32,
    /// Monotonic time at which the request began.
    began_at: Duration,
    /// True if the server does not have the method. It may have the methods of other requests.
    is_method_missing: bool,
}

/// Response to an OTLP export.
#[derive(Clone, PartialEq, prost::Message)]
struct OtlpExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<OtlpPartialSuccess>,
}

/// Part of an OTLP export that was not stored.
#[derive(Clone, PartialEq, prost::Message)]
struct OtlpPartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_profiles: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// Reads which profiles of a request the server did not store. Fails if the response is not that of a server.
fn partial_success(route: &UploadRoute, response: &DeliveryResponse) -> Result<OtlpPartialSuccess, Status> {
    if *route != UploadRoute::Otlp {
        return Ok(OtlpPartialSuccess::default());
    }
    let decoded = <OtlpExportResponse as prost::Message>::decode(response.body.clone());
    let decoded = decoded.map_err(|error| {
        let message = format!(
            "the response to an OTLP export is not an ExportProfilesServiceResponse: {error}; check that the URL \
             is that of a profiling server"
        );
        Status::new(ErrorCode::Invalid, message).with_reason(NOT_A_SERVER_REASON)
    })?;
    Ok(decoded.partial_success.unwrap_or_default())
}

impl Delivery {
    /// Sends all requests of a file in order. Unlinks it after the last response, else returns it to its queue.
    pub(super) async fn deliver_file(&self, entry: &SpoolEntry) {
        let shared = &self.shared;
        let file = match shared.spool.read(entry).await {
            Ok(Some(file)) => file,
            Ok(None) => return,
            Err(error) => {
                let delay = RETRY_BACKOFF.delay(entry.failures as usize, &shared.runtime.random);
                tracing::warn!(server = shared.spool.server(), file = %entry.name, %error, "failed to read a spool file, will retry");
                return shared.spool.release(entry, delay);
            }
        };
        let mut result = FileResult::default();
        for request in &file.requests {
            if let Err(unfinished) = self.deliver_request(&file, request, &mut result).await {
                let delay = self.record_failure(entry, &unfinished);
                return shared.spool.release(entry, delay);
            }
        }
        shared.spool.acknowledge(entry).await;
        shared.spool.stats().record_sent(result.sent);
        if result.too_old > 0 {
            shared.spool.stats().record_dropped(DropReason::TooOld, result.too_old);
        }
    }

    /// Sends a request until the server has stored or rejected each of its profiles.
    async fn deliver_request(
        &self,
        file: &SpoolFile,
        request: &SpooledRequest,
        result: &mut FileResult,
    ) -> Result<(), UnfinishedRequest> {
        let Some(rejection) = self.send_part(file, request, result).await? else { return Ok(()) };
        let Some(split) = split_request(&request.route, &request.body) else {
            self.drop_rejected(file, request, rejection, result).await;
            return Ok(());
        };
        let mut parts = BatchParts::new(split.groups.clone());
        // The whole request is the first part, and was rejected.
        parts.next_part();
        parts.split(split.groups.clone(), rejection);
        while let Some(groups) = parts.next_part() {
            let part = SpooledRequest {
                route: request.route.clone(),
                profiles: ProfileGroup::count(&groups),
                body: split.join(&groups),
            };
            let Some(rejection) = self.send_part(file, &part, result).await? else { continue };
            if let Some((_, rejection)) = parts.split(groups, rejection) {
                self.drop_rejected(file, &part, rejection, result).await;
            }
        }
        Ok(())
    }

    /// Sends a part of a request. Returns the error if the server rejects its content.
    async fn send_part(
        &self,
        file: &SpoolFile,
        part: &SpooledRequest,
        result: &mut FileResult,
    ) -> Result<Option<Status>, UnfinishedRequest> {
        let profiles = part.profiles;
        let began_at = self.shared.runtime.clock.monotonic();
        let sent = self.send_once(file, part).await;
        let read = sent.and_then(|response| partial_success(&part.route, &response));
        let status = match read {
            Ok(partial) => {
                self.record_response();
                let rejected = self.refuse_partly(file, part, partial).await;
                result.sent = result.sent.saturating_add(profiles.saturating_sub(rejected));
                return Ok(None);
            }
            Err(status) => status,
        };
        match classify_failure(&status) {
            ResponseClass::Temporary | ResponseClass::Access => {
                let is_method_missing = part.route != UploadRoute::Push
                    && matches!(status.code, ErrorCode::NotFound | ErrorCode::Unimplemented);
                Err(UnfinishedRequest { status, profiles, began_at, is_method_missing })
            }
            ResponseClass::TooOld | ResponseClass::Rejected => {
                self.record_response();
                Ok(Some(status))
            }
        }
    }

    async fn send_once(&self, file: &SpoolFile, part: &SpooledRequest) -> Result<DeliveryResponse, Status> {
        let body = part.body.clone();
        let mut request =
            DeliveryRequest { tenant: file.tenant.clone(), route: part.route.clone(), body, is_gzip: false };
        // The body of `/ingest` stays as the client encoded it.
        if !matches!(part.route, UploadRoute::Ingest { .. }) {
            let body = part.body.clone();
            let gzipped = self.shared.runtime.compute.run(move || gzip_body(&body)).await;
            if let Some(gzipped) = gzipped.map_err(|error| Status::from_error(&error))? {
                request.body = gzipped;
                request.is_gzip = true;
            }
        }
        self.shared.connection.send(request).await
    }

    /// Drops a rejected profile that is too old, and moves others to the folder of refused profiles.
    async fn drop_rejected(
        &self,
        file: &SpoolFile,
        request: &SpooledRequest,
        status: Status,
        result: &mut FileResult,
    ) {
        if classify_failure(&status) == ResponseClass::TooOld {
            result.too_old = result.too_old.saturating_add(request.profiles);
            return;
        }
        let server = self.shared.spool.server();
        tracing::warn!(server, error = %status, "server rejected a profile, moved it to the refused profiles");
        let rejection = Rejection { status: status.code.http_status(), message: status.message };
        self.refuse(file, request, rejection, request.profiles).await;
    }

    /// Keeps a copy of a request that the server stored in part. Returns the number of rejected profiles.
    async fn refuse_partly(
        &self,
        file: &SpoolFile,
        request: &SpooledRequest,
        partial: OtlpPartialSuccess,
    ) -> u32 {
        let rejected = u32::try_from(partial.rejected_profiles.max(0)).unwrap_or(u32::MAX);
        if rejected > 0 {
            let rejection = Rejection { status: PARTIAL_SUCCESS_STATUS, message: partial.error_message };
            self.refuse(file, request, rejection, rejected).await;
        }
        rejected
    }

    async fn refuse(&self, file: &SpoolFile, request: &SpooledRequest, rejection: Rejection, profiles: u32) {
        let refused = RefusedUpload {
            sequence: file.sequence,
            tenant: file.tenant.clone(),
            route: request.route.clone(),
            body: request.body.clone(),
            status: rejection.status,
            message: rejection.message,
            time: self.shared.runtime.clock.wall(),
        };
        self.shared.spool.refuse(refused, profiles).await;
    }

    fn record_response(&self) {
        let now = self.shared.runtime.clock.monotonic();
        if self.shared.health.lock().record_response(now) {
            tracing::info!(server = self.shared.spool.server(), "server accepts profiles");
            self.shared.spool.end_cumulative_delays();
        }
    }

    /// Records a request without a final response. Returns the delay of the next attempt of the file.
    fn record_failure(&self, entry: &SpoolEntry, unfinished: &UnfinishedRequest) -> Duration {
        let UnfinishedRequest { status, profiles, began_at, is_method_missing } = unfinished;
        let random = &self.shared.runtime.random;
        self.shared.spool.stats().record_retried(*profiles);
        if *is_method_missing {
            return self.record_missing_method(entry, status);
        }
        let retry_after = status.retry_after.map(|requested| requested.min(MAX_RETRY_AFTER));
        if status.code == ErrorCode::Exhausted {
            return self.record_limit(entry, status, retry_after);
        }
        let needs_operator = classify_failure(status) == ResponseClass::Access;
        let backoff = if needs_operator { ACCESS_BACKOFF } else { RETRY_BACKOFF };
        let mut health = self.shared.health.lock();
        let failures = health.failures().max(entry.failures as usize);
        let delay = backoff.delay(failures, random).max(retry_after.unwrap_or_default());
        let failure =
            RequestFailure { began_at: *began_at, delay, retry_after, message: status.message.clone() };
        let now = self.shared.runtime.clock.monotonic();
        let server = self.shared.spool.server();
        if health.record_failure(&failure, now) {
            tracing::warn!(server, error = %status, "server does not accept profiles, will retry");
        } else {
            tracing::debug!(server, error = %status, "retry of a request to the server failed");
        }
        delay
    }

    /// Records a request over a limit of its tenant. Requests of other tenants go on.
    fn record_limit(&self, entry: &SpoolEntry, status: &Status, retry_after: Option<Duration>) -> Duration {
        let server = self.shared.spool.server();
        tracing::debug!(server, error = %status, "server limits the requests of a tenant, will retry");
        self.shared.health.lock().record_limit(&status.message);
        let backoff = RETRY_BACKOFF.delay(entry.failures as usize, &self.shared.runtime.random);
        self.shared.spool.pause_tenant(entry, retry_after.unwrap_or(backoff));
        backoff.max(retry_after.unwrap_or_default())
    }

    /// Records a request whose method the server does not have. Requests of other methods go on.
    fn record_missing_method(&self, entry: &SpoolEntry, status: &Status) -> Duration {
        let is_first = self.shared.health.lock().record_missing_method(&status.message);
        if is_first {
            let server = self.shared.spool.server();
            tracing::warn!(
                server,
                error = %status,
                "server does not have the method of a received upload, will retry; other uploads go on"
            );
        }
        MISSING_METHOD_BACKOFF.delay(entry.failures as usize, &self.shared.runtime.random)
    }
}
