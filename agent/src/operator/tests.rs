//! Pages of a fixed state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use athanor_chassis::Status;
use athanor_chassis::observability::metrics_page::MetricsFormat;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use tower_service::Service;

use super::metrics::{MetricsRegistry, build_collector, reload_collector};
use super::operator_router;
use super::reload::ReloadStats;
use super::views::{
    AgentView, ConfigView, DroppedTargetView, ExplanationsView, KindView, ServerView, StatusView, TargetView,
    TargetsView,
};

const ATTACK: &str = "<img src=x onerror=alert(1)>";
const REASON: &str = "dropped by rule 1";
const WARNING: &str = "the spool is in memory";

#[derive(Default)]
struct FixedView {
    unreadiness: Option<String>,
    drains: AtomicUsize,
}

#[async_trait]
impl AgentView for FixedView {
    fn targets(&self) -> TargetsView {
        let kinds =
            vec![KindView { name: "memory".into(), error: Some(ATTACK.into()), ..KindView::default() }];
        let labels = BTreeMap::from([("pod".to_owned(), ATTACK.to_owned())]);
        let target =
            TargetView { job: ATTACK.into(), url: ATTACK.into(), labels, kinds, ..TargetView::default() };
        let dropped = BTreeMap::from([("empty".to_owned(), 3)]);
        let discovered_labels = BTreeMap::from([("pod".to_owned(), ATTACK.to_owned())]);
        let dropped_target =
            DroppedTargetView { job: "empty".into(), discovered_labels, reason: REASON.into() };
        TargetsView {
            active: vec![target],
            dropped,
            dropped_targets: vec![dropped_target],
            warnings: vec![WARNING.into()],
        }
    }

    fn status(&self) -> StatusView {
        let server = ServerView { error: Some(ATTACK.into()), ..ServerView::default() };
        StatusView {
            servers: vec![server],
            warnings: vec![ATTACK.into(), WARNING.into()],
            ..StatusView::default()
        }
    }

    fn config(&self) -> ConfigView {
        ConfigView { file: Some(ATTACK.into()), yaml: ATTACK.into(), warnings: vec![WARNING.into()] }
    }

    fn unreadiness(&self) -> Option<String> {
        self.unreadiness.clone()
    }

    fn metrics(&self, format: MetricsFormat) -> Result<String, Status> {
        let registry = MetricsRegistry::default();
        registry.register(build_collector());
        registry.register(reload_collector(Arc::new(ReloadStats::new(std::time::Duration::ZERO))));
        Ok(registry.encode(format).unwrap())
    }

    fn explain(&self, _target: &str) -> ExplanationsView {
        ExplanationsView::default()
    }

    async fn drain(&self) -> Result<(), Status> {
        self.drains.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

struct PageResponse {
    status: StatusCode,
    content_type: String,
    body: String,
}

async fn request(view: &Arc<FixedView>, method: &str, path: &str, header: (&str, &str)) -> PageResponse {
    let request = Request::builder().method(method).uri(path).header(header.0, header.1);
    let request = request.body(Body::empty()).unwrap();
    let response = operator_router(view.clone()).call(request).await.unwrap();
    let status = response.status();
    let content_type = response.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    PageResponse { status, content_type: content_type.unwrap_or_default(), body }
}

#[tokio::test]
async fn pages_are_html_for_browsers_without_markup_of_others() {
    let view = Arc::new(FixedView::default());
    for path in ["/targets", "/status", "/config"] {
        let page = request(&view, "GET", path, ("accept", "text/html,*/*")).await;
        assert_eq!((page.status, page.content_type.as_str()), (StatusCode::OK, "text/html; charset=utf-8"));
        assert!(page.body.contains("&lt;img") && !page.body.contains("<img"), "{path}: {}", page.body);
        assert!(page.body.contains(WARNING), "{path}: {}", page.body);
        let json = request(&view, "GET", path, ("accept", "application/json")).await;
        assert!(json.body.contains(WARNING), "{path}: {}", json.body);
    }
    let targets = request(&view, "GET", "/targets", ("accept", "*/*")).await.body;
    assert!(targets.contains("0 of 0 targets up, 3 dropped"), "{targets}");
    assert_eq!(targets.matches(REASON).count(), 1, "{targets}");
}

#[tokio::test]
async fn pages_are_json_on_request() {
    let view = Arc::new(FixedView::default());
    let by_query = request(&view, "GET", "/targets?format=json", ("accept", "text/html")).await;
    let by_header = request(&view, "GET", "/targets", ("accept", "application/json")).await;
    assert_eq!(by_query.content_type, "application/json");
    assert_eq!(serde_json::from_str::<TargetsView>(&by_query.body).unwrap(), view.targets());
    assert_eq!(by_query.body, by_header.body);
}

#[tokio::test]
async fn metrics_have_the_requested_format() {
    let view = Arc::new(FixedView::default());
    let text = request(&view, "GET", "/metrics", ("accept", "*/*")).await;
    assert!(text.content_type.starts_with("text/plain"), "{}", text.content_type);
    assert!(text.body.contains("athanor_agent_config_reloads_total{result=\"failed\"} 0"), "{}", text.body);
    let open = request(&view, "GET", "/metrics", ("accept", "application/openmetrics-text")).await;
    assert!(open.content_type.starts_with("application/openmetrics-text") && open.body.ends_with("# EOF\n"));
}

#[tokio::test]
async fn agent_that_is_not_ready_responds_503_with_the_reason() {
    let ready = request(&Arc::new(FixedView::default()), "GET", "/ready", ("accept", "*/*")).await;
    assert_eq!(ready.status, StatusCode::OK);
    let starting = Arc::new(FixedView { unreadiness: Some("discovery runs".into()), ..FixedView::default() });
    let starting = request(&starting, "GET", "/ready", ("accept", "*/*")).await;
    assert_eq!(starting.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(starting.body.contains("discovery runs"));
}

#[tokio::test]
async fn page_of_another_site_cannot_drain_the_spool() {
    let view = Arc::new(FixedView::default());
    let without = request(&view, "POST", "/spool/drain", ("origin", "https://other.example")).await;
    assert_eq!((without.status, view.drains.load(Ordering::Relaxed)), (StatusCode::FORBIDDEN, 0));
    let with = request(&view, "POST", "/spool/drain", ("athanor-agent-command", "drain")).await;
    assert_eq!((with.status, view.drains.load(Ordering::Relaxed)), (StatusCode::NO_CONTENT, 1));
}
