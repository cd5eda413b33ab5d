//! The collector: windows, events, the kill switch, failures, reloads.

use std::sync::Arc;
use std::time::Duration;

use athanor_agent_ebpf::processes::ContainerFacts;
use athanor_agent_ebpf::window::SampleWindow;
use athanor_chassis::time::clock::ManualClock;
use athanor_chassis::{Clock, ComputePool, Random};
use athanor_profile::Labels;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::made_up::{
    RecordingSink, START, Script, ScriptedSource, container, facts, host, labeler, received, window,
};
use crate::config::SymbolizeMode;
use crate::config::{RelabelRules, SamplerSettings};
use crate::sampling::sample_source::thread_time;
use crate::sampling::{
    CollectorParams, CollectorStats, ContainerLabels, EncodeProfile, LabelSettings, ProcessLabeler,
    SamplerPhase, SamplingCollector, encode_profile,
};

/// Running collector with the means to drive it.
struct TestRun {
    clock: ManualClock,
    script: Arc<Mutex<Script>>,
    sink: Arc<RecordingSink>,
    collector: SamplingCollector,
    stop: CancellationToken,
    tasks: athanor_chassis::TaskGroup,
}

impl TestRun {
    fn start(script: Script, settings: SamplerSettings) -> Self {
        let encode = Arc::new(|window: &SampleWindow, stacks: &[usize]| {
            encode_profile(window, stacks, SymbolizeMode::Local)
        });
        Self::start_with(script, settings, labeler(LabelSettings::default()), encode)
    }

    fn start_with(
        script: Script,
        settings: SamplerSettings,
        labeler: ProcessLabeler,
        encode: Arc<EncodeProfile>,
    ) -> Self {
        let (clock, hand) = Clock::manual(START);
        let script = Arc::new(Mutex::new(script));
        let sink = Arc::new(RecordingSink::default());
        let started = Arc::clone(&script);
        let collector = SamplingCollector::new(CollectorParams {
            clock: clock.clone(),
            random: Random::from_seed(1),
            compute: ComputePool::inline(),
            sink: Arc::clone(&sink) as _,
            start: Arc::new(move || ScriptedSource::start(&started)),
            encode,
            labeler,
            settings,
        });
        let stop = CancellationToken::new();
        let tasks = athanor_chassis::TaskGroup::new(clock, 10);
        tasks.spawn("sampler", collector.clone().run(stop.clone())).unwrap();
        Self { clock: hand, script, sink, collector, stop, tasks }
    }

    /// Lets the collector run until it waits, then passes time.
    async fn advance(&self, seconds: u64) {
        self.settle().await;
        self.clock.advance(Duration::from_secs(seconds));
        self.settle().await;
    }

    async fn settle(&self) {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }

    async fn end(&self) {
        self.stop.cancel();
        self.settle().await;
        assert_eq!(self.tasks.running_tasks(), 0);
    }

    fn stats(&self) -> CollectorStats {
        self.collector.stats()
    }

    fn starts_and_drops(&self) -> (u32, u32) {
        let script = self.script.lock();
        (script.started, script.dropped)
    }

    fn samples(&self) -> i64 {
        received(&self.sink.uploads.lock()).iter().map(|profile| profile.samples).sum()
    }
}

fn script_of(samples: &[u64]) -> Script {
    let windows = samples.iter().map(|&samples| Ok(window(&[(facts(1, "/bin/shop"), samples)])));
    Script { windows: windows.collect(), ..Script::default() }
}

#[tokio::test]
async fn first_window_is_short_and_the_last_one_is_stored_at_the_stop() {
    let run = TestRun::start(script_of(&[3, 4, 5]), SamplerSettings::default());
    run.advance(1).await;
    assert_eq!((run.samples(), run.stats().phase), (0, SamplerPhase::Running));
    run.advance(1).await;
    assert_eq!(run.samples(), 3);
    run.advance(9).await;
    assert_eq!(run.samples(), 3);
    run.advance(1).await;
    assert_eq!(run.samples(), 7);
    run.end().await;
    assert_eq!((run.samples(), run.script.lock().dropped), (12, 1));
    let stats = run.stats();
    assert_eq!((stats.windows, stats.samples_stored, stats.profiles), (3, 12, 3));
    assert_eq!((stats.sampler.samples_taken, stats.sampler.samples_lost), (15, [0, 3, 0]));
    assert_eq!(stats.sampler.pages, 0, "nothing is loaded any more");
}

