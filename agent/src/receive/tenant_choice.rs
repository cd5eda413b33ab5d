//! Choice of the tenant of received profiles.

use athanor_chassis::{Status, TenantId};
use athanor_http_server::tenant_header::{TENANT_HEADER, parse_writer};
use axum::http::HeaderMap;

use super::failure::ReceiveError;
use crate::config::TenantRules;

/// Characters of a refused value that an error shows.
const MAX_SHOWN_CHARS: usize = 100;

/// Returns the tenant in the header of a request, if the rules allow the header.
pub(super) fn header_tenant(rules: &TenantRules, headers: &HeaderMap) -> Result<Option<TenantId>, Status> {
    if !rules.allows_header || !headers.contains_key(TENANT_HEADER) {
        return Ok(None);
    }
    parse_writer(headers, true).map(Some)
}

/// Rules for one request, whose header is read.
#[derive(Clone, Debug)]
pub(super) struct TenantChoice {
    header: Option<TenantId>,
    rules: TenantRules,
}

impl TenantChoice {
    pub(super) fn new(header: Option<TenantId>, rules: TenantRules) -> Self {
        Self { header, rules }
    }

    /// Returns the tenant of a profile. `label_value` returns the value of a label, with added ones.
    pub(super) fn tenant(
        &self,
        label_value: impl FnOnce(&str) -> Option<String>,
    ) -> Result<Option<TenantId>, ReceiveError> {
        if let Some(tenant) = &self.header {
            return Ok(Some(tenant.clone()));
        }
        let named = self.rules.label.as_deref().and_then(|label| Some((label, label_value(label)?)));
        let Some((label, value)) = named.filter(|(_, value)| !value.is_empty()) else {
            return Ok(self.rules.fixed.clone());
        };
        value.parse().map(Some).map_err(|error: athanor_chassis::tenant::TenantError| {
            ReceiveError::TenantLabel {
                label: label.to_owned(),
                value: value.chars().take(MAX_SHOWN_CHARS).collect(),
                reason: error.to_string(),
            }
        })
    }
}
