use athanor_chassis::Timestamp;
use athanor_chassis::disk::MemoryDisk;
use athanor_profile::formats::pprof::encode;
use athanor_profile::labeling::normalize::DELTA_LABEL;
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_profile::{Labels, Profile, ValueType};

use super::*;
use crate::delta::cumulative_tracker::DeltaLimits;
use crate::delta::cumulative_values::DeltaOp as Does;
use crate::window::RunFiles;

fn request(name: &str, value: i64) -> (QueuedRequest, oneshot::Receiver<AppendResults>) {
    labelled(name, value, "false")
}

/// Of a process that counts since it began.
fn counting(value: i64) -> (QueuedRequest, oneshot::Receiver<AppendResults>) {
    labelled("main", value, "cpu")
}

fn labelled(name: &str, value: i64, delta: &str) -> (QueuedRequest, oneshot::Receiver<AppendResults>) {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    let stack = profile.dictionary.intern_named_stack([name].into_iter());
    profile.samples.push(stack, 0, &[value]);
    let (tenant, limits) = (TenantId::anonymous(), Arc::new(TenantLimits::default()));
    let labels = Labels::new([("service_name".to_owned(), "shop".to_owned())]);
    let pprof = encode(&profile).into();
    let mut sent = labels.clone();
    sent.set(DELTA_LABEL, delta);
    let upload = ProfileUpload { sent, labels, drawn: 7, pprof, ..ProfileUpload::default() };
    let mut intake = DecodedUpload::default();
    // What is more came later.
    let now = Timestamp::from_seconds(1_700_000_000 + value);
    intake.read(&tenant, upload, &limits, now).unwrap();
    let (answer, answered) = oneshot::channel();
    let content =
        RequestContent { tenant, routed: 1, limits, raw_bytes: 0, uploads: vec![Ok(intake)], room: None };
    (QueuedRequest { content, answer }, answered)
}

fn begin(clock: Clock, entry: usize) -> BatcherDeps {
    let walkers = Arc::new(DecodePool::new(ComputePool::inline(), ByteSize::mib(1)));
    let shelf = RunFiles::open(Arc::new(MemoryDisk::new()), 1, 1, 100).unwrap();
    let (window, failures) = (Arc::new(Mutex::new(DedupWindow::new(shelf))), Arc::default());
    let since = (0, clock.monotonic());
    let bounds = DeltaLimits { bytes: ByteSize::mib(1), idle: Duration::from_secs(3600) };
    let counters = Arc::new(CumulativeTracker::new(bounds));
    BatcherDeps {
        walkers,
        entry,
        clock,
        random: Random::from_seed(1),
        window,
        since,
        ids: 100,
        counters,
        failures,
    }
}

/// How many requests are in each of the batches that they make, none of which is larger than an entry.
fn sizes(state: &mut UploadBatchBuilder, mut left: Vec<RequestContent>) -> Vec<usize> {
    let mut sizes = Vec::new();
    while !left.is_empty() {
        let made = state.prepare(left);
        sizes.push(made.placings.len());
        assert!(made.entry.unwrap().unwrap().bytes.len() <= state.begin.entry);
        left = made.left;
    }
    sizes
}

#[test]
fn a_batch_ends_where_its_names_are_many() {
    let (clock, _) = Clock::manual(Timestamp::UNIX_EPOCH);
    let mut state = begin(clock, 2 * 4096).preparing();
    let contents = (0..20).map(|value| request(&"f".repeat(1000 + value), value as i64 + 1).0.content);
    // The first one has the series as well.
    assert_eq!(sizes(&mut state, contents.collect()), [3, 4, 4, 4, 4, 1]);
}

#[test]
fn what_is_large_goes_alone() {
    let mut state = begin(Clock::manual(Timestamp::UNIX_EPOCH).0, 4096).preparing();
    let contents =
        [10, 3000, 5000, 10].map(|raw_bytes| RequestContent { raw_bytes, ..request("main", 1).0.content });
    assert_eq!(sizes(&mut state, contents.into()), [2, 2]);
}

