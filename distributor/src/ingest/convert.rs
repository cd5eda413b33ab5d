//! From the body of a request to pprof profiles and the labels of their series. Pure; runs on compute threads.

mod document;
mod jfr;
mod named;
mod pprof;
mod speedscope;
#[cfg(test)]
mod tests;

use athanor_chassis::{Code, Limits, Status};
use athanor_profile::bounds::OverLimit;
use athanor_profile::flamebearer::FlamebearerError;
use athanor_profile::format::ReadError;
use athanor_profile::jfr::{JfrError, Limits as JfrLimits};
use athanor_profile::perf_script::PerfScriptError;
use athanor_profile::pprof::{DecodeError, Limits as PprofLimits, TallyError};
use athanor_profile::speedscope::SpeedscopeError;
use athanor_profile::trie::{Kind, TrieError};
use bytes::Bytes;

use super::Refused;
use super::form::FormRefused;
use super::metric::TypeConfig;
use super::request::{Format, Request};
use super::text::TextRefused;
pub(crate) use jfr::{bounds as recording_bounds, way_out as recording_way_out};

/// Labels of all profiles of one body may always take so many bytes.
const LABELS: usize = 16 << 20;
const BYTES_OF_LABELS: &str = "bytes of labels";
const SECOND: i64 = 1_000_000_000;
/// Bytes of a document for each value that waits until all of it is read.
const WAITING: usize = 8;

/// Which statuses a client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Text,
    Pprof,
}

/// What came of a body.
#[derive(Debug)]
pub(crate) struct Converted {
    pub(crate) door: Door,
    /// For profiles that do not say their time.
    pub(crate) time_nanos: i64,
    /// The profiles: some formats hold several.
    pub(crate) made: Vec<Made>,
}

/// One profile that came of a body.
#[derive(Debug)]
pub(crate) struct Made {
    /// What it is called among others of its body; empty if it is alone.
    pub(crate) name: String,
    /// Names and values of the series, before the rules.
    pub(crate) labels: Vec<(String, String)>,
    /// The id that tells it from others, where its time does not.
    pub(crate) client_id: Option<String>,
    /// Nothing if there is nothing in it; or why this one is refused, and no other.
    pub(crate) pprof: Result<Option<Bytes>, Refused>,
    /// Samples that were left out since they have no stack.
    pub(crate) without_stack: u64,
}

/// What labels take until they are stored.
fn labels_bytes(labels: &[(String, String)]) -> usize {
    labels.iter().map(|label| label.0.len() + label.1.len() + size_of_val(label)).sum()
}

/// Limits that converting must keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// `samples` are different stacks. Deeper ones lose what is nearest the leaf.
    profile: PprofLimits,
    jfr: JfrLimits,
}

