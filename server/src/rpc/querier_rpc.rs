//! RPCs between queriers: polls async queries and fetches query records that another querier keeps.
//!
//! The handle contains the node that keeps the query. If that node left the cluster, its queries are gone. If
//! it is unreachable, the client may retry.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_cluster::handshake::PeerHandshake;
use athanor_cluster::members::{ClusterMember, ClusterMembers, MemberState, RoleName};
use athanor_cluster::{NodeId, status_codec};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::look_done::Of as Outcome;
use athanor_proto::athanor::internal::v1::look_response::Of;
use athanor_proto::athanor::internal::v1::queriers_server::Queriers;
use athanor_querier::{
    AsyncQueryProgress, AsyncQueryReport, AsyncQueryResult, PeerQueriers, PeerRequest, Querier, QueryContext,
    QueryHandleId,
};
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use tonic::{Request, Response};

use crate::rpc::ingester_client::{IngesterClient, InternalRpcClient};
use crate::rpc::ingester_service::parse_tenant;
use crate::rpc::result_stream::{ResultFrame, StreamChecksum, build_frames, collect_frames};

/// Time limit of a call to a querier.
const QUERIER_CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Retry delay for a querier that does not respond.
const QUERIER_RETRY_AFTER: Duration = Duration::from_secs(2);
/// Maximum bytes of one frame of a response.
const MAX_FRAME_BYTES: usize = 1 << 20;
/// Hints for clients if a query or a record is gone.
const RESTART_QUERY_HINT: &str = "begin it again";
const RERECORD_QUERY_HINT: &str = "have another query recorded";

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
    pub introductions: Arc<PeerHandshake>,
}

// === impl QuerierClient ===

impl QuerierClient {
    /// Returns the node of a handle, or an error if a call would be useless.
    fn may_be_asked(&self, ticket: QueryHandleId, way_out: &str) -> Result<NodeId, Status> {
        let node = ticket.node;
        match why_not(self.members.current().get(&node)) {
            None => Ok(node),
            Some((code, why)) => Err(absent(ticket, code, why, way_out)),
        }
    }

    async fn asked(
        &self,
        ticket: QueryHandleId,
        errand: &PeerRequest<'_>,
    ) -> Result<AsyncQueryReport, Status> {
        let node = self.may_be_asked(ticket, RESTART_QUERY_HINT)?;
        let limit = errand.remaining_time().min(QUERIER_CALL_TIMEOUT);
        let InternalRpcClient { peers, introductions } = self.ways.remote_client()?;
        let id = ticket.to_string();
        let tenants = names(errand.tenants());
        let sum = question(&id, errand.tenants());
        let request = wire::LookRequest { caller: Some(introductions.caller(node, limit)), tenants, id };
        let mut answer = Vec::new();
        let take = |piece: Bytes| {
            // Memory for the frame and for its copy in the whole response.
            errand.reserve_memory(2 * piece.len())?;
            answer.extend_from_slice(&piece);
            Ok(())
        };
        let asking = async {
            let answered = peers.querier(node).look(request).await;
            let pieces = answered.map_err(|error| status_codec::from_grpc(&error))?.into_inner();
            let pieces = pieces.map_ok(piece_of).map_err(|error| status_codec::from_grpc(&error));
            collect_frames(pieces, sum, 1, take).await.map_err(|unheard| unheard.into_status())
        };
        let done = self.ways.with_timeout(node, limit, asking).await?;
        looked(done.into_iter().next(), answer)
    }
}

#[async_trait]
impl PeerQueriers for QuerierClient {
    async fn poll_async_query(
        &self,
        ticket: QueryHandleId,
        errand: &PeerRequest<'_>,
    ) -> Result<AsyncQueryReport, Status> {
        self.asked(ticket, errand).await.map_err(|status| unheard(ticket, status, RESTART_QUERY_HINT))
    }

    async fn query_record(&self, ticket: QueryHandleId, errand: &PeerRequest<'_>) -> Result<Bytes, Status> {
        let node = self.may_be_asked(ticket, RERECORD_QUERY_HINT)?;
        let limit = errand.remaining_time().min(QUERIER_CALL_TIMEOUT);
        let InternalRpcClient { peers, introductions } = self.ways.remote_client()?;
        let request = wire::RecordRequest {
            caller: Some(introductions.caller(node, limit)),
            tenants: names(errand.tenants()),
            id: ticket.to_string(),
        };
        let mut client = peers.querier(node);
        let answered = self.ways.call_node(node, limit, client.record(request)).await;
        Ok(answered.map_err(|status| unheard(ticket, status, RERECORD_QUERY_HINT))?.into_inner().record)
    }
}

