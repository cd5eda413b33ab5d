//! Minimal web UI: the services of the last hour, and a flame graph of each.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{CpuActivity, Status, Timestamp};
use athanor_http_server::encoding::json_error;
use athanor_http_server::partial_header::set_partial_headers;
use athanor_http_server::result_headers::set_resolution_header;
use athanor_profile::render::printable::replace_control;
use athanor_profile::render::svg;
use athanor_proto::querier::v1::{SelectMergeStacktracesRequest, SeriesRequest};
use athanor_querier::{QueryContext, parse_time};
use axum::body::Body;
use axum::http::Request;

use crate::http::query_caller;
use crate::http::resolution_header::resolution_value;
use crate::http::routes::state::{HandlerFuture, HttpState, text};

const DEFAULT_PAGE_RANGE: Duration = Duration::from_secs(3600);
const PROFILE_TYPE_LABEL: &str = "__profile_type__";
const SERVICE_NAME_LABEL: &str = "service_name";
/// Maximum number of boxes in a flame graph. More are too small to distinguish.
const MAX_FLAMEGRAPH_NODES: i64 = 16 * 1024;

pub(in crate::http) const PAGE_STYLE: &str = "body{font:15px system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:#222}\
h1{font-size:1.4em}h2{font-size:1.05em;margin:1.4em 0 .3em}a{color:#b4380a}li{margin:.15em 0}\
code{background:#f3f0ec;padding:.1em .3em;border-radius:3px}.t{color:#777}";

/// `GET /`: lists the services of the last hour.
pub fn index(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    let headers = request.into_parts().0.headers;
    Box::pin(async move {
        let reader = match query_caller::parse_reader(&headers, hall.door.multitenancy) {
            Ok(reader) => reader,
            Err(status) => return json_error(&status),
        };
        let mut response = match services(&hall, &reader).await {
            Ok(services) => text("text/html; charset=utf-8", listing(&services, &reader.warnings())),
            Err(status) => json_error(&status),
        };
        set_partial_headers(&mut response, &reader.warnings());
        set_resolution_header(&mut response, reader.resolution().as_ref().map(resolution_value));
        response
    })
}

/// `GET /flamegraph.svg?service=…&type=…&from=…&until=…`: renders a flame graph. Times have the format of
/// `/pyroscope/render`; the default is the last hour.
pub fn flamegraph(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    let parts = request.into_parts().0;
    Box::pin(async move {
        let reader = match query_caller::parse_reader(&parts.headers, hall.door.multitenancy) {
            Ok(reader) => reader,
            Err(status) => return json_error(&status),
        };
        let mut response = match draw(&hall, &reader, parts.uri.query().unwrap_or_default()).await {
            Ok(svg) => text("image/svg+xml", svg),
            Err(status) => json_error(&status),
        };
        set_partial_headers(&mut response, &reader.warnings());
        set_resolution_header(&mut response, reader.resolution().as_ref().map(resolution_value));
        response
    })
}

fn last_hour(now: Timestamp) -> (i64, i64) {
    (now.minus(DEFAULT_PAGE_RANGE).millis(), now.millis() + 1)
}

/// Returns the profile types by service.
async fn services(hall: &HttpState, reader: &QueryContext) -> Result<BTreeMap<String, Vec<String>>, Status> {
    let (start, end) = last_hour(hall.door.clock.wall());
    let label_names = vec![SERVICE_NAME_LABEL.to_owned(), PROFILE_TYPE_LABEL.to_owned()];
    let asked = SeriesRequest { matchers: Vec::new(), label_names, start, end };
    let answer = hall.services.querier()?.series(reader, asked).await?;
    let mut services: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for labels in answer.labels_set {
        let of = |name: &str| {
            labels.labels.iter().find(|label| label.name == name).map(|label| label.value.clone())
        };
        if let (Some(service), Some(profile_type)) = (of(SERVICE_NAME_LABEL), of(PROFILE_TYPE_LABEL)) {
            services.entry(service).or_default().push(profile_type);
        }
    }
    Ok(services)
}

