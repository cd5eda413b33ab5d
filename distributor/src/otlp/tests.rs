use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{ByteSize, Clock, ComputePool, LimitOverrides, Random};
use athanor_profile::generate::{FlightChunk, FlightEvent, arbitrary_profile};
use athanor_profile::{ValueType, formats::pprof};
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::distributor::{DistributorConfig, DistributorDeps, ShardWriter};
use crate::stored_profile::ProfileOutcome as Fate;

const NEW: StoredProfile = StoredProfile {
    outcome: Fate::New,
    raw_bytes: 1,
    samples: 1,
    dropped: StoredProfile::EMPTY_BODY.dropped,
};

fn stored() -> ExportOutcome {
    ExportOutcome { stored: vec![NEW], refused: None }
}

fn bad(why: &str) -> ExportOutcome {
    refused_with(Status::new(ErrorCode::Invalid, why))
}

fn refused_with(status: Status) -> ExportOutcome {
    ExportOutcome { stored: Vec::new(), refused: Some(status) }
}

#[test]
fn some_that_are_refused_are_told_beside_those_that_are_stored() {
    let mut outcomes = vec![stored(), bad("no name"), stored()];
    let exported = summarize_export(outcomes.clone()).unwrap();
    assert_eq!((exported.receipt.new, exported.rejected), (2, 1));
    assert_eq!(exported.message, "1 of 3 profiles are not stored; profile 2: no name");
    assert_eq!(
        exported.encode_response(OtlpEncoding::Json),
        br#"{"partialSuccess":{"errorMessage":"1 of 3 profiles are not stored; profile 2: no name","rejectedProfiles":"1"}}"#
    );
    outcomes.extend((0..9).map(|_| bad("no time")));
    let message = summarize_export(outcomes).unwrap().message;
    assert!(message.starts_with("10 of 12 profiles are not stored; profile 2: no name; profile 4: no time"));
    assert!(message.ends_with("; and 5 more"), "{message}");
}

#[test]
fn all_that_are_refused_are_an_error_and_so_is_one_that_may_be_stored_later() {
    let refused = summarize_export(vec![bad("a"), bad("b")]).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Invalid);
    assert_eq!(refused.message, "2 of 2 profiles are not stored; profile 1: a; profile 2: b");
    let busy = Status::new(ErrorCode::Unavailable, "busy").with_retry_after(Duration::from_secs(3));
    let refused = summarize_export(vec![stored(), bad("a"), refused_with(busy)]).unwrap_err();
    assert_eq!((refused.code, refused.retry_after), (ErrorCode::Unavailable, Some(Duration::from_secs(3))));
    assert_eq!(summarize_export(vec![]), Ok(ExportSummary::default()));
    assert_eq!(ExportSummary::default().encode_response(OtlpEncoding::Protobuf), [0u8; 0]);
    assert_eq!(ExportSummary::default().encode_response(OtlpEncoding::Json), b"{}");
}

const BOUNDS: OtlpLimits = OtlpLimits { profile: 1 << 20, total: 1 << 20, profiles: 10 };

fn payload(format: &str, bytes: Vec<u8>) -> Result<ServiceProfile, Status> {
    let content = OtlpProfileContent::Payload { format: format.to_owned(), bytes: 0..bytes.len() };
    let made = OtlpProfile { labels: Vec::new(), id: None, time_nanos: 7, content };
    let (body, jfr) = (bytes.into(), JfrLimits::for_bytes(1 << 20));
    service_profiles(made, &mut PayloadReader::new(&body, &BOUNDS, &jfr)).map(|mut ready| ready.remove(0))
}

