//! RPCs between queriers: polls async queries and fetches query records that another querier keeps.
//!
//! The handle contains the node that keeps the query. If that node left the cluster, its queries are gone. If
//! it is unreachable, the client may retry.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{ErrorCode, Status, TenantId, Tier};
use athanor_cluster::handshake::PeerHandshake;
use athanor_cluster::members::{ClusterMember, ClusterMembers, MemberState, RoleName};
use athanor_cluster::rpc_client::RpcClient;
use athanor_cluster::{NodeId, status_codec};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::async_query_status::State;
use athanor_proto::athanor::internal::v1::querier_service_server;
use athanor_querier::{
    AsyncQueryProgress, AsyncQueryReport, AsyncQueryResult, PeerQueriers, PeerRequest, Querier, QueryContext,
    QueryHandleId,
};
use athanor_query::{ResolutionStretch, ResultResolution};
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use tonic::{Request, Response};

use crate::rpc::ingester_client::IngesterClient;
use crate::rpc::ingester_service::parse_tenant;
use crate::rpc::result_stream::{StreamChecksum, decode_frames, encode_frames};

/// Limit of the stretches that are read from a response. A querier joins them to fewer.
const MAX_DECODED_STRETCHES: usize = 64;
/// Time limit of a call to a querier.
const QUERIER_CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Retry delay for a querier that does not respond.
const QUERIER_RETRY_AFTER: Duration = Duration::from_secs(2);
/// Maximum bytes of one frame of a response.
const MAX_FRAME_BYTES: usize = 1 << 20;
/// Hints for clients if a query or a record is gone.
const RESTART_QUERY_HINT: &str = "restart the query";
const RERECORD_QUERY_HINT: &str = "record another query";

/// Client of the other queriers.
pub struct QuerierClient {
    /// Client for internal RPCs.
    pub ways: IngesterClient,
    /// Members of the cluster.
    pub members: ClusterMembers,
}

/// Service of this querier for other nodes.
#[derive(Clone)]
pub struct QuerierService {
    /// Querier that keeps queries and records.
    pub querier: Querier,
    /// Handshake that verifies callers.
    pub handshake: Arc<PeerHandshake>,
}

// === impl QuerierClient ===

impl QuerierClient {
    /// Returns the node of a handle, or an error if a call would be useless.
    fn reachable_node(&self, handle: QueryHandleId, hint: &str) -> Result<NodeId, Status> {
        let node = handle.node;
        match unavailable_reason(self.members.current().get(&node)) {
            None => Ok(node),
            Some((code, why)) => Err(node_error(handle, code, why, hint)),
        }
    }

    async fn poll(
        &self,
        handle: QueryHandleId,
        request: &PeerRequest<'_>,
    ) -> Result<AsyncQueryReport, Status> {
        let node = self.reachable_node(handle, RESTART_QUERY_HINT)?;
        let timeout = request.remaining_time().min(QUERIER_CALL_TIMEOUT);
        let RpcClient { peers, handshake } = self.ways.remote_client()?;
        let query_id = handle.to_string();
        let checksum = poll_checksum(&query_id, request.tenants());
        let message = wire::PollAsyncQueryRequest {
            header: Some(handshake.call_header(node, timeout)),
            tenants: tenant_names(request.tenants()),
            query_id,
        };
        let mut result = Vec::new();
        let on_partial = |partial: Bytes| {
            // Memory for the frame and for its copy in the whole response.
            request.reserve_memory(2 * partial.len())?;
            result.extend_from_slice(&partial);
            Ok(())
        };
        let call = async {
            let response = peers.querier(node).poll_async_query(message).await;
            let frames = response.map_err(|error| status_codec::from_grpc(&error))?.into_inner();
            let frames = frames.map_err(|error| status_codec::from_grpc(&error));
            decode_frames(frames, checksum, 1, on_partial).await.map_err(|error| error.into_status())
        };
        let trailers = self.ways.with_timeout(node, timeout, call).await?;
        decode_report(trailers.into_iter().next(), result)
    }
}

