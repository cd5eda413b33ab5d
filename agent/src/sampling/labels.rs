//! Labels of processes: facts become meta labels, and rules make the labels of profiles of them.

mod container_labels;
mod host_facts;
mod label_decision;
mod process_labeler;
mod process_labels;
mod service_names;

pub use container_labels::ContainerLabels;
pub use host_facts::HostFacts;
pub(in crate::sampling) use host_facts::read_text;
#[cfg(test)]
pub(in crate::sampling) use label_decision::MAX_SERIES_LABELS;
pub use label_decision::{LabelDrop, LabelSettings, SeriesKey};
pub use process_labeler::ProcessLabeler;
#[cfg(test)]
pub(in crate::sampling) use process_labels::{MAX_VALUE_BYTES, ProcessContext};
