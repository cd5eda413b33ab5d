use std::sync::atomic::{AtomicBool, Ordering};

use athanor_chassis::Timestamp;
use athanor_chassis::config::SecretString;
use athanor_chassis::net::LocalNet;
use athanor_profile::formats::pprof;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::stand_in::{Reply, ReplyEnd, StandIn};
use super::*;
use crate::scrape_target::{Secret, TlsVersion};

const LIMITS: ResponseLimits = ResponseLimits {
    max_body_bytes: 1000,
    total_timeout: Duration::from_secs(20),
    min_bytes_per_window: 100,
    rate_window: Duration::from_secs(5),
};

fn client(settings: HttpClientSettings) -> HttpClient {
    let clock = Clock::system();
    HttpClient::new(settings, Arc::new(LocalNet::new(clock.clone())), clock)
}

fn request(server: &StandIn, uri: &str) -> HttpRequest {
    HttpRequest {
        uri: uri.parse().unwrap(),
        destination: Destination::Addresses(vec![server.address]),
        headers: HeaderMap::new(),
        limits: LIMITS,
    }
}

fn inline(text: &str) -> Secret {
    Secret::Inline(SecretString::new(text))
}

#[tokio::test]
async fn requests_share_a_connection_to_the_given_address() {
    let server = StandIn::start(|_| Reply::new("200 OK", "x-a: b\r\n", b"body")).await;
    let client = client(HttpClientSettings::default());
    for _ in 0..3 {
        let response = client.get(request(&server, "http://no.such.host:81/p?a=b")).await.unwrap();
        assert_eq!((response.status, &response.body[..]), (StatusCode::OK, &b"body"[..]));
        assert_eq!(response.headers["x-a"], "b");
    }
    assert_eq!(server.connections(), 1);
    let head = &server.requests()[0];
    assert!(head.starts_with("GET /p?a=b HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains("host: no.such.host:81\r\n") && head.contains("user-agent: athanor-agent/"),
        "{head}"
    );
    assert!(!head.contains("authorization"), "{head}");
}

#[tokio::test]
async fn connection_to_an_address_outside_the_request_is_not_reused() {
    let first = StandIn::start(|_| Reply::json("1")).await;
    let second = StandIn::start(|_| Reply::json("2")).await;
    let client = client(HttpClientSettings::default());
    client.get(request(&first, "http://shop/")).await.unwrap();
    let response = client.get(request(&second, "http://shop/")).await.unwrap();
    assert_eq!(&response.body[..], b"2");
    assert_eq!((first.connections(), second.connections()), (1, 1));
}

#[tokio::test]
async fn connection_that_the_server_closed_is_replaced() {
    let server = StandIn::start(|_| Reply::json("1").then(ReplyEnd::Close)).await;
    let client = client(HttpClientSettings::default());
    for _ in 0..3 {
        assert_eq!(&client.get(request(&server, "http://shop/")).await.unwrap().body[..], b"1");
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn addresses_are_tried_in_order() {
    let server = StandIn::start(|_| Reply::json("1")).await;
    let closed = {
        let gone = LocalNet::new(Clock::system()).listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        gone.local_address()
    };
    let client = client(HttpClientSettings::default());
    let mut both = request(&server, "http://shop/");
    both.destination = Destination::Addresses(vec![closed, server.address]);
    client.get(both.clone()).await.unwrap();
    both.uri = "http://other/".parse().unwrap();
    both.destination = Destination::Addresses(vec![closed]);
    let error = client.get(both.clone()).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("failed to connect to {closed}: ")), "{error}");
    both.destination = Destination::Addresses(vec![]);
    assert!(matches!(client.get(both).await, Err(HttpClientError::NoAddress { .. })));
}

#[tokio::test]
async fn redirect_is_returned_and_not_followed() {
    let server = StandIn::start(|_| Reply::new("302 Found", "location: http://127.0.0.1:1/\r\n", b"")).await;
    let response = client(HttpClientSettings::default()).get(request(&server, "http://shop/")).await.unwrap();
    assert_eq!(response.status, StatusCode::FOUND);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn credentials_are_read_again_from_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "first\n").unwrap();
    let server = StandIn::start(|_| Reply::json("1")).await;
    let headers = ["tenant", "site"].map(|value| ("x-scope".to_owned(), inline(value))).into();
    let credentials = Some(Secret::File(path.clone()));
    let client = client(HttpClientSettings { credentials, headers, ..HttpClientSettings::default() });
    client.get(request(&server, "http://shop/")).await.unwrap();
    let next = folder.path().join("next");
    std::fs::write(&next, " other ").unwrap();
    std::fs::rename(next, &path).unwrap();
    client.get(request(&server, "http://shop/")).await.unwrap();
    std::fs::remove_file(path).unwrap();
    let error = client.get(request(&server, "http://shop/")).await.unwrap_err();
    assert!(matches!(error, HttpClientError::SecretFile { .. }), "{error}");
    let requests = server.requests();
    assert!(requests[0].contains("authorization: Bearer first\r\n"), "{requests:?}");
    assert!(requests[1].contains("authorization: Bearer other\r\n"), "{requests:?}");
    let has_all_values = |head: &String| {
        ["tenant", "site"].iter().all(|value| head.contains(&format!("x-scope: {value}\r\n")))
    };
    assert!(requests.iter().all(has_all_values) && requests.len() == 2, "{requests:?}");
}

