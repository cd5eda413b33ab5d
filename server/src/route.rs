//! From the door to the shards, wherever they are.
//!
//! ```text
//!  uploads ─► slots ─► batches ─► leader ─┬─ stored, or refused for good ─► answers
//!              ▲                   ▲      ├─ another leads, none does, it is gone ─► again, within PATIENCE
//!              │                   └──────┘
//!              └─ a newer table places them ◄── refused as routed by an older one
//! ```
//! A batch keeps its uploads and their order however often it is sent: of equal uploads the shard knows each by its
//! place among them [INV-02], so a part of a batch that is sent alone would look like what is stored already.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::{ShardEntry, View};
use athanor_chassis::{ByteSize, Clock, Code, Random, Status, TenantId};
use athanor_distributor::{Outcome, Shards, Stored};
use athanor_metastore::Views;
use athanor_profile::Labels;
use athanor_profile::normalise::SERVICE;
use athanor_profile::upload::Upload;

use crate::leaders::Leaders;
use crate::places::Places;
use crate::ways::Ways;

/// How long profiles are tried to be stored before the client is asked to send them again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between tries: an election takes a second or two, and whoever waits for it should not wait much longer.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));
/// How often uploads are placed anew because the table was an old one.
const TABLES: usize = 3;
/// Bytes of profiles, as sent, that go to a shard together, about.
const BATCH: usize = 8 << 20;
/// The most bytes of profiles with equal labels in one request: they go to their shard together.
const SERIES: usize = 48 << 20;
/// What a client is told to wait.
const LATER: Duration = Duration::from_secs(1);

/// The shards of all nodes.
pub struct Route {
    /// What serves which slot.
    pub views: Views,
    /// Which slot takes what.
    pub places: Places,
    /// Whom to ask.
    pub leaders: Arc<Leaders>,
    /// How they are asked.
    pub ways: Ways,
    /// Measures patience.
    pub clock: Clock,
    /// Spreads tries.
    pub random: Random,
}

/// Uploads of one slot that stay together.
struct Batch {
    slot: u32,
    /// The newest table that they were placed by.
    table: u64,
    /// Their places in the request.
    places: Vec<usize>,
    uploads: Vec<Upload>,
}

/// Uploads and their places in the request.
type Piece = (Vec<usize>, Vec<Upload>);

/// What became of a batch: for each upload, by its place in the request.
type Answers = Vec<(usize, Result<Stored, Status>)>;

/// How a batch ended.
struct Ended {
    answers: Answers,
    /// Uploads that another table places elsewhere.
    stale: Vec<(usize, Upload)>,
}

#[async_trait]
impl Shards for Route {
    async fn append(&self, tenant: &TenantId, uploads: Vec<Upload>) -> Vec<Result<Stored, Status>> {
        let until = self.clock.monotonic() + PATIENCE;
        let mut answers: Vec<Option<Result<Stored, Status>>> = vec![None; uploads.len()];
        let mut left: Vec<(usize, Upload)> = uploads.into_iter().enumerate().collect();
        let mut newer_than = 0;
        for _ in 0..TABLES {
            let Some(view) = self.view(newer_than, until).await else { break };
            newer_than = newest_table(&view);
            let (batches, refused) = self.place(&view, tenant, left).await;
            let refused = refused.into_iter().map(|(place, status)| (place, Err(status)));
            refused.for_each(|(place, answer)| answers[place] = Some(answer));
            let stored = batches.into_iter().map(|batch| self.store(tenant, batch, until));
            left = Vec::new();
            for Ended { answers: told, stale } in futures::future::join_all(stored).await {
                told.into_iter().for_each(|(place, answer)| answers[place] = Some(answer));
                left.extend(stale);
            }
            if left.is_empty() {
                break;
            }
        }
        let unplaced = || Err(later("it is not known yet which shards there are"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(unplaced)).collect()
    }
}

impl Route {
    /// What is known of shards, with a table that is newer than another.
    async fn view(&self, newer_than: u64, until: Duration) -> Option<Arc<View>> {
        let newer = |view: &View| view.tables.is_some() && newest_table(view) > newer_than;
        let view = self.views.now();
        if newer(&view) {
            return Some(view);
        }
        let left = until.saturating_sub(self.clock.monotonic());
        let mut views = self.views.clone();
        self.clock.within(left, views.until(newer)).await.ok()
    }

