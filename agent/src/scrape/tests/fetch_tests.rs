use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use athanor_chassis::net::LocalNet;
use athanor_chassis::units::ByteSize;
use tokio_util::sync::CancellationToken;

use super::super::schedule::ScrapeSchedule;
use super::super::test_profiles::{gzip, job, kind, pprof, target};
use super::*;
use crate::address_policy::AddressPolicySettings;
use crate::http_client::stand_in::{Reply, ReplyEnd, StandIn};
use crate::scrape::target_entry::TargetRef;
use crate::scrape_target::Secret;
use athanor_chassis::config::SecretString;

const SECOND: Duration = Duration::from_secs(1);

fn fetcher() -> HttpProfileFetcher {
    let clock = Clock::system();
    let net: Arc<dyn Net> = Arc::new(LocalNet::new(clock.clone()));
    let policy = AddressPolicy::new(Arc::clone(&net), clock.clone(), AddressPolicySettings::default());
    let budgets = BodyBudgets::new(ByteSize::mib(8), ByteSize::mib(32));
    HttpProfileFetcher::new(net, clock, policy, budgets).with_max_plain_bytes(4 << 20)
}

/// Order of a scrape of the kind at an address.
fn order(address: SocketAddr, kind: ProfileKind, change: impl Fn(&mut ScrapeTarget)) -> ScrapeOrder {
    let mut job = (*job(15 * SECOND, 10 * SECOND)).clone();
    job.max_body_bytes = 2 << 20;
    let mut target = target(&Arc::new(job), &address.to_string(), vec![kind]);
    change(&mut target);
    let list = Arc::new(vec![target]);
    let mut schedule = ScrapeSchedule::new(&Clock::system());
    schedule.set_targets(&list, Duration::ZERO);
    let wake = schedule.next_wake().unwrap();
    let mut order = schedule.start_due(wake).remove(0);
    order.target = TargetRef { list, index: 0 };
    order.cancel = CancellationToken::new();
    order
}

async fn fetch_reply(reply: fn() -> Reply) -> Result<FetchedProfile, ScrapeError> {
    let server = StandIn::start(move |_| reply()).await;
    let order = order(server.address, kind("memory", None), |_| {});
    fetcher().fetch(&order).await
}

fn assert_error(result: Result<FetchedProfile, ScrapeError>, kind: ScrapeErrorKind, text: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.message.contains(text), "{error}");
}