/// Why a body was refused.
#[derive(Debug, thiserror::Error)]
enum ConvertError {
    #[error(transparent)]
    Text(#[from] TextRefused),
    #[error("not a tree or trie of stacks: {0}")]
    Trie(#[from] TrieError),
    #[error("not a speedscope document that can be stored: {0}")]
    Speedscope(#[from] SpeedscopeError),
    #[error(transparent)]
    Document(#[from] ReadError),
    #[error("what came of the body has {0}")]
    Made(OverLimit),
    #[error("nothing is known of application names that end in .{0}; end in .cpu, .wall, .alloc_space …")]
    UnknownSuffix(String),
    #[error("value times period is over 63 bits; sampleRate is {0}")]
    Overflow(u32),
    #[error(transparent)]
    Form(#[from] FormRefused),
    #[error("part prev_profile: clients that leave the difference to the server are too old; update the SDK")]
    PreviousProfile,
    #[error("part sample_type_config is not valid: {0}")]
    Config(String),
    #[error(transparent)]
    Pprof(#[from] DecodeError),
    #[error(transparent)]
    Jfr(#[from] JfrError),
    #[error("flight recording: {0}")]
    JfrBody(DecodeError),
    #[error("labels of the flight recording: {0}")]
    JfrLabels(DecodeError),
    #[error("the body begins as {what} does; send {format}")]
    Other { what: &'static str, format: &'static str },
    #[error("form has no part jfr; send the recording in a part of this name, or as the body")]
    NoRecording,
}

impl ConvertError {
    /// What of a profile is over a limit that people set.
    fn over(&self) -> Option<&'static str> {
        let over = match self {
            Self::Text(TextRefused::Tally { why: TallyError::OverLimit(over), .. })
            | Self::Trie(TrieError::Tally { why: TallyError::OverLimit(over), .. })
            | Self::Made(over) => over.what,
            Self::Pprof(DecodeError::OverLimit { what, .. }) => *what,
            _ => return None,
        };
        Some(over)
    }

    /// What a document has too much of before it is a profile.
    fn over_in_document(&self) -> Option<&'static str> {
        match self {
            Self::Speedscope(SpeedscopeError::OverLimit { over, .. })
            | Self::Document(
                ReadError::PerfScript(PerfScriptError::OverLimit { over, .. })
                | ReadError::Flamebearer(FlamebearerError::OverLimit(over)),
            ) => Some(over.what),
            _ => None,
        }
    }

    /// In a word, for those who count refusals.
    fn reason(&self) -> &'static str {
        match (self.over(), self) {
            _ if self.over_in_document().is_some_and(|what| what.starts_with("samples")) => "samples_limit",
            _ if self.over_in_document().is_some() => "profile_size_limit",
            (Some("bytes" | BYTES_OF_LABELS), _) => "profile_size_limit",
            (Some("stacks"), _) => "samples_limit",
            (_, Self::Pprof(error) | Self::JfrBody(error)) => error.reason(),
            (_, Self::Jfr(error)) => error.reason(),
            (_, Self::UnknownSuffix(_)) => "unsupported_format",
            _ => "malformed_profile",
        }
    }
}

/// Turns a body into pprof.
pub(crate) fn convert(request: &Request, sent: Bytes, bounds: &Bounds) -> Result<Converted, Refused> {
    let body = &sent;
    let converted = match &request.format {
        Format::Groups => document::told(request, body, bounds),
        Format::Lines => named::text(request, body, false, bounds),
        // An empty trie holds nothing; the other formats begin with something.
        Format::Trie(Kind::Trie) if body.is_empty() => named::text(request, body, true, bounds),
        Format::Trie(kind) => named::trie(request, body, *kind, bounds),
        Format::Pprof => pprof::pprof(request, body, &TypeConfig::default(), bounds),
        Format::Jfr(content_type) => jfr::jfr(request, content_type.as_deref(), sent, bounds),
        Format::Form(content_type) => pprof::form(request, content_type, body, bounds),
        Format::Speedscope => speedscope::speedscope(request, body, bounds),
        Format::Flamebearer => document::document(request, body, document::Format::Flamebearer, bounds),
        Format::PerfScript => document::document(request, body, document::Format::PerfScript, bounds),
    };
    converted.map_err(refused)
}

fn refused(error: ConvertError) -> Refused {
    let way_out = match (&error, error.over()) {
        (ConvertError::Jfr(error), _) => jfr::way_out(error),
        (_, Some("bytes")) => " (limits.max_profile_size_bytes): profile for a shorter time",
        (_, Some(BYTES_OF_LABELS)) => {
            " (or limits.max_profile_size_bytes, where that is more): send fewer profiles at once, or shorter labels"
        }
        (_, Some("stacks")) => " (limits.max_profile_stacktrace_samples): profile for a shorter time",
        _ => "",
    };
    let way_out = error.over_in_document().map_or(way_out, document::way_out);
    let status = Status::new(Code::Invalid, format!("{error}{way_out}")).because(error.reason());
    match (&error, error.over()) {
        (ConvertError::Pprof(_), _) => Refused::unprocessable(status),
        (ConvertError::Jfr(error), _) if jfr::is_limit_of_profiles(error) => Refused::plain(status),
        // What is no pprof becomes a profile before its limits hold, so they are those of a push.
        (ConvertError::UnknownSuffix(_), _) | (_, Some("bytes" | BYTES_OF_LABELS | "stacks")) => {
            Refused::plain(status)
        }
        _ => Refused::unprocessable(status),
    }
}

/// The labels of the series. `app_name`: where the client names the service, the application's name stays too.
fn labels(request: &Request, metric: &str, app: &str, app_name: bool) -> Vec<(String, String)> {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let own = &request.name.labels;
    let mut labels = vec![pair("__name__", metric)];
    if !own.contains_key("pyroscope_spy") {
        labels.push(pair("pyroscope_spy", &request.spy));
    }
    let taken = own.iter().filter(|(name, _)| !name.starts_with("__") || name.as_str() == "__session_id__");
    labels.extend(taken.map(|(name, value)| pair(name, value)));
    if !own.contains_key("service_name") {
        labels.push(pair("service_name", app));
    } else if app_name && !own.contains_key("app_name") {
        labels.push(pair("app_name", app));
    }
    labels
}

// === impl Made ===

impl Made {
    /// The only one of its body.
    fn only(labels: Vec<(String, String)>, pprof: Option<Bytes>) -> Self {
        Made { name: String::new(), labels, client_id: None, pprof: Ok(pprof), without_stack: 0 }
    }

    /// What it takes until it is stored.
    pub(crate) fn bytes(&self) -> usize {
        let pprof = self.pprof.as_ref().ok().and_then(Option::as_ref);
        labels_bytes(&self.labels) + pprof.map_or(0, Bytes::len)
    }
}

// === impl Bounds ===

/// A named frame of a document has at least so many bytes in a pprof, with all that it names, and takes some hundred in memory.
const ENTRY: usize = 96;
/// What waits until all of a document is read may take as much memory as the document, and always as much as so many profiles.
const FEW: usize = 4;
/// So few frames there may always be.
const LEAST_ENTRIES: usize = 16 << 10;

impl Bounds {
    pub(crate) fn of(limits: &Limits) -> Self {
        Bounds {
            profile: PprofLimits {
                samples: limits.max_profile_stacktrace_samples as usize,
                kept_depth: limits.max_profile_stacktrace_depth as usize,
                bytes: limits.max_profile_size_bytes.as_usize(),
                ..PprofLimits::default()
            },
            jfr: jfr::bounds(limits),
        }
    }

    /// Those of a document of so many bytes. What it says becomes smaller when it is added up, so the document itself may be
    /// as large as a body; what waits meanwhile takes some times its bytes.
    fn document(&self, bytes: usize) -> PprofLimits {
        let PprofLimits { samples, bytes: most, .. } = self.profile;
        let waiting = bytes / WAITING;
        PprofLimits {
            bytes,
            samples: samples.max(waiting),
            frames: most.max(waiting),
            entries: (most / ENTRY).max(LEAST_ENTRIES),
            tables: bytes.max(most.saturating_mul(FEW)),
            ..PprofLimits::default()
        }
    }

    /// Refuses what came of a document if it is over the limit of a profile.
    fn made(&self, bytes: usize) -> Result<(), ConvertError> {
        let limit = self.profile.bytes;
        let over = OverLimit { what: "bytes", seen: bytes, limit };
        if bytes > limit { Err(ConvertError::Made(over)) } else { Ok(()) }
    }

    /// Refuses what comes with more labels than may be.
    fn labels(&self, bytes: usize) -> Result<(), ConvertError> {
        let limit = self.profile.bytes.max(LABELS);
        let over = OverLimit { what: BYTES_OF_LABELS, seen: bytes, limit };
        if bytes > limit { Err(ConvertError::Made(over)) } else { Ok(()) }
    }
}
