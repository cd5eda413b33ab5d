//! Stacks of a window by the labels of their profiles.

use std::collections::HashMap;
use std::sync::Arc;

use athanor_agent_ebpf::window::{CountedStack, SampleWindow};

use super::labels::ProcessLabeler;
use super::labels::{LabelDrop, SeriesKey};

/// Stacks of one profile.
pub(super) struct ProfileGroup {
    pub(super) key: Arc<SeriesKey>,
    /// Indexes of the stacks in the window.
    pub(super) stacks: Vec<usize>,
    /// Samples of the stacks.
    pub(super) samples: u64,
}

impl ProfileGroup {
    /// Splits off the stacks after the first `limit`. Returns nothing if there are no more.
    pub(super) fn split_off(&mut self, limit: usize, window: &SampleWindow) -> Option<Self> {
        if self.stacks.len() <= limit {
            return None;
        }
        let stacks = self.stacks.split_off(limit);
        let counts = stacks.iter().filter_map(|&index| window.stacks.get(index)).map(|stack| stack.samples);
        let samples = counts.fold(0, u64::saturating_add);
        self.samples = self.samples.saturating_sub(samples);
        Some(Self { key: Arc::clone(&self.key), stacks, samples })
    }
}

/// Process of a stack, and its thread name if stacks are counted by it.
#[derive(PartialEq, Eq, Hash)]
struct StackOwner {
    process: u32,
    thread: Option<Arc<str>>,
}

/// Stacks of a window, by profile.
#[derive(Default)]
pub(super) struct WindowGroups {
    /// Groups, sorted by tenant and labels.
    pub(super) groups: Vec<ProfileGroup>,
    /// Samples in no profile, in the order of [`LabelDrop::ALL`].
    pub(super) dropped: [u64; LabelDrop::ALL.len()],
}

impl WindowGroups {
    /// Groups the stacks of a window.
    pub(super) fn new(window: &SampleWindow, labeler: &mut ProcessLabeler, by_thread: bool) -> Self {
        labeler.begin_window();
        let mut result = Self::default();
        let mut places: HashMap<Arc<SeriesKey>, usize> = HashMap::new();
        // Most processes have several stacks.
        let mut decided: HashMap<StackOwner, Result<usize, LabelDrop>> = HashMap::new();
        for (index, stack) in window.stacks.iter().enumerate() {
            let thread = by_thread.then(|| Arc::clone(&stack.comm));
            let place = *decided
                .entry(StackOwner { process: stack.process, thread: thread.clone() })
                .or_insert_with(|| {
                    let process =
                        window.processes.get(stack.process as usize).ok_or(LabelDrop::UnknownProcess)?;
                    let key = labeler.decision(&process.facts, thread.as_ref())?;
                    Ok(*places.entry(Arc::clone(&key)).or_insert_with(|| {
                        result.groups.push(ProfileGroup { key, stacks: Vec::new(), samples: 0 });
                        result.groups.len() - 1
                    }))
                });
            result.add(index, stack, place);
        }
        result.groups.sort_by(|left, right| left.key.cmp(&right.key));
        result
    }

    fn add(&mut self, index: usize, stack: &CountedStack, place: Result<usize, LabelDrop>) {
        let group = match place {
            Ok(place) => self.groups.get_mut(place),
            Err(reason) => {
                let dropped = &mut self.dropped[reason as usize];
                *dropped = dropped.saturating_add(stack.samples);
                return;
            }
        };
        if let Some(group) = group {
            group.stacks.push(index);
            group.samples = group.samples.saturating_add(stack.samples);
        }
    }
}
