//! From the door to the shards.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::{Activity, Clock, Code, Coded, Compute, Overrides, Status, TenantId};
use athanor_cluster::placement::{Route, Table, TableError, Tables};
use athanor_distributor::{Outcome, Shards, Stored};
use athanor_ingester::{Ingester, Moved};
use athanor_profile::normalise::{SERVICE, taken_at};
use athanor_profile::pprof;
use athanor_profile::upload::Upload;

/// The version of the only table.
const FIRST: u64 = 1;

/// The shards of this node.
pub struct Local {
    /// The shards.
    pub ingester: Arc<Ingester>,
    /// Which of them takes what.
    pub places: Places,
}

/// Which slot takes an upload.
pub struct Places {
    tables: Tables,
    /// How much a profile may be inflated to, when it is asked for its time.
    overrides: Overrides,
    /// The time of profiles that say none.
    clock: Clock,
    /// Where profiles are inflated.
    compute: Compute,
}

#[async_trait]
impl Shards for Local {
    async fn append(&self, tenant: &TenantId, uploads: Vec<Upload>) -> Vec<Result<Stored, Status>> {
        let route = self.places.tables.route(tenant, i64::MIN, i64::MAX);
        let mut of_slot: BTreeMap<u32, (Vec<usize>, Vec<Upload>)> = BTreeMap::new();
        let mut answers: Vec<Result<Stored, Status>> = Vec::with_capacity(uploads.len());
        for (place, upload) in uploads.into_iter().enumerate() {
            match self.places.slot(&route, tenant, &upload).await {
                Ok(slot) => {
                    let (places, uploads) = of_slot.entry(slot).or_default();
                    places.push(place);
                    uploads.push(upload);
                    answers.push(Err(Status::new(Code::Internal, "no shard answered")));
                }
                Err(status) => answers.push(Err(status)),
            }
        }
        let asked = of_slot.into_iter().map(|(slot, (places, uploads))| async move {
            let count = uploads.len();
            let stored = match self.ingester.shard_of_slot(slot) {
                Some(shard) => self.ingester.append(shard, FIRST, tenant, uploads).await,
                None => {
                    let message = format!("no shard of slot {slot} is here");
                    return (places, vec![Err(Status::new(Code::Internal, message)); count]);
                }
            };
            let moved = |moved: Moved| Status::new(Code::NotLeader, moved.to_string());
            (places, stored.unwrap_or_else(|error| vec![Err(moved(error)); count]))
        });
        for (places, stored) in futures::future::join_all(asked).await {
            for (place, stored) in places.into_iter().zip(stored) {
                answers[place] = stored.map(translated);
            }
        }
        answers
    }
}

impl Places {
    /// One table for all times, in which each tenant has all slots of this node.
    pub fn of(
        ingester: &Ingester,
        overrides: Overrides,
        clock: Clock,
        compute: Compute,
    ) -> Result<Self, TableError> {
        let tables = Table::even(FIRST, i64::MIN, ingester.slots())?.into();
        Ok(Places { tables, overrides, clock, compute })
    }

    /// The slot of an upload: by its tenant, its service and labels as sent, and its time (E4).
    async fn slot(&self, route: &Route<'_>, tenant: &TenantId, upload: &Upload) -> Result<u32, Status> {
        let service = upload.sent.get(SERVICE).unwrap_or_default();
        match route.slot(service, &upload.sent) {
            Some(slot) => Ok(slot),
            None => Ok(route.slot_at(service, &upload.sent, self.time(tenant, upload).await?)),
        }
    }

    /// When a profile was taken, as its shard will see it. What cannot be read is refused by any shard.
    async fn time(&self, tenant: &TenantId, upload: &Upload) -> Result<i64, Status> {
        let (sent, limit) = (upload.pprof.clone(), self.overrides.of(tenant).max_profile_size_bytes);
        let read = move || pprof::time_nanos(&pprof::inflate(&sent, limit.as_usize())?);
        let read = self.compute.run_as(Activity::Body, read).await;
        let own = read.map_err(|error| Status::new(error.code(), format!("not placed: {error}")))?;
        let time = taken_at(own.unwrap_or_default(), upload.time_nanos);
        Ok(if time != 0 { time } else { self.clock.wall().nanos() })
    }
}

