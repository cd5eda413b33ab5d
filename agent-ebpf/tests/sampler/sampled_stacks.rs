//! Stacks of windows by process, with names instead of addresses.

use std::collections::HashMap;

use athanor_agent_ebpf::frame::FrameCode;
use athanor_agent_ebpf::layout::StackEnd;
use athanor_agent_ebpf::window::{CountedStack, SampleWindow};

/// Frame of a user stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedFrame {
    /// Function. `[anonymous]` outside of files, empty without a name.
    pub function: String,
    /// Path of the file. Empty outside of files.
    pub file: String,
}

/// Counted user stack of one window.
#[derive(Clone, Debug)]
pub struct NamedStack {
    /// Frames, outermost first, without those of the kernel.
    pub frames: Vec<NamedFrame>,
    /// Reason why the stack ended.
    pub end: StackEnd,
    /// Samples.
    pub samples: u64,
}

impl NamedStack {
    /// Returns the named functions of the file whose path ends with `file` and of anonymous memory, without repetitions
    /// of a function by itself.
    pub fn functions_of(&self, file: &str) -> Vec<&str> {
        let own = self.frames.iter().filter(|frame| frame.file.is_empty() || frame.file.ends_with(file));
        let mut names: Vec<&str> =
            own.map(|frame| frame.function.as_str()).filter(|name| !name.is_empty()).collect();
        names.dedup();
        names
    }

    /// Returns whether the stack has functions with these words in their names, in this order from the root.
    pub fn has_in_order(&self, words: &[&str]) -> bool {
        let mut rest = words.iter().peekable();
        for frame in &self.frames {
            if rest.peek().is_some_and(|word| has_word(&frame.function, word)) {
                rest.next();
            }
        }
        rest.peek().is_none()
    }

    /// Returns a line for failures.
    pub fn describe(&self) -> String {
        let frames: Vec<String> = self.frames.iter().map(NamedFrame::describe).collect();
        format!("{:6} {:<20} {}", self.samples, self.end.name(), frames.join(";"))
    }
}

impl NamedFrame {
    fn describe(&self) -> String {
        if self.function.is_empty() {
            return format!("<{}>", self.file.rsplit('/').next().unwrap_or_default());
        }
        self.function.clone()
    }
}

/// Returns whether a name has a word that no letter, digit or underscore continues.
pub fn has_word(name: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    name.match_indices(word).any(|(start, _)| {
        let before = name[..start].chars().next_back().is_some_and(is_word);
        let after = name[start + word.len()..].chars().next().is_some_and(is_word);
        !before && !after
    })
}

/// Stacks of one process, window by window.
#[derive(Debug, Default)]
pub struct ProcessStacks {
    /// Stacks per window, oldest first.
    pub windows: Vec<Vec<NamedStack>>,
}

impl ProcessStacks {
    /// Returns all stacks.
    pub fn all(&self) -> impl Iterator<Item = &NamedStack> {
        self.windows.iter().flatten()
    }

    /// Returns the stacks of the windows that begin after `warm_up` samples.
    pub fn after(&self, warm_up: u64) -> impl Iterator<Item = &NamedStack> {
        let mut before = 0;
        let warm = self.windows.iter().position(|window| {
            let is_warm = before >= warm_up;
            before += window.iter().map(|stack| stack.samples).sum::<u64>();
            is_warm
        });
        self.windows[warm.unwrap_or(self.windows.len())..].iter().flatten()
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        self.all().map(|stack| stack.samples).sum()
    }
}

/// Adds the stacks of a window to those of their processes, by pid.
pub fn add_window(stacks: &mut HashMap<u32, ProcessStacks>, window: &SampleWindow) {
    let files: HashMap<_, _> = window.files.iter().map(|file| (file.id, file.path.as_ref())).collect();
    for process in stacks.values_mut() {
        process.windows.push(Vec::new());
    }
    for stack in &window.stacks {
        let pid = window.processes[stack.process as usize].facts.identity.pid;
        let process = stacks.entry(pid).or_default();
        if process.windows.is_empty() {
            process.windows.push(Vec::new());
        }
        let named = name_stack(window, &files, stack);
        process.windows.last_mut().unwrap().push(named);
    }
}

fn name_stack(
    window: &SampleWindow,
    files: &HashMap<athanor_agent_ebpf::frame::FileId, &str>,
    stack: &CountedStack,
) -> NamedStack {
    let user = &stack.frames[stack.kernel_frames..];
    let name = |code: FrameCode| window.names.get(&code).map_or("", |name| name.function.as_ref());
    let frames = user.iter().rev().map(|frame| match frame.code() {
        FrameCode::File { file, .. } => {
            let path = files.get(&file).unwrap_or_else(|| panic!("{file:?} is in files of the window"));
            NamedFrame { function: name(frame.code()).to_owned(), file: (*path).to_owned() }
        }
        FrameCode::Other(_) => NamedFrame { function: "[anonymous]".into(), file: String::new() },
        FrameCode::Kernel(address) => panic!("kernel address {address:#x} among user frames"),
    });
    NamedStack { frames: frames.collect(), end: stack.end, samples: stack.samples }
}
