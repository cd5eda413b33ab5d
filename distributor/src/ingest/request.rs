//! The parameters of a request.

use athanor_chassis::Timestamp;
use athanor_profile::trie::Kind;

use super::name::{AppName, NameRefused};
use super::time;

/// Samples in a second where the client does not say.
const SAMPLE_RATE: u32 = 100;
/// One a nanosecond; nothing samples faster.
const FASTEST: u32 = 1_000_000_000;

/// What a request says beside its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose profile it is.
    pub name: AppName,
    /// What the body is.
    pub format: Format,
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
pub enum Format {
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
    Trie(Kind),
    /// A document of speedscope.
    Speedscope,
    /// A flame graph as JSON.
    Flamebearer,
    /// What `perf script` prints.
    PerfScript,
}

/// Why parameters were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefused {
    /// The parameter `name`.
    #[error("parameter name: {0}")]
    Name(#[from] NameRefused),
}

impl Request {
    /// Reads a query string, percent-encoded as it came. Of a parameter that is there twice the first one counts.
    /// Parameters that only say how to show a profile (`units`, `aggregationType`) have no effect.
    pub fn parse(query: &str, content_type: Option<&str>, now: Timestamp) -> Result<Self, RequestRefused> {
        let value = |wanted: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        let name = AppName::parse(&value("name"))?;
        let from = time::parse(&value("from"), now).unwrap_or(0);
        let until = time::parse(&value("until"), now).unwrap_or(0);
        let spy = Some(value("spyName")).filter(|spy| !spy.is_empty()).unwrap_or_else(|| "unknown".into());
        Ok(Request {
            name,
            format: Format::of(&value("format"), content_type.unwrap_or_default()),
            from,
            duration: if from == 0 { 0 } else { until.saturating_sub(from).max(0) },
            sample_rate: value("sampleRate")
                .parse()
                .ok()
                .filter(|&rate| rate <= FASTEST)
                .unwrap_or(SAMPLE_RATE),
            spy,
        })
    }
}

impl Format {
    fn of(format: &str, content_type: &str) -> Self {
        let form = content_type.contains("multipart/form-data");
        match (format, content_type) {
            ("trie", _) | (_, "binary/octet-stream+trie") => Format::Trie(Kind::Trie),
            ("tree", _) | (_, "binary/octet-stream+tree") => Format::Trie(Kind::Tree),
            ("lines", _) => Format::Lines,
            ("jfr", _) => Format::Jfr(form.then(|| content_type.to_owned())),
            ("pprof", _) if !form => Format::Pprof,
            ("speedscope", _) => Format::Speedscope,
            ("flamebearer", _) => Format::Flamebearer,
            ("perf_script" | "perf", _) => Format::PerfScript,
            _ if form => Format::Form(content_type.to_owned()),
            _ => Format::Groups,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str, content_type: &str) -> Request {
        Request::parse(query, Some(content_type), Timestamp::EPOCH).unwrap()
    }

    #[test]
    fn parameters_have_defaults() {
        let request = read("name=app%7Ba%3Db+c%7D&name=other&from=10&until=15&units=bytes", "");
        assert_eq!(request.name, AppName::parse("app{a=b c}").unwrap());
        let (from, duration) = (10_000_000_000, 5_000_000_000);
        let expected = Request {
            name: request.name.clone(),
            format: Format::Groups,
            from,
            duration,
            sample_rate: 100,
            spy: "unknown".into(),
        };
        assert_eq!(request, expected);
        let bare = read("name=app&until=7&spyName=rbspy", "");
        assert_eq!((bare.from, bare.duration, bare.spy.as_str()), (0, 0, "rbspy"));
        assert_eq!(Request::parse("", None, Timestamp::EPOCH), Err(RequestRefused::Name(NameRefused::Empty)));
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
            ("", "", Format::Groups),
            ("folded", "text/plain", Format::Groups),
            ("nosuch", form, Format::Form(form.into())),
            ("pprof", form, Format::Form(form.into())),
            ("pprof", "application/octet-stream", Format::Pprof),
            ("lines", form, Format::Lines),
            ("", "binary/octet-stream+trie", Format::Trie(Kind::Trie)),
            ("trie", form, Format::Trie(Kind::Trie)),
            ("tree", "", Format::Trie(Kind::Tree)),
            ("jfr", form, Format::Jfr(Some(form.into()))),
            ("jfr", "application/octet-stream", Format::Jfr(None)),
            ("speedscope", "", Format::Speedscope),
            ("flamebearer", "", Format::Flamebearer),
            ("perf", "", Format::PerfScript),
        ] {
            assert_eq!(read(&format!("name=a&format={format}"), content_type).format, expected, "{format}");
        }
    }
}
