//! Conversion of a request body to pprof profiles and the labels of their series. Pure; runs on compute
//! threads.

mod document;
mod jfr;
mod pprof;
mod speedscope;
mod stack_formats;
#[cfg(test)]
mod tests;

use athanor_chassis::{ErrorCode, Status, TenantLimits};
use athanor_profile::encoding::multipart::FormError;
use athanor_profile::formats::flamebearer::FlamebearerError;
use athanor_profile::formats::format::ProfileReadError;
use athanor_profile::formats::jfr::{JfrError, JfrLimits};
use athanor_profile::formats::limits::OverLimitError;
use athanor_profile::formats::perf_script::PerfScriptError;
use athanor_profile::formats::pprof::{DecodeError, DecodeLimits as PprofLimits, StackAccumulatorError};
use athanor_profile::formats::speedscope::SpeedscopeError;
use athanor_profile::formats::trie::{TrieError, TrieKind};
use athanor_profile::labeling::metric_name::SampleTypeConfig;
use bytes::Bytes;

use super::IngestError;
use super::folded_text::FoldedTextError;
use super::request::{IngestFormat, IngestRequest};
pub(crate) use jfr::{bounds as recording_bounds, way_out as recording_way_out};

/// Minimum for the limit on label bytes of all profiles in one body.
const MIN_LABELS_LIMIT_BYTES: usize = 16 << 20;
const LABEL_BYTES_LIMIT_NAME: &str = "bytes of labels";
const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Document bytes per value that is kept until the whole document is read.
const BYTES_PER_WAITING_VALUE: usize = 8;

/// Set of HTTP statuses that a client expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientDialect {
    Text,
    Pprof,
}

/// Result of converting a body.
#[derive(Debug)]
pub(crate) struct ConvertedBody {
    pub(crate) door: ClientDialect,
    /// Time of profiles that state none, Unix nanoseconds.
    pub(crate) time_nanos: i64,
    /// Converted profiles. Some formats hold several.
    pub(crate) made: Vec<ConvertedProfile>,
}

/// Profile converted from a body.
#[derive(Debug)]
pub(crate) struct ConvertedProfile {
    /// Name of the profile within its body. Empty if the body has only one.
    pub(crate) name: String,
    /// Names and values of the series' labels, before the label rules.
    pub(crate) labels: Vec<(String, String)>,
    /// Id that distinguishes the profile from others if its time does not.
    pub(crate) client_id: Option<String>,
    /// Converted pprof, `None` if it is empty. An error refuses only this profile.
    pub(crate) pprof: Result<Option<Bytes>, IngestError>,
    /// Samples that were dropped because they have no stack.
    pub(crate) without_stack: u64,
}

/// Returns the memory that labels take until they are stored.
fn labels_bytes(labels: &[(String, String)]) -> usize {
    labels.iter().map(|label| label.0.len() + label.1.len() + size_of_val(label)).sum()
}

/// Limits that conversion enforces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvertLimits {
    /// `samples` limits distinct stacks. Stacks over `kept_depth` lose the frames nearest the leaf.
    profile: PprofLimits,
    jfr: JfrLimits,
}

