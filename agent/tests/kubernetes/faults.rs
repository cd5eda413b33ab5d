//! Faults of the API: none of them drops a target, and later changes are seen.

use std::time::Duration;

use athanor_chassis::{Clock, Timestamp};

use crate::discovery_run::DiscoveryRun;
use crate::samples::{node, pod};
use crate::stand_in::{ApiSettings, ApiStandIn, Fault, Verb};

const FAULTS: [Fault; 12] = [
    Fault::Status(403, "Forbidden", None),
    Fault::Status(410, "Expired", None),
    Fault::Status(429, "TooManyRequests", Some(0)),
    Fault::Status(500, "InternalError", None),
    Fault::Status(503, "ServiceUnavailable", None),
    Fault::Status(504, "Timeout", None),
    Fault::Status(200, "", None),
    Fault::Truncate,
    Fault::End,
    Fault::Slow,
    Fault::Malformed,
    Fault::Expire,
];

/// Starts a server with pages of two objects, and five pods on it.
async fn start_cluster() -> ApiStandIn {
    let api = ApiStandIn::start(ApiSettings { max_page: Some(2), ..ApiSettings::default() }).await;
    for index in 0..5 {
        api.apply(pod(&format!("cart-{index}"), "node-a", 0));
    }
    api
}

fn pods_of(api: &ApiStandIn) -> String {
    format!("{{role: pod, api_server: '{}'}}", api.url())
}

#[tokio::test]
async fn faults_of_a_watch_drop_no_target() {
    let api = start_cluster().await;
    let mut run = DiscoveryRun::start(&pods_of(&api));
    run.next().await;
    assert_eq!(run.targets.len(), 5);
    for (index, fault) in FAULTS.into_iter().enumerate() {
        api.inject(Verb::Watch, fault);
        api.end_watches();
        run.wait_until("watch with a fault", |_| api.pending_faults() == 0).await;
        let revision = index as u64 + 1;
        api.apply(pod("cart-3", "node-a", revision));
        run.wait_for_text(&format!("revision=\"{revision}\"")).await;
        assert_eq!((run.targets.len(), run.removed.len()), (5, 0), "{fault:?}");
    }
}

#[tokio::test]
async fn faults_of_a_list_drop_no_target() {
    let api = start_cluster().await;
    let mut run = DiscoveryRun::start(&pods_of(&api));
    run.next().await;
    for (index, fault) in FAULTS.into_iter().enumerate() {
        let revision = index as u64 + 1;
        // The list is needed, since the versions before it are forgotten.
        api.inject(Verb::Watch, Fault::Status(410, "Expired", None));
        api.inject(Verb::List, fault);
        api.end_watches();
        run.wait_until("list with a fault", |_| api.pending_faults() == 0).await;
        api.apply(pod("cart-1", "node-a", revision));
        run.wait_for_text(&format!("revision=\"{revision}\"")).await;
        assert_eq!((run.targets.len(), run.removed.len()), (5, 0), "{fault:?}");
    }
}

#[tokio::test]
async fn faults_before_the_first_list_delay_it() {
    let api = start_cluster().await;
    for fault in FAULTS {
        api.inject(Verb::List, fault);
    }
    let mut run = DiscoveryRun::start(&pods_of(&api));
    run.next().await;
    assert_eq!((run.targets.len(), api.pending_faults()), (5, 0));
}

#[tokio::test]
async fn objects_deleted_while_versions_expire_are_removed() {
    let api = start_cluster().await;
    let mut run = DiscoveryRun::start(&pods_of(&api));
    run.next().await;
    api.inject(Verb::Watch, Fault::Status(503, "ServiceUnavailable", None));
    api.end_watches();
    run.wait_until("unavailable API", |_| api.pending_faults() == 0).await;
    api.delete("pods", "shop", "cart-2");
    api.compact();
    while run.targets.len() > 4 {
        run.next().await;
    }
    assert_eq!(run.removed, ["pod/shop/cart-2"]);
}

