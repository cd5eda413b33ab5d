//! Query diagnostics: a request header requests a record, a response header contains the record's id, and
//! pages show the records.

use std::fmt::Write;
use std::sync::Arc;

use athanor_chassis::units::format_approximate_duration;
use athanor_chassis::{ErrorCode, Status, Timestamp};
use athanor_http_server::encoding::json_error;
use athanor_querier::{QueryContext, QueryRecordSummary};
use axum::body::Body;
use axum::http::header::HeaderName;
use axum::http::{HeaderMap, Request, Response};
use serde_json::{Value, json};

use crate::http::api::web_page::{PAGE_CONTENT_TYPE, PAGE_STYLE, accepts_html, escape_html};
use crate::http::query_caller;
use crate::http::routes::state::{HandlerFuture, HttpState, text};

/// Path of the record pages.
pub const DIAGNOSTICS_PATH: &str = "/query-diagnostics";
/// Request header that requests a record.
const COLLECT_HEADER: HeaderName = HeaderName::from_static("x-pyroscope-collect-diagnostics");

/// Records the query of a reader if the request asks for it.
pub fn record_if_requested(
    hall: &HttpState,
    reader: QueryContext,
    headers: &HeaderMap,
    path: &'static str,
) -> QueryContext {
    let is_wanted = headers.get(COLLECT_HEADER).is_some_and(|value| {
        let value = value.as_bytes().trim_ascii();
        value == b"1" || value.eq_ignore_ascii_case(b"true")
    });
    match &hall.services.querier {
        Some(querier) if is_wanted => querier.with_diagnostics(reader, path.trim_start_matches('/')),
        _ => reader,
    }
}

/// `GET /query-diagnostics`: lists the records of the caller's queries at this node, as JSON or as a page for
/// browsers.
pub fn records(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    Box::pin(async move {
        let told = entered(&hall, request.headers()).and_then(|reader| {
            let records = hall.services.querier()?.query_records(&reader);
            Ok(match accepts_html(request.headers()) {
                true => text(PAGE_CONTENT_TYPE, listing(&records, hall.door.clock.wall())),
                false => text("application/json", json!({ "records": records }).to_string()),
            })
        });
        told.unwrap_or_else(|status| json_error(&status))
    })
}

/// `GET /query-diagnostics/ID`: returns one record from the querier that keeps it, as JSON or as a page for
/// browsers.
pub fn record(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    Box::pin(async move {
        let id = request.uri().path().strip_prefix(DIAGNOSTICS_PATH).unwrap_or_default().trim_matches('/');
        match told(&hall, request.headers(), id).await {
            Ok(response) => response,
            Err(status) => json_error(&status),
        }
    })
}

async fn told(hall: &HttpState, headers: &HeaderMap, id: &str) -> Result<Response<Body>, Status> {
    let reader = entered(hall, headers)?;
    let record = hall.services.querier()?.query_record(&reader, id).await?;
    if !accepts_html(headers) {
        return Ok(text("application/json", record));
    }
    let unreadable = |error: serde_json::Error| Status::new(ErrorCode::Internal, error.to_string());
    let record: Value = serde_json::from_slice(&record).map_err(unreadable)?;
    Ok(text(PAGE_CONTENT_TYPE, page(&record)))
}

fn entered(hall: &HttpState, headers: &HeaderMap) -> Result<QueryContext, Status> {
    query_caller::parse_reader(headers, hall.door.multitenancy)
}

fn listing(records: &[QueryRecordSummary], now: Timestamp) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Queries</title><style>{PAGE_STYLE}\
         table{{border-collapse:collapse}}td,th{{text-align:left;padding:.2em .8em .2em 0}}</style>\
         <h1>Recorded queries</h1>"
    );
    if records.is_empty() {
        page.push_str(
            "<p>There are none. The querier records requests with the header \
             <code>X-Pyroscope-Collect-Diagnostics: true</code>.</p>",
        );
    }
    page.push_str("<table>");
    for QueryRecordSummary { id, time_millis, call, outcome, total_millis } in records {
        let came = Timestamp::from_nanos(time_millis.saturating_mul(1_000_000));
        // Writing to a string does not fail.
        let _ = write!(
            page,
            "<tr><td>{total_millis} ms<td>{outcome}<td><a href=\"query-diagnostics/{id}\">{}</a><td class=\"t\">{} ago",
            escape_html(call),
            format_approximate_duration(now.since(came))
        );
    }
    page.push_str("</table></html>");
    page
}

fn page(record: &Value) -> String {
    let shown = serde_json::to_string_pretty(record).unwrap_or_default();
    // Each line is escaped separately, so that line breaks stay.
    let lines: Vec<String> = shown.lines().map(escape_html).collect();
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Query</title><style>{PAGE_STYLE}</style>\
         <h1>Query diagnostics</h1><pre>{}</pre><p class=\"t\"><a href=\"../query-diagnostics\">Others</a></p></html>",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_records_and_no_text_of_them_is_markup() {
        let summary = QueryRecordSummary {
            id: "an-id".to_owned(),
            time_millis: 1_000,
            call: "querier.v1.QuerierService/Series",
            outcome: "ok",
            total_millis: 1.25,
        };
        let shown = listing(&[summary], Timestamp::from_seconds(61));
        for part in ["1.25 ms", "href=\"query-diagnostics/an-id\"", "1 minute ago"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(listing(&[], Timestamp::UNIX_EPOCH).contains("X-Pyroscope-Collect-Diagnostics"));
        let shown = page(&json!({ "selector": "{a=\"<b>\"}", "queries": [1] }));
        assert!(shown.contains("&lt;b&gt;") && !shown.contains("<b>") && shown.contains("\n"), "{shown}");
    }
}
