//! A server with one small profile in it.

use athanor_chassis::{Clock, TenantId};
use athanor_integration::server::TestServer;
use athanor_proto::google::v1::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::types::v1::LabelPair;
use prost::Message;
use serde_json::{Value, json};

/// A type that nothing else is of.
pub const TYPE: &str = "deadmans_switch:made_up:profilos:made_up:profilos";
pub const SELECTOR: &str = r#"{service_name="canary"}"#;
/// The span of one of the samples.
pub const SPAN: &str = "00000bac2a5ab0c7";
pub const TENANT: &str = "birds";
/// `func1;func2 10` in base64.
pub const BY_HAND: &str = "ZnVuYzE7ZnVuYzIgMTA=";

/// Milliseconds around the profile.
#[derive(Clone, Copy)]
pub struct Times {
    pub start: i64,
    pub end: i64,
}

/// One that holds the profile, which was pushed on the wire.
pub struct Aviary {
    pub server: TestServer,
    pub times: Times,
    /// The id of another one that was uploaded by hand.
    pub upload: String,
}

impl Aviary {
    /// `multitenancy`: the profile is then that of [`TENANT`].
    pub fn new(multitenancy: bool) -> Self {
        let server = TestServer::start(|config| config.multitenancy_enabled = multitenancy);
        let now = Clock::system().wall().nanos();
        let tenant = if multitenancy { TENANT.parse().unwrap() } else { TenantId::anonymous() };
        let headers = [("content-type", "application/proto"), ("x-scope-orgid", tenant.as_str())];
        let pushed =
            server.post("/push.v1.PusherService/Push", &headers, &push("canary", now).encode_to_vec());
        assert_eq!((pushed.status, pushed.body.len()), (200, 0), "{}", String::from_utf8_lossy(&pushed.body));
        let headers = [("content-type", "application/json"), headers[1]];
        let by_hand = json!({ "name": "by hand", "profile": BY_HAND }).to_string();
        let kept = server.post("/adhocprofiles.v1.AdHocProfileService/Upload", &headers, by_hand.as_bytes());
        let kept: Value = serde_json::from_slice(&kept.body).unwrap();
        let upload = kept["id"].as_str().unwrap().to_owned();
        let millis = now / 1_000_000;
        Self { upload, server, times: Times { start: millis - 60_000, end: millis + 60_000 } }
    }

    /// The parts that most questions have.
    pub fn about(&self) -> Value {
        let Times { start, end } = self.times;
        json!({ "profile_typeID": TYPE, "label_selector": SELECTOR, "start": start, "end": end })
    }
}

/// The upload of the profile at a time, under the name of a service.
pub fn push(service: &str, time_nanos: i64) -> PushRequest {
    let pair = |name: &str, value: &str| LabelPair { name: name.to_owned(), value: value.to_owned() };
    let raw = RawSample { raw_profile: profile(time_nanos).encode_to_vec().into(), ..RawSample::default() };
    let labels = vec![pair("__name__", "deadmans_switch"), pair("service_name", service)];
    PushRequest {
        series: vec![RawProfileSeries { labels, samples: vec![raw], ..RawProfileSeries::default() }],
    }
}

/// `func1;func2` with 10, and `func1` with 20 in a span.
pub fn profile(time_nanos: i64) -> Profile {
    let texts = ["", "made_up", "profilos", "func1", "func2", "profile_id", SPAN, "canary.go"];
    let value = ValueType { r#type: 1, unit: 2 };
    let function = |id, name| Function { id, name, filename: 7, ..Function::default() };
    let location = |id| Location {
        id,
        mapping_id: 1,
        line: vec![Line { function_id: id, line: 1, ..Line::default() }],
        ..Location::default()
    };
    let in_span = Label { key: 5, str: 6, ..Label::default() };
    Profile {
        sample_type: vec![value],
        sample: vec![
            Sample { location_id: vec![2, 1], value: vec![10], label: vec![] },
            Sample { location_id: vec![1], value: vec![20], label: vec![in_span] },
        ],
        mapping: vec![Mapping { id: 1, has_functions: true, ..Mapping::default() }],
        location: vec![location(1), location(2)],
        function: vec![function(1, 3), function(2, 4)],
        string_table: texts.map(str::to_owned).to_vec(),
        time_nanos,
        duration_nanos: 1_000_000_000,
        period_type: Some(value),
        period: 1,
        ..Profile::default()
    }
}
