//! Server side of the raft transport.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use athanor_chassis::{Clock, Status};
use athanor_proto::athanor::internal::v1::raft_frame::Frame;
use athanor_proto::athanor::internal::v1::raft_service_server::RaftService;
use athanor_proto::athanor::internal::v1::{Hello, RaftFrame};
use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Request, Response, Streaming};

use super::frames::{FrameAssembler, RaftMessage, SendLanes, StreamDirection};
use super::{HELLO_TIMEOUT, SendQueueError};
use crate::NodeId;
use crate::handshake::PeerHandshake;
use crate::status_codec;

/// Upper bounds of one peer's running calls and of their bytes. At the bound the server stops reading from
/// the peer.
const MAX_CONCURRENT_CALLS: usize = 4096;
const MAX_IN_FLIGHT_BYTES: usize = 64 << 20;

/// Handler of calls to the raft groups of a node.
#[async_trait::async_trait]
pub trait RaftHandler: Send + Sync + 'static {
    /// Handles a call of another node to a group.
    async fn handle_call(&self, from: NodeId, group: u32, request: Bytes) -> Result<Bytes, Status>;
}

/// gRPC service that accepts raft streams of other nodes.
#[derive(Clone)]
pub struct RaftTransportServer {
    hear: Arc<dyn RaftHandler>,
    handshake: Arc<PeerHandshake>,
    clock: Clock,
    stop: CancellationToken,
}

/// Call of a peer that the handler has finished.
struct FinishedCall {
    id: u64,
    /// Length of the request.
    request_bytes: usize,
    result: Result<Bytes, Status>,
}

/// Server side of one raft stream. Responses are sent as calls finish.
pub struct RaftResponseStream {
    from: NodeId,
    hear: Arc<dyn RaftHandler>,
    hello: Option<Hello>,
    /// Calls of the peer. None after the peer's half of the stream ended.
    incoming: Option<Streaming<RaftFrame>>,
    assembler: FrameAssembler,
    under_way: FuturesUnordered<BoxFuture<'static, FinishedCall>>,
    bytes: usize,
    lanes: SendLanes,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl RaftTransportServer {
    /// Creates a server that handles calls with `hear`. After `stop`, it reads no more, and streams end after
    /// their last responses.
    pub fn new(
        hear: Arc<dyn RaftHandler>,
        handshake: Arc<PeerHandshake>,
        clock: Clock,
        stop: CancellationToken,
    ) -> Self {
        Self { hear, handshake, clock, stop }
    }
}

#[async_trait::async_trait]
impl RaftService for RaftTransportServer {
    type StreamStream = RaftResponseStream;

    async fn stream(
        &self,
        request: Request<Streaming<RaftFrame>>,
    ) -> Result<Response<RaftResponseStream>, tonic::Status> {
        let mut incoming = request.into_inner();
        let late =
            |_| tonic::Status::deadline_exceeded(format!("peer sent no hello within {HELLO_TIMEOUT:?}"));
        let first = self.clock.timeout(HELLO_TIMEOUT, incoming.message()).await.map_err(late)??;
        let header = match first.and_then(|frame| frame.frame) {
            Some(Frame::Hello(hello)) => hello.header,
            _ => None,
        };
        let checked = self.handshake.check_caller(header.as_ref());
        let from = checked.map_err(|error| status_codec::to_grpc(&Status::from_error(&error)))?;
        let hello = Hello { header: Some(self.handshake.call_header(from, HELLO_TIMEOUT)) };
        Ok(Response::new(RaftResponseStream {
            from,
            hear: Arc::clone(&self.hear),
            hello: Some(hello),
            incoming: Some(incoming),
            assembler: FrameAssembler::new(StreamDirection::Calls),
            under_way: FuturesUnordered::new(),
            bytes: 0,
            lanes: SendLanes::default(),
            stop: Box::pin(self.stop.clone().cancelled_owned()),
        }))
    }
}

impl RaftResponseStream {
    /// Reads calls and starts them, up to the bounds. An error ends the stream.
    fn poll_calls(&mut self, context: &mut Context<'_>) -> Result<(), tonic::Status> {
        if self.incoming.is_some() && self.stop.as_mut().poll(context).is_ready() {
            self.incoming = None;
        }
        while self.under_way.len() < MAX_CONCURRENT_CALLS && self.bytes < MAX_IN_FLIGHT_BYTES {
            let Some(incoming) = &mut self.incoming else { return Ok(()) };
            match Pin::new(incoming).poll_next(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => self.incoming = None,
                Poll::Ready(Some(frame)) => {
                    let bad = |error: super::FrameError| tonic::Status::invalid_argument(error.to_string());
                    if let Some(RaftMessage::Call { id, group, data }) =
                        self.assembler.add_frame(frame?).map_err(bad)?
                    {
                        self.start_call(id, group, data);
                    }
                }
            }
        }
        Ok(())
    }

    fn start_call(&mut self, id: u64, group: u32, data: Bytes) {
        let hear = Arc::clone(&self.hear);
        let from = self.from;
        let request_bytes = data.len();
        self.bytes += request_bytes;
        self.under_way.push(Box::pin(async move {
            let result = hear.handle_call(from, group, data).await;
            FinishedCall { id, request_bytes, result }
        }));
    }

    /// Queues a response. If it does not fit, its failure is sent instead. If that does not fit either, the
    /// peer reads no responses, and the stream fails.
    fn queue_response(&mut self, finished: FinishedCall) -> Result<(), tonic::Status> {
        let FinishedCall { id, request_bytes, result } = finished;
        self.bytes -= request_bytes;
        let result = result.map_err(|status| status_codec::encode_status(&status, None));
        let rejected = match self.lanes.push(RaftMessage::Response { id, result }) {
            Ok(()) => return Ok(()),
            Err(error) => Status::from_error(&error),
        };
        let error = Err(status_codec::encode_status(&rejected, None));
        let message = RaftMessage::Response { id, result: error };
        let unread = |error: SendQueueError| {
            tonic::Status::resource_exhausted(format!("peer reads no responses: {error}"))
        };
        self.lanes.push(message).map_err(unread)
    }
}

impl Stream for RaftResponseStream {
    type Item = Result<RaftFrame, tonic::Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(hello) = this.hello.take() {
            return Poll::Ready(Some(Ok(RaftFrame { frame: Some(Frame::Hello(hello)) })));
        }
        loop {
            if let Err(status) = this.poll_calls(context) {
                this.incoming = None;
                this.under_way.clear();
                this.lanes = SendLanes::default();
                return Poll::Ready(Some(Err(status)));
            }
            match Pin::new(&mut this.under_way).poll_next(context) {
                Poll::Ready(Some(heard)) => match this.queue_response(heard) {
                    Ok(()) => continue,
                    Err(status) => return Poll::Ready(Some(Err(status))),
                },
                Poll::Ready(None) | Poll::Pending => {}
            }
            return match this.lanes.next() {
                Some(frame) => Poll::Ready(Some(Ok(frame))),
                None if this.incoming.is_none() && this.under_way.is_empty() => Poll::Ready(None),
                None => Poll::Pending,
            };
        }
    }
}