/// Returns the reason if a node is unavailable, with a code that marks permanent and temporary reasons.
fn why_not(member: Option<&ClusterMember>) -> Option<(ErrorCode, &'static str)> {
    match member {
        None => Some((ErrorCode::NotFound, "is not known here, or is gone")),
        Some(member) if member.state == MemberState::Left => Some((ErrorCode::NotFound, "has left")),
        Some(member) if !member.roles.contains(&RoleName::Querier) => {
            Some((ErrorCode::NotFound, "answers no queries"))
        }
        Some(member) if !member.is_alive() => Some((ErrorCode::Unavailable, "does not answer")),
        Some(_) => None,
    }
}

/// Returns the error for a node that is unavailable.
fn absent(ticket: QueryHandleId, code: ErrorCode, why: &str, way_out: &str) -> Status {
    let node = ticket.node;
    if code == ErrorCode::NotFound {
        return Status::new(code, format!("{ticket} was kept by node {node:016x}, which {why}: {way_out}"));
    }
    let message = format!("{ticket} is kept by node {node:016x}, which {why}: ask again, or {way_out}");
    Status::new(code, message).with_retry_after(QUERIER_RETRY_AFTER)
}

/// Returns the error of a failed call: the node's own error, or that the node is unreachable.
fn unheard(ticket: QueryHandleId, status: Status, way_out: &str) -> Status {
    match status.code {
        // The error comes from the local check or from the node itself.
        ErrorCode::Unavailable if status.retry_after.is_some() => status,
        ErrorCode::Unavailable
        | ErrorCode::Deadline
        | ErrorCode::Cancelled
        | ErrorCode::Unimplemented
        | ErrorCode::Conflict => {
            absent(ticket, ErrorCode::Unavailable, &format!("does not answer ({})", status.message), way_out)
        }
        _ => status,
    }
}

/// Converts the final message of a poll and the response bytes before it.
fn looked(done: Option<wire::LookDone>, answer: Vec<u8>) -> Result<AsyncQueryReport, Status> {
    let odd = || Status::new(ErrorCode::Internal, "a node does not say how far a query is");
    let wire::LookDone { of, missing } = done.ok_or_else(odd)?;
    let progress = match of.ok_or_else(odd)? {
        Outcome::Running(_) => AsyncQueryProgress::Running,
        Outcome::Failed(why) => AsyncQueryProgress::Failed(why),
        Outcome::Shown(shown) => AsyncQueryProgress::Done(AsyncQueryResult::from_peer(
            answer.into(),
            usize::try_from(shown).unwrap_or(usize::MAX),
        )),
    };
    Ok(AsyncQueryReport { progress, missing })
}

fn names(tenants: &[TenantId]) -> Vec<String> {
    tenants.iter().map(|tenant| tenant.as_str().to_owned()).collect()
}

/// Returns the checksum of a request for an async query.
fn question(id: &str, tenants: &[TenantId]) -> StreamChecksum {
    let others = tenants.iter().skip(1).map(|tenant| tenant.as_str().as_bytes().to_vec());
    let first = tenants.first().cloned().unwrap_or_else(TenantId::anonymous);
    StreamChecksum::for_request(&first, id.as_bytes(), others)
}

fn piece_of(response: wire::LookResponse) -> ResultFrame {
    match response.of {
        Some(Of::Partial(part)) => ResultFrame::Partial(part),
        Some(Of::Done(done)) => ResultFrame::Done(done),
        Some(Of::Sum(sum)) => ResultFrame::Sum(sum),
        None => ResultFrame::Unknown,
    }
}

fn to_wire(piece: ResultFrame) -> wire::LookResponse {
    let of = match piece {
        ResultFrame::Partial(part) => Some(Of::Partial(part)),
        ResultFrame::Done(done) => Some(Of::Done(done)),
        ResultFrame::Sum(sum) => Some(Of::Sum(sum)),
        ResultFrame::Unknown => None,
    };
    wire::LookResponse { of }
}

// === impl QuerierService ===

impl QuerierService {
    fn reader(&self, caller: Option<&wire::Caller>, tenants: &[String]) -> Result<QueryContext, Status> {
        self.introductions.check_caller(caller).map_err(|stranger| Status::from_error(&stranger))?;
        tenants.iter().try_for_each(|tenant| parse_tenant(tenant).map(drop))?;
        QueryContext::parse(&tenants.join("|"))
            .map_err(|error| Status::new(ErrorCode::Invalid, error.to_string()))
    }
}

#[async_trait]
impl Queriers for QuerierService {
    type LookStream = Pin<Box<dyn Stream<Item = Result<wire::LookResponse, tonic::Status>> + Send>>;

