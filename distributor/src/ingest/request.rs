//! The parameters of a request.

use athanor_chassis::Timestamp;
use athanor_profile::trie::TrieKind;

use super::app_name::{AppName, AppNameError};
use super::time;

/// Samples in a second where the client does not say.
const DEFAULT_SAMPLE_RATE: u32 = 100;
/// One a nanosecond; nothing samples faster.
const MAX_SAMPLE_RATE: u32 = 1_000_000_000;

/// What a request says beside its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestRequest {
    /// Whose profile it is.
    pub name: AppName,
    /// What the body is.
    pub format: IngestFormat,
    /// When the profile begins, Unix nanoseconds; 0 if that is not said.
    pub from: i64,
    /// How long it took, in nanoseconds; 0 if that is not said.
    pub duration: i64,
    /// Samples in a second; 0 says that the values are no samples.
    pub sample_rate: u32,
    /// Which profiler took it.
    pub spy: String,
}

/// What a body is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngestFormat {
    /// `root;caller;leaf 12` per line.
    Groups,
    /// `root;caller;leaf` per line, one sample each.
    Lines,
    /// pprof, plain or gzip.
    Pprof,
    /// A form with pprof in it; its content type.
    Form(String),
    /// A flight recording, alone or in a form, whose content type then is here.
    Jfr(Option<String>),
    /// A tree or a trie of stacks.
    Trie(TrieKind),
    /// A document of speedscope.
    Speedscope,
    /// A flame graph as JSON.
    Flamebearer,
    /// What `perf script` prints.
    PerfScript,
}

/// Why parameters were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IngestRequestError {
    /// The parameter `name`.
    #[error("parameter name: {0}")]
    Name(#[from] AppNameError),
}

impl IngestRequest {
    /// Reads a query string, percent-encoded as it came. Of a parameter that is there twice the first one counts.
    /// Parameters that only say how to show a profile (`units`, `aggregationType`) have no effect.
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
        let from = time::parse_time(&value("from"), now).unwrap_or(0);
        let until = time::parse_time(&value("until"), now).unwrap_or(0);
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
