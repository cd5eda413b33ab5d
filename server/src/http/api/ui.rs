//! Web UI: its embedded files below `/ui/`, redirects of browsers to it, and its calls without compression.
//!
//! All redirects are relative, so that they hold below any path prefix of a proxy.

use std::sync::Arc;

use athanor_http_server::PeerAddress;
use athanor_http_server::body::accepts_gzip;
use athanor_http_server::encoding::json_error;
use axum::body::Body;
use axum::http::header::{ACCEPT_ENCODING, FORWARDED, HeaderName, IF_NONE_MATCH, LOCATION, VARY, VIA};
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};

use crate::http::api::legacy_api::not_found;
use crate::http::api::web_page::opens_page;
use crate::http::routes::state::{HandlerFuture, HttpState, text};

/// Path of the UI.
pub const UI_PATH: &str = "/ui/";
/// Header of the calls that the UI makes.
const UI_HEADER: HeaderName = HeaderName::from_static("athanor-ui");
/// Headers of requests that a proxy sends on behalf of another host.
const PROXY_HEADERS: [HeaderName; 6] = [
    FORWARDED,
    VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
];

const START_TEXT: &str = "Athanor, a continuous profiler.\n\n\
    ui/                 web UI\n\
    ready               readiness\n\
    metrics             metrics\n\
    config              settings\n\
    shards              shards\n\
    compaction          compaction\n\
    query-diagnostics   recorded queries\n\n\
    Grafana's data source for Pyroscope takes this address. Send profiles to /ingest or /push.v1.PusherService/Push.\n";

/// `GET /`: redirects browsers to the UI, with the query string of the URL. Returns a short text to other clients.
pub fn start(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    Box::pin(async move {
        // A node without queries has nothing to show.
        let mut response = match opens_page(&request) && hall.services.querier.is_some() {
            true => redirect("ui/", &request),
            false => text("text/plain; charset=utf-8", START_TEXT),
        };
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        response
    })
}

/// `GET /explore`, `GET /comparison`: redirects browsers from the pages of Pyroscope to those of the UI.
pub fn pyroscope_page(_: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    Box::pin(async move {
        match opens_page(&request) {
            true => redirect(&format!("ui{}", request.uri().path()), &request),
            false => not_found(),
        }
    })
}

/// `GET /ui`: redirects to the UI.
pub fn without_slash(_: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    Box::pin(async move { redirect("ui/", &request) })
}

/// `GET /ui/…`: returns a file of the UI. Paths of its views return its page.
pub fn file(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    Box::pin(async move {
        if let Err(status) = hall.services.querier() {
            return json_error(&status);
        }
        let file_request = athanor_ui::FileRequest {
            path: request.uri().path().strip_prefix(UI_PATH).unwrap_or_default(),
            query: request.uri().query().unwrap_or_default(),
            accepts_gzip: accepts_gzip(request.headers()),
            if_none_match: request.headers().get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()),
        };
        file_request.respond().map_or_else(not_found, |response| response.map(Body::from))
    })
}

/// Returns a redirect to a relative path, with the query string of the request.
fn redirect(path: &str, request: &Request<Body>) -> Response<Body> {
    let target = match request.uri().query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let Ok(location) = HeaderValue::from_str(&target) else { return not_found() };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    response.headers_mut().insert(LOCATION, location);
    response
}

/// Returns whether a proxy that names itself sent the request.
pub fn is_forwarded(headers: &HeaderMap) -> bool {
    PROXY_HEADERS.iter().any(|name| headers.contains_key(name))
}

/// Turns compression off for calls of the UI over loopback, where it costs more than it saves. Scripts cannot change
/// `Accept-Encoding`, so the UI sends a header of its own.
pub fn skip_compression_on_loopback(request: &mut Request<Body>) {
    let peer = request.extensions().get::<PeerAddress>();
    let is_local = peer.is_some_and(|peer| peer.0.ip().to_canonical().is_loopback());
    let headers = request.headers_mut();
    if is_local && !is_forwarded(headers) && headers.contains_key(UI_HEADER) {
        headers.remove(ACCEPT_ENCODING);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_the_ui_over_loopback_are_not_compressed() {
        let is_compressed = |peer: Option<&str>, headers: &[(&str, &str)]| {
            let mut request = Request::builder().uri("/").header(ACCEPT_ENCODING, "gzip, br");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let mut request = request.body(Body::empty()).unwrap();
            if let Some(peer) = peer {
                request.extensions_mut().insert(PeerAddress(peer.parse().unwrap()));
            }
            skip_compression_on_loopback(&mut request);
            accepts_gzip(request.headers())
        };
        let ui = ("athanor-ui", "1");
        for peer in ["127.0.0.1:5", "[::1]:5", "[::ffff:127.0.0.1]:5"] {
            assert!(!is_compressed(Some(peer), &[ui]), "{peer}");
            assert!(is_compressed(Some(peer), &[]), "{peer}");
            for proxy in ["forwarded", "x-forwarded-for", "via"] {
                assert!(is_compressed(Some(peer), &[ui, (proxy, "10.0.0.9")]), "{proxy}");
            }
        }
        assert!(is_compressed(Some("10.0.0.5:5"), &[ui]));
        assert!(is_compressed(None, &[ui]));
    }

    #[test]
    fn redirects_are_relative_and_keep_the_query() {
        let location = |uri: &str, path: &str| {
            let request = Request::builder().uri(uri).body(Body::empty()).unwrap();
            let response = redirect(path, &request);
            assert_eq!(response.status(), StatusCode::TEMPORARY_REDIRECT);
            response.headers()[LOCATION].to_str().unwrap().to_owned()
        };
        assert_eq!(location("/", "ui/"), "ui/");
        let old = "query=app.cpu%7Bpod=%22a%22%7D&from=now-1h";
        assert_eq!(location(&format!("/?{old}"), "ui/"), format!("ui/?{old}"));
        assert_eq!(location(&format!("/explore?{old}"), "ui/explore"), format!("ui/explore?{old}"));
    }
}