    async fn look(
        &self,
        request: Request<wire::LookRequest>,
    ) -> Result<Response<Self::LookStream>, tonic::Status> {
        let wire::LookRequest { caller, tenants, id } = request.into_inner();
        let looked = self.reader(caller.as_ref(), &tenants).and_then(|reader| {
            let sum = question(&id, reader.tenants());
            self.querier.poll_local(&reader, &id).map(|looked| (sum, looked))
        });
        let (sum, AsyncQueryReport { progress, missing }) =
            looked.map_err(|status| status_codec::to_grpc(&status))?;
        let (of, answer) = match progress {
            AsyncQueryProgress::Running => (Outcome::Running(true), None),
            AsyncQueryProgress::Failed(why) => (Outcome::Failed(why), None),
            AsyncQueryProgress::Done(answer) => (Outcome::Shown(answer.shown as u64), Some(answer)),
        };
        let bytes = answer.as_ref().map(|answer| answer.bytes.clone()).unwrap_or_default();
        let parts = (0..bytes.len().div_ceil(MAX_FRAME_BYTES)).map(|piece| {
            let from = piece * MAX_FRAME_BYTES;
            bytes.slice(from..bytes.len().min(from + MAX_FRAME_BYTES))
        });
        let done = wire::LookDone { of: Some(of), missing };
        let said = build_frames(sum, parts, std::iter::once(done)).into_iter().map(to_wire);
        let pieces = stream::iter(said).map(move |piece| {
            // The memory reservation lasts until all frames are sent.
            let _ = &answer;
            Ok(piece)
        });
        Ok(Response::new(Box::pin(pieces)))
    }

    async fn record(
        &self,
        request: Request<wire::RecordRequest>,
    ) -> Result<Response<wire::RecordResponse>, tonic::Status> {
        let wire::RecordRequest { caller, tenants, id } = request.into_inner();
        let reader = self.reader(caller.as_ref(), &tenants);
        let record = reader.and_then(|reader| self.querier.local_query_record(&reader, &id));
        let record = record.map_err(|status| status_codec::to_grpc(&status))?;
        Ok(Response::new(wire::RecordResponse { record }))
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
    fn who_is_gone_is_told_apart_from_who_does_not_answer() {
        let code = |roles: &[RoleName], state, alive| {
            why_not(Some(&member(roles, state, alive))).map(|(code, _)| code)
        };
        let querier = [RoleName::Querier];
        assert_eq!(code(&querier, MemberState::Ready, true), None);
        assert_eq!(code(&querier, MemberState::Draining, true), None);
        assert_eq!(code(&querier, MemberState::Ready, false), Some(ErrorCode::Unavailable));
        assert_eq!(code(&querier, MemberState::Left, true), Some(ErrorCode::NotFound));
        assert_eq!(code(&querier, MemberState::Left, false), Some(ErrorCode::NotFound));
        assert_eq!(code(&[RoleName::Ingester], MemberState::Ready, true), Some(ErrorCode::NotFound));
        assert_eq!(why_not(None).map(|(code, _)| code), Some(ErrorCode::NotFound));
        let ticket = QueryHandleId::parse("00000000-0000-0003-0000-000000000001").unwrap();
        let gone = absent(ticket, ErrorCode::NotFound, "has left", RESTART_QUERY_HINT);
        assert_eq!(
            gone.message,
            "00000000-0000-0003-0000-000000000001 was kept by node 0000000000000003, which has left: begin it again"
        );
        for (code, told) in [
            (ErrorCode::Deadline, ErrorCode::Unavailable),
            (ErrorCode::Unimplemented, ErrorCode::Unavailable),
            (ErrorCode::NotFound, ErrorCode::NotFound),
            (ErrorCode::Exhausted, ErrorCode::Exhausted),
        ] {
            assert_eq!(unheard(ticket, Status::new(code, "why"), RESTART_QUERY_HINT).code, told);
        }
    }

    #[test]
    fn an_answer_that_says_nothing_is_none() {
        let said = |of| looked(Some(wire::LookDone { of, missing: vec!["half".to_owned()] }), vec![1, 2]);
        assert!(looked(None, vec![]).is_err() && said(None).is_err());
        assert!(matches!(said(Some(Outcome::Running(true))).unwrap().progress, AsyncQueryProgress::Running));
        let AsyncQueryReport { progress, missing } = said(Some(Outcome::Shown(7))).unwrap();
        let AsyncQueryProgress::Done(AsyncQueryResult { bytes, shown, .. }) = progress else {
            panic!("no answer")
        };
        assert_eq!((&bytes[..], shown, missing), (&[1, 2][..], 7, vec!["half".to_owned()]));
    }
}
