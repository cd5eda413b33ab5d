//! Choice of the processes of a recording.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use athanor_agent_ebpf::window::{SampleWindow, SampledProcess};

use super::RecordSelection;
use crate::sampling::labels::{HostFacts, LabelSettings, ProcessLabeler};

/// Choice of the processes of a recording.
pub(in crate::sampling) struct ProcessChooser {
    service: Option<String>,
    /// Process of the command.
    pub(in crate::sampling) root: Option<u32>,
    /// Processes of the command, the root and its descendants, with their starts: an id may be used for another
    /// process later.
    family: HashMap<u32, u64>,
    labeler: ProcessLabeler,
}

impl ProcessChooser {
    pub(in crate::sampling) fn new(selection: &RecordSelection) -> Self {
        let service = match selection {
            RecordSelection::Service(service) => Some(service.clone()),
            _ => None,
        };
        let host = HostFacts::read(Path::new("/"), None);
        let labeler = ProcessLabeler::new(host, Arc::new(()), LabelSettings::default());
        Self { service, root: None, family: HashMap::new(), labeler }
    }

    /// Adds the descendants of the command that are in a window.
    pub(in crate::sampling) fn begin_window(&mut self, window: &SampleWindow) {
        self.labeler.begin_window();
        let Some(root) = self.root else { return };
        for process in &window.processes {
            let identity = &process.facts.identity;
            if [identity.pid, process.facts.oldest_ancestor_pid].contains(&root) {
                self.family.insert(identity.pid, identity.start_nanos);
            } else if self.family.get(&identity.pid).is_some_and(|start| *start != identity.start_nanos) {
                self.family.remove(&identity.pid);
            }
        }
        self.add_children(root, window);
    }

    /// Adds children of members whose records of forks were lost. A child may be listed before its parent.
    fn add_children(&mut self, root: u32, window: &SampleWindow) {
        loop {
            let before = self.family.len();
            for process in &window.processes {
                let parent = process.facts.parent_pid;
                if parent == root || self.family.contains_key(&parent) {
                    let identity = &process.facts.identity;
                    self.family.insert(identity.pid, identity.start_nanos);
                }
            }
            if self.family.len() == before {
                return;
            }
        }
    }

    pub(in crate::sampling) fn is_chosen(&mut self, process: &SampledProcess) -> bool {
        let identity = &process.facts.identity;
        if self.root.is_some() {
            return self.family.get(&identity.pid) == Some(&identity.start_nanos);
        }
        let Some(service) = &self.service else { return true };
        let decision = self.labeler.decision(&process.facts, None);
        decision.is_ok_and(|key| key.labels.get("service_name") == Some(service))
    }
}
