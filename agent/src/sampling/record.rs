//! The command `record`: samples for a time and writes a file.

mod process_chooser;
mod stopped_command;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use athanor_agent_ebpf::layout::{LostReason, StackEnd};
use athanor_agent_ebpf::profiles::{UnnamedFrames, encode_pprof, write_folded, write_svg};
use athanor_agent_ebpf::sampler::{Sampler, SamplerConfig, SamplerError, SamplerStats};
use athanor_agent_ebpf::window::SampleWindow;
use athanor_chassis::{Clock, ErrorCode, Random, Status};
use athanor_profile::formats::pprof::gzip;
use athanor_profile::render::printable::escape_control;

use super::sample_source::{SampleSource, sampler_config};
use super::window_merge::WindowMerge;
use crate::agent::privileges::keep_sampler_capabilities;
use crate::config::SamplerSettings;
use stopped_command::StoppedCommand;

pub(super) use process_chooser::ProcessChooser;
pub use stopped_command::{RUN_STOPPED, run_stopped};

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

/// Records and writes the file. Returns the totals and losses as text. An interrupt ends the recording early. `path` is
/// the variable `PATH`, in which the command is looked up.
///
/// File and command belong to the caller: they are opened and started before the process drops its capabilities. The
/// calling thread must be the only one.
///
/// # Errors
///
/// The kernel refuses, the command does not start, or the file cannot be written.
pub async fn record(
    request: RecordRequest,
    path: Option<&str>,
    interrupt: impl Future<Output = ()>,
) -> Result<String, Status> {
    let format = RecordFormat::from_path(&request.file)?;
    let clock = Clock::system();
    let mut chooser = ProcessChooser::new(&request.selection);
    let process = match request.selection {
        RecordSelection::Process(pid) => Some(existing_process(pid)?),
        _ => None,
    };
    let output = OutputFile::open(&request.file)?;
    let command = match &request.selection {
        RecordSelection::Command(command) => Some(StoppedCommand::start(command, path)?),
        _ => None,
    };
    chooser.root = command.as_ref().map(StoppedCommand::pid);
    let mut source = start_sampler(request.frequency_hz, process, &clock)?;
    let child = match command {
        Some(command) => command.run()?,
        None => None,
    };
    let recording = Recording { clock, length: request.length, child };
    let recorded = recording.run(&mut source, &mut chooser, interrupt).await?;
    output.write(&format.encode(&recorded.window))?;
    let mut text = recorded.format_totals(&source.stats(), &request.file);
    if matches!(request.selection, RecordSelection::Service(_) | RecordSelection::Command(_)) {
        let _ = writeln!(text, "samples of other processes: {}", recorded.other_samples);
    }
    Ok(text)
}

/// Starts a sampler without an agent, with the capabilities of a sampler only. The calling thread must be the only one.
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
    let kernel_symbols = keep_sampler_capabilities()?;
    let mut sampler = Sampler::start(config, clock.clone(), Random::system()).map_err(|error| {
        let message = format!("{error}; athanor-agent check --host shows what is missing");
        Status::new(ErrorCode::Precondition, message)
    })?;
    if let Some(file) = kernel_symbols {
        sampler.set_kernel_symbols(file);
    }
    Ok(sampler)
}

fn existing_process(pid: u32) -> Result<u32, Status> {
    if Path::new("/proc").join(pid.to_string()).exists() {
        return Ok(pid);
    }
    Err(Status::new(ErrorCode::NotFound, format!("--pid: no process has the id {pid}")))
}

/// File of a recording. It keeps its content until the recording is complete.
struct OutputFile {
    file: File,
    path: PathBuf,
}

