//! Decision about the labels of a process: relabeling, defaults, and the tenant.

use std::sync::Arc;

use athanor_agent_ebpf::processes::ProcessFacts;
use athanor_chassis::TenantId;
use athanor_profile::Labels;
use athanor_profile::data_model::labels::is_label_name;
use athanor_profile::labeling::relabel::apply;

use super::process_labels::{clean_value, shorten};
use super::service_names::default_service_name;
use crate::config::{RelabelRules, SamplerTenant};
use crate::upload::push_series::METRIC_NAME_LABEL;

/// Kind of the profiles.
const PROFILE_KIND: &str = "process_cpu";
/// Prefix of labels that are not part of a profile.
const INTERNAL_LABEL_PREFIX: &str = "__";
/// Maximum bytes of the name of a label. Servers reject longer ones by default.
const MAX_NAME_BYTES: usize = 1024;
/// Maximum number of labels of a series. Servers reject more by default.
pub(in crate::sampling) const MAX_SERIES_LABELS: usize = 30;

/// Settings of labels. A reload replaces them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelSettings {
    /// Relabeling rules.
    pub rules: RelabelRules,
    /// Choice of the tenant.
    pub tenant: SamplerTenant,
    /// Labels that are added where they are absent.
    pub external_labels: Labels,
}

/// Labels and tenant of a profile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesKey {
    /// Tenant. None sends no tenant header.
    pub tenant: Option<TenantId>,
    /// Labels, with `__name__`.
    pub labels: Labels,
}

/// Reason why samples are in no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LabelDrop {
    /// A rule dropped the process.
    Rule,
    /// The labels exceed a limit.
    LabelLimit,
    /// The value of the tenant label is no tenant.
    InvalidTenant,
    /// The process of the stack is missing in the window.
    UnknownProcess,
}

impl LabelDrop {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Rule, Self::LabelLimit, Self::InvalidTenant, Self::UnknownProcess];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::LabelLimit => "label_limit",
            Self::InvalidTenant => "invalid_tenant",
            Self::UnknownProcess => "unknown_process",
        }
    }
}

/// Result of a decision.
pub(in crate::sampling) type LabelDecision = Result<Arc<SeriesKey>, LabelDrop>;

impl LabelSettings {
    /// Decides about a process from its labels before relabeling.
    pub(in crate::sampling) fn decide(&self, facts: &ProcessFacts, discovered: &Labels) -> LabelDecision {
        let relabeled = apply(self.rules.rules(), discovered);
        let relabeled = relabeled.map_err(|_| LabelDrop::LabelLimit)?.ok_or(LabelDrop::Rule)?;
        let tenant = self.tenant_of(&relabeled)?;
        let mut labels = public_labels(&relabeled);
        if labels.get("service_name").is_none() {
            labels.set("service_name", &default_service_name(facts, &relabeled));
        }
        for (name, value) in self.external_labels.iter() {
            if labels.get(name).is_none() {
                labels.set(name, value);
            }
        }
        labels.set(METRIC_NAME_LABEL, PROFILE_KIND);
        if labels.len() > MAX_SERIES_LABELS {
            return Err(LabelDrop::LabelLimit);
        }
        Ok(Arc::new(SeriesKey { tenant, labels }))
    }

    fn tenant_of(&self, relabeled: &Labels) -> Result<Option<TenantId>, LabelDrop> {
        let value = self.tenant.label.as_deref().and_then(|label| relabeled.get(label));
        match value {
            Some(value) => value.parse().map(Some).map_err(|_| LabelDrop::InvalidTenant),
            None => Ok(self.tenant.fixed.clone()),
        }
    }
}

/// Returns the labels that a profile keeps. A rule may join values and make names of values, so both are checked
/// once more: a server rejects a whole series for one label.
fn public_labels(relabeled: &Labels) -> Labels {
    let is_public = |name: &str| {
        !name.starts_with(INTERNAL_LABEL_PREFIX) && name.len() <= MAX_NAME_BYTES && is_label_name(name)
    };
    let public = relabeled.iter().filter(|(name, _)| is_public(name));
    Labels::new(public.map(|(name, value)| (name.to_owned(), shorten(clean_value(value)))))
}
