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
use axum::http::header::ACCEPT;
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
        let accepts_arrow = accepts_arrow(request.headers());
        let respond = move |caller: QueryCaller, message: I| async move {
            let query = if accepts_arrow { query_text(&message)? } else { String::new() };
            let response = method(Arc::clone(&hall), caller.0.clone(), message).await?;
            if !accepts_arrow {
                return Ok(CallOutput::Message(response));
            }
            let warnings = caller.warnings();
            let door =
                caller.payer().map_or_else(|| hall.door.clone(), |tenant| hall.door.for_tenant(tenant));
            let encode = move || encode_table(&response, query, warnings);
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
) -> Result<bytes::Bytes, Status> {
    let failed = |error: &dyn std::fmt::Display| {
        Status::new(ErrorCode::Internal, format!("failed to write the response as arrow: {error}"))
    };
    let mut table: ResponseTable = response.to_table().map_err(|error| failed(&error))?;
    table.metadata.query = query;
    table.metadata.warnings = warnings;
    table.to_stream().map_err(|error| failed(&error))
}

fn query_text(request: &impl Serialize) -> Result<String, Status> {
    serde_json::to_string(request).map_err(|error| Status::new(ErrorCode::Internal, error.to_string()))
}

/// Returns true if an `Accept` header names Arrow streams. Ranges with wildcards do not, so that existing clients get
/// messages.
pub(in crate::http) fn accepts_arrow(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let names_arrow = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(ARROW_STREAM_TYPE));
        names_arrow && parts.all(|parameter| !is_zero_weight(parameter))
    })
}

/// Returns true for the parameter `q=0`, by which a client refuses a type.
fn is_zero_weight(parameter: &str) -> bool {
    let weight = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="));
    weight.and_then(|weight| weight.trim().parse::<f32>().ok()).is_some_and(|weight| weight <= 0.0)
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
        assert!(!accepts_arrow(&HeaderMap::new()));
    }
}
