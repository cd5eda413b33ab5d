//! Real SDKs, unmodified, each in an environment that is thrown away: what they send is taken and found. So is what our
//! own load sends.
//!
//! Where a client's language is not there, or its packages cannot be had, that client is left out.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Clock, LimitOverrides, TenantId, TenantLimits};
use athanor_integration::clients::{clients_folder, run_program};
use athanor_integration::sdk_programs::{
    PYTHON_SDK, command, java_agent_command, prepare_go, prepare_java_agent, prepare_node, prepare_python,
    prepare_rust, python_command, rust_command,
};
use athanor_integration::server::RESPONSE_DEADLINE;
use athanor_integration::{athanor_binary, report_skipped};
use athanor_profile::call_tree::tree::Tree;
use athanor_proto::querier::v1::SelectMergeStacktracesRequest;
use athanor_querier::QueryContext;
use athanor_server::{NodeDeps, ServerConfig, ServerNode};
use tokio::runtime::Runtime;

/// Between two looks at what has come.
const LOOK: Duration = Duration::from_millis(50);
const PYTHON_SPANS: &str = "pyroscope-otel==1.1.0";
const OPEN_TELEMETRY: &str = "opentelemetry-sdk-extension-profiling==0.63b4";

async fn start(folder: &Path) -> ServerNode {
    let mut config = ServerConfig {
        http_listen_address: "127.0.0.1:0".into(),
        data_dir: folder.to_owned(),
        ..ServerConfig::default()
    };
    config.wal.min_free_bytes = athanor_chassis::ByteSize::bytes(0);
    let system = NodeDeps::local(&config).expect("a folder of its own");
    let node =
        ServerNode::start(&config, system, LimitOverrides::new(TenantLimits::default()), Arc::from(""));
    node.await.expect("nothing stands in the way")
}

/// A question, and the function that must weigh most in its answer.
struct Wanted<'a> {
    profile_type: &'a str,
    selector: &'a str,
    span: &'a str,
    function: &'a str,
}

impl<'a> Wanted<'a> {
    fn of(profile_type: &'a str, selector: &'a str, function: &'a str) -> Self {
        Wanted { profile_type, selector, span: "", function }
    }
}

/// What a client left at a server.
struct Found<'a> {
    node: &'a ServerNode,
    runtime: &'a Runtime,
}

impl Found<'_> {
    /// Of all functions, the one that is wanted has most of what functions do themselves, and lies on the heaviest path.
    fn is_busy_in(&self, wanted: &Wanted<'_>) -> Result<(), String> {
        let tree = self.tree(wanted);
        let (mut self_values, mut ahead) = (BTreeMap::<&str, i64>::new(), vec![(0, "")]);
        while let Some((at, caller)) = ahead.pop() {
            let node = &tree.nodes()[at as usize];
            // What Go's runtime does, it does for whoever it interrupts.
            let name = if tree.name(node).starts_with("runtime.") { caller } else { tree.name(node) };
            *self_values.entry(name).or_default() += node.self_value;
            ahead.extend(tree.children(at).map(|child| (child, name)));
        }
        let leader = self_values
            .iter()
            .max_by_key(|(_, self_value)| **self_value)
            .map_or("nothing", |(name, _)| *name);
        let mut path = Vec::new();
        let mut at = 0;
        while let Some(next) = tree.children(at).max_by_key(|&child| tree.nodes()[child as usize].total) {
            path.push(tree.name(&tree.nodes()[next as usize]));
            at = next;
        }
        let (function, asked) = (wanted.function, wanted.selector);
        if !leader.contains(function) {
            return Err(format!("{asked}: {leader} weighs most, not {function}: {self_values:?}"));
        }
        match path.contains(&leader) {
            true => Ok(()),
            false => Err(format!("{asked}: {function} is not on the heaviest path, {path:?}")),
        }
    }

    fn tree(&self, wanted: &Wanted<'_>) -> Tree {
        let asked = SelectMergeStacktracesRequest {
            profile_type_id: wanted.profile_type.into(),
            label_selector: wanted.selector.into(),
            start: 1,
            end: i64::MAX / 1_000_000 - 1,
            span_selector: Some(wanted.span.to_owned()).filter(|span| !span.is_empty()).into_iter().collect(),
            ..SelectMergeStacktracesRequest::default()
        };
        let reader = QueryContext::for_tenant(TenantId::anonymous());
        let querier = self.node.roles().querier.as_ref().expect("it has all roles");
        self.runtime.block_on(querier.merged_tree(&reader, asked)).expect("the question is sound")
    }
}

