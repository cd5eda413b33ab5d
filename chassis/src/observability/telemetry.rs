//! Logging of a process: log lines on standard error.

use std::collections::HashMap;
use std::fmt;
use std::io::IsTerminal;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, reload};

use crate::code::{ErrorCode, ErrorCodeExt};
use crate::time::clock::Clock;

/// Library that logs each of its steps and warns about normal conditions.
const VERBOSE_CRATE: &str = "openraft";
/// Default filter of that library: errors only, without those of calls to members that are away or have not
/// started. The library retries such calls, and a group that cannot continue is reported by this program.
const VERBOSE_FILTER: &str = "openraft=error,openraft::replication=off,openraft::core::raft_core=off,";
/// Library that warns about each datagram that it cannot parse. Any host may send such datagrams.
const FLOODING_CRATE: &str = "chitchat";
/// Minimum interval between two logs of the same line of that library.
const FLOOD_INTERVAL: Duration = Duration::from_secs(10);

/// Logging settings of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// Level, or levels by module. Unless it names `openraft`, only its errors are logged. Example:
    /// `info,athanor_storage=debug`.
    pub level: String,
    /// Format of log lines: `text` for people, `json` for collectors.
    pub format: LogFormat,
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Human-readable text.
    #[default]
    Text,
    /// JSON, with one object per line.
    Json,
}

/// Running logger of a process, with the handle that changes its level.
pub struct Telemetry {
    filter: reload::Handle<EnvFilter, Registry>,
}

/// Failure to start logging or to change its level.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The level is not valid.
    #[error(
        "log level {level:?} is invalid: {reason}; write off, error, warn, info, debug or trace, or levels \
         by module such as info,athanor_storage=debug"
    )]
    Level {
        /// Level as given.
        level: String,
        /// Reason for the rejection.
        reason: String,
    },
    /// Another logger is already installed in this process.
    #[error("telemetry has been started before in this process")]
    Started,
}

/// Filter that lets each line of a flooded library through once in [`FLOOD_INTERVAL`].
struct FloodFilter {
    clock: Clock,
    /// Last time at which each line was logged. The map has at most as many entries as the library has lines.
    logged: Mutex<HashMap<Identifier, Duration>>,
}

impl FloodFilter {
    fn new(clock: Clock) -> Self {
        Self { clock, logged: Mutex::default() }
    }
}

impl<S> Filter<S> for FloodFilter {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if !metadata.target().starts_with(FLOODING_CRATE) {
            return true;
        }
        let now = self.clock.monotonic();
        let mut logged = self.logged.lock();
        let last = logged.get(&metadata.callsite());
        let is_due = last.is_none_or(|last| now.saturating_sub(*last) >= FLOOD_INTERVAL);
        if is_due {
            logged.insert(metadata.callsite(), now);
        }
        is_due
    }
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

impl Telemetry {
    /// Starts logging, once per process. Colors are used only if requested and standard error is a terminal.
    pub fn start(config: &TelemetryConfig, colors: bool) -> Result<Self, TelemetryError> {
        let (filter, handle) = reload::Layer::new(parse_filter(&config.level)?);
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let lines = lines.with_ansi(colors && std::io::stderr().is_terminal());
        let lines = match config.format {
            LogFormat::Text => lines.boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        let lines = lines.with_filter(FloodFilter::new(Clock::system()));
        Registry::default().with(filter).with(lines).try_init().map_err(|_| TelemetryError::Started)?;
        Ok(Self { filter: handle })
    }

    /// Changes the log level from now on.
    pub fn set_level(&self, level: &str) -> Result<(), TelemetryError> {
        let filter = parse_filter(level)?;
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

fn parse_filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    let refused = |reason: String| TelemetryError::Level { level: level.to_owned(), reason };
    // The filter would parse such a word as a module name: it would log all of that module and nothing else.
    let is_no_level =
        |part: &&str| part.is_empty() || (!part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err());
    let parts = || level.split(',').map(str::trim);
    if let Some(word) = parts().find(is_no_level) {
        return Err(refused(format!("{word:?} is not a level")));
    }
    let loud = parts().any(|part| !part.eq_ignore_ascii_case("off"));
    let quiet = if loud && !level.contains(VERBOSE_CRATE) { VERBOSE_FILTER } else { "" };
    EnvFilter::builder().parse(quiet.to_owned() + level).map_err(|error| refused(error.to_string()))
}

impl TelemetryConfig {
    /// Checks that the level is valid.
    pub fn check(&self) -> Result<(), TelemetryError> {
        parse_filter(&self.level).map(drop)
    }
}

impl ErrorCodeExt for TelemetryError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Level { .. } => ErrorCode::Invalid,
            Self::Started => ErrorCode::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::time::clock::Timestamp;

    #[test]
    fn a_process_starts_it_once_and_changes_its_level() {
        let bad = TelemetryConfig { level: "a=b=c".to_owned(), ..TelemetryConfig::default() };
        assert_eq!(Telemetry::start(&bad, false).unwrap_err().code(), ErrorCode::Invalid);
        let config = TelemetryConfig { level: "off".to_owned(), format: LogFormat::Json };
        let telemetry = Telemetry::start(&config, false).unwrap();
        assert_eq!(LevelFilter::current(), LevelFilter::OFF);
        telemetry.set_level("warn").unwrap();
        assert_eq!(LevelFilter::current(), LevelFilter::WARN);
        assert!(telemetry.set_level("a=b=c").is_err());
        telemetry.set_level("off").unwrap();
        assert!(matches!(Telemetry::start(&config, false), Err(TelemetryError::Started)));
    }

    /// Counts events.
    struct Counter(Arc<AtomicUsize>);

    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Counter {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn lines_of_flooded_library_are_logged_once_in_ten_seconds() {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(1));
        let count = Arc::new(AtomicUsize::new(0));
        let layer = Counter(Arc::clone(&count)).with_filter(FloodFilter::new(clock));
        let lines = || {
            for _ in 0..1000 {
                tracing::warn!(target: "chitchat::transport::udp", "invalid-chitchat-payload");
            }
            tracing::warn!(target: "chitchat", "message rejected by peer");
        };
        tracing::subscriber::with_default(Registry::default().with(layer), || {
            lines();
            assert_eq!(count.load(Ordering::Relaxed), 2);
            hand.advance(FLOOD_INTERVAL - Duration::from_millis(1));
            lines();
            assert_eq!(count.load(Ordering::Relaxed), 2);
            hand.advance(Duration::from_millis(1));
            lines();
            assert_eq!(count.load(Ordering::Relaxed), 4);
            for _ in 0..3 {
                tracing::warn!("of this program");
            }
            assert_eq!(count.load(Ordering::Relaxed), 7);
        });
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
            assert!(parse_filter(level).is_ok(), "{level}");
        }
        for level in ["warning", "bogus", "info,athanor_storage", "", "info,", "info,athanor_storage=loud"] {
            let refused = parse_filter(level).unwrap_err();
            assert!(refused.to_string().contains("write off, error, warn, info, debug or trace"), "{level}");
        }
    }

    #[test]
    fn a_library_that_says_too_much_is_asked_for_by_name() {
        let of = |level| parse_filter(level).unwrap().to_string();
        assert!(of("info").contains("openraft=error") && of("debug,a=trace").contains("openraft=error"));
        assert!(!of("off").contains("openraft") && !of("info,openraft=debug").contains("openraft=error"));
    }
}