#[tokio::test]
async fn window_without_samples_yields_no_profile() {
    let run = TestRun::start(Script::default(), SamplerSettings::default());
    run.advance(2).await;
    run.advance(10).await;
    assert_eq!((run.stats().windows, run.sink.uploads.lock().len()), (2, 0));
}

#[tokio::test]
async fn events_are_handled_when_they_come_and_at_most_ten_times_a_second() {
    let run = TestRun::start(Script::default(), SamplerSettings::default());
    run.settle().await;
    assert_eq!(run.script.lock().handled_events, 0);
    let wait_for = async |count: u32| {
        for _ in 0..1000 {
            if run.script.lock().handled_events >= count {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("{count} times are never reached");
    };
    run.script.lock().wake();
    run.clock.advance(Duration::from_millis(1));
    wait_for(1).await;
    // Events that are left need no second wake-up, but they wait.
    run.script.lock().has_events = true;
    run.script.lock().wake();
    run.settle().await;
    assert_eq!(run.script.lock().handled_events, 1);
    for count in 2..5 {
        run.clock.advance(Duration::from_millis(100));
        wait_for(count).await;
        run.settle().await;
        assert_eq!(run.script.lock().handled_events, count);
    }
}

#[tokio::test]
async fn lost_window_is_counted_and_the_next_one_is_stored() {
    let mut script = script_of(&[3, 4]);
    script.windows.push_front(Err("map is gone"));
    let run = TestRun::start(script, SamplerSettings::default());
    run.advance(2).await;
    let stats = run.stats();
    assert_eq!((stats.windows, stats.lost_windows, run.samples()), (0, 1, 0));
    run.advance(10).await;
    assert_eq!((run.stats().windows, run.samples(), run.script.lock().started), (1, 3, 1));
}

#[tokio::test]
async fn source_that_loses_three_windows_is_started_once_more() {
    let mut script = script_of(&[3]);
    for _ in 0..3 {
        script.windows.push_front(Err("map is gone"));
    }
    let run = TestRun::start(script, SamplerSettings::default());
    for seconds in [2, 10, 10] {
        run.advance(seconds).await;
    }
    assert_eq!(
        run.stats().phase,
        SamplerPhase::Failed("failed to load the BPF object: map is gone".to_owned())
    );
    assert_eq!(run.starts_and_drops(), (1, 1));
    run.advance(15).await;
    run.advance(2).await;
    assert_eq!((run.script.lock().started, run.samples()), (2, 3));
    assert_eq!((run.stats().phase, run.stats().lost_windows), (SamplerPhase::Running, 3));
}

#[tokio::test]
async fn refused_start_is_shown_and_tried_again() {
    let script = Script { failed_starts: ["no BTF"; 2].into(), ..script_of(&[3]) };
    let run = TestRun::start(script, SamplerSettings::default());
    run.settle().await;
    assert_eq!(run.stats().phase.problem(), Some("failed to load the BPF object: no BTF"));
    run.advance(15).await;
    assert_eq!(run.stats().phase.name(), "failed");
    run.advance(30).await;
    run.advance(2).await;
    assert_eq!((run.stats().phase.name(), run.samples()), ("running", 3));
}

#[tokio::test]
async fn kill_switch_unloads_the_sampler_until_the_file_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stop");
    let settings = SamplerSettings { kill_switch_file: Some(file.clone()), ..SamplerSettings::default() };
    let run = TestRun::start(script_of(&[3, 4]), settings);
    run.settle().await;
    std::fs::write(&file, "").unwrap();
    run.advance(2).await;
    assert_eq!((run.stats().phase, run.script.lock().dropped), (SamplerPhase::Stopped, 1));
    assert_eq!(run.samples(), 3, "the samples until then are stored");
    run.advance(60).await;
    assert_eq!(run.script.lock().started, 1);
    std::fs::remove_file(&file).unwrap();
    run.advance(10).await;
    run.advance(2).await;
    assert_eq!((run.script.lock().started, run.samples()), (2, 7));
    assert_eq!(run.stats().sampler.samples_delivered, 7, "counters go on");
}

#[tokio::test]
async fn kill_switch_that_cannot_be_looked_up_counts_as_existing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stop");
    std::os::unix::fs::symlink("stop", &file).unwrap();
    let settings = SamplerSettings { kill_switch_file: Some(file.clone()), ..SamplerSettings::default() };
    let run = TestRun::start(script_of(&[3]), settings);
    run.settle().await;
    assert_eq!((run.stats().phase, run.script.lock().started), (SamplerPhase::Stopped, 0));
    std::fs::remove_file(&file).unwrap();
    run.advance(10).await;
    assert_eq!((run.stats().phase, run.script.lock().started), (SamplerPhase::Running, 1));
}

