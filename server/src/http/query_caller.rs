//! Caller of queries: its tenants, and its context in the stages of a request.

use std::ops::Deref;
use std::time::Duration;

use athanor_chassis::requests::result_budget::ResultReservation;
use athanor_chassis::{Clock, Status, TenantId};
use athanor_http_server::tenant_header::{named_tenants, tenant_refusal};
use athanor_http_server::unary::RequestIdentity;
use athanor_querier::QueryContext;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, HeaderValue};

use crate::http::resolution_header::resolution_value;

/// Caller of an RPC method that queries profiles.
#[derive(Clone)]
pub struct QueryCaller(pub QueryContext);

impl Deref for QueryCaller {
    type Target = QueryContext;

    fn deref(&self) -> &QueryContext {
        &self.0
    }
}

impl RequestIdentity for QueryCaller {
    fn payer(&self) -> Option<&TenantId> {
        self.tenants().first()
    }

    fn resolution(&self) -> Option<HeaderValue> {
        self.0.resolution().as_ref().map(resolution_value)
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }

    fn set_deadline(&self, clock: &Clock, wait: Duration) {
        self.set_timeout(clock, wait);
    }

    fn response_budget(&self, bytes: usize) -> Option<ResultReservation> {
        self.take_response_budget(bytes)
    }

    fn finish_request(&self, failed: Option<&Status>) -> Option<String> {
        self.0.finish_request(failed)
    }
}

/// Returns the context of a reader. `a|b` means the union of both tenants.
pub fn parse_reader(headers: &HeaderMap, multitenancy: bool) -> Result<QueryContext, Status> {
    let reader = match multitenancy {
        false => QueryContext::for_tenant(TenantId::anonymous()),
        true => QueryContext::parse(named_tenants(headers)?).map_err(|error| tenant_refusal(&error))?,
    };
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    Ok(reader.with_accept_header(&accepted.collect::<Vec<_>>().join(",")))
}

#[cfg(test)]
mod tests {
    use athanor_chassis::ErrorCode;
    use athanor_http_server::tenant_header::TENANT_HEADER;

    use super::*;

    fn headers(tenant: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(TENANT_HEADER, tenant.parse().unwrap());
        headers
    }

    #[test]
    fn readers_may_name_several_tenants() {
        let code = |tenant| parse_reader(&headers(tenant), true).map(|_| ()).map_err(|status| status.code);
        assert_eq!(code("a|b|a|"), Ok(()));
        for wrong in ["|", " ", "a|b/c"] {
            assert_eq!(code(wrong), Err(ErrorCode::Unauthenticated), "{wrong}");
        }
        assert_eq!(parse_reader(&HeaderMap::new(), true).unwrap_err().code, ErrorCode::Unauthenticated);
    }

    #[test]
    fn reader_with_two_headers_that_differ_is_nobody() {
        let two = |second: &'static str| {
            let mut headers = headers("a");
            headers.append(TENANT_HEADER, second.parse().unwrap());
            parse_reader(&headers, true).map(drop).map_err(|status| status.code)
        };
        assert_eq!(two("b"), Err(ErrorCode::Unauthenticated));
        assert_eq!(two("a"), Ok(()));
    }

    #[test]
    fn reader_without_tenants_ignores_the_header() {
        assert!(parse_reader(&headers("a/b"), false).is_ok());
    }
}
