//! One window out of many, for recordings.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use athanor_agent_ebpf::frame::{FileId, PackedFrame};
use athanor_agent_ebpf::layout::StackEnd;
use athanor_agent_ebpf::processes::ProcessIdentity;
use athanor_agent_ebpf::window::{CountedStack, SampleWindow, SampledProcess};

/// Maximum number of different stacks of a recording.
const MAX_STACKS: usize = 1 << 20;

/// Stacks that are equal but for their counts.
#[derive(PartialEq, Eq, Hash)]
struct StackIdentity {
    process: u32,
    comm: Arc<str>,
    end: StackEnd,
    frames: Arc<[PackedFrame]>,
    kernel_frames: usize,
}

/// Sum of windows of one sampler.
#[derive(Default)]
pub(super) struct WindowMerge {
    sum: Option<SampleWindow>,
    processes: HashMap<ProcessIdentity, u32>,
    stacks: HashMap<StackIdentity, usize>,
    files: HashSet<FileId>,
    left_out: LeftOutSamples,
}

/// Samples that a sum of windows lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOutSamples {
    /// Samples of stacks that did not fit.
    pub(super) stacks: u64,
    /// Samples of processes that were not chosen.
    pub(super) processes: u64,
}

impl WindowMerge {
    /// Adds the stacks of the chosen processes of a window.
    pub(super) fn add(&mut self, window: SampleWindow, mut is_chosen: impl FnMut(&SampledProcess) -> bool) {
        let chosen: Vec<bool> = window.processes.iter().map(&mut is_chosen).collect();
        let SampleWindow { started_at, duration, period_nanos, processes, files, stacks, names } = window;
        let sum = self.sum.get_or_insert_with(|| SampleWindow {
            started_at,
            duration: std::time::Duration::ZERO,
            period_nanos,
            processes: Vec::new(),
            files: Vec::new(),
            stacks: Vec::new(),
            names: HashMap::new(),
        });
        sum.duration += duration;
        sum.names.extend(names);
        sum.files.extend(files.into_iter().filter(|file| self.files.insert(file.id)));
        for mut stack in stacks {
            let index = stack.process as usize;
            let Some(process) = processes.get(index).filter(|_| chosen[index]) else {
                self.left_out.processes = self.left_out.processes.saturating_add(stack.samples);
                continue;
            };
            let place = self.processes.entry(process.facts.identity).or_insert_with(|| {
                sum.processes.push(process.clone());
                (sum.processes.len() - 1) as u32
            });
            stack.process = *place;
            let identity = StackIdentity::new(&stack);
            if let Some(place) = self.stacks.get(&identity) {
                let known = &mut sum.stacks[*place];
                known.samples = known.samples.saturating_add(stack.samples);
                known.nanos = known.nanos.saturating_add(stack.nanos);
            } else if sum.stacks.len() < MAX_STACKS {
                self.stacks.insert(identity, sum.stacks.len());
                sum.stacks.push(stack);
            } else {
                self.left_out.stacks = self.left_out.stacks.saturating_add(stack.samples);
            }
        }
    }

    /// Returns the sum, and the samples that it lacks. None without a window.
    pub(super) fn finish(self) -> Option<(SampleWindow, LeftOutSamples)> {
        self.sum.map(|sum| (sum, self.left_out))
    }
}

impl StackIdentity {
    fn new(stack: &CountedStack) -> Self {
        Self {
            process: stack.process,
            comm: Arc::clone(&stack.comm),
            end: stack.end,
            frames: Arc::clone(&stack.frames),
            kernel_frames: stack.kernel_frames,
        }
    }
}
