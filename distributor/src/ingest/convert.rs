//! From the body of a request to pprof profiles and the labels of their series. Pure; runs on compute threads.

mod folded;
mod jfr;
mod pprof;

use athanor_chassis::{Code, Limits, Status};
use athanor_profile::jfr::{JfrError, Limits as JfrLimits};
use athanor_profile::pprof::DecodeError;
use bytes::Bytes;

use super::form::FormRefused;
use super::metric::TypeConfig;
use super::request::{Format, Request};
use super::text::{TextBounds, TextRefused};
use super::{Refused, UNPROCESSABLE};
use folded::folded;

const SECOND: i64 = 1_000_000_000;

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
    /// Names and values of the series, before the rules.
    pub(crate) labels: Vec<(String, String)>,
    /// Nothing if there is nothing in it.
    pub(crate) pprof: Option<Bytes>,
}

/// Limits that converting must keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    text: TextBounds,
    jfr: JfrLimits,
}

/// Why a body was refused.
#[derive(Debug, thiserror::Error)]
enum ConvertError {
    #[error(transparent)]
    Text(#[from] TextRefused),
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
    #[error("form has no part jfr; send the recording in a part of this name, or as the body")]
    NoRecording,
    #[error("format {0} is not supported here; send pprof, a flight recording or folded text")]
    NotSupported(&'static str),
}

impl ConvertError {
    /// In a word, for those who count refusals.
    fn reason(&self) -> &'static str {
        match self {
            Self::Pprof(error) | Self::JfrBody(error) => error.reason(),
            Self::Jfr(error) => error.reason(),
            Self::Text(TextRefused::OverLimit { what: "bytes", .. }) => "profile_size_limit",
            Self::Text(TextRefused::OverLimit { .. }) => "samples_limit",
            Self::UnknownSuffix(_) | Self::NotSupported(_) => "unsupported_format",
            _ => "malformed_profile",
        }
    }
}

/// Turns a body into pprof.
pub(crate) fn convert(request: &Request, body: &Bytes, bounds: &Bounds) -> Result<Converted, Refused> {
    let converted = match &request.format {
        Format::Groups => folded(request, body, true, bounds),
        Format::Lines => folded(request, body, false, bounds),
        Format::Pprof => pprof::pprof(request, body, &TypeConfig::default(), bounds),
        Format::Jfr(content_type) => jfr::jfr(request, content_type.as_deref(), body, bounds),
        Format::Form(content_type) => pprof::form(request, content_type, body, bounds),
        // An empty trie holds nothing; the other formats begin with something.
        Format::Other("trie") if body.is_empty() => folded(request, body, true, bounds),
        Format::Other(name) => Err(ConvertError::NotSupported(name)),
    };
    converted.map_err(refused)
}

fn refused(error: ConvertError) -> Refused {
    let way_out = match &error {
        ConvertError::Pprof(DecodeError::OverLimit { what: "bytes", .. }) => {
            " (limits.max_profile_size_bytes): profile for a shorter time"
        }
        ConvertError::Jfr(error) => jfr::way_out(error),
        ConvertError::JfrBody(DecodeError::OverLimit { .. }) => jfr::SHORTER,
        _ => "",
    };
    let status = Status::new(Code::Invalid, format!("{error}{way_out}")).because(error.reason());
    match error {
        // Text becomes a profile before its limits hold, so they are those of a push.
        ConvertError::UnknownSuffix(_) | ConvertError::Text(TextRefused::OverLimit { .. }) => {
            Refused::plain(status)
        }
        _ => Refused { http: UNPROCESSABLE, code: "unknown", status },
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

// === impl Bounds ===

impl Bounds {
    pub(crate) fn of(limits: &Limits) -> Self {
        Bounds {
            text: TextBounds {
                stacks: limits.max_profile_stacktrace_samples as usize,
                depth: limits.max_profile_stacktrace_depth as usize,
                bytes: limits.max_profile_size_bytes.as_usize(),
            },
            jfr: jfr::bounds(limits),
        }
    }
}