    /// Divides uploads into batches; those that cannot be placed are refused.
    async fn place(
        &self,
        view: &View,
        tenant: &TenantId,
        uploads: Vec<(usize, Upload)>,
    ) -> (Vec<Batch>, Vec<(usize, Status)>) {
        let (mut batches, mut refused) = (Vec::new(), Vec::new());
        let Some(tables) = &view.tables else { return (batches, refused) };
        let route = tables.route(tenant, i64::MIN, i64::MAX);
        let mut of_slot: BTreeMap<u32, Vec<(usize, Upload)>> = BTreeMap::new();
        for (place, upload) in uploads {
            let service = upload.sent.get(SERVICE).unwrap_or_default();
            self.ways.loads.add(tenant, service, upload.pprof.len() as u64);
            match self.places.slot(&route, tenant, &upload).await {
                Ok(slot) => of_slot.entry(slot).or_default().push((place, upload)),
                Err(status) => refused.push((place, status)),
            }
        }
        let table = newest_table(view);
        for (slot, uploads) in of_slot {
            for (places, uploads) in divided(uploads, &mut refused) {
                batches.push(Batch { slot, table, places, uploads });
            }
        }
        (batches, refused)
    }

    /// Stores a batch, with whoever leads its shard meanwhile.
    async fn store(&self, tenant: &TenantId, batch: Batch, until: Duration) -> Ended {
        let mut answers: Vec<Option<Result<Stored, Status>>> = vec![None; batch.uploads.len()];
        let mut why = later("no shard takes profiles of this slot");
        for attempt in 0.. {
            if let Some(shard) = self.views.now().serving(batch.slot).cloned() {
                let node = self.leaders.guess(&shard, attempt);
                let limit = until.saturating_sub(self.clock.monotonic());
                match self.ways.append(node, (&shard, batch.table), tenant, &batch.uploads, limit).await {
                    Ok(told) => {
                        self.leaders.learn(shard.id, Some(node));
                        merge(&mut answers, told);
                        let Some(status) = worth_another_try(&shard, &answers) else { break };
                        why = status.clone();
                    }
                    Err(moved) => {
                        self.leaders.learn(shard.id, moved.leader);
                        why = moved.status;
                    }
                }
            }
            let pause = self.pause(attempt);
            if self.clock.monotonic() + pause >= until {
                break;
            }
            self.clock.sleep(pause).await;
        }
        ended(batch, answers, &why)
    }

