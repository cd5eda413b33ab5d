//! Uploads against a bucket in memory, through the words of both wires.

mod steps;

use athanor_chassis::time::clock::ManualClock;
use athanor_chassis::{ByteSize, Timestamp};
use athanor_proto::debuginfo::v1alpha1 as pyroscope;
use athanor_proto::parca::debuginfo::v1alpha1 as parca;
use athanor_proto::parca::debuginfo::v1alpha1::upload_request::Data;
use athanor_storage::{StorageConfig, StoreDeps, UploadLimits};
use bytes::Bytes;

use super::stats::RefusalsByReason;
use super::*;

const BUILD: &str = "abcd1234";
const MINUTE: Duration = Duration::from_secs(60);

struct World {
    debuginfo: DebuginfoService,
    hand: ManualClock,
    tenant: TenantId,
}

fn elf(size: usize, fill: u8) -> Vec<u8> {
    let mut bytes = b"\x7fELF".to_vec();
    bytes.resize(size, fill);
    bytes
}

impl World {
    fn new() -> Self {
        Self::with_room(ByteSize::mib(1024))
    }

    /// One in which a tenant may have so many bytes.
    fn with_room(debuginfo_max_bytes: ByteSize) -> Self {
        Self::with_total(debuginfo_max_bytes, ByteSize::mib(1024))
    }

