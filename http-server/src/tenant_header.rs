//! Tenant header of requests.

use athanor_chassis::{ErrorCode, ErrorCodeExt, Status, TenantId};
use axum::http::HeaderMap;

/// Header that contains the tenant.
pub const TENANT_HEADER: &str = "x-scope-orgid";

/// Returns the tenant of a writer, which must be exactly one.
pub fn parse_writer(headers: &HeaderMap, multitenancy: bool) -> Result<TenantId, Status> {
    if !multitenancy {
        return Ok(TenantId::anonymous());
    }
    let named = named_tenants(headers)?;
    let mut names = named.split('|').map(str::trim);
    let first = names.next().unwrap_or_default();
    if names.all(|name| name == first) {
        return first.parse().map_err(|error: athanor_chassis::tenant::TenantError| tenant_refusal(&error));
    }
    let message =
        format!("the {TENANT_HEADER} header names several tenants, {named:?}; writes need exactly one");
    Err(Status::new(ErrorCode::Unauthenticated, message))
}

/// Returns the value of the tenant header: one tenant, or several as `a|b`.
pub fn named_tenants(headers: &HeaderMap) -> Result<&str, Status> {
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

/// Returns the error of a header that names no valid tenant.
pub fn tenant_refusal<E: ErrorCodeExt + std::error::Error>(error: &E) -> Status {
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
            parse_writer(&headers, true).map(drop).map_err(|status: Status| status.code)
        };
        assert_eq!(two("b"), Err(ErrorCode::Unauthenticated));
        assert_eq!(two("a"), Ok(()));
    }

    #[test]
    fn without_tenants_the_header_is_not_looked_at() {
        assert_eq!(parse_writer(&headers("a/b"), false).unwrap(), TenantId::anonymous());
    }
}