/// Runs a client against a server of its own, and looks at what it left there until that is what is wanted: `look` is
/// told what the client wrote. `client` says what to run.
///
/// A client that sends now and then writes `done`, and ends when its input does. Others have sent all when they end.
fn with_client<T>(
    name: &str,
    prepare: impl FnOnce(&Path) -> Result<T, String>,
    client: impl FnOnce(&str) -> Vec<String>,
    look: impl Fn(&Found<'_>, &str) -> Result<(), String>,
) {
    let environment = tempfile::tempdir().expect("a folder");
    if let Err(why) = prepare(environment.path()) {
        return report_skipped(&format!("no client of {name}"), &why);
    }
    let runtime = Runtime::new().expect("threads");
    let folder = tempfile::tempdir().expect("a folder");
    let node = runtime.block_on(start(folder.path()));
    let command = client(&format!("http://{}", node.address()));
    let complaints = tempfile::tempfile().expect("a file");
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .current_dir(environment.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(complaints.try_clone().expect("a file"))
        .spawn()
        .expect("the client runs");
    // It is read from until the client ends, which may write more.
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let wrote = lines.by_ref().map(|line| line.expect("UTF-8")).take_while(|line| line != "done");
    let wrote = wrote.collect::<Vec<_>>().join("\n");

    let found = Found { node: &node, runtime: &runtime };
    let clock = Clock::system();
    let until = clock.monotonic() + RESPONSE_DEADLINE;
    let mut looked = look(&found, &wrote);
    while looked.is_err() && clock.monotonic() < until {
        std::thread::sleep(LOOK);
        looked = look(&found, &wrote);
    }
    drop(child.stdin.take());
    drop(lines.last());
    let ended = child.wait().expect("it ends");
    let mut said = String::new();
    (&complaints).rewind().and_then(|()| (&complaints).read_to_string(&mut said)).expect("readable");
    assert!(ended.success(), "{command:?}: {ended} {said}");
    assert_eq!(looked, Ok(()), "{said}");
    runtime.block_on(node.stop()).expect("all is kept");
}

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

#[test]
fn the_sdk_for_python_is_understood() {
    with_client(
        "python-busy",
        |folder| prepare_python(folder, &[PYTHON_SDK]),
        |url| python_command("python", "busy.py", &[url]),
        |found, _| {
            let of = |selector| Wanted::of(CPU, selector, "known_busy_function");
            found.is_busy_in(&of(r#"{service_name="python-busy"}"#))?;
            // Tags of a thread.
            found.is_busy_in(&of(r#"{service_name="python-busy", work="known"}"#))
        },
    );
}

#[test]
fn spans_of_the_sdk_for_python_are_found() {
    with_client(
        "python-spans",
        |folder| prepare_python(folder, &[PYTHON_SDK, PYTHON_SPANS]),
        |url| python_command("python", "spans.py", &[url]),
        |found, span| {
            assert_eq!(span.len(), 16, "{span}");
            let selector = r#"{service_name="python-spans", span_name="known work"}"#;
            found.is_busy_in(&Wanted { span, ..Wanted::of(CPU, selector, "known_busy_function") })
        },
    );
}

fn open_telemetry_is_understood(protocol: &str) {
    let service = format!("otel-busy-{}", protocol.split('/').next().expect("a name"));
    with_client(
        &service,
        |folder| prepare_python(folder, &[OPEN_TELEMETRY]),
        |url| python_command("otel", "busy.py", &[url, protocol]),
        |found, _| {
            let selector = format!("{{service_name=\"{service}\"}}");
            let wall = "wall:samples:count:wall:nanoseconds";
            found.is_busy_in(&Wanted::of(wall, &selector, "known_busy_function"))
        },
    );
}

#[test]
fn open_telemetry_for_python_is_understood_over_http() {
    open_telemetry_is_understood("http/protobuf");
}

#[test]
fn open_telemetry_for_python_is_understood_over_grpc() {
    open_telemetry_is_understood("grpc");
}

#[test]
fn the_sdk_for_go_is_understood() {
    with_client(
        "go-busy",
        |folder| prepare_go("go", &["main.go", "go.mod", "go.sum"], folder),
        |url| command(&["./busy", url]),
        |found, _| {
            found.is_busy_in(&Wanted::of(CPU, r#"{service_name="go-busy"}"#, "main.knownBusyFunction"))?;
            // What `TagWrapper` says.
            let tagged = r#"{service_name="go-busy", work="known"}"#;
            found.is_busy_in(&Wanted::of(CPU, tagged, "main.knownBusyFunction"))?;
            let allocated = "memory:alloc_space:bytes:space:bytes";
            let all = r#"{service_name="go-busy"}"#;
            found.is_busy_in(&Wanted::of(allocated, all, "main.knownGreedyFunction"))
        },
    );
}

#[test]
fn what_the_library_of_go_writes_is_understood() {
    with_client(
        "go-plain",
        |folder| prepare_go("go-plain", &["main.go", "go.mod"], folder),
        |url| command(&["./busy", url]),
        |found, _| {
            for service in [r#"{service_name="go-pushed"}"#, r#"{service_name="go-ingested"}"#] {
                found.is_busy_in(&Wanted::of(CPU, service, "main.knownBusyFunction"))?;
                let held = "memory:inuse_space:bytes:space:bytes";
                found.is_busy_in(&Wanted::of(held, service, "main.knownGreedyFunction"))?;
            }
            // Labels that `pprof.Do` gives are those of series.
            let labelled = r#"{service_name="go-pushed", work="known"}"#;
            found.is_busy_in(&Wanted::of(CPU, labelled, "main.knownBusyFunction"))
        },
    );
}

#[test]
fn the_sdk_for_node_is_understood() {
    with_client(
        "node-busy",
        |folder| prepare_node("node", &["package.json", "busy.mjs"], folder),
        |url| command(&["node", "busy.mjs", url]),
        |found, _| {
            let of =
                |selector| Wanted::of("wall:cpu:nanoseconds:wall:nanoseconds", selector, "knownBusyFunction");
            found.is_busy_in(&of(r#"{service_name="node-busy"}"#))?;
            // What `wrapWithLabels` says.
            found.is_busy_in(&of(r#"{service_name="node-busy", work="known"}"#))
        },
    );
}

#[test]
fn the_sdk_for_rust_is_understood() {
    // What is compiled is kept from run to run.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("client-rust");
    with_client(
        "rust-busy",
        |folder| prepare_rust(folder, &target),
        |url| rust_command(&target, url),
        |found, _| {
            let of = |selector| Wanted::of(CPU, selector, "known_busy_function");
            found.is_busy_in(&of(r#"{service_name="rust-busy"}"#))?;
            // What `tag_wrapper` says.
            found.is_busy_in(&of(r#"{service_name="rust-busy", work="known"}"#))
        },
    );
}

#[test]
fn a_recording_of_the_jdk_is_understood() {
    with_client(
        "java-busy",
        |folder| run_program("java", &["--version"], folder),
        |url| {
            let program = clients_folder().join("java/Busy.java");
            command(&["java", &program.to_string_lossy(), "busy.jfr", url])
        },
        |found, _| {
            found.is_busy_in(&Wanted::of(CPU, r#"{service_name="java-busy"}"#, "Busy.knownBusyFunction"))
        },
    );
}

#[test]
fn the_agent_for_java_is_understood() {
    with_client("java-agent", prepare_java_agent, java_agent_command, |found, _| {
        let all = r#"{service_name="java-agent"}"#;
        found.is_busy_in(&Wanted::of(CPU, all, "Busy.knownBusyFunction"))?;
        // What `LabelsWrapper` says.
        let labelled = r#"{service_name="java-agent", work="known"}"#;
        found.is_busy_in(&Wanted::of(CPU, labelled, "Busy.knownBusyFunction"))?;
        let allocated = "memory:alloc_in_new_tlab_objects:count:space:bytes";
        found.is_busy_in(&Wanted::of(allocated, all, "Busy.knownGreedyFunction"))?;
        let waited = "mutex:delay:nanoseconds:mutex:count";
        found.is_busy_in(&Wanted::of(waited, all, "Busy.knownBlockedFunction"))
    });
}

#[test]
fn a_load_is_counted_to_the_unit() {
    let runtime = Runtime::new().expect("threads");
    let folder = tempfile::tempdir().expect("a folder");
    runtime.block_on(async {
        let node = start(folder.path()).await;
        let (url, pid) = (format!("http://{}", node.address()), std::process::id().to_string());
        let load = |arguments: &[&str]| {
            let fixed = [
                "dev",
                "bench",
                "--json",
                "--settle",
                "0s",
                "--timeout",
                "60s",
                "--url",
                &url,
                "--pid",
                &pid,
            ];
            // The server has threads of its own.
            let output =
                Command::new(athanor_binary()).args(fixed).args(arguments).output().expect("it runs");
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
