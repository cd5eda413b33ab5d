//! Any bytes as what an export of OpenTelemetry says that its profiles were first recorded as: refused with a reason, or pprof
//! that a shard can read, within the limits. The first byte says in which format, and how often the export has it.
#![no_main]

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use async_trait::async_trait;
use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, LimitOverrides, Random, Status, TenantId, TenantLimits,
    Timestamp,
};
use athanor_distributor::{
    Distributor, DistributorConfig, DistributorDeps, OtlpEncoding, ProfileOutcome, ShardWriter, StoredProfile,
};
use athanor_profile::formats::pprof;
use athanor_profile::data_model::dropped_counts::DroppedCounts;
use athanor_profile::store_interface::upload::ProfileUpload;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prost::encoding::{WireType, encode_key, encode_varint};

#[path = "../now.rs"]
mod now;

use now::now;

const FORMATS: [&str; 3] = ["pprof", "jfr", "linux_perf"];
const PROFILE: ByteSize = ByteSize::kib(64);
/// Of a request; what is made of it may have as much again.
const BODY: ByteSize = ByteSize::kib(512);

/// Takes whatever comes, and keeps it to be looked at.
#[derive(Default)]
struct Taken(Mutex<Vec<Bytes>>);

#[async_trait]
impl ShardWriter for Taken {
    async fn append(&self, _: &TenantId, uploads: Vec<ProfileUpload>) -> Vec<Result<StoredProfile, Status>> {
        let stored = StoredProfile {
            outcome: ProfileOutcome::New,
            raw_bytes: 1,
            samples: 1,
            dropped: DroppedCounts::default(),
        };
        let answers = uploads.iter().map(|_| Ok(stored)).collect();
        self.0
            .lock()
            .extend(uploads.into_iter().map(|upload| upload.pprof));
        answers
    }
}

static TAKEN: LazyLock<Arc<Taken>> = LazyLock::new(Arc::default);
static DOOR: LazyLock<Distributor> = LazyLock::new(|| {
    let limits = TenantLimits {
        max_profile_size_bytes: PROFILE,
        ingestion_body_limit: BODY,
        ..TenantLimits::default()
    };
    let deps = DistributorDeps {
        overrides: LimitOverrides::new(limits),
        clock: Clock::manual(Timestamp::from_seconds(1_800_000_000)).0,
        random: Random::from_seed(1),
        compute: ComputePool::inline(),
        shards: Arc::clone(&TAKEN) as _,
    };
    Distributor::new(DistributorConfig::default(), deps)
});

/// A field of a message.
fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 12);
    encode_key(number, WireType::LengthDelimited, &mut out);
    encode_varint(content.len() as u64, &mut out);
    out.extend_from_slice(content);
    out
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, payload)) = bytes.split_first() else { return };
    let format = FORMATS[usize::from(first) % FORMATS.len()];
    let times = 1 + usize::from(first) / FORMATS.len() % 4;
    let profile = [field(9, format.as_bytes()), field(10, payload)].concat();
    // The resource's part of a request, that of its scope, and the profiles of that.
    let request = field(1, &field(2, &field(2, &profile).repeat(times)));
    let sent = request.len();
    let exported = now(DOOR.export(&TenantId::anonymous(), request.into(), OtlpEncoding::Protobuf));
    let taken = std::mem::take(&mut *TAKEN.0.lock());
    match exported {
        Ok(exported) => assert_eq!(exported.message.is_empty(), exported.rejected == 0),
        Err(status) => {
            let refused = matches!(status.code, ErrorCode::Invalid | ErrorCode::TooLarge);
            assert!(refused && !status.message.is_empty() && taken.is_empty(), "{status:?}");
        }
    }
    let mut total = 0;
    for profile in taken {
        let plain = pprof::inflate(&profile, PROFILE.as_usize()).expect("it was within the limit");
        total += plain.len();
        if format == "jfr" {
            let (_, dropped) = pprof::decode(&plain, &pprof::DecodeLimits::default()).expect("it is sound");
            assert_eq!(dropped, Default::default());
        }
    }
    assert!(total <= BODY.as_usize().min(64 * sent + PROFILE.as_usize()), "{total} bytes of {sent}");
});
