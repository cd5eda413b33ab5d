//! Server in memory that dedups profiles, for tests of the spool and its delivery.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{Clock, ComputePool, ErrorCode, Random, Status, TaskGroup, Timestamp};
use athanor_profile::formats::pprof::inflate;
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::types::v1::LabelPair;
use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;

use super::{Delivery, DeliveryRequest, DeliveryResponse, ServerConnection};
use crate::spool::{Spool, SpoolConfig, SpoolDisks, SpoolRuntime};
use crate::upload::{Upload, UploadOrder, UploadOrigin, UploadRoute};

pub(crate) const START: Timestamp = Timestamp::from_seconds(1_700_000_000);

/// Server with faults.
#[derive(Default)]
pub(crate) struct DedupServer {
    pub(crate) state: Mutex<ServerState>,
}

#[derive(Default)]
pub(crate) struct ServerState {
    /// First stored profile of each id, and the time at which it was stored.
    pub(crate) stored: BTreeMap<String, (Vec<u8>, Duration)>,
    /// Ids in the order in which they were stored first, by series.
    pub(crate) order: BTreeMap<String, Vec<String>>,
    /// Error of all requests.
    pub(crate) outage: Option<Status>,
    /// Body of the responses to all OTLP exports.
    pub(crate) otlp_response: Option<Bytes>,
    /// Error of the requests of each tenant.
    pub(crate) tenant_outages: BTreeMap<String, Status>,
    /// Time that all requests hang without being processed, as in a partition of the network.
    pub(crate) hang: Option<Duration>,
    /// Decides about random failures: before storing, or after it so that the response is lost.
    pub(crate) random_failures: Option<Random>,
    /// Ids whose profiles are rejected, with the error text.
    pub(crate) rejected: BTreeMap<String, String>,
    pub(crate) requests: usize,
    pub(crate) in_flight: usize,
    pub(crate) max_in_flight: usize,
    pub(crate) clock: Option<Clock>,
    pub(crate) tenants: BTreeSet<Option<String>>,
    /// Time that the server takes for a request.
    pub(crate) latency: Duration,
}

/// Upload with one profile whose id is `series/number`.
pub(crate) fn upload(series: &str, number: u64, order: UploadOrder, origin: UploadOrigin) -> Upload {
    let request = PushRequest { series: vec![series_of(series, &[format!("{series}/{number}")])] };
    Upload {
        tenant: None,
        route: UploadRoute::Push,
        body: request.encode_to_vec().into(),
        profiles: 1,
        order,
        origin,
        time: START,
    }
}

pub(crate) fn series_of(name: &str, ids: &[String]) -> RawProfileSeries {
    let labels = vec![LabelPair { name: "service_name".to_owned(), value: name.to_owned() }];
    let samples = ids
        .iter()
        .map(|id| RawSample { raw_profile: format!("profile {id}").into_bytes().into(), id: id.clone() });
    RawProfileSeries { labels, samples: samples.collect(), ..RawProfileSeries::default() }
}

/// Environment whose time is that of a paused tokio runtime.
pub(crate) fn simulated_runtime(seed: u64) -> SpoolRuntime {
    let clock = Clock::starting_at(START);
    SpoolRuntime {
        tasks: TaskGroup::new(clock.clone(), 100),
        clock,
        random: Random::from_seed(seed),
        compute: ComputePool::inline(),
    }
}

pub(crate) async fn open_spool(disks: SpoolDisks, config: SpoolConfig, runtime: &SpoolRuntime) -> Spool {
    Spool::open("main", disks, config, runtime.clone()).await.unwrap()
}

/// Waits on simulated time until a condition holds.
pub(crate) async fn wait_until(runtime: &SpoolRuntime, what: &str, condition: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if condition() {
            return;
        }
        runtime.clock.sleep(Duration::from_millis(20)).await;
    }
    panic!("timeout: {what}");
}

pub(crate) async fn wait_until_delivered(delivery: &Delivery, runtime: &SpoolRuntime) {
    wait_until(runtime, "the spool is empty", || delivery.snapshot().spool_files == 0).await;
}

