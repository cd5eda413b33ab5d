//! Recordings: formats, chosen processes, merged windows.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use athanor_agent_ebpf::processes::ProcessFacts;
use athanor_agent_ebpf::sampler::SamplerStats;
use athanor_agent_ebpf::window::SampleWindow;
use athanor_chassis::{Clock, Status};
use parking_lot::Mutex;

use super::made_up::{START, Script, ScriptedSource, facts, window};
use crate::sampling::record::{ProcessChooser, RecordFormat, RecordSelection, RecordedWindows, Recording};

#[test]
fn suffix_chooses_the_format_or_is_refused_with_the_list() {
    let format = |name: &str| RecordFormat::from_path(Path::new(name));
    for name in ["a.pb.gz", "dir/a.pprof", "A.PB.GZ"] {
        assert_eq!(format(name).unwrap(), RecordFormat::Pprof, "{name}");
    }
    assert_eq!(format("a.folded").unwrap(), RecordFormat::Folded);
    assert_eq!(format("a.txt").unwrap(), RecordFormat::Folded);
    assert_eq!(format("a.svg").unwrap(), RecordFormat::Svg);
    for name in ["a.json", "svg", "", "a.pb", ".."] {
        let error = format(name).unwrap_err();
        assert!(error.message.ends_with("end the name in .pb.gz, .pprof, .folded, .txt, .svg"), "{error}");
    }
}

/// Records two windows of made-up processes. Returns executables and samples, and the samples of other processes.
async fn record(selection: RecordSelection, root: Option<u32>) -> (Vec<(String, u64)>, u64) {
    let with_parents = |pid: u32, executable: &str, parent_pid: u32, oldest_ancestor_pid: u32| ProcessFacts {
        parent_pid,
        oldest_ancestor_pid,
        ..facts(pid, executable)
    };
    let processes = [
        // The parent of this process was never sampled and has ended.
        (with_parents(5, "/bin/as", 9, 1), 16),
        // Records of forks were lost. Children are listed before their parents.
        (with_parents(3, "/bin/ld", 2, 3), 1),
        (with_parents(2, "/bin/cc", 1, 2), 2),
        (with_parents(1, "/bin/sh", 9, 1), 4),
        (with_parents(4, "/bin/other", 9, 4), 8),
    ];
    // A new process has the id of one that ended.
    let mut reused = with_parents(3, "/bin/reused", 9, 3);
    reused.identity.start_nanos = 1_000_000;
    let second = [&processes[..3], &[(reused, 32)]].concat();
    let windows = [Ok(window(&processes)), Ok(window(&second[..1])), Ok(window(&second[2..]))];
    let recorded = run(windows.into(), 25, selection, root).await.unwrap();
    let sum = recorded.window;
    assert_eq!((sum.duration, recorded.left_out_samples), (Duration::from_secs(30), 0));
    let mut samples: BTreeMap<String, u64> = BTreeMap::new();
    for stack in &sum.stacks {
        let facts = &sum.processes[stack.process as usize].facts;
        *samples.entry(facts.executable.to_string()).or_default() += stack.samples;
    }
    (samples.into_iter().collect(), recorded.other_samples)
}

/// Runs a recording of made-up windows.
async fn run(
    windows: VecDeque<Result<SampleWindow, &'static str>>,
    seconds: u64,
    selection: RecordSelection,
    root: Option<u32>,
) -> Result<RecordedWindows, Status> {
    let script = Script { windows, ..Script::default() };
    let mut source = ScriptedSource::start(&Arc::new(Mutex::new(script))).unwrap();
    let (clock, hand) = Clock::manual(START);
    let mut chooser = ProcessChooser::new(&selection);
    chooser.root = root;
    let recording = Recording { clock, length: Some(Duration::from_secs(seconds)), child: None };
    let run = recording.run(&mut *source, &mut chooser, pending());
    tokio::pin!(run);
    loop {
        tokio::select! {
            biased;
            recorded = &mut run => return recorded,
            () = tokio::task::yield_now() => { hand.advance_to_next(); }
        }
    }
}

fn named(samples: &[(&str, u64)]) -> Vec<(String, u64)> {
    samples.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[tokio::test]
async fn windows_of_a_recording_are_one() {
    let expected = named(&[
        ("/bin/as", 32),
        ("/bin/cc", 4),
        ("/bin/ld", 1),
        ("/bin/other", 8),
        ("/bin/reused", 32),
        ("/bin/sh", 4),
    ]);
    assert_eq!(record(RecordSelection::Host, None).await, (expected, 0));
}

#[tokio::test]
async fn recording_of_a_service_has_its_processes_only() {
    let service = RecordSelection::Service("cc".to_owned());
    assert_eq!(record(service, None).await, (named(&[("/bin/cc", 4)]), 77));
}

#[tokio::test]
async fn recording_of_a_command_has_all_descendants_and_counts_the_others() {
    let command = RecordSelection::Command(vec!["sh".into()]);
    let expected = named(&[("/bin/as", 32), ("/bin/cc", 4), ("/bin/ld", 1), ("/bin/sh", 4)]);
    assert_eq!(record(command, Some(1)).await, (expected, 40));
}

#[tokio::test]
async fn recording_survives_a_window_that_cannot_be_read() {
    let good = || Ok(window(&[(facts(1, "/bin/shop"), 3)]));
    let windows = [good(), Err("map is gone"), good(), Err("map\n is gone")];
    let recorded = run(windows.into(), 35, RecordSelection::Host, None).await.unwrap();
    assert_eq!(recorded.window.stacks[0].samples, 6);
    let totals = recorded.format_totals(&SamplerStats::default(), Path::new("a.svg"));
    let expected = "lost windows: 2, the last one because: failed to load the BPF object: map\\n is gone\n";
    assert!(
        totals.starts_with("a.svg: 6 samples of 1 processes in 20.0 s") && totals.ends_with(expected),
        "{totals}"
    );
    let without = run([good()].into(), 5, RecordSelection::Host, None).await.unwrap();
    let totals = without.format_totals(&SamplerStats::default(), Path::new("a.svg"));
    assert!(!totals.contains("lost windows"), "{totals}");
}

#[tokio::test]
async fn recording_without_any_window_fails_with_the_cause() {
    let error = run([Err("map is gone")].into(), 5, RecordSelection::Host, None).await.err().unwrap();
    assert_eq!(error.message, "failed to load the BPF object: map is gone");
}
