//! What queriers keep, asked for by others: queries that one runs in the background, and records of queries.
//!
//! Who keeps something is in its ticket. A node that is not there any more is told apart from one that does not answer
//! now: what the first kept is gone, and the second may be asked again.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{Code, Status, TenantId};
use athanor_cluster::greeting::Introductions;
use athanor_cluster::members::{Member, MemberState, Members, RoleName};
use athanor_cluster::{NodeId, failure};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::look_done::Of as Outcome;
use athanor_proto::athanor::internal::v1::look_response::Of;
use athanor_proto::athanor::internal::v1::queriers_server::Queriers;
use athanor_querier::{Answered, Elsewhere, Errand, Looked, Progress, Querier, Reader, Ticket};
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use tonic::{Request, Response};

use crate::kept::tenant_of;
use crate::pieces::{Piece, Sum, receive, summed};
use crate::ways::{Afar, Ways};

/// How long a node may take to answer.
const TRY: Duration = Duration::from_secs(60);
/// When to ask again whoever does not answer.
const AGAIN: Duration = Duration::from_secs(2);
/// Bytes of an answer that are sent at once.
const PIECE: usize = 1 << 20;
/// What to do where a query is gone, and where a record is.
const BEGIN: &str = "begin it again";
const RECORD: &str = "have another query recorded";

/// The other queriers.
pub struct Polls {
    /// How they are reached.
    pub ways: Ways,
    /// Who is there.
    pub members: Members,
}

/// This querier, for others.
#[derive(Clone)]
pub struct Polled {
    /// What is kept here.
    pub querier: Querier,
    /// Knows who calls.
    pub introductions: Arc<Introductions>,
}

// === impl Polls ===

impl Polls {
    /// Whether there is any use in asking a node.
    fn may_be_asked(&self, ticket: Ticket, way_out: &str) -> Result<NodeId, Status> {
        let node = ticket.node;
        match why_not(self.members.now().get(&node)) {
            None => Ok(node),
            Some((code, why)) => Err(absent(ticket, (code, why), way_out)),
        }
    }

    async fn asked(&self, ticket: Ticket, errand: &Errand<'_>) -> Result<Looked, Status> {
        let node = self.may_be_asked(ticket, BEGIN)?;
        let limit = errand.left().min(TRY);
        let Afar { peers, introductions } = self.ways.others()?;
        let (id, tenants) = (ticket.to_string(), names(errand.tenants()));
        let sum = question(&id, errand.tenants());
        let request = wire::LookRequest { caller: Some(introductions.caller(node, limit)), tenants, id };
        let mut answer = Vec::new();
        let take = |piece: Bytes| {
            // As a piece, and as a part of the whole.
            errand.take(2 * piece.len())?;
            answer.extend_from_slice(&piece);
            Ok(())
        };
        let asking = async {
            let answered = peers.queriers(node).look(request).await;
            let pieces = answered.map_err(|error| failure::from_grpc(&error))?.into_inner();
            let pieces = pieces.map_ok(piece_of).map_err(|error| failure::from_grpc(&error));
            receive(pieces, sum, 1, take).await.map_err(|unheard| unheard.status())
        };
        let done = self.ways.within(node, limit, asking).await?;
        looked(done.into_iter().next(), answer)
    }
}

#[async_trait]
impl Elsewhere for Polls {
    async fn look(&self, ticket: Ticket, errand: &Errand<'_>) -> Result<Looked, Status> {
        self.asked(ticket, errand).await.map_err(|status| unheard(ticket, status, BEGIN))
    }

    async fn record(&self, ticket: Ticket, errand: &Errand<'_>) -> Result<Bytes, Status> {
        let node = self.may_be_asked(ticket, RECORD)?;
        let limit = errand.left().min(TRY);
        let Afar { peers, introductions } = self.ways.others()?;
        let request = wire::RecordRequest {
            caller: Some(introductions.caller(node, limit)),
            tenants: names(errand.tenants()),
            id: ticket.to_string(),
        };
        let mut client = peers.queriers(node);
        let answered = self.ways.called(node, limit, client.record(request)).await;
        Ok(answered.map_err(|status| unheard(ticket, status, RECORD))?.into_inner().record)
    }
}

