//! What a process says about itself: log lines on standard error.

use std::fmt;
use std::io::IsTerminal;

use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, reload};

use crate::code::{Code, Coded};

/// A library that tells each of its steps, and warns of what is not amiss.
const VERBOSE: &str = "openraft";

/// How a process logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// What is logged: a level, or levels by module; of `openraft` errors only, if it is not named. Example:
    /// `info,athanor_storage=debug`.
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
        "log level {level:?} cannot be read: {reason}; write off, error, warn, info, debug or trace, or levels by \
         module such as info,athanor_storage=debug"
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
    /// Starts logging, once for each process. Colours are for terminals, where they are wanted.
    pub fn start(config: &TelemetryConfig, colors: bool) -> Result<Self, TelemetryError> {
        let (filter, handle) = reload::Layer::new(filter(&config.level)?);
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let lines = lines.with_ansi(colors && std::io::stderr().is_terminal());
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
    let refused = |reason: String| TelemetryError::Level { level: level.to_owned(), reason };
    // The filter would take such a word as the name of a module, of which everything is logged, and of others nothing.
    let is_no_level =
        |part: &&str| part.is_empty() || (!part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err());
    let parts = || level.split(',').map(str::trim);
    if let Some(word) = parts().find(is_no_level) {
        return Err(refused(format!("{word:?} is no level")));
    }
    let loud = parts().any(|part| !part.eq_ignore_ascii_case("off"));
    let quiet = if loud && !level.contains(VERBOSE) { format!("{VERBOSE}=error,") } else { String::new() };
    EnvFilter::builder().parse(quiet + level).map_err(|error| refused(error.to_string()))
}

impl TelemetryConfig {
    /// Whether a process could log so.
    pub fn check(&self) -> Result<(), TelemetryError> {
        filter(&self.level).map(drop)
    }
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
        assert_eq!(Telemetry::start(&bad, false).unwrap_err().code(), Code::Invalid);
        let config = TelemetryConfig { level: "off".to_owned(), format: LogFormat::Json };
        let telemetry = Telemetry::start(&config, false).unwrap();
        assert_eq!(LevelFilter::current(), LevelFilter::OFF);
        telemetry.set_level("warn").unwrap();
        assert_eq!(LevelFilter::current(), LevelFilter::WARN);
        assert!(telemetry.set_level("a=b=c").is_err());
        telemetry.set_level("off").unwrap();
        assert!(matches!(Telemetry::start(&config, false), Err(TelemetryError::Started)));
    }

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for level in [
            "info",
            "WARN",
            "off",
            "info,athanor_storage=debug",
            "athanor_storage=trace",
            "debug,openraft=info",
        ] {
            assert!(filter(level).is_ok(), "{level}");
        }
        for level in ["warning", "bogus", "info,athanor_storage", "", "info,", "info,athanor_storage=loud"] {
            let refused = filter(level).unwrap_err();
            assert!(refused.to_string().contains("write off, error, warn, info, debug or trace"), "{level}");
        }
    }

    #[test]
    fn a_library_that_says_too_much_is_asked_for_by_name() {
        let of = |level| filter(level).unwrap().to_string();
        assert!(of("info").contains("openraft=error") && of("debug,a=trace").contains("openraft=error"));
        assert!(!of("off").contains("openraft") && !of("info,openraft=debug").contains("openraft=error"));
    }
}
