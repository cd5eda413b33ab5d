//! Any bytes as a profile that somebody uploads to look at it: refused with a reason, or kept, shown, and shown again beside
//! itself, by each of its types. The first byte says how many nodes are asked for.
#![no_main]

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use async_trait::async_trait;
use athanor_chassis::{ByteSize, ErrorCode, Random, Status, TenantId};
use athanor_proto::adhocprofiles::v1::{
    AdHocProfilesDiffRequest, AdHocProfilesGetRequest, AdHocProfilesUploadRequest,
};
use athanor_querier::{
    AdhocConfig, AdhocProfile, AdhocProfileService, AdhocProfileStore, QuerierConfig, QueryContext,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

#[path = "../now.rs"]
mod now;
#[path = "../querier.rs"]
mod querier;

use now::now;
use querier::querier;

const NODES: [Option<i64>; 6] = [None, Some(1), Some(2), Some(16), Some(0), Some(-1)];
/// Types of a profile that are looked at.
const TYPES: usize = 4;

/// Where one is kept, the last.
#[derive(Default)]
struct Last(Mutex<Option<(AdhocProfile, Bytes)>>);

#[async_trait]
impl AdhocProfileStore for Last {
    async fn put(&self, _: &TenantId, upload: &AdhocProfile, bytes: Bytes) -> Result<(), Status> {
        *self.0.lock() = Some((upload.clone(), bytes));
        Ok(())
    }

    async fn list(&self, _: &TenantId, from: u128, _: usize) -> Result<Vec<AdhocProfile>, Status> {
        let last = self.0.lock().as_ref().map(|(upload, _)| upload.clone());
        Ok(last.filter(|upload| upload.number >= from).into_iter().collect())
    }

    async fn read(&self, _: &TenantId, _: &AdhocProfile) -> Result<Option<Bytes>, Status> {
        Ok(self.0.lock().as_ref().map(|(_, bytes)| bytes.clone()))
    }

    async fn remove(&self, _: &TenantId, _: &AdhocProfile) -> Result<(), Status> {
        Ok(())
    }
}

static PLACE: LazyLock<AdhocProfileService> = LazyLock::new(|| {
    let adhoc = AdhocConfig { max_profile_bytes: ByteSize::kib(256), ..AdhocConfig::default() };
    let config = QuerierConfig { adhoc, ..QuerierConfig::default() };
    querier(config).adhoc_profiles(Arc::<Last>::default(), &Random::from_seed(1))
});

/// A graph, as JSON.
fn sound(json: &str) {
    let graph: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert!(graph["flamebearer"]["names"].is_array(), "{graph}");
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, profile)) = bytes.split_first() else { return };
    let max_nodes = NODES[usize::from(first) % NODES.len()];
    let reader = || QueryContext::for_tenant(TenantId::anonymous());
    let profile = BASE64_STANDARD.encode(profile);
    let upload = AdHocProfilesUploadRequest { name: "seed".to_owned(), profile, max_nodes };
    let kept = match now(PLACE.upload(&reader(), upload)) {
        Ok(kept) => kept,
        Err(status) => {
            let refused =
                matches!(status.code, ErrorCode::Invalid | ErrorCode::TooLarge | ErrorCode::Exhausted);
            assert!(refused && !status.message.is_empty(), "{status:?}");
            return;
        }
    };
    sound(&kept.flamebearer_profile);
    assert!(kept.profile_types.contains(&kept.profile_type));
    // Whoever names none gets the one that was shown.
    for name in kept.profile_types.iter().take(TYPES).filter(|name| !name.is_empty()) {
        let (id, profile_type) = (kept.id.clone(), Some(name.clone()));
        let get = AdHocProfilesGetRequest { id, profile_type: profile_type.clone(), max_nodes };
        let again = now(PLACE.get_upload(&reader(), get)).expect("it was shown");
        sound(&again.flamebearer_profile);
        assert_eq!((&again.profile_type, &again.profile_types), (name, &kept.profile_types));
        let (left_id, right_id) = (kept.id.clone(), kept.id.clone());
        let both = AdHocProfilesDiffRequest { left_id, right_id, profile_type, max_nodes };
        sound(&now(PLACE.diff_uploads(&reader(), both)).expect("both were shown").flamebearer_profile);
    }
});
