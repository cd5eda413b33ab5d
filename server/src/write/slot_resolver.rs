//! Resolver of the slot of an upload: by its tenant, its service and labels as sent, and its time [INV-04].

use athanor_chassis::{ComputePool, CpuActivity, ErrorCodeExt, LimitOverrides, Status, TenantId};
use athanor_cluster::placement::TenantRoute;
use athanor_profile::formats::pprof;
use athanor_profile::labeling::normalize::{SERVICE_LABEL, resolve_profile_time};
use athanor_profile::store_interface::upload::ProfileUpload;

/// Resolver of slots for uploads.
pub struct SlotResolver {
    /// Limits by tenant, for the size of an inflated profile.
    pub overrides: LimitOverrides,
    /// Compute pool that inflates profiles.
    pub compute: ComputePool,
}

impl SlotResolver {
    /// Returns the slot of an upload.
    pub async fn resolve_slot(
        &self,
        route: &TenantRoute<'_>,
        tenant: &TenantId,
        upload: &ProfileUpload,
    ) -> Result<u32, Status> {
        let service = upload.sent.get(SERVICE_LABEL).unwrap_or_default();
        match route.slot(service, &upload.sent) {
            Some(slot) => Ok(slot),
            None => Ok(route.slot_at(service, &upload.sent, self.time(tenant, upload).await?)),
        }
    }

    /// Returns the time of a profile as its shard will read it. Every shard rejects an unreadable profile.
    async fn time(&self, tenant: &TenantId, upload: &ProfileUpload) -> Result<i64, Status> {
        let sent = upload.pprof.clone();
        let limit = self.overrides.for_tenant(tenant).max_profile_size_bytes;
        let read = move || pprof::time_nanos(&pprof::inflate(&sent, limit.as_usize())?);
        let read = self.compute.run_as(CpuActivity::HttpBody, read).await;
        let own = read.map_err(|error| {
            Status::new(error.code(), format!("failed to resolve the slot of the profile: {error}"))
        })?;
        let time = resolve_profile_time(own.unwrap_or_default(), upload.time_nanos);
        Ok(if time != 0 { time } else { upload.received_nanos })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use athanor_chassis::TenantLimits;
    use athanor_cluster::placement::{SlotTable, SlotTableSpec, SlotTables, series_slot};
    use athanor_profile::{Labels, Profile, ProfileHeader};

    use super::*;

    const CHANGE: i64 = 1_772_618_460_000_000_000;

    fn table(version: u64, from: i64, slots: std::ops::Range<u32>) -> SlotTable {
        let large = BTreeMap::from([("large".to_owned(), u16::MAX)]);
        let services = BTreeMap::from([(TenantId::anonymous(), large)]);
        let (slots, subset, tenants) = (slots.collect(), u16::MAX, BTreeMap::new());
        SlotTableSpec { version, from, slots, subset, tenants, services }.try_into().unwrap()
    }

    fn places() -> SlotResolver {
        SlotResolver {
            overrides: LimitOverrides::new(TenantLimits::default()),
            compute: ComputePool::inline(),
        }
    }

    fn labels(service: &str, pod: &str) -> Labels {
        Labels::new(
            [("service_name", service), ("pod", pod)].map(|(name, value)| (name.into(), value.into())),
        )
    }

    fn upload(pod: &str, own: i64, request: i64) -> ProfileUpload {
        let mut profile = Profile::default();
        profile.header = ProfileHeader { time_nanos: own, ..profile.header };
        // What rules make of labels, and may make otherwise tomorrow.
        let labels_after = labels("small", "renamed");
        let pprof = pprof::encode(&profile).into();
        ProfileUpload {
            sent: labels("large", pod),
            labels: labels_after,
            time_nanos: request,
            received_nanos: CHANGE + 5,
            pprof,
            ..ProfileUpload::default()
        }
    }

    async fn slot(tables: &SlotTables, upload: &ProfileUpload) -> u32 {
        let tenant = TenantId::anonymous();
        places().resolve_slot(&tables.route(&tenant, i64::MIN, i64::MAX), &tenant, upload).await.unwrap()
    }

    /// INV-04: rules change; where a repeat goes must not.
    #[tokio::test]
    async fn an_upload_goes_by_its_labels_as_sent() {
        let tables = SlotTables::from(table(1, i64::MIN, 0..8));
        let mut seen = std::collections::BTreeSet::new();
        for pod in 0..50 {
            let pod = pod.to_string();
            let expected =
                series_slot(tables.table_at(0), &TenantId::anonymous(), "large", &labels("large", &pod));
            seen.insert(expected);
            assert_eq!(slot(&tables, &upload(&pod, 0, 0)).await, expected);
        }
        assert_eq!(seen.len(), 8);
    }

    /// INV-04: late profiles go where profiles of their time went.
    #[tokio::test]
    async fn an_upload_goes_by_the_table_of_its_time() {
        let tables = SlotTables::try_from(vec![table(1, i64::MIN, 0..8), table(2, CHANGE, 8..16)]).unwrap();
        for (own, request, later) in [
            (CHANGE - 1, 0, false),
            (CHANGE, 0, true),
            (CHANGE - 1, CHANGE, false),
            (CHANGE, CHANGE - 1, true),
            (0, CHANGE - 1, false),
            (0, CHANGE, true),
            // Microseconds in the field of nanoseconds.
            (CHANGE / 1000, CHANGE, true),
            (0, 0, true),
        ] {
            assert_eq!(slot(&tables, &upload("a", own, request)).await >= 8, later, "{own} {request}");
        }
        let unreadable = ProfileUpload { pprof: vec![0xff; 9].into(), ..upload("a", 0, CHANGE - 1) };
        assert!(slot(&tables, &unreadable).await < 8);
    }
}
