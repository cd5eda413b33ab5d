//! Made-up processes, windows and sources.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_agent_ebpf::frame::PackedFrame;
use athanor_agent_ebpf::kernel::KernelError;
use athanor_agent_ebpf::layout::{FRAME_KERNEL_BIT, StackEnd};
use athanor_agent_ebpf::processes::{ContainerFacts, ContainerRuntime, ProcessFacts, ProcessIdentity};
use athanor_agent_ebpf::sampler::{SamplerError, SamplerStats};
use athanor_agent_ebpf::window::{CountedStack, SampleWindow, SampledProcess};
use athanor_chassis::{ErrorCode, Status, Timestamp};
use athanor_profile::Labels;
use athanor_proto::google::v1::Profile;
use athanor_proto::push::v1::PushRequest;
use parking_lot::Mutex;
use prost::Message;

use crate::sampling::{ContainerLabels, HostFacts, LabelSettings, ProcessLabeler, SampleSource};
use crate::upload::{Upload, UploadSink};

pub(super) const START: Timestamp = Timestamp::from_seconds(1_800_000_000);
pub(super) const CONTAINER_ID: &str = "0f0e0d0c0b0a0f0e0d0c0b0a0f0e0d0c0b0a0f0e0d0c0b0a0f0e0d0c0b0a0f0e";

pub(super) fn facts(pid: u32, executable: &str) -> ProcessFacts {
    ProcessFacts {
        identity: ProcessIdentity { pid, host_pid: 1000 + pid, start_nanos: u64::from(pid), exec_id: 1 },
        parent_pid: 1,
        oldest_ancestor_pid: pid,
        is_kernel_thread: false,
        comm: "comm".into(),
        command_line: "run --fast".into(),
        executable: executable.into(),
        build_id: "ab12".into(),
        compiler: "go1.22.1".into(),
        is_static: Some(true),
        is_stripped: None,
        cgroup: "/".into(),
        container: None,
        systemd_unit: "".into(),
        systemd_slice: "".into(),
        user_id: Some(33),
        environment: Vec::new(),
    }
}

pub(super) fn container() -> ContainerFacts {
    let pod_uid = Some("0f0e1234-aaaa-bbbb-cccc-0123456789ab".into());
    ContainerFacts { id: CONTAINER_ID.into(), runtime: ContainerRuntime::Containerd, pod_uid }
}

/// Returns a window in which each process has one stack with so many samples.
pub(super) fn window(processes: &[(ProcessFacts, u64)]) -> SampleWindow {
    let stack = |(index, (facts, samples)): (usize, &(ProcessFacts, u64))| CountedStack {
        process: index as u32,
        comm: Arc::clone(&facts.comm),
        end: StackEnd::Complete,
        frames: [PackedFrame(FRAME_KERNEL_BIT | (0x1000 + index as u64))].into(),
        kernel_frames: 1,
        samples: *samples,
        nanos: samples * 10,
    };
    SampleWindow {
        started_at: START,
        duration: Duration::from_secs(10),
        period_nanos: 52_631_578,
        processes: processes
            .iter()
            .map(|(facts, _)| SampledProcess { facts: Arc::new(facts.clone()) })
            .collect(),
        files: Vec::new(),
        stacks: processes.iter().enumerate().map(stack).collect(),
        names: HashMap::new(),
    }
}