/// Uses CPU time on this thread.
fn burn(time: Duration) {
    let start = thread_time();
    while thread_time() - start < time {}
}

/// Directory whose lookups cost CPU time.
struct ExpensiveContainers;

impl ContainerLabels for ExpensiveContainers {
    fn container_labels(&self, _container: &ContainerFacts) -> Option<Labels> {
        burn(LABEL_COST);
        None
    }
}

const LABEL_COST: Duration = Duration::from_millis(3);
const ENCODE_COST: Duration = Duration::from_millis(5);

#[tokio::test]
async fn labels_and_encoding_count_as_cost_of_the_sampler() {
    let mut process = facts(1, "/bin/shop");
    process.container = Some(container());
    let windows = [Ok(window(&[(process, 3)]))];
    let script = Script { windows: windows.into(), ..Script::default() };
    let labeler = ProcessLabeler::new(host(), Arc::new(ExpensiveContainers), LabelSettings::default());
    let encode: Arc<EncodeProfile> = Arc::new(|window, stacks| {
        burn(ENCODE_COST);
        encode_profile(window, stacks, SymbolizeMode::Local)
    });
    let run = TestRun::start_with(script, SamplerSettings::default(), labeler, encode);
    run.advance(2).await;
    assert_eq!(run.samples(), 3);
    let costs = run.script.lock().costs.clone();
    // Labels, the only upload, and the look that finds no further one.
    assert_eq!(costs.len(), 3);
    assert!(costs[0] >= LABEL_COST && costs[1] >= ENCODE_COST, "{costs:?}");
}

#[tokio::test]
async fn reloaded_rules_take_effect_with_the_next_window() {
    let run = TestRun::start(script_of(&[3, 4, 5]), SamplerSettings::default());
    run.advance(2).await;
    let rule = json!({"source_labels": ["__meta_process_comm"], "regex": "comm", "action": "drop"});
    let rules = RelabelRules::from_json(&[rule]).unwrap();
    run.collector.set_label_settings(LabelSettings { rules, ..LabelSettings::default() });
    run.advance(10).await;
    assert_eq!((run.samples(), run.stats().samples_dropped), (3, [4, 0, 0, 0]));
    run.collector.set_label_settings(LabelSettings::default());
    run.advance(10).await;
    assert_eq!(run.samples(), 8);
}

#[tokio::test]
async fn profiles_that_the_spool_rejects_are_counted() {
    let run = TestRun::start(script_of(&[3, 4]), SamplerSettings::default());
    *run.sink.is_full.lock() = true;
    run.advance(2).await;
    *run.sink.is_full.lock() = false;
    run.advance(10).await;
    let stats = run.stats();
    assert_eq!((stats.rejected_profiles, stats.samples_rejected, stats.samples_stored), (1, 3, 4));
}

#[tokio::test]
async fn windows_that_were_missed_are_one_long_window() {
    let run = TestRun::start(script_of(&[3, 4, 5]), SamplerSettings::default());
    run.advance(60).await;
    assert_eq!(run.stats().windows, 1);
    run.advance(9).await;
    assert_eq!(run.stats().windows, 1);
    run.advance(1).await;
    assert_eq!(run.stats().windows, 2);
}
