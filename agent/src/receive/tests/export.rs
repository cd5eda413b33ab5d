//! OpenTelemetry exports over HTTP and gRPC.

use std::time::Duration;

use athanor_chassis::ErrorCode;
use athanor_profile::formats::otlp::{OtlpLimits, OtlpProfile, OtlpProfileContent, from_json, read};
use athanor_profile::formats::pprof::gzip;
use proptest::prelude::*;

use super::*;
use crate::receive::ReceiveForm;
use crate::receive::otlp::{GRPC_EXPORT_PATH, HTTP_EXPORT_PATH};
use crate::receive::wire::{put_bytes, put_fixed64};
use crate::upload::UploadOrder;

const PROTOBUF: [(&str, &str); 1] = [("content-type", "application/x-protobuf")];
const ID: &str = "07070707070707070707070707070707";

/// Returns an export of one profile per resource. `resources` are attributes as JSON, `profile` are fields.
fn export(resources: &[&str], profile: &str) -> Bytes {
    let resources: Vec<String> = resources
        .iter()
        .map(|attributes| {
            format!(
                r#"{{"resource": {{"attributes": [{attributes}]}}, "scopeProfiles": [{{"scope": {{"name": "s"}},
                "profiles": [{{"sampleType": {{"typeStrindex": 1, "unitStrindex": 2}}, "periodType":
                {{"typeStrindex": 1, "unitStrindex": 2}}, "samples": [{{"stackIndex": 1, "values": ["3"]}}] {profile}}}]}}]}}"#
            )
        })
        .collect();
    let json = format!(
        r#"{{"resourceProfiles": [{}], "dictionary": {{"stringTable": ["", "cpu", "nanoseconds", "host.name"],
        "functionTable": [{{}}, {{"nameStrindex": 1}}], "locationTable": [{{}}, {{"lines": [{{"functionIndex": 1}}]}}],
        "stackTable": [{{}}, {{"locationIndices": [1]}}], "mappingTable": [{{}}], "linkTable": [{{}}],
        "attributeTable": [{{}}, {{"keyStrindex": 3, "value": {{"stringValue": "h"}}}}]}}}}"#,
        resources.join(",")
    );
    from_json(json.as_bytes(), 1 << 20).unwrap().into()
}

fn attribute(name: &str, value: &str) -> String {
    format!(r#"{{"key": "{name}", "value": {{"stringValue": "{value}"}}}}"#)
}

/// Returns the profiles of an upload, as a server reads them.
fn profiles(body: &[u8]) -> Vec<OtlpProfile> {
    let limits = OtlpLimits { profile: 1 << 20, total: 1 << 24, profiles: 100 };
    let export = read(body, &limits).unwrap();
    export.profiles.into_iter().flat_map(Result::unwrap).collect()
}

fn label<'p>(profile: &'p OtlpProfile, name: &str) -> Option<&'p str> {
    profile.labels.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Returns the pprof that a server makes of a profile, without its time.
fn without_time(profile: &OtlpProfile) -> Profile {
    let OtlpProfileContent::Pprof(pprof) = &profile.content else { panic!("the profile is a payload") };
    Profile { time_nanos: 0, ..Profile::decode(&pprof[..]).unwrap() }
}

fn timed() -> String {
    r#", "timeUnixNano": "5""#.to_owned()
}

#[tokio::test]
async fn export_in_each_protocol_passes_unchanged() {
    let receiver = TestReceiver::new(plain_settings());
    let body = export(&[&attribute("service.name", "cart")], &timed());
    let zstd_free = gzip(&body);
    for (path, headers, sent) in [
        (HTTP_EXPORT_PATH, &PROTOBUF[..], body.to_vec()),
        (HTTP_EXPORT_PATH, &[PROTOBUF[0], ("content-encoding", "gzip")], zstd_free),
        (GRPC_EXPORT_PATH, &[("content-type", "application/grpc")], grpc_frame(&body)),
        (GRPC_EXPORT_PATH, &[("content-type", "application/proto")], body.to_vec()),
    ] {
        let upload = receiver.upload(path, headers, sent).await;
        assert_eq!((&upload.body, &upload.route), (&body, &UploadRoute::Otlp), "{headers:?}");
        assert_eq!((upload.profiles, upload.order), (1, UploadOrder::Independent));
    }
    assert_eq!(receiver.receiver.stats().profiles[2], (ReceiveForm::Otlp, 4));
}

#[tokio::test]
async fn json_is_stored_as_protobuf() {
    let receiver = TestReceiver::new(plain_settings());
    let json = r#"{"resourceProfiles": [{"scopeProfiles": [{"profiles": [{"timeUnixNano": "5"}]}]}], "dictionary": {}}"#;
    for (path, headers) in [
        (HTTP_EXPORT_PATH, [("content-type", "application/json; charset=utf-8")]),
        (GRPC_EXPORT_PATH, [("content-type", "application/json")]),
    ] {
        let upload = receiver.upload(path, &headers, json).await;
        assert_eq!(upload.body, from_json(json.as_bytes(), 1 << 20).unwrap());
    }
    let refused = receiver.call(HTTP_EXPORT_PATH, &[("content-type", "application/json")], "{").await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().starts_with("{\"message\":\"failed to convert the export"), "{}", refused.text());
}

