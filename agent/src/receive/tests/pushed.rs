//! push.v1 in all protocols, tenants, labels and identities.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_chassis::ErrorCode;
use athanor_profile::formats::pprof::{gzip, inflate};
use proptest::prelude::*;

use super::*;
use crate::receive::{ReceiveForm, ReceiveOutcome};
use crate::upload::{UploadOrder, UploadOrigin};

const PROTO: [(&str, &str); 1] = [("content-type", "application/proto")];

fn request(series: Vec<RawProfileSeries>) -> PushRequest {
    PushRequest { series }
}

async fn push(receiver: &TestReceiver, series: Vec<RawProfileSeries>) -> PushRequest {
    pushed(&receiver.upload(PUSH_PATH, &PROTO, request(series).encode_to_vec()).await)
}

#[tokio::test]
async fn push_in_each_protocol_is_the_same_upload() {
    let receiver = TestReceiver::new(plain_settings());
    let profile = pprof(5);
    let message = request(vec![series(&[("__name__", "process_cpu")], &[(&profile, "id-1")])]);
    let plain = message.encode_to_vec();
    let json = serde_json::to_vec(&message).unwrap();
    let expected = receiver.upload(PUSH_PATH, &PROTO, plain.clone()).await;
    assert_eq!(pushed(&expected), message);
    assert_eq!((expected.tenant.clone(), expected.profiles, expected.time.millis()), (None, 1, NOW.millis()));
    assert_eq!((expected.order, expected.origin), (UploadOrder::Independent, UploadOrigin::Received));
    for (headers, body) in [
        (&[("content-type", "application/json")][..], json),
        (&[("content-type", "application/proto"), ("content-encoding", "gzip")], gzip(&plain)),
        (&[("content-type", "application/grpc")], grpc_frame(&plain)),
        (&[("content-type", "application/grpc-web+proto")], grpc_frame(&plain)),
    ] {
        assert_eq!(receiver.upload(PUSH_PATH, headers, body).await, expected, "{headers:?}");
    }
    let stats = receiver.receiver.stats();
    assert!(stats.requests.contains(&(ReceiveForm::Push, ReceiveOutcome::Stored, 5)));
    assert_eq!(stats.profiles[0], (ReceiveForm::Push, 5));
    assert_eq!((stats.given_identities, stats.durations.count()), (0, 5));
}

#[tokio::test]
async fn labels_of_the_sender_are_added_where_absent() {
    let receiver = TestReceiver::new(labeling_settings());
    let profile = pprof(5);
    let sent = vec![
        series(&[("__name__", "a"), ("pod", "mine")], &[(&profile, "1")]),
        series(&[("service.name", "s"), ("zone", "b")], &[(&profile, "2")]),
    ];
    let received = push(&receiver, sent).await;
    assert_eq!(
        pairs(&received.series[0]),
        [
            ("__name__", "a"),
            ("pod", "mine"),
            ("namespace", "shop"),
            ("service_name", "shop/cart"),
            ("zone", "a")
        ]
    );
    assert_eq!(
        pairs(&received.series[1]),
        [("service.name", "s"), ("zone", "b"), ("namespace", "shop"), ("pod", "cart-0")]
    );
    receiver.receiver.set_settings(plain_settings());
    let received = push(&receiver, vec![series(&[("a", "b")], &[(&profile, "1")])]).await;
    assert_eq!(pairs(&received.series[0]), [("a", "b")]);
}

#[tokio::test]
async fn profiles_of_another_agent_get_configured_labels_only() {
    let receiver = TestReceiver::new(labeling_settings());
    let body = request(vec![series(&[("__name__", "a")], &[(&pprof(5), "1")])]).encode_to_vec();
    for (user_agent, names) in [
        ("athanor-agent/1.2.3", &["__name__", "zone"][..]),
        ("my-athanor-agent/1", &["__name__", "namespace", "pod", "service_name", "zone"]),
    ] {
        let headers = [PROTO[0], ("user-agent", user_agent)];
        let received = pushed(&receiver.upload(PUSH_PATH, &headers, body.clone()).await);
        let received: Vec<_> = pairs(&received.series[0]).into_iter().map(|(name, _)| name).collect();
        assert_eq!(received, names, "{user_agent}");
    }
}

#[tokio::test]
async fn profile_with_an_id_or_a_time_gets_neither() {
    let receiver = TestReceiver::new(labeling_settings());
    let timed = Bytes::from(gzip(&pprof(5)));
    let untimed = Bytes::from(gzip(&pprof(0)));
    let damaged = Bytes::from_static(b"no profile");
    let nil = "00000000-0000-0000-0000-000000000000";
    let profiles =
        [(&timed, ""), (&timed, nil), (&timed, "id"), (&untimed, "id"), (&damaged, ""), (&Bytes::new(), "")];
    let sent = series(&[("a", "b")], &profiles);
    let received = push(&receiver, vec![sent.clone()]).await;
    assert_eq!(received.series[0].samples, sent.samples);
    assert_eq!(receiver.receiver.stats().given_identities, 0);
}

