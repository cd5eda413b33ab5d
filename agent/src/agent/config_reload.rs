//! Reloads of the configuration. They change jobs, rules, and the settings of received profiles.

use athanor_chassis::{ErrorCode, Status};

use super::agent_view::{ConfigInForce, RunningAgent};
use super::assembly::label_settings;
use super::read_config;
use crate::config::AgentConfig;
use crate::operator::reload::ReloadCause;

/// Section whose rules and tenant take effect without a restart.
const SAMPLER_SECTION: &str = "sampler (except relabel_configs and tenant)";

impl RunningAgent {
    /// Reads the file again and applies it. An invalid file, or a change of a section that needs a restart, changes
    /// nothing.
    pub(super) fn reload(&self, cause: ReloadCause) {
        let result = read_config(self.file.as_deref(), &self.environment).and_then(|read| self.apply(read));
        match &result {
            Ok(()) => tracing::info!(?cause, "the new configuration is in force"),
            Err(status) => {
                tracing::error!(?cause, error = %status.message, "kept the configuration in force, because of an invalid one");
            }
        }
        self.reloads.record(result.map_err(|status| status.message), self.clock.monotonic());
    }

    fn apply(&self, mut read: ConfigInForce) -> Result<(), Status> {
        let mut in_force = self.config.write();
        if read.config.operator_address.port() == 0 {
            read.config.set_operator_address(in_force.config.operator_address);
        }
        let fixed = fixed_sections(&in_force.config, &read.config);
        if !fixed.is_empty() {
            let message = format!("a change of {} takes effect after a restart only", fixed.join(", "));
            return Err(Status::new(ErrorCode::Precondition, message));
        }
        for warning in &read.config.warnings {
            tracing::warn!(warning, "configuration");
        }
        self.receiver.set_settings(read.config.receive.clone());
        self.sampler.set_label_settings(label_settings(&read.config));
        self.apply_jobs(&read.config);
        *in_force = read;
        Ok(())
    }

    /// Starts the discovery of the jobs of a configuration.
    pub(super) fn apply_jobs(&self, config: &AgentConfig) {
        self.feed.apply(&config.jobs, &config.external_labels, self.sender_discovery(config));
    }
}

/// Returns the sections that differ and need a restart.
fn fixed_sections(old: &AgentConfig, new: &AgentConfig) -> Vec<&'static str> {
    let is_changed = [
        ("servers", old.servers != new.servers),
        ("spool", old.spool != new.spool),
        (SAMPLER_SECTION, old.sampler.needs_restart(&new.sampler)),
        ("receive.listen_address", old.receive.listen_address != new.receive.listen_address),
        ("operator", old.operator_address != new.operator_address),
        ("allowed_target_ranges", old.allowed_target_ranges != new.allowed_target_ranges),
    ];
    is_changed.into_iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| name).collect()
}
