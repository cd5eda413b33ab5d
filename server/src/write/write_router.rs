//! Router of writes: sends uploads to the leaders of their shards on any node.
//!
//! ```text
//!  uploads ─► slots ─► batches ─► leader ─┬─ stored, or rejected permanently ─► results
//!              ▲                   ▲      ├─ other or no leader, node gone ─► retry within APPEND_DEADLINE
//!              │                   └──────┘
//!              └─ a newer table places them ◄── rejected as routed by an older one
//! ```
//! A batch keeps its uploads and their order in every retry. The shard identifies equal uploads by their
//! position in the batch [INV-02], so a part of a batch sent alone would look like duplicates.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::{RoutingView, ShardEntry};
use athanor_chassis::{Backoff, ByteSize, Clock, ErrorCode, Random, Status, TenantId};
use athanor_distributor::{ProfileOutcome, ShardWriter, StoredProfile};
use athanor_metastore::RoutingWatch;
use athanor_profile::Labels;
use athanor_profile::labeling::normalize::SERVICE_LABEL;
use athanor_profile::store_interface::upload::ProfileUpload;

use crate::rpc::ingester_client::{AppendTarget, IngesterClient};
use crate::write::leader_cache::LeaderCache;
use crate::write::slot_resolver::SlotResolver;

/// Time limit of a write, after which the client has to retry.
const APPEND_DEADLINE: Duration = Duration::from_secs(10);
/// Backoff between attempts. An election takes one to two seconds, and a write should not wait much longer.
const RETRY_BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(20), Duration::from_millis(250));
/// Maximum number of times that uploads are placed by a newer slot table.
const MAX_TABLE_REFRESHES: usize = 3;
/// Approximate bytes of profiles per batch, as sent.
const TARGET_BATCH_BYTES: usize = 8 << 20;
/// Maximum bytes of profiles with equal labels in one request. They go to their shard together.
const MAX_SERIES_BYTES: usize = 48 << 20;
/// Retry delay that a client receives on overload.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Writer to the shards of all nodes.
pub struct WriteRouter {
    /// Routing view: slot tables and the shards that serve each slot.
    pub views: RoutingWatch,
    /// Resolver of the slot for an upload.
    pub places: SlotResolver,
    /// Cache of shard leaders.
    pub leaders: Arc<LeaderCache>,
    /// Client of ingesters, local and remote.
    pub ways: IngesterClient,
    /// Clock for deadlines and backoff.
    pub clock: Clock,
    /// Random source for the jitter of the backoff.
    pub random: Random,
}

/// Uploads of one slot that are sent together.
struct SlotBatch {
    slot: u32,
    /// Version of the newest table that placed them.
    table: u64,
    /// Positions of the uploads in the request.
    places: Vec<usize>,
    uploads: Vec<ProfileUpload>,
}

/// Uploads with their positions in the request.
type UploadChunk = (Vec<usize>, Vec<ProfileUpload>);

/// Results of a batch, with the position of each upload in the request.
type IndexedResults = Vec<(usize, Result<StoredProfile, Status>)>;

/// Results of a batch and its stale uploads.
struct BatchResult {
    answers: IndexedResults,
    /// Uploads that a newer table places in another slot.
    stale: Vec<(usize, ProfileUpload)>,
}

#[async_trait]
impl ShardWriter for WriteRouter {
    async fn append(
        &self,
        tenant: &TenantId,
        uploads: Vec<ProfileUpload>,
    ) -> Vec<Result<StoredProfile, Status>> {
        let until = self.clock.monotonic() + APPEND_DEADLINE;
        let mut answers: Vec<Option<Result<StoredProfile, Status>>> = vec![None; uploads.len()];
        let mut left: Vec<(usize, ProfileUpload)> = uploads.into_iter().enumerate().collect();
        let mut newer_than = 0;
        for _ in 0..MAX_TABLE_REFRESHES {
            let Some(view) = self.view(newer_than, until).await else { break };
            newer_than = newest_table(&view);
            let (batches, refused) = self.place(&view, tenant, left).await;
            let refused = refused.into_iter().map(|(place, status)| (place, Err(status)));
            refused.for_each(|(place, answer)| answers[place] = Some(answer));
            let stored = batches.into_iter().map(|batch| self.store(tenant, batch, until));
            left = Vec::new();
            for BatchResult { answers: told, stale } in futures::future::join_all(stored).await {
                told.into_iter().for_each(|(place, answer)| answers[place] = Some(answer));
                left.extend(stale);
            }
            if left.is_empty() {
                break;
            }
        }
        let unplaced = || Err(later("no slot table received from the metastore yet"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(unplaced)).collect()
    }
}

impl WriteRouter {
    /// Waits for a routing view with a table newer than a version.
    async fn view(&self, newer_than: u64, until: Duration) -> Option<Arc<RoutingView>> {
        let newer = |view: &RoutingView| view.tables.is_some() && newest_table(view) > newer_than;
        let view = self.views.current();
        if newer(&view) {
            return Some(view);
        }
        let left = until.saturating_sub(self.clock.monotonic());
        let mut views = self.views.clone();
        self.clock.timeout(left, views.wait_until(newer)).await.ok()
    }

