//! Real SDKs, unmodified, each in an environment that is thrown away: what they send is taken and found. So is what our
//! own load sends.
//!
//! Where a client's language is not there, or its packages cannot be had, that client is left out.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use athanor_chassis::{Limits, Overrides, TenantId};
use athanor_integration::{binary, leave_out};
use athanor_proto::querier::v1::SelectMergeStacktracesRequest;
use athanor_querier::Reader;
use athanor_server::{Config, Node, System};

const PYTHON: &str = "pyroscope-io==1.4.0";

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

async fn start(folder: &Path) -> Node {
    let mut config = Config { listen: "127.0.0.1:0".into(), data: folder.to_owned(), ..Config::default() };
    config.log.reserve = athanor_chassis::ByteSize::bytes(0);
    let system = System::local(&config).expect("a folder of its own");
    let node = Node::start(&config, system, Overrides::new(Limits::default()), Arc::from(""));
    node.await.expect("nothing stands in the way")
}

/// Runs a program to its end; what it printed, if it failed.
fn run(program: &str, arguments: &[&str], folder: &Path) -> Result<(), String> {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// The names of the functions below the heaviest path of a service, root first.
async fn heaviest(node: &Node, service: &str, profile_type: &str) -> Vec<String> {
    let asked = SelectMergeStacktracesRequest {
        profile_type_id: profile_type.into(),
        label_selector: format!("{{service_name=\"{service}\"}}"),
        start: 1,
        end: i64::MAX / 1_000_000 - 1,
        ..SelectMergeStacktracesRequest::default()
    };
    let reader = Reader::of(TenantId::anonymous());
    let tree = node
        .roles()
        .querier
        .as_ref()
        .expect("it has all roles")
        .merged_tree(&reader, asked)
        .await
        .expect("the question is sound");
    let mut path = Vec::new();
    let mut at = 0;
    while let Some(next) = tree.children(at).max_by_key(|&child| tree.nodes()[child as usize].total) {
        path.push(tree.name(&tree.nodes()[next as usize]).to_owned());
        at = next;
    }
    path
}

/// Runs a client against a server of its own and looks for the function that it is busy in.
fn is_found(
    prepare: impl FnOnce(&Path) -> Result<(), String>,
    run: impl FnOnce(&Path, &str) -> Result<(), String>,
    service: &str,
    profile_type: &str,
    function: &str,
) {
    let environment = tempfile::tempdir().expect("a folder");
    if let Err(why) = prepare(environment.path()) {
        return leave_out(&format!("the client of {service} cannot be installed: {why}"));
    }
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let folder = tempfile::tempdir().expect("a folder");
    runtime.block_on(async {
        let node = start(folder.path()).await;
        let url = format!("http://{}", node.address());
        run(environment.path(), &url).expect("the client runs");
        let path = heaviest(&node, service, profile_type).await;
        assert!(path.iter().any(|name| name.contains(function)), "{function} is not among {path:?}");
        node.stop().await.expect("all is kept");
    });
}

#[test]
fn the_sdk_for_python_is_understood() {
    is_found(
        |folder| {
            run("python3", &["-m", "venv", "."], folder)?;
            run("bin/pip", &["install", "--quiet", PYTHON], folder)
        },
        |folder, url| run("bin/python", &[&clients().join("python/busy.py").to_string_lossy(), url], folder),
        "python-busy",
        "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        "known_busy_function",
    );
}

#[test]
fn the_sdk_for_go_is_understood() {
    is_found(
        |folder| {
            for file in ["main.go", "go.mod", "go.sum"] {
                std::fs::copy(clients().join("go").join(file), folder.join(file))
                    .map_err(|error| error.to_string())?;
            }
            run("go", &["build", "-o", "busy", "."], folder)
        },
        |folder, url| run("./busy", &[url], folder),
        "go-busy",
        "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        "main.knownBusyFunction",
    );
}

#[test]
fn the_sdk_for_node_is_understood() {
    is_found(
        |folder| {
            run("node", &["--version"], folder)?;
            for file in ["package.json", "busy.mjs"] {
                std::fs::copy(clients().join("node").join(file), folder.join(file))
                    .map_err(|error| error.to_string())?;
            }
            run("npm", &["install", "--silent", "--no-audit", "--no-fund"], folder)
        },
        |folder, url| run("node", &["busy.mjs", url], folder),
        "node-busy",
        "wall:cpu:nanoseconds:wall:nanoseconds",
        "knownBusyFunction",
    );
}

#[test]
fn the_sdk_for_rust_is_understood() {
    // What is compiled is kept from run to run.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("client-rust");
    let target = target.to_string_lossy();
    let program = format!("{target}/debug/busy");
    is_found(
        |folder| {
            std::fs::create_dir(folder.join("src")).map_err(|error| error.to_string())?;
            for file in ["Cargo.toml", "Cargo.lock", "src/main.rs"] {
                std::fs::copy(clients().join("rust").join(file), folder.join(file))
                    .map_err(|error| error.to_string())?;
            }
            run("cargo", &["build", "--quiet", "--locked", "--target-dir", &target], folder)
        },
        |folder, url| run(&program, &[url], folder),
        "rust-busy",
        "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        "known_busy_function",
    );
}

#[test]
fn a_load_is_counted_to_the_unit() {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let folder = tempfile::tempdir().expect("a folder");
    runtime.block_on(async {
        let node = start(folder.path()).await;
        let (url, pid) = (format!("http://{}", node.address()), std::process::id().to_string());
        let load = |arguments: &[&str]| {
            let fixed =
                ["dev", "load", "--json", "--settle", "0s", "--timeout", "60s", "--url", &url, "--pid", &pid];
            // The server has threads of its own.
            let output = Command::new(binary()).args(fixed).args(arguments).output().expect("it runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")
        };
        // The command itself compares the server's total with what it sent.
        for _ in 0..2 {
            let told = load(&["--profiles", "40", "--connections", "4", "--merges", "3"]);
            assert_eq!((told["profiles"].as_u64(), told["acks"].as_u64()), (Some(40), Some(40)));
            assert!(
                told["server"]["cpu_seconds"].is_number() && told["merge_ms"]["p99"].is_number(),
                "{told}"
            );
        }
        let told = load(&["--profiles", "10", "--rate", "200", "--merges", "0"]);
        assert_eq!((told["acks"].as_u64(), told["first_merge_ms"].as_f64()), (Some(10), None));
        node.stop().await.expect("all is kept");
    });
}
