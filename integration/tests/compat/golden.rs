//! Recorded answers of another server that speaks the same wire: ours gives them too, from its heads and, once those
//! are cut, from blocks.
//!
//! No case is left out. Where what was recorded is a defect, the case says so and what is right; one that does not is
//! [amended](amended).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{ByteSize, LimitOverrides};
use athanor_integration::report_skipped;
use athanor_server::{NodeDeps, ServerConfig, ServerNode, send_admin_request};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const ANONYMOUS: [&str; 4] = ["basics", "errors", "wire", "ingest"];
const WITH_TENANTS: [&str; 1] = ["tenants"];

/// Where the recorded answers are.
struct Golden {
    folder: PathBuf,
    /// Scenarios some of whose answers are amended.
    amended: BTreeMap<&'static str, TempDir>,
}

impl Golden {
    fn scenario(&self, name: &str) -> PathBuf {
        self.amended.get(name).map_or_else(|| self.folder.join(name), |folder| folder.path().to_owned())
    }
}

/// A server of its own folder and port.
struct Server {
    node: ServerNode,
    folder: TempDir,
}

impl Server {
    fn start(runtime: &Runtime, multitenancy: bool) -> Self {
        let folder = TempDir::new().expect("a folder");
        let mut config = ServerConfig {
            http_listen_address: "127.0.0.1:0".to_owned(),
            data_dir: folder.path().to_owned(),
            multitenancy_enabled: multitenancy,
            ..ServerConfig::default()
        };
        config.wal.min_free_bytes = ByteSize::bytes(0);
        // The answers were recorded some time ago.
        config.limits.reject_older_than = Duration::ZERO;
        config.limits.reject_newer_than = Duration::ZERO;
        let overrides = LimitOverrides::new(config.limits.clone());
        let system = NodeDeps::local(&config).expect("a machine");
        let started = runtime.block_on(ServerNode::start(&config, system, overrides, Arc::from("")));
        Self { node: started.expect("it starts"), folder }
    }

    fn cut(&self, runtime: &Runtime) {
        runtime.block_on(send_admin_request(self.folder.path(), "/flush")).expect("heads are cut");
    }

    /// Asks what `scenarios` ask. What differs, by case; nothing for a case that passes.
    fn replay(&self, golden: &Golden, scenarios: &[&str], pushed: bool) -> BTreeMap<String, String> {
        scenarios.iter().flat_map(|scenario| self.play(golden, scenario, pushed)).collect()
    }

    fn play(&self, golden: &Golden, scenario: &str, pushed: bool) -> Vec<(String, String)> {
        let mut replay = Command::new("python3");
        let folder = golden.scenario(scenario);
        replay.current_dir(&golden.folder).env("PYTHONDONTWRITEBYTECODE", "1").args([
            "replay.py",
            "check",
            "--json",
        ]);
        replay.args(["--url", &format!("http://{}", self.node.address()), "--dir"]);
        replay.arg(&folder);
        if pushed {
            replay.args(["--no-push", "--base", &base(&folder)]);
        }
        let output = replay.output().expect("Python runs");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(text.contains(" passed, "), "{scenario}: {text}{}", String::from_utf8_lossy(&output.stderr));
        let cases = text.lines().filter(|line| line.starts_with('{'));
        let differences = |line: &str| {
            let case: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let name = case["case"].as_str().expect("a name");
            let differs = if case["ok"] == true { String::new() } else { case["differences"].to_string() };
            (format!("{scenario} {name}"), differs)
        };
        cases.map(differences).collect()
    }
}

/// The time of a scenario. Some hold broken text on purpose, which only Python reads, so they are not parsed.
fn base(scenario: &Path) -> String {
    let described = std::fs::read_to_string(scenario.join("scenario.json")).expect("readable");
    let (_, after) = described.split_once("\"base\": \"").expect("it has a base");
    after.split('"').next().unwrap_or_default().to_owned()
}

/// Copies a scenario as it was recorded, but for so many answers.
fn amended(golden: &Path, scenario: &str, count: usize, amend: impl Fn(&str) -> String) -> TempDir {
    let (recorded, folder) = (golden.join(scenario), TempDir::new().expect("a folder"));
    std::fs::copy(recorded.join("scenario.json"), folder.path().join("scenario.json")).expect("a copy");
    let expected = std::fs::read_to_string(recorded.join("expected.json")).expect("readable");
    let lines: Vec<String> = expected.lines().map(amend).collect();
    let changed = lines.iter().zip(expected.lines()).filter(|(amended, line)| *amended != line).count();
    assert!(changed <= count, "{changed} cases of {scenario} were amended");
    std::fs::write(folder.path().join("expected.json"), lines.join("\n")).expect("written");
    folder
}