#[tokio::test]
async fn attributes_are_added_where_absent() {
    let mut settings = labeling_settings();
    settings.labels.set("host_name", "agent");
    let receiver = TestReceiver::new(settings);
    let body = export(&[&attribute("pod", "mine"), ""], &timed());
    let upload = receiver.upload(HTTP_EXPORT_PATH, &PROTOBUF, body).await;
    let [first, second] = &profiles(&upload.body)[..] else { panic!("two profiles were sent") };
    assert_eq!((label(first, "pod"), label(second, "pod")), (Some("mine"), Some("cart-0")));
    for profile in [first, second] {
        assert_eq!(label(profile, "service.name").or(label(profile, "service_name")), Some("shop/cart"));
        assert_eq!((label(profile, "namespace"), label(profile, "zone")), (Some("shop"), Some("a")));
        assert_eq!(label(profile, "host_name"), None, "an attribute of profiles has that name");
        assert_eq!(profile.time_nanos, 5);
    }
}

#[tokio::test]
async fn profile_with_an_id_or_a_time_gets_neither() {
    let receiver = TestReceiver::new(plain_settings());
    for fields in [timed(), format!(r#", "profileId": "{ID}""#)] {
        let body = export(&[""], &fields);
        assert_eq!(receiver.upload(HTTP_EXPORT_PATH, &PROTOBUF, body.clone()).await.body, body);
    }
    assert_eq!(receiver.receiver.stats().given_identities, 0);
    let body = export(&["", ""], "");
    let upload = receiver.upload(HTTP_EXPORT_PATH, &PROTOBUF, body).await;
    let [first, second] = &profiles(&upload.body)[..] else { panic!("two profiles were sent") };
    assert!(first.time_nanos >= NOW.nanos() && second.time_nanos > first.time_nanos);
    assert!(first.id.is_some() && second.id.is_some() && first.id != second.id);
    assert_eq!(without_time(first), without_time(second));
}

#[tokio::test]
async fn payload_has_a_time_of_its_own() {
    let receiver = TestReceiver::new(plain_settings());
    for (format, payload, is_given) in
        [("pprof", pprof(5), false), ("pprof", pprof(0), true), ("jfr", Bytes::from_static(b"FLR"), false)]
    {
        let mut profile = Vec::new();
        put_fixed64(&mut profile, 3, 0);
        put_bytes(&mut profile, 9, format.as_bytes());
        put_bytes(&mut profile, 10, &payload);
        let mut body = Vec::new();
        for number in [2, 2, 1] {
            body = {
                let mut outer = Vec::new();
                put_bytes(&mut outer, number, if body.is_empty() { &profile } else { &body });
                outer
            };
        }
        let upload = receiver.upload(HTTP_EXPORT_PATH, &PROTOBUF, body.clone()).await;
        assert_eq!(upload.body != body, is_given, "{format}");
        assert_eq!(matches!(upload.order, UploadOrder::Cumulative(_)), format == "pprof");
    }
}

#[tokio::test]
async fn resources_of_several_tenants_are_one_upload_each() {
    let mut settings = plain_settings();
    settings.tenant.label = Some("team".into());
    let receiver = TestReceiver::new(settings);
    let body = export(&[&attribute("team", "x"), "", &attribute("team", "x")], &timed());
    assert_eq!(receiver.call(HTTP_EXPORT_PATH, &PROTOBUF, body).await.status, 200);
    let uploads = receiver.sink.uploads.lock().clone();
    let tenants: Vec<_> = uploads.iter().map(|upload| (upload.tenant.clone(), upload.profiles)).collect();
    assert_eq!(tenants, [(Some(tenant("x")), 2), (None, 1)]);
    assert_eq!([profiles(&uploads[0].body).len(), profiles(&uploads[1].body).len()], [2, 1]);
}

#[tokio::test]
async fn order_of_a_resource_does_not_depend_on_its_export() {
    let receiver = TestReceiver::new(plain_settings());
    let snapshot = |pod: &str| format!("{}, {}", attribute("__delta__", "heap"), attribute("pod", pod));
    let (a, b, c) = (snapshot("a"), attribute("pod", "b"), snapshot("c"));
    let mut orders = Vec::new();
    for resource in [&a, &b, &c] {
        let body = export(&[resource], &timed());
        orders.push(receiver.upload(HTTP_EXPORT_PATH, &PROTOBUF, body).await.order);
    }
    assert_eq!((orders[0], orders[1]), (orders[2], UploadOrder::Independent));
    let whole = export(&[&a, &b, &c], &timed());
    assert_eq!(receiver.call(HTTP_EXPORT_PATH, &PROTOBUF, whole.clone()).await.status, 200);
    let uploads = std::mem::take(&mut *receiver.sink.uploads.lock());
    let pods = |upload: &Upload| {
        let profiles = profiles(&upload.body);
        profiles.iter().map(|profile| label(profile, "pod").unwrap().to_owned()).collect::<Vec<_>>()
    };
    let found: Vec<_> = uploads.iter().map(|upload| (upload.order, pods(upload))).collect();
    assert_eq!(found, [(orders[0], vec!["a".into(), "c".into()]), (orders[1], vec!["b".into()])]);
    assert_eq!(receiver.call(HTTP_EXPORT_PATH, &PROTOBUF, whole).await.status, 200);
    assert_eq!(*receiver.sink.uploads.lock(), uploads, "a retry is the same uploads");
}

#[tokio::test]
async fn copies_of_the_dictionary_are_bounded() {
    let mut settings = plain_settings();
    settings.tenant.label = Some("team".into());
    let receiver = TestReceiver::new(settings);
    let teams: Vec<String> = (0..300).map(|team| attribute("team", &format!("t{team}"))).collect();
    let teams: Vec<&str> = teams.iter().map(String::as_str).collect();
    let mut body = export(&teams, &timed()).to_vec();
    assert_eq!(receiver.call(HTTP_EXPORT_PATH, &PROTOBUF, body.clone()).await.status, 200);
    let mut dictionary = Vec::new();
    put_bytes(&mut dictionary, 5, &vec![b'x'; 1 << 20]);
    put_bytes(&mut body, 2, &dictionary);
    let refused = receiver.call(HTTP_EXPORT_PATH, &PROTOBUF, body).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("send fewer tenants per export"), "{}", refused.text());
}

