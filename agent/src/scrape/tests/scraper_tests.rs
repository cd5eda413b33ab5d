use std::collections::BTreeSet;

use async_trait::async_trait;
use athanor_chassis::time::clock::ManualClock;
use athanor_chassis::{ErrorCode, Status, Timestamp};
use athanor_profile::formats::pprof::inflate;
use athanor_proto::google::v1::Profile;
use athanor_proto::push::v1::PushRequest;
use prost::Message;
use tokio::sync::mpsc;

use super::super::body_buffer::{BodyBudgets, BodyBuffer};
use super::super::body_check::BodyCheck;
use super::super::profile_upload::SeriesPrefix;
use super::super::test_profiles::{default_kinds, gzip, job, kind, pprof, pprof_without_time, target};
use super::*;
use crate::http_client::BodySink;
use crate::upload::{Upload, UploadOrder};

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(15);
const START: Timestamp = Timestamp::from_seconds(1_700_000_000);

/// Fetcher that takes the recorded time and a little more.
struct FakeFetcher {
    clock: Clock,
    body: Vec<u8>,
}

#[async_trait]
impl ProfileFetcher for FakeFetcher {
    async fn fetch(&self, order: &ScrapeOrder) -> Result<FetchedProfile, ScrapeError> {
        let recorded = Duration::from_secs(order.seconds.unwrap_or_default().into());
        self.clock.sleep(recorded + SECOND / 50).await;
        if order.kind().name == "panics" {
            panic!("test");
        }
        let prefix = SeriesPrefix::new(order.target.get(), order.kind()).max_bytes();
        let mut buffer = BodyBuffer::new(prefix, BodyBudgets::default());
        buffer.receive(&self.body).unwrap();
        let mut check = BodyCheck::new(1 << 20);
        check.push(&self.body).unwrap();
        Ok(FetchedProfile { body: buffer.into_parts(), summary: check.finish().unwrap() })
    }
}

struct ChannelSink {
    uploads: mpsc::UnboundedSender<Upload>,
    is_full: bool,
}

#[async_trait]
impl UploadSink for ChannelSink {
    async fn store(&self, upload: Upload) -> Result<(), Status> {
        self.uploads.send(upload).unwrap();
        if self.is_full { Err(Status::new(ErrorCode::Exhausted, "spool is full")) } else { Ok(()) }
    }
}

/// Running scraper on a manual clock.
struct TestScraper {
    scraper: Scraper,
    clock: Clock,
    hand: ManualClock,
    uploads: mpsc::UnboundedReceiver<Upload>,
    targets: watch::Sender<Arc<Vec<ScrapeTarget>>>,
    monitor: Arc<WallClockMonitor>,
    stop: CancellationToken,
    tasks: TaskGroup,
}

impl TestScraper {
    fn start(body: Vec<u8>, targets: Vec<ScrapeTarget>, is_full: bool) -> Self {
        let (clock, hand) = Clock::manual(START);
        let (sender, uploads) = mpsc::unbounded_channel();
        let monitor = WallClockMonitor::new(clock.clone());
        let scraper = Scraper::new(ScraperParams {
            clock: clock.clone(),
            random: Random::from_seed(1),
            fetcher: Arc::new(FakeFetcher { clock: clock.clone(), body }),
            sink: Arc::new(ChannelSink { uploads: sender, is_full }),
            wall_clock: Arc::clone(&monitor),
        });
        let (targets, receiver) = watch::channel(Arc::new(targets));
        let stop = CancellationToken::new();
        let tasks = TaskGroup::new(clock.clone(), 10);
        let (running, token) = (scraper.clone(), stop.clone());
        tasks.spawn("scraper", async move { running.run(receiver, token).await }).unwrap();
        Self { scraper, clock, hand, uploads, targets, monitor, stop, tasks }
    }

    /// Advances the clock from wake-up to wake-up until `count` uploads came.
    async fn uploads(&mut self, count: usize) -> Vec<Upload> {
        let mut uploads = Vec::new();
        while uploads.len() < count {
            self.settle().await;
            while let Ok(upload) = self.uploads.try_recv() {
                uploads.push(upload);
            }
            self.hand.advance_to_next();
        }
        uploads
    }

