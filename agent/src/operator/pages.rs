//! Router of the pages. Each page is HTML for browsers and JSON for programs.

use std::collections::BTreeMap;
use std::sync::Arc;

use athanor_chassis::observability::metrics_page::MetricsFormat;
use athanor_chassis::{ErrorCode, Status};
use axum::Router;
use axum::extract::{Query, State};
use axum::http::header::{ACCEPT, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};

use super::html::{Cell, HtmlPage};
use super::views::{AgentView, ConfigView, ExplanationsView, SamplerView, StatusView, TargetsView};

type SharedView = Arc<dyn AgentView>;

/// Header that a request with an effect must have. A page of another site cannot set it.
pub(super) const COMMAND_HEADER: HeaderName = HeaderName::from_static("athanor-agent-command");

#[derive(Deserialize)]
struct PageQuery {
    format: Option<String>,
}

#[derive(Deserialize)]
struct ExplainQuery {
    target: String,
}

/// Returns the router of all pages.
pub fn operator_router(view: SharedView) -> Router {
    Router::new()
        .route("/", get(async || Redirect::temporary("/targets")))
        .route("/targets", get(show_targets))
        .route("/status", get(show_status))
        .route("/config", get(show_config))
        .route("/metrics", get(show_metrics))
        .route("/ready", get(show_readiness))
        .route("/explain", get(show_explanations))
        .route("/spool/drain", post(drain_spool))
        .with_state(view)
}

async fn show_targets(
    State(view): State<SharedView>,
    Query(query): Query<PageQuery>,
    headers: HeaderMap,
) -> Response {
    respond(&view.targets(), wants_json(&query, &headers), targets_page)
}

async fn show_status(
    State(view): State<SharedView>,
    Query(query): Query<PageQuery>,
    headers: HeaderMap,
) -> Response {
    respond(&view.status(), wants_json(&query, &headers), status_page)
}

async fn show_config(
    State(view): State<SharedView>,
    Query(query): Query<PageQuery>,
    headers: HeaderMap,
) -> Response {
    respond(&view.config(), wants_json(&query, &headers), config_page)
}

async fn show_metrics(State(view): State<SharedView>, headers: HeaderMap) -> Response {
    let format = MetricsFormat::from_accept([header_text(&headers, &ACCEPT)].into_iter());
    match view.metrics(format) {
        Ok(page) => ([(CONTENT_TYPE, format.content_type())], page).into_response(),
        Err(status) => refuse(&status),
    }
}

async fn show_readiness(State(view): State<SharedView>) -> Response {
    match view.unreadiness() {
        None => "ready\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")).into_response(),
    }
}

async fn show_explanations(State(view): State<SharedView>, Query(query): Query<ExplainQuery>) -> Response {
    let explanations: ExplanationsView = view.explain(&query.target);
    axum_json(&explanations)
}

async fn drain_spool(State(view): State<SharedView>, headers: HeaderMap) -> Response {
    if !headers.contains_key(COMMAND_HEADER) {
        let message = format!("the request lacks the header {COMMAND_HEADER}; use athanor-agent spool drain");
        return refuse(&Status::new(ErrorCode::PermissionDenied, message));
    }
    match view.drain().await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(status) => refuse(&status),
    }
}

fn refuse(status: &Status) -> Response {
    let code = StatusCode::from_u16(status.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (code, format!("{}\n", status.message)).into_response()
}

fn header_text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn wants_json(query: &PageQuery, headers: &HeaderMap) -> bool {
    match query.format.as_deref() {
        Some(format) => format == "json",
        None => header_text(headers, &ACCEPT).contains("application/json"),
    }
}

fn respond<V: Serialize>(view: &V, is_json: bool, page: impl FnOnce(&V) -> String) -> Response {
    if is_json {
        return axum_json(view);
    }
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, page(view)).into_response()
}

fn axum_json<V: Serialize>(view: &V) -> Response {
    match serde_json::to_string(view) {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => {
            refuse(&Status::new(ErrorCode::Internal, format!("failed to encode the page: {error}")))
        }
    }
}

fn targets_page(view: &TargetsView) -> String {
    let mut page = HtmlPage::new("Targets", &view.warnings);
    let mut jobs: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    view.dropped.keys().for_each(|job| {
        jobs.entry(job).or_default();
    });
    view.active.iter().for_each(|target| jobs.entry(&target.job).or_default().push(target));
    if jobs.is_empty() {
        page.paragraph("No targets. The agent scrapes those that discovery of its jobs finds.");
    }
    for (job, targets) in jobs {
        page.heading(job);
        let up = targets.iter().filter(|target| target.state == "up").count();
        let dropped = view.dropped.get(job).copied().unwrap_or_default();
        page.paragraph(&format!("{up} of {} targets up, {dropped} dropped", targets.len()));
        let rows = targets.into_iter().flat_map(|target| {
            target.kinds.iter().map(|kind| {
                let age = kind.last_scrape_age_seconds.map(|age| format!("{age:.0} s ago"));
                let state =
                    if kind.state == "down" { Cell::problem(&kind.state) } else { Cell::new(&kind.state) };
                vec![
                    Cell::new(&target.url),
                    Cell::new(format!("{} {}", kind.name, kind.path)),
                    state,
                    Cell::new(age.unwrap_or_else(|| "never".to_owned())),
                    Cell::new(format!("{:.3} s", kind.last_duration_seconds)),
                    Cell::new(kind.last_bytes.to_string()),
                    Cell::new(format_labels(&target.labels)),
                    Cell::problem(kind.error.as_deref().unwrap_or_default()),
                ]
            })
        });
        page.table(&["Target", "Kind", "State", "Last scrape", "Duration", "Bytes", "Labels", "Error"], rows);
        let dropped = view.dropped_targets.iter().filter(|target| target.job == job);
        let rows = dropped.map(|target| {
            vec![Cell::new(format_labels(&target.discovered_labels)), Cell::new(&target.reason)]
        });
        page.table_unless_empty(&["Labels of dropped targets", "Reason"], rows);
    }
    page.finish()
}

