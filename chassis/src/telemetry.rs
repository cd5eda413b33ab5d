//! What a process says about itself: log lines on standard error.

use std::fmt;

use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, reload};

use crate::code::{Code, Coded};

/// How a process logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// What is logged: a level, or levels by module. Example: `info,athanor_storage=debug`.
    pub level: String,
    /// How a line looks: `text` for people, `json` for collectors.
    pub format: LogFormat,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The running telemetry of a process; keeps the handle by which it is changed while it runs.
pub struct Telemetry {
    filter: reload::Handle<EnvFilter, Registry>,
}

/// Why telemetry did not start or change.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The level cannot be read.
    #[error(
        "log level {level:?} cannot be read: {reason}; write for example info or info,athanor_storage=debug"
    )]
    Level {
        /// What was given.
        level: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Something else logs in this process already.
    #[error("telemetry has been started before in this process")]
    Started,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

impl Telemetry {
    /// Starts logging, once for each process.
    pub fn start(config: &TelemetryConfig) -> Result<Self, TelemetryError> {
        let (filter, handle) = reload::Layer::new(filter(&config.level)?);
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let lines = match config.format {
            LogFormat::Text => lines.boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        Registry::default().with(filter).with(lines).try_init().map_err(|_| TelemetryError::Started)?;
        Ok(Self { filter: handle })
    }

    /// Changes what is logged, from now on.
    pub fn set_level(&self, level: &str) -> Result<(), TelemetryError> {
        let filter = filter(level)?;
        self.filter
            .reload(filter)
            .map_err(|error| TelemetryError::Level { level: level.to_owned(), reason: error.to_string() })
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telemetry")
    }
}

fn filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::builder()
        .parse(level)
        .map_err(|error| TelemetryError::Level { level: level.to_owned(), reason: error.to_string() })
}

impl Coded for TelemetryError {
    fn code(&self) -> Code {
        match self {
            Self::Level { .. } => Code::Invalid,
            Self::Started => Code::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_starts_it_once_and_changes_its_level() {
        let bad = TelemetryConfig { level: "a=b=c".to_owned(), ..TelemetryConfig::default() };
        assert_eq!(Telemetry::start(&bad).unwrap_err().code(), Code::Invalid);
        let config = TelemetryConfig { level: "off".to_owned(), format: LogFormat::Json };
        let telemetry = Telemetry::start(&config).unwrap();
        assert_eq!(tracing::level_filters::LevelFilter::current(), tracing::level_filters::LevelFilter::OFF);
        telemetry.set_level("warn").unwrap();
        assert_eq!(tracing::level_filters::LevelFilter::current(), tracing::level_filters::LevelFilter::WARN);
        assert!(telemetry.set_level("a=b=c").is_err());
        telemetry.set_level("off").unwrap();
        assert!(matches!(Telemetry::start(&config), Err(TelemetryError::Started)));
    }
}
