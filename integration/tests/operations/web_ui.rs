//! Web UI of a server: its files, redirects to it, its calls, and the pages and graphs that the server renders.

use athanor_integration::server::{HttpResponse, RESPONSE_DEADLINE, TestServer};

const BROWSER: (&str, &str) =
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8");
const GZIP: (&str, &str) = ("accept-encoding", "gzip, deflate");
const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

fn push_profile(server: &TestServer) {
    assert_eq!(server.post("/ingest?name=shop.cpu", &[], b"main;pay 70\nmain;search 30\n").status, 200);
}

fn location(server: &TestServer, path: &str) -> (u16, String) {
    let response = server.get(path, &[BROWSER]);
    (response.status, response.header("location").to_owned())
}

#[test]
fn browser_is_redirected_to_the_ui_below_any_prefix() {
    let server = TestServer::start(|config| config.multitenancy_enabled = true);
    let query = "query=app.cpu%7Bpod%3D%22a%22%7D&from=now-1h";
    for (path, expected) in [
        ("/".to_owned(), "ui/".to_owned()),
        (format!("/?{query}"), format!("ui/?{query}")),
        (format!("/explore?{query}"), format!("ui/explore?{query}")),
        ("/comparison?leftQuery=a.cpu".to_owned(), "ui/comparison?leftQuery=a.cpu".to_owned()),
        ("/ui".to_owned(), "ui/".to_owned()),
    ] {
        assert_eq!(location(&server, &path), (307, expected), "{path}");
    }
    let page = server.get("/ui/", &[BROWSER]);
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    for path in ["/ui/explore?q=1", "/ui/comparison", "/ui/fleet"] {
        assert_eq!(server.get(path, &[BROWSER]).body, page.body, "{path}");
    }
    for path in ["/ui/explore/deeper", "/ui/none.js", "/ui/../config"] {
        assert_eq!(server.get(path, &[BROWSER]).status, 404, "{path}");
    }
    let head = athanor_integration::server::send_request(server.address, "HEAD /ui/", &[], b"");
    assert!(head.status == 200 && head.body.is_empty());
}

#[test]
fn other_clients_get_a_text_at_the_root() {
    let server = TestServer::start(|config| config.multitenancy_enabled = true);
    for accept in [&[][..], &[("accept", "*/*")], &[("accept", "application/json")]] {
        let response = server.get("/", accept);
        assert_eq!((response.status, response.header("content-type")), (200, "text/plain; charset=utf-8"));
        assert!(response.text().contains("ui/"), "{}", response.text());
        assert_eq!(response.header("vary"), "Accept");
    }
    for path in ["/explore", "/comparison"] {
        assert_eq!(server.get(path, &[]).status, 404, "{path}");
    }
}

