//! Labels of processes, decided once per process.

use std::collections::HashMap;
use std::sync::Arc;

use athanor_agent_ebpf::processes::{ProcessFacts, ProcessIdentity};

use super::container_labels::ContainerLabels;
use super::host_facts::HostFacts;
use super::label_decision::{LabelDecision, LabelSettings};
use super::process_labels::ProcessContext;

/// Maximum number of decisions that are kept.
const MAX_DECISIONS: usize = 32_768;
/// Windows after which the decision about an idle process is dropped.
const MAX_IDLE_WINDOWS: u64 = 60;
/// Windows for which a decision about an unknown container is made again. Discovery learns of a container after its
/// first process has started.
const MAX_CONTAINER_LOOKUPS: u32 = 12;

/// Process, or thread name of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DecisionKey {
    identity: ProcessIdentity,
    thread: Option<Arc<str>>,
}

struct DecisionEntry {
    /// Facts that the decision was made of. An exec or another cgroup changes them.
    facts: Arc<ProcessFacts>,
    decision: LabelDecision,
    /// Lookups of a container that is still unknown.
    lookups: u32,
    is_final: bool,
    last_window: u64,
}

/// Labels of processes by their facts. Keeps the decisions.
pub struct ProcessLabeler {
    host: HostFacts,
    containers: Arc<dyn ContainerLabels>,
    settings: LabelSettings,
    entries: HashMap<DecisionKey, DecisionEntry>,
    /// Number of the window.
    window: u64,
}

impl ProcessLabeler {
    /// Creates a labeler without decisions.
    pub fn new(host: HostFacts, containers: Arc<dyn ContainerLabels>, settings: LabelSettings) -> Self {
        Self { host, containers, settings, entries: HashMap::new(), window: 0 }
    }

    /// Replaces the settings. Other settings decide about all processes again.
    pub fn set_settings(&mut self, settings: LabelSettings) {
        if self.settings != settings {
            self.settings = settings;
            self.entries.clear();
        }
    }

    /// Returns the number of decisions that are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no decision is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Begins a window, and drops decisions about processes that were idle for long.
    pub(in crate::sampling) fn begin_window(&mut self) {
        self.window += 1;
        let oldest = self.window.saturating_sub(MAX_IDLE_WINDOWS);
        self.entries.retain(|_, entry| entry.last_window >= oldest);
        if self.entries.len() > MAX_DECISIONS {
            self.entries.retain(|_, entry| entry.last_window + 1 >= self.window);
        }
        if self.entries.len() > MAX_DECISIONS {
            self.entries.clear();
        }
    }

    /// Returns the decision about a process, with the thread name if stacks are counted by it.
    pub(in crate::sampling) fn decision(
        &mut self,
        facts: &Arc<ProcessFacts>,
        thread: Option<&Arc<str>>,
    ) -> LabelDecision {
        let key = DecisionKey { identity: facts.identity, thread: thread.cloned() };
        let window = self.window;
        let mut lookups = 0;
        if let Some(entry) = self.entries.get_mut(&key) {
            let is_same = Arc::ptr_eq(&entry.facts, facts) || entry.facts == *facts;
            let was_tried = entry.is_final || entry.last_window == window;
            if is_same && was_tried {
                entry.last_window = window;
                return entry.decision.clone();
            }
            if is_same {
                lookups = entry.lookups;
            }
        }
        let entry = self.decide(facts, thread, lookups);
        let decision = entry.decision.clone();
        if self.entries.len() < MAX_DECISIONS || self.entries.contains_key(&key) {
            self.entries.insert(key, entry);
        }
        decision
    }

    fn decide(&self, facts: &Arc<ProcessFacts>, thread: Option<&Arc<str>>, lookups: u32) -> DecisionEntry {
        let container = facts.container.as_ref();
        let container = container.map(|container| self.containers.container_labels(container));
        let is_unknown = matches!(container, Some(None));
        let container = container.flatten();
        let context = ProcessContext {
            facts,
            thread: thread.map(|thread| &**thread),
            container: container.as_ref(),
            host: &self.host,
        };
        let lookups = lookups + 1;
        DecisionEntry {
            facts: Arc::clone(facts),
            decision: self.settings.decide(facts, &context.labels()),
            lookups,
            is_final: !is_unknown || lookups >= MAX_CONTAINER_LOOKUPS,
            last_window: self.window,
        }
    }
}
