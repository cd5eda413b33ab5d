//! Many at once on real threads: senders, cuts and queries, while batches are prepared, committed and applied.
//!
//! Threads that wait for each other are seen from outside, by a thread that waits for so long and no longer.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use athanor_chassis::{Clock, ComputePool, TenantLimits};
use athanor_consensus::log::CommitMode;
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_storage::StorageConfig as Bucket;
use futures::future::try_join_all;
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::samples::{now, profile, upload};
use crate::world::{Remains, World};

/// It takes seconds; a machine with much else to do takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
const SENDERS: usize = 6;
/// Requests of each sender.
const ROUNDS: usize = 60;
/// New uploads in a request; it repeats as many of others.
const NEW: usize = 6;
/// Cuts, and looks at everything, evenly over the time that is sent in.
const CUTS: usize = 10;
const LOOKS: usize = 10;
/// Rows of a profile beside the one that says its worth.
const ROWS: i64 = 40;

/// The profile of a sender's round: no other has its time, and what it sums up to.
fn content(begin: i64, sender: usize, round: usize, place: usize) -> (ProfileUpload, i64) {
    let number = ((round * SENDERS + sender) * NEW + place) as i64;
    let names: Vec<String> =
        (0..ROWS).map(|row| format!("main;f{};g{}", row % 7, number % 50 + row)).collect();
    let mut rows: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    rows.push(("main;worth", number + 1));
    (upload(&profile(begin + number, &rows)), ROWS + number + 1)
}

struct Crowd {
    world: World,
    begin: i64,
    /// Requests that were answered, of all senders.
    answered: watch::Sender<usize>,
    /// What was acknowledged sums up to that.
    acknowledged: AtomicI64,
}

impl Crowd {
    /// Sends what is new, what a neighbour may be sending just now, and what was sent a while ago.
    async fn send(&self, sender: usize) -> u32 {
        let mut stored = 0;
        for round in 0..ROUNDS {
            let mut worth = 0;
            let mut uploads = Vec::new();
            for place in 0..NEW {
                let (new, value) = content(self.begin, sender, round, place);
                let (whose, when) = match place % 2 {
                    0 => ((sender + 1) % SENDERS, round),
                    _ => ((sender + 2) % SENDERS, round / 2),
                };
                uploads.extend([new, content(self.begin, whose, when, place).0]);
                worth += value;
            }
            let answers = self.world.push("acme", uploads).await;
            let new = answers.into_iter().map(|answer| {
                let stored = answer.unwrap();
                assert_eq!(stored.new + stored.repeats, 1);
                stored.new
            });
            stored += new.sum::<u32>();
            self.acknowledged.fetch_add(worth, Ordering::SeqCst);
            self.answered.send_modify(|answered| *answered += 1);
        }
        stored
    }

    /// Waits until a part of all requests is answered.
    async fn part(&self, part: usize, of: usize) {
        let wanted = SENDERS * ROUNDS * part / of;
        self.answered.subscribe().wait_for(|answered| *answered >= wanted).await.unwrap();
    }

    async fn cut(&self) {
        for part in 0..CUTS {
            self.part(part, CUTS).await;
            self.world.cut().await;
        }
    }

    /// What was acknowledged before is there, and nothing is there twice.
    async fn look(&self) {
        for part in 0..LOOKS {
            self.part(part, LOOKS).await;
            let least = self.acknowledged.load(Ordering::SeqCst);
            let rows = self.world.rows("acme").await;
            let twice = rows.windows(2).find(|pair| pair[0] == pair[1]);
            assert_eq!(twice, None);
            let sum: i64 = rows.iter().map(|row| row.4).sum();
            assert!(sum >= least, "{sum} of {least}");
        }
    }
}

async fn run() {
    let first =
        Remains::new(Bucket { memory: true, ..Bucket::default() }, TenantLimits::default(), Clock::system());
    let compute = ComputePool::with_threads(NonZeroUsize::new(3).unwrap(), 8).unwrap();
    let world = World::boot(Remains { compute, pump: CommitMode::Thread, ids: 1 << 20, ..first }).await;
    let tasks = world.tasks.clone();
    let (answered, acknowledged) = (watch::Sender::new(0), AtomicI64::new(0));
    let crowd = Arc::new(Crowd { world, begin: now(), answered, acknowledged });
    let senders = (0..SENDERS).map(|sender| {
        let crowd = Arc::clone(&crowd);
        tasks.spawn("sends", async move { crowd.send(sender).await }).unwrap()
    });
    let senders: Vec<_> = senders.collect();
    let (cutting, looking) = (Arc::clone(&crowd), Arc::clone(&crowd));
    let cuts = tasks.spawn("cuts", async move { cutting.cut().await }).unwrap();
    let looks = tasks.spawn("looks", async move { looking.look().await }).unwrap();
    let (stored, (), ()) = futures::try_join!(try_join_all(senders), cuts, looks).unwrap();
    let all = SENDERS * ROUNDS * NEW;
    let total = (1..=all as i64).map(|worth| ROWS + worth).sum::<i64>();
    assert_eq!((stored.into_iter().sum::<u32>() as usize, crowd.world.total().await), (all, total));
    crowd.world.cut().await;
    assert_eq!(crowd.world.total().await, total);
    tasks.shutdown(Duration::ZERO).await;
    crowd.world.ingester.shutdown().await;
}

#[test]
fn senders_cuts_and_queries_at_once_leave_exact_totals() {
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    let (end, ended) = channel();
    let crowd = runtime.spawn(async move {
        run().await;
        end.send(()).unwrap();
    });
    if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        // Its threads would be waited for as well.
        runtime.shutdown_background();
        panic!("not done within {PATIENCE:?}: threads wait for each other");
    }
    runtime.block_on(crowd).unwrap();
}