/// Reason for refusing a body.
#[derive(Debug, thiserror::Error)]
enum ConvertError {
    #[error(transparent)]
    Text(#[from] FoldedTextError),
    #[error("not a tree or trie of stacks: {0}")]
    Trie(#[from] TrieError),
    #[error("not a speedscope document that can be stored: {0}")]
    Speedscope(#[from] SpeedscopeError),
    #[error(transparent)]
    Document(#[from] ProfileReadError),
    #[error("converted profile has {0}")]
    Made(OverLimitError),
    #[error("unknown suffix .{0} of the application's name; use .cpu, .wall, .alloc_space …")]
    UnknownSuffix(String),
    #[error("value times period is over 63 bits; sampleRate is {0}")]
    Overflow(u32),
    #[error(transparent)]
    Form(#[from] FormError),
    #[error("part prev_profile is not supported; update the SDK to a version that sends differences")]
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
    #[error("the body starts like {what}; send {format}")]
    Other { what: &'static str, format: &'static str },
    #[error("form has no part jfr; send the recording in a part of this name, or as the body")]
    NoRecording,
}

impl ConvertError {
    /// Returns the quantity of a profile that is over a configurable limit.
    fn exceeded_limit(&self) -> Option<&'static str> {
        let over = match self {
            Self::Text(FoldedTextError::Tally { why: StackAccumulatorError::OverLimit(over), .. })
            | Self::Trie(TrieError::Tally { why: StackAccumulatorError::OverLimit(over), .. })
            | Self::Made(over) => over.what,
            Self::Pprof(DecodeError::OverLimit { what, .. }) => *what,
            _ => return None,
        };
        Some(over)
    }

    /// Returns the quantity of a document that is over a limit before it becomes a profile.
    fn exceeded_document_limit(&self) -> Option<&'static str> {
        match self {
            Self::Speedscope(SpeedscopeError::OverLimit { over, .. })
            | Self::Document(
                ProfileReadError::PerfScript(PerfScriptError::OverLimit { over, .. })
                | ProfileReadError::Flamebearer(FlamebearerError::OverLimit(over)),
            ) => Some(over.what),
            _ => None,
        }
    }

    /// Returns the reason as a short name, for metrics.
    fn reason(&self) -> &'static str {
        match (self.exceeded_limit(), self) {
            _ if self.exceeded_document_limit().is_some_and(|what| what.starts_with("samples")) => {
                "samples_limit"
            }
            _ if self.exceeded_document_limit().is_some() => "profile_size_limit",
            (Some("bytes" | LABEL_BYTES_LIMIT_NAME), _) => "profile_size_limit",
            (Some("stacks"), _) => "samples_limit",
            (_, Self::Pprof(error) | Self::JfrBody(error)) => error.reason(),
            (_, Self::Jfr(error)) => error.reason(),
            (_, Self::UnknownSuffix(_)) => "unsupported_format",
            _ => "malformed_profile",
        }
    }
}

/// Converts a body to pprof.
pub(crate) fn convert_body(
    request: &IngestRequest,
    sent: Bytes,
    bounds: &ConvertLimits,
) -> Result<ConvertedBody, IngestError> {
    let body = &sent;
    let converted = match &request.format {
        IngestFormat::Groups => document::convert_unlabeled(request, body, bounds),
        IngestFormat::Lines => stack_formats::convert_text(request, body, false, bounds),
        // An empty body is an empty trie. The other formats are never empty.
        IngestFormat::Trie(TrieKind::Trie) if body.is_empty() => {
            stack_formats::convert_text(request, body, true, bounds)
        }
        IngestFormat::Trie(kind) => stack_formats::convert_trie(request, body, *kind, bounds),
        IngestFormat::Pprof => pprof::convert_pprof(request, body, &SampleTypeConfig::default(), bounds),
        IngestFormat::Jfr(content_type) => jfr::convert_jfr(request, content_type.as_deref(), sent, bounds),
        IngestFormat::Form(content_type) => pprof::convert_form(request, content_type, body, bounds),
        IngestFormat::Speedscope => speedscope::convert_speedscope(request, body, bounds),
        IngestFormat::Flamebearer => {
            document::convert_document(request, body, document::InputFormat::Flamebearer, bounds)
        }
        IngestFormat::PerfScript => {
            document::convert_document(request, body, document::InputFormat::PerfScript, bounds)
        }
    };
    converted.map_err(conversion_refusal)
}

fn conversion_refusal(error: ConvertError) -> IngestError {
    let way_out = match (&error, error.exceeded_limit()) {
        (ConvertError::Jfr(error), _) => jfr::way_out(error),
        (_, Some("bytes")) => " (limits.max_profile_size_bytes): profile for a shorter time",
        (_, Some(LABEL_BYTES_LIMIT_NAME)) => {
            " (or limits.max_profile_size_bytes, where that is more): send fewer profiles at once, or shorter labels"
        }
        (_, Some("stacks")) => " (limits.max_profile_stacktrace_samples): profile for a shorter time",
        _ => "",
    };
    let way_out = error.exceeded_document_limit().map_or(way_out, document::limit_advice);
    let status = Status::new(ErrorCode::Invalid, format!("{error}{way_out}")).with_reason(error.reason());
    match (&error, error.exceeded_limit()) {
        (ConvertError::Pprof(_), _) => IngestError::unprocessable(status),
        (ConvertError::Jfr(error), _) if jfr::is_limit_of_profiles(error) => IngestError::from_status(status),
        // Formats other than pprof become profiles before these limits apply, so the status is that of a
        // push.
        (ConvertError::UnknownSuffix(_), _) | (_, Some("bytes" | LABEL_BYTES_LIMIT_NAME | "stacks")) => {
            IngestError::from_status(status)
        }
        _ => IngestError::unprocessable(status),
    }
}

/// Returns the labels of the series. With `app_name`, the application's name is kept as a label even if the
/// client names the service.
fn labels(request: &IngestRequest, metric: &str, app: &str, app_name: bool) -> Vec<(String, String)> {
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

// === impl ConvertedProfile ===

impl ConvertedProfile {
    /// Creates the only profile of a body.
    fn single_profile(labels: Vec<(String, String)>, pprof: Option<Bytes>) -> Self {
        ConvertedProfile { name: String::new(), labels, client_id: None, pprof: Ok(pprof), without_stack: 0 }
    }

    /// Returns the memory that the profile takes until it is stored.
    pub(crate) fn memory_bytes(&self) -> usize {
        let pprof = self.pprof.as_ref().ok().and_then(Option::as_ref);
        labels_bytes(&self.labels) + pprof.map_or(0, Bytes::len)
    }
}

// === impl ConvertLimits ===

/// Minimum bytes of one named frame in pprof, with all entries that it refers to. In memory it takes a few
/// hundred.
const MIN_FRAME_BYTES: usize = 96;
/// Values kept until a document is fully read may take as much memory as the document. This many profiles
/// always fit.
const MIN_WAITING_PROFILES: usize = 4;
/// Minimum for the limit on distinct frames.
const MIN_FRAME_LIMIT: usize = 16 << 10;

impl ConvertLimits {
    pub(crate) fn from_limits(limits: &TenantLimits) -> Self {
        ConvertLimits {
            profile: PprofLimits {
                samples: limits.max_profile_stacktrace_samples as usize,
                kept_depth: limits.max_profile_stacktrace_depth as usize,
                bytes: limits.max_profile_size_bytes.as_usize(),
                ..PprofLimits::default()
            },
            jfr: jfr::bounds(limits),
        }
    }

    /// Returns the limits for a document of `bytes` bytes. Adding up shrinks a document, so it may be as
    /// large as a body. The values kept meanwhile take several times its bytes.
    fn document_limits(&self, bytes: usize) -> PprofLimits {
        let PprofLimits { samples, bytes: most, .. } = self.profile;
        let waiting = bytes / BYTES_PER_WAITING_VALUE;
        PprofLimits {
            bytes,
            samples: samples.max(waiting),
            frames: most.max(waiting),
            entries: (most / MIN_FRAME_BYTES).max(MIN_FRAME_LIMIT),
            tables: bytes.max(most.saturating_mul(MIN_WAITING_PROFILES)),
            ..PprofLimits::default()
        }
    }

    /// Refuses the result of a document if it is over the profile size limit.
    fn check_profile_size(&self, bytes: usize) -> Result<(), ConvertError> {
        let limit = self.profile.bytes;
        let over = OverLimitError { what: "bytes", seen: bytes, limit };
        if bytes > limit { Err(ConvertError::Made(over)) } else { Ok(()) }
    }

    /// Refuses a body if its labels take more than the limit in total.
    fn check_labels_size(&self, bytes: usize) -> Result<(), ConvertError> {
        let limit = self.profile.bytes.max(MIN_LABELS_LIMIT_BYTES);
        let over = OverLimitError { what: LABEL_BYTES_LIMIT_NAME, seen: bytes, limit };
        if bytes > limit { Err(ConvertError::Made(over)) } else { Ok(()) }
    }
}