/// That server lost a document in nanoseconds, and the case of its graph says that this is a defect. The list of all
/// services was recorded without it and does not say so: a server that answers the graph right has one service more.
fn with_lost_document(line: &str) -> String {
    let (lost, next) = ("\"gi-speedscope-nanoseconds\"", "\"gi-speedscope-none\"");
    match line.starts_with("\"services/all\"") && !line.contains(lost) {
        true => line.replacen(next, &format!("{lost}, {next}"), 1),
        false => line.to_owned(),
    }
}

/// That server answers a profile without samples by an empty message, which readers of pprof refuse. A right one states its
/// types, its period and the end of the range.
fn with_empty_profile(line: &str) -> String {
    let time = match line.split(':').next() {
        Some("\"pprof/no-match\"" | "\"profile/no-match\"") => 1_772_446_200_000_000_u64,
        Some("\"gt-none/SelectMergeProfile\"") => 1_772_791_800_000_000,
        _ => return line.to_owned(),
    };
    let nothing = "\"types\": [], \"period\": [\"\", 0], \"time\": 0";
    let stated = format!(
        "\"types\": [\"cpu:nanoseconds\"], \"period\": [\"cpu:nanoseconds\", 1000000000], \"time\": {time}"
    );
    line.replacen(nothing, &stated, 1)
}

/// What is not as it should be.
fn judge(answers: &BTreeMap<String, String>) -> String {
    for scenario in ANONYMOUS.iter().chain(&WITH_TENANTS) {
        let of = answers.iter().filter(|(case, _)| case.split(' ').next() == Some(*scenario));
        let (passed, differ): (Vec<_>, Vec<_>) = of.partition(|(_, differs)| differs.is_empty());
        println!("{scenario}: {} as recorded, {} differ", passed.len(), differ.len());
    }
    let differ = answers.iter().filter(|(_, differs)| !differs.is_empty());
    differ.map(|(case, differs)| format!("{case}: {differs}\n")).collect()
}

/// Each server's scenarios one after the other, both servers at once.
#[expect(clippy::disallowed_methods, reason = "a test that waits for programs")]
fn replay(
    golden: &Golden,
    anonymous: &Server,
    with_tenants: &Server,
    pushed: bool,
) -> BTreeMap<String, String> {
    std::thread::scope(|scope| {
        let tenants = scope.spawn(|| with_tenants.replay(golden, &WITH_TENANTS, pushed));
        let mut answers = anonymous.replay(golden, &ANONYMOUS, pushed);
        answers.extend(tenants.join().expect("it ends"));
        answers
    })
}

fn recorded() -> Result<PathBuf, &'static str> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/golden");
    if !golden.join("replay.py").is_file() {
        return Err("no recorded answers at ../shared/data/golden");
    }
    let python = Command::new("python3").arg("--version").output();
    let runs = python.is_ok_and(|output| output.status.success());
    if runs { Ok(golden) } else { Err("no python3 to replay the recorded answers") }
}

#[test]
fn answers_are_those_that_were_recorded() {
    let golden = match recorded() {
        Ok(golden) => golden,
        Err(why) => return report_skipped(why, ""),
    };
    let runtime = Runtime::new().expect("threads");
    let (anonymous, with_tenants) = (Server::start(&runtime, false), Server::start(&runtime, true));
    let amended = BTreeMap::from([
        ("ingest", amended(&golden, "ingest", 1, with_lost_document)),
        ("basics", amended(&golden, "basics", 2, with_empty_profile)),
        ("tenants", amended(&golden, "tenants", 1, with_empty_profile)),
    ]);
    let golden = Golden { folder: golden, amended };

    let from_heads = replay(&golden, &anonymous, &with_tenants, false);
    let wrong = judge(&from_heads);
    assert!(wrong.is_empty(), "from heads:\n{wrong}");

    anonymous.cut(&runtime);
    with_tenants.cut(&runtime);
    let from_blocks = replay(&golden, &anonymous, &with_tenants, true);
    let wrong = judge(&from_blocks);
    assert!(wrong.is_empty(), "from blocks:\n{wrong}");

    runtime.block_on(anonymous.node.stop()).unwrap();
    runtime.block_on(with_tenants.node.stop()).unwrap();
}
