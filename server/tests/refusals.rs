//! Command lines and settings that the real binary refuses, before it begins anything.

#![allow(clippy::unwrap_used)]

use std::net::TcpListener;
use std::process::{Command, Stdio};

/// Exit code and message.
fn refused(args: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_athanor"));
    let output = command.env_clear().args(args).stdin(Stdio::null()).output().unwrap();
    assert!(output.stdout.is_empty(), "{args:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn settings_are_checked_before_a_start_and_by_config_alike() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    for (setting, said) in [
        ("telemetry.level=warning", "write off, error, warn, info, debug or trace"),
        ("ingester.shards=0", "ingester.shards: 0 shards; write 1 to 64"),
        ("ingester.shards=4097", "ingester.shards: 4097 shards; write 1 to 64"),
        ("retentoin=1d", "did you mean `retention`?"),
        ("cluster.seed=[10.0.0.6:7946]", "did you mean `seeds`?"),
        ("cluster.seeds=[10.0.0.6:7946]", "cluster.id: a node that has others must know whose it is"),
        ("cluster.id=5f", "cluster.id: \"5f\" is no cluster's id; write 32 hexadecimal digits"),
    ] {
        for command in ["serve", "config"] {
            let (code, message) =
                refused(&[command, "--data", data, "--listen", "127.0.0.1:0", "--set", setting]);
            assert!(code == 64 && message.contains(said), "{command} {setting}: {code} {message}");
        }
    }
    assert!(!folder.path().join("data").exists());
    for command in ["serve", "config"] {
        let (code, message) = refused(&[command, "--data", ""]);
        assert!(code == 64 && message.contains("no folder is named"), "{command}: {code} {message}");
    }
}

#[test]
fn where_the_port_is_taken_no_folder_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, message) = refused(&["serve", "--data", data.to_str().unwrap(), "--listen", &address]);
    assert!(code == 69 && message.contains("--listen chooses another address"), "{code} {message}");
    assert!(!data.exists());
}

#[test]
fn what_is_given_twice_is_refused() {
    let push = ["push", "cpu.pb.gz", "--service", "shop"];
    for (more, said) in [
        (&["--label", "a=1", "--label", "a=2"][..], "--label a is given twice"),
        (&["--label", "service_name=x"][..], "--service shop say the same label"),
    ] {
        let (code, message) = refused(&[&push[..], more].concat());
        assert!(code == 64 && message.contains(said), "{code} {message}");
    }
    for twice in [&["top", "-", "-"][..], &["diff", "-", "-"], &["convert", "-", "-", "-o", "x.svg"]] {
        let (code, message) = refused(twice);
        assert!(code == 64 && message.contains("standard input can be read once"), "{code} {message}");
    }
    let folder = tempfile::tempdir().unwrap();
    let (code, message) = refused(&["top", folder.path().to_str().unwrap()]);
    assert!(code == 66 && message.contains("name the files in it"), "{code} {message}");
}
