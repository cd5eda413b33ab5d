//! Sampled process in a pod: the agent labels its profiles with the pod that the API server has.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use athanor_chassis::net::LocalNet;
use athanor_chassis::{Clock, Net, TaskGroup};
use athanor_profile::formats::pprof::inflate;
use athanor_proto::push::v1::{PushRequest, RawProfileSeries};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use prost::Message;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::busy_program::{BusyProgram, RunningProgram, can_sample};
use crate::stand_in::{ApiSettings, ApiStandIn};

const NODE: &str = "node-1";
const POD_UID: &str = "9b1d6c1e-52a0-4b7e-8c3d-0f1e2d3c4b5a";
const CONTAINER_ID: &str = "7a6b5c4d3e2f10987a6b5c4d3e2f10987a6b5c4d3e2f10987a6b5c4d3e2f1098";
const OTHER_ID: &str = "1111111111111111111111111111111111111111111111111111111111111111";
/// Longest time until a profile has the labels of its pod.
const LABEL_TIMEOUT: Duration = Duration::from_secs(90);
const MAX_BODY_BYTES: usize = 1 << 26;
const MAX_TASKS: usize = 1000;
const CGROUP_REMOVALS: u32 = 100;
const CGROUP_INTERVAL: Duration = Duration::from_millis(20);

/// Cgroup of a container, with the name that containerd gives it.
struct ContainerCgroup {
    folder: PathBuf,
    /// Folders that did not exist. They are removed on drop.
    created: Vec<PathBuf>,
}

impl ContainerCgroup {
    /// Creates the cgroup. None without the privilege, or without cgroup2.
    fn create() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = fields.find(|fields| fields.get(2) == Some(&"cgroup2"))?;
        let mut cgroup = Self { folder: PathBuf::from(mount[1]), created: Vec::new() };
        let pod = format!("kubelet-kubepods-pod{}.slice", POD_UID.replace('-', "_"));
        let container = format!("cri-containerd-{CONTAINER_ID}.scope");
        for part in ["kubelet.slice", "kubelet-kubepods.slice", &pod, &container] {
            cgroup.folder.push(part);
            if !cgroup.folder.exists() {
                fs::create_dir(&cgroup.folder).ok()?;
                cgroup.created.push(cgroup.folder.clone());
            }
        }
        Some(cgroup)
    }

    /// Starts a program that is in the cgroup from its first instruction on.
    fn start(&self, program: &BusyProgram) -> RunningProgram {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$0\"/cgroup.procs && exec \"$@\""]).arg(&self.folder);
        command.arg(&program.path).args(["known", "1000000"]).stdin(Stdio::null());
        RunningProgram(command.spawn().unwrap())
    }
}

impl Drop for ContainerCgroup {
    fn drop(&mut self) {
        for folder in self.created.iter().rev() {
            // A process that was killed leaves its cgroup a little later.
            for _ in 0..CGROUP_REMOVALS {
                if fs::remove_dir(folder).is_ok() {
                    break;
                }
                std::thread::sleep(CGROUP_INTERVAL);
            }
        }
    }
}

/// Server that takes all profiles.
struct PushServer {
    address: SocketAddr,
    series: mpsc::UnboundedReceiver<RawProfileSeries>,
    _tasks: TaskGroup,
}

impl PushServer {
    async fn start() -> Self {
        let clock = Clock::system();
        let net = LocalNet::new(clock.clone());
        let mut listener = net.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_address();
        let tasks = TaskGroup::new(clock, MAX_TASKS);
        let connections = tasks.clone();
        let (sender, series) = mpsc::unbounded_channel();
        let accept = async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let sender = sender.clone();
                let service = service_fn(move |request| respond(request, sender.clone()));
                let connection = async move {
                    let http = hyper::server::conn::http1::Builder::new();
                    // The agent closes connections.
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                };
                connections.spawn("connection", connection).unwrap();
            }
        };
        tasks.spawn("accept", accept).unwrap();
        Self { address, series, _tasks: tasks }
    }

    /// Waits for a series with the label of a pod. Returns its labels.
    async fn wait_for_pod(&mut self) -> BTreeMap<String, String> {
        let mut seen = Vec::new();
        let wait = async {
            loop {
                let series = self.series.recv().await.unwrap();
                let labels = series.labels.into_iter().map(|label| (label.name, label.value));
                let labels: BTreeMap<String, String> = labels.collect();
                if labels.contains_key("pod") {
                    return labels;
                }
                seen.push(labels);
            }
        };
        let found = Clock::system().timeout(LABEL_TIMEOUT, wait).await;
        found.unwrap_or_else(|_| panic!("no profile of a pod in {seen:?}"))
    }
}