#[tokio::test]
async fn full_spool_is_temporary_for_exporters() {
    let receiver = TestReceiver::new(plain_settings());
    let full = Status::new(ErrorCode::Exhausted, "spool is full").with_retry_after(Duration::from_secs(7));
    *receiver.sink.refusal.lock() = Some(full);
    let body = export(&[""], &timed());
    let refused = receiver.call(HTTP_EXPORT_PATH, &PROTOBUF, body.clone()).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "7"));
    let grpc = [("content-type", "application/grpc")];
    assert_eq!(receiver.call(GRPC_EXPORT_PATH, &grpc, grpc_frame(&body)).await.header("grpc-status"), "14");
    *receiver.sink.refusal.lock() = None;
    let stored = receiver.call(GRPC_EXPORT_PATH, &grpc, grpc_frame(&body)).await;
    assert_eq!((stored.header("grpc-status"), &stored.body[..]), ("0", &grpc_frame(b"")[..]));
}

#[tokio::test]
async fn damaged_export_is_refused() {
    let receiver = TestReceiver::new(plain_settings());
    for body in [&b"\x0a\x7f"[..], b"", b"\x12\x00"] {
        assert_eq!(receiver.call(HTTP_EXPORT_PATH, &PROTOBUF, body).await.status, 400, "{body:?}");
    }
    assert_eq!(receiver.call(HTTP_EXPORT_PATH, &[("content-type", "text/plain")], "x").await.status, 415);
    let encoded = [PROTOBUF[0], ("content-encoding", "br")];
    assert_eq!(receiver.call(HTTP_EXPORT_PATH, &encoded, "x").await.status, 400);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_stored_or_refused(
        cut in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let whole = export(&[&attribute("pod", "x"), ""], "");
        let mut body = whole[..cut.index(whole.len())].to_vec();
        if !body.is_empty() {
            let place = place.index(body.len());
            body[place] = byte;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let receiver = TestReceiver::new(labeling_settings());
        let status = runtime.block_on(receiver.call(HTTP_EXPORT_PATH, &PROTOBUF, body)).status;
        prop_assert_eq!(receiver.sink.uploads.lock().len(), usize::from(status == 200));
        prop_assert!(matches!(status, 200 | 400), "{}", status);
    }

    #[test]
    fn retry_through_another_agent_is_the_same_upload(has_id: bool, pod in proptest::option::of("[a-z]{1,3}")) {
        let fields = if has_id { format!(r#", "profileId": "{ID}""#) } else { timed() };
        let pod = pod.map(|pod| attribute("pod", &pod)).unwrap_or_default();
        let body = export(&[&pod, &attribute("zone", "b")], &fields);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let [first, second] = [1, 2].map(|seed| {
            let agent = TestReceiver::with_seed(labeling_settings(), seed);
            runtime.block_on(agent.upload(HTTP_EXPORT_PATH, &PROTOBUF, body.clone()))
        });
        prop_assert_eq!(Upload { time: second.time, ..first }, second);
    }
}
