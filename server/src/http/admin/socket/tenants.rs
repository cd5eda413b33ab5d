//! Tenant data other than profiles: routes that list and delete uploads and settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use athanor_chassis::{ErrorCode, Status, TenantId};
use axum::Router;
use axum::extract::RawQuery;
use axum::routing::{get, post};

use super::cluster::json_response;
use super::uploads::UploadSelector;
use super::{AdminState, settings, uploads};

/// Adds the routes of uploads and settings.
pub(super) fn routes(router: Router, state: &Arc<AdminState>) -> Router {
    let [list, delete, list_settings, delete_settings] = [(); 4].map(|()| Arc::clone(state));
    router
        .route(
            "/uploads",
            get(move |RawQuery(query): RawQuery| async move {
                let listed = async {
                    let tenant = RequestParameters::read(query).optional_tenant()?;
                    uploads::list(&list.store, tenant.as_ref()).await
                };
                json_response(listed.await)
            }),
        )
        .route(
            "/uploads/delete",
            post(move |RawQuery(query): RawQuery| async move {
                let deleted = async {
                    let given = RequestParameters::read(query);
                    let selected = UploadSelector::parse(
                        given.get("build_id"),
                        given.get("id"),
                        given.get("all").is_some(),
                    )?;
                    uploads::delete(&delete.store, &given.tenant()?, &selected).await
                };
                json_response(deleted.await)
            }),
        )
        .route(
            "/settings",
            get(move |RawQuery(query): RawQuery| async move {
                let listed = async {
                    let tenant = RequestParameters::read(query).optional_tenant()?;
                    settings::list(&list_settings, tenant.as_ref()).await
                };
                json_response(listed.await)
            }),
        )
        .route(
            "/settings/delete",
            post(move |RawQuery(query): RawQuery| async move {
                let deleted = async {
                    let given = RequestParameters::read(query);
                    let name = given.get("name");
                    if name.is_some() == given.get("all").is_some() {
                        return Err(Status::new(ErrorCode::Invalid, "set either name or all"));
                    }
                    settings::delete(&delete_settings, &given.tenant()?, name).await
                };
                json_response(deleted.await)
            }),
        )
}

/// Parameters of a request, by name.
pub(super) struct RequestParameters(BTreeMap<String, String>);

impl RequestParameters {
    pub(super) fn read(query: Option<String>) -> Self {
        let query = query.unwrap_or_default();
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn optional_tenant(&self) -> Result<Option<TenantId>, Status> {
        let parsed = self.get("tenant").map(str::parse::<TenantId>).transpose();
        parsed.map_err(|error| Status::from_error(&error))
    }

    fn tenant(&self) -> Result<TenantId, Status> {
        self.optional_tenant()?.ok_or_else(|| Status::new(ErrorCode::Invalid, "parameter tenant is missing"))
    }
}