#[async_trait]
impl PeerQueriers for QuerierClient {
    async fn poll_async_query(
        &self,
        handle: QueryHandleId,
        request: &PeerRequest<'_>,
    ) -> Result<AsyncQueryReport, Status> {
        self.poll(handle, request).await.map_err(|status| call_error(handle, status, RESTART_QUERY_HINT))
    }

    async fn query_record(&self, handle: QueryHandleId, request: &PeerRequest<'_>) -> Result<Bytes, Status> {
        let node = self.reachable_node(handle, RERECORD_QUERY_HINT)?;
        let timeout = request.remaining_time().min(QUERIER_CALL_TIMEOUT);
        let RpcClient { peers, handshake } = self.ways.remote_client()?;
        let message = wire::GetQueryRecordRequest {
            header: Some(handshake.call_header(node, timeout)),
            tenants: tenant_names(request.tenants()),
            record_id: handle.to_string(),
        };
        let mut client = peers.querier(node);
        let response = self.ways.call_node(node, timeout, client.get_query_record(message)).await;
        let response = response.map_err(|status| call_error(handle, status, RERECORD_QUERY_HINT))?;
        Ok(response.into_inner().record)
    }
}

/// Returns the reason if a node is unavailable, with a code that marks permanent and temporary reasons.
fn unavailable_reason(member: Option<&ClusterMember>) -> Option<(ErrorCode, &'static str)> {
    match member {
        None => Some((ErrorCode::NotFound, "is not a member of the cluster")),
        Some(member) if member.state == MemberState::Left => {
            Some((ErrorCode::NotFound, "has left the cluster"))
        }
        Some(member) if !member.roles.contains(&RoleName::Querier) => {
            Some((ErrorCode::NotFound, "is not a querier"))
        }
        Some(member) if !member.is_alive() => Some((ErrorCode::Unavailable, "is unreachable")),
        Some(_) => None,
    }
}

/// Returns the error for a query or record on a node that is unavailable.
fn node_error(handle: QueryHandleId, code: ErrorCode, why: &str, hint: &str) -> Status {
    let node = handle.node;
    if code == ErrorCode::NotFound {
        return Status::new(code, format!("{handle} was stored on node {node:016x}, which {why}; {hint}"));
    }
    let message = format!("{handle} is stored on node {node:016x}, which {why}; retry, or {hint}");
    Status::new(code, message).with_retry_after(QUERIER_RETRY_AFTER)
}

/// Returns the error of a failed call: the node's own error, or that the node is unreachable.
fn call_error(handle: QueryHandleId, status: Status, hint: &str) -> Status {
    match status.code {
        // The error comes from the local check or from the node itself.
        ErrorCode::Unavailable if status.retry_after.is_some() => status,
        ErrorCode::Unavailable
        | ErrorCode::Deadline
        | ErrorCode::Cancelled
        | ErrorCode::Unimplemented
        | ErrorCode::Conflict => {
            let why = format!("is unreachable ({})", status.message);
            node_error(handle, ErrorCode::Unavailable, &why, hint)
        }
        _ => status,
    }
}

/// Decodes the report on an async query from the trailer and from the result bytes before it.
fn decode_report(
    trailer: Option<wire::AsyncQueryStatus>,
    result: Vec<u8>,
) -> Result<AsyncQueryReport, Status> {
    let missing_state = || Status::new(ErrorCode::Internal, "protocol error: response has no query state");
    let wire::AsyncQueryStatus { state, warnings, resolution } = trailer.ok_or_else(missing_state)?;
    let progress = match state.ok_or_else(missing_state)? {
        State::Running(_) => AsyncQueryProgress::Running,
        State::Error(why) => AsyncQueryProgress::Failed(why),
        State::DecodedBytes(bytes) => AsyncQueryProgress::Done(AsyncQueryResult::from_peer(
            result.into(),
            usize::try_from(bytes).unwrap_or(usize::MAX),
        )),
    };
    let stretches = resolution.iter().take(MAX_DECODED_STRETCHES).filter_map(decode_stretch);
    let resolution = ResultResolution::from_stretches(stretches);
    Ok(AsyncQueryReport { progress, warnings, resolution })
}

