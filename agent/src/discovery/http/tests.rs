use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::test_run::{DiscoveryRun, target_texts};
use super::super::{DiscoverySettings, StandardDiscovererFactory};
use super::*;
use crate::http_client::stand_in::{Reply, StandIn};
use crate::scrape_target::HttpClientSettings;

const INTERVAL: Duration = Duration::from_millis(90_500);

fn start(url: String) -> DiscoveryRun {
    let http = HttpClientSettings::default();
    let settings = HttpDiscoverySettings { url, refresh_interval: INTERVAL, http };
    DiscoveryRun::start(&DiscoverySettings::Http(settings), StandardDiscovererFactory::system_dns_servers())
}

#[tokio::test]
async fn targets_of_a_list_are_untrusted_and_have_the_url() {
    let list = r#"[{"targets": ["h:1"], "labels": {"env": "x"}}, {"targets": ["h:2"]}]"#;
    let server = StandIn::start(move |_| Reply::json(list)).await;
    let address = server.address;
    let mut run = start(format!("http://user:hush@{address}/list?a=b"));

    let url = format!("http://user:xxxxx@{address}/list?a=b");
    let source = format!("http://user:xxxxx@{address}/list?xxxxx");
    let expected = [
        (format!("{source}:0"), format!(r#"{{__address__="h:1", __meta_url="{url}", env="x"}}"#), true),
        (format!("{source}:1"), format!(r#"{{__address__="h:2", __meta_url="{url}"}}"#), true),
    ];
    assert_eq!(target_texts(&run.next().await), expected);
    let head = &server.requests()[0];
    assert!(head.starts_with("GET /list?a=b HTTP/1.1\r\n"), "{head}");
    for line in ["accept: application/json", "x-prometheus-refresh-interval-seconds: 90.5"] {
        assert!(head.contains(&format!("{line}\r\n")), "{head}");
    }
    run.stop().await;
}

#[tokio::test]
async fn failed_request_keeps_the_groups_and_is_counted() {
    let count = AtomicUsize::new(0);
    let server = StandIn::start(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::json(r#"[{"targets": ["h:1"]}, {"targets": ["h:2"]}]"#),
        1 => Reply::new("500 Oops", "content-type: application/json\r\n", b"[]"),
        2 => Reply::new("302 Found", "location: /\r\ncontent-type: application/json\r\n", b"[]"),
        3 => Reply::new("200 OK", "content-type: text/html\r\n", b"[]"),
        4 => Reply::json("[{]"),
        5 => Reply::new("200 OK", "content-type: application/json\r\n", &vec![b' '; (16 << 20) + 1]),
        _ => Reply::json(r#"[{"targets": ["h:1"]}]"#),
    })
    .await;
    let mut run = start(format!("http://{}/", server.address));
    assert_eq!(run.next().await.len(), 2);
    for errors in 1..=5 {
        run.hand.wait_for_sleepers(1).await;
        run.hand.advance(INTERVAL);
        while run.stats.errors(DiscoveryKind::Http) < errors {
            tokio::task::yield_now().await;
        }
    }
    run.hand.wait_for_sleepers(1).await;
    run.hand.advance(INTERVAL);
    let update = run.next().await;
    assert_eq!((update.len(), update[0].targets.len()), (1, 0), "only the second group was removed");
    assert!(update[0].source.ends_with("/:1"));
}

#[test]
fn content_types_are_those_of_prometheus() {
    for accepted in [
        "application/json",
        "APPLICATION/JSON",
        "application/json;charset=utf-8",
        "application/json; charset=\"UTF-8\"",
    ] {
        assert!(is_json_type(accepted), "{accepted}");
    }
    for rejected in
        ["", "text/json", "application/json;", "application/json; charset=latin1", "application/jsonx"]
    {
        assert!(!is_json_type(rejected), "{rejected}");
    }
}

#[test]
fn urls_are_checked_and_passwords_masked() {
    for (url, masked) in [
        ("http://a:b@h/p@q", "http://a:xxxxx@h/p@q"),
        ("http://a@h", "http://a@h"),
        ("http://h/a:b@c", "http://h/a:b@c"),
        ("http://a:b@c@h:1?x", "http://a:xxxxx@h:1?x"),
    ] {
        assert_eq!(mask_password(url), masked);
    }
    assert_eq!(mask_url("http://a:b@h/p?token=hush#f"), "http://a:xxxxx@h/p?xxxxx");
    assert_eq!(mask_url("http://h/p?"), "http://h/p?");
    for url in ["ftp://h/?token=hush", "/path", "http://", "http://a:hush@"] {
        let error = parse_url(url).unwrap_err().to_string();
        assert!(!error.contains("hush"), "{error}");
    }
}
