//! From the body of a request to one pprof profile and the labels of its series. Pure; runs on compute threads.

use athanor_chassis::Limits;
use athanor_profile::ValueType;
use athanor_profile::pprof::{
    DecodeError, Inflater, Limits as PprofLimits, encode, number_functions, rename_functions, rename_types,
    sample_types,
};
use athanor_profile::suffix::Suffix;
use bytes::Bytes;

use super::form::{Form, FormRefused};
use super::metric::TypeConfig;
use super::request::{Format, Request};
use super::text::{self, TextBounds, TextRefused};
use super::{Refused, UNPROCESSABLE};
use athanor_chassis::{Code, Status};

const SECOND: i64 = 1_000_000_000;
/// The longest `sample_type_config`. SDKs send a few hundred bytes.
const CONFIG: usize = 64 << 10;

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
    /// Names and values of the series, before the rules.
    pub(crate) labels: Vec<(String, String)>,
    /// For a profile that does not say its time.
    pub(crate) time_nanos: i64,
    /// Nothing if the body holds nothing.
    pub(crate) pprof: Option<Bytes>,
}

/// Limits that converting must keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    text: TextBounds,
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
    #[error("format {0} is not supported here; send pprof or folded text")]
    NotSupported(&'static str),
}

impl ConvertError {
    /// In a word, for those who count refusals.
    fn reason(&self) -> &'static str {
        match self {
            Self::Pprof(error) => error.reason(),
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
        Format::Pprof => pprof(request, body, &TypeConfig::default(), bounds),
        Format::Form(content_type) => form(request, content_type, body, bounds),
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

// === text ===

fn folded(request: &Request, body: &[u8], counted: bool, bounds: &Bounds) -> Result<Converted, ConvertError> {
    let mut profile = text::parse(body, counted, ValueType::default(), &bounds.text)?;
    let name = &request.name;
    let (door, time_nanos) = (Door::Text, request.from);
    // Old SDKs sent each request of a service once more, as a series of its own.
    if name.labels.get("profile_id").is_some_and(|id| !id.is_empty()) {
        let labels = labels(request, "process_cpu", &name.app, false);
        return Ok(Converted { door, labels, time_nanos, pprof: None });
    }
    let Some(metric) = Suffix::of(&name.app) else {
        let suffix = name.app.rsplit('.').next().unwrap_or_default();
        return Err(ConvertError::UnknownSuffix(suffix.chars().take(100).collect()));
    };
    let header = &mut profile.header;
    (header.time_nanos, header.duration_nanos) = (request.from, request.duration);
    header.types = vec![metric.value_type.clone()];
    let rate = request.sample_rate;
    if let Some(time) = metric.sampled_time().filter(|_| rate > 0) {
        let period = SECOND / i64::from(rate);
        header.types = vec![ValueType::new(time, "nanoseconds")];
        header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
        header.period = period;
        for value in &mut profile.samples.values {
            *value = value.checked_mul(period).ok_or(ConvertError::Overflow(rate))?;
        }
    }
    let pprof = (!profile.samples.is_empty()).then(|| encode(&profile).into());
    Ok(Converted { door, labels: labels(request, metric.metric, metric.app, true), time_nanos, pprof })
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

// === pprof ===

fn form(
    request: &Request,
    content_type: &str,
    body: &Bytes,
    bounds: &Bounds,
) -> Result<Converted, ConvertError> {
    let form = Form::parse(content_type, body)?;
    if form.get("prev_profile").is_some() {
        return Err(ConvertError::PreviousProfile);
    }
    let config = match form.get("sample_type_config") {
        None => TypeConfig::default(),
        Some(json) if json.len() > CONFIG => {
            return Err(ConvertError::Config(format!("{} bytes, the limit is {CONFIG}", json.len())));
        }
        Some(json) => TypeConfig::parse(json).map_err(|error| ConvertError::Config(error.to_string()))?,
    };
    pprof(request, form.get("profile").unwrap_or(&Bytes::new()), &config, bounds)
}

fn pprof(
    request: &Request,
    sent: &Bytes,
    config: &TypeConfig,
    bounds: &Bounds,
) -> Result<Converted, ConvertError> {
    let (door, time_nanos) = (Door::Pprof, request.from);
    if sent.is_empty() {
        let labels = labels(request, "process_cpu", &request.name.app, false);
        return Ok(Converted { door, labels, time_nanos, pprof: None });
    }
    let mut inflater = Inflater::default();
    let limits = PprofLimits { bytes: bounds.text.bytes, ..PprofLimits::default() };
    let raw = inflater.inflate(sent, limits.bytes)?;
    let repaired = repair(raw, &limits, &request.spy, config)?;
    let types = sample_types(repaired.as_deref().unwrap_or(raw), &limits)?;
    let labels = labels(request, config.metric(&types), &request.name.app, false);
    // Bytes that need no repair go on as they came, compressed and not copied.
    let pprof = Some(repaired.map_or_else(|| sent.clone(), Bytes::from));
    Ok(Converted { door, labels, time_nanos, pprof })
}

/// Repairs what some SDKs get wrong; nothing if there is nothing to repair.
fn repair(
    raw: &[u8],
    limits: &PprofLimits,
    spy: &str,
    config: &TypeConfig,
) -> Result<Option<Vec<u8>>, DecodeError> {
    match spy {
        "pyspy" => {
            let named = |name: &str, file: &str| (!file.starts_with('/')).then(|| with_file(name, file))?;
            rename_functions(raw, limits, named)
        }
        "rbspy" | "scripting" => rename_functions(raw, limits, with_file),
        _ if spy == "dotnetspy" || spy == "unknown" && config.names("inuse-space") => {
            let numbered = number_functions(raw)?;
            let renamed = rename_types(numbered.as_deref().unwrap_or(raw), limits, |name| {
                name.contains('-').then(|| name.replace('-', "_"))
            })?;
            Ok(renamed.or(numbered))
        }
        _ => Ok(None),
    }
}

/// Functions of scripts have short names, so people tell them apart by their file.
fn with_file(name: &str, file: &str) -> Option<String> {
    (!file.is_empty()).then(|| format!("{file} {name}"))
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
        }
    }
}
