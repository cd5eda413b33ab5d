//! The command `record`: samples for a time and writes a file.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fmt::Write;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use athanor_agent_ebpf::layout::{LostReason, StackEnd};
use athanor_agent_ebpf::profiles::{UnnamedFrames, encode_pprof, write_folded, write_svg};
use athanor_agent_ebpf::sampler::{Sampler, SamplerConfig, SamplerStats};
use athanor_agent_ebpf::window::{SampleWindow, SampledProcess};
use athanor_chassis::{Clock, ErrorCode, Random, Status};
use athanor_profile::formats::pprof::gzip;
use athanor_profile::render::printable::escape_control;

use super::labels::HostFacts;
use super::labels::LabelSettings;
use super::labels::ProcessLabeler;
use super::sample_source::{SampleSource, sampler_config};
use super::window_merge::WindowMerge;
use crate::config::SamplerSettings;

/// Interval of handling events. It is short, because a recording is, and each program is new to it.
const EVENT_INTERVAL: Duration = Duration::from_millis(20);
/// Length of a window. The kernel counts the stacks of one.
const WINDOW_INTERVAL: Duration = Duration::from_secs(10);

/// Recording to make.
#[derive(Clone, Debug)]
pub struct RecordRequest {
    /// Length. None lasts until the command ends.
    pub length: Option<Duration>,
    /// Samples per second and CPU.
    pub frequency_hz: u32,
    /// Processes to record.
    pub selection: RecordSelection,
    /// File to write. Its name chooses the format.
    pub file: PathBuf,
}

/// Processes to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordSelection {
    /// All processes and the kernel.
    Host,
    /// Process with an id.
    Process(u32),
    /// Processes whose default `service_name` is this.
    Service(String),
    /// Command to start, with the processes that it starts.
    Command(Vec<OsString>),
}

/// Format of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFormat {
    /// pprof, compressed with gzip.
    Pprof,
    /// Folded stacks with the number of samples.
    Folded,
    /// Flame graph.
    Svg,
}

/// Suffixes of file names with their formats.
const FORMAT_SUFFIXES: [(&str, RecordFormat); 5] = [
    (".pb.gz", RecordFormat::Pprof),
    (".pprof", RecordFormat::Pprof),
    (".folded", RecordFormat::Folded),
    (".txt", RecordFormat::Folded),
    (".svg", RecordFormat::Svg),
];

impl RecordFormat {
    /// Returns the format that the name of a file chooses.
    ///
    /// # Errors
    ///
    /// The suffix is unknown. The message lists the known ones.
    pub fn from_path(file: &Path) -> Result<Self, Status> {
        let name = file.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        let found = FORMAT_SUFFIXES.iter().find(|(suffix, _)| name.ends_with(suffix));
        found.map(|(_, format)| *format).ok_or_else(|| {
            let suffixes = FORMAT_SUFFIXES.map(|(suffix, _)| suffix).join(", ");
            let message =
                format!("{}: the suffix names no format; end the name in {suffixes}", file.display());
            Status::new(ErrorCode::Invalid, message)
        })
    }

    fn encode(self, window: &SampleWindow) -> Vec<u8> {
        let stacks = window.stacks.iter();
        match self {
            Self::Pprof => gzip(&encode_pprof(window, stacks, UnnamedFrames::Display)),
            Self::Folded => write_folded(window, stacks).into_bytes(),
            Self::Svg => write_svg(window, stacks, "athanor-agent record").into_bytes(),
        }
    }
}

/// Records and writes the file. Returns the totals and losses as text. An interrupt ends the recording early.
///
/// # Errors
///
/// The kernel refuses, the command does not start, or the file cannot be written.
pub async fn record(request: RecordRequest, interrupt: impl Future<Output = ()>) -> Result<String, Status> {
    let format = RecordFormat::from_path(&request.file)?;
    let clock = Clock::system();
    let mut chooser = ProcessChooser::new(&request.selection);
    let process = match request.selection {
        RecordSelection::Process(pid) => Some(existing_process(pid)?),
        _ => None,
    };
    let mut source = start_sampler(request.frequency_hz, process, &clock)?;
    let child = match &request.selection {
        RecordSelection::Command(command) => Some(start_command(command)?),
        _ => None,
    };
    chooser.root = child.as_ref().map(Child::id);
    let recording = Recording { clock, length: request.length, child };
    let merge = recording.run(&mut source, &mut chooser, interrupt).await?;
    let Some((window, left_out)) = merge.finish() else { return Ok("nothing was recorded\n".to_owned()) };
    let bytes = format.encode(&window);
    std::fs::write(&request.file, &bytes).map_err(|error| {
        let message = format!("{}: cannot write the recording: {error}", request.file.display());
        Status::new(ErrorCode::Unavailable, message)
    })?;
    Ok(format_totals(&window, left_out, &source.stats(), &request.file))
}

/// Starts a sampler without an agent.
///
/// # Errors
///
/// The kernel refuses.
pub(super) fn start_sampler(
    frequency_hz: u32,
    process: Option<u32>,
    clock: &Clock,
) -> Result<Sampler, Status> {
    let settings = SamplerSettings { frequency_hz, max_cpu_percent: 100.0, ..SamplerSettings::default() };
    let config = SamplerConfig { process, ..sampler_config(&settings) };
    Sampler::start(config, clock.clone(), Random::system()).map_err(|error| {
        let message = format!("{error}; athanor-agent check --host shows what is missing");
        Status::new(ErrorCode::Precondition, message)
    })
}

