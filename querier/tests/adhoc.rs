//! Profiles uploaded by hand: shown as they are, kept within bounds, and nobody else's.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, LimitOverrides, Random, Status, TenantId, TenantLimits,
    Timestamp,
};
use athanor_profile::formats::pprof::{self, gzip};
use athanor_proto::adhocprofiles::v1::{
    AdHocProfilesDiffRequest, AdHocProfilesGetRequest, AdHocProfilesGetResponse, AdHocProfilesListRequest,
    AdHocProfilesUploadRequest,
};
use athanor_querier::{
    AdhocProfile, AdhocProfileService, AdhocProfileStore, DataSources, DataTimeRange, DedupHints, Querier,
    QuerierConfig, QuerierDeps, QueryContext, QueryPlan,
};
use athanor_query::ProfileQuery;
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Barrier;

struct Nothing;

#[async_trait::async_trait]
impl DataSources for Nothing {
    async fn plan(&self, _: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        Ok(QueryPlan::default())
    }
    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

/// A shelf in memory.
#[derive(Default)]
struct Memory(Mutex<BTreeMap<(TenantId, u128), (AdhocProfile, Bytes)>>);

/// A shelf that takes nothing while it is full, and of which so many put something down at once.
struct Odd {
    memory: Memory,
    full: AtomicBool,
    together: Barrier,
}

#[async_trait::async_trait]
impl AdhocProfileStore for Odd {
    async fn put(&self, tenant: &TenantId, upload: &AdhocProfile, bytes: Bytes) -> Result<(), Status> {
        if self.full.load(Ordering::Relaxed) {
            return Err(Status::new(ErrorCode::Unavailable, "the bucket is full"));
        }
        self.together.wait().await;
        self.memory.put(tenant, upload, bytes).await
    }
    async fn list(&self, tenant: &TenantId, from: u128, limit: usize) -> Result<Vec<AdhocProfile>, Status> {
        self.memory.list(tenant, from, limit).await
    }
    async fn read(&self, tenant: &TenantId, upload: &AdhocProfile) -> Result<Option<Bytes>, Status> {
        self.memory.read(tenant, upload).await
    }
    async fn remove(&self, tenant: &TenantId, upload: &AdhocProfile) -> Result<(), Status> {
        self.memory.remove(tenant, upload).await
    }
}

#[async_trait::async_trait]
impl AdhocProfileStore for Memory {
    async fn put(&self, tenant: &TenantId, upload: &AdhocProfile, bytes: Bytes) -> Result<(), Status> {
        let key = (tenant.clone(), upload.number);
        let before = self.0.lock().insert(key, (upload.clone(), bytes));
        assert!(before.is_none(), "numbers are new");
        Ok(())
    }
    async fn list(&self, tenant: &TenantId, from: u128, limit: usize) -> Result<Vec<AdhocProfile>, Status> {
        let all = self.0.lock();
        let of = all.range((tenant.clone(), from)..).take_while(|((of, _), _)| of == tenant);
        Ok(of.map(|(_, (upload, _))| upload.clone()).take(limit).collect())
    }
    async fn read(&self, tenant: &TenantId, upload: &AdhocProfile) -> Result<Option<Bytes>, Status> {
        let found = self.0.lock().get(&(tenant.clone(), upload.number)).cloned();
        Ok(found.map(|(_, bytes)| bytes))
    }
    async fn remove(&self, tenant: &TenantId, upload: &AdhocProfile) -> Result<(), Status> {
        self.0.lock().remove(&(tenant.clone(), upload.number));
        Ok(())
    }
}

/// A place for profiles in a bucket of its own, and the hand of its clock.
fn place(
    change: impl FnOnce(&mut QuerierConfig),
) -> (AdhocProfileService, athanor_chassis::time::clock::ManualClock) {
    place_on(Arc::<Memory>::default(), change)
}

fn place_on(
    shelf: Arc<dyn AdhocProfileStore>,
    change: impl FnOnce(&mut QuerierConfig),
) -> (AdhocProfileService, athanor_chassis::time::clock::ManualClock) {
    place_with(shelf, TenantLimits::default(), change)
}

fn place_with(
    shelf: Arc<dyn AdhocProfileStore>,
    limits: TenantLimits,
    change: impl FnOnce(&mut QuerierConfig),
) -> (AdhocProfileService, athanor_chassis::time::clock::ManualClock) {
    let (clock, hand) = Clock::manual(Timestamp::from_seconds(1_700_000_000));
    let mut config = QuerierConfig::default();
    change(&mut config);
    let random = Random::from_seed(1);
    let overrides = LimitOverrides::new(limits);
    let deps = QuerierDeps { sources: Arc::new(Nothing), overrides, clock, compute: ComputePool::inline() };
    (Querier::new(config, deps).adhoc_profiles(shelf, &random), hand)
}

fn reader(tenant: &str) -> QueryContext {
    QueryContext::for_tenant(tenant.parse().expect("a tenant"))
}

async fn upload(
    place: &AdhocProfileService,
    name: &str,
    bytes: &[u8],
) -> Result<AdHocProfilesGetResponse, Status> {
    let profile = BASE64_STANDARD.encode(bytes);
    let request = AdHocProfilesUploadRequest { name: name.to_owned(), profile, max_nodes: None };
    place.upload(&reader("a"), request).await
}

async fn get(
    place: &AdhocProfileService,
    tenant: &str,
    id: &str,
    of: Option<&str>,
) -> Result<AdHocProfilesGetResponse, Status> {
    let profile_type = of.map(str::to_owned);
    let request = AdHocProfilesGetRequest { id: id.to_owned(), profile_type, max_nodes: None };
    place.get_upload(&reader(tenant), request).await
}

async fn names(place: &AdhocProfileService, tenant: &str) -> Vec<String> {
    let list = place.list_uploads(&reader(tenant), AdHocProfilesListRequest {}).await.expect("a list");
    list.profiles.into_iter().map(|profile| profile.name).collect()
}

fn graph(json: &str) -> Value {
    serde_json::from_str(json).expect("JSON")
}

#[tokio::test]
async fn what_is_uploaded_is_shown_then_and_later() {
    let (place, _) = place(|_| {});
    let name = "größe/1 & 2.folded";
    let uploaded = upload(&place, name, b"main;work 30\nmain 12\n").await.expect("it is kept");
    let flamebearer = graph(&uploaded.flamebearer_profile);
    assert_eq!(
        flamebearer["flamebearer"],
        json!({
            "names": ["total", "main", "work"],
            "levels": [[0, 42, 0, 0], [0, 42, 12, 1], [12, 30, 30, 2]],
            "numTicks": 42,
            "maxSelf": 30,
        })
    );
    assert_eq!((&flamebearer["version"], &flamebearer["metadata"]["format"]), (&json!(1), &json!("single")));
    assert_eq!(
        (uploaded.name.as_str(), uploaded.uploaded_at, uploaded.id.len()),
        (name, 1_700_000_000_000, 32)
    );
    assert_eq!((uploaded.profile_type.as_str(), uploaded.profile_types.len()), ("samples", 1));
    assert_eq!(get(&place, "a", &uploaded.id, None).await.expect("it is there"), uploaded);
    assert_eq!(get(&place, "a", &uploaded.id, Some("samples")).await.expect("it is there"), uploaded);
    let list = place.list_uploads(&reader("a"), AdHocProfilesListRequest {}).await.expect("a list").profiles;
    assert_eq!((list.len(), &list[0].id, list[0].uploaded_at), (1, &uploaded.id, uploaded.uploaded_at));

    let cut = AdHocProfilesGetRequest { id: uploaded.id.clone(), profile_type: None, max_nodes: Some(1) };
    let cut = place.get_upload(&reader("a"), cut).await.expect("it is there");
    assert_eq!(graph(&cut.flamebearer_profile)["flamebearer"]["names"], json!(["total", "main", "other"]));
    let unpadded = BASE64_STANDARD_NO_PAD.encode(b"a 1\n");
    let request = AdHocProfilesUploadRequest { name: "b".into(), profile: unpadded, max_nodes: None };
    assert!(place.upload(&reader("a"), request).await.is_ok(), "without padding");
}

#[tokio::test]
async fn uploads_over_tenant_bytes_evict_oldest() {
    let limits = TenantLimits { max_adhoc_bytes: ByteSize::bytes(30), ..TenantLimits::default() };
    let (place, hand) = place_with(Arc::<Memory>::default(), limits, |_| {});
    for name in ["1", "2", "3", "4"] {
        upload(&place, name, b"main 1234\n").await.expect("kept");
        hand.advance(Duration::from_secs(1));
    }
    assert_eq!(names(&place, "a").await, ["4", "3", "2"], "of 10 bytes each");
    upload(&place, "5", b"main;work 123456789\n").await.expect("kept");
    assert_eq!(names(&place, "a").await, ["5", "4"]);
    let refused = upload(&place, "6", b"main;work;more;and;more 1234567\n").await.expect_err("too large");
    assert_eq!(refused.code, ErrorCode::TooLarge);
    assert!(refused.message.contains("limits.max_adhoc_bytes"), "{refused}");
}

/// In each format the same calls are the same graph, and what is shown can be uploaded again.
#[tokio::test]
async fn each_format_is_shown() {
    let (place, _) = place(|_| {});
    let folded = upload(&place, "folded", b"main;work 30\nmain 12\n").await.expect("kept");
    let again = upload(&place, "shown", folded.flamebearer_profile.as_bytes()).await.expect("kept");
    assert_eq!(again.flamebearer_profile, folded.flamebearer_profile);
    assert_eq!((again.profile_type, again.profile_types), (folded.profile_type, folded.profile_types));

    let bars = |shown: &str| graph(shown)["flamebearer"].clone();
    let events = json!([
        { "type": "O", "frame": 1, "at": 0.5 }, { "type": "O", "frame": 0, "at": 12.5 },
        { "type": "C", "frame": 0, "at": 42.5 }, { "type": "C", "frame": 1, "at": 42.5 },
    ]);
    let samples = json!([[1, 0], [1], [1, 0]]);
    let document = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "profiles": [
            { "type": "evented", "name": "a", "unit": "nanoseconds", "startValue": 0, "endValue": 43, "events": events },
            { "type": "sampled", "name": "b", "unit": "bytes", "samples": samples, "weights": [10, 12, 20] },
        ],
        "shared": { "frames": [{ "name": "work" }, { "name": "main" }] },
    });
    let uploaded = upload(&place, "speedscope", document.to_string().as_bytes()).await.expect("kept");
    assert_eq!(
        (uploaded.profile_type.as_str(), &uploaded.profile_types),
        ("space", &vec!["wall".into(), "space".into()])
    );
    assert_eq!(bars(&uploaded.flamebearer_profile), bars(&folded.flamebearer_profile));
    let uploaded = get(&place, "a", &uploaded.id, Some("wall")).await.expect("it is there");
    assert_eq!(bars(&uploaded.flamebearer_profile), bars(&folded.flamebearer_profile));
    assert_eq!(graph(&uploaded.flamebearer_profile)["metadata"]["units"], json!("nanoseconds"));

    let text = "main 7 [000] 1.000001: 12 cpu-clock: \n\n\
                main 7 [000] 1.000002: 30 cpu-clock: \n\t 55d0 work+0x10 (/bin/main)\n\n";
    let uploaded = upload(&place, "perf", text.as_bytes()).await.expect("kept");
    assert_eq!((uploaded.profile_type.as_str(), uploaded.profile_types.len()), ("cpu_clock", 2));
    assert_eq!(bars(&uploaded.flamebearer_profile), bars(&folded.flamebearer_profile));

    let left = upload(&place, "left", document.to_string().as_bytes()).await.expect("kept").id;
    let request = AdHocProfilesDiffRequest { left_id: left, right_id: uploaded.id, ..Default::default() };
    let refused = place.diff_uploads(&reader("a"), request).await.expect_err("nothing in common");
    assert!(refused.message.contains("of the same unit"), "{refused}");
}