impl OutputFile {
    fn open(path: &Path) -> Result<Self, Status> {
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| cannot_write(path, &error))?;
        Ok(Self { file, path: path.to_owned() })
    }

    fn write(mut self, bytes: &[u8]) -> Result<(), Status> {
        let written = self.file.write_all(bytes).and_then(|()| {
            // The rest of a longer recording. A pipe has none.
            let is_regular = self.file.metadata()?.is_file();
            if is_regular { self.file.set_len(bytes.len() as u64) } else { Ok(()) }
        });
        written.map_err(|error| cannot_write(&self.path, &error))
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Status {
    let message = format!("{}: cannot write the recording: {error}", path.display());
    Status::new(ErrorCode::Unavailable, message)
}

/// Running recording.
pub(super) struct Recording {
    pub(super) clock: Clock,
    /// Length. None lasts until the child ends.
    pub(super) length: Option<Duration>,
    pub(super) child: Option<Child>,
}

impl Recording {
    /// Samples until the end of the time, the end of the child, or the interrupt. A window that cannot be read is
    /// counted, and the recording goes on.
    ///
    /// # Errors
    ///
    /// No window can be read.
    pub(super) async fn run(
        mut self,
        source: &mut dyn SampleSource,
        chooser: &mut ProcessChooser,
        interrupt: impl Future<Output = ()>,
    ) -> Result<RecordedWindows, Status> {
        let mut merge = WindowMerge::default();
        let mut losses = WindowLosses::default();
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
                losses.add(merge_window(source, &mut merge, chooser));
            }
            let wait = end.map_or(EVENT_INTERVAL, |end| EVENT_INTERVAL.min(end - now));
            tokio::select! {
                () = &mut interrupt => is_interrupted = true,
                () = self.clock.sleep(wait) => source.handle_events(),
            }
        }
        losses.add(merge_window(source, &mut merge, chooser));
        let error = losses.last_error.unwrap_or_default();
        let Some((window, left_out)) = merge.finish() else {
            return Err(Status::new(ErrorCode::Unavailable, error));
        };
        Ok(RecordedWindows {
            window,
            left_out_samples: left_out.stacks,
            other_samples: left_out.processes,
            lost_windows: losses.windows,
            last_error: error,
        })
    }

    fn has_child_ended(&mut self) -> bool {
        // A child whose state cannot be read counts as ended, so that the recording does end.
        self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }
}

/// Windows that could not be read.
#[derive(Default)]
struct WindowLosses {
    windows: u64,
    last_error: Option<String>,
}

impl WindowLosses {
    fn add(&mut self, merged: Result<(), SamplerError>) {
        if let Err(error) = merged {
            self.windows += 1;
            self.last_error = Some(error.to_string());
        }
    }
}

fn merge_window(
    source: &mut dyn SampleSource,
    merge: &mut WindowMerge,
    chooser: &mut ProcessChooser,
) -> Result<(), SamplerError> {
    let window = source.close_window()?;
    chooser.begin_window(&window);
    merge.add(window, |process| chooser.is_chosen(process));
    Ok(())
}

/// Sum of the windows of a recording, with what it lacks.
pub(super) struct RecordedWindows {
    pub(super) window: SampleWindow,
    /// Samples of stacks that did not fit.
    pub(super) left_out_samples: u64,
    /// Samples of processes that were not chosen.
    pub(super) other_samples: u64,
    pub(super) lost_windows: u64,
    /// Reason why the last of these windows was lost.
    pub(super) last_error: String,
}

impl RecordedWindows {
    /// Returns the totals and losses.
    pub(super) fn format_totals(&self, stats: &SamplerStats, file: &Path) -> String {
        let stacks = &self.window.stacks;
        let samples: u64 = stacks.iter().map(|stack| stack.samples).sum();
        let nanos: u64 = stacks.iter().map(|stack| stack.nanos).sum();
        let mut incomplete: BTreeMap<&str, u64> = BTreeMap::new();
        for stack in stacks.iter().filter(|stack| stack.end != StackEnd::Complete) {
            *incomplete.entry(stack.end.name()).or_default() += stack.samples;
        }
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{}: {samples} samples of {} processes in {:.1} s, {:.3} s of CPU time",
            escape_control(&file.to_string_lossy()),
            self.window.processes.len(),
            self.window.duration.as_secs_f64(),
            Duration::from_nanos(nanos).as_secs_f64()
        );
        let mut lost: BTreeMap<&str, u64> =
            LostReason::ALL.iter().map(|reason| reason.name()).zip(stats.samples_lost).collect();
        lost.insert("too_many_stacks", self.left_out_samples);
        for (name, counts) in [("incomplete stacks", &incomplete), ("lost samples", &lost)] {
            let counted = counts.iter().filter(|(_, count)| **count > 0);
            let texts: Vec<String> = counted.map(|(reason, count)| format!("{reason} {count}")).collect();
            let _ = writeln!(
                text,
                "{name}: {}",
                if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
            );
        }
        if self.lost_windows > 0 {
            let error = escape_control(&self.last_error);
            let _ = writeln!(text, "lost windows: {}, the last one because: {error}", self.lost_windows);
        }
        text
    }
}