fn existing_process(pid: u32) -> Result<u32, Status> {
    if Path::new("/proc").join(pid.to_string()).exists() {
        return Ok(pid);
    }
    Err(Status::new(ErrorCode::NotFound, format!("--pid: no process has the id {pid}")))
}

fn start_command(command: &[OsString]) -> Result<Child, Status> {
    let program = command.first().cloned().unwrap_or_default();
    let started = Command::new(&program).args(command.iter().skip(1)).spawn();
    started.map_err(|error| {
        let message = format!("{}: cannot start the command: {error}", Path::new(&program).display());
        Status::new(ErrorCode::NotFound, message)
    })
}

/// Running recording.
pub(super) struct Recording {
    pub(super) clock: Clock,
    /// Length. None lasts until the child ends.
    pub(super) length: Option<Duration>,
    pub(super) child: Option<Child>,
}

impl Recording {
    /// Samples until the end of the time, the end of the child, or the interrupt.
    pub(super) async fn run(
        mut self,
        source: &mut dyn SampleSource,
        chooser: &mut ProcessChooser,
        interrupt: impl Future<Output = ()>,
    ) -> Result<WindowMerge, Status> {
        let mut merge = WindowMerge::default();
        let start = self.clock.monotonic();
        let end = self.length.map(|length| start + length);
        let mut window_end = start + WINDOW_INTERVAL;
        tokio::pin!(interrupt);
        let mut is_interrupted = false;
        while !is_interrupted && !self.has_child_ended() {
            let now = self.clock.monotonic();
            if end.is_some_and(|end| now >= end) {
                break;
            }
            if now >= window_end {
                window_end = now + WINDOW_INTERVAL;
                merge_window(source, &mut merge, chooser)?;
            }
            let wait = end.map_or(EVENT_INTERVAL, |end| EVENT_INTERVAL.min(end - now));
            tokio::select! {
                () = &mut interrupt => is_interrupted = true,
                () = self.clock.sleep(wait) => source.handle_events(),
            }
        }
        merge_window(source, &mut merge, chooser)?;
        Ok(merge)
    }

    fn has_child_ended(&mut self) -> bool {
        // A child whose state cannot be read counts as ended, so that the recording does end.
        self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }
}

fn merge_window(
    source: &mut dyn SampleSource,
    merge: &mut WindowMerge,
    chooser: &mut ProcessChooser,
) -> Result<(), Status> {
    let window = source.close_window();
    let window = window.map_err(|error| Status::new(ErrorCode::Unavailable, error.to_string()))?;
    chooser.begin_window(&window);
    merge.add(window, |process| chooser.is_chosen(process));
    Ok(())
}

/// Choice of the processes of a recording.
pub(super) struct ProcessChooser {
    service: Option<String>,
    /// Process of the command.
    pub(super) root: Option<u32>,
    /// Processes of the command: the root and its descendants.
    family: HashSet<u32>,
    labeler: ProcessLabeler,
}

impl ProcessChooser {
    pub(super) fn new(selection: &RecordSelection) -> Self {
        let service = match selection {
            RecordSelection::Service(service) => Some(service.clone()),
            _ => None,
        };
        let host = HostFacts::read(Path::new("/"), None);
        let labeler = ProcessLabeler::new(host, Arc::new(()), LabelSettings::default());
        Self { service, root: None, family: HashSet::new(), labeler }
    }

    /// Adds the descendants of the command that are in a window. A child may be listed before its parent.
    pub(super) fn begin_window(&mut self, window: &SampleWindow) {
        self.labeler.begin_window();
        self.family.extend(self.root);
        loop {
            let before = self.family.len();
            for process in &window.processes {
                if self.family.contains(&process.facts.parent_pid) {
                    self.family.insert(process.facts.identity.pid);
                }
            }
            if self.root.is_none() || self.family.len() == before {
                return;
            }
        }
    }

    pub(super) fn is_chosen(&mut self, process: &SampledProcess) -> bool {
        if self.root.is_some() {
            return self.family.contains(&process.facts.identity.pid);
        }
        let Some(service) = &self.service else { return true };
        let decision = self.labeler.decision(&process.facts, None);
        decision.is_ok_and(|key| key.labels.get("service_name") == Some(service))
    }
}

/// Returns the totals and losses of a recording.
fn format_totals(window: &SampleWindow, left_out: u64, stats: &SamplerStats, file: &Path) -> String {
    let samples: u64 = window.stacks.iter().map(|stack| stack.samples).sum();
    let nanos: u64 = window.stacks.iter().map(|stack| stack.nanos).sum();
    let mut incomplete: BTreeMap<&str, u64> = BTreeMap::new();
    for stack in window.stacks.iter().filter(|stack| stack.end != StackEnd::Complete) {
        *incomplete.entry(stack.end.name()).or_default() += stack.samples;
    }
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}: {samples} samples of {} processes in {:.1} s, {:.3} s of CPU time",
        escape_control(&file.to_string_lossy()),
        window.processes.len(),
        window.duration.as_secs_f64(),
        Duration::from_nanos(nanos).as_secs_f64()
    );
    let mut lost: BTreeMap<&str, u64> =
        LostReason::ALL.iter().map(|reason| reason.name()).zip(stats.samples_lost).collect();
    lost.insert("too_many_stacks", left_out);
    for (name, counts) in [("incomplete stacks", &incomplete), ("lost samples", &lost)] {
        let counted = counts.iter().filter(|(_, count)| **count > 0);
        let texts: Vec<String> = counted.map(|(reason, count)| format!("{reason} {count}")).collect();
        let _ =
            writeln!(text, "{name}: {}", if texts.is_empty() { "none".to_owned() } else { texts.join(", ") });
    }
    text
}