#[test]
fn a_kind_of_a_recording_is_refused_alone() {
    let allocated = |weight| FlightEvent {
        name: "jdk.ObjectAllocationSample",
        stack: vec![("App".to_owned(), "main".to_owned(), 1)],
        numbers: vec![("weight", weight)],
        ..FlightEvent::default()
    };
    let running = FlightEvent { name: "jdk.ExecutionSample", ..allocated(0) };
    let bare = FlightEvent { name: "profiler.LiveObject", stack: Vec::new(), ..allocated(0) };
    let events = vec![running, allocated(i64::MAX as u64), allocated(1), bare];
    let bytes = FlightChunk { compressed: true, ticks: 1, events }.chunk();
    let content = OtlpProfileContent::Payload { format: "jfr".to_owned(), bytes: 0..bytes.len() };
    let made = OtlpProfile { labels: Vec::new(), id: None, time_nanos: 7, content };
    let (body, jfr) = (bytes.into(), JfrLimits::for_bytes(1 << 20));
    let parts = service_profiles(made, &mut PayloadReader::new(&body, &BOUNDS, &jfr)).unwrap();
    assert!(matches!(&parts[0].pprof, Ok(Some(pprof)) if !pprof.is_empty()));
    assert_eq!(
        parts[1].pprof.as_ref().unwrap_err().message,
        "original_payload: values of profile alloc_sample_objects of the flight recording add up to over 63 bits: \
         record for a shorter time"
    );
    assert_eq!((&parts[2].pprof, parts[2].without_stack), (&Ok(None), 1));
}