impl DedupServer {
    pub(crate) fn new(runtime: &SpoolRuntime) -> Arc<Self> {
        let server = Self::default();
        server.state.lock().clock = Some(runtime.clock.clone());
        Arc::new(server)
    }

    pub(crate) fn stored_ids(&self) -> BTreeSet<String> {
        self.state.lock().stored.keys().cloned().collect()
    }

    /// Checks that the stored ids are the expected ones, each with the bytes of its upload.
    pub(crate) fn assert_stored(&self, expected: &BTreeSet<String>) {
        assert_eq!(self.stored_ids(), *expected);
        for (id, (profile, _)) in &self.state.lock().stored {
            assert_eq!(String::from_utf8_lossy(profile), format!("profile {id}"));
        }
    }

    pub(crate) fn deliver(self: &Arc<Self>, spool: &Spool, runtime: &SpoolRuntime) -> Delivery {
        let connection: Arc<dyn ServerConnection> = Arc::clone(self) as _;
        Delivery::start(spool.clone(), connection, runtime.clone()).unwrap()
    }

    fn process(&self, request: &DeliveryRequest) -> Result<DeliveryResponse, Status> {
        let mut state = self.state.lock();
        if let Some(outage) = &state.outage {
            return Err(outage.clone());
        }
        let tenant = request.tenant.as_ref().map(ToString::to_string);
        if let Some(outage) = state.tenant_outages.get(&tenant.unwrap_or_default()) {
            return Err(outage.clone());
        }
        let fault = state.random_failures.as_ref().map_or(9, |random| random.next_below(10));
        if fault < 3 {
            return Err(Status::new(ErrorCode::Unavailable, "random failure"));
        }
        if matches!(request.route, UploadRoute::Ingest { .. }) {
            return Err(Status::new(ErrorCode::NotFound, "no such path"));
        }
        if request.route == UploadRoute::Otlp
            && let Some(body) = &state.otlp_response
        {
            return Ok(DeliveryResponse { body: body.clone() });
        }
        assert!(request.is_gzip);
        let body = inflate(&request.body, 1 << 24).unwrap();
        let request = PushRequest::decode(&body[..]).unwrap();
        let samples = || request.series.iter().flat_map(|series| &series.samples);
        if let Some(text) = samples().find_map(|sample| state.rejected.get(&sample.id)) {
            return Err(Status::new(ErrorCode::Invalid, text.clone()));
        }
        let now = state.clock.as_ref().unwrap().monotonic();
        for series in &request.series {
            for RawSample { raw_profile, id } in &series.samples {
                if let Some((first, _)) = state.stored.get(id) {
                    assert_eq!(first, raw_profile, "a retry changed {id}");
                    continue;
                }
                state.stored.insert(id.clone(), (raw_profile.to_vec(), now));
                let series = series.labels[0].value.clone();
                state.order.entry(series).or_default().push(id.clone());
            }
        }
        if fault < 5 {
            return Err(Status::new(ErrorCode::Deadline, "the response is lost"));
        }
        Ok(DeliveryResponse::default())
    }
}

#[async_trait]
impl ServerConnection for DedupServer {
    fn address(&self) -> String {
        "http://server".to_owned()
    }

    async fn send(&self, request: DeliveryRequest) -> Result<DeliveryResponse, Status> {
        let (clock, latency, hang) = {
            let mut state = self.state.lock();
            state.requests += 1;
            state.in_flight += 1;
            state.max_in_flight = state.max_in_flight.max(state.in_flight);
            state.tenants.insert(request.tenant.as_ref().map(ToString::to_string));
            (state.clock.clone().unwrap(), state.latency, state.hang)
        };
        clock.sleep(hang.unwrap_or(latency)).await;
        let response = match hang {
            Some(_) => Err(Status::new(ErrorCode::Deadline, "no response")),
            None => self.process(&request),
        };
        self.state.lock().in_flight -= 1;
        response
    }
}