#[tokio::test]
async fn profile_with_neither_gets_an_id_and_a_time() {
    let receiver = TestReceiver::new(plain_settings());
    for untimed in [pprof(0), Bytes::from(gzip(&pprof(0)))] {
        let nil = "00000000-0000-0000-0000-000000000000";
        let sent = series(&[("a", "b")], &[(&untimed, ""), (&untimed, nil)]);
        let received = push(&receiver, vec![sent]).await;
        let [first, second] = &received.series[0].samples[..] else { panic!("two profiles were sent") };
        for sample in [first, second] {
            assert_eq!(sample.id.len(), 36, "{}", sample.id);
            assert!(sample.raw_profile.starts_with(&untimed), "bytes stay as sent");
            let profile = Profile::decode(&inflate(&sample.raw_profile, 1 << 20).unwrap()[..]).unwrap();
            assert!(profile.time_nanos >= NOW.nanos());
            assert_eq!(Profile { time_nanos: 0, ..profile }.encode_to_vec(), pprof(0));
        }
        assert!(first.id != second.id);
    }
    assert_eq!(receiver.receiver.stats().given_identities, 4);
}

#[tokio::test]
async fn first_rule_that_yields_a_tenant_decides() {
    let mut settings = plain_settings();
    settings.tenant =
        TenantRules { allows_header: true, label: Some("team".into()), fixed: Some(tenant("f")) };
    let receiver = TestReceiver::new(settings.clone());
    let profile = pprof(5);
    let named = request(vec![series(&[("team", "t")], &[(&profile, "1")])]).encode_to_vec();
    let unnamed = request(vec![series(&[("a", "b")], &[(&profile, "1")])]).encode_to_vec();
    let header = [PROTO[0], ("x-scope-orgid", "h")];
    assert_eq!(receiver.upload(PUSH_PATH, &header, named.clone()).await.tenant, Some(tenant("h")));
    assert_eq!(receiver.upload(PUSH_PATH, &PROTO, named.clone()).await.tenant, Some(tenant("t")));
    assert_eq!(receiver.upload(PUSH_PATH, &PROTO, unnamed.clone()).await.tenant, Some(tenant("f")));
    let several = [PROTO[0], ("x-scope-orgid", "h|i")];
    assert_eq!(receiver.call(PUSH_PATH, &several, named.clone()).await.status, 401);
    settings.tenant.allows_header = false;
    receiver.receiver.set_settings(settings.clone());
    assert_eq!(receiver.upload(PUSH_PATH, &several, named.clone()).await.tenant, Some(tenant("t")));
    settings.tenant = TenantRules { allows_header: false, label: None, fixed: None };
    receiver.receiver.set_settings(settings);
    assert_eq!(receiver.upload(PUSH_PATH, &header, named).await.tenant, None);
}

#[tokio::test]
async fn series_of_several_tenants_are_one_upload_each() {
    let mut settings = labeling_settings();
    settings.tenant.label = Some("namespace".into());
    let receiver = TestReceiver::new(settings);
    let profile = pprof(5);
    let all = [
        series(&[("namespace", "x")], &[(&profile, "1")]),
        series(&[("a", "b")], &[(&profile, "2")]),
        series(&[("namespace", "x")], &[(&profile, "3"), (&profile, "4")]),
    ];
    let response = receiver.call(PUSH_PATH, &PROTO, request(all.to_vec()).encode_to_vec()).await;
    assert_eq!(response.status, 200);
    let uploads = receiver.sink.uploads.lock().clone();
    let tenants: Vec<_> = uploads.iter().map(|upload| (upload.tenant.clone(), upload.profiles)).collect();
    assert_eq!(tenants, [(Some(tenant("x")), 3), (Some(tenant("shop")), 1)]);
    assert_eq!(pushed(&uploads[0]).series[1].samples[1].id, "4");
    let invalid = request(vec![series(&[("namespace", "a/b")], &[(&profile, "1")])]).encode_to_vec();
    let refused = receiver.call(PUSH_PATH, &PROTO, invalid).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("label namespace is \\\"a/b\\\""), "{}", refused.text());
}

