//! The real binary against a server on this machine.

#![allow(clippy::unwrap_used)]

mod fake;
mod push;
mod query;
mod tables;

use std::process::{Command, Output, Stdio};

use athanor_profile::{Profile, ValueType, formats::pprof};

/// Runs with arguments and variables; nothing else is in the environment.
fn athanor(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_athanor"));
    command.env_clear().envs(variables.iter().copied()).args(args).stdin(Stdio::null());
    command.output().unwrap()
}

/// Exit code, standard output, standard error.
fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn run(args: &[&str], url: &str) -> (i32, String, String) {
    said(&athanor(&[args, &["--url", url]].concat(), &[]))
}

/// A profile of CPU time.
fn profile(stacks: &[(&str, i64)]) -> Profile {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    for (stack, value) in stacks {
        let stack = profile.dictionary.intern_named_stack(stack.split(';'));
        profile.samples.push(stack, 0, &[*value]);
    }
    profile
}

fn encoded(stacks: &[(&str, i64)]) -> Vec<u8> {
    pprof::encode(&profile(stacks))
}