#[test]
fn what_a_sender_says_of_the_event_of_a_recording_is_said_once() {
    let texts = vec![("name", "event".to_owned()), ("value", "wall".to_owned())];
    let setting = FlightEvent { name: "jdk.ActiveSetting", texts, ..FlightEvent::default() };
    let stack = vec![("App".to_owned(), "main".to_owned(), 1)];
    let running = FlightEvent { name: "jdk.ExecutionSample", stack, ..FlightEvent::default() };
    let bytes = FlightChunk { compressed: true, ticks: 1, events: vec![setting, running] }.chunk();
    for (sent, expected) in [(None, "wall"), (Some("own"), "own")] {
        let content = OtlpProfileContent::Payload { format: "jfr".to_owned(), bytes: 0..bytes.len() };
        let labels = sent.map(|sent| ("jfr_event".to_owned(), sent.to_owned())).into_iter().collect();
        let made = OtlpProfile { labels, id: None, time_nanos: 7, content };
        let (body, jfr) = (bytes.clone().into(), JfrLimits::for_bytes(1 << 20));
        let parts = service_profiles(made, &mut PayloadReader::new(&body, &BOUNDS, &jfr)).unwrap();
        let events = parts[0].labels.iter().filter(|(name, _)| name == "jfr_event");
        assert_eq!(events.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn a_payload_is_named_by_its_types() {
    let mut profile = arbitrary_profile(1);
    let kind = ValueType { kind: "alloc_space".to_owned(), unit: "bytes".to_owned() };
    profile.header.types.fill(kind);
    let bytes = pprof::encode(&profile);
    let ready = payload("pprof", bytes.clone()).unwrap();
    assert_eq!(ready.labels, [("__name__".to_owned(), "memory".to_owned())]);
    assert_eq!((ready.pprof, ready.time_nanos), (Ok(Some(Bytes::copy_from_slice(&bytes))), 7));
    let refused = |format, bytes| payload(format, bytes).err().map(|status| status.to_string()).unwrap();
    assert_eq!(refused("pprof", vec![]), "original_payload: profile has no sample type");
    assert!(refused("jfr", vec![1, 2]).starts_with("original_payload: not a flight recording"));
    assert_eq!(
        refused("linux_perf", vec![1]),
        "profile has no samples, and an original_payload of the unsupported format \"linux_perf\"; send pprof, \
         jfr or samples"
    );
}

#[test]
fn what_is_stored_in_part_is_counted_and_told() {
    let mut half = stored();
    half.add_result(Err(Status::new(ErrorCode::Invalid, "no name")));
    let exported = summarize_export(vec![half.clone(), bad("no time")]).unwrap();
    assert_eq!((exported.receipt.new, exported.rejected), (1, 2));
    assert_eq!(
        exported.message,
        "2 of 2 profiles are not stored, 1 of them partly stored; profile 1 (partly stored): no name; profile 2: no time"
    );
    let alone = summarize_export(vec![half.clone()]).unwrap();
    assert_eq!((alone.receipt.new, alone.rejected), (1, 1));
    half.add_result(Err(Status::new(ErrorCode::Unavailable, "busy")));
    half.add_result(Err(Status::new(ErrorCode::Invalid, "no name")));
    assert_eq!(summarize_export(vec![half]).unwrap_err().code, ErrorCode::Unavailable);
}

#[test]
fn what_is_too_long_says_which_setting_and_what_to_do() {
    let mut profile = arbitrary_profile(1);
    profile.header.comments = vec!["x".repeat(3000)];
    let bytes = pprof::encode(&profile);
    let tell = |bounds: OtlpLimits, format: &str, jfr: usize| {
        let content = OtlpProfileContent::Payload { format: format.to_owned(), bytes: 0..bytes.len() };
        let made = OtlpProfile { labels: Vec::new(), id: None, time_nanos: 7, content };
        let (body, jfr) = (bytes.clone().into(), JfrLimits::for_bytes(jfr));
        let status = service_profiles(made, &mut PayloadReader::new(&body, &bounds, &jfr)).err().unwrap();
        (status.metric_reason(), status.message)
    };
    for (bounds, format, jfr, reason, way_out) in [
        (
            OtlpLimits { profile: 100, ..BOUNDS },
            "pprof",
            1000,
            "profile_size_limit",
            " 100 (limits.max_profile_size_bytes): ",
        ),
        (
            OtlpLimits { total: 100, ..BOUNDS },
            "pprof",
            1000,
            "body_size_limit_exceeded",
            "at most limits.ingestion_body_limit): ",
        ),
        (
            BOUNDS,
            "jfr",
            100,
            "profile_size_limit",
            " 100 (limits.ingestion_body_limit): record for a shorter",
        ),
        (
            OtlpLimits { total: 99, ..BOUNDS },
            "jfr",
            100,
            "body_size_limit_exceeded",
            " 99, the rest of the budget of the request ",
        ),
    ] {
        let (found, message) = tell(bounds, format, jfr);
        assert!(found == reason && message.contains(way_out), "{found} {message}");
    }
}

/// Shards that refuse what a service named `bad` sends, and while they store the first request let another one come.
#[derive(Default)]
struct House {
    door: OnceLock<Distributor>,
    another: Mutex<Option<Bytes>>,
    heard: Mutex<Vec<Result<ExportSummary, Status>>>,
    services: Mutex<Vec<(String, Option<String>)>>,
}

#[async_trait]
impl ShardWriter for House {
    async fn append(
        &self,
        tenant: &TenantId,
        uploads: Vec<ProfileUpload>,
    ) -> Vec<Result<StoredProfile, Status>> {
        let another = self.another.lock().take();
        if let Some(body) = another {
            let heard = self.door.get().unwrap().export(tenant, body, OtlpEncoding::Json).await;
            self.heard.lock().push(heard);
        }
        let store = |upload: ProfileUpload| {
            let service = upload.labels.get(SERVICE_LABEL).unwrap_or_default().to_owned();
            let is_bad = service == "bad";
            let dotted = upload.sent.get("service.name").map(str::to_owned);
            self.services.lock().push((service, dotted));
            if is_bad { Err(Status::new(ErrorCode::Invalid, "a bad service")) } else { Ok(NEW) }
        };
        uploads.into_iter().map(store).collect()
    }
}

impl House {
    fn open(max_inflight_bytes: ByteSize, limits: TenantLimits) -> Arc<Self> {
        let house = Arc::new(House::default());
        let deps = DistributorDeps {
            overrides: LimitOverrides::new(limits),
            clock: Clock::system(),
            random: Random::from_seed(1),
            compute: ComputePool::inline(),
            shards: Arc::clone(&house) as _,
        };
        let config = DistributorConfig { max_inflight_bytes, ..DistributorConfig::default() };
        house.door.set(Distributor::new(config, deps)).ok().unwrap();
        house
    }

    async fn export(&self, body: Bytes) -> Result<ExportSummary, Status> {
        self.door.get().unwrap().export(&TenantId::anonymous(), body, OtlpEncoding::Json).await
    }
}

/// As many profiles, whose samples are of these services beside that of the resource, all of a function with such a name.
fn request(profiles: usize, services: &[&str], name: &str) -> Bytes {
    let attribute = |service: &&str| json!({"keyStrindex": 3, "value": {"stringValue": service}});
    let attributes: Vec<_> = std::iter::once(json!({})).chain(services.iter().map(attribute)).collect();
    let sample = |index: usize| json!({"stackIndex": 1, "attributeIndices": [index], "values": [1]});
    let samples: Vec<_> = (0..attributes.len()).map(sample).collect();
    let kind = json!({"typeStrindex": 1});
    let profile = json!({"sampleType": kind, "periodType": kind, "samples": samples});
    let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]});
    let request = json!({
        "resourceProfiles": [{"resource": resource, "scopeProfiles": [{"profiles": vec![profile; profiles]}]}],
        "dictionary": {
            "stringTable": ["", "wall", name, "service.name"],
            "functionTable": [{}, {"nameStrindex": 2}],
            "locationTable": [{}, {"lines": [{"functionIndex": 1}]}],
            "stackTable": [{}, {"locationIndices": [1]}],
            "attributeTable": attributes,
        }
    });
    request.to_string().into_bytes().into()
}