fn status_page(view: &StatusView) -> String {
    let mut page = HtmlPage::new("Status", &view.warnings);
    let config = &view.config;
    let row = |name: &str, value: String| vec![Cell::new(name), Cell::new(value)];
    let file = config.file.as_deref().unwrap_or("none, the defaults are in force");
    let reloads = format!("{} applied, {} failed", config.reloads, config.failed_reloads);
    let receiver = view.receive_address.as_deref().unwrap_or("disabled");
    let rows = [
        row("Version", view.version.clone()),
        row("Uptime", format!("{:.0} s", view.uptime_seconds)),
        row("Configuration", file.to_owned()),
        row("In force since", format!("{:.0} s", config.age_seconds)),
        row("Reloads", reloads),
        row("Receiver", receiver.to_owned()),
        row(
            "Spool",
            view.spool_folder.as_deref().unwrap_or("in memory, because no folder is writable").to_owned(),
        ),
    ];
    page.table(&["Property", "Value"], rows);
    if let Some(error) = &config.error {
        page.warning(&format!("The last reload failed, the settings before it are in force: {error}"));
    }
    sampler_section(&mut page, &view.sampler);
    page.heading("Servers");
    let rows = view.servers.iter().map(|server| {
        let age = server.oldest_age_seconds.map(|age| format!("{age:.0} s")).unwrap_or_default();
        vec![
            Cell::new(&server.name),
            Cell::new(&server.url),
            Cell::new(server.spool_files.to_string()),
            Cell::new(server.spool_bytes.to_string()),
            Cell::new(age),
            Cell::new(server.sent_profiles.to_string()),
            Cell::new(server.refused_profiles.to_string()),
            Cell::new(server.dropped_profiles.to_string()),
            Cell::problem(server.error.as_deref().unwrap_or_default()),
        ]
    });
    let columns =
        ["Server", "URL", "Spool files", "Spool bytes", "Oldest", "Sent", "Refused", "Dropped", "Error"];
    page.table(&columns, rows);
    page.finish()
}

fn sampler_section(page: &mut HtmlPage, view: &SamplerView) {
    page.heading("Sampler");
    let row = |name: &str, value: String| vec![Cell::new(name), Cell::new(value)];
    let state = match view.problem.as_deref() {
        Some(problem) => vec![Cell::new("State"), Cell::problem(format!("{}: {problem}", view.state))],
        None => row("State", view.state.clone()),
    };
    let counts = |counts: &BTreeMap<String, u64>| {
        let counted = counts.iter().filter(|(_, count)| **count > 0);
        let texts: Vec<String> = counted.map(|(name, count)| format!("{name} {count}")).collect();
        if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
    };
    let rows = [
        state,
        row("Rate in force", format!("{:.1} Hz per CPU", view.rate_hz)),
        row("Own share of all CPUs", format!("{:.3} %", view.cpu_percent)),
        row("Time of the BPF program for a sample", format!("{} ns", view.program_nanos_per_sample)),
        row("Windows", format!("{} read, {} lost", view.windows, view.lost_windows)),
        row(
            "Samples",
            format!(
                "{} taken, {} delivered, {} stored",
                view.samples_taken, view.samples_delivered, view.samples_stored
            ),
        ),
        row("Samples lost", counts(&view.samples_lost)),
        row("Samples with an incomplete stack", counts(&view.samples_incomplete)),
        row("Samples dropped by labels", counts(&view.samples_dropped)),
        row("Profiles", format!("{} stored, {} rejected", view.profiles, view.rejected_profiles)),
        row("Processes", view.processes.to_string()),
        row("Unwind rows", format!("{} in {} pages", view.rows, view.pages)),
        row("Memory", format!("{} bytes of maps, {} bytes of tables", view.map_bytes, view.table_bytes)),
        row("Evictions", counts(&view.evictions)),
    ];
    page.table(&["Property", "Value"], rows);
}

fn config_page(view: &ConfigView) -> String {
    let mut page = HtmlPage::new("Configuration", &view.warnings);
    page.paragraph(view.file.as_deref().unwrap_or("No file. The defaults and the environment are in force."));
    page.preformatted(&view.yaml);
    page.finish()
}

fn format_labels(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    pairs.join(", ")
}