#[tokio::test]
async fn basic_authentication_comes_from_settings_or_url() {
    let server = StandIn::start(|_| Reply::json("1")).await;
    let username = Some(inline("user"));
    let settings =
        HttpClientSettings { username, password: Some(inline("pass")), ..HttpClientSettings::default() };
    client(settings).get(request(&server, "http://shop/")).await.unwrap();
    client(HttpClientSettings::default()).get(request(&server, "http://user:pass@shop/")).await.unwrap();
    assert_eq!(server.requests().len(), 2);
    for head in server.requests() {
        assert!(head.contains("authorization: Basic dXNlcjpwYXNz\r\n"), "{head}");
        assert!(head.contains("host: shop\r\n"), "{head}");
    }
}

#[tokio::test]
async fn body_over_its_limit_is_rejected_announced_or_not() {
    let server = StandIn::start(|head| {
        if head.starts_with("GET /announced") {
            Reply::new("200 OK", "", &[0; 1001])
        } else {
            let bytes = b"HTTP/1.1 200 OK\r\n\r\nx".to_vec();
            Reply { bytes, end: ReplyEnd::Repeat }
        }
    })
    .await;
    let client = client(HttpClientSettings::default());
    for path in ["announced", "endless"] {
        let error = client.get(request(&server, &format!("http://shop/{path}"))).await.unwrap_err();
        assert!(matches!(error, HttpClientError::BodyTooLarge { limit: 1000 }), "{path}: {error}");
    }
}

#[tokio::test]
async fn body_below_the_minimum_rate_is_rejected() {
    let server = StandIn::start(|_| {
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n0123456789".to_vec();
        Reply { bytes, end: ReplyEnd::Hang }
    })
    .await;
    let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let client =
        HttpClient::new(HttpClientSettings::default(), Arc::new(LocalNet::new(Clock::system())), clock);
    // The timeout of the whole request sleeps too.
    let (result, ()) = tokio::join!(client.get(request(&server, "http://shop/")), async {
        hand.wait_for_sleepers(2).await;
        hand.advance(LIMITS.rate_window);
    });
    let error = result.unwrap_err();
    let expected = "response body is too slow: 0 bytes within 5s, at least 100 are required";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn response_without_end_times_out() {
    let server = StandIn::start(|_| Reply { bytes: Vec::new(), end: ReplyEnd::Hang }).await;
    let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let client =
        HttpClient::new(HttpClientSettings::default(), Arc::new(LocalNet::new(Clock::system())), clock);
    let (result, ()) = tokio::join!(client.get(request(&server, "http://shop/")), async {
        while server.requests().is_empty() {
            tokio::task::yield_now().await;
        }
        hand.advance(LIMITS.total_timeout);
    });
    assert!(matches!(result, Err(HttpClientError::Timeout(_))));
}

#[tokio::test]
async fn encoded_body_is_decoded_within_its_limit() {
    let plain = vec![7; 900];
    let body = pprof::gzip(&plain);
    let server = StandIn::start(move |head| match head.split(' ').nth(1).unwrap() {
        "/gzip" => Reply::new("200 OK", "content-encoding: gzip\r\n", &body),
        "/plain" => Reply::new("200 OK", "", &body),
        "/damaged" => Reply::new("200 OK", "content-encoding: gzip\r\n", b"oops"),
        _ => Reply::new("200 OK", "content-encoding: br\r\n", b"oops"),
    })
    .await;
    let client = client(HttpClientSettings::default());
    let get = async |path: &str| client.get(request(&server, &format!("http://shop/{path}"))).await.unwrap();
    let response = get("gzip").await;
    assert_eq!(response.decode_body(900).unwrap(), plain);
    assert!(matches!(response.decode_body(899), Err(HttpClientError::Decompression { .. })));
    let response = get("plain").await;
    assert_eq!(response.decode_body(900).unwrap(), response.body);
    assert!(matches!(response.decode_body(3), Err(HttpClientError::BodyTooLarge { limit: 3 })));
    assert!(matches!(get("damaged").await.decode_body(9), Err(HttpClientError::Decompression { .. })));
    let error = get("brotli").await.decode_body(9).unwrap_err();
    assert!(matches!(error, HttpClientError::UnknownEncoding { .. }), "{error}");
}

#[tokio::test]
async fn unix_socket_is_a_destination() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = StandIn::start_on_socket(&path, |_| Reply::json("[]"));
    let mut request = request(&server, "http://docker/info");
    request.destination = Destination::UnixSocket(path);
    let response = client(HttpClientSettings::default()).get(request).await.unwrap();
    assert_eq!(&response.body[..], b"[]");
    assert!(server.requests()[0].contains("host: docker\r\n"));
}

