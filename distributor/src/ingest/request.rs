//! Query parameters of an ingest request.

use athanor_chassis::Timestamp;
use athanor_chassis::time::expression::{TimeExpression, TimeSyntax};
use athanor_profile::formats::trie::TrieKind;
use athanor_profile::labeling::app_name::{AppName, AppNameError};

/// Samples per second if the client gives no rate.
const DEFAULT_SAMPLE_RATE: u32 = 100;
/// Maximum samples per second, one per nanosecond. No profiler samples faster.
const MAX_SAMPLE_RATE: u32 = 1_000_000_000;

/// Parameters of a request, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestRequest {
    /// Name and labels of the application.
    pub name: AppName,
    /// Format of the body.
    pub format: IngestFormat,
    /// Start of the profile, Unix nanoseconds; 0 if it is not given.
    pub from: i64,
    /// Duration of the profile in nanoseconds; 0 if it is not given.
    pub duration: i64,
    /// Samples per second; 0 means that the values are not samples.
    pub sample_rate: u32,
    /// Profiler that recorded the profile, `unknown` if it is not given.
    pub spy: String,
}

/// Format of a request body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngestFormat {
    /// `root;caller;leaf 12` per line.
    Groups,
    /// `root;caller;leaf` per line, one sample each.
    Lines,
    /// pprof, plain or compressed with gzip.
    Pprof,
    /// Form with pprof in it; holds its content type.
    Form(String),
    /// Flight recording. If it is in a form, this is the form's content type.
    Jfr(Option<String>),
    /// Tree or trie of stacks.
    Trie(TrieKind),
    /// Document of speedscope, as JSON.
    Speedscope,
    /// Flame graph in the flamebearer JSON format.
    Flamebearer,
    /// Output of `perf script`.
    PerfScript,
}

/// Reason for refusing the parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IngestRequestError {
    /// The parameter `name` is invalid.
    #[error("parameter name: {0}")]
    Name(#[from] AppNameError),
}

impl IngestRequest {
    /// Reads a percent-encoded query string. If a parameter is given twice, the first one wins. Parameters
    /// about display (`units`, `aggregationType`) have no effect.
    pub fn parse(
        query: &str,
        content_type: Option<&str>,
        now: Timestamp,
    ) -> Result<Self, IngestRequestError> {
        let value = |wanted: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        let name = AppName::parse(&value("name"))?;
        let time = |wanted: &str| {
            let time = TimeExpression::parse(&value(wanted), TimeSyntax::Ingest);
            time.and_then(|time| time.resolve(now)).map_or(0, Timestamp::nanos)
        };
        let from = time("from");
        let until = time("until");
        let spy = Some(value("spyName")).filter(|spy| !spy.is_empty()).unwrap_or_else(|| "unknown".into());
        Ok(IngestRequest {
            name,
            format: IngestFormat::from_parameters(&value("format"), content_type.unwrap_or_default()),
            from,
            duration: if from == 0 { 0 } else { until.saturating_sub(from).max(0) },
            sample_rate: value("sampleRate")
                .parse()
                .ok()
                .filter(|&rate| rate <= MAX_SAMPLE_RATE)
                .unwrap_or(DEFAULT_SAMPLE_RATE),
            spy,
        })
    }
}

impl IngestFormat {
    fn from_parameters(format: &str, content_type: &str) -> Self {
        let form = content_type.contains("multipart/form-data");
        match (format, content_type) {
            ("trie", _) | (_, "binary/octet-stream+trie") => IngestFormat::Trie(TrieKind::Trie),
            ("tree", _) | (_, "binary/octet-stream+tree") => IngestFormat::Trie(TrieKind::Tree),
            ("lines", _) => IngestFormat::Lines,
            ("jfr", _) => IngestFormat::Jfr(form.then(|| content_type.to_owned())),
            ("pprof", _) if !form => IngestFormat::Pprof,
            ("speedscope", _) => IngestFormat::Speedscope,
            ("flamebearer", _) => IngestFormat::Flamebearer,
            ("perf_script" | "perf", _) => IngestFormat::PerfScript,
            _ if form => IngestFormat::Form(content_type.to_owned()),
            _ => IngestFormat::Groups,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str, content_type: &str) -> IngestRequest {
        IngestRequest::parse(query, Some(content_type), Timestamp::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn parameters_have_defaults() {
        let request = read("name=app%7Ba%3Db+c%7D&name=other&from=10&until=15&units=bytes", "");
        assert_eq!(request.name, AppName::parse("app{a=b c}").unwrap());
        let (from, duration) = (10_000_000_000, 5_000_000_000);
        let expected = IngestRequest {
            name: request.name.clone(),
            format: IngestFormat::Groups,
            from,
            duration,
            sample_rate: 100,
            spy: "unknown".into(),
        };
        assert_eq!(request, expected);
        let bare = read("name=app&until=7&spyName=rbspy", "");
        assert_eq!((bare.from, bare.duration, bare.spy.as_str()), (0, 0, "rbspy"));
        assert_eq!(
            IngestRequest::parse("", None, Timestamp::UNIX_EPOCH),
            Err(IngestRequestError::Name(AppNameError::Empty))
        );
    }

    #[test]
    fn a_rate_that_is_no_rate_is_the_default() {
        for (text, rate) in [("97", 97), ("0", 0), ("x", 100), ("-5", 100), ("", 100), ("1000000001", 100)] {
            assert_eq!(read(&format!("name=a&sampleRate={text}"), "").sample_rate, rate, "{text}");
        }
    }

    #[test]
    fn the_format_is_known_by_parameter_or_type() {
        let form = "multipart/form-data; boundary=b";
        for (format, content_type, expected) in [
            ("", "", IngestFormat::Groups),
            ("folded", "text/plain", IngestFormat::Groups),
            ("nosuch", form, IngestFormat::Form(form.into())),
            ("pprof", form, IngestFormat::Form(form.into())),
            ("pprof", "application/octet-stream", IngestFormat::Pprof),
            ("lines", form, IngestFormat::Lines),
            ("", "binary/octet-stream+trie", IngestFormat::Trie(TrieKind::Trie)),
            ("trie", form, IngestFormat::Trie(TrieKind::Trie)),
            ("tree", "", IngestFormat::Trie(TrieKind::Tree)),
            ("jfr", form, IngestFormat::Jfr(Some(form.into()))),
            ("jfr", "application/octet-stream", IngestFormat::Jfr(None)),
            ("speedscope", "", IngestFormat::Speedscope),
            ("flamebearer", "", IngestFormat::Flamebearer),
            ("perf", "", IngestFormat::PerfScript),
        ] {
            assert_eq!(read(&format!("name=a&format={format}"), content_type).format, expected, "{format}");
        }
    }
}