fn translated(stored: athanor_ingester::Stored) -> Stored {
    let outcome = match stored {
        athanor_ingester::Stored { new: 0, repeats: 0, .. } => Outcome::Empty,
        athanor_ingester::Stored { new: 0, .. } => Outcome::Repeat,
        _ => Outcome::New,
    };
    let athanor_ingester::Stored { raw_bytes, samples, dropped, .. } = stored;
    Stored { outcome, raw_bytes, samples, dropped }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::{Limits, Timestamp};
    use athanor_cluster::placement::{Draft, slot_of};
    use athanor_profile::{Header, Labels, Profile};

    use super::*;

    const CHANGE: i64 = 1_772_618_460_000_000_000;

    fn table(version: u64, from: i64, slots: std::ops::Range<u32>) -> Table {
        let large = BTreeMap::from([("large".to_owned(), u16::MAX)]);
        let services = BTreeMap::from([(TenantId::anonymous(), large)]);
        let (slots, subset, tenants) = (slots.collect(), u16::MAX, BTreeMap::new());
        Draft { version, from, slots, subset, tenants, services }.try_into().unwrap()
    }

    fn places(tables: Vec<Table>) -> Places {
        Places {
            tables: tables.try_into().unwrap(),
            overrides: Overrides::new(Limits::default()),
            clock: Clock::manual(Timestamp::from_nanos(CHANGE + 5)).0,
            compute: Compute::inline(),
        }
    }

    fn labels(service: &str, pod: &str) -> Labels {
        Labels::new(
            [("service_name", service), ("pod", pod)].map(|(name, value)| (name.into(), value.into())),
        )
    }

    fn upload(pod: &str, own: i64, request: i64) -> Upload {
        let mut profile = Profile::default();
        profile.header = Header { time_nanos: own, ..profile.header };
        // What rules make of labels, and may make otherwise tomorrow.
        let labels_after = labels("small", "renamed");
        let pprof = pprof::encode(&profile).into();
        Upload {
            sent: labels("large", pod),
            labels: labels_after,
            time_nanos: request,
            pprof,
            ..Upload::default()
        }
    }

    async fn slot(places: &Places, upload: &Upload) -> u32 {
        let tenant = TenantId::anonymous();
        places.slot(&places.tables.route(&tenant, i64::MIN, i64::MAX), &tenant, upload).await.unwrap()
    }

    /// E4: rules change; where a repeat goes must not.
    #[tokio::test]
    async fn an_upload_goes_by_its_labels_as_sent() {
        let places = places(vec![table(1, i64::MIN, 0..8)]);
        let mut seen = std::collections::BTreeSet::new();
        for pod in 0..50 {
            let pod = pod.to_string();
            let expected =
                slot_of(places.tables.of(0), &TenantId::anonymous(), "large", &labels("large", &pod));
            seen.insert(expected);
            assert_eq!(slot(&places, &upload(&pod, 0, 0)).await, expected);
        }
        assert_eq!(seen.len(), 8);
    }

    /// E4: late profiles go where profiles of their time went.
    #[tokio::test]
    async fn an_upload_goes_by_the_table_of_its_time() {
        let places = places(vec![table(1, i64::MIN, 0..8), table(2, CHANGE, 8..16)]);
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
            assert_eq!(slot(&places, &upload("a", own, request)).await >= 8, later, "{own} {request}");
        }
        let unreadable = Upload { pprof: vec![0xff; 9].into(), ..upload("a", 0, CHANGE - 1) };
        assert!(slot(&places, &unreadable).await < 8);
    }
}