#[tokio::test]
async fn two_are_laid_over_each_other() {
    let (place, _) = place(|_| {});
    let left = upload(&place, "left", b"main;work 30\n").await.expect("kept").id;
    let right = upload(&place, "right", b"main;work 10\nmain;rest 5\n").await.expect("kept").id;
    let request = |right_id: &str, profile_type: Option<&str>| AdHocProfilesDiffRequest {
        left_id: left.clone(),
        right_id: right_id.to_owned(),
        profile_type: profile_type.map(str::to_owned),
        max_nodes: None,
    };
    let uploaded = place.diff_uploads(&reader("a"), request(&right, None)).await.expect("both are there");
    assert_eq!(uploaded.profile_types, ["samples"]);
    let shown = graph(&uploaded.flamebearer_profile);
    assert_eq!(shown["flamebearer"]["names"], json!(["total", "main", "rest", "work"]));
    let ticks = (&shown["leftTicks"], &shown["rightTicks"], &shown["metadata"]["format"]);
    assert_eq!(ticks, (&json!(30), &json!(15), &json!("double")));
    let refused = place.diff_uploads(&reader("a"), request(&right, Some("cpu"))).await.expect_err("no type");
    assert!(
        refused.code == ErrorCode::Invalid && refused.message.contains("existing types: samples"),
        "{refused}"
    );
    let refused = place.diff_uploads(&reader("a"), request(&"0".repeat(32), None)).await.expect_err("no id");
    assert_eq!(refused.code, ErrorCode::NotFound);
    for unknown in
        ["nosuch", "0000", "018f3c1e-7c1b-7000-8000-000000000000", &"f".repeat(33), &"x".repeat(1000)]
    {
        let refused = get(&place, "a", unknown, None).await.expect_err("no such id");
        assert!(refused.code == ErrorCode::NotFound && refused.message.len() < 250, "{refused}");
    }
}

