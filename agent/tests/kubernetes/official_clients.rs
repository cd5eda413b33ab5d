//! Official clients of Kubernetes against the stand-in: they read from it what they would read from the API.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::samples::{endpoint_slice, endpoints, namespace, node, pod, service};
use crate::stand_in::{ApiSettings, ApiStandIn, Fault, Verb};

const PYTHON_PROGRAM: &str = "../integration/clients/python/kubernetes_client.py";

/// Process that runs commands with a client.
struct ClientProcess {
    child: Child,
    commands: ChildStdin,
    results: BufReader<ChildStdout>,
    token: &'static str,
}

impl ClientProcess {
    fn start(mut command: Command, api: &ApiStandIn) -> Self {
        let mut child = command.arg(api.url()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let results = BufReader::new(child.stdout.take().unwrap());
        Self { child, commands, results, token: "" }
    }

    /// Sends a command. Keys that it does not name are empty.
    fn send(&mut self, keys: &Value) {
        let mut command = json!({
            "resource": "pods", "namespace": "", "labels": "", "fields": "", "limit": 0, "continue": "",
            "version": "", "count": 0, "token": self.token,
        });
        for (key, value) in keys.as_object().unwrap() {
            command[key] = value.clone();
        }
        writeln!(self.commands, "{command}").unwrap();
    }

    /// Reads the next result.
    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.results.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn run(&mut self, keys: &Value) -> Value {
        self.send(keys);
        self.read()
    }

    /// Reads the events of a watch up to the first result of another type, as lines.
    fn read_events(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let result = self.read();
            lines.push(describe(&result));
            if !["ADDED", "MODIFIED", "DELETED", "BOOKMARK"].map(Value::from).contains(&result["type"]) {
                return lines;
            }
        }
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        // A failed test ends the program in the middle of a command.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn describe(result: &Value) -> String {
    let kind = result["type"].as_str().unwrap();
    match kind {
        "END" | "BROKEN" => kind.to_owned(),
        "FAILURE" => format!("{kind} {} {}", result["code"], result["reason"].as_str().unwrap()),
        _ => format!("{kind} {} {}", result["object"].as_str().unwrap(), result["version"].as_str().unwrap()),
    }
}

/// Describes a pod as the programs do.
fn pod_text(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    format!(
        "{} {} {} {}:6060",
        text("/metadata/name"),
        text("/metadata/labels/revision"),
        text("/spec/nodeName"),
        text("/status/podIP")
    )
}

/// Starts a server with five pods.
async fn start_cluster() -> ApiStandIn {
    let api = ApiStandIn::start(ApiSettings::default()).await;
    for index in 0..5 {
        api.apply(pod(&format!("cart-{index}"), "node-a", 0));
    }
    api
}

/// Checks all that the tests of discovery rely on. `broken_end` describes how the client reports a broken stream.
async fn check_client(command: Command, broken_end: &str) {
    let api = start_cluster().await;
    let mut client = ClientProcess::start(command, &api);
    check_pages(&mut client, &api);
    check_selectors(&mut client, &api);
    check_watches(&mut client, &api);
    check_broken_watches(&mut client, &api, broken_end);
    check_failures(&mut client, &api);
    check_resources(&mut client, &api);
}

/// Checks that the pages of a list are of one version, although the cluster changes between them.
fn check_pages(client: &mut ClientProcess, api: &ApiStandIn) {
    let first = client.run(&json!({"verb": "page", "limit": 2}));
    api.apply(pod("cart-3", "node-b", 1));
    api.delete("pods", "shop", "cart-4");
    let next = |page: &Value| json!({"verb": "page", "limit": 2, "continue": page["continue"]});
    let second = client.run(&next(&first));
    let third = client.run(&next(&second));
    let text = |index: usize| pod_text(&pod(&format!("cart-{index}"), "node-a", 0));
    assert_eq!(first["objects"], json!([text(0), text(1)]));
    assert_eq!(second["objects"], json!([text(2), text(3)]));
    assert_eq!(third["objects"], json!([text(4)]));
    assert_eq!((&first["remaining"], &second["remaining"]), (&json!(3), &json!(1)));
    assert_eq!((&second["version"], &third["version"]), (&first["version"], &first["version"]));
    assert_eq!(third["continue"], "");

    let first = client.run(&json!({"verb": "page", "limit": 2}));
    api.compact();
    assert_eq!(describe(&client.run(&next(&first))), "FAILURE 410 Expired");
    api.apply(pod("cart-3", "node-a", 0));
    api.apply(pod("cart-4", "node-a", 0));
}

fn check_selectors(client: &mut ClientProcess, api: &ApiStandIn) {
    let mut other = pod("other", "node-b", 7);
    other["metadata"]["namespace"] = "bank".into();
    api.apply(other.clone());
    for (key, value) in
        [("namespace", "bank"), ("labels", "app=cart,revision=7"), ("fields", "spec.nodeName=node-b")]
    {
        let page = client.run(&json!({"verb": "page", key: value}));
        assert_eq!(page["objects"], json!([pod_text(&other)]), "{key}");
    }
    api.delete("pods", "bank", "other");
}

/// Checks the events of watches from a version and from none, bookmarks, and versions that are too old.
fn check_watches(client: &mut ClientProcess, api: &ApiStandIn) {
    let start = client.run(&json!({"verb": "page"}))["version"].clone();
    let version = |offset: u64| start.as_str().unwrap().parse::<u64>().unwrap() + offset;
    let text = |name: &str, node: &str, revision: u64| pod_text(&pod(name, node, revision));
    let fields = "spec.nodeName=node-a";
    client.send(&json!({"verb": "watch", "version": start, "fields": fields, "count": 5}));
    api.apply(pod("cart-5", "node-a", 0));
    api.apply(pod("cart-1", "node-a", 1));
    api.delete("pods", "shop", "cart-2");
    // The selector no longer selects it.
    api.apply(pod("cart-3", "node-b", 1));
    let mut events: Vec<String> = (0..4).map(|_| describe(&client.read())).collect();
    // Changes of other resources advance the version.
    api.apply(node("node-a", 0));
    api.send_bookmarks();
    events.extend(client.read_events());
    let expected = [
        format!("ADDED {} {}", text("cart-5", "node-a", 0), version(1)),
        format!("MODIFIED {} {}", text("cart-1", "node-a", 1), version(2)),
        format!("DELETED {} {}", text("cart-2", "node-a", 0), version(3)),
        format!("DELETED {} {}", text("cart-3", "node-b", 1), version(4)),
        format!("BOOKMARK  {}", version(5)),
        "END".to_owned(),
    ];
    assert_eq!(events, expected);

    client.send(&json!({"verb": "watch", "labels": "revision=1", "count": 2}));
    let added = [text("cart-1", "node-a", 1), text("cart-3", "node-b", 1)];
    let events = client.read_events();
    assert!(events[0].starts_with(&format!("ADDED {} ", added[0])), "{events:?}");
    assert!(events[1].starts_with(&format!("ADDED {} ", added[1])), "{events:?}");

    api.compact();
    client.send(&json!({"verb": "watch", "version": start, "count": 1}));
    assert_eq!(client.read_events(), ["FAILURE 410 Expired"]);
}

/// Checks that a client sees each whole line of a slow or broken stream.
fn check_broken_watches(client: &mut ClientProcess, api: &ApiStandIn, broken_end: &str) {
    for (fault, end) in [(Fault::Slow, "END"), (Fault::End, "END"), (Fault::Truncate, broken_end)] {
        let start = client.run(&json!({"verb": "page"}))["version"].clone();
        let version = start.as_str().unwrap().parse::<u64>().unwrap();
        api.apply(pod("cart-0", "node-a", 2));
        api.apply(pod("cart-0", "node-a", 3));
        api.inject(Verb::Watch, fault);
        client.send(&json!({"verb": "watch", "version": start, "count": 2}));
        let change = |revision: u64| {
            format!("MODIFIED {} {}", pod_text(&pod("cart-0", "node-a", revision)), version + revision - 1)
        };
        let events = client.read_events();
        match fault {
            Fault::Slow => assert_eq!(events, [change(2), change(3), end.to_owned()]),
            _ => assert_eq!(events, [change(2), end.to_owned()], "{fault:?}"),
        }
    }
}

/// Checks failure statuses, and that a client obeys Retry-After.
fn check_failures(client: &mut ClientProcess, api: &ApiStandIn) {
    let page = json!({"verb": "page"});
    api.inject(Verb::List, Fault::Status(500, "InternalError", None));
    assert_eq!(describe(&client.run(&page)), "FAILURE 500 InternalError");
    api.inject(Verb::List, Fault::Status(429, "TooManyRequests", Some(1)));
    let requests = api.requests().len();
    assert_eq!(client.run(&page)["type"], "PAGE");
    assert_eq!((api.requests().len(), api.pending_faults()), (requests + 2, 0));
    api.set_denied("pods", true);
    assert_eq!(describe(&client.run(&page)), "FAILURE 403 Forbidden");
    client.send(&json!({"verb": "watch", "version": "1", "count": 1}));
    assert_eq!(client.read_events(), ["FAILURE 403 Forbidden"]);
    api.set_denied("pods", false);
    api.require_authorization("Bearer valid");
    assert_eq!(describe(&client.run(&page)), "FAILURE 401 Unauthorized");
    client.token = "valid";
    assert_eq!(client.run(&page)["type"], "PAGE");
}

/// Checks that a client decodes the objects of all resources.
fn check_resources(client: &mut ClientProcess, api: &ApiStandIn) {
    let pods = ["cart-1".to_owned()];
    for object in [namespace(0), service("cart", 0), endpoints("cart", &pods), endpoint_slice("cart", &pods)]
    {
        api.apply(object);
    }
    for (resource, name) in [
        ("nodes", "node-a"),
        ("services", "cart"),
        ("endpoints", "cart"),
        ("endpointslices", "cart-slice"),
        ("namespaces", "shop"),
    ] {
        let page = client.run(&json!({"verb": "page", "resource": resource}));
        assert_eq!(page["objects"], json!([name]), "{resource}");
    }
}

#[expect(clippy::disallowed_methods, reason = "the tests' own switches")]
fn switch(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn official_python_client_lists_and_watches_the_stand_in() {
    let python = switch("ATHANOR_PYTHON").unwrap_or_else(|| "python3".into());
    let has_client = Command::new(&python).args(["-c", "import kubernetes"]).output();
    if !has_client.is_ok_and(|output| output.status.success()) {
        let is_denied = switch("ATHANOR_SKIPS").is_some_and(|skips| skips == "deny");
        assert!(!is_denied, "Python package of Kubernetes is not installed; run ./test, which installs it");
        println!("skip: official_python_client_lists_and_watches_the_stand_in: no Python with kubernetes");
        return;
    }
    let mut command = Command::new(&python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(PYTHON_PROGRAM));
    check_client(command, "BROKEN").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_lists_and_watches_the_stand_in() {
    let Some(program) = switch("ATHANOR_DISCOVERY_ORACLE") else {
        println!("skip: `just agent-oracle` builds client-go and names the program");
        return;
    };
    let mut command = Command::new(program);
    command.arg("client");
    // To client-go, a connection that breaks in the middle of a stream is the end of the stream.
    check_client(command, "END").await;
}
