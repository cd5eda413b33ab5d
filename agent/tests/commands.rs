//! The binary, as operators and scripts use it without a running agent.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

struct ConfigFile {
    _folder: TempDir,
    path: PathBuf,
}

fn config_file(text: &str) -> ConfigFile {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.yaml");
    std::fs::write(&path, text).unwrap();
    ConfigFile { _folder: folder, path }
}

fn agent(args: &[&str]) -> Output {
    // Variables of the person who runs the tests would be settings.
    Command::new(env!("CARGO_BIN_EXE_athanor-agent")).args(args).env_clear().output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn check_of_invalid_file_names_positions_and_the_nearest_name() {
    let text = "\
scrape_configs:
- job_name: app
  scrape_intervall: 15s
  static_configs: [{targets: ['127.0.0.1:6060']}]
- job_name: other
  scheme: ftp
";
    let file = config_file(text);
    let path = file.path.to_str().unwrap();
    let output = agent(&["check", path]);
    assert_eq!(output.status.code(), Some(65));
    let errors = stderr(&output);
    let lines: Vec<&str> = errors.lines().collect();
    assert_eq!(lines.len(), 2, "{errors}");
    assert!(lines[0].starts_with(&format!("{path}:3:3: ")), "{errors}");
    assert!(lines[0].contains("scrape_interval"), "{errors}");
    assert!(lines[1].starts_with(&format!("{path}:6:11: ")), "{errors}");
}

#[test]
fn check_of_valid_file_counts_jobs_and_warns_once() {
    let file = config_file("scrape_configs: [{job_name: app, honor_labels: true, metrics_path: /m}]");
    let output = agent(&["check", file.path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("valid, 1 jobs, 1 servers"), "{text}");
    assert_eq!(text.matches("warning").count(), 1, "{text}");
    assert!(text.contains("honor_labels"), "{text}");
}

#[test]
fn check_of_missing_or_binary_file_says_so() {
    let missing = agent(&["check", "/nonexistent/agent.yaml"]);
    assert_eq!(missing.status.code(), Some(66));
    assert!(stderr(&missing).starts_with("/nonexistent/agent.yaml: "), "{}", stderr(&missing));
    let file = config_file("");
    std::fs::write(&file.path, [b"a: b\n\xc3\xa4: ".as_slice(), &[0xff]].concat()).unwrap();
    let binary = agent(&["check", file.path.to_str().unwrap()]);
    let position = format!("{}:2:4: not UTF-8", file.path.display());
    assert!(stderr(&binary).starts_with(&position), "{}", stderr(&binary));
}

#[test]
fn explain_of_file_shows_each_rule_and_why_a_target_is_dropped() {
    let file = config_file(
        "\
scrape_configs:
- job_name: app
  static_configs:
  - targets: ['10.0.0.1:6060', '10.0.0.2:6060']
    labels: {env: dev}
  relabel_configs:
  - {source_labels: [env], target_label: stage}
  - {source_labels: [__address__], regex: '10.0.0.2:.*', action: drop}
  - {regex: env, action: labeldrop}
",
    );
    let path = file.path.to_str().unwrap();
    let kept = agent(&["explain", "10.0.0.1:6060", "--file", path]);
    assert_eq!(kept.status.code(), Some(0), "{}", stderr(&kept));
    let kept = stdout(&kept);
    assert!(kept.contains("set {stage=\"dev\"}"), "{kept}");
    assert!(kept.contains("no change") && kept.contains("removed env"), "{kept}");
    assert!(kept.contains("\n  labels {") && kept.matches("job app").count() == 1, "{kept}");
    let dropped = stdout(&agent(&["explain", "10.0.0.2:6060", "--file", path]));
    assert!(dropped.contains("dropped: dropped by rule 2") && !dropped.contains("rule 3"), "{dropped}");
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&agent(&["explain", "--file", path, "--json"]))).unwrap();
    assert_eq!(json["targets"].as_array().unwrap().len(), 2);
    let unknown = agent(&["explain", "10.0.0.3:6060", "--file", path]);
    assert_eq!(unknown.status.code(), Some(66));
}

#[test]
fn query_without_running_agent_names_the_way_out() {
    for command in [&["targets"][..], &["spool", "show"], &["explain", "x"]] {
        let args = [command, &["--agent", "http://127.0.0.1:1"]].concat();
        let output = agent(&args);
        assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
        let error = stderr(&output);
        assert!(
            error.contains("nothing listens on http://127.0.0.1:1") && error.contains("--agent"),
            "{error}"
        );
    }
}

#[test]
fn record_refuses_wrong_arguments_before_it_samples() {
    let refused: [(&[&str], &str); 7] = [
        (&["record", "-o", "cpu.json"], "end the name in .pb.gz, .pprof, .folded, .txt, .svg"),
        (&["record", "-o", "a.svg", "--hz", "998"], "from 1 to 997"),
        (&["record", "-o", "a.svg", "--for", "10ms"], "100ms to 24h"),
        (&["record", "-o", "a.svg", "--pid", "1", "--service", "a"], "cannot be used with"),
        (&["record", "-o", "a.svg", "--service", "a", "--", "true"], "cannot be used with"),
        (&["record"], "--output"),
        (&["top", "--hz", "0"], "from 1 to 997"),
    ];
    for (args, reason) in refused {
        let output = agent(args);
        assert!(matches!(output.status.code(), Some(64 | 65)), "{args:?}: {output:?}");
        assert!(stderr(&output).contains(reason), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn check_takes_a_file_or_the_host() {
    let neither = agent(&["check"]);
    assert_eq!(neither.status.code(), Some(64));
    assert!(stderr(&neither).contains("FILE"), "{}", stderr(&neither));
    assert_eq!(agent(&["check", "--host", "agent.yaml"]).status.code(), Some(64));
}

#[test]
fn check_of_the_host_ends_with_its_result() {
    let output = agent(&["check", "--host"]);
    let text = stdout(&output);
    let last = text.lines().last().unwrap_or_default();
    let is_missing = |line: &str| line.starts_with("missing: ");
    match text.lines().any(is_missing) {
        true => assert!(!output.status.success() && last.starts_with("the host cannot be sampled"), "{text}"),
        false => assert!(output.status.success() && last == "the host can be sampled", "{text}"),
    }
}