/// One that is stale would leave others behind that were subtracted from it.
#[test]
fn what_counts_goes_with_what_was_placed_by_the_same_table() {
    let mut state = begin(Clock::manual(Timestamp::UNIX_EPOCH).0, 1 << 20).preparing();
    let of = |name: &str, routed| RequestContent { routed, ..request(name, 1).0.content };
    let counts = |routed| RequestContent { routed, ..counting(1).0.content };
    let contents = vec![of("a", 1), of("b", 2), counts(2), of("c", 2), counts(2), counts(1), of("d", 1)];
    assert_eq!(sizes(&mut state, contents), [5, 2]);
}

#[test]
fn what_counts_is_subtracted_from_what_is_in_flight_and_repeats_of_that_are_known() {
    let mut state = begin(Clock::manual(Timestamp::UNIX_EPOCH).0, 1 << 20).preparing();
    let mut steps = |value| {
        let made = state.prepare(vec![counting(value).0.content]);
        let batch = made.entry.unwrap().unwrap().batch;
        let records = batch.uploads.iter().flat_map(|upload| &upload.records);
        (records.map(|record| (record.delta_op, record.samples)).collect::<Vec<_>>(), made.leans)
    };
    assert_eq!(steps(5), (vec![(Does::Reset, 1)], false));
    assert_eq!(steps(9), (vec![(Does::Add, 1)], true));
    assert_eq!(steps(5), (vec![(Does::None, 0)], true));
}

#[test]
fn names_that_no_profile_has_are_not_kept() {
    let (clock, _) = Clock::manual(Timestamp::UNIX_EPOCH);
    let mut state = begin(clock, 4096).preparing();
    for value in [0, 1, 0] {
        let made = state.prepare(vec![request("main", value).0.content]);
        assert_eq!(made.entry.is_some(), value > 0);
    }
    let bytes = state.head.bytes();
    for name in 0..100 {
        state.prepare(vec![request(&name.to_string(), 0).0.content]);
    }
    // The head is known by now, so what it learns counts in it.
    assert!(state.head.bytes() > bytes);
    let mut fresh = begin(Clock::manual(Timestamp::UNIX_EPOCH).0, 4096).preparing();
    let empty = fresh.head.bytes();
    for name in 0..100 {
        fresh.prepare(vec![request(&name.to_string(), 0).0.content]);
    }
    assert_eq!(fresh.head.bytes(), empty);
}

fn batch(step: Option<ProposerStep>) -> UploadBatch {
    let Some(ProposerStep::Batch(prepared)) = step else { panic!("no batch") };
    prepared.entry.batch
}

#[tokio::test]
async fn a_batch_that_panics_is_refused_and_the_next_one_builds_on_nothing_of_it() {
    let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let begin = begin(clock, 1 << 20);
    let ((_jobs, jobs), (steps, _steps)) = (mpsc::channel(1), mpsc::channel(1));
    let mut preparer = UploadBatcher::new(jobs, steps, ComputePool::inline(), begin);
    let first = batch(preparer.prepare(&mut vec![request("main", 1).0]).await);
    assert!(first.is_generation_start());
    let second = batch(preparer.prepare(&mut vec![request("main", 2).0]).await);
    assert_eq!((second.is_generation_start(), second.tenants[0].known_series), (false, 1));
    // Time passes beyond what a stamp holds: adding to it panics.
    preparer.state.as_mut().unwrap().begin.since = (u64::MAX, Duration::ZERO);
    hand.advance(Duration::from_nanos(1));
    let ((one, one_told), (other, other_told)) = (request("main", 3), request("main", 4));
    assert!(preparer.prepare(&mut vec![one, other]).await.is_none());
    for told in [one_told, other_told] {
        let codes: Vec<ErrorCode> =
            told.await.unwrap().into_iter().map(|answer| answer.unwrap_err().code).collect();
        assert_eq!(codes, [ErrorCode::Internal]);
    }
    let after = batch(preparer.prepare(&mut vec![request("main", 5).0]).await);
    assert_eq!((after.is_generation_start(), after.tenants[0].known_series), (true, 0));
    assert_ne!(after.token >> 32, first.token >> 32);
}