/// Authority with a certificate for the name `shop.test`, and its key, in PEM.
struct TestAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl TestAuthority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Acceptor for the name, which requires a client certificate of this authority.
    fn acceptor(&self, name: &str) -> TlsAcceptor {
        self.acceptor_of_versions(name, rustls::ALL_VERSIONS)
    }

    fn acceptor_of_versions(
        &self,
        name: &str,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> TlsAcceptor {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject;
        let (cert, key) = self.issue(name);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.issuer.pem().as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

#[tokio::test]
async fn mutual_tls_checks_both_sides_and_the_server_name() {
    let authority = TestAuthority::new();
    let acceptor = authority.acceptor("shop.test");
    let server = StandIn::start_with_tls(|_| Reply::json("1"), Some(acceptor)).await;
    let (cert, key) = authority.issue("agent.test");
    let settings = HttpClientSettings {
        ca: Some(inline(&authority.issuer.pem())),
        cert: Some(inline(&cert)),
        key: Some(inline(&key)),
        ..HttpClientSettings::default()
    };
    let get = async |settings: &HttpClientSettings, uri: &str| {
        client(settings.clone()).get(request(&server, uri)).await.map(|response| response.body)
    };
    assert_eq!(get(&settings, "https://shop.test:443/").await.unwrap(), "1");
    let error = get(&settings, "https://other.test/").await.unwrap_err();
    assert!(matches!(error, HttpClientError::TlsHandshake { .. }), "{error}");
    let named = HttpClientSettings { server_name: Some("shop.test".to_owned()), ..settings.clone() };
    assert_eq!(get(&named, "https://10.0.0.1/").await.unwrap(), "1");
    let unknown =
        HttpClientSettings { ca: Some(inline(&TestAuthority::new().issuer.pem())), ..settings.clone() };
    assert!(get(&unknown, "https://shop.test/").await.is_err());
    let skipped = HttpClientSettings { insecure_skip_verify: true, ..unknown };
    assert_eq!(get(&skipped, "https://other.test/").await.unwrap(), "1");
    let anonymous = HttpClientSettings { cert: None, key: None, ..settings.clone() };
    assert!(get(&anonymous, "https://shop.test/").await.is_err());
    let half = HttpClientSettings { key: None, ..settings };
    let error = get(&half, "https://shop.test/").await.unwrap_err();
    assert!(matches!(error, HttpClientError::TlsSettings { .. }), "{error}");
}

#[tokio::test]
async fn only_the_configured_tls_version_is_used() {
    let authority = TestAuthority::new();
    let acceptor = authority.acceptor_of_versions("shop.test", &[&rustls::version::TLS12]);
    let server = StandIn::start_with_tls(|_| Reply::json("1"), Some(acceptor)).await;
    let (cert, key) = authority.issue("agent.test");
    for (only_tls_version, is_accepted) in
        [(None, true), (Some(TlsVersion::Tls12), true), (Some(TlsVersion::Tls13), false)]
    {
        let client = client(HttpClientSettings {
            ca: Some(inline(&authority.issuer.pem())),
            cert: Some(inline(&cert)),
            key: Some(inline(&key)),
            only_tls_version,
            ..HttpClientSettings::default()
        });
        let result = client.get(request(&server, "https://shop.test/")).await;
        assert_eq!(result.is_ok(), is_accepted, "{only_tls_version:?}");
    }
}

#[tokio::test]
async fn changed_ca_file_closes_idle_connections() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let authority = TestAuthority::new();
    let (cert, key) = authority.issue("agent.test");
    std::fs::write(&path, authority.issuer.pem()).unwrap();
    let server = StandIn::start_with_tls(|_| Reply::json("1"), Some(authority.acceptor("shop.test"))).await;
    let client = client(HttpClientSettings {
        ca: Some(Secret::File(path.clone())),
        cert: Some(inline(&cert)),
        key: Some(inline(&key)),
        ..HttpClientSettings::default()
    });
    for _ in 0..2 {
        client.get(request(&server, "https://shop.test/")).await.unwrap();
    }
    assert_eq!(server.connections(), 1);
    let next = folder.path().join("next.pem");
    std::fs::write(&next, TestAuthority::new().issuer.pem()).unwrap();
    std::fs::rename(next, path).unwrap();
    let error = client.get(request(&server, "https://shop.test/")).await.unwrap_err();
    assert!(matches!(error, HttpClientError::TlsHandshake { .. }), "{error}");
}

#[tokio::test]
async fn timed_out_request_leaves_no_connection_behind() {
    let is_slow = Arc::new(AtomicBool::new(true));
    let slow = Arc::clone(&is_slow);
    let server = StandIn::start(move |_| {
        let end = if slow.load(Ordering::Relaxed) { ReplyEnd::Hang } else { ReplyEnd::KeepOpen };
        if end == ReplyEnd::Hang { Reply { bytes: Vec::new(), end } } else { Reply::json("1") }
    })
    .await;
    let client = client(HttpClientSettings::default());
    let mut first = request(&server, "http://shop/");
    first.limits.total_timeout = Duration::from_millis(20);
    assert!(client.get(first).await.is_err());
    is_slow.store(false, Ordering::Relaxed);
    assert_eq!(&client.get(request(&server, "http://shop/")).await.unwrap().body[..], b"1");
    assert_eq!(server.connections(), 2);
}
