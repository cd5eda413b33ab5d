//! Calls whose responses are tables: as messages, or as Arrow streams if the client accepts those.

use std::future::Future;
use std::sync::Arc;

use athanor_arrow_format::{ARROW_STREAM_TYPE, ResponseTable, TableResponse};
use athanor_chassis::{CpuActivity, ErrorCode, Status};
use athanor_http_server::decoded_size::BodyPolicy;
use athanor_http_server::unary::{self, CallOutput, RequestIdentity};
use athanor_proto::athanor::v1::{ChangesRequest, FunctionsRequest, LinesRequest, ProfilesRequest};
use athanor_proto::querier::v1::{SelectSeriesRequest, SeriesRequest};
use athanor_proto::types::v1::LabelValuesRequest;
use athanor_querier::QueryContext;
use axum::Router;
use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, Request};
use axum::routing::any;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::api::diagnostics;
use crate::http::query_caller::{self, QueryCaller};
use crate::http::routes::rpc_method::with_route_metrics;
use crate::http::routes::state::HttpState;

/// Adds one call for each method of the querier.
macro_rules! table_calls {
    ($router:expr, $hall:expr, $($path:literal => $method:ident($request:ty)),* $(,)?) => {{
        let mut router = $router;
        $(router = table_call(router, $hall, $path, |hall: Arc<HttpState>, caller: QueryContext, request: $request| async move {
            hall.services.querier()?.$method(&caller, request).await
        });)*
        router
    }};
}

/// Adds the calls.
pub(in crate::http) fn routes(router: Router, hall: &Arc<HttpState>) -> Router {
    table_calls!(router, hall,
        "/querier.v1.QuerierService/LabelValues" => label_values(LabelValuesRequest),
        "/querier.v1.QuerierService/Series" => series(SeriesRequest),
        "/querier.v1.QuerierService/SelectSeries" => select_series(SelectSeriesRequest),
        "/athanor.v1.ExploreService/Functions" => functions(FunctionsRequest),
        "/athanor.v1.ExploreService/Lines" => lines(LinesRequest),
        "/athanor.v1.ExploreService/Changes" => changes(ChangesRequest),
        "/athanor.v1.ExploreService/Profiles" => profiles(ProfilesRequest),
    )
}

fn table_call<I, O, F, Fut>(router: Router, hall: &Arc<HttpState>, path: &'static str, method: F) -> Router
where
    I: Message + Default + DeserializeOwned + Serialize + 'static,
    O: Message + Serialize + TableResponse + 'static,
    F: Fn(Arc<HttpState>, QueryContext, I) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<O, Status>> + Send + 'static,
{
    let inner = Arc::clone(hall);
    let handler = any(move |request: Request<Body>| async move {
        let hall = Arc::clone(&inner);
        let accepts_arrow = accepts_arrow(request.headers()) && !is_grpc(request.headers());
        let respond = move |caller: QueryCaller, message: I| async move {
            let query = if accepts_arrow { query_text(&message)? } else { String::new() };
            let response = method(Arc::clone(&hall), caller.0.clone(), message).await?;
            if !accepts_arrow {
                return Ok(CallOutput::Message(response));
            }
            let warnings = caller.warnings();
            let resolution = caller.resolution().and_then(|value| value.to_str().ok().map(str::to_owned));
            let resolution = resolution.unwrap_or_default();
            let door =
                caller.payer().map_or_else(|| hall.door.clone(), |tenant| hall.door.for_tenant(tenant));
            let encode = move || encode_table(&response, query, warnings, resolution);
            let bytes = door.run_on_compute(CpuActivity::Query, usize::MAX, encode).await??;
            Ok(CallOutput::Bytes { content_type: ARROW_STREAM_TYPE, bytes })
        };
        let identify = |headers: &HeaderMap| {
            let caller = query_caller::parse_reader(headers, inner.door.multitenancy)?;
            Ok(QueryCaller(diagnostics::record_if_requested(&inner, caller, headers, path)))
        };
        unary::handle_call(&inner.door, request, identify, |_| BodyPolicy::QUERY_BODY, respond).await
    });
    router.route(path, with_route_metrics(hall, path, handler))
}

fn encode_table(
    response: &impl TableResponse,
    query: String,
    warnings: Vec<String>,
    resolution: String,
) -> Result<bytes::Bytes, Status> {
    let failed = |error: &dyn std::fmt::Display| {
        Status::new(ErrorCode::Internal, format!("failed to write the response as arrow: {error}"))
    };
    let mut table: ResponseTable = response.to_table().map_err(|error| failed(&error))?;
    if table.metadata.resolution.is_empty() {
        table.metadata.resolution = resolution;
    }
    if let Some(profile_type) = series_type(&query) {
        // The unit is the third of five parts.
        let unit = profile_type.split(':').nth(2).unwrap_or_default();
        table.metadata.unit = unit.to_owned();
        table.metadata.profile_type = profile_type;
    }
    table.metadata.query = query;
    table.metadata.warnings = warnings;
    table.to_stream().map_err(|error| failed(&error))
}

fn query_text(request: &impl Serialize) -> Result<String, Status> {
    serde_json::to_string(request).map_err(|error| Status::new(ErrorCode::Internal, error.to_string()))
}

/// Returns the profile type of a request for series, whose response does not contain it.
fn series_type(query: &str) -> Option<String> {
    let request: serde_json::Value = serde_json::from_str(query).ok()?;
    let names = ["profileTypeID", "profileTypeId"];
    names.iter().find_map(|name| request.get(name)?.as_str().map(str::to_owned))
}

/// Returns true for requests of gRPC, whose responses have frames and trailers.
fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|value| value.to_ascii_lowercase().starts_with("application/grpc"))
}

/// Returns true if an `Accept` header names Arrow streams, and no other type with a larger weight. Ranges with wildcards
/// do not name them, so that existing clients get messages.
pub(in crate::http) fn accepts_arrow(headers: &HeaderMap) -> bool {
    let (mut arrow, mut other) = (0.0_f32, 0.0_f32);
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(weight_of).unwrap_or(1.0);
        if name.eq_ignore_ascii_case(ARROW_STREAM_TYPE) {
            arrow = arrow.max(weight);
        } else if !name.contains('*') {
            other = other.max(weight);
        }
    }
    arrow > 0.0 && arrow >= other
}

/// Returns the value of the parameter `q`.
fn weight_of(parameter: &str) -> Option<f32> {
    let weight = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="));
    weight.and_then(|weight| weight.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(value: &'static str) -> bool {
        accepts_arrow(&HeaderMap::from_iter([(ACCEPT, value.parse().unwrap())]))
    }

    #[test]
    fn only_the_type_of_arrow_streams_selects_arrow() {
        assert!(accepts("application/vnd.apache.arrow.stream"));
        assert!(accepts("application/json;q=0.5, Application/vnd.apache.arrow.stream; q=1"));
        for other in ["*/*", "application/*", "application/json", "", "application/vnd.apache.arrow.file"] {
            assert!(!accepts(other), "{other}");
        }
        assert!(!accepts("application/vnd.apache.arrow.stream;q=0"));
        assert!(!accepts("application/json, application/vnd.apache.arrow.stream;q=0.1"));
        assert!(accepts("application/json, application/vnd.apache.arrow.stream, */*"));
        assert!(!accepts_arrow(&HeaderMap::new()));
    }
}