    /// Groups uploads into batches. Rejects uploads without a slot.
    async fn place(
        &self,
        view: &RoutingView,
        tenant: &TenantId,
        uploads: Vec<(usize, ProfileUpload)>,
    ) -> (Vec<SlotBatch>, Vec<(usize, Status)>) {
        let mut batches = Vec::new();
        let mut refused = Vec::new();
        let Some(tables) = &view.tables else { return (batches, refused) };
        let route = tables.route(tenant, i64::MIN, i64::MAX);
        let mut of_slot: BTreeMap<u32, Vec<(usize, ProfileUpload)>> = BTreeMap::new();
        for (place, upload) in uploads {
            let service = upload.sent.get(SERVICE_LABEL).unwrap_or_default();
            self.ways.loads.add(tenant, service, upload.pprof.len() as u64);
            match self.places.resolve_slot(&route, tenant, &upload).await {
                Ok(slot) => of_slot.entry(slot).or_default().push((place, upload)),
                Err(status) => refused.push((place, status)),
            }
        }
        let table = newest_table(view);
        for (slot, uploads) in of_slot {
            for (places, uploads) in divided(uploads, &mut refused) {
                batches.push(SlotBatch { slot, table, places, uploads });
            }
        }
        (batches, refused)
    }

    /// Stores a batch and retries with the current leader of its shard.
    async fn store(&self, tenant: &TenantId, batch: SlotBatch, until: Duration) -> BatchResult {
        let mut answers: Vec<Option<Result<StoredProfile, Status>>> = vec![None; batch.uploads.len()];
        let mut why = later("no shard serves this slot");
        for attempt in 0.. {
            if let Some(shard) = self.views.current().serving_shard(batch.slot).cloned() {
                let node = self.leaders.candidate(&shard, attempt);
                let limit = until.saturating_sub(self.clock.monotonic());
                let target = AppendTarget { node, shard: &shard, table: batch.table };
                match self.ways.append(&target, tenant, &batch.uploads, limit).await {
                    Ok(told) => {
                        self.leaders.record_leader(shard.id, Some(node));
                        merge(&mut answers, told);
                        let Some(status) = worth_another_try(&shard, &answers) else { break };
                        why = status.clone();
                    }
                    Err(moved) => {
                        self.leaders.record_leader(shard.id, moved.leader);
                        why = moved.status;
                    }
                }
            }
            let pause = RETRY_BACKOFF.delay(attempt, &self.random);
            if self.clock.monotonic() + pause >= until {
                break;
            }
            self.clock.sleep(pause).await;
        }
        ended(batch, answers, &why)
    }
}

fn newest_table(view: &RoutingView) -> u64 {
    view.tables.as_ref().map_or(0, |tables| tables.table_at(i64::MAX).version())
}

/// Splits the uploads of a slot into chunks of limited size. Uploads with equal labels stay together and in
/// order. Rejects uploads that fit in no chunk.
fn divided(uploads: Vec<(usize, ProfileUpload)>, refused: &mut Vec<(usize, Status)>) -> Vec<UploadChunk> {
    let all: usize = uploads.iter().map(|(_, upload)| upload.pprof.len()).sum();
    if all <= TARGET_BATCH_BYTES {
        return vec![uploads.into_iter().unzip()];
    }
    let mut of_labels: BTreeMap<Labels, (usize, Vec<(usize, ProfileUpload)>)> = BTreeMap::new();
    for (place, upload) in uploads {
        let (bytes, all) = of_labels.entry(upload.sent.clone()).or_default();
        *bytes += upload.pprof.len();
        all.push((place, upload));
    }
    let mut pieces: Vec<(usize, UploadChunk)> = Vec::new();
    for (bytes, all) in of_labels.into_values() {
        if bytes > MAX_SERIES_BYTES {
            let seen = ByteSize::bytes(bytes as u64);
            let limit = ByteSize::bytes(MAX_SERIES_BYTES as u64);
            let message = format!(
                "{} profiles of one series have {seen} in this request, the limit is {limit}: send smaller batches",
                all.len()
            );
            let status = Status::new(ErrorCode::TooLarge, message).with_reason("series_size_limit");
            refused.extend(all.iter().map(|(place, _)| (*place, status.clone())));
            continue;
        }
        match pieces.last_mut() {
            Some((size, piece)) if *size + bytes <= TARGET_BATCH_BYTES => {
                *size += bytes;
                piece.extend(all);
            }
            _ => pieces.push((bytes, all.into_iter().unzip())),
        }
    }
    pieces.into_iter().map(|(_, piece)| piece).collect()
}

/// Keeps the first success of each upload: a retry would report it as a duplicate.
fn merge(
    answers: &mut [Option<Result<StoredProfile, Status>>],
    told: Vec<Result<athanor_ingester::StoredUpload, Status>>,
) {
    for (answer, told) in answers.iter_mut().zip(told) {
        if !matches!(answer, Some(Ok(_))) {
            *answer = Some(told.map(translated));
        }
    }
}

/// Returns an error that makes a retry worthwhile. A shard with a single member gets no retry.
fn worth_another_try<'a>(
    shard: &ShardEntry,
    answers: &'a [Option<Result<StoredProfile, Status>>],
) -> Option<&'a Status> {
    let again = |status: &&Status| matches!(status.code, ErrorCode::NotLeader | ErrorCode::Unavailable);
    let refused = answers.iter().filter_map(|answer| answer.as_ref()?.as_ref().err());
    refused.filter(|_| shard.members.len() > 1).find(again)
}