/// Why a node cannot be asked, and whether that may pass.
fn why_not(member: Option<&Member>) -> Option<(Code, &'static str)> {
    match member {
        None => Some((Code::NotFound, "is not known here, or is gone")),
        Some(member) if member.state == MemberState::Left => Some((Code::NotFound, "has left")),
        Some(member) if !member.roles.contains(&RoleName::Querier) => {
            Some((Code::NotFound, "answers no queries"))
        }
        Some(member) if !member.is_alive() => Some((Code::Unavailable, "does not answer")),
        Some(_) => None,
    }
}

/// What a client is told of a node that cannot be asked.
fn absent(ticket: Ticket, (code, why): (Code, &str), way_out: &str) -> Status {
    let node = ticket.node;
    if code == Code::NotFound {
        return Status::new(code, format!("{ticket} was kept by node {node:016x}, which {why}: {way_out}"));
    }
    let message = format!("{ticket} is kept by node {node:016x}, which {why}: ask again, or {way_out}");
    Status::new(code, message).after(AGAIN)
}

/// What a client is told where a call has failed: that node's own word, unless it gave none.
fn unheard(ticket: Ticket, status: Status, way_out: &str) -> Status {
    match status.code {
        // It was found here that the node cannot be asked, or the node said so.
        Code::Unavailable if status.retry_after.is_some() => status,
        Code::Unavailable | Code::Deadline | Code::Cancelled | Code::Unimplemented | Code::Conflict => {
            absent(ticket, (Code::Unavailable, &format!("does not answer ({})", status.message)), way_out)
        }
        _ => status,
    }
}

/// What a node said of a query, and the answer that came before that.
fn looked(done: Option<wire::LookDone>, answer: Vec<u8>) -> Result<Looked, Status> {
    let odd = || Status::new(Code::Internal, "a node does not say how far a query is");
    let wire::LookDone { of, missing } = done.ok_or_else(odd)?;
    let progress = match of.ok_or_else(odd)? {
        Outcome::Running(_) => Progress::Running,
        Outcome::Failed(why) => Progress::Failed(why),
        Outcome::Shown(shown) => {
            Progress::Done(Answered::sent(answer.into(), usize::try_from(shown).unwrap_or(usize::MAX)))
        }
    };
    Ok(Looked { progress, missing })
}

fn names(tenants: &[TenantId]) -> Vec<String> {
    tenants.iter().map(|tenant| tenant.as_str().to_owned()).collect()
}

/// The sum of a question for a query.
fn question(id: &str, tenants: &[TenantId]) -> Sum {
    let others = tenants.iter().skip(1).map(|tenant| tenant.as_str().as_bytes().to_vec());
    let first = tenants.first().cloned().unwrap_or_else(TenantId::anonymous);
    Sum::of(&first, id.as_bytes(), others)
}

fn piece_of(response: wire::LookResponse) -> Piece {
    match response.of {
        Some(Of::Partial(part)) => Piece::Partial(part),
        Some(Of::Done(done)) => Piece::Done(done),
        Some(Of::Sum(sum)) => Piece::Sum(sum),
        None => Piece::Unknown,
    }
}

fn to_wire(piece: Piece) -> wire::LookResponse {
    let of = match piece {
        Piece::Partial(part) => Some(Of::Partial(part)),
        Piece::Done(done) => Some(Of::Done(done)),
        Piece::Sum(sum) => Some(Of::Sum(sum)),
        Piece::Unknown => None,
    };
    wire::LookResponse { of }
}

// === impl Polled ===

