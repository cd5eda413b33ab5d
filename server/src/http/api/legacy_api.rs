//! Plain HTTP routes: uploads of language SDKs and queries of old dashboards.

use std::sync::Arc;

use athanor_chassis::time::clock::TimeoutElapsed;
use athanor_chassis::{ErrorCode, Status};
use athanor_http_server::body::{GZIP_CONTENT_ENCODING, accepts_gzip, announced_length};
use athanor_http_server::connection::keep_budget;
use athanor_http_server::decoded_size::BodyPolicy;
use athanor_http_server::encoding::{json_error, json_error_with};
use athanor_http_server::partial_header::set_partial_headers;
use athanor_http_server::result_headers::{set_diagnostics_id, set_resolution_header};
use athanor_http_server::tenant_header;
use athanor_http_server::unary::deadline;
use athanor_querier::{QueryContext, RenderedResponse, parse_parameters};
use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};

use crate::http::api::diagnostics::record_if_requested;
use crate::http::query_caller;
use crate::http::resolution_header::resolution_value;
use crate::http::routes::state::{HandlerFuture, HttpState, text};

const NOT_FOUND_MESSAGE: &str = "path not found: send profiles to /ingest or /push.v1.PusherService/Push; open / \
in a browser\n";

/// Parameters of `/flamegraph.svg` that are not those of `/athanor/export`.
const MAPPED_PARAMETERS: [&str; 6] = ["service", "type", "from", "until", "format", "query"];
/// Error of a flame graph without a selection.
const NO_TYPE_MESSAGE: &str = "request has no type; add type=process_cpu:cpu:nanoseconds:cpu:nanoseconds and service, or query=type{selector}";
/// Error of a flame graph with two selections.
const TWO_SELECTIONS_MESSAGE: &str = "request has query beside type or service; use one of both";
/// Start of the range of `/flamegraph.svg`, unless the request states one.
const DEFAULT_FLAMEGRAPH_START: &str = "now-1h";

/// Returns the response for an unknown path.
pub fn not_found() -> Response<Body> {
    let mut response = text("text/plain; charset=utf-8", NOT_FOUND_MESSAGE);
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// Returns the response for a body that was not read. A body that arrived too slowly gets 408, on which SDKs
/// retry.
fn unread(status: &Status) -> Response<Body> {
    let http = if status.code == ErrorCode::Deadline { 408 } else { status.code.http_status() };
    json_error_with(status, status.code.connect_code(), http)
}

/// `POST /ingest`.
pub fn ingest(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    Box::pin(async move {
        let (parts, body) = request.into_parts();
        let received = async {
            let tenant = tenant_header::parse_writer(&parts.headers, hall.door.multitenancy)?;
            let distributor = hall.services.distributor()?.clone();
            let admits = BodyPolicy::profiles(distributor.body_limit(&tenant));
            let read = async {
                distributor.check_rate(&tenant, announced_length(&parts.headers))?;
                hall.door.for_tenant(&tenant).read(&parts.headers, body, &admits).await
            };
            let counts = distributor.stats();
            let held = read.await.inspect_err(|status| counts.record_request_refusal(&tenant, status))?;
            Ok::<_, Status>((tenant, held, distributor))
        };
        let (tenant, mut held, distributor) = match received.await {
            Ok(received) => received,
            Err(status) => return unread(&status),
        };
        let body = std::mem::take(&mut held.bytes);
        let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let query = parts.uri.query().unwrap_or_default();
        match distributor.ingest(&tenant, query, content_type, body).await {
            Ok(_) => Response::new(Body::empty()),
            Err(refused) => json_error_with(&refused.status, refused.code, refused.http),
        }
    })
}

/// Read endpoints that have all parameters in the URL.
#[derive(Clone, Copy)]
enum GetEndpoint {
    Render,
    RenderDiff,
    Values,
    Export,
    Flamegraph,
}

impl GetEndpoint {
    fn path(self) -> &'static str {
        match self {
            GetEndpoint::Render => "/pyroscope/render",
            GetEndpoint::RenderDiff => "/pyroscope/render-diff",
            GetEndpoint::Values => "/pyroscope/label-values",
            GetEndpoint::Export => "/athanor/export",
            GetEndpoint::Flamegraph => "/flamegraph.svg",
        }
    }
}

/// `GET /pyroscope/render`.
pub fn render(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    read(hall, request, GetEndpoint::Render)
}

/// `GET /pyroscope/render-diff`.
pub fn render_diff(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    read(hall, request, GetEndpoint::RenderDiff)
}

/// `GET /pyroscope/label-values`.
pub fn label_values(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    read(hall, request, GetEndpoint::Values)
}

/// `GET /athanor/export`.
pub fn export(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    read(hall, request, GetEndpoint::Export)
}

/// `GET /flamegraph.svg?service=…&type=…&from=…&until=…`: a flame graph, as from `/athanor/export`. `query` replaces
/// service and type. The default range is the last hour.
pub fn flamegraph(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    read(hall, request, GetEndpoint::Flamegraph)
}

