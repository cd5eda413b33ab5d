//! From the messages of push.v1.

use athanor_chassis::{Status, TenantId};
use athanor_proto::push::v1::{PushRequest, RawProfileSeries};

use crate::distributor::{Distributor, Receipt};
use crate::push::{SentProfile, SentSeries};

impl Distributor {
    /// Stores every profile of a request of push.v1 that can be stored; see [`Distributor::push_series`].
    /// Annotations are a server's to make, so those of clients are ignored.
    pub async fn push(&self, tenant: &TenantId, request: PushRequest) -> Result<Receipt, Status> {
        self.push_series(tenant, request.series.into_iter().map(series).collect()).await
    }
}

fn series(series: RawProfileSeries) -> SentSeries {
    let labels = series.labels.into_iter().map(|pair| (pair.name, pair.value));
    let profiles = series.samples.into_iter().map(|sample| SentProfile {
        pprof: sample.raw_profile,
        id: (!sample.id.is_empty()).then_some(sample.id),
    });
    SentSeries { labels: labels.collect(), profiles: profiles.collect() }
}
