//! Sampler of the host as a source of profiles: windows of counted stacks become one profile per label set.
//!
//! ```text
//!  SampleSource ─► window ─► ProcessLabeler ─► groups of stacks ─► pprof ─► uploads ─► sink
//!   (kernel)                  facts ─► __meta_* ─► rules ─► labels
//! ```
//!
//! [`SamplingCollector`] drives the source. Labels are decided once per process, and again after an exec or a
//! change of cgroup. A profile has its final bytes, id and time before it enters the sink, like a scraped one.
//! For every window, samples in profiles and dropped samples add up to the samples of the window.
//!
//! * [`record`], [`top`]: commands that sample without a server or configuration.
//! * [`host_check`]: what the host lacks.

mod collector;
mod collector_state;
pub mod host_check;
mod labels;
mod metrics;
mod profile_encoder;
pub mod record;
mod sample_source;
mod sampler_view;
#[cfg(test)]
mod tests;
pub mod top;
mod uploads;
mod window_groups;
mod window_merge;

pub use collector::{CollectorParams, SamplingCollector};
pub use collector_state::{CollectorStats, SamplerPhase};
pub use labels::{ContainerLabels, HostFacts, LabelDrop, LabelSettings, ProcessLabeler, SeriesKey};
pub use metrics::{SAMPLER_METRICS, sampler_collector};
pub use profile_encoder::encode_profile;
pub use sample_source::{SampleSource, StartSource, sampler_config};
pub use sampler_view::sampler_view;
pub use uploads::EncodeProfile;
