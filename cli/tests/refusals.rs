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
        ("ingester.single_node_shards=0", "ingester.single_node_shards: 0 shards; write 1 to 64"),
        ("ingester.single_node_shards=4097", "ingester.single_node_shards: 4097 shards; write 1 to 64"),
        ("retention_peroid=1d", "did you mean `retention_period`?"),
        ("cluster.seed_node=[10.0.0.6:7946]", "did you mean `cluster.seed_nodes`?"),
        ("ingester.flush.max_head_ag=1s", "ingester.flush.max_head_ag: unknown field"),
        ("ingester.flush.max_head_ag=1s", "did you mean `ingester.flush.max_head_age`?"),
        ("cluster.seed_nodes=[10.0.0.6:7946]", "cluster.id: required in cluster mode"),
        ("cluster.id=5f", "cluster.id: \"5f\" is not a cluster id; write 32 hexadecimal digits"),
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
        assert!(
            code == 64 && message.contains("empty path; write for example athanor-data"),
            "{command}: {code} {message}"
        );
    }
}

#[test]
fn where_the_port_is_taken_no_folder_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, message) = refused(&["serve", "--data", data.to_str().unwrap(), "--listen", &address]);
    assert!(code == 69 && message.contains("choose another address with --listen"), "{code} {message}");
    assert!(!data.exists());
}

#[test]
fn what_is_given_twice_is_refused() {
    let push = ["push", "cpu.pb.gz", "--service", "shop"];
    for (more, said) in [
        (&["--label", "a=1", "--label", "a=2"][..], "--label a is given twice"),
        (&["--label", "service_name=x"][..], "--service shop set the same label"),
    ] {
        let (code, message) = refused(&[&push[..], more].concat());
        assert!(code == 64 && message.contains(said), "{code} {message}");
    }
    for twice in [&["top", "-", "-"][..], &["diff", "-", "-"], &["convert", "-", "-", "-o", "x.svg"]] {
        let (code, message) = refused(twice);
        assert!(code == 64 && message.contains("standard input can be read only once"), "{code} {message}");
    }
    let folder = tempfile::tempdir().unwrap();
    let (code, message) = refused(&["top", folder.path().to_str().unwrap()]);
    assert!(code == 66 && message.contains("name the files in it"), "{code} {message}");
}

#[test]
fn all_wrong_settings_are_reported_at_once_with_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let overrides = write("overrides.yaml", "overrides:\n  team-a:\n    ingestion_rates: 1\n");
    let config = write(
        "athanor.yaml",
        &format!(
            "http_listen_address: \"127.0.0.1:0\"\nretention_peroid: 1d\ningester:\n  single_node_shards: 0\n  flush:\n    max_head_age: soon\n\
             shutdown_timeout: never\n\
             shutdown_delay: 1h\ncluster:\n  seed_nodes: [somewhere]\nruntime_config_file: {overrides}\n"
        ),
    );
    for command in ["serve", "config"] {
        let (code, message) = refused(&[command, "--config", &config, "--set", "wal.segment_bytes=1KiB"]);
        assert_eq!(code, 64, "{message}");
        for (setting, place) in [
            ("retention_peroid: unknown field", format!("file {config}, line 2)")),
            ("ingester.single_node_shards: 0 shards", format!("file {config}, line 4)")),
            ("ingester.flush.max_head_age: \"soon\"", format!("file {config}, line 6)")),
            ("shutdown_timeout: \"never\"", format!("file {config}, line 7)")),
            ("cluster.seed_nodes: \"somewhere\"", format!("file {config}, line 10)")),
            ("cluster.id: required in cluster mode", format!("file {config}, line 9)")),
            ("wal.segment_bytes: segments of 1KiB", "flag --set)".to_owned()),
            ("overrides.team-a.ingestion_rates: unknown field", format!("file {overrides}, line 3)")),
        ] {
            let is_said = |line: &str| line.trim_start().starts_with(setting) && line.contains(&place);
            assert!(message.lines().any(is_said), "{setting} {place}: {message}");
        }
        // The default of what cannot be read is not held against it.
        let is_held_against = |line: &str| line.trim_start().starts_with("shutdown_delay");
        assert!(!message.lines().any(is_held_against), "{message}");
    }
}

#[test]
fn help_of_serve_names_every_role() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_athanor"));
    let output = command.env_clear().args(["serve", "--help"]).stdin(Stdio::null()).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for role in ["distributor", "ingester", "metastore", "querier", "store-gateway"] {
        assert!(help.contains(role), "{role}: {help}");
    }
}