pub(super) fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::new(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

pub(super) fn host() -> HostFacts {
    HostFacts {
        node: "node-1".to_owned(),
        kernel_release: "6.12.1".to_owned(),
        users: HashMap::from([(33, "web".to_owned())]),
        ..HostFacts::default()
    }
}

/// Directory whose containers become known while a test runs.
#[derive(Default)]
pub(super) struct Containers(pub(super) Mutex<HashMap<String, Labels>>);

impl ContainerLabels for Containers {
    fn container_labels(&self, container: &ContainerFacts) -> Option<Labels> {
        self.0.lock().get(&*container.id).cloned()
    }
}

pub(super) fn labeler(settings: LabelSettings) -> ProcessLabeler {
    ProcessLabeler::new(host(), Arc::new(()), settings)
}

/// Windows that the sources of a test return, and counts of their calls.
#[derive(Default)]
pub(super) struct Script {
    /// Windows in order, or the reasons why one is lost. Without one, a window is empty.
    pub(super) windows: VecDeque<Result<SampleWindow, &'static str>>,
    /// Reasons why the next starts fail.
    pub(super) failed_starts: VecDeque<&'static str>,
    pub(super) started: u32,
    pub(super) dropped: u32,
    pub(super) handled_events: u32,
    /// CPU times that the collector added.
    pub(super) costs: Vec<Duration>,
    /// Events that are left after each time of handling them.
    pub(super) has_events: bool,
    /// Makes the descriptor of the last source readable.
    pub(super) waker: Option<UnixStream>,
}

impl Script {
    pub(super) fn wake(&mut self) {
        self.waker.as_mut().unwrap().write_all(b"x").unwrap();
    }
}

/// Source that follows a script.
pub(super) struct ScriptedSource {
    script: Arc<Mutex<Script>>,
    wake: UnixStream,
    stats: SamplerStats,
}

impl ScriptedSource {
    pub(super) fn start(script: &Arc<Mutex<Script>>) -> Result<Box<dyn SampleSource>, SamplerError> {
        let mut state = script.lock();
        if let Some(reason) = state.failed_starts.pop_front() {
            return Err(SamplerError::Kernel(KernelError::Object(reason.to_owned())));
        }
        let (wake, waker) = UnixStream::pair().unwrap();
        state.waker = Some(waker);
        state.started += 1;
        let stats = SamplerStats { pages: 7, ..SamplerStats::default() };
        Ok(Box::new(Self { script: Arc::clone(script), wake, stats }))
    }
}

impl Drop for ScriptedSource {
    fn drop(&mut self) {
        self.script.lock().dropped += 1;
    }
}

impl SampleSource for ScriptedSource {
    fn wake_fd(&self) -> io::Result<OwnedFd> {
        Ok(self.wake.try_clone()?.into())
    }

    fn has_events(&self) -> bool {
        self.script.lock().has_events
    }

    fn handle_events(&mut self) {
        self.script.lock().handled_events += 1;
    }

    fn close_window(&mut self) -> Result<SampleWindow, SamplerError> {
        let next = self.script.lock().windows.pop_front().unwrap_or_else(|| Ok(window(&[])));
        let window = next.map_err(|reason| SamplerError::Kernel(KernelError::Object(reason.to_owned())))?;
        let samples: u64 = window.stacks.iter().map(|stack| stack.samples).sum();
        self.stats.samples_taken += samples + 1;
        self.stats.samples_delivered += samples;
        self.stats.samples_lost[1] += 1;
        Ok(window)
    }

    fn add_cost(&mut self, time: Duration) {
        self.script.lock().costs.push(time);
    }

    fn stats(&self) -> Arc<SamplerStats> {
        Arc::new(self.stats.clone())
    }
}

/// Sink that records uploads, or refuses them.
#[derive(Default)]
pub(super) struct RecordingSink {
    pub(super) uploads: Mutex<Vec<Upload>>,
    pub(super) is_full: Mutex<bool>,
}

#[async_trait]
impl UploadSink for RecordingSink {
    async fn store(&self, upload: Upload) -> Result<(), Status> {
        if *self.is_full.lock() {
            return Err(Status::new(ErrorCode::Exhausted, "full"));
        }
        self.uploads.lock().push(upload);
        Ok(())
    }
}

/// Profile as a server receives it.
pub(super) struct ReceivedProfile {
    pub(super) labels: Vec<(String, String)>,
    pub(super) id: String,
    pub(super) samples: i64,
    pub(super) profile: Profile,
}

impl ReceivedProfile {
    pub(super) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// Decodes the profiles of uploads.
pub(super) fn received(uploads: &[Upload]) -> Vec<ReceivedProfile> {
    let mut profiles = Vec::new();
    for upload in uploads {
        let request = PushRequest::decode(upload.body.clone()).unwrap();
        assert_eq!(request.series.len(), upload.profiles as usize);
        for series in request.series {
            let sample = &series.samples[0];
            let plain = athanor_profile::formats::pprof::inflate(&sample.raw_profile, 1 << 24).unwrap();
            let profile = Profile::decode(&*plain).unwrap();
            profiles.push(ReceivedProfile {
                labels: series.labels.into_iter().map(|label| (label.name, label.value)).collect(),
                id: sample.id.clone(),
                samples: profile.sample.iter().map(|sample| sample.value[0]).sum(),
                profile,
            });
        }
    }
    profiles
}