async fn respond(
    request: Request<Incoming>,
    sender: mpsc::UnboundedSender<RawProfileSeries>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let plain = inflate(&body, MAX_BODY_BYTES).unwrap();
    for series in PushRequest::decode(&*plain).unwrap().series {
        let _ = sender.send(series);
    }
    let response = Response::builder().header(header::CONTENT_TYPE, "application/proto");
    Ok(response.body(Empty::new()).unwrap())
}

fn pod(name: &str, uid: &str, container_id: &str) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "uid": uid, "labels": {"app": name}},
        "spec": {"nodeName": NODE, "containers": [{"name": "sidecar", "image": "s:1"}, {"name": "main", "image": "c:1"}]},
        "status": {
            "phase": "Running", "podIP": "10.0.0.7", "hostIP": "192.168.1.1",
            "containerStatuses": [
                {"name": "sidecar", "containerID": format!("containerd://{OTHER_ID}")},
                {"name": "main", "containerID": format!("containerd://{container_id}")},
            ],
        },
    })
}

fn start_agent(folder: &Path, server: SocketAddr, api_url: &str) -> RunningProgram {
    let config = format!(
        "servers: [{{name: server, url: 'http://{server}'}}]
spool: {{folder: spool, max_bytes: 16MiB, min_free: 0%}}
receive: {{listen_address: '127.0.0.1:0'}}
operator: {{listen_address: '127.0.0.1:0'}}
scrape_configs:
- job_name: pods
  kubernetes_sd_configs: [{{role: pod, api_server: '{api_url}'}}]
  relabel_configs: [{{source_labels: [__address__], regex: '.*', action: drop}}]
sampler:
  enabled: true
  window_interval: 2s
  frequency_hz: 97
  max_cpu_percent: 50
  relabel_configs:
  - {{source_labels: [__meta_process_executable_name], regex: known-program, action: keep}}
  - {{source_labels: [__meta_container_id], target_label: container_id}}
  - {{source_labels: [__meta_container_runtime], target_label: container_runtime}}
  - {{source_labels: [__meta_kubernetes_pod_label_app], target_label: app}}
"
    );
    let file = folder.join("agent.yaml");
    fs::write(&file, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_athanor-agent"));
    command.arg("--config").arg(&file).env_clear().env("NODE_NAME", NODE).current_dir(folder);
    RunningProgram(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

#[tokio::test]
async fn profiles_of_a_sampled_process_have_the_labels_of_its_pod() {
    if !can_sample() {
        return;
    }
    let Some(cgroup) = ContainerCgroup::create() else {
        println!("skip: no cgroup2 to create a container in");
        return;
    };
    let program = BusyProgram::compile();
    let api = ApiStandIn::start(ApiSettings::default()).await;
    api.apply(pod("other", "00000000-1111-2222-3333-444444444444", &"2".repeat(64)));
    api.apply(pod("cart-x2", POD_UID, CONTAINER_ID));
    let mut server = PushServer::start().await;
    let running = cgroup.start(&program);
    let folder = tempfile::tempdir().unwrap();
    let _agent = start_agent(folder.path(), server.address, &api.url());
    let labels = server.wait_for_pod().await;
    let truth = [
        ("__name__", "process_cpu"),
        ("app", "cart-x2"),
        ("container", "main"),
        ("container_id", CONTAINER_ID),
        ("container_runtime", "containerd"),
        ("namespace", "shop"),
        ("node", NODE),
        ("pod", "cart-x2"),
        ("service_name", "shop/main"),
    ];
    let truth = truth.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(labels, BTreeMap::from(truth));
    drop(running);
}
