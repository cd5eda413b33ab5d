//! Tenant header of requests, and the Accept header of readers.

use athanor_chassis::{ErrorCode, ErrorCodeExt, Status, TenantId};
use athanor_querier::QueryContext;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// Header that contains the tenant.
pub const TENANT_HEADER: &str = "x-scope-orgid";

/// Returns the context of a reader. `a|b` means the union of both tenants.
pub fn parse_reader(headers: &HeaderMap, multitenancy: bool) -> Result<QueryContext, Status> {
    let reader = match multitenancy {
        false => QueryContext::for_tenant(TenantId::anonymous()),
        true => QueryContext::parse(named(headers)?).map_err(|error| refused(&error))?,
    };
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    Ok(reader.with_accept_header(&accepted.collect::<Vec<_>>().join(",")))
}

/// Returns the tenant of a writer, which must be exactly one.
pub fn parse_writer(headers: &HeaderMap, multitenancy: bool) -> Result<TenantId, Status> {
    if !multitenancy {
        return Ok(TenantId::anonymous());
    }
    let named = named(headers)?;
    let mut names = named.split('|').map(str::trim);
    let first = names.next().unwrap_or_default();
    if names.all(|name| name == first) {
        return first.parse().map_err(|error: athanor_chassis::tenant::TenantError| refused(&error));
    }
    let message =
        format!("the {TENANT_HEADER} header names several tenants, {named:?}; writes need exactly one");
    Err(Status::new(ErrorCode::Unauthenticated, message))
}

fn named(headers: &HeaderMap) -> Result<&str, Status> {
    let missing = || {
        Status::new(
            ErrorCode::Unauthenticated,
            format!("no org id: name the tenant in the {TENANT_HEADER} header"),
        )
    };
    let mut values = headers.get_all(TENANT_HEADER).iter();
    let value = values.next().ok_or_else(missing)?;
    // A proxy in front of this server may have checked the other header.
    if values.any(|other| other.as_bytes().trim_ascii() != value.as_bytes().trim_ascii()) {
        let message = format!(
            "request has several {TENANT_HEADER} headers with different values; send one, queries of several tenants as a|b"
        );
        return Err(Status::new(ErrorCode::Unauthenticated, message));
    }
    let text = value.to_str().map_err(|_| {
        Status::new(ErrorCode::Unauthenticated, format!("the {TENANT_HEADER} header is not plain ASCII text"))
    })?;
    let text = text.trim();
    if text.is_empty() { Err(missing()) } else { Ok(text) }
}

fn refused<E: ErrorCodeExt + std::error::Error>(error: &E) -> Status {
    Status::new(ErrorCode::Unauthenticated, format!("{TENANT_HEADER} header: {error}"))
}

#[cfg(test)]
mod tests {
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
    fn writers_name_exactly_one() {
        let of = |tenant| parse_writer(&headers(tenant), true).map(|tenant| tenant.to_string()).ok();
        assert_eq!(
            (of("a"), of("a|a"), of("a|b"), of("a|")),
            (Some("a".into()), Some("a".into()), None, None)
        );
    }

    #[test]
    fn two_headers_that_differ_are_nobody() {
        let two = |second: &'static str| {
            let mut headers = headers("a");
            headers.append(TENANT_HEADER, second.parse().unwrap());
            let code = |status: Status| status.code;
            (
                parse_reader(&headers, true).map(drop).map_err(code),
                parse_writer(&headers, true).map(drop).map_err(code),
            )
        };
        assert_eq!(two("b"), (Err(ErrorCode::Unauthenticated), Err(ErrorCode::Unauthenticated)));
        assert_eq!(two("a"), (Ok(()), Ok(())));
    }

    #[test]
    fn without_tenants_the_header_is_not_looked_at() {
        assert!(parse_reader(&headers("a/b"), false).is_ok());
        assert_eq!(parse_writer(&headers("a/b"), false).unwrap(), TenantId::anonymous());
    }
}