fn encode_stretch(stretch: &ResolutionStretch) -> wire::ResolutionStretch {
    let ResolutionStretch { tier, after, until } = *stretch;
    wire::ResolutionStretch { tier: tier.number().into(), after_nanos: after, until_nanos: until }
}

/// Decodes a stretch. None if this release does not know its tier.
fn decode_stretch(stretch: &wire::ResolutionStretch) -> Option<ResolutionStretch> {
    let tier = Tier::from_number(stretch.tier)?;
    Some(ResolutionStretch { tier, after: stretch.after_nanos, until: stretch.until_nanos })
}

fn tenant_names(tenants: &[TenantId]) -> Vec<String> {
    tenants.iter().map(|tenant| tenant.as_str().to_owned()).collect()
}

/// Returns the checksum of a poll.
fn poll_checksum(query_id: &str, tenants: &[TenantId]) -> StreamChecksum {
    let others = tenants.iter().skip(1).map(|tenant| tenant.as_str().as_bytes().to_vec());
    let first = tenants.first().cloned().unwrap_or_else(TenantId::anonymous);
    StreamChecksum::for_request(&first, query_id.as_bytes(), others)
}

// === impl QuerierService ===

impl QuerierService {
    fn query_context(
        &self,
        header: Option<&wire::CallHeader>,
        tenants: &[String],
    ) -> Result<QueryContext, Status> {
        self.handshake.check_caller(header).map_err(|error| Status::from_error(&error))?;
        tenants.iter().try_for_each(|tenant| parse_tenant(tenant).map(drop))?;
        QueryContext::parse(&tenants.join("|"))
            .map_err(|error| Status::new(ErrorCode::Invalid, error.to_string()))
    }
}

#[async_trait]
impl querier_service_server::QuerierService for QuerierService {
    type PollAsyncQueryStream = Pin<Box<dyn Stream<Item = Result<wire::ResultFrame, tonic::Status>> + Send>>;

    async fn poll_async_query(
        &self,
        request: Request<wire::PollAsyncQueryRequest>,
    ) -> Result<Response<Self::PollAsyncQueryStream>, tonic::Status> {
        let wire::PollAsyncQueryRequest { header, tenants, query_id } = request.into_inner();
        let context = self.query_context(header.as_ref(), &tenants);
        let context = context.map_err(|status| status_codec::to_grpc(&status))?;
        let report = self.querier.poll_local(&context, &query_id);
        let AsyncQueryReport { progress, warnings, resolution } =
            report.map_err(|status| status_codec::to_grpc(&status))?;
        let (state, result) = match progress {
            AsyncQueryProgress::Running => (State::Running(true), None),
            AsyncQueryProgress::Failed(why) => (State::Error(why), None),
            AsyncQueryProgress::Done(result) => (State::DecodedBytes(result.shown as u64), Some(result)),
        };
        let bytes = result.as_ref().map(|result| result.bytes.clone()).unwrap_or_default();
        let partials = (0..bytes.len().div_ceil(MAX_FRAME_BYTES)).map(|number| {
            let from = number * MAX_FRAME_BYTES;
            bytes.slice(from..bytes.len().min(from + MAX_FRAME_BYTES))
        });
        let resolution = resolution.stretches().iter().map(encode_stretch).collect();
        let trailer = wire::AsyncQueryStatus { state: Some(state), warnings, resolution };
        let checksum = poll_checksum(&query_id, context.tenants());
        let frames = encode_frames(checksum, partials, std::iter::once(trailer));
        let frames = stream::iter(frames).map(move |frame| {
            // The memory reservation lasts until all frames are sent.
            let _ = &result;
            Ok(frame)
        });
        Ok(Response::new(Box::pin(frames)))
    }