impl Polled {
    fn reader(&self, caller: Option<&wire::Caller>, tenants: &[String]) -> Result<Reader, Status> {
        self.introductions.check(caller).map_err(|stranger| Status::of(&stranger))?;
        tenants.iter().try_for_each(|tenant| tenant_of(tenant).map(drop))?;
        Reader::parse(&tenants.join("|")).map_err(|error| Status::new(Code::Invalid, error.to_string()))
    }
}

#[async_trait]
impl Queriers for Polled {
    type LookStream = Pin<Box<dyn Stream<Item = Result<wire::LookResponse, tonic::Status>> + Send>>;

    async fn look(
        &self,
        request: Request<wire::LookRequest>,
    ) -> Result<Response<Self::LookStream>, tonic::Status> {
        let wire::LookRequest { caller, tenants, id } = request.into_inner();
        let looked = self.reader(caller.as_ref(), &tenants).and_then(|reader| {
            let sum = question(&id, reader.tenants());
            self.querier.look_here(&reader, &id).map(|looked| (sum, looked))
        });
        let (sum, Looked { progress, missing }) = looked.map_err(|status| failure::to_grpc(&status))?;
        let (of, answer) = match progress {
            Progress::Running => (Outcome::Running(true), None),
            Progress::Failed(why) => (Outcome::Failed(why), None),
            Progress::Done(answer) => (Outcome::Shown(answer.shown as u64), Some(answer)),
        };
        let bytes = answer.as_ref().map(|answer| answer.bytes.clone()).unwrap_or_default();
        let parts = (0..bytes.len().div_ceil(PIECE)).map(|piece| {
            let from = piece * PIECE;
            bytes.slice(from..bytes.len().min(from + PIECE))
        });
        let done = wire::LookDone { of: Some(of), missing };
        let said = summed(sum, parts, std::iter::once(done)).into_iter().map(to_wire);
        let pieces = stream::iter(said).map(move |piece| {
            // Its room is taken until all are sent.
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
        let record = reader.and_then(|reader| self.querier.record_here(&reader, &id));
        let record = record.map_err(|status| failure::to_grpc(&status))?;
        Ok(Response::new(wire::RecordResponse { record }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn member(roles: &[RoleName], state: MemberState, alive: bool) -> Member {
        Member {
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
        assert_eq!(code(&querier, MemberState::Ready, false), Some(Code::Unavailable));
        assert_eq!(code(&querier, MemberState::Left, true), Some(Code::NotFound));
        assert_eq!(code(&querier, MemberState::Left, false), Some(Code::NotFound));
        assert_eq!(code(&[RoleName::Ingester], MemberState::Ready, true), Some(Code::NotFound));
        assert_eq!(why_not(None).map(|(code, _)| code), Some(Code::NotFound));
        let ticket = Ticket::parse("00000000-0000-0003-0000-000000000001").unwrap();
        let gone = absent(ticket, (Code::NotFound, "has left"), BEGIN);
        assert_eq!(
            gone.message,
            "00000000-0000-0003-0000-000000000001 was kept by node 0000000000000003, which has left: begin it again"
        );
        for (code, told) in [
            (Code::Deadline, Code::Unavailable),
            (Code::Unimplemented, Code::Unavailable),
            (Code::NotFound, Code::NotFound),
            (Code::Exhausted, Code::Exhausted),
        ] {
            assert_eq!(unheard(ticket, Status::new(code, "why"), BEGIN).code, told);
        }
    }

    #[test]
    fn an_answer_that_says_nothing_is_none() {
        let said = |of| looked(Some(wire::LookDone { of, missing: vec!["half".to_owned()] }), vec![1, 2]);
        assert!(looked(None, vec![]).is_err() && said(None).is_err());
        assert!(matches!(said(Some(Outcome::Running(true))).unwrap().progress, Progress::Running));
        let Looked { progress, missing } = said(Some(Outcome::Shown(7))).unwrap();
        let Progress::Done(Answered { bytes, shown, .. }) = progress else { panic!("no answer") };
        assert_eq!((&bytes[..], shown, missing), (&[1, 2][..], 7, vec!["half".to_owned()]));
    }
}