#[tokio::test]
async fn the_oldest_makes_room() {
    let (place, hand) = place(|config| config.adhoc.max_profiles_per_tenant = 3);
    let mut ids = Vec::new();
    for at in 0..5 {
        ids.push(upload(&place, &at.to_string(), b"main 1\n").await.expect("kept").id);
        hand.advance(Duration::from_millis(1));
    }
    assert_eq!(names(&place, "a").await, ["4", "3", "2"]);
    let gone = get(&place, "a", &ids[1], None).await.expect_err("it made room");
    assert!(gone.code == ErrorCode::NotFound && gone.message.contains("the limit is 3 profiles"), "{gone}");
    assert!(get(&place, "a", &ids[2], None).await.is_ok());
}

#[tokio::test]
async fn the_oldest_goes_when_the_new_one_is_safe() {
    let odd = |together| {
        let memory = Memory::default();
        Arc::new(Odd { memory, full: AtomicBool::new(false), together: Barrier::new(together) })
    };
    let shelf = odd(1);
    let (place, hand) =
        place_on(Arc::<Odd>::clone(&shelf), |config| config.adhoc.max_profiles_per_tenant = 1);
    upload(&place, "old", b"main 1\n").await.expect("kept");
    hand.advance(Duration::from_millis(1));
    shelf.full.store(true, Ordering::Relaxed);
    upload(&place, "new", b"main 1\n").await.expect_err("the bucket is full");
    assert_eq!(names(&place, "a").await, ["old"]);
    shelf.full.store(false, Ordering::Relaxed);
    upload(&place, "new", b"main 1\n").await.expect("kept");
    assert_eq!(names(&place, "a").await, ["new"]);
    // Those that come at once.
    let shelf = odd(3);
    let (place, _) = place_on(Arc::<Odd>::clone(&shelf), |config| config.adhoc.max_profiles_per_tenant = 2);
    let kept = tokio::join!(
        upload(&place, "1", b"main 1\n"),
        upload(&place, "2", b"main 1\n"),
        upload(&place, "3", b"main 1\n")
    );
    assert!(kept.0.is_ok() && kept.1.is_ok() && kept.2.is_ok(), "{kept:?}");
    assert_eq!(shelf.memory.0.lock().len(), 2);
}