/// Returns the parameters of `/athanor/export` for those of `/flamegraph.svg`. Further ones, such as transforms, stay
/// in their order.
fn flamegraph_parameters(query: &str) -> Result<String, Status> {
    let given = parse_parameters(query)?;
    let value = |name: &str| given.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str());
    let selector = match (value("query"), value("type").filter(|profile_type| !profile_type.is_empty())) {
        (Some(query), None) if value("service").is_none() => query.to_owned(),
        (Some(_), _) => return Err(Status::new(ErrorCode::Invalid, TWO_SELECTIONS_MESSAGE)),
        (None, None) => return Err(Status::new(ErrorCode::Invalid, NO_TYPE_MESSAGE)),
        (None, Some(profile_type)) => match value("service") {
            Some(service) => format!("{profile_type}{{service_name={}}}", quote(service)),
            None => format!("{profile_type}{{}}"),
        },
    };
    let mut parameters = form_urlencoded::Serializer::new(String::new());
    parameters.append_pair("format", "svg").append_pair("query", &selector);
    parameters.append_pair("from", value("from").unwrap_or(DEFAULT_FLAMEGRAPH_START));
    parameters.append_pair("until", value("until").unwrap_or("now"));
    let is_mapped = |name: &str| MAPPED_PARAMETERS.contains(&name);
    parameters.extend_pairs(given.iter().filter(|(name, _)| !is_mapped(name)));
    Ok(parameters.finish())
}

/// Returns a text as in a selector, in quotation marks.
fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

fn read(hall: Arc<HttpState>, request: Request<Body>, what: GetEndpoint) -> HandlerFuture {
    let parts = request.into_parts().0;
    Box::pin(async move {
        let reader = match query_caller::parse_reader(&parts.headers, hall.door.multitenancy) {
            Ok(reader) => reader,
            Err(status) => return vary(json_error(&status)),
        };
        let reader = record_if_requested(&hall, reader, &parts.headers, what.path());
        let query = parts.uri.query().unwrap_or_default();
        let answered = async {
            let querier = hall.services.querier()?;
            match what {
                GetEndpoint::Render => querier.render(&reader, query).await,
                GetEndpoint::RenderDiff => querier.render_diff(&reader, query).await,
                GetEndpoint::Values => querier.render_label_values(&reader, query).await,
                GetEndpoint::Export => querier.export(&reader, query).await,
                GetEndpoint::Flamegraph => querier.export(&reader, &flamegraph_parameters(query)?).await,
            }
        };
        let rendered = match deadline(&parts.headers) {
            Ok(None) => answered.await,
            Ok(Some(wait)) => {
                reader.set_timeout(&hall.door.clock, wait);
                let late =
                    |elapsed: TimeoutElapsed| Err(Status::new(ErrorCode::Deadline, elapsed.to_string()));
                hall.door.clock.timeout(wait, answered).await.unwrap_or_else(late)
            }
            Err(status) => Err(status),
        };
        let failed = rendered.as_ref().err().cloned();
        let mut response = show(&hall, &reader, &parts.headers, rendered).await;
        set_diagnostics_id(&mut response, reader.finish_request(failed.as_ref()));
        set_partial_headers(&mut response, &reader.warnings());
        set_resolution_header(&mut response, reader.resolution().as_ref().map(resolution_value));
        keep_budget(&mut response, |bytes| reader.take_response_budget(bytes));
        response
    })
}

async fn show(
    hall: &HttpState,
    reader: &QueryContext,
    headers: &HeaderMap,
    rendered: Result<RenderedResponse, Status>,
) -> Response<Body> {
    let (content_type, body) = match rendered {
        Ok(RenderedResponse { content_type, body }) => (content_type, bytes::Bytes::from(body)),
        Err(status) => return vary(json_error(&status)),
    };
    let mut response = text(content_type, body.clone());
    if accepts_gzip(headers) {
        let first = reader.tenants().first();
        let door = first.map_or_else(|| hall.door.clone(), |tenant| hall.door.for_tenant(tenant));
        match door.gzip(body).await {
            Ok(bytes) => {
                response.headers_mut().insert(CONTENT_ENCODING, GZIP_CONTENT_ENCODING);
                *response.body_mut() = bytes.into();
            }
            Err(status) => return vary(json_error(&status)),
        }
    }
    vary(response)
}

fn vary(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flamegraph_is_an_export_of_a_service() {
        let parameters = |query: &str| parse_parameters(&flamegraph_parameters(query).unwrap()).unwrap();
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(
            parameters("service=a%22%5C&type=cpu:t&from=2026-03-02T10:00:00Z"),
            pairs(&[
                ("format", "svg"),
                ("query", r#"cpu:t{service_name="a\"\\"}"#),
                ("from", "2026-03-02T10:00:00Z"),
                ("until", "now"),
            ])
        );
        assert_eq!(
            parameters("type=cpu:t&until=noon&format=pprof&hide=b&focus=a"),
            pairs(&[
                ("format", "svg"),
                ("query", "cpu:t{}"),
                ("from", "now-1h"),
                ("until", "noon"),
                ("hide", "b"),
                ("focus", "a"),
            ])
        );
    }

    #[test]
    fn flamegraph_has_one_selection() {
        let given = parse_parameters(&flamegraph_parameters("query=cpu:t%7Ba%3D%22b%22%7D&from=1h").unwrap());
        assert_eq!(given.unwrap()[1], ("query".to_owned(), "cpu:t{a=\"b\"}".to_owned()));
        for (query, named) in [
            ("", "no type"),
            ("service=shop&from=1h", "no type"),
            ("type=&service=shop", "no type"),
            ("query=cpu:t%7B%7D&service=shop", "query beside"),
            ("query=cpu:t%7B%7D&type=cpu:t", "query beside"),
        ] {
            let refused = flamegraph_parameters(query).unwrap_err();
            assert_eq!(refused.code, ErrorCode::Invalid);
            assert!(refused.message.contains(named), "{query}: {refused}");
        }
    }

    #[test]
    fn a_body_that_comes_too_slowly_is_408() {
        for (code, http) in [
            (ErrorCode::Deadline, 408),
            (ErrorCode::TooLarge, 413),
            (ErrorCode::Cancelled, ErrorCode::Cancelled.http_status()),
        ] {
            assert_eq!(unread(&Status::new(code, "it was not read")).status().as_u16(), http);
        }
    }
}
