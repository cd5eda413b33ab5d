//! Plain HTTP: what language SDKs send, and what old dashboards ask.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use athanor_chassis::clock::Elapsed;
use athanor_chassis::{Code, Status};
use athanor_querier::{Reader, Rendered};
use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};

use super::body::{GZIP, announced, takes_gzip};
use super::caller;
use super::connection::keep_budget;
use super::diagnostics::watched;
use super::encoding::{json_error, json_error_with};
use super::partial::mark;
use super::recorded::name;
use super::routes::{Hall, text};
use super::unary::deadline;
use super::weight::Admits;

/// A handler's answer, on its way.
pub type Answering = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

const NOTHING_HERE: &str = "there is nothing at this path: profiles go to /ingest and /push.v1.PusherService/Push, and / \
lists services\n";

/// A path that leads nowhere.
pub fn not_found() -> Response<Body> {
    let mut response = text("text/plain; charset=utf-8", NOTHING_HERE);
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// A body that was not read. One that came too slowly is 408 for SDKs, which send it again.
fn unread(status: &Status) -> Response<Body> {
    let http = if status.code == Code::Deadline { 408 } else { status.code.http() };
    json_error_with(status, status.code.connect(), http)
}

/// `POST /ingest`.
pub fn ingest(hall: Arc<Hall>, request: Request<Body>) -> Answering {
    Box::pin(async move {
        let (parts, body) = request.into_parts();
        let received = async {
            let tenant = caller::writer(&parts.headers, hall.door.multitenancy)?;
            let distributor = hall.services.distributor()?.clone();
            let admits = Admits::profiles(distributor.body_limit(&tenant));
            let read = async {
                distributor.check_rate(&tenant, announced(&parts.headers))?;
                hall.door.for_tenant(&tenant).read(&parts.headers, body, &admits).await
            };
            let counts = distributor.counts();
            let held = read.await.inspect_err(|status| counts.request_refused(&tenant, status))?;
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

/// What is read by a URL alone.
#[derive(Clone, Copy)]
enum Read {
    Render,
    RenderDiff,
    Values,
    Export,
}

impl Read {
    fn path(self) -> &'static str {
        match self {
            Read::Render => "/pyroscope/render",
            Read::RenderDiff => "/pyroscope/render-diff",
            Read::Values => "/pyroscope/label-values",
            Read::Export => "/athanor/export",
        }
    }
}

/// `GET /pyroscope/render`.
pub fn render(hall: Arc<Hall>, request: Request<Body>) -> Answering {
    read(hall, request, Read::Render)
}

/// `GET /pyroscope/render-diff`.
pub fn render_diff(hall: Arc<Hall>, request: Request<Body>) -> Answering {
    read(hall, request, Read::RenderDiff)
}

/// `GET /pyroscope/label-values`.
pub fn label_values(hall: Arc<Hall>, request: Request<Body>) -> Answering {
    read(hall, request, Read::Values)
}

/// `GET /athanor/export`.
pub fn export(hall: Arc<Hall>, request: Request<Body>) -> Answering {
    read(hall, request, Read::Export)
}

fn read(hall: Arc<Hall>, request: Request<Body>, what: Read) -> Answering {
    let parts = request.into_parts().0;
    Box::pin(async move {
        let reader = match caller::reader(&parts.headers, hall.door.multitenancy) {
            Ok(reader) => reader,
            Err(status) => return vary(json_error(&status)),
        };
        let reader = watched(&hall, reader, &parts.headers, what.path());
        let query = parts.uri.query().unwrap_or_default();
        let answered = async {
            let querier = hall.services.querier()?;
            match what {
                Read::Render => querier.render(&reader, query).await,
                Read::RenderDiff => querier.render_diff(&reader, query).await,
                Read::Values => querier.values(&reader, query).await,
                Read::Export => querier.export(&reader, query).await,
            }
        };
        let rendered = match deadline(&parts.headers) {
            Ok(None) => answered.await,
            Ok(Some(wait)) => {
                reader.waits(&hall.door.clock, wait);
                let late = |elapsed: Elapsed| Err(Status::new(Code::Deadline, elapsed.to_string()));
                hall.door.clock.within(wait, answered).await.unwrap_or_else(late)
            }
            Err(status) => Err(status),
        };
        let failed = rendered.as_ref().err().cloned();
        let mut response = show(&hall, &reader, &parts.headers, rendered).await;
        name(&mut response, reader.ended(failed.as_ref()));
        mark(&mut response, &reader.all_missing());
        keep_budget(&mut response, |bytes| reader.take_response_budget(bytes));
        response
    })
}

async fn show(
    hall: &Hall,
    reader: &Reader,
    headers: &HeaderMap,
    rendered: Result<Rendered, Status>,
) -> Response<Body> {
    let (content_type, body) = match rendered {
        Ok(Rendered { content_type, body }) => (content_type, bytes::Bytes::from(body)),
        Err(status) => return vary(json_error(&status)),
    };
    let mut response = text(content_type, body.clone());
    if takes_gzip(headers) {
        let first = reader.tenants().first();
        let door = first.map_or_else(|| hall.door.clone(), |tenant| hall.door.for_tenant(tenant));
        match door.gzip(body).await {
            Ok(bytes) => {
                response.headers_mut().insert(CONTENT_ENCODING, GZIP);
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
    fn a_body_that_comes_too_slowly_is_408() {
        for (code, http) in
            [(Code::Deadline, 408), (Code::TooLarge, 413), (Code::Cancelled, Code::Cancelled.http())]
        {
            assert_eq!(unread(&Status::new(code, "it was not read")).status().as_u16(), http);
        }
    }
}
