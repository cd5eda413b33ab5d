//! What a process says about itself: log lines on standard error.

use std::collections::HashMap;
use std::fmt;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, reload};

use crate::clock::Clock;
use crate::code::{ErrorCode, ErrorCodeExt};

/// A library that logs each of its steps, and warns of what is not amiss.
const VERBOSE_CRATE: &str = "openraft";
/// What is logged of it by default: errors, but for those of calls to members that are away or have not begun. Such
/// calls are made again, and a group that cannot go on is an error of this program.
const VERBOSE_FILTER: &str = "openraft=error,openraft::replication=off,openraft::core::raft_core=off,";
/// A library that warns of each datagram that it cannot use. Anybody may send such.
const FLOODING_CRATE: &str = "chitchat";
/// Each of its lines is logged once in so long.
const FLOOD_INTERVAL: Duration = Duration::from_secs(10);

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

/// Filter that lets each line of a flooded library through once in [`FLOOD_INTERVAL`].
struct FloodFilter {
    clock: Clock,
    /// When each of its lines was logged last; there are as many as the library has.
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
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
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
    /// Starts logging, once for each process. Colours are for terminals, where they are wanted.
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

    /// Changes what is logged, from now on.
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
    // The filter would take such a word as the name of a module, of which everything is logged, and of others nothing.
    let is_no_level =
        |part: &&str| part.is_empty() || (!part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err());
    let parts = || level.split(',').map(str::trim);
    if let Some(word) = parts().find(is_no_level) {
        return Err(refused(format!("{word:?} is no level")));
    }
    let loud = parts().any(|part| !part.eq_ignore_ascii_case("off"));
    let quiet = if loud && !level.contains(VERBOSE_CRATE) { VERBOSE_FILTER } else { "" };
    EnvFilter::builder().parse(quiet.to_owned() + level).map_err(|error| refused(error.to_string()))
}

impl TelemetryConfig {
    /// Whether a process could log so.
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
    use crate::clock::Timestamp;

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
