//! Profile kinds of a target: requests with their paths and parameters.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_profile::Labels;

use super::labels::PARAM_LABEL_PREFIX;
use crate::config::{JobConfig, KindSettings};
use crate::scrape_target::ProfileKind;

/// Label that overrides the path of the only kind.
const PATH_LABEL: &str = "__profile_path__";
/// Label that overrides the prefix of paths.
const PREFIX_LABEL: &str = "__profile_path_prefix__";
/// Label that restricts the target to one kind.
const NAME_LABEL: &str = "__name__";
/// Prefix of kinds whose target computes differences itself. Readers know them by the rest of the name.
const DELTA_KIND_PREFIX: &str = "godeltaprof_";
/// Kinds whose values only grow, if the target does not record for a duration.
const CUMULATIVE_KINDS: [&str; 3] = ["memory", "mutex", "block"];
/// Parameter with the seconds that the target records.
const SECONDS_PARAM: &str = "seconds";

/// Reason why the kinds of a target are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KindError {
    /// No kind is enabled.
    #[error("no profile kind is enabled; enable one in profiling_config")]
    NoneEnabled,
    /// A path for several kinds.
    #[error(
        "the label __profile_path__ is {path:?}, but {kinds} kinds are enabled; set the label __name__ to one kind"
    )]
    PathOfSeveral {
        /// Value of the label.
        path: String,
        /// Number of enabled kinds.
        kinds: usize,
    },
    /// A kind without a path.
    #[error("the label __name__ is {name:?}, which has no path; set __profile_path__ or profiling_config")]
    NoPath {
        /// Value of the label.
        name: String,
    },
}

/// Returns the kinds of a target from the settings of its job and its labels after relabeling.
pub(super) fn profile_kinds(
    job: &JobConfig,
    relabeled: &Labels,
    interval: Duration,
) -> Result<Vec<ProfileKind>, KindError> {
    let path = relabeled.get(PATH_LABEL);
    let mut kinds: Vec<(&str, KindSettings)> = Vec::new();
    if let Some(name) = relabeled.get(NAME_LABEL) {
        let known = job.profiling.kinds.get(name).cloned();
        kinds.push((name, known.unwrap_or_else(|| KindSettings::custom(""))));
    } else {
        let enabled = job.profiling.kinds.iter().filter(|(_, kind)| kind.enabled);
        kinds.extend(enabled.map(|(name, kind)| (name.as_str(), kind.clone())));
    }
    if kinds.is_empty() {
        return Err(KindError::NoneEnabled);
    }
    if let Some(path) = path {
        if kinds.len() > 1 {
            return Err(KindError::PathOfSeveral { path: path.to_owned(), kinds: kinds.len() });
        }
        path.clone_into(&mut kinds[0].1.path);
    }
    kinds.into_iter().map(|(name, kind)| profile_kind(job, relabeled, interval, name, &kind)).collect()
}

/// Returns a kind with its path and parameters.
pub(super) fn profile_kind(
    job: &JobConfig,
    relabeled: &Labels,
    interval: Duration,
    name: &str,
    settings: &KindSettings,
) -> Result<ProfileKind, KindError> {
    if settings.path.is_empty() {
        return Err(KindError::NoPath { name: name.to_owned() });
    }
    let prefix = relabeled.get(PREFIX_LABEL).unwrap_or(&job.profiling.path_prefix);
    let seconds = settings.recorded_seconds(interval);
    let metric_name = name.strip_prefix(DELTA_KIND_PREFIX).unwrap_or(name);
    Ok(ProfileKind {
        name: name.to_owned(),
        metric_name: metric_name.to_owned(),
        path: join_path(prefix, &settings.path),
        params: request_params(job, relabeled, settings),
        seconds,
        is_cumulative: seconds.is_none() && CUMULATIVE_KINDS.contains(&name),
    })
}

/// Returns the parameters of the job and the kind. A label replaces the first value of its parameter.
fn request_params(job: &JobConfig, relabeled: &Labels, kind: &KindSettings) -> Vec<(String, String)> {
    let mut params: BTreeMap<String, Vec<String>> = job.params.clone();
    for (label, value) in relabeled.iter() {
        let Some(name) = label.strip_prefix(PARAM_LABEL_PREFIX) else { continue };
        let values = params.entry(name.to_owned()).or_default();
        match values.first_mut() {
            Some(first) => value.clone_into(first),
            None => values.push(value.to_owned()),
        }
    }
    params.extend(kind.params.clone());
    params.remove(SECONDS_PARAM);
    let pairs =
        params.into_iter().flat_map(|(name, values)| values.into_iter().map(move |v| (name.clone(), v)));
    pairs.collect()
}

/// Joins a prefix and a path with one slash between them and one before them.
fn join_path(prefix: &str, path: &str) -> String {
    let prefix = prefix.trim_matches('/');
    let path = path.trim_start_matches('/');
    if prefix.is_empty() { format!("/{path}") } else { format!("/{prefix}/{path}") }
}