#[tokio::test]
async fn request_has_path_params_and_seconds_and_the_body_is_unchanged() {
    let body = gzip(&pprof(7));
    let reply = body.clone();
    let server = StandIn::start(move |_| Reply::new("200 OK", "", &reply)).await;
    let mut kind = kind("process_cpu", Some(3));
    kind.path = "/prefix/debug/pprof/profile".to_owned();
    kind.params = vec![("rate".to_owned(), "a b&c".to_owned())];
    let order = order(server.address, kind, |_| {});
    let fetched = fetcher().fetch(&order).await.unwrap();
    assert_eq!(fetched.body.bytes[fetched.body.prefix..], body);
    assert_eq!((fetched.summary.time_nanos, fetched.summary.is_gzip), (7, true));
    let head = server.requests().remove(0);
    assert!(
        head.starts_with("GET /prefix/debug/pprof/profile?rate=a+b%26c&seconds=3 HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(head.to_lowercase().contains("accept-encoding: identity\r\n"), "{head}");
}

#[tokio::test]
async fn statuses_map_to_kinds_of_errors() {
    let busy = || {
        let text = b"Could not enable CPU profiling: cpu profiling already in use\n";
        Reply::new("500 Internal Server Error", "", text)
    };
    assert_error(fetch_reply(busy).await, ScrapeErrorKind::Busy, "already in use");
    let absent = || Reply::new("404 Not Found", "", b"404 page not found\n");
    assert_error(fetch_reply(absent).await, ScrapeErrorKind::NotFound, "404 page not found");
    let failed = || Reply::new("500 Internal Server Error", "", b"oh\x1b[31m no");
    assert_error(fetch_reply(failed).await, ScrapeErrorKind::Failed, "oh [31m no");
    let denied = || Reply::new("401 Unauthorized", "", b"");
    assert_error(fetch_reply(denied).await, ScrapeErrorKind::Failed, "credentials");
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let other = StandIn::start(|_| Reply::new("200 OK", "", &pprof(7))).await;
    let location = format!("location: http://{}/\r\n", other.address);
    let server = StandIn::start(move |_| Reply::new("302 Found", &location, b"")).await;
    let order = order(server.address, kind("memory", None), |_| {});
    assert_error(fetcher().fetch(&order).await, ScrapeErrorKind::Failed, "redirects are not followed");
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn endless_body_stops_at_the_limit() {
    let endless = || {
        let bytes = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n\x0a".to_vec();
        Reply { bytes, end: ReplyEnd::Repeat }
    };
    assert_error(fetch_reply(endless).await, ScrapeErrorKind::TooLarge, "body_size_limit");
}

#[tokio::test]
async fn bomb_stops_at_the_plain_limit() {
    let bomb = || {
        let mut plain = pprof(7);
        // A string of 8 MiB.
        plain.extend_from_slice(&[0x32, 0x80, 0x80, 0x80, 0x04]);
        plain.resize(plain.len() + (8 << 20), 0);
        Reply::new("200 OK", "", &gzip(&plain))
    };
    assert_error(fetch_reply(bomb).await, ScrapeErrorKind::TooLarge, "after decompression");
}

#[tokio::test]
async fn bodies_that_are_no_profile_are_rejected() {
    let html = || Reply::new("200 OK", "content-type: text/html\r\n", b"<html>Sign in</html>");
    assert_error(fetch_reply(html).await, ScrapeErrorKind::NotPprof, "<html>Sign in");
    let empty = || Reply::new("200 OK", "", b"");
    assert_error(fetch_reply(empty).await, ScrapeErrorKind::NotPprof, "empty");
    let truncated = || {
        let packed = gzip(&pprof(7));
        Reply::new("200 OK", "", &packed[..packed.len() - 9])
    };
    assert_error(fetch_reply(truncated).await, ScrapeErrorKind::NotPprof, "truncated");
    let cut_off = || {
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nabc".to_vec();
        Reply { bytes, end: ReplyEnd::Close }
    };
    assert_error(fetch_reply(cut_off).await, ScrapeErrorKind::Failed, "");
}

#[tokio::test(start_paused = true)]
async fn slow_body_and_silent_target_are_cut_off() {
    let slow = || {
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nabc".to_vec();
        Reply { bytes, end: ReplyEnd::Hang }
    };
    assert_error(fetch_reply(slow).await, ScrapeErrorKind::Timeout, "too slow");
    let silent = || Reply { bytes: vec![], end: ReplyEnd::Hang };
    assert_error(fetch_reply(silent).await, ScrapeErrorKind::Timeout, "incomplete");
}

#[tokio::test]
async fn untrusted_target_on_loopback_is_not_connected_to() {
    let server = StandIn::start(|_| Reply::new("200 OK", "", &pprof(7))).await;
    let order = order(server.address, kind("memory", None), |target| target.is_address_untrusted = true);
    assert_error(fetcher().fetch(&order).await, ScrapeErrorKind::Failed, "loopback");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn address_that_is_no_url_is_an_error() {
    let address = "127.0.0.1:1".parse().unwrap();
    let order = order(address, kind("memory", None), |target| target.address = "a b:1".to_owned());
    assert_error(fetcher().fetch(&order).await, ScrapeErrorKind::Failed, "is no URL");
}

#[tokio::test]
async fn jobs_do_not_share_clients_and_credentials() {
    let connections = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&connections);
    let server = StandIn::start(move |head| {
        let has_credentials = head.to_lowercase().contains("authorization: basic");
        seen.fetch_add(usize::from(has_credentials), Ordering::Relaxed);
        Reply::new("200 OK", "", &pprof(7))
    })
    .await;
    let fetcher = fetcher();
    let with_user = |target: &mut ScrapeTarget| {
        let mut job = (*target.job).clone();
        job.name = "secret".to_owned();
        job.http.username = Some(Secret::Inline(SecretString::new("user")));
        target.job = Arc::new(job);
    };
    fetcher.fetch(&order(server.address, kind("memory", None), with_user)).await.unwrap();
    fetcher.fetch(&order(server.address, kind("memory", None), |_| {})).await.unwrap();
    fetcher.fetch(&order(server.address, kind("memory", None), with_user)).await.unwrap();
    assert_eq!(connections.load(Ordering::Relaxed), 2);
    assert_eq!(fetcher.clients.lock().len(), 2);
}