#[tokio::test]
async fn what_comes_of_an_export_takes_room_until_it_is_stored() {
    let body = request(30, &[], &"x".repeat(5000));
    assert!(body.len() < 20_000, "{}", body.len());
    let house = House::open(ByteSize::bytes(200_000), TenantLimits::default());
    *house.another.lock() = Some(body.clone());
    house.export(body.clone()).await.unwrap();
    let heard = house.heard.lock().pop().unwrap().unwrap_err();
    assert!(heard.code == ErrorCode::Exhausted && heard.metric_reason() == "inflight_limit", "{heard}");
    house.export(body).await.unwrap();
}

#[tokio::test]
async fn services_of_a_profile_are_stored_or_refused_by_themselves() {
    let house = House::open(ByteSize::mib(1), TenantLimits::default());
    let exported = house.export(request(1, &["bad", "good"], "main")).await.unwrap();
    assert_eq!((exported.receipt.new, exported.rejected), (2, 1));
    assert!(exported.message.contains("partly stored"), "{}", exported.message);
    let long = "x".repeat(3000);
    let exported = house.export(request(1, &[&long], "main")).await.unwrap();
    assert_eq!((exported.receipt.new, exported.rejected), (1, 1));
    assert!(exported.message.contains("limits.max_label_value_length"), "{}", exported.message);
}

#[tokio::test]
async fn a_service_has_one_name_where_dots_are_none() {
    let of = |service: &str, dotted: Option<&str>| (service.to_owned(), dotted.map(str::to_owned));
    for (disable_label_sanitization, dotted) in [(true, Some("shop")), (false, None)] {
        let limits = TenantLimits { disable_label_sanitization, ..TenantLimits::default() };
        let house = House::open(ByteSize::mib(1), limits);
        assert_eq!(house.export(request(1, &["one"], "main")).await.unwrap().rejected, 0);
        let services = house.services.lock().clone();
        assert_eq!(services, [of("shop", Some("shop")), of("one", dotted)]);
    }
}
