//! `/ingest` in its forms.

use std::time::Duration;

use athanor_chassis::ErrorCode;
use athanor_profile::formats::pprof::gzip;

use super::*;
use crate::receive::{ReceiveForm, ReceiveOutcome};
use crate::upload::UploadOrder;

fn query(upload: &Upload) -> &str {
    match &upload.route {
        UploadRoute::Ingest { query, .. } => query,
        route => panic!("not an ingest upload: {route:?}"),
    }
}

fn form(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in parts {
        body.extend_from_slice(
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n").as_bytes(),
        );
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--b--\r\n");
    body
}

const FORM_TYPE: (&str, &str) = ("content-type", "multipart/form-data; boundary=b");

#[tokio::test]
async fn body_and_other_parameters_pass_unchanged() {
    let receiver = TestReceiver::new(labeling_settings());
    let headers = [("content-type", "a/b"), ("content-encoding", "gzip"), ("x-scope-orgid", "t")];
    let body = &b"\x1f\x8b any bytes"[..];
    for path in ["/ingest", "/pyroscope/ingest"] {
        let path =
            format!("{path}?format=pprof&name=app%7Bpod%3Dmine%7D&from=5&until=6&x=%41+%zz&spyName=gospy");
        let upload = receiver.upload(&path, &headers, body).await;
        let route = UploadRoute::Ingest {
            query: "format=pprof&name=app%7Bnamespace%3Dshop%2Czone%3Da%2Cpod%3Dmine%7D&from=5&until=6&x=%41+%zz&\
                    spyName=gospy"
                .into(),
            content_type: "a/b".into(),
            content_encoding: "gzip".into(),
        };
        assert_eq!((upload.route, &upload.body[..]), (route, body));
        assert_eq!((upload.tenant, upload.order), (Some(tenant("t")), UploadOrder::Independent));
    }
    assert!(receiver.receiver.stats().requests.contains(&(ReceiveForm::Ingest, ReceiveOutcome::Stored, 2)));
}

#[tokio::test]
async fn profile_with_its_own_time_gets_none() {
    let receiver = TestReceiver::new(plain_settings());
    let timed = gzip(&pprof(5));
    let parts = form(&[("profile", &timed)]);
    for (parameters, headers, body) in [
        ("name=a&format=pprof", &[][..], timed.clone()),
        ("name=a&format=pprof", &[FORM_TYPE], parts.clone()),
        ("name=a", &[FORM_TYPE], parts),
        ("name=a&format=jfr", &[], b"FLR\0".to_vec()),
        ("name=a&from=7", &[], b"a;b 1".to_vec()),
        ("name=a&format=pprof", &[], b"damaged".to_vec()),
    ] {
        let upload = receiver.upload(&format!("/ingest?{parameters}"), headers, body.clone()).await;
        assert_eq!((query(&upload), &upload.body[..]), (parameters, &body[..]));
    }
    assert_eq!(receiver.receiver.stats().given_identities, 0);
}

#[tokio::test]
async fn profile_without_a_time_gets_a_unique_one() {
    let receiver = TestReceiver::new(plain_settings());
    let untimed = gzip(&pprof(0));
    let parts = form(&[("sample_type_config", b"{}"), ("profile", &untimed)]);
    let mut queries = Vec::new();
    for (parameters, headers, body) in [
        ("name=a&format=pprof", &[][..], untimed),
        ("name=a", &[FORM_TYPE], parts),
        ("name=a", &[], b"a;b 1".to_vec()),
        ("name=a", &[], b"a;b 1".to_vec()),
        ("name=a&format=tree", &[], Vec::new()),
        ("name=a&format=pprof", &[("content-type", "binary/octet-stream+trie")], b"any bytes".to_vec()),
    ] {
        let upload = receiver.upload(&format!("/ingest?{parameters}"), headers, body.clone()).await;
        let time = query(&upload).strip_prefix(parameters).unwrap().strip_prefix("&from=").unwrap();
        assert!(time.parse::<i64>().unwrap() > NOW.nanos(), "{time}");
        assert_eq!(upload.body, body);
        queries.push(time.to_owned());
    }
    queries.dedup();
    assert_eq!(queries.len(), 6);
    assert_eq!(receiver.receiver.stats().given_identities, 6);
}

#[tokio::test]
async fn cumulative_types_of_a_form_are_ordered() {
    let receiver = TestReceiver::new(plain_settings());
    let order = async |config: &[u8]| {
        let body = form(&[("profile", &gzip(&pprof(5))), ("sample_type_config", config)]);
        receiver.upload("/ingest?name=a{pod=b}&from=5", &[FORM_TYPE], body).await.order
    };
    let cumulative = order(br#"{"x": {"units": "count", "cumulative": true}, "y": {}}"#).await;
    assert!(matches!(cumulative, UploadOrder::Cumulative(_)));
    assert_eq!(order(br#"{"x": {"cumulative": false}}"#).await, UploadOrder::Independent);
    assert_eq!(order(b"damaged").await, UploadOrder::Independent);
}

#[tokio::test]
async fn tenant_may_be_a_label_or_the_application() {
    let mut settings = plain_settings();
    settings.tenant.label = Some("service_name".into());
    let receiver = TestReceiver::new(settings.clone());
    let upload = receiver.upload("/ingest?name=shop&from=5", &[], "a 1").await;
    assert_eq!(upload.tenant, Some(tenant("shop")));
    settings.tenant.label = Some("team".into());
    receiver.receiver.set_settings(settings);
    let upload = receiver.upload("/ingest?name=shop{team=x}&from=5", &[], "a 1").await;
    assert_eq!(upload.tenant, Some(tenant("x")));
}

#[tokio::test]
async fn invalid_request_is_refused_before_it_is_stored() {
    let receiver = TestReceiver::new(plain_settings());
    let refused = receiver.call("/ingest?from=5", &[], "a 1").await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("parameter name: the application's name is empty"), "{}", refused.text());
    let large = [("content-length", "67108865")];
    let refused = receiver.call("/ingest?name=a", &large, "a 1").await;
    assert_eq!(refused.status, 413, "{}", refused.text());
    assert!(refused.text().contains("fixed for received profiles"), "{}", refused.text());
    assert!(receiver.sink.uploads.lock().is_empty());
    assert!(receiver.receiver.stats().requests.contains(&(ReceiveForm::Ingest, ReceiveOutcome::Refused, 2)));
}

#[tokio::test]
async fn full_spool_is_a_429_with_a_delay() {
    let receiver = TestReceiver::new(plain_settings());
    let full = Status::new(ErrorCode::Exhausted, "spool is full").with_retry_after(Duration::from_secs(7));
    *receiver.sink.refusal.lock() = Some(full);
    let refused = receiver.call("/ingest?name=a&from=5", &[], "a 1").await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "7"));
    assert!(refused.text().contains("spool is full"), "{}", refused.text());
}
