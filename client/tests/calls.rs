//! Calls of a client against a server on loopback.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::config::SecretString;
use athanor_chassis::{Backoff, Clock, ErrorCode, Random, Status};
use athanor_client::{ApiClient, ClientSettings, PUSH_METHOD, RetryPolicy, SettingNames, TlsSettings};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::sync::Mutex;

/// Name and value of a header.
type Header = (&'static str, &'static str);

/// Responses that remain to be sent, and the requests that arrived.
#[derive(Default)]
struct Script {
    responses: Vec<(StatusCode, &'static [Header], &'static str)>,
    requests: Vec<(String, HeaderMap)>,
}

async fn respond(State(script): State<Arc<Mutex<Script>>>, request: Request) -> Response {
    let mut script = script.lock().await;
    script.requests.push((request.uri().to_string(), request.headers().clone()));
    let (status, headers, body) = script.responses.remove(0);
    let mut response = (status, body).into_response();
    for (name, value) in headers {
        response.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    response
}

#[expect(clippy::disallowed_methods, reason = "the stand-in is outside of the process under test")]
async fn start(script: Script) -> (String, Arc<Mutex<Script>>) {
    let script = Arc::new(Mutex::new(script));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let url = format!("http://me:p%40ss@{}/team", listener.local_addr().expect("loopback"));
    let router = Router::new().fallback(respond).with_state(script.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.expect("loopback") });
    (url, script)
}

fn settings(url: &str) -> ClientSettings {
    ClientSettings {
        url: url.to_owned(),
        tenant: Some("fixed".to_owned()),
        token: None,
        user: None,
        tls: TlsSettings::default(),
        user_agent: "test/1".to_owned(),
        timeout: Duration::from_secs(20),
        names: SettingNames {
            url: "servers.url",
            tenant: "servers.tenant",
            user: "servers.user",
            token: "servers.token",
            tls: "servers.tls",
            timeout: "servers.timeout",
            start_hint: "check servers.url",
        },
        report_remark: |_| {},
    }
}

fn client(settings: &ClientSettings) -> Result<ApiClient, Status> {
    ApiClient::new(settings, Clock::system(), Random::from_seed(1))
}

#[tokio::test]
async fn request_has_path_query_and_its_own_tenant() {
    let (url, script) = start(Script {
        responses: vec![(StatusCode::OK, &[], "done"), (StatusCode::OK, &[], "")],
        ..Script::default()
    })
    .await;
    let client = client(&settings(&url)).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("x-scope-orgid", HeaderValue::from_static("own"));
    let response = client.send("ingest?name=a%2Fb&x=1", headers, Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(response.body, "done");
    client.send("ingest", HeaderMap::new(), Bytes::new()).await.unwrap();
    let requests = &script.lock().await.requests;
    assert_eq!(requests[0].0, "/team/ingest?name=a%2Fb&x=1");
    assert_eq!(requests[0].1["x-scope-orgid"], "own");
    assert_eq!(requests[0].1.get_all("x-scope-orgid").iter().count(), 1);
    assert_eq!(requests[0].1["authorization"], "Basic bWU6cEBzcw==");
    assert_eq!(requests[0].1["user-agent"], "test/1");
    assert_eq!(requests[1].1["x-scope-orgid"], "fixed");
}

#[tokio::test]
async fn request_ends_after_its_own_timeout() {
    // The kernel accepts the connection, and nobody reads the request.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let client = client(&ClientSettings { timeout: Duration::from_secs(3600), ..settings(&url) }).unwrap();
    let sent = client.send_within("x", HeaderMap::new(), Bytes::new(), Duration::from_millis(50));
    assert_eq!(sent.await.unwrap_err().code, ErrorCode::Deadline);
}

#[tokio::test]
async fn temporary_failures_are_retried_and_a_rejection_is_final() {
    let (url, script) = start(Script {
        responses: vec![
            (StatusCode::SERVICE_UNAVAILABLE, &[], ""),
            (StatusCode::TOO_MANY_REQUESTS, &[("retry-after", "0")], ""),
            (StatusCode::OK, &[("content-type", "application/proto")], ""),
            (StatusCode::BAD_REQUEST, &[], "no"),
        ],
        ..Script::default()
    })
    .await;
    let client = client(&settings(&url)).unwrap();
    let policy = RetryPolicy {
        backoff: Backoff::constant(Duration::from_millis(1)),
        max_retries: None,
        max_retry_after: Duration::from_secs(1),
    };
    let noted = std::cell::RefCell::new(Vec::new());
    let note = |status: &Status, _| noted.borrow_mut().push(status.code);
    client.send_with_retry(PUSH_METHOD, Bytes::new(), &policy, note).await.unwrap();
    assert_eq!(*noted.borrow(), [ErrorCode::Unavailable, ErrorCode::Exhausted]);
    let status = client.send_with_retry(PUSH_METHOD, Bytes::new(), &policy, note).await.unwrap_err();
    assert_eq!(status.code, ErrorCode::Invalid);
    assert_eq!(script.lock().await.requests.len(), 4);
}

#[tokio::test]
async fn redirect_is_not_followed_and_the_retry_delay_is_read() {
    let (url, _) = start(Script {
        responses: vec![
            (StatusCode::FOUND, &[("location", "http://127.0.0.1:1/x")], ""),
            (StatusCode::SERVICE_UNAVAILABLE, &[("retry-after", "7")], "full"),
        ],
        ..Script::default()
    })
    .await;
    let client = client(&settings(&url)).unwrap();
    let redirected = client.send("x", HeaderMap::new(), Bytes::new()).await.unwrap_err();
    assert_eq!(redirected.code, ErrorCode::Invalid);
    assert!(redirected.message.contains("set servers.url to it"), "{redirected}");
    let busy = client.send("x", HeaderMap::new(), Bytes::new()).await.unwrap_err();
    assert_eq!((busy.code, busy.retry_after), (ErrorCode::Unavailable, Some(Duration::from_secs(7))));
}

#[tokio::test]
async fn invalid_settings_are_named_without_their_secrets() {
    let bad = |change: fn(&mut ClientSettings)| {
        let mut settings = settings("http://127.0.0.1:1");
        change(&mut settings);
        client(&settings).err().unwrap().message
    };
    let both = bad(|settings| {
        settings.user = Some(SecretString::new("a:hidden"));
        settings.token = Some(SecretString::new("hidden"));
    });
    let token = bad(|settings| settings.token = Some(SecretString::new("hidden\n")));
    let ca = bad(|settings| settings.tls.ca = Some("hidden".to_owned()));
    let pair = bad(|settings| settings.tls.cert = Some("hidden".to_owned()));
    for (message, name) in
        [(both, "servers.user"), (token, "servers.token"), (ca, "servers.tls"), (pair, "servers.tls")]
    {
        assert!(message.contains(name) && !message.contains("hidden"), "{message}");
    }
    let nobody = client(&settings("http://127.0.0.1:1")).unwrap();
    let status = nobody.send("x", HeaderMap::new(), Bytes::new()).await.unwrap_err();
    assert_eq!(status.code, ErrorCode::Unavailable);
    assert!(status.message.contains("check servers.url"), "{status}");
}