#[tokio::test]
async fn whoever_shows_one_waits_for_a_turn() {
    let shelf =
        Arc::new(Odd { memory: Memory::default(), full: AtomicBool::new(false), together: Barrier::new(2) });
    let (place, hand) = place_on(Arc::<Odd>::clone(&shelf), |config| config.max_concurrent = 1);
    let (first, second, ()) =
        tokio::join!(upload(&place, "1", b"main 1\n"), upload(&place, "2", b"main 1\n"), async {
            // One waits for another one at the shelf, who waits for a turn.
            hand.wait_for_sleepers(2).await;
            hand.advance(Duration::from_secs(5 * 60));
        });
    let refused = [first, second].map(|refused| refused.expect_err("nobody else came").message);
    assert!(refused.iter().any(|why| why.contains("no permit was free")), "{refused:?}");
}

#[tokio::test]
async fn each_tenant_has_its_own() {
    let (place, _) = place(|config| config.adhoc.max_profiles_per_tenant = 1);
    let id = upload(&place, "mine", b"main 1\n").await.expect("kept").id;
    assert_eq!(get(&place, "b", &id, None).await.expect_err("another's").code, ErrorCode::NotFound);
    assert!(names(&place, "b").await.is_empty());
    let request =
        AdHocProfilesUploadRequest { name: "b".into(), profile: "YSAxCg==".into(), max_nodes: None };
    place.upload(&reader("b"), request).await.expect("kept");
    assert_eq!((names(&place, "a").await, names(&place, "b").await), (vec!["mine".into()], vec!["b".into()]));
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused_in_words() {
    let (place, _) = place(|config| config.adhoc.max_profile_bytes = ByteSize::kib(1));
    for (name, bytes, code, words) in [
        ("", &b"main 1\n"[..], ErrorCode::Invalid, "profile name has 0 bytes"),
        (&"x".repeat(151), b"main 1\n", ErrorCode::Invalid, "use 1 to 150 bytes"),
        ("a", b"", ErrorCode::Invalid, "upload pprof"),
        ("a", b"{}", ErrorCode::Invalid, "JSON"),
        ("a", &[b'a'; 2_000], ErrorCode::TooLarge, "querier.adhoc.max_profile_bytes"),
    ] {
        let refused = upload(&place, name, bytes).await.expect_err(words);
        assert!(refused.code == code && refused.message.contains(words), "{refused}");
    }
    let refused = upload(&place, "bomb", &gzip(&vec![0; 1 << 24])).await.expect_err("it grows");
    assert_eq!(refused.code, ErrorCode::TooLarge);
    let request = AdHocProfilesUploadRequest { name: "a".into(), profile: "*".into(), max_nodes: None };
    let refused = place.upload(&reader("a"), request).await.expect_err("no base64");
    assert!(refused.message.contains("not base64"), "{refused}");
    let plus = "+".repeat(32);
    let ids = [
        ("", ErrorCode::Invalid),
        ("../a", ErrorCode::NotFound),
        ("a b\n%", ErrorCode::NotFound),
        (plus.as_str(), ErrorCode::NotFound),
    ];
    for (id, code) in ids {
        assert_eq!(get(&place, "a", id, None).await.expect_err("no id").code, code, "{id}");
        let right_id = "0".repeat(32);
        let request = AdHocProfilesDiffRequest {
            left_id: id.to_owned(),
            right_id,
            ..AdHocProfilesDiffRequest::default()
        };
        let refused = place.diff_uploads(&reader("a"), request).await.expect_err("no id");
        assert_eq!(refused.code, code, "{id}");
    }
    assert!(names(&place, "a").await.is_empty(), "nothing of it was kept");
}

#[tokio::test]
async fn reading_one_takes_room_that_is_bounded() {
    let (place, _) = place(|config| config.max_inflight_result_bytes = ByteSize::mib(15));
    let refused = upload(&place, "a", b"main 1\n").await.expect_err("no room");
    assert!(
        refused.code == ErrorCode::Exhausted && refused.message.contains("querier.max_inflight_result_bytes"),
        "{refused}"
    );
    let (place, _) = self::place(|config| config.adhoc.max_profiles_per_tenant = 0);
    let refused = upload(&place, "a", b"main 1\n").await.expect_err("it is off");
    assert!(
        refused.code == ErrorCode::Unimplemented
            && refused.message.contains("querier.adhoc.max_profiles_per_tenant")
    );
}

/// Of each type of each real profile what is shown is what is in it.
#[tokio::test]
async fn real_profiles_are_shown_whole() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/pprof");
    let Ok(files) = std::fs::read_dir(&folder) else {
        println!("skip: no corpus of real profiles at ../shared/data/pprof");
        return;
    };
    let (place, _) = place(|_| {});
    let mut shown = 0;
    for file in files {
        let path = file.expect("readable").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.ends_with(".json") {
            continue;
        }
        let bytes = std::fs::read(&path).expect("readable");
        let read = pprof::decode(&bytes, &pprof::DecodeLimits::default());
        let uploaded = upload(&place, &name, &bytes).await;
        let (Ok((profile, _)), Ok(uploaded)) = (&read, &uploaded) else {
            assert!(read.is_err() && uploaded.is_err(), "{name}: {read:?} {uploaded:?}");
            continue;
        };
        assert_eq!(uploaded.profile_types.len(), profile.header.types.len(), "{name}");
        for (column, profile_type) in uploaded.profile_types.iter().enumerate() {
            let uploaded = get(&place, "a", &uploaded.id, Some(profile_type)).await.expect("it is there");
            let graph = graph(&uploaded.flamebearer_profile);
            assert_eq!(graph["flamebearer"]["numTicks"], profile.total(column), "{name} {profile_type}");
            let again =
                upload(&place, "again", uploaded.flamebearer_profile.as_bytes()).await.expect("as shown");
            let again = self::graph(&again.flamebearer_profile);
            assert_eq!(again["flamebearer"]["numTicks"], profile.total(column), "{name} {profile_type}");
            shown += 1;
        }
    }
    assert!(shown > 20, "{shown}");
}