    /// Ever longer, and for each caller a little different.
    fn pause(&self, attempt: usize) -> Duration {
        let (least, most) = PAUSES;
        let span = least.saturating_mul(1 << attempt.min(8)).min(most);
        span / 2 + Duration::from_nanos(self.random.below(span.as_nanos() as u64 / 2))
    }
}

fn newest_table(view: &View) -> u64 {
    view.tables.as_ref().map_or(0, |tables| tables.of(i64::MAX).version())
}

/// Uploads of a slot in pieces of a size, with equal labels together, in their order. What can never go together is
/// refused.
fn divided(uploads: Vec<(usize, Upload)>, refused: &mut Vec<(usize, Status)>) -> Vec<Piece> {
    let all: usize = uploads.iter().map(|(_, upload)| upload.pprof.len()).sum();
    if all <= BATCH {
        return vec![uploads.into_iter().unzip()];
    }
    let mut of_labels: BTreeMap<Labels, (usize, Vec<(usize, Upload)>)> = BTreeMap::new();
    for (place, upload) in uploads {
        let (bytes, all) = of_labels.entry(upload.sent.clone()).or_default();
        *bytes += upload.pprof.len();
        all.push((place, upload));
    }
    let mut pieces: Vec<(usize, Piece)> = Vec::new();
    for (bytes, all) in of_labels.into_values() {
        if bytes > SERIES {
            let (seen, limit) = (ByteSize::bytes(bytes as u64), ByteSize::bytes(SERIES as u64));
            let message = format!(
                "{} profiles of one series have {seen} in this request, the limit is {limit}: send smaller batches",
                all.len()
            );
            let status = Status::new(Code::TooLarge, message).because("series_size_limit");
            refused.extend(all.iter().map(|(place, _)| (*place, status.clone())));
            continue;
        }
        match pieces.last_mut() {
            Some((size, piece)) if *size + bytes <= BATCH => {
                *size += bytes;
                piece.extend(all);
            }
            _ => pieces.push((bytes, all.into_iter().unzip())),
        }
    }
    pieces.into_iter().map(|(_, piece)| piece).collect()
}

/// Keeps what was said first of what is stored: another try calls it a repeat.
fn merge(
    answers: &mut [Option<Result<Stored, Status>>],
    told: Vec<Result<athanor_ingester::Stored, Status>>,
) {
    for (answer, told) in answers.iter_mut().zip(told) {
        if !matches!(answer, Some(Ok(_))) {
            *answer = Some(told.map(translated));
        }
    }
}

/// Why some of a batch may be stored by another try, if so. Who has nobody beside it is asked once.
fn worth_another_try<'a>(
    shard: &ShardEntry,
    answers: &'a [Option<Result<Stored, Status>>],
) -> Option<&'a Status> {
    let again = |status: &&Status| matches!(status.code, Code::NotLeader | Code::Unavailable);
    let refused = answers.iter().filter_map(|answer| answer.as_ref()?.as_ref().err());
    refused.filter(|_| shard.members.len() > 1).find(again)
}

fn ended(batch: Batch, answers: Vec<Option<Result<Stored, Status>>>, why: &Status) -> Ended {
    let mut ended = Ended { answers: Vec::with_capacity(answers.len()), stale: Vec::new() };
    for ((place, upload), answer) in batch.places.into_iter().zip(batch.uploads).zip(answers) {
        match answer.unwrap_or_else(|| Err(why.clone())) {
            Err(status) if status.code == Code::Conflict => ended.stale.push((place, upload)),
            Err(status) if status.code == Code::NotLeader => {
                ended.answers.push((place, Err(later(&status.message))));
            }
            answer => ended.answers.push((place, answer)),
        }
    }
    ended
}

/// What a client is told that may send it again.
fn later(why: &str) -> Status {
    Status::new(Code::Unavailable, format!("{why}; send it again")).after(LATER)
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
    use super::*;

    fn upload(pod: usize, bytes: usize) -> Upload {
        let sent = Labels::new([("pod".to_owned(), pod.to_string())]);
        Upload { sent, pprof: vec![0; bytes].into(), ..Upload::default() }
    }

    #[test]
    fn equal_labels_stay_together_and_in_order() {
        let mib = 1 << 20;
        let uploads: Vec<(usize, Upload)> =
            (0..60).map(|place| (place, upload(place % 7, mib / 2))).collect();
        let mut refused = Vec::new();
        let pieces = divided(uploads.clone(), &mut refused);
        assert!(refused.is_empty() && pieces.len() >= 4, "{}", pieces.len());
        let mut seen: Vec<usize> = Vec::new();
        for (places, uploads) in &pieces {
            assert!(uploads.iter().map(|upload| upload.pprof.len()).sum::<usize>() <= BATCH);
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
        assert!(said.code == Code::TooLarge && said.message.contains("49MiB"), "{said}");
    }

    #[test]
    fn what_was_stored_by_an_earlier_try_stays_new() {
        let new = athanor_ingester::Stored { new: 1, ..Default::default() };
        let repeat = athanor_ingester::Stored { repeats: 1, ..Default::default() };
        let gone = || Status::new(Code::Unavailable, "it is gone");
        let mut answers = vec![None, None];
        merge(&mut answers, vec![Ok(new), Err(gone())]);
        merge(&mut answers, vec![Ok(repeat), Ok(new)]);
        let outcomes: Vec<Outcome> =
            answers.into_iter().map(|answer| answer.unwrap().unwrap().outcome).collect();
        assert_eq!(outcomes, [Outcome::New, Outcome::New]);
    }
}