#[tokio::test]
async fn bookmarks_let_a_watch_continue_after_versions_expire() {
    let api = start_cluster().await;
    let mut run = DiscoveryRun::start(&pods_of(&api));
    run.next().await;
    run.wait_until("watch", |_| api.requests().iter().any(|request| request.contains("watch=true"))).await;
    // Changes of other resources advance the version, which the watch of pods learns from the bookmark only.
    api.apply(node("node-a", 1));
    api.send_bookmarks();
    api.apply(pod("cart-0", "node-a", 1));
    run.wait_for_text("revision=\"1\"").await;
    let lists =
        |api: &ApiStandIn| api.requests().iter().filter(|request| !request.contains("watch=")).count();
    let lists_before = lists(&api);
    api.apply(node("node-a", 2));
    api.send_bookmarks();
    api.apply(pod("cart-0", "node-a", 2));
    run.wait_for_text("revision=\"2\"").await;
    api.compact();
    api.end_watches();
    api.apply(pod("cart-0", "node-a", 3));
    run.wait_for_text("revision=\"3\"").await;
    assert_eq!(lists(&api), lists_before);
}

#[tokio::test]
async fn denied_access_names_the_missing_rule_and_keeps_targets() {
    let api = start_cluster().await;
    let mut run = DiscoveryRun::start(&pods_of(&api));
    run.next().await;
    api.set_denied("pods", true);
    api.inject(Verb::Watch, Fault::Status(410, "Expired", None));
    api.end_watches();
    run.wait_until("problem", |status| !status.problems().is_empty()).await;
    let problems = run.status.problems().concat();
    for part in
        ["403", "ClusterRole", "apiGroups: [\"\"]", "resources: [\"pods\"]", "verbs: [\"list\", \"watch\"]"]
    {
        assert!(problems.contains(part), "{problems}");
    }
    assert_eq!(run.targets.len(), 5);
    api.set_denied("pods", false);
    api.apply(pod("cart-1", "node-a", 1));
    run.wait_for_text("revision=\"1\"").await;
    run.wait_until("end of the problem", |status| status.problems().is_empty()).await;
    assert_eq!(run.removed.len(), 0);
}

#[tokio::test]
async fn retry_after_delays_the_next_request() {
    let api = start_cluster().await;
    let clock = Clock::system();
    api.inject(Verb::List, Fault::Status(429, "TooManyRequests", Some(1)));
    let started = clock.monotonic();
    let mut run = DiscoveryRun::start(&pods_of(&api));
    run.next().await;
    assert!(clock.monotonic().saturating_sub(started).as_millis() >= 1000);
    assert_eq!(run.targets.len(), 5);
}

#[tokio::test]
async fn agent_on_a_node_requests_the_pods_of_this_node() {
    let api = start_cluster().await;
    api.apply(pod("elsewhere", "node-b", 0));
    let mut run = DiscoveryRun::start_on_node(&pods_of(&api), "node-a");
    run.next().await;
    assert_eq!(run.targets.len(), 5);
    // A pod that moves away is deleted in the eyes of the selector.
    api.apply(pod("cart-4", "node-b", 1));
    while run.targets.len() > 4 {
        run.next().await;
    }
    let selector = "fieldSelector=spec.nodeName%3Dnode-a";
    assert!(api.requests().iter().all(|request| request.contains(selector)), "{:?}", api.requests());
}

#[tokio::test]
async fn request_without_a_response_times_out() {
    let api = start_cluster().await;
    api.inject(Verb::List, Fault::Hang);
    let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let mut run = DiscoveryRun::start_with(&pods_of(&api), None, clock);
    run.wait_until("hanging request", |_| api.pending_faults() == 0).await;
    // The timeout of the request, then the delay of the next attempt.
    hand.wait_for_sleepers(1).await;
    hand.advance(Duration::from_secs(60));
    run.wait_until("timeout", |status| status.failures() == 1).await;
    hand.wait_for_sleepers(1).await;
    hand.advance(Duration::from_secs(1));
    run.next().await;
    assert_eq!(run.targets.len(), 5);
}
