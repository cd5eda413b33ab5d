//! Tests of the receiver through its routes.

mod captured;
mod export;
mod ingested;
mod port;
mod pushed;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::{Clock, ComputePool, Random, Status, TenantId, Timestamp};
use athanor_http_server::PeerAddress;
use athanor_profile::Labels;
use athanor_proto::google::v1::{Profile, ValueType};
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::types::v1::LabelPair;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use bytes::Bytes;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use prost::Message;
use tower_service::Service;

use super::{PeerLabels, ProfileReceiver, ReceiverParams};
use crate::config::{ReceiveSettings, TenantRules};
use crate::upload::{Upload, UploadRoute, UploadSink};

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);
const PUSH_PATH: &str = "/push.v1.PusherService/Push";
const POD_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

/// Sink that records uploads, or refuses them.
#[derive(Default)]
struct RecordingSink {
    uploads: Mutex<Vec<Upload>>,
    refusal: Mutex<Option<Status>>,
}

#[async_trait]
impl UploadSink for RecordingSink {
    async fn store(&self, upload: Upload) -> Result<(), Status> {
        if let Some(refusal) = &*self.refusal.lock() {
            return Err(refusal.clone());
        }
        self.uploads.lock().push(upload);
        Ok(())
    }
}

/// One pod that owns [`POD_ADDRESS`].
struct OnePod;

impl PeerLabels for OnePod {
    fn labels(&self, peer: IpAddr) -> Option<Labels> {
        let pairs = [
            ("namespace", "shop"),
            ("pod", "cart-0"),
            ("__meta_kubernetes_namespace", "shop"),
            ("__meta_kubernetes_pod_container_name", "cart"),
        ];
        (peer == POD_ADDRESS).then(|| labels(&pairs))
    }
}

/// Receiver with its sink.
struct TestReceiver {
    receiver: ProfileReceiver,
    sink: Arc<RecordingSink>,
}

/// Response with its whole body.
struct TestResponse {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
    trailers: HeaderMap,
}

impl TestReceiver {
    fn new(settings: ReceiveSettings) -> Self {
        Self::with_seed(settings, 1)
    }

    fn with_seed(settings: ReceiveSettings, seed: u64) -> Self {
        let sink = Arc::new(RecordingSink::default());
        let params = ReceiverParams {
            settings,
            sink: Arc::clone(&sink) as Arc<dyn UploadSink>,
            peers: Arc::new(OnePod),
            clock: Clock::manual(Timestamp::from_nanos(NOW.nanos() + seed as i64)).0,
            random: Random::from_seed(seed),
            compute: ComputePool::inline(),
        };
        Self { receiver: ProfileReceiver::new(params), sink }
    }

    async fn call(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> TestResponse {
        let mut request = Request::post(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(body.into()).unwrap();
        request.extensions_mut().insert(PeerAddress(SocketAddr::new(POD_ADDRESS, 5)));
        let response = self.receiver.router().call(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let collected = body.collect().await.unwrap();
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let status = parts.status.as_u16();
        TestResponse { status, headers: parts.headers, body: collected.to_bytes(), trailers }
    }

    /// Calls a route that stores exactly one upload.
    async fn upload(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Upload {
        let response = self.call(path, headers, body).await;
        assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&response.body));
        let mut uploads = std::mem::take(&mut *self.sink.uploads.lock());
        assert_eq!(uploads.len(), 1);
        uploads.remove(0)
    }
}

impl TestResponse {
    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).or_else(|| self.trailers.get(name));
        value.map_or("", |value| value.to_str().unwrap())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Settings that add nothing.
fn plain_settings() -> ReceiveSettings {
    ReceiveSettings {
        listen_address: None,
        tenant: TenantRules { allows_header: true, label: None, fixed: None },
        labels: Labels::default(),
        adds_sender_labels: false,
    }
}

/// Settings that add the labels of senders and a zone.
fn labeling_settings() -> ReceiveSettings {
    ReceiveSettings { labels: labels(&[("zone", "a")]), adds_sender_labels: true, ..plain_settings() }
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::new(pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())))
}

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn pprof(time_nanos: i64) -> Bytes {
    let sample_type = vec![ValueType { r#type: 1, unit: 0 }];
    let string_table = vec!["".into(), "cpu".into()];
    Profile { sample_type, string_table, time_nanos, ..Profile::default() }.encode_to_vec().into()
}

fn series(pairs: &[(&str, &str)], profiles: &[(&Bytes, &str)]) -> RawProfileSeries {
    let pair = |&(name, value): &(&str, &str)| LabelPair { name: name.into(), value: value.into() };
    let sample =
        |&(profile, id): &(&Bytes, &str)| RawSample { raw_profile: Bytes::clone(profile), id: id.into() };
    RawProfileSeries {
        labels: pairs.iter().map(pair).collect(),
        samples: profiles.iter().map(sample).collect(),
        ..RawProfileSeries::default()
    }
}

fn pushed(upload: &Upload) -> PushRequest {
    assert_eq!(upload.route, UploadRoute::Push);
    PushRequest::decode(upload.body.clone()).unwrap()
}

fn pairs(series: &RawProfileSeries) -> Vec<(&str, &str)> {
    series.labels.iter().map(|pair| (&*pair.name, &*pair.value)).collect()
}

/// Returns a message with the prefix of gRPC.
fn grpc_frame(message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0];
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(message);
    frame
}