#[test]
fn files_of_the_ui_are_cached_and_restricted() {
    let server = TestServer::start(|_| {});
    let plain = server.get("/ui/", &[]);
    let policy = plain.header("content-security-policy");
    assert!(policy.contains("default-src 'none'; script-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(plain.header("x-content-type-options"), "nosniff");
    assert_eq!(plain.header("referrer-policy"), "no-referrer");
    assert_eq!(plain.header("cache-control"), "no-cache");
    let packed = server.get("/ui/", &[GZIP]);
    assert_eq!((packed.header("content-encoding"), packed.header("vary")), ("gzip", "Accept-Encoding"));
    assert!(packed.body.len() < plain.body.len());
    for (headers, first) in [(&[][..], &plain), (&[GZIP], &packed)] {
        let tag = ("if-none-match", first.header("etag"));
        let second = server.get("/ui/", &[headers, &[tag]].concat());
        assert_eq!((second.status, second.body.len()), (304, 0));
    }
    assert_eq!(server.get("/ui/", &[("if-none-match", "\"old\"")]).status, 200);
}

#[test]
fn calls_of_the_ui_over_loopback_are_not_compressed() {
    let server = TestServer::start(|_| {});
    push_profile(&server);
    let json = ("content-type", "application/json");
    let body = b"{\"start\":\"1\",\"end\":\"9000000000000\"}";
    let encoding = |headers: &[(&str, &str)]| {
        let call = server.post("/querier.v1.QuerierService/LabelNames", headers, body);
        assert_eq!(call.status, 200);
        let export =
            server.get(&format!("/athanor/export?query={TYPE}%7B%7D&from=1h&format=folded"), headers);
        assert_eq!(export.status, 200);
        assert_eq!(call.header("content-encoding"), export.header("content-encoding"));
        call.header("content-encoding").to_owned()
    };
    let ui = ("athanor-ui", "1");
    assert_eq!(encoding(&[json, GZIP, ui]), "");
    assert_eq!(encoding(&[json, GZIP]), "gzip");
    assert_eq!(encoding(&[json, GZIP, ui, ("x-forwarded-for", "10.0.0.9")]), "gzip");
    assert_eq!(encoding(&[json, ui]), "");
}

#[test]
fn calls_from_pages_of_other_sites_are_rejected() {
    let server = TestServer::start(|_| {});
    let own = format!("http://127.0.0.1:{}", server.address.port());
    let call = |headers: &[(&str, &str)]| {
        let headers = [&[("content-type", "application/json"), ("athanor-ui", "1")], headers].concat();
        server.post("/querier.v1.QuerierService/ProfileTypes", &headers, b"{}").status
    };
    assert_eq!(call(&[("origin", &own), ("sec-fetch-site", "same-origin")]), 200);
    assert_eq!(call(&[("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")]), 403);
    assert_eq!(call(&[("origin", "http://localhost:3000"), ("sec-fetch-site", "same-site")]), 403);
}

#[test]
fn tenants_are_listed_as_soon_as_they_have_profiles() {
    let server = TestServer::start(|config| config.multitenancy_enabled = true);
    let list = |headers: &[(&str, &str)]| {
        let response = server.get("/athanor/tenants", headers);
        assert_eq!((response.status, response.header("content-type")), (200, "application/json"));
        response.text().to_owned()
    };
    assert_eq!(list(&[]), r#"{"tenants":[],"truncated":false}"#);
    for tenant in ["team-b", "team-a", "team-b"] {
        let headers = [("x-scope-orgid", tenant)];
        assert_eq!(server.post("/ingest?name=shop.cpu", &headers, b"main;pay 70\n").status, 200);
    }
    let all = r#"{"tenants":["team-a","team-b"],"truncated":false}"#;
    assert_eq!(list(&[]), all);
    let ingester = server.node.roles().ingester.clone().unwrap();
    let clock = athanor_chassis::Clock::system();
    server.runtime.block_on(ingester.flush_all(&clock, RESPONSE_DEADLINE)).unwrap();
    assert!(ingester.tenants_in_heads().is_empty());
    assert_eq!(list(&[]), all);
    // A proxy on this machine sets the tenant of its user.
    let own = list(&[("x-scope-orgid", "team-a"), ("authorization", "Bearer a-token-of-the-proxy")]);
    assert_eq!(own, r#"{"tenants":["team-a"],"truncated":false}"#);
    for header in ["x-forwarded-for", "x-forwarded-host", "x-real-ip", "forwarded", "via"] {
        assert_eq!(server.get("/athanor/tenants", &[(header, "10.0.0.9")]).status, 401, "{header}");
    }
}

#[test]
fn server_without_multitenancy_lists_one_tenant() {
    let server = TestServer::start(|_| {});
    let list = server.get("/athanor/tenants", &[("x-scope-orgid", "other")]);
    assert_eq!((list.status, list.text()), (200, r#"{"tenants":["anonymous"],"truncated":false}"#));
}

#[test]
fn responses_name_the_trace_of_their_request() {
    let server = TestServer::start(|_| {});
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let json = ("content-type", "application/json");
    let call = |trace: &[(&str, &str)]| {
        let headers = [&[json], trace].concat();
        let response = server.post("/athanor.v1.ExploreService/Functions", &headers, b"{}");
        assert_eq!(response.status, 400);
        response.header("traceresponse").to_owned()
    };
    assert_eq!(call(&[("traceparent", trace)]), trace);
    assert_eq!(call(&[]), "");
    assert_eq!(call(&[("traceparent", "00-0-0-01")]), "");
    assert_eq!(server.get("/nowhere", &[("traceparent", trace)]).header("traceresponse"), trace);
}

#[test]
fn perf_script_of_the_default_event_is_stored() {
    let server = TestServer::start(|_| {});
    let text = b"python3 30278 57011.696755:    1001001 cpu-clock: \n\
        \tffffffff81690046 charge_pages+0x36 ([kernel.kallsyms])\n\
        \t           d4ad7 main+0x7 (/usr/bin/python3)\n\n";
    let pushed = server.post("/ingest?name=host&format=perf_script", &[], text);
    assert_eq!((pushed.status, pushed.text()), (200, ""));
    let totals = server.query_totals("anonymous");
    let clock = totals.iter().find(|(name, _)| name.contains(":cpu_clock:nanoseconds:"));
    assert_eq!(clock.map(|(_, total)| *total), Some(1_001_001), "{totals:?}");
    assert_eq!(totals.len(), 2, "{totals:?}");
}

fn graph(response: &HttpResponse) -> &str {
    assert_eq!((response.status, response.header("content-type")), (200, "image/svg+xml"));
    let policy = response.header("content-security-policy");
    assert!(policy.contains("script-src 'sha256-"), "{policy}");
    response.text()
}

#[test]
fn flamegraph_is_an_alias_of_the_export() {
    let server = TestServer::start(|_| {});
    push_profile(&server);
    let alias = server.get(&format!("/flamegraph.svg?service=shop&type={TYPE}"), &[]);
    assert!(graph(&alias).contains("<title>pay\n"), "{}", alias.text());
    let query = format!("{TYPE}%7Bservice_name%3D%22shop%22%7D");
    let export = server.get(&format!("/athanor/export?query={query}&from=now-1h&format=svg"), &[]);
    assert_eq!(graph(&export), alias.text());
    let with_query = server.get(&format!("/flamegraph.svg?query={query}"), &[]);
    assert_eq!(graph(&with_query), alias.text());
    for (path, named) in [
        ("/flamegraph.svg?service=shop".to_owned(), "request has no type"),
        (format!("/flamegraph.svg?query={query}&showFrom=pay"), "did you mean show_from?"),
    ] {
        let refused = server.get(&path, &[]);
        assert!(refused.status == 400 && refused.text().contains(named), "{path}: {}", refused.text());
    }
    assert!(export.text().contains("width=\"100%\" viewBox=\"0 0 1200"), "{}", export.text());
}

#[test]
fn errors_are_pages_for_browsers_and_json_for_other_clients() {
    let server = TestServer::start(|_| {});
    let query = format!("query={TYPE}%7B%7D");
    for path in [
        format!("/flamegraph.svg?service=a&type={TYPE}&from=soon%3Cb%3E"),
        format!("/athanor/export?{query}&from=soon%3Cb%3E"),
        format!("/pyroscope/render?{query}&from=soon%3Cb%3E"),
        "/query-diagnostics/%3Cb%3E".to_owned(),
        "/debug/pprof/profile?seconds=no".to_owned(),
    ] {
        let json = server.get(&path, &[("accept", "*/*")]);
        assert!(json.status >= 400 && json.header("content-type") == "application/json", "{path}");
        let error: serde_json::Value = serde_json::from_slice(&json.body).unwrap();
        let page = server.get(&path, &[BROWSER]);
        assert_eq!(
            (page.status, page.header("content-type")),
            (json.status, "text/html; charset=utf-8"),
            "{path}"
        );
        assert!(page.header("content-security-policy").contains("default-src 'none'"));
        assert!(page.text().contains(error["code"].as_str().unwrap()), "{}", page.text());
        assert!(!page.text().contains("<b>"), "{}", page.text());
    }
    let page = server.get(&format!("/athanor/export?{query}&from=soon"), &[BROWSER]);
    assert!(page.text().contains("from is &quot;soon&quot;; write now-1h"), "{}", page.text());
}

#[test]
fn urls_take_the_times_of_the_command_line() {
    let server = TestServer::start(|_| {});
    push_profile(&server);
    for from in [
        "now-1h",
        "1h",
        "1h30m",
        "2020-02-29",
        "2020-02-29T12:00Z",
        "2020-02-29T12:00:00.5%2B02:00",
        "yesterday",
    ] {
        for path in [
            format!("/flamegraph.svg?service=shop&type={TYPE}&from={from}"),
            format!("/athanor/export?query={TYPE}%7B%7D&from={from}&format=folded"),
            format!("/pyroscope/render?query={TYPE}%7B%7D&from={from}&until=now"),
        ] {
            let response = server.get(&path, &[]);
            assert!(response.status == 200 && response.text().contains("pay"), "{path}: {}", response.text());
        }
    }
    let ended = server
        .get(&format!("/athanor/export?query={TYPE}%7B%7D&from=1h&until=2020-02-29&format=folded"), &[]);
    assert_eq!((ended.status, ended.text()), (200, ""));
}