    /// World where a tenant may have so many bytes, and all tenants together so many.
    fn with_total(debuginfo_max_bytes: ByteSize, total: ByteSize) -> Self {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(1_700_000_000));
        let config = StorageConfig { memory: true, ..StorageConfig::default() };
        let deps = StoreDeps { clock: clock.clone(), random: Random::from_seed(1) };
        let limits = TenantLimits {
            debuginfo_max_bytes,
            debuginfo_max_file_bytes: ByteSize::mib(20),
            max_concurrent_debuginfo_uploads: 2,
            ..TenantLimits::default()
        };
        let store = Store::open(&config, deps).unwrap();
        let bounds = UploadLimits {
            min_free_bytes: ByteSize::bytes(0),
            max_debuginfo_bytes: total,
            max_adhoc_bytes: ByteSize::bytes(0),
        };
        let debuginfo = DebuginfoService::new(DebuginfoDeps {
            space: UploadSpace::new(store.clone(), bounds),
            store,
            overrides: LimitOverrides::new(limits),
            tasks: TaskGroup::new(clock.clone(), 100),
            clock,
            random: Random::from_seed(2),
        });
        Self { debuginfo, hand, tenant: "a".parse().unwrap() }
    }

    async fn wanted(&self, hash: &str, force: bool) -> (bool, String) {
        let build_id = BUILD.to_owned();
        let asked = parca::ShouldInitiateUploadRequest {
            build_id,
            hash: hash.to_owned(),
            force,
            ..Default::default()
        };
        let answer = self.debuginfo.should_initiate(&self.tenant, asked).await.unwrap();
        (answer.should_initiate_upload, answer.reason)
    }

    async fn is_wanted(&self, reason: UploadDecision) -> bool {
        self.wanted("", false).await == (reason.is_accepted(), reason.reason_text().to_owned())
    }

    async fn initiate(&self, hash: &str, force: bool, size: usize) -> Result<String, Status> {
        let asked = parca::InitiateUploadRequest {
            build_id: BUILD.to_owned(),
            size: size as i64,
            hash: hash.to_owned(),
            force,
            ..Default::default()
        };
        let answer = self.debuginfo.initiate(&self.tenant, asked).await?;
        Ok(answer.upload_instructions.unwrap().upload_id)
    }

    fn messages(upload_id: &str, chunks: &[&[u8]]) -> Vec<Result<parca::UploadRequest, Status>> {
        let info = parca::UploadInfo {
            build_id: BUILD.to_owned(),
            upload_id: upload_id.to_owned(),
            ..Default::default()
        };
        let chunks = chunks.iter().map(|chunk| Data::ChunkData(Bytes::copy_from_slice(chunk)));
        let all = std::iter::once(Data::Info(info)).chain(chunks);
        all.map(|data| Ok(parca::UploadRequest { data: Some(data) })).collect()
    }

    async fn send(&self, upload_id: &str, bytes: &[u8]) -> Result<u64, Status> {
        let chunks: Vec<&[u8]> = bytes.chunks(1 << 20).collect();
        let messages = stream::iter(Self::messages(upload_id, &chunks));
        Ok(self.debuginfo.upload(&self.tenant, messages).await?.size)
    }

    async fn finish(&self, upload_id: &str) -> Result<(), Status> {
        let build_id = BUILD.to_owned();
        let upload_id = upload_id.to_owned();
        let asked = parca::MarkUploadFinishedRequest { build_id, upload_id, ..Default::default() };
        self.debuginfo.mark_finished(&self.tenant, asked).await.map(drop)
    }

    /// All of it, with a forced start.
    async fn whole(&self, bytes: &[u8]) {
        let id = self.initiate("hash", true, bytes.len()).await.unwrap();
        assert_eq!(self.send(&id, bytes).await.unwrap(), bytes.len() as u64);
        self.finish(&id).await.unwrap();
    }

    async fn keys(&self) -> Vec<String> {
        let listed =
            self.debuginfo.deps.store.list(&KeyPrefix::Debuginfo(self.tenant.clone()), None, 10_000).await;
        listed.unwrap().into_iter().map(|entry| entry.key).collect()
    }

    /// The bytes of the upload that counts, if it can be used.
    async fn there(&self) -> Option<Vec<u8>> {
        let build = BuildId::new(BUILD).unwrap();
        let place =
            DebuginfoKey { tenant: self.tenant.clone(), build, kind: upload_state::DebuginfoKind::Debuginfo };
        let shelf = &self.debuginfo.shelf;
        let seen = shelf.list_uploads(&place).await.unwrap().upload_statuses();
        let finished = seen.iter().filter(|upload| upload.phase == UploadPhase::Complete);
        let number = finished.max_by_key(|upload| upload.number)?.number;
        let note: CompletedUpload =
            shelf.read_marker(&place.marker_key(number, UploadMarker::Complete)).await.unwrap().unwrap();
        let mut bytes = Vec::new();
        for part in 0..note.received.parts {
            let key = place.part_key(number, &note.received.attempt, part);
            bytes.extend_from_slice(&shelf.store.get(&key).await.unwrap());
        }
        assert_eq!(note.received.size, bytes.len() as u64);
        Some(bytes)
    }

    /// Until nothing is cleaned up any more.
    async fn settled(&self) {
        while self.debuginfo.deps.tasks.running_tasks() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

fn code<T>(result: Result<T, Status>) -> Result<(), ErrorCode> {
    result.map(drop).map_err(|status| status.code)
}

#[tokio::test]
async fn a_file_is_offered_sent_and_kept() {
    const SIZE: usize = 2 * UPLOAD_PART_BYTES + 12_345;
    let world = World::new();
    assert!(world.is_wanted(UploadDecision::First).await);
    let id = world.initiate("hash", false, SIZE).await.unwrap();
    assert!(world.is_wanted(UploadDecision::InProgress).await);
    assert_eq!(code(world.initiate("hash", false, SIZE).await), Err(ErrorCode::Precondition));
    assert_eq!(code(world.finish(&id).await), Err(ErrorCode::Precondition), "nothing was sent");
    // Parts end within chunks and chunks within parts.
    let bytes = elf(SIZE, 7);
    assert_eq!(world.send(&id, &bytes).await.unwrap(), bytes.len() as u64);
    assert!(world.is_wanted(UploadDecision::InProgress).await);
    world.finish(&id).await.unwrap();
    world.finish(&id).await.unwrap();
    assert!(world.is_wanted(UploadDecision::Exists).await);
    assert_eq!(world.there().await.unwrap(), bytes);
    assert_eq!(world.keys().await.len(), 3 + 3, "three notes and three parts");
    assert_eq!(code(world.send(&id, &bytes).await), Err(ErrorCode::Precondition));
    let counts = world.debuginfo.stats();
    assert_eq!((counts.begun, counts.finished, counts.invalid, counts.bytes), (1, 1, 0, bytes.len() as u64));
    assert_eq!(
        counts.refused,
        RefusalsByReason::from([("not_pending", 1), ("not_received", 1), ("not_wanted", 1)])
    );
}

#[tokio::test]
async fn a_forced_upload_takes_the_place_of_the_one_before() {
    let world = World::new();
    world.whole(&elf(10, 1)).await;
    world.hand.advance(MINUTE);
    assert_eq!(code(world.initiate("hash", false, 20).await), Err(ErrorCode::Precondition));
    let id = world.initiate("hash", true, 20).await.unwrap();
    assert_eq!(world.there().await.unwrap(), elf(10, 1), "it stays until the other one is there");
    world.send(&id, &elf(20, 2)).await.unwrap();
    world.finish(&id).await.unwrap();
    assert_eq!(world.there().await.unwrap(), elf(20, 2));
    assert_eq!(world.keys().await.len(), 4, "nothing of the first one is left");
}

#[tokio::test]
async fn an_upload_that_takes_too_long_may_be_tried_again() {
    let world = World::new();
    let first = world.initiate("hash", false, 10).await.unwrap();
    world.send(&first, &elf(10, 1)).await.unwrap();
    world.hand.advance(17 * MINUTE);
    assert!(world.is_wanted(UploadDecision::InProgress).await);
    world.hand.advance(MINUTE);
    assert!(world.is_wanted(UploadDecision::Stale).await);
    assert_eq!(code(world.send(&first, &elf(10, 1)).await), Err(ErrorCode::Precondition));
    assert_eq!(
        code(world.finish(&first).await),
        Err(ErrorCode::Precondition),
        "another node may be removing it"
    );
    let second = world.initiate("hash", false, 10).await.unwrap();
    assert_ne!(first, second);
    assert_eq!(world.keys().await.len(), 1, "only the note of the second one");
    world.send(&second, &elf(10, 2)).await.unwrap();
    world.finish(&second).await.unwrap();
    assert_eq!(code(world.finish(&first).await), Err(ErrorCode::Invalid));
}

#[tokio::test]
async fn what_is_no_binary_is_wanted_again_if_it_differs() {
    let world = World::new();
    world.whole(b"not an ELF file").await;
    assert!(world.is_wanted(UploadDecision::Invalid).await);
    assert_eq!(world.wanted("hash", false).await, (false, UploadDecision::Equal.reason_text().to_owned()));
    assert_eq!(world.wanted("other", false).await, (true, UploadDecision::NotEqual.reason_text().to_owned()));
    let equal = world.initiate("hash", false, 9).await.unwrap_err();
    assert_eq!(
        (equal.code, equal.message.as_str()),
        (ErrorCode::Conflict, UploadDecision::Equal.reason_text())
    );
    let id = world.initiate("other", false, 9).await.unwrap();
    world.send(&id, &elf(9, 0)).await.unwrap();
    world.finish(&id).await.unwrap();
    assert!(world.is_wanted(UploadDecision::Exists).await);
    assert_eq!(world.debuginfo.stats().invalid, 1);
}

#[tokio::test]
async fn what_does_not_come_whole_is_removed() {
    let world = World::new();
    let id = world.initiate("hash", false, UPLOAD_PART_BYTES + 1).await.unwrap();
    let large = elf(UPLOAD_PART_BYTES + 1, 1);
    // Its client leaves.
    let mut cut = World::messages(&id, &[&large]);
    cut.push(Err(Status::new(ErrorCode::Cancelled, "gone")));
    let cut = world.debuginfo.upload(&world.tenant, stream::iter(cut)).await;
    assert_eq!(code(cut), Err(ErrorCode::Cancelled));
    // It is not waited for any more.
    let silent = stream::iter(World::messages(&id, &[&large])).chain(stream::pending());
    let mut waiting = Box::pin(world.debuginfo.upload(&world.tenant, silent));
    assert!(futures::future::poll_immediate(&mut waiting).await.is_none());
    drop(waiting);
    // It is larger than it may be, which shows while it comes.
    let too_large = world.send(&id, &elf((20 << 20) + 1, 1)).await.unwrap_err();
    assert_eq!(too_large.code, ErrorCode::TooLarge);
    assert!(too_large.message.contains("limits.debuginfo_max_file_bytes"), "{too_large}");
    world.settled().await;
    assert_eq!(world.keys().await.len(), 1, "only the note that it was begun");
    // All the same it may be sent again.
    world.send(&id, &large).await.unwrap();
    world.finish(&id).await.unwrap();
    assert_eq!(world.there().await.unwrap(), large);
}

#[tokio::test]
async fn a_repeat_whose_answer_was_lost_is_the_same_and_another_file_is_not() {
    let world = World::new();
    let id = world.initiate("hash", false, 1000).await.unwrap();
    let bytes = elf(1000, 1);
    for _twice in 0..2 {
        assert_eq!(world.send(&id, &bytes).await.unwrap(), 1000);
    }
    assert_eq!(code(world.send(&id, &elf(1000, 2)).await), Err(ErrorCode::Conflict));
    world.settled().await;
    assert_eq!(world.keys().await.len(), 3);
    world.finish(&id).await.unwrap();
    assert_eq!(world.there().await.unwrap(), bytes);
}

#[tokio::test]
async fn a_file_of_another_size_than_was_said_is_refused() {
    let world = World::new();
    let id = world.initiate("hash", false, 1_000_000).await.unwrap();
    let refused = world.send(&id, &elf(4, 0)).await.unwrap_err();
    let said = "the file has 4 bytes, 1000000 were announced; send the file with the announced size";
    assert_eq!((refused.code, refused.message.as_str()), (ErrorCode::Invalid, said));
    assert_eq!(code(world.send(&id, &elf(1_000_001, 0)).await), Err(ErrorCode::Invalid));
    assert_eq!(code(world.finish(&id).await), Err(ErrorCode::Precondition), "nothing was sent");
    world.send(&id, &elf(1_000_000, 0)).await.unwrap();
    world.finish(&id).await.unwrap();
}

#[tokio::test]
async fn what_a_crash_left_of_an_attempt_goes_when_another_one_is_finished() {
    let world = World::new();
    let id = world.initiate("hash", false, 9).await.unwrap();
    let build = BuildId::new(BUILD).unwrap();
    let place =
        DebuginfoKey { tenant: world.tenant.clone(), build, kind: upload_state::DebuginfoKind::Debuginfo };
    let number = u128::from_str_radix(&id, 16).unwrap();
    let left = place.part_key(number, "0123456789abcdef", 0);
    world.debuginfo.shelf.put_part(&left, Bytes::from_static(b"left")).await.unwrap();
    world.send(&id, &elf(9, 0)).await.unwrap();
    world.finish(&id).await.unwrap();
    assert_eq!(world.keys().await.len(), 4, "three notes and a part");
    assert_eq!(world.there().await.unwrap(), elf(9, 0));
}

#[tokio::test]
async fn a_tenant_has_so_much_room() {
    let mut world = World::with_room(ByteSize::bytes(5000));
    world.whole(&elf(3000, 1)).await;
    let refused = world.initiate("hash", true, 3000).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Exhausted);
    for said in [
        "uploads at least 3000 bytes more",
        "the limit is 5000B (limits.debuginfo_max_bytes)",
        "DeleteDebuginfo",
    ] {
        assert!(refused.message.contains(said), "{refused}");
    }
    world.initiate("hash", true, 100).await.unwrap();
    let first = std::mem::replace(&mut world.tenant, "b".parse().unwrap());
    world.whole(&elf(3000, 1)).await;
    world.tenant = first;
    let asked = pyroscope::DeleteDebuginfoRequest { gnu_build_id: BUILD.to_owned() };
    world.debuginfo.delete_debuginfo(&world.tenant, asked).await.unwrap();
    world.whole(&elf(3000, 1)).await;
    let world = World::with_room(ByteSize::bytes(0));
    world.whole(&elf(3000, 1)).await;
}

