//! From the door to the shards.

use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::{Code, Status, TenantId};
use athanor_distributor::{Outcome, Shards, Stored};
use athanor_ingester::Ingester;
use athanor_profile::hash;
use athanor_profile::upload::Upload;

/// The shards of this node.
pub struct Local {
    /// The shards.
    pub ingester: Arc<Ingester>,
}

const SERVICE: &str = "service_name";

/// The slot of an upload: a pure function of the tenant and the service as sent (E4). A service stays together.
fn slot(tenant: &TenantId, upload: &Upload, slots: usize) -> usize {
    let service = upload.sent.get(SERVICE).unwrap_or_default();
    let key = hash::list(&[hash::bytes(tenant.as_str().as_bytes()), hash::bytes(service.as_bytes())]);
    (key % slots.max(1) as u128) as usize
}

#[async_trait]
impl Shards for Local {
    async fn append(&self, tenant: &TenantId, uploads: Vec<Upload>) -> Vec<Result<Stored, Status>> {
        let slots = self.ingester.slots();
        let mut of_slot: Vec<(Vec<usize>, Vec<Upload>)> = vec![Default::default(); slots];
        let mut answers: Vec<Result<Stored, Status>> = Vec::with_capacity(uploads.len());
        for (place, upload) in uploads.into_iter().enumerate() {
            let (places, uploads) = &mut of_slot[slot(tenant, &upload, slots)];
            places.push(place);
            uploads.push(upload);
            answers.push(Err(Status::new(Code::Internal, "no shard answered")));
        }
        let asked = of_slot.into_iter().enumerate().filter(|(_, (places, _))| !places.is_empty());
        let appended = futures::future::join_all(asked.map(|(slot, (places, uploads))| async move {
            (places, self.ingester.append(slot, tenant, uploads).await)
        }));
        for (places, stored) in appended.await {
            for (place, stored) in places.into_iter().zip(stored) {
                answers[place] = stored.map(translated);
            }
        }
        answers
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