    /// Runs all tasks until each of them waits.
    async fn settle(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
}

fn profile_of(upload: &Upload) -> (String, Profile) {
    let request = PushRequest::decode(upload.body.clone()).unwrap();
    let sample = &request.series[0].samples[0];
    let plain = inflate(&sample.raw_profile, 1 << 20).unwrap();
    (sample.id.clone(), Profile::decode(&*plain).unwrap())
}

#[tokio::test]
async fn scraped_profiles_reach_the_sink_with_ids_of_their_own() {
    let targets = vec![target(&job(INTERVAL, SECOND), "a:1", default_kinds())];
    let mut test = TestScraper::start(gzip(&pprof(7)), targets, false);
    let uploads = test.uploads(25).await;
    let ids: BTreeSet<String> = uploads.iter().map(|upload| profile_of(upload).0).collect();
    assert_eq!(ids.len(), 25);
    assert!(uploads.iter().all(|upload| profile_of(upload).1.time_nanos == 7), "times of targets stay");
    let cumulative = uploads.iter().filter(|upload| upload.order != UploadOrder::Independent).count();
    assert_eq!(cumulative, 15, "memory, mutex and block");
    let stats = test.scraper.stats();
    assert_eq!((stats.missed_scrapes, stats.late_scrapes, stats.rejected_profiles), (0, 0, 0));
    assert!(stats.scrapes >= 25);
    let status = &test.scraper.target_statuses()[0];
    assert_eq!(status.state, KindState::Up);
}

#[tokio::test]
async fn time_is_the_end_minus_the_length_whatever_the_wall_clock_does() {
    let recording = vec![kind("process_cpu", Some(14))];
    let targets = vec![target(&job(INTERVAL, SECOND), "a:1", recording)];
    let mut test = TestScraper::start(pprof_without_time(), targets, false);
    let mut ids = BTreeSet::new();
    for hours in [0, 1, -1, 0] {
        let jump = hours * 3_600_000_000_000;
        test.clock.jump_wall_time(jump);
        let upload = test.uploads(1).await.remove(0);
        let end = test.clock.monotonic();
        let (id, profile) = profile_of(&upload);
        ids.insert(id);
        assert_eq!(profile.time_nanos, upload.time.nanos());
        // The clock stands where the recording of 14 s and a response of 20 ms ended, or one wake-up later.
        let length = START.plus(end).nanos() + jump - profile.time_nanos;
        assert!((14_020_000_000..30_000_000_000).contains(&length), "{length}");
    }
    assert_eq!(ids.len(), 4, "equal profiles stay apart");
    test.uploads(1).await;
    assert_eq!(test.monitor.jumps(), 3);
}

#[tokio::test]
async fn full_spool_is_counted_and_scrapes_go_on() {
    let targets = vec![target(&job(INTERVAL, SECOND), "a:1", vec![kind("memory", None)])];
    let mut test = TestScraper::start(pprof(7), targets, true);
    test.uploads(3).await;
    let stats = test.scraper.stats();
    assert_eq!((stats.rejected_profiles, stats.missed_scrapes, stats.scraped_bytes), (3, 0, 0));
}

#[tokio::test]
async fn panic_of_a_scrape_counts_as_failure_and_the_target_is_scraped_again() {
    let kinds = vec![kind("panics", None), kind("memory", None)];
    let targets = vec![target(&job(INTERVAL, SECOND), "a:1", kinds)];
    let mut test = TestScraper::start(pprof(7), targets, false);
    test.uploads(3).await;
    let status = test.scraper.target_statuses().remove(0);
    assert_eq!((status.kinds[0].state, status.kinds[1].state), (KindState::Down, KindState::Up));
    assert!(status.kinds[0].failures >= 2);
}

#[tokio::test]
async fn new_list_takes_effect_and_the_end_stores_profiles() {
    let targets = vec![target(&job(INTERVAL, SECOND), "a:1", vec![kind("memory", None)])];
    let mut test = TestScraper::start(pprof(7), vec![], false);
    test.settle().await;
    assert!(test.scraper.target_statuses().is_empty());
    test.targets.send_replace(Arc::new(targets));
    assert_eq!(test.uploads(2).await.len(), 2);
    test.stop.cancel();
    let ended = test.tasks.shutdown(SECOND).await;
    assert!(ended.unfinished.is_empty(), "{ended:?}");
    assert_eq!(test.scraper.stats().running_scrapes, 0);
}