    async fn get_query_record(
        &self,
        request: Request<wire::GetQueryRecordRequest>,
    ) -> Result<Response<wire::GetQueryRecordResponse>, tonic::Status> {
        let wire::GetQueryRecordRequest { header, tenants, record_id } = request.into_inner();
        let context = self.query_context(header.as_ref(), &tenants);
        let record = context.and_then(|context| self.querier.local_query_record(&context, &record_id));
        let record = record.map_err(|status| status_codec::to_grpc(&status))?;
        Ok(Response::new(wire::GetQueryRecordResponse { record }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn member(roles: &[RoleName], state: MemberState, alive: bool) -> ClusterMember {
        ClusterMember {
            node: 3,
            name: String::new(),
            zone: String::new(),
            roles: BTreeSet::from_iter(roles.iter().copied()),
            internal: ([127, 0, 0, 1], 1).into(),
            boot: 1,
            state,
            missing_since: (!alive).then_some(Duration::ZERO),
        }
    }

    #[test]
    fn permanent_and_temporary_absence_have_different_codes() {
        let code = |roles: &[RoleName], state, alive| {
            unavailable_reason(Some(&member(roles, state, alive))).map(|(code, _)| code)
        };
        let querier = [RoleName::Querier];
        assert_eq!(code(&querier, MemberState::Ready, true), None);
        assert_eq!(code(&querier, MemberState::Draining, true), None);
        assert_eq!(code(&querier, MemberState::Ready, false), Some(ErrorCode::Unavailable));
        assert_eq!(code(&querier, MemberState::Left, true), Some(ErrorCode::NotFound));
        assert_eq!(code(&querier, MemberState::Left, false), Some(ErrorCode::NotFound));
        assert_eq!(code(&[RoleName::Ingester], MemberState::Ready, true), Some(ErrorCode::NotFound));
        assert_eq!(unavailable_reason(None).map(|(code, _)| code), Some(ErrorCode::NotFound));
        let handle = QueryHandleId::parse("00000000-0000-0003-0000-000000000001").unwrap();
        let gone = node_error(handle, ErrorCode::NotFound, "has left the cluster", RESTART_QUERY_HINT);
        assert_eq!(
            gone.message,
            "00000000-0000-0003-0000-000000000001 was stored on node 0000000000000003, which has left the cluster; \
             restart the query"
        );
        for (code, expected) in [
            (ErrorCode::Deadline, ErrorCode::Unavailable),
            (ErrorCode::Unimplemented, ErrorCode::Unavailable),
            (ErrorCode::NotFound, ErrorCode::NotFound),
            (ErrorCode::Exhausted, ErrorCode::Exhausted),
        ] {
            assert_eq!(call_error(handle, Status::new(code, "why"), RESTART_QUERY_HINT).code, expected);
        }
    }

    #[test]
    fn report_without_state_is_rejected() {
        let hour = ResolutionStretch { tier: Tier::OneHour, after: 5, until: 9 };
        let decode = |state| {
            let warnings = vec!["half".to_owned()];
            let trailer = wire::AsyncQueryStatus { state, warnings, resolution: vec![encode_stretch(&hour)] };
            decode_report(Some(trailer), vec![1, 2])
        };
        assert!(decode_report(None, vec![]).is_err() && decode(None).is_err());
        assert!(matches!(decode(Some(State::Running(true))).unwrap().progress, AsyncQueryProgress::Running));
        let AsyncQueryReport { progress, warnings, resolution } =
            decode(Some(State::DecodedBytes(7))).unwrap();
        assert_eq!(resolution.stretches(), [hour]);
        let AsyncQueryProgress::Done(AsyncQueryResult { bytes, shown, .. }) = progress else {
            panic!("no result")
        };
        assert_eq!((&bytes[..], shown, warnings), (&[1, 2][..], 7, vec!["half".to_owned()]));
    }
}