fn listing(services: &BTreeMap<String, Vec<String>>, warnings: &[String]) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Athanor</title><style>{PAGE_STYLE}</style>\
         <h1>Athanor</h1><p>Services with profiles of the last hour.</p>"
    );
    if !warnings.is_empty() {
        page.push_str("<p>This list is incomplete:</p><ul>");
        for warning in warnings {
            // Writing to a string does not fail.
            let _ = write!(page, "<li>{}</li>", escape_html(warning));
        }
        page.push_str("</ul>");
    }
    if services.is_empty() {
        page.push_str(
            "<p>There are none yet. Send one: <code>athanor push cpu.pb.gz --service shop</code>, or point any \
             Pyroscope SDK or agent at this address.</p>",
        );
    }
    for (service, types) in services {
        // Writing to a string does not fail.
        let _ = write!(page, "<h2>{}</h2><ul>", escape_html(service));
        for profile_type in types {
            let _ = write!(
                page,
                "<li><a href=\"/flamegraph.svg?service={}&amp;type={}\">{}</a></li>",
                encoded(service),
                encoded(profile_type),
                escape_html(profile_type)
            );
        }
        page.push_str("</ul>");
    }
    page.push_str(
        "<p class=\"t\">Also here: <a href=\"/shards\">shards</a>, <a href=\"/metrics\">metrics</a>, <a href=\"/config\">settings</a>, \
         <a href=\"/query-diagnostics\">recorded queries</a>, \
         <a href=\"/ready\">readiness</a>. Grafana's Pyroscope data source takes this address.</p></html>",
    );
    page
}

async fn draw(hall: &HttpState, reader: &QueryContext, query: &str) -> Result<String, Status> {
    let given: BTreeMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let of = |name: &str| given.get(name).map(String::as_str).unwrap_or_default();
    let wall = hall.door.clock.wall();
    let (hour_ago, now) = last_hour(wall);
    let time = |name, default| match given.get(name) {
        Some(text) => Ok(Timestamp::from_nanos(parse_time(name, text, wall.nanos())?).millis()),
        None => Ok::<_, Status>(default),
    };
    let service = of("service").replace('\\', "\\\\").replace('"', "\\\"");
    let asked = SelectMergeStacktracesRequest {
        profile_type_id: of("type").to_owned(),
        label_selector: format!("{{{SERVICE_NAME_LABEL}=\"{service}\"}}"),
        start: time("from", hour_ago)?,
        end: time("until", now)?,
        max_nodes: Some(MAX_FLAMEGRAPH_NODES),
        ..SelectMergeStacktracesRequest::default()
    };
    let tree = hall.services.querier()?.merged_tree(reader, asked).await?;
    let unit = of("type").split(':').nth(2).unwrap_or_default().to_owned();
    let title = format!("{} · {}", of("service"), of("type"));
    let first = reader.tenants().first();
    let door = first.map_or_else(|| hall.door.clone(), |tenant| hall.door.for_tenant(tenant));
    door.run_on_compute(CpuActivity::Query, usize::MAX, move || svg::write(&tree, &unit, &title)).await
}

pub(in crate::http) fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in replace_control(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
    }
    out
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_text_and_links() {
        let services = BTreeMap::from([("<a&b>\"".to_owned(), vec!["x:y z".to_owned()])]);
        let page = listing(&services, &["a block is <gone>".to_owned()]);
        assert!(page.contains("<li>a block is &lt;gone&gt;</li>"));
        assert!(page.contains("<h2>&lt;a&amp;b&gt;&quot;</h2>"));
        assert!(page.contains("service=%3Ca%26b%3E%22&amp;type=x%3Ay+z"));
        assert_eq!(escape_html("a\u{202e}b\u{1b}"), "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn an_empty_server_says_how_to_begin() {
        assert!(listing(&BTreeMap::new(), &[]).contains("athanor push"));
    }
}
