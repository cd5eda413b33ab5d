//! Pushes of profiles with the labels of their series: push.v1 over Connect, gRPC and gRPC-Web.
//!
//! Only the outer message is decoded. A profile is read just far enough to find its time, and only if it has no
//! id.

use std::collections::BTreeSet;

use athanor_chassis::{TenantId, Timestamp};
use athanor_profile::Labels;
use athanor_profile::labeling::normalize::DELTA_LABEL;
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::types::v1::LabelPair;
use prost::Message;

use super::failure::ReceiveError;
use super::received_identity::{IdentitySource, OwnTime, is_client_id, own_time};
use super::receiver_state::SenderContext;
use super::sender_labels::canonical_label_name;
use crate::upload::{Upload, UploadOrder, UploadOrigin, UploadRoute};

/// Number of groups of series whose profiles may be snapshots. The group of a series depends on its labels only, so
/// no snapshot overtakes an earlier one of another request.
const SNAPSHOT_GROUPS: u64 = 64;
const METRIC_NAME_LABEL: &str = "__name__";
/// Metric names of profiles that a server treats as cumulative unless a label says otherwise.
const CUMULATIVE_METRICS: [&str; 3] = ["memory", "block", "mutex"];

/// Series of a request that are one upload.
struct SeriesGroup {
    tenant: Option<TenantId>,
    order: UploadOrder,
    series: Vec<RawProfileSeries>,
}

/// Returns the uploads of a push: one per tenant and group of snapshots, with series and profiles in the order sent.
/// Equal profiles have equal labels, so they are in one upload.
pub(super) fn push_uploads(
    request: PushRequest,
    sender: &SenderContext,
    identities: &IdentitySource,
    now: Timestamp,
) -> Result<Vec<Upload>, ReceiveError> {
    if request.series.iter().all(|series| series.samples.is_empty()) {
        return Err(ReceiveError::NoProfiles);
    }
    let mut groups: Vec<SeriesGroup> = Vec::new();
    for mut series in request.series {
        add_labels(&mut series.labels, &sender.added);
        series.samples.iter_mut().for_each(|sample| complete_identity(sample, identities));
        let tenant = sender.tenant.tenant(|label| label_value(&series.labels, label))?;
        let order = delivery_order(&series.labels);
        match groups.iter_mut().find(|group| group.tenant == tenant && group.order == order) {
            Some(group) => group.series.push(series),
            None => groups.push(SeriesGroup { tenant, order, series: vec![series] }),
        }
    }
    groups.retain(|group| group.series.iter().any(|series| !series.samples.is_empty()));
    let uploads = groups.into_iter().map(|group| Upload {
        tenant: group.tenant,
        route: UploadRoute::Push,
        profiles: group.series.iter().map(|series| series.samples.len() as u32).sum(),
        order: group.order,
        origin: UploadOrigin::Received,
        time: now,
        body: PushRequest { series: group.series }.encode_to_vec().into(),
    });
    Ok(uploads.collect())
}

/// Adds labels that the client did not send. Names are compared as servers store them.
fn add_labels(sent: &mut Vec<LabelPair>, added: &Labels) {
    let names: BTreeSet<String> = sent.iter().map(|pair| canonical_label_name(&pair.name)).collect();
    let absent = added.iter().filter(|(name, _)| !names.contains(&canonical_label_name(name)));
    sent.extend(absent.map(|(name, value)| LabelPair { name: name.into(), value: value.into() }));
}

/// Gives a profile an id and a time if it has neither.
fn complete_identity(sample: &mut RawSample, identities: &IdentitySource) {
    if is_client_id(&sample.id) || own_time(&sample.raw_profile) != OwnTime::Absent {
        return;
    }
    sample.raw_profile = identities.with_time(&sample.raw_profile);
    sample.id = identities.uuid();
}

fn label_value(labels: &[LabelPair], name: &str) -> Option<String> {
    let name = canonical_label_name(name);
    labels.iter().find(|pair| canonical_label_name(&pair.name) == name).map(|pair| pair.value.clone())
}

/// Returns the order of delivery of a series. A server subtracts successive snapshots of a series, and it decides by
/// the content which profiles are snapshots. The labels tell which profiles may be.
fn delivery_order(labels: &[LabelPair]) -> UploadOrder {
    let key = snapshot_key(labels);
    key.map_or(UploadOrder::Independent, |key| UploadOrder::Cumulative(key % SNAPSHOT_GROUPS))
}

/// Returns the key of a series whose profiles may be snapshots. It is the hash of the labels without the metric,
/// so that all kinds of a target are in one upload.
fn snapshot_key(labels: &[LabelPair]) -> Option<u64> {
    let value = |name: &str| labels.iter().find(|pair| pair.name == name).map(|pair| pair.value.as_str());
    let may_be_snapshot = match value(DELTA_LABEL) {
        Some("false") => false,
        Some(_) => true,
        None => value(METRIC_NAME_LABEL).is_some_and(|name| CUMULATIVE_METRICS.contains(&name)),
    };
    let target = labels.iter().filter(|pair| pair.name != METRIC_NAME_LABEL);
    let target = target.map(|pair| (pair.name.clone(), pair.value.clone()));
    may_be_snapshot.then(|| Labels::new(target).hash() as u64)
}
