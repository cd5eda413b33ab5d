//! Builder of labels while rules change them.

use super::{MAX_LABEL_BYTES_DURING_RELABEL, MAX_LABELS_DURING_RELABEL, RelabelLimitError};
use crate::Labels;

/// Original labels and their changes. If two labels get the same name, the last one set wins, so the order of
/// changes is kept.
pub(super) struct LabelsBuilder<'l> {
    base: &'l Labels,
    set: Vec<(String, String)>,
    gone: Vec<String>,
}

impl<'l> LabelsBuilder<'l> {
    pub(super) fn new(base: &'l Labels) -> Self {
        LabelsBuilder { base, set: Vec::new(), gone: Vec::new() }
    }

    /// Returns a label's value; empty if the label is absent.
    pub(super) fn get(&self, name: &str) -> &str {
        let set = self.set.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        set.or_else(|| self.of_base(name)).unwrap_or_default()
    }

    fn of_base(&self, name: &str) -> Option<&str> {
        self.base.get(name).filter(|_| !self.gone.iter().any(|gone| gone == name))
    }

    /// Sets a value. An empty one removes the label.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        let known = self.set.iter().position(|(known, _)| known == name);
        match known {
            Some(at) if value.is_empty() => drop(self.set.remove(at)),
            Some(at) => value.clone_into(&mut self.set[at].1),
            None if value.is_empty() => {}
            None => self.set.push((name.to_owned(), value.to_owned())),
        }
        if value.is_empty() && self.of_base(name).is_some() {
            self.gone.push(name.to_owned());
        }
    }

    /// Returns an error if the labels are too many or too long after `rules` rules. A changed label counts
    /// twice.
    pub(super) fn check(&self, rules: usize) -> Result<(), RelabelLimitError> {
        let set: usize = self.set.iter().map(|(name, value)| name.len() + value.len()).sum();
        let labels = self.base.len() + self.set.len();
        let bytes = self.base.text_bytes() + set;
        if labels > MAX_LABELS_DURING_RELABEL || bytes > MAX_LABEL_BYTES_DURING_RELABEL {
            Err(RelabelLimitError { rules, labels, bytes })
        } else {
            Ok(())
        }
    }

    /// Returns all labels: first the unchanged ones by name, then the others in the order in which they were
    /// set.
    pub(super) fn current_labels(&self) -> Vec<(String, String)> {
        let unchanged = self
            .base
            .iter()
            .filter(|(name, _)| self.of_base(name).is_some() && !self.set.iter().any(|(set, _)| set == name));
        let unchanged = unchanged.map(|(name, value)| (name.to_owned(), value.to_owned()));
        unchanged.chain(self.set.iter().cloned()).collect()
    }

    /// Removes the labels with a name for which `stays` returns false.
    pub(super) fn retain(&mut self, stays: impl Fn(&str) -> bool) {
        for (name, _) in self.current_labels() {
            if !stays(&name) {
                self.set(&name, "");
            }
        }
    }

    /// Returns the labels after all changes.
    pub(super) fn into_labels(self) -> Labels {
        let mut labels = self.base.clone();
        self.gone.iter().for_each(|name| labels.set(name, ""));
        self.set.iter().for_each(|(name, value)| labels.set(name, value));
        labels
    }
}