fn ended(batch: SlotBatch, answers: Vec<Option<Result<StoredProfile, Status>>>, why: &Status) -> BatchResult {
    let mut ended = BatchResult { answers: Vec::with_capacity(answers.len()), stale: Vec::new() };
    for ((place, upload), answer) in batch.places.into_iter().zip(batch.uploads).zip(answers) {
        match answer.unwrap_or_else(|| Err(why.clone())) {
            Err(status) if status.code == ErrorCode::Conflict => ended.stale.push((place, upload)),
            Err(status) if status.code == ErrorCode::NotLeader => {
                ended.answers.push((place, Err(later(&status.message))));
            }
            answer => ended.answers.push((place, answer)),
        }
    }
    ended
}

/// Returns the error that asks the client to retry.
fn later(why: &str) -> Status {
    Status::new(ErrorCode::Unavailable, format!("{why}; retry")).with_retry_after(BUSY_RETRY_AFTER)
}

fn translated(stored: athanor_ingester::StoredUpload) -> StoredProfile {
    let outcome = match stored {
        athanor_ingester::StoredUpload { new: 0, repeats: 0, .. } => ProfileOutcome::Empty,
        athanor_ingester::StoredUpload { new: 0, .. } => ProfileOutcome::Repeat,
        _ => ProfileOutcome::New,
    };
    let athanor_ingester::StoredUpload { raw_bytes, samples, dropped, .. } = stored;
    StoredProfile { outcome, raw_bytes, samples, dropped }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(pod: usize, bytes: usize) -> ProfileUpload {
        let sent = Labels::new([("pod".to_owned(), pod.to_string())]);
        ProfileUpload { sent, pprof: vec![0; bytes].into(), ..ProfileUpload::default() }
    }

    #[test]
    fn equal_labels_stay_together_and_in_order() {
        let mib = 1 << 20;
        let uploads: Vec<(usize, ProfileUpload)> =
            (0..60).map(|place| (place, upload(place % 7, mib / 2))).collect();
        let mut refused = Vec::new();
        let pieces = divided(uploads.clone(), &mut refused);
        assert!(refused.is_empty() && pieces.len() >= 4, "{}", pieces.len());
        let mut seen: Vec<usize> = Vec::new();
        for (places, uploads) in &pieces {
            assert!(uploads.iter().map(|upload| upload.pprof.len()).sum::<usize>() <= TARGET_BATCH_BYTES);
            for pod in 0..7 {
                let here: Vec<usize> = places.iter().copied().filter(|place| place % 7 == pod).collect();
                let all: Vec<usize> = (0..60).filter(|place| place % 7 == pod).collect();
                assert!(here.is_empty() || here == all, "{here:?}");
            }
            seen.extend(places);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..60).collect::<Vec<_>>());
        let few = divided(uploads[..10].to_vec(), &mut refused);
        assert_eq!(few.len(), 1);
    }

    #[test]
    fn a_series_that_is_too_large_is_refused_alone() {
        let mib = 1 << 20;
        let mut refused = Vec::new();
        let large = (0..49).map(|place| (place, upload(1, mib)));
        let pieces = divided(large.chain([(49, upload(2, mib))]).collect(), &mut refused);
        assert_eq!(pieces.iter().map(|(places, _)| places.clone()).collect::<Vec<_>>(), [vec![49]]);
        assert_eq!(refused.len(), 49);
        let said = &refused[0].1;
        assert!(said.code == ErrorCode::TooLarge && said.message.contains("49MiB"), "{said}");
    }

    #[test]
    fn what_was_stored_by_an_earlier_try_stays_new() {
        let new = athanor_ingester::StoredUpload { new: 1, ..Default::default() };
        let repeat = athanor_ingester::StoredUpload { repeats: 1, ..Default::default() };
        let gone = || Status::new(ErrorCode::Unavailable, "it is gone");
        let mut answers = vec![None, None];
        merge(&mut answers, vec![Ok(new), Err(gone())]);
        merge(&mut answers, vec![Ok(repeat), Ok(new)]);
        let outcomes: Vec<ProfileOutcome> =
            answers.into_iter().map(|answer| answer.unwrap().unwrap().outcome).collect();
        assert_eq!(outcomes, [ProfileOutcome::New, ProfileOutcome::New]);
    }
}
