//! Requests that are refused say why, whatever is wrong with them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use athanor_integration::server::{HttpResponse, RESPONSE_DEADLINE, TestServer};

/// What comes back for these bytes until the connection is closed.
fn raw(server: &TestServer, bytes: &str) -> HttpResponse {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(RESPONSE_DEADLINE)).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    HttpResponse::parse(&answer)
}

#[test]
fn methods_types_and_paths_that_are_not_taken_are_named() {
    let server = TestServer::start(|_| {});
    let method = server.post("/ready", &[], b"");
    assert_eq!((method.status, method.header("allow")), (405, "GET,HEAD"));
    assert_eq!(
        method.text(),
        "method POST is not allowed on this path; the Allow header lists the allowed methods\n"
    );
    let call = server.get("/push.v1.PusherService/Push", &[]);
    assert_eq!(
        (call.status, call.text()),
        (405, "method GET is not allowed on this path; the Allow header lists the allowed methods\n")
    );
    let kind = server.post("/push.v1.PusherService/Push", &[("content-type", "text/plain")], b"x");
    assert!(kind.status == 415 && kind.text().contains("application/proto"), "{}", kind.text());
    let nothing = server.get("/nowhere", &[]);
    assert!(nothing.status == 404 && nothing.text().contains("/ingest"), "{}", nothing.text());
}

#[test]
fn broken_http_is_a_bad_request() {
    let server = TestServer::start(|_| {});
    let close = "Connection: close\r\n";
    for hosts in ["", "Host: localhost\r\nHost: 127.0.0.1\r\n"] {
        let answer = raw(&server, &format!("GET /ready HTTP/1.1\r\n{hosts}{close}\r\n"));
        assert!(answer.status == 400 && answer.text().contains("Host headers"), "{}", answer.text());
    }
    assert_eq!(raw(&server, &format!("GET /ready HTTP/1.0\r\n{close}\r\n")).status, 200);
    let head = "POST /ingest?name=a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n";
    let answer = raw(&server, &format!("{head}{close}\r\nZZ\r\nabc\r\n0\r\n\r\n"));
    assert!(answer.status == 400 && answer.text().contains("chunk"), "{} {}", answer.status, answer.text());
}

#[test]
fn times_in_urls_are_read_or_refused() {
    let server = TestServer::start(|_| {});
    let page = "/flamegraph.svg?service=shop&type=process_cpu:cpu:nanoseconds:cpu:nanoseconds";
    for wrong in ["from=abc", "until=abc"] {
        let answer = server.get(&format!("{page}&{wrong}"), &[]);
        assert!(answer.status == 400 && answer.text().contains("write now-1h"), "{wrong}: {}", answer.text());
    }
    urls_are_taken_as_people_write_them(&server);
    let empty = server.get(&format!("{page}&from=now-1h&until=now"), &[]);
    assert!(empty.status == 200 && empty.text().contains("There are no samples"), "{}", empty.text());
}

fn urls_are_taken_as_people_write_them(server: &TestServer) {
    assert_eq!(server.post("/ingest?name=other.cpu{zone=<a>}", &[], b"main;f 3\n").status, 200);
    for zone in ["=\"<a>\"", "=~\"<a>|`b`\"", "=%22%3Ca%3E%22"] {
        let query = format!("process_cpu:cpu:nanoseconds:cpu:nanoseconds{{zone{zone}}}");
        let answer = server.get(&format!("/pyroscope/render?query={query}&from=now-1h&until=now"), &[]);
        assert!(answer.status == 200 && answer.text().contains("\"main\""), "{zone}: {}", answer.text());
    }
}

#[test]
fn two_tenants_in_two_headers_are_nobody() {
    let server = TestServer::start(|config| config.multitenancy_enabled = true);
    let ingest = |second| {
        let tenants = [("x-scope-orgid", "a"), ("x-scope-orgid", second)];
        server.post("/ingest?name=shop.cpu", &tenants, b"main;f 3\n").status
    };
    assert_eq!((ingest("b"), ingest("a")), (401, 200));
}

#[test]
fn pages_of_administration_are_shut_where_others_reach_the_port() {
    let guarded = [
        "/config",
        "/shards",
        "/shards.json",
        "/compaction",
        "/compaction.json",
        "/debug/pprof/profile?seconds=1",
    ];
    let open = ["/ready", "/metrics", "/", "/api/v1/status/buildinfo"];
    let shut = TestServer::start(|config| config.http_listen_address = "0.0.0.0:0".to_owned());
    for path in guarded {
        let refused = shut.get(path, &[]);
        assert!(
            refused.status == 403 && refused.text().contains("admin_token_file"),
            "{path}: {}",
            refused.text()
        );
    }
    assert_eq!(open.map(|path| shut.get(path, &[]).status), [200; 4]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "a-token-of-some-length\n").unwrap();
    let asks = TestServer::start(|config| {
        config.http_listen_address = "0.0.0.0:0".to_owned();
        config.admin_token_file = Some(file.path().to_owned());
        config.multitenancy_enabled = true;
    });
    for path in ["/config", "/shards"] {
        let refused = asks.get(path, &[]);
        assert_eq!((refused.status, refused.header("www-authenticate").is_empty()), (401, false));
        assert_eq!(asks.get(path, &[("authorization", "Bearer a-token-of-some-length")]).status, 200);
    }
    let tenant = [("x-scope-orgid", "a")];
    assert_eq!(open.map(|path| asks.get(path, &tenant).status), [200; 4]);
    tenants_are_named_to_administrators_only(&asks, "Bearer a-token-of-some-length");
}

