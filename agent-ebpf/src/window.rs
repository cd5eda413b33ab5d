//! Counted stacks of one window.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::Timestamp;

use crate::frame::{FileId, FrameCode, PackedFrame};
use crate::layout::StackEnd;

/// Result of one window: every stack that was sampled, with its count.
#[derive(Clone, Debug)]
pub struct SampleWindow {
    /// Wall time of its start.
    pub started_at: Timestamp,
    /// Length by the monotonic clock.
    pub duration: Duration,
    /// Period of the clock in nanoseconds.
    pub period_nanos: u64,
    /// Processes of the stacks.
    pub processes: Vec<SampledProcess>,
    /// Files of the frames.
    pub files: Vec<SampledFile>,
    /// Stacks.
    pub stacks: Vec<CountedStack>,
    /// Names of kernel and file frames. A frame without a name is not in it.
    pub names: HashMap<FrameCode, FrameName>,
}

/// Process as it was while it was sampled: a new one after each exec.
#[derive(Clone, Debug)]
pub struct SampledProcess {
    /// Identity and what is known of it.
    pub facts: Arc<crate::processes::ProcessFacts>,
}

/// Object file that frames refer to.
#[derive(Clone, Debug)]
pub struct SampledFile {
    /// Number in the frames.
    pub id: FileId,
    /// Path as the process saw it.
    pub path: Arc<str>,
    /// Build id in hex. A hash of both ends and the size if the file has none.
    pub build_id: Arc<str>,
}

/// Stack with its count.
#[derive(Clone, Debug)]
pub struct CountedStack {
    /// Index of the process.
    pub process: u32,
    /// Name of the thread, if requested, else of the process.
    pub comm: Arc<str>,
    /// Reason why the stack ended.
    pub end: StackEnd,
    /// Frames, kernel before user, innermost first.
    pub frames: Arc<[PackedFrame]>,
    /// Number of kernel frames.
    pub kernel_frames: usize,
    /// Samples seen.
    pub samples: u64,
    /// Estimated CPU time.
    pub nanos: u64,
}

/// Name of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameName {
    /// Function, demangled.
    pub function: Arc<str>,
    /// Function as in the symbol table, if it differs.
    pub system_name: Option<Arc<str>>,
    /// Kernel module, `[kernel]`, or empty for files.
    pub module: Arc<str>,
}

impl FrameName {
    /// Returns the bytes of its texts.
    pub fn text_bytes(&self) -> usize {
        let system_name = self.system_name.as_ref().map_or(0, |name| name.len());
        self.function.len() + system_name + self.module.len()
    }
}
