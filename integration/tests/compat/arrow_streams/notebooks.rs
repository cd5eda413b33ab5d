//! The scripts of `examples/notebooks` against a server with their example data, and the command line beside them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use athanor_integration::server::TestServer;
use athanor_integration::{athanor_binary, report_skipped};
use serde_json::{Value, json};

use super::{FUNCTIONS_PATH, PROFILE_TYPE, flush, now_seconds};

const NOTEBOOKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/notebooks");
const WEEK_SECONDS: i64 = 7 * 24 * 3_600;

/// Runs a script and returns the lines that it prints.
fn run_script(python: &str, script: &str, url: &str) -> Vec<String> {
    let script = Path::new(NOTEBOOKS).join(script);
    let output =
        Command::new(python).env("PYTHONDONTWRITEBYTECODE", "1").arg(script).arg(url).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Returns the total of a week from the JSON API.
fn week_total(server: &TestServer) -> i64 {
    let now = now_seconds();
    let (start, end) = ((now - WEEK_SECONDS) * 1_000, now * 1_000);
    let query = json!({ "profileType": PROFILE_TYPE, "selector": "{service_name=\"shop\"}", "start": start, "end": end });
    let table: Value = server.call_json(
        "anonymous",
        &FUNCTIONS_PATH[1..],
        &json!({ "query": query, "page": { "limit": 1 } }),
    );
    table["total"].as_str().unwrap().parse().unwrap()
}

#[test]
fn scripts_of_notebooks_find_the_changes_of_the_example_data() {
    #[expect(clippy::disallowed_methods, reason = "the test's own switch")]
    let python = std::env::var("ATHANOR_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python).args(["-c", "import duckdb, pandas, polars, pyarrow"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        let test = "scripts_of_notebooks_find_the_changes_of_the_example_data";
        report_skipped(&format!("{test}: no Python with pandas, pyarrow, Polars and DuckDB"), "");
        return;
    }
    let server = TestServer::start(|config| config.limits.reject_older_than = Duration::ZERO);
    let url = format!("http://{}", server.address);
    assert_eq!(run_script(&python, "push_example.py", &url), ["pushed 210 profiles"]);
    flush(&server);

    let outliers = run_script(&python, "outliers.py", &url);
    assert!(outliers[0].starts_with("5 pods, "), "{outliers:?}");
    assert!(outliers[1].starts_with("pod-4  runtime.scanobject "), "{outliers:?}");
    assert!(outliers[1..].iter().all(|line| line.starts_with("pod-4 ")), "{outliers:?}");

    let costs = run_script(&python, "cost_per_package.py", &url);
    let total = format!(" days, {} nanoseconds of CPU time", week_total(&server));
    assert!(costs[0].ends_with(&total), "{total}: {costs:?}");
    assert!(costs[1].starts_with("shop/pricing "), "{costs:?}");

    let changes = run_script(&python, "deploy.py", &url);
    let line = |function: &str| changes.iter().find(|line| line.starts_with(function)).unwrap();
    let slower = line("shop/pricing.evaluate ");
    assert!(slower.contains(" +") && slower.ends_with(" changed"), "{changes:?}");
    let faster = line("crypto/sha256.block ");
    assert!(faster.contains(" -") && faster.ends_with(" changed"), "{changes:?}");
}

/// Runs the command line and returns its JSON document.
fn athanor(arguments: &[&str]) -> Value {
    let output = Command::new(athanor_binary()).args(arguments).arg("--json").env_clear().output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn exports_of_the_command_line_give_the_table_of_the_server() {
    let server = TestServer::start(|_| {});
    let url = format!("http://{}", server.address);
    super::push_profiles(&server, 0);
    flush(&server);
    super::push_profiles(&server, 1);
    let expected = athanor(&["query", "top", "--url", &url, "--type", PROFILE_TYPE, "--limit", "1000"]);
    assert!(expected["total"].as_i64() > Some(0), "{expected}");
    let folder = tempfile::tempdir().unwrap();
    for (name, rows) in [("out.arrow", "3"), ("out.parquet", "1000000")] {
        let out = folder.path().join(name).to_str().unwrap().to_owned();
        let export = ["query", "samples", "--url", &url, "--type", PROFILE_TYPE, "-o", &out];
        let summary = athanor(&[&export[..], &["--rows-per-request", rows]].concat());
        assert!(summary["rows"].as_i64() > Some(3), "{summary}");
        let found = athanor(&["top", &out, "--limit", "1000"]);
        assert_eq!(found["rows"], expected["rows"], "{name}");
        assert_eq!((&found["total"], &found["type"]), (&expected["total"], &expected["type"]), "{name}");
    }
}
