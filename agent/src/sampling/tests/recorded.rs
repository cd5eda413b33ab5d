//! Recordings: formats, chosen processes, merged windows.

use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::Clock;
use parking_lot::Mutex;

use super::made_up::{START, Script, ScriptedSource, facts, window};
use crate::sampling::record::{ProcessChooser, RecordFormat, RecordSelection, Recording};

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

/// Records two windows of made-up processes. Returns executables and samples.
async fn record(selection: RecordSelection, root: Option<u32>) -> Vec<(String, u64)> {
    let mut child = facts(2, "/bin/cc");
    child.parent_pid = 1;
    let mut grandchild = facts(3, "/bin/ld");
    grandchild.parent_pid = 2;
    let mut shell = facts(1, "/bin/sh");
    shell.parent_pid = 9;
    let mut other = facts(4, "/bin/other");
    other.parent_pid = 9;
    // Children are listed before their parents.
    let processes = [(grandchild, 1), (child, 2), (shell, 4), (other, 8)];
    let windows = [Ok(window(&processes)), Ok(window(&processes[..2]))];
    let script = Script { windows: windows.into(), ..Script::default() };
    let mut source = ScriptedSource::start(&Arc::new(Mutex::new(script))).unwrap();
    let (clock, hand) = Clock::manual(START);
    let mut chooser = ProcessChooser::new(&selection);
    chooser.root = root;
    let recording = Recording { clock, length: Some(Duration::from_secs(15)), child: None };
    let run = recording.run(&mut *source, &mut chooser, pending());
    tokio::pin!(run);
    let merge = loop {
        tokio::select! {
            biased;
            merge = &mut run => break merge.unwrap(),
            () = tokio::task::yield_now() => { hand.advance_to_next(); }
        }
    };
    let (sum, left_out) = merge.finish().unwrap();
    assert_eq!((sum.duration, left_out), (Duration::from_secs(20), 0));
    let samples = sum.stacks.iter().map(|stack| {
        let facts = &sum.processes[stack.process as usize].facts;
        (facts.executable.to_string(), stack.samples)
    });
    let mut samples: Vec<_> = samples.collect();
    samples.sort();
    samples
}

fn named(samples: &[(&str, u64)]) -> Vec<(String, u64)> {
    samples.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[tokio::test]
async fn windows_of_a_recording_are_one() {
    let expected = named(&[("/bin/cc", 4), ("/bin/ld", 2), ("/bin/other", 8), ("/bin/sh", 4)]);
    assert_eq!(record(RecordSelection::Host, None).await, expected);
}

#[tokio::test]
async fn recording_of_a_service_has_its_processes_only() {
    let service = RecordSelection::Service("cc".to_owned());
    assert_eq!(record(service, None).await, named(&[("/bin/cc", 4)]));
}

#[tokio::test]
async fn recording_of_a_command_has_its_descendants() {
    let command = RecordSelection::Command(vec!["sh".into()]);
    let expected = named(&[("/bin/cc", 4), ("/bin/ld", 2), ("/bin/sh", 4)]);
    assert_eq!(record(command, Some(1)).await, expected);
}