#[tokio::test]
async fn order_of_a_series_does_not_depend_on_its_request() {
    let receiver = TestReceiver::new(plain_settings());
    let profile = pprof(5);
    let pods: Vec<String> = (0..300).map(|pod| format!("pod-{pod}")).collect();
    let of_pod = |kind: &'static str, pod| series(&[("__name__", kind), ("pod", pod)], &[(&profile, "1")]);
    let mut all = Vec::new();
    let mut alone = BTreeMap::new();
    for pod in &pods {
        for kind in ["memory", "process_cpu", "mutex"] {
            let single = of_pod(kind, pod);
            let body = request(vec![single.clone()]).encode_to_vec();
            let order = receiver.upload(PUSH_PATH, &PROTO, body).await.order;
            assert_eq!(order == UploadOrder::Independent, kind == "process_cpu");
            alone.insert(format!("{:?}", single.labels), order);
            all.push(single);
        }
        assert_eq!(alone[&format!("{:?}", of_pod("memory", pod).labels)], {
            alone[&format!("{:?}", of_pod("mutex", pod).labels)]
        });
    }
    let body = request(all.clone()).encode_to_vec();
    let [first, retry] = [(); 2].map(|()| body.clone());
    let mut stored = Vec::new();
    for body in [first, retry] {
        assert_eq!(receiver.call(PUSH_PATH, &PROTO, body).await.status, 200);
        stored.push(std::mem::take(&mut *receiver.sink.uploads.lock()));
    }
    assert_eq!(stored[0], stored[1], "a retry is the same uploads");
    assert!((32..=65).contains(&stored[0].len()), "{} uploads", stored[0].len());
    let mut together = BTreeMap::new();
    for upload in &stored[0] {
        let series = pushed(upload).series;
        assert_eq!(upload.profiles as usize, series.len());
        together.extend(series.iter().map(|series| (format!("{:?}", series.labels), upload.order)));
    }
    assert_eq!(together, alone);
}

#[tokio::test]
async fn kinds_that_may_be_snapshots_are_ordered() {
    let receiver = TestReceiver::new(plain_settings());
    let profile = pprof(5);
    let order = async |labels: &[(&str, &str)]| {
        let body = request(vec![series(labels, &[(&profile, "1")])]).encode_to_vec();
        receiver.upload(PUSH_PATH, &PROTO, body).await.order
    };
    let delta: &[_] = &[("__name__", "memory"), ("__delta__", "false")];
    let counters: &[_] = &[("__name__", "files"), ("__delta__", "bytes_read")];
    assert_eq!(order(delta).await, UploadOrder::Independent);
    assert_eq!(order(&[("__name__", "process_cpu")]).await, UploadOrder::Independent);
    assert!(matches!(order(counters).await, UploadOrder::Cumulative(_)));
}

#[tokio::test]
async fn full_spool_is_a_429_with_a_delay() {
    let receiver = TestReceiver::new(plain_settings());
    let full = Status::new(ErrorCode::Exhausted, "spool is full").with_retry_after(Duration::from_secs(7));
    *receiver.sink.refusal.lock() = Some(full);
    let profile = pprof(5);
    let body = request(vec![series(&[("a", "b")], &[(&profile, "1")])]).encode_to_vec();
    let refused = receiver.call(PUSH_PATH, &PROTO, body.clone()).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "7"));
    assert!(refused.text().contains("resource_exhausted"), "{}", refused.text());
    let grpc = receiver.call(PUSH_PATH, &[("content-type", "application/grpc")], grpc_frame(&body)).await;
    assert_eq!((grpc.status, grpc.header("grpc-status")), (200, "8"));
    let stats = receiver.receiver.stats();
    assert!(stats.requests.contains(&(ReceiveForm::Push, ReceiveOutcome::Exhausted, 2)));
    assert_eq!(stats.profiles[0], (ReceiveForm::Push, 0));
}

#[tokio::test]
async fn request_without_profiles_is_refused() {
    let receiver = TestReceiver::new(plain_settings());
    let refused = receiver.call(PUSH_PATH, &PROTO, request(vec![series(&[], &[])]).encode_to_vec()).await;
    assert_eq!(refused.status, 400);
    assert_eq!(receiver.call(PUSH_PATH, &PROTO, &b"\x0a\x7f"[..]).await.status, 400);
    assert_eq!(receiver.call(PUSH_PATH, &[("content-type", "text/plain")], "").await.status, 415);
    assert_eq!(receiver.call("/nowhere", &PROTO, "").await.status, 404);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn retry_through_another_agent_is_the_same_upload(
        profiles in proptest::collection::vec((any::<bool>(), "[1-9a-f]{0,4}", any::<bool>()), 1..5),
        pod in proptest::option::of("[a-z]{1,3}"),
    ) {
        let profiles: Vec<(Bytes, String)> = profiles
            .into_iter()
            .map(|(is_timed, id, is_gzip)| {
                let plain = pprof(if is_timed || id.is_empty() { 7 } else { 0 });
                (if is_gzip { gzip(&plain).into() } else { plain }, id)
            })
            .collect();
        let profiles: Vec<_> = profiles.iter().map(|(profile, id)| (profile, id.as_str())).collect();
        let pod = pod.as_deref().map(|pod| ("pod", pod));
        let sent: Vec<_> = [("__name__", "process_cpu")].into_iter().chain(pod).collect();
        let body = request(vec![series(&sent, &profiles)]).encode_to_vec();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let [first, second] = [1, 2].map(|seed| {
            let agent = TestReceiver::with_seed(labeling_settings(), seed);
            runtime.block_on(agent.upload(PUSH_PATH, &PROTO, body.clone()))
        });
        prop_assert_eq!(Upload { time: second.time, ..first }, second);
    }
}
