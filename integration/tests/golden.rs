//! Recorded answers of another server that speaks the same wire: ours gives them too, from its heads and, once those
//! are cut, from blocks.
//!
//! `golden-skips.txt` lists the cases that are known to differ. A listed case that passes must leave the list.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{ByteSize, Overrides};
use athanor_integration::leave_out;
use athanor_server::{Config, Node, System, request};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const ANONYMOUS: [&str; 4] = ["basics", "errors", "wire", "ingest"];
const WITH_TENANTS: [&str; 1] = ["tenants"];

/// A server of its own folder and port.
struct Server {
    node: Node,
    folder: TempDir,
}

impl Server {
    fn start(runtime: &Runtime, multitenancy: bool) -> Self {
        let folder = TempDir::new().expect("a folder");
        let mut config = Config {
            listen: "127.0.0.1:0".to_owned(),
            data: folder.path().to_owned(),
            multitenancy_enabled: multitenancy,
            ..Config::default()
        };
        config.log.reserve = ByteSize::bytes(0);
        // The answers were recorded some time ago.
        config.limits.reject_older_than = Duration::ZERO;
        config.limits.reject_newer_than = Duration::ZERO;
        let overrides = Overrides::new(config.limits.clone());
        let system = System::local(&config).expect("a machine");
        let started = runtime.block_on(Node::start(&config, system, overrides, Arc::from("")));
        Self { node: started.expect("it starts"), folder }
    }

    fn cut(&self, runtime: &Runtime) {
        runtime.block_on(request(self.folder.path(), "/cut")).expect("heads are cut");
    }

    /// Asks what `scenarios` ask. What differs, by case; nothing for a case that passes.
    fn replay(&self, golden: &Path, scenarios: &[&str], pushed: bool) -> BTreeMap<String, String> {
        scenarios.iter().flat_map(|scenario| self.play(golden, scenario, pushed)).collect()
    }

    fn play(&self, golden: &Path, scenario: &str, pushed: bool) -> Vec<(String, String)> {
        let mut replay = Command::new("python3");
        replay.current_dir(golden).env("PYTHONDONTWRITEBYTECODE", "1").args(["replay.py", "check", "--json"]);
        replay.args(["--url", &format!("http://{}", self.node.address()), "--dir", scenario]);
        if pushed {
            replay.args(["--no-push", "--base", &base(&golden.join(scenario))]);
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

/// The cases that may differ.
fn listed() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden-skips.txt");
    let text = std::fs::read_to_string(path).expect("readable");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// What is not as it should be.
fn judge(answers: &BTreeMap<String, String>, listed: &BTreeSet<String>) -> String {
    for scenario in ANONYMOUS.iter().chain(&WITH_TENANTS) {
        let of = answers.iter().filter(|(case, _)| case.split(' ').next() == Some(*scenario));
        let (passed, differ): (Vec<_>, Vec<_>) = of.partition(|(_, differs)| differs.is_empty());
        println!("{scenario}: {} as recorded, {} differ", passed.len(), differ.len());
    }
    let mut wrong = String::new();
    for (case, differs) in answers {
        let _ = match (differs.is_empty(), listed.contains(case)) {
            (true, true) => writeln!(wrong, "{case}: passes; take it off the list"),
            (false, false) => writeln!(wrong, "{case}: {differs}"),
            _ => Ok(()),
        };
    }
    wrong
}

/// Each server's scenarios one after the other, both servers at once.
#[expect(clippy::disallowed_methods, reason = "a test that waits for programs")]
fn replay(
    golden: &Path,
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
        Err(why) => return leave_out(why),
    };
    let runtime = Runtime::new().expect("threads");
    let (anonymous, with_tenants) = (Server::start(&runtime, false), Server::start(&runtime, true));
    let listed = listed();

    let from_heads = replay(&golden, &anonymous, &with_tenants, false);
    let unknown: Vec<_> = listed.iter().filter(|&case| !from_heads.contains_key(case)).collect();
    assert!(unknown.is_empty(), "listed, but no cases: {unknown:?}");
    let wrong = judge(&from_heads, &listed);
    assert!(wrong.is_empty(), "from heads:\n{wrong}");

    anonymous.cut(&runtime);
    with_tenants.cut(&runtime);
    let from_blocks = replay(&golden, &anonymous, &with_tenants, true);
    let wrong = judge(&from_blocks, &listed);
    assert!(wrong.is_empty(), "from blocks:\n{wrong}");
    for (case, differs) in from_blocks.iter().filter(|(_, differs)| !differs.is_empty()) {
        assert_eq!(differs, &from_heads[case], "{case} differs in another way from blocks");
    }

    runtime.block_on(anonymous.node.stop()).unwrap();
    runtime.block_on(with_tenants.node.stop()).unwrap();
}
