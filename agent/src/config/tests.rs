//! Tests of the configuration: real-looking files, every message with its position, bounds.

mod accepted;
mod any_text;
mod refused;

use std::path::Path;

use super::{AgentConfig, ConfigErrors, Environment, parse};

/// Parses a configuration in the folder `/etc/agent`.
fn read(text: &str) -> Result<AgentConfig, ConfigErrors> {
    parse(text, Path::new("/etc/agent/agent.yml"), &Environment::default())
}

fn accepted(text: &str) -> AgentConfig {
    read(text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}
