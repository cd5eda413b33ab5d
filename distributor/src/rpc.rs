//! Conversion from the messages of push.v1 and of Parca's profile store.

use athanor_chassis::{Status, TenantId};
use athanor_proto::parca::profilestore::v1alpha1 as parca;
use athanor_proto::push::v1::{PushRequest, RawProfileSeries};

use crate::distributor::{Distributor, PushSummary};
use crate::parca::add_service_label;
use crate::push::{PushedProfile, PushedSeries};

impl Distributor {
    /// Stores every profile of a push.v1 request that can be stored; see [`Distributor::push_series`].
    /// Annotations are reserved for servers, so the distributor ignores those of clients.
    pub async fn push(&self, tenant: &TenantId, request: PushRequest) -> Result<PushSummary, Status> {
        self.push_series(tenant, request.series.into_iter().map(series_from_push).collect()).await
    }

    /// Stores the profiles of a Parca request, as [`Distributor::push`] does. If the request states that
    /// addresses are normalized, mappings are stored with that flag. Process addresses are stored relative to
    /// their mapping, beside its offset in the file. The uploaded debug information has the program headers,
    /// so `executable_info` adds nothing to them.
    pub async fn write_raw(
        &self,
        tenant: &TenantId,
        request: parca::WriteRawRequest,
    ) -> Result<PushSummary, Status> {
        let series = request.series.into_iter().map(series_from_parca).collect();
        self.push_series_with_addresses(tenant, series, request.normalized).await
    }
}

fn series_from_push(series: RawProfileSeries) -> PushedSeries {
    let labels = series.labels.into_iter().map(|pair| (pair.name, pair.value));
    let profiles = series.samples.into_iter().map(|sample| PushedProfile {
        pprof: sample.raw_profile,
        id: (!sample.id.is_empty()).then_some(sample.id),
    });
    PushedSeries { labels: labels.collect(), profiles: profiles.collect() }
}

fn series_from_parca(series: parca::RawProfileSeries) -> PushedSeries {
    let labels = series.labels.unwrap_or_default().labels.into_iter().map(|pair| (pair.name, pair.value));
    let profiles = series.samples.into_iter();
    let profiles = profiles.map(|sample| PushedProfile { pprof: sample.raw_profile, id: None });
    PushedSeries { labels: add_service_label(labels.collect()), profiles: profiles.collect() }
}