#[tokio::test]
async fn uploads_that_began_while_there_was_room_are_held_to_it_when_they_come() {
    let world = World::with_room(ByteSize::bytes(5000));
    let first = world.initiate("hash", true, 3000).await.unwrap();
    let second = world.initiate("hash", true, 3000).await.unwrap();
    world.send(&first, &elf(3000, 1)).await.unwrap();
    world.send(&first, &elf(3000, 1)).await.expect("whose answer was lost sends again");
    assert_eq!(code(world.send(&second, &elf(3000, 2)).await), Err(ErrorCode::Exhausted));
    world.finish(&first).await.unwrap();
    assert_eq!(world.there().await.unwrap(), elf(3000, 1));
    // Clients that say no size.
    let file = pyroscope::FileMetadata { gnu_build_id: "ABCD".into(), r#type: 1, ..Default::default() };
    let asked = pyroscope::ShouldInitiateUploadRequest { file: Some(file) };
    assert!(
        world.debuginfo.should_initiate_upload(&world.tenant, asked).await.unwrap().should_initiate_upload
    );
    let sent = stream::iter([Ok(Bytes::from(elf(3000, 3)))]);
    let refused = world.debuginfo.upload_file(&world.tenant, "ABCD", sent).await;
    assert_eq!(code(refused), Err(ErrorCode::Exhausted));
}

#[tokio::test]
async fn uploads_of_all_tenants_share_one_quota() {
    let mut world = World::with_total(ByteSize::mib(20), ByteSize::mib(10));
    world.whole(&elf(6 << 20, 1)).await;
    world.tenant = "b".parse().unwrap();
    let refused = world.initiate("hash", true, 5 << 20).await.unwrap_err();
    assert_eq!((refused.code, refused.reason), (ErrorCode::Exhausted, Some("uploads_full")));
    // A file whose size the client did not say is refused while it comes, and nothing of it stays.
    let file = pyroscope::FileMetadata { gnu_build_id: "ABCD".into(), r#type: 1, ..Default::default() };
    let asked = pyroscope::ShouldInitiateUploadRequest { file: Some(file) };
    world.debuginfo.should_initiate_upload(&world.tenant, asked).await.unwrap();
    let sent = stream::iter([Ok(Bytes::from(elf(5 << 20, 3)))]);
    let refused = world.debuginfo.upload_file(&world.tenant, "ABCD", sent).await;
    assert_eq!(code(refused), Err(ErrorCode::Exhausted));
    world.settled().await;
    assert_eq!(world.keys().await.len(), 1, "only the note that it was begun");
    let a = "a".parse().unwrap();
    delete_debuginfo(&world.debuginfo.deps.store, &a, &BuildId::new(BUILD).unwrap()).await.unwrap();
    world.hand.advance(MINUTE);
    world.whole(&elf(5 << 20, 2)).await;
}

#[tokio::test]
async fn what_is_malformed_is_refused_by_name() {
    let world = World::new();
    let id = world.initiate("hash", false, 5).await.unwrap();
    let upload = async |messages| {
        let sent = world.debuginfo.upload(&world.tenant, stream::iter(messages)).await;
        sent.map(drop).unwrap_err()
    };
    assert!(upload(vec![]).await.message.contains("its info"));
    let chunk = parca::UploadRequest { data: Some(Data::ChunkData(Bytes::from_static(b"x"))) };
    assert!(upload(vec![Ok(chunk)]).await.message.contains("its info"));
    let mut twice = World::messages(&id, &[]);
    twice.extend(World::messages(&id, &[]));
    assert!(upload(twice).await.message.contains("second info"));
    assert!(upload(World::messages(&id, &[])).await.message.contains("empty"));
    for bad in ["", "x", &id.to_uppercase().replace('0', "O"), &format!("0{id}"), &"0".repeat(32)] {
        assert_eq!(upload(World::messages(bad, &[b"x"])).await.reason, Some("unknown_upload"), "{bad}");
    }
    let asked = |build_id: &str, size, hash: &str, kind| parca::InitiateUploadRequest {
        build_id: build_id.to_owned(),
        size,
        hash: hash.to_owned(),
        r#type: kind,
        ..Default::default()
    };
    let long = "h".repeat(1025);
    for (asked, said) in [
        (asked("ab", 5, "h", 0), "build_id"),
        (asked(&"a".repeat(86), 5, "h", 0), "build_id"),
        (asked("a b c", 5, "h", 0), "build_id"),
        (asked("abc", 5, "", 0), "hash"),
        (asked("abc", 5, &long, 0), "hash has 1025 bytes"),
        (asked("abc", 0, "h", 0), "size"),
        (asked("abc", -1, "h", 0), "size"),
        (asked("abc", i64::MAX, "h", 0), "limits.debuginfo_max_file_bytes"),
        (asked("abc", 5, "h", 4), "type 4"),
    ] {
        let refused = world.debuginfo.initiate(&world.tenant, asked).await.unwrap_err();
        assert!(refused.code == ErrorCode::Invalid && refused.message.contains(said), "{refused}");
    }
}

#[tokio::test]
async fn so_many_send_and_begin_at_once() {
    let world = World::new();
    let id = world.initiate("hash", false, 9).await.unwrap();
    let mut waiting = Vec::new();
    for _place in 0..2 {
        let silent = stream::iter(World::messages(&id, &[])).chain(stream::pending());
        let mut one = Box::pin(world.debuginfo.upload(&world.tenant, silent));
        assert!(futures::future::poll_immediate(&mut one).await.is_none());
        waiting.push(one);
    }
    let refused = world.send(&id, &elf(9, 0)).await.unwrap_err();
    assert_eq!((refused.code, refused.retry_after), (ErrorCode::Exhausted, Some(UPLOAD_RETRY_AFTER)));
    assert!(refused.message.contains("limits.max_concurrent_debuginfo_uploads"), "{refused}");
    drop(waiting);
    world.send(&id, &elf(9, 0)).await.unwrap();
    for _pending in 1..MAX_PENDING_UPLOADS {
        world.initiate("hash", true, 9).await.unwrap();
    }
    assert_eq!(code(world.initiate("hash", true, 9).await), Err(ErrorCode::Exhausted));
}

#[tokio::test]
async fn a_tenant_sees_nothing_of_another() {
    let mut world = World::new();
    world.whole(&elf(10, 1)).await;
    let id = world.initiate("hash", true, 10).await.unwrap();
    let first = std::mem::replace(&mut world.tenant, "b".parse().unwrap());
    assert!(world.is_wanted(UploadDecision::First).await);
    assert_eq!(code(world.send(&id, &elf(10, 9)).await), Err(ErrorCode::Precondition));
    assert_eq!(code(world.finish(&id).await), Err(ErrorCode::NotFound));
    world.whole(&elf(10, 2)).await;
    let asked = pyroscope::DeleteDebuginfoRequest { gnu_build_id: BUILD.to_owned() };
    world.debuginfo.delete_debuginfo(&world.tenant, asked).await.unwrap();
    assert_eq!(world.keys().await, Vec::<String>::new());
    world.tenant = first;
    assert_eq!(world.there().await.unwrap(), elf(10, 1));
}

#[tokio::test]
async fn the_words_of_pyroscope_mean_the_same() {
    let world = World::new();
    let (debuginfo, tenant) = (&world.debuginfo, &world.tenant);
    let should = async |id: &str| {
        let file = pyroscope::FileMetadata {
            gnu_build_id: id.to_owned(),
            name: "app".to_owned(),
            r#type: 1,
            ..Default::default()
        };
        let asked = pyroscope::ShouldInitiateUploadRequest { file: Some(file) };
        debuginfo.should_initiate_upload(tenant, asked).await
    };
    let send = async |bytes: Vec<u8>| {
        debuginfo.upload_file(tenant, "ABCD1234", stream::iter([Ok(Bytes::from(bytes))])).await
    };
    let finish = async || {
        let asked = pyroscope::UploadFinishedRequest { gnu_build_id: BUILD.to_owned() };
        debuginfo.upload_finished(tenant, asked).await
    };
    let list = async || debuginfo.list_debuginfo(tenant, Default::default()).await.unwrap().object;
    assert_eq!(code(send(elf(9, 0)).await), Err(ErrorCode::Precondition));
    assert_eq!(code(finish().await), Err(ErrorCode::NotFound));
    for bad in ["", "a", "xyz", &"a".repeat(41), "ab/cd"] {
        assert_eq!(code(should(bad).await), Err(ErrorCode::Invalid), "{bad}");
    }
    let nothing = pyroscope::ShouldInitiateUploadRequest { file: None };
    assert_eq!(code(debuginfo.should_initiate_upload(tenant, nothing).await), Err(ErrorCode::Invalid));
    assert!(should(BUILD).await.unwrap().should_initiate_upload);
    assert!(!should(BUILD).await.unwrap().should_initiate_upload);
    assert_eq!(code(finish().await), Err(ErrorCode::Precondition));
    let uploading = list().await.remove(0);
    assert_eq!((uploading.state, uploading.finished_at, uploading.size_bytes), (0, None, 0));
    send(elf(9, 0)).await.unwrap();
    world.hand.advance(MINUTE);
    finish().await.unwrap();
    assert_eq!(code(finish().await), Err(ErrorCode::Precondition));
    let uploaded = list().await.remove(0);
    assert_eq!((uploaded.state, uploaded.size_bytes), (1, 9));
    let file = uploaded.file.unwrap();
    assert_eq!((file.gnu_build_id.as_str(), file.name.as_str(), file.r#type), (BUILD, "app", 1));
    let lasted = uploaded.finished_at.unwrap().seconds - uploaded.started_at.unwrap().seconds;
    assert_eq!(lasted, 60);
    // Another kind of the same binary is a file of its own, and goes with it.
    world.whole(&elf(11, 1)).await;
    assert_eq!(list().await.len(), 2);
    let asked = pyroscope::DeleteDebuginfoRequest { gnu_build_id: "AbCd1234".to_owned() };
    debuginfo.delete_debuginfo(tenant, asked).await.unwrap();
    assert!(list().await.is_empty() && world.keys().await.is_empty());
    assert!(should(BUILD).await.unwrap().should_initiate_upload);
    send(b"no binary".to_vec()).await.unwrap();
    let refused = finish().await.unwrap_err();
    assert_eq!((refused.code, refused.reason), (ErrorCode::Invalid, Some("not_an_elf_file")));
    assert!(should(BUILD).await.unwrap().should_initiate_upload);
}
