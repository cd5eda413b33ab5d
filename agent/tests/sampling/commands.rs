//! `record` and `top` with real samples.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use athanor_profile::formats::pprof::inflate;
use athanor_proto::google::v1::Profile;
use prost::Message;

use crate::busy_program::{BusyProgram, SAMPLER_CAPABILITIES, can_sample, capability_set};

/// Runs the binary. It must succeed.
fn agent(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_athanor-agent")).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns functions of a pprof file.
fn pprof_functions(file: &Path) -> (Profile, BTreeSet<String>) {
    let plain = inflate(&fs::read(file).unwrap(), 1 << 28).unwrap();
    let profile = Profile::decode(&*plain).unwrap();
    let name = |index: i64| profile.string_table[usize::try_from(index).unwrap()].clone();
    let functions = profile.function.iter().map(|function| name(function.name)).collect();
    (profile, functions)
}

#[test]
fn recordings_in_each_format_and_the_table_have_the_known_function() {
    if !can_sample() {
        return;
    }
    let program = BusyProgram::compile();
    let known = program.start("known");
    let _outside = program.start("outside");
    let file = |name: &str| program.folder.path().join(name);

    let svg = file("host.svg");
    fs::write(&svg, "x".repeat(1 << 22)).unwrap();
    let totals = text(&agent(&["record", "--for", "2s", "-o", svg.to_str().unwrap()]).stdout);
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.contains("<svg") && drawn.trim_end().ends_with("</svg>"), "{} bytes", drawn.len());
    for function in ["known_busy_leaf", "outside_busy_leaf"] {
        assert!(drawn.contains(function), "{function} in {drawn}");
    }
    assert!(totals.contains("\nlost samples: ") && !totals.contains("other processes"), "{totals}");

    let pprof = file("process.pb.gz");
    let pid = known.0.id().to_string();
    agent(&["record", "--for", "3s", "--pid", &pid, "-o", pprof.to_str().unwrap()]);
    let (profile, functions) = pprof_functions(&pprof);
    assert!(
        functions.contains("known_busy_leaf") && functions.contains("known_busy_caller"),
        "{functions:?}"
    );
    assert!(!functions.contains("outside_busy_leaf"), "{functions:?}");
    let samples: i64 = profile.sample.iter().map(|sample| sample.value[0]).sum();
    assert!(samples > 0 && profile.sample.iter().all(|sample| sample.value[1] > 0), "{samples} samples");

    let table = text(&agent(&["top", "--once", "--interval", "2s"]).stdout);
    let has_line = |parts: &[&str]| table.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(has_line(&[&pid, "known-program"]) && has_line(&["known_busy_leaf"]), "{table}");
}

#[test]
fn recording_of_a_command_has_orphans_and_the_command_has_the_privileges_of_the_caller() {
    if !can_sample() {
        return;
    }
    let program = BusyProgram::compile();
    let _outside = program.start("outside");
    let file = |name: &str| program.folder.path().join(name).to_str().unwrap().to_owned();
    let output = file("command.folded");
    // The parent of the orphan ends at once, and no sample is taken of it.
    let script = "cat /proc/$$/status >\"$1\"; cat /proc/$PPID/status >\"$2\"; (\"$0\" orphan 1 &); exec \"$0\" known 2";
    let (own, recorder) = (file("own"), file("recorder"));
    let program_path = program.path.to_str().unwrap();
    let command = ["sh", "-c", script, program_path, &own, &recorder];
    let recorded = agent(&[&["record", "-o", &output, "--"][..], &command].concat());
    let folded = fs::read_to_string(&output).unwrap();
    for function in ["known_busy_leaf", "orphan_busy_leaf"] {
        assert!(folded.contains(function), "{function} in {folded}");
    }
    let is_whole = |line: &str| line.contains(";main;known_busy_caller;known_busy_leaf ");
    assert!(folded.lines().any(is_whole), "{folded}");
    assert!(!folded.contains("outside_busy_leaf"), "{folded}");

    let totals = text(&recorded.stderr);
    let others = totals.lines().find_map(|line| line.strip_prefix("samples of other processes: "));
    assert!(others.unwrap_or_default().parse::<u64>().unwrap() > 0, "{totals}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(
            capability_set(&own, set),
            capability_set("/proc/self/status", set),
            "{set} of the command"
        );
    }
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(capability_set(&recorder, set), SAMPLER_CAPABILITIES, "{set} of the recorder");
    }
}

#[test]
fn command_that_does_not_exist_is_refused_and_the_file_keeps_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.svg");
    fs::write(&file, "before").unwrap();
    let args = ["record", "-o", file.to_str().unwrap(), "--", "athanor-no-such-command"];
    let output = Command::new(env!("CARGO_BIN_EXE_athanor-agent")).args(args).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(error, "athanor-no-such-command: cannot start the command: no folder of PATH has it\n");
    assert!(!output.status.success());
    assert_eq!(fs::read_to_string(&file).unwrap(), "before");
}
