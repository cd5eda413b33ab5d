//! Commands on a configuration file, without a running agent.

use std::path::Path;

use athanor_chassis::code::ErrorCodeExt;
use athanor_chassis::{ErrorCode, Status};

use super::explanation::{explain_groups, is_match};
use super::views::ExplanationsView;
use crate::config::{AgentConfig, ConfigErrors, Environment, JobConfig, MAX_CONFIG_BYTES, parse};
use crate::discovery::{DiscoverySettings, TargetGroup};

/// Reads and parses a configuration file.
///
/// # Errors
///
/// The file cannot be read or is invalid. The message has a line `file:line:column: reason` per error.
pub fn load_config(file: &Path, environment: &Environment) -> Result<(AgentConfig, String), Status> {
    let text = read_config_text(file)?;
    let config = parse(&text, file, environment).map_err(|errors| invalid_config(&errors))?;
    Ok((config, text))
}

fn read_config_text(file: &Path) -> Result<String, Status> {
    use std::io::Read;

    let failed = |error: std::io::Error| {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorCode::NotFound,
            std::io::ErrorKind::PermissionDenied => ErrorCode::PermissionDenied,
            _ => ErrorCode::Unavailable,
        };
        Status::new(code, format!("{}: {error}", file.display()))
    };
    let opened = std::fs::File::open(file).map_err(failed)?;
    let mut bytes = Vec::new();
    // One byte more than allowed, so that the parser sees the excess.
    opened.take(MAX_CONFIG_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    String::from_utf8(bytes).map_err(|error| {
        let (line, column) = invalid_position(&error);
        let message = format!("{}:{line}:{column}: not UTF-8; save the file as UTF-8", file.display());
        Status::new(ErrorCode::Invalid, message)
    })
}

/// Returns the line and column of the first byte that is not UTF-8, both from 1.
fn invalid_position(error: &std::string::FromUtf8Error) -> (usize, usize) {
    let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
    let valid = String::from_utf8_lossy(valid);
    let last_line = valid.rsplit('\n').next().unwrap_or_default();
    (valid.matches('\n').count() + 1, last_line.chars().count() + 1)
}

fn invalid_config(errors: &ConfigErrors) -> Status {
    Status::new(errors.code(), errors.to_string())
}

/// Checks a file. Returns a summary with the warnings.
///
/// # Errors
///
/// As [`load_config`].
pub fn check_config(file: &Path, environment: &Environment) -> Result<String, Status> {
    let (config, _) = load_config(file, environment)?;
    let mut text = String::new();
    for warning in &config.warnings {
        text.push_str(&format!("{}: warning: {warning}\n", file.display()));
    }
    let jobs = config.jobs.len();
    let servers = config.servers.len();
    text.push_str(&format!("{}: valid, {jobs} jobs, {servers} servers\n", file.display()));
    Ok(text)
}

/// Explains the targets that a file lists itself, in `static_configs`. A filter selects by address or label
/// value.
///
/// # Errors
///
/// As [`load_config`], or no target matches.
pub fn explain_config(
    file: &Path,
    filter: Option<&str>,
    environment: &Environment,
) -> Result<ExplanationsView, Status> {
    let (config, _) = load_config(file, environment)?;
    let mut view = ExplanationsView::default();
    for job in &config.jobs {
        let groups = static_groups(job);
        explain_groups(job, &groups, &config.external_labels, |target| is_match(target, filter), &mut view);
    }
    if view.targets.is_empty() {
        let message = match filter {
            Some(filter) => {
                format!("{}: no static target has the address or label value {filter:?}", file.display())
            }
            None => format!(
                "{}: no job has static_configs; run the agent and use athanor-agent explain TARGET",
                file.display()
            ),
        };
        return Err(Status::new(ErrorCode::NotFound, message));
    }
    Ok(view)
}

fn static_groups(job: &JobConfig) -> Vec<TargetGroup> {
    let groups = job.discovery.iter().filter_map(|settings| match settings {
        DiscoverySettings::Static(groups) => Some(groups),
        _ => None,
    });
    groups.flatten().cloned().collect()
}