fn tenants_are_named_to_administrators_only(server: &TestServer, token: &str) {
    for tenant in ["team-a", "team-b"] {
        let pushed = server.post("/ingest?name=shop.cpu", &[("x-scope-orgid", tenant)], b"main;f 3\n");
        assert_eq!(pushed.status, 200);
    }
    let summed = server.get("/metrics", &[]);
    assert!(!summed.text().contains("team-"), "{}", summed.text());
    assert!(summed.text().contains("\nathanor_distributor_accepted_profiles_total 2\n"), "{}", summed.text());
    let wrong = server.get("/metrics", &[("authorization", "Bearer another-token-of-that-kind")]);
    assert_eq!(wrong.status, 401);
    let named = server.get("/metrics", &[("authorization", token)]);
    assert!(
        named.text().contains("athanor_distributor_accepted_profiles_total{tenant=\"team-b\"} 1\n"),
        "{}",
        named.text()
    );
    assert!(named.text().contains("\nathanor_admin_token_failures_total 1\n"), "{}", named.text());
    let list = |headers: &[(&str, &str)]| {
        let response = server.get("/athanor/tenants", headers);
        assert!(response.header("www-authenticate").is_empty());
        (response.status, response.text().to_owned())
    };
    let document = |names: &str| (200, format!("{{\"tenants\":[{names}],\"truncated\":false}}"));
    assert_eq!(list(&[("authorization", token)]), document(r#""team-a","team-b""#));
    assert_eq!(list(&[("x-scope-orgid", "team-b")]), document(r#""team-b""#));
    let of_proxy = ("authorization", "Bearer another-token-of-that-kind");
    assert_eq!(list(&[("x-scope-orgid", "team-b"), of_proxy]), document(r#""team-b""#));
    assert_eq!(list(&[("x-scope-orgid", "c|a")]), document(r#""a","c""#));
    assert_eq!(list(&[]).0, 401);
    assert_eq!(list(&[("authorization", "Bearer another-token-of-that-kind")]).0, 401);
}

#[test]
fn pages_of_others_reach_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = TestServer::start(|config| {
        config.data_dir.clone_from(&data);
        config.allowed_hosts = vec!["profiles.example.com".to_owned()];
    });
    let asked_as = |host: &str, request: &str| {
        raw(
            &server,
            &format!("{request} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
        )
    };
    for path in ["/config", "/ready", "/metrics", "/nowhere", "/pyroscope/render?query=x"] {
        let refused = asked_as("evil.example:4040", &format!("GET {path}"));
        assert!(refused.status == 403 && refused.text().contains("allowed_hosts"), "{}", refused.text());
    }
    let port = server.address.port();
    for host in ["profiles.example.com", "localhost", &format!("127.0.0.1:{port}"), "[::1]"] {
        assert_eq!(asked_as(host, "GET /config").status, 200, "{host}");
    }
    let pushed = |headers: &[(&str, &str)]| server.post("/ingest?name=shop.cpu", headers, b"main;f 3\n");
    for foreign in [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        let refused = pushed(&[("content-type", "text/plain"), foreign]);
        assert_eq!(refused.status, 403, "{foreign:?}: {}", refused.text());
        let json = server.post("/profiles/writeraw", &[("content-type", "text/plain"), foreign], b"{}");
        assert_eq!(json.status, 403, "{foreign:?}: {}", json.text());
    }
    assert!(server.query_totals("anonymous").is_empty());
    let own = format!("http://127.0.0.1:{port}");
    assert_eq!(pushed(&[("origin", &own), ("sec-fetch-site", "same-origin")]).status, 200);
    assert_eq!(pushed(&[("origin", "https://profiles.example.com")]).status, 200);
    for page in
        ["/ui/", "/shards", "/flamegraph.svg?service=shop&type=process_cpu:cpu:nanoseconds:cpu:nanoseconds"]
    {
        let answer = server.get(page, &[]);
        let policy = answer.header("content-security-policy");
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{page}: {policy}"
        );
        assert_eq!((answer.status, answer.header("x-content-type-options")), (200, "nosniff"), "{page}");
    }
    // Nothing in the folder can be opened by others.
    let mut folders = vec![data];
    while let Some(folder) = folders.pop() {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for entry in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else {
                assert_eq!(mode(&entry), 0o600, "{}", entry.display());
            }
        }
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
