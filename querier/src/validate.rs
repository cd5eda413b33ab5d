//! Request validation before anything is read.

use std::collections::BTreeSet;

use athanor_chassis::{ErrorCode, Status, TenantLimits};
use athanor_profile::call_tree::tree::{NodeSelection, Tree};
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::encoding::hex::parse_hex_id;
use athanor_profile::formats::app_name_suffix::AppNameSuffix;
use athanor_profile::store_interface::series::METRIC_NAME_LABEL;
use athanor_profile::{ProfileType, SpanFilter, ValueType};
use athanor_query::{CallSite, ProfileSelection, ResultLimits, Selector, TimeRange};

/// Maximum number of selectors of one request.
const MAX_SELECTORS: usize = 64;
/// Maximum number of labels for grouping, or in a response.
const MAX_LABELS: usize = 64;
/// Maximum bytes of selectors that are parsed on the I/O thread, if they contain no regular expressions. The
/// expansions of older clients' application names are short then, too.
const MAX_INLINE_SELECTOR_BYTES: usize = 256;
/// Maximum number of functions in a call site.
const MAX_CALL_SITE_FUNCTIONS: usize = 1_000;
/// Maximum number of span, trace or profile ids.
const MAX_IDS_PER_REQUEST: usize = 10_000;
/// Default number of nodes of a call graph.
const DEFAULT_GRAPH_NODES: usize = 100;
/// Maximum number of nodes of a call graph. Larger graphs cannot be laid out.
const MAX_GRAPH_NODES: usize = 2_000;
/// Nanoseconds per millisecond.
pub(crate) const NANOS_PER_MILLI: i64 = 1_000_000;

pub(crate) fn invalid_argument(message: impl Into<String>) -> Status {
    Status::new(ErrorCode::Invalid, message)
}

/// Converts an inclusive range of milliseconds. The end is exact: one nanosecond later is outside.
pub(crate) fn parse_range(start: i64, end: i64) -> Result<TimeRange, Status> {
    if start == 0 || end == 0 {
        return Err(invalid_argument(format!(
            "request has no time range: start is {start} and end is {end}; set both, in milliseconds since 1970, at \
             least 1"
        )));
    }
    if start > end {
        return Err(invalid_argument(format!(
            "time range ends at {end}, before it starts at {start}; swap them"
        )));
    }
    Ok(TimeRange {
        from: start.saturating_mul(NANOS_PER_MILLI),
        to: end.saturating_mul(NANOS_PER_MILLI).saturating_add(1),
    })
}

pub(crate) fn parse_profile_type(text: &str) -> Result<ProfileType, Status> {
    text.parse::<ProfileType>().map_err(|error| invalid_argument(error.to_string()))
}

/// Parses a selector, `{…}`, with an optional name before its braces. A name such as `shop.cpu` stands for an
/// application and its profile type. Any other name is the metric name.
pub(crate) fn parse_selector(text: &str) -> Result<Selector, Status> {
    let refused = |error| Status::from_error(&error);
    let (name, rest) = text.split_at(text.find('{').unwrap_or(text.len()));
    let name = name.trim();
    let is_name = |name: &str| !name.contains(|c: char| c.is_whitespace() || "\"'`=!~,}".contains(c));
    if name.is_empty() || !is_name(name) {
        return text.parse().map_err(refused);
    }
    let selector: Selector =
        if rest.is_empty() { Ok(Selector::default()) } else { rest.parse() }.map_err(refused)?;
    let Some(application) = ApplicationName::from_selector_name(name) else {
        return selector.with_equal(METRIC_NAME_LABEL, name).map_err(refused);
    };
    let services = application.services()?;
    let ProfileType { name, value, .. } = application.profile_type;
    let of_type = selector.and(services).and_then(|all| all.with_equal(METRIC_NAME_LABEL, &name));
    let of_value = of_type.and_then(|all| all.with_equal("__type__", &value.kind));
    of_value.and_then(|all| all.with_equal("__unit__", &value.unit)).map_err(refused)
}

/// Application and profile type, as older clients write both: `shop.cpu`.
pub(crate) struct ApplicationName<'t> {
    app: &'t str,
    /// Full name, including the profile type.
    name: &'t str,
    /// Profile type without a period, so that any period matches.
    pub(crate) profile_type: ProfileType,
}

impl<'t> ApplicationName<'t> {
    /// Parses the name before the braces of a selector.
    pub(crate) fn from_selector_name(text: &'t str) -> Option<Self> {
        let name = text.split('{').next().unwrap_or_default().trim();
        let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
        let suffix = AppNameSuffix::parse(name)
            .filter(|suffix| is_plain && !suffix.app.is_empty() && suffix.app != name)?;
        let profile_type = ProfileType {
            name: suffix.metric.to_owned(),
            value: suffix.stored_type(),
            period: ValueType::default(),
        };
        Some(ApplicationName { app: suffix.app, name, profile_type })
    }

    /// Returns a selector of the services that uploads under this name use. Text uploads use the service
    /// `shop`, pprof uploads use `shop.cpu`.
    fn services(&self) -> Result<Selector, Status> {
        let plain = |name: &str| name.replace('.', "\\\\.");
        let services = format!("{{service_name=~\"{}|{}\"}}", plain(self.app), plain(self.name));
        services.parse().map_err(|error| Status::from_error(&error))
    }
}

/// Returns true if these selectors are fast to parse.
pub(crate) fn is_short(texts: &[&str]) -> bool {
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    bytes <= MAX_INLINE_SELECTOR_BYTES
        && texts.iter().all(|text| !text.contains("=~") && !text.contains("!~"))
}

/// Parses selectors that must all match.
pub(crate) fn parse_selectors(texts: &[String]) -> Result<Selector, Status> {
    check_count("selectors", texts.len(), MAX_SELECTORS)?;
    texts.iter().try_fold(Selector::default(), |all, text| {
        all.and(parse_selector(text)?).map_err(|error| Status::from_error(&error))
    })
}

pub(crate) fn parse_typed_selection(
    type_id: &str,
    text: &str,
    start: i64,
    end: i64,
) -> Result<ProfileSelection, Status> {
    let profile_type = Some(parse_profile_type(type_id)?);
    let selector = parse_selector(text)?;
    let time = parse_range(start, end)?;
    Ok(ProfileSelection { profile_type, selector, time, ..ProfileSelection::default() })
}

/// Limits of the number of nodes in a rendered tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeLimit {
    /// Requested number of nodes. Nodes as heavy as the last one stay too.
    pub(crate) asked: usize,
    /// Maximum number of nodes including ties. If ties exceed it, none of them stays.
    pub(crate) most: usize,
    /// Maximum weight of dropped nodes in parts per million. As few nodes stay as this allows.
    pub(crate) max_other_ppm: Option<u32>,
    /// True if the root counts as a node.
    pub(crate) bars: bool,
}

impl NodeLimit {
    /// Creates a limit of `asked` nodes. Nodes as heavy as the last one stay too, unless the total exceeds
    /// `most`.
    pub(crate) fn with_count(asked: usize, most: usize) -> Self {
        NodeLimit { asked, most, max_other_ppm: None, bars: false }
    }

    /// Counts drawn bars, and so also the root.
    pub(crate) fn as_bars(self) -> Self {
        NodeLimit { bars: true, ..self }
    }

    /// Truncates a tree to the limit.
    pub(crate) fn truncate(self, tree: &mut Tree) {
        match self.max_other_ppm {
            Some(max_ppm) => tree.truncate_to_weight(max_ppm, self.asked),
            None if self.bars => tree.truncate_to_bars(self.asked, self.most),
            None => tree.truncate_with_ties(self.asked, self.most),
        }
    }

    /// Truncates a tree to at most `asked` nodes, also where other nodes weigh as much as the last one kept.
    pub(crate) fn truncate_exactly(self, tree: &mut Tree) {
        match self.max_other_ppm {
            Some(max_ppm) => tree.truncate_to_weight(max_ppm, self.asked),
            None => tree.truncate(self.asked),
        }
    }

    /// Returns the nodes that [`truncate_exactly`](Self::truncate_exactly) keeps. `None` keeps all.
    pub(crate) fn select_exactly(self, tree: &Tree) -> Option<NodeSelection> {
        match self.max_other_ppm {
            Some(max_ppm) => Some(tree.select_weight(max_ppm, self.asked)),
            None => tree.select_heaviest(self.asked),
        }
    }
}

/// Parses a node limit with an optional weight of dropped nodes. With such a weight and no requested number,
/// as many nodes stay as the weight demands.
pub(crate) fn parse_node_limit(
    asked: Option<i64>,
    max_other_ppm: Option<u32>,
    limits: &TenantLimits,
) -> Result<NodeLimit, Status> {
    let checked = parse_max_nodes(asked, limits)?;
    let is_free = max_other_ppm.is_some() && asked.unwrap_or_default() == 0;
    let asked = if is_free { checked.most } else { checked.asked };
    Ok(NodeLimit { asked, max_other_ppm, ..checked })
}

/// Parses a node limit. Without a requested number the default of the tenant applies.
pub(crate) fn parse_max_nodes(asked: Option<i64>, limits: &TenantLimits) -> Result<NodeLimit, Status> {
    let most = limits.max_flamegraph_nodes_max;
    let nodes = |asked| Ok(NodeLimit::with_count(asked, most as usize));
    match asked.unwrap_or_default() {
        0 => nodes(limits.max_flamegraph_nodes_default.min(most) as usize),
        asked if asked < 0 => {
            Err(invalid_argument(format!("max nodes is {asked}; set a positive number or none")))
        }
        asked if asked > i64::from(most) => Err(invalid_argument(format!(
            "max nodes is {asked}, the limit is {most} (limits.max_flamegraph_nodes_max); request fewer"
        ))),
        asked => nodes(asked as usize),
    }
}

/// Returns the node limit of a call graph. A truncated graph also reports its full number of nodes.
pub(crate) fn graph_node_limit(asked: Option<NodeLimit>) -> usize {
    asked.map_or(DEFAULT_GRAPH_NODES, |nodes| nodes.asked).min(MAX_GRAPH_NODES)
}

pub(crate) fn parse_call_site(names: Vec<String>) -> Result<CallSite, Status> {
    check_count("functions of a call site", names.len(), MAX_CALL_SITE_FUNCTIONS)?;
    Ok(names)
}

pub(crate) fn check_labels(names: &[String]) -> Result<(), Status> {
    check_count("labels", names.len(), MAX_LABELS)
}

/// Parses a filter by span ids or by trace ids. Returns none if neither is given.
pub(crate) fn parse_request_filter(
    spans: &[String],
    traces: &[String],
) -> Result<Option<SpanFilter>, Status> {
    if !spans.is_empty() && !traces.is_empty() {
        return Err(invalid_argument("request selects by spans and by traces; use one of them"));
    }
    let span_ids = parse_hex_ids("span ids", spans, 16)?;
    let trace_ids = parse_hex_ids("trace ids", traces, 32)?;
    Ok(match (spans, traces) {
        ([], []) => None,
        ([], _) => Some(SpanFilter::traces(trace_ids)),
        _ => Some(SpanFilter::spans(span_ids.into_iter().map(|id| id as u64))),
    })
}

/// Parses ids of exactly `digits` hexadecimal digits.
pub(crate) fn parse_hex_ids(what: &str, ids: &[String], digits: usize) -> Result<Vec<u128>, Status> {
    check_count(what, ids.len(), MAX_IDS_PER_REQUEST)?;
    let bad = |id: &String| invalid_argument(format!("{what} have {digits} hexadecimal digits, not {id:?}"));
    let number = |id: &String| parse_hex_id(id, digits).ok_or_else(|| bad(id));
    ids.iter().map(number).collect()
}

/// Parses profile ids in UUID form.
pub(crate) fn parse_profile_ids(ids: &[String]) -> Result<BTreeSet<ContentHash>, Status> {
    check_count("profile ids", ids.len(), MAX_IDS_PER_REQUEST)?;
    let is_uuid = |id: &str| {
        id.len() == 36
            && id.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
    };
    let bad = |id: &String| invalid_argument(format!("profile id {id:?} is not a UUID"));
    let number = |id: &String| {
        let number = is_uuid(id).then(|| ContentHash::from_str_radix(&id.replace('-', ""), 16).ok());
        number.flatten().ok_or_else(|| bad(id))
    };
    ids.iter().map(number).collect()
}

/// Formats an id as a UUID.
pub(crate) fn format_uuid(id: ContentHash) -> String {
    let digits = format!("{id:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

/// Converts a step from seconds to nanoseconds.
pub(crate) fn parse_step(seconds: f64) -> Result<i64, Status> {
    // The comparison also rejects NaN. The cast saturates.
    if seconds * 1e3 >= 1.0 {
        return Ok(((seconds * 1e3) as i64).saturating_mul(NANOS_PER_MILLI));
    }
    Err(invalid_argument(format!("step is {seconds} s, it must be at least 0.001 s")))
}

/// Parses the maximum length of a list. None or a number that is not positive means no limit.
pub(crate) fn parse_limit(limit: Option<i64>) -> Option<usize> {
    limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0)
}

pub(crate) fn default_result_limits() -> ResultLimits {
    ResultLimits::default()
}

fn check_count(what: &str, seen: usize, limit: usize) -> Result<(), Status> {
    if seen <= limit {
        return Ok(());
    }
    Err(invalid_argument(format!("request has {seen} {what}, the limit is {limit}; send fewer")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_may_have_a_name() {
        let shown = |text: &str| parse_selector(text).map(|selector| selector.to_string());
        assert_eq!(shown(r#"cpu{a="b"}"#).unwrap(), r#"{a="b", __name__="cpu"}"#);
        assert_eq!(shown("a:b:c::").unwrap(), r#"{__name__="a:b:c::"}"#);
        assert_eq!(shown("{}").unwrap(), "{}");
        assert_eq!(
            shown(r#"a.b.wall{c!="d"}"#).unwrap(),
            r#"{c!="d", service_name=~"a\\.b|a\\.b\\.wall", __name__="wall", __type__="wall", __unit__="nanoseconds"}"#
        );
        for metric in ["a.b.nosuch", ".cpu", "cpu", "a\u{e4}.cpu"] {
            assert_eq!(shown(metric).unwrap(), format!("{{__name__={metric:?}}}"));
        }
        for refused in ["", " ", r#"a="b""#, "{", "x{", "a b{}", r#"{a=="b"}"#, "{a=b}"] {
            assert_eq!(parse_selector(refused).unwrap_err().code, ErrorCode::Invalid, "{refused:?}");
        }
    }

    #[test]
    fn what_takes_a_while_to_read_is_not_read_at_once() {
        assert!(is_short(&[]) && is_short(&["{a=\"b\"}", "shop.cpu{}"]));
        assert!(!is_short(&["{a=~\"b\"}"]) && !is_short(&["{}", "{a!~\"b\"}"]));
        // Its name is an expression.
        assert!(!is_short(&[&format!("{}.cpu{{}}", "a".repeat(MAX_INLINE_SELECTOR_BYTES))]));
        assert!(!is_short(&["a".repeat(MAX_INLINE_SELECTOR_BYTES).as_str(), "b"]));
    }

    #[test]
    fn ranges_steps_nodes_and_ids() {
        assert_eq!(parse_range(1, 1).unwrap(), TimeRange { from: NANOS_PER_MILLI, to: NANOS_PER_MILLI + 1 });
        assert!(
            parse_range(-5, 5).is_ok()
                && parse_range(0, 5).is_err()
                && parse_range(5, 0).is_err()
                && parse_range(6, 5).is_err()
        );
        assert!(parse_range(i64::MIN, i64::MAX).is_ok());
        assert_eq!(parse_step(7.5).unwrap(), 7_500 * NANOS_PER_MILLI);
        assert!([0.0, -1.0, 0.0001, f64::NAN, f64::NEG_INFINITY].iter().all(|&bad| parse_step(bad).is_err()));
        assert_eq!(parse_step(f64::INFINITY).unwrap(), i64::MAX);
        let limits = TenantLimits::default();
        let nodes = |asked| parse_max_nodes(asked, &limits).ok().map(|nodes| nodes.asked);
        assert_eq!([nodes(None), nodes(Some(0)), nodes(Some(7))], [Some(8192), Some(8192), Some(7)]);
        assert_eq!([nodes(Some(-1)), nodes(Some(1_048_577))], [None, None]);
        let graph =
            |asked: Option<usize>| graph_node_limit(asked.map(|asked| NodeLimit::with_count(asked, 9_999)));
        assert_eq!([graph(None), graph(Some(7)), graph(Some(2_001))], [100, 7, 2_000]);
        let (span, trace) = ("00000000000000a1".to_owned(), "000000000000000000000000000000B2".to_owned());
        let of = |spans: &[&String], traces: &[&String]| {
            let owned = |ids: &[&String]| ids.iter().map(|id| (*id).clone()).collect::<Vec<_>>();
            parse_request_filter(&owned(spans), &owned(traces)).map_err(|status| status.code)
        };
        assert_eq!(of(&[&span], &[]), Ok(Some(SpanFilter::Spans(vec![0xa1]))));
        assert_eq!(of(&[], &[&trace]), Ok(Some(SpanFilter::Traces(vec![0xb2]))));
        assert_eq!(of(&[], &[]), Ok(None));
        let bad = ["+0000000000000a1".to_owned(), "a1".to_owned()];
        let refused = [
            of(&[&span], &[&trace]),
            of(&[&trace], &[]),
            of(&[], &[&span]),
            of(&[&bad[0]], &[]),
            of(&[&bad[1]], &[]),
        ];
        assert!(refused.iter().all(|refused| *refused == Err(ErrorCode::Invalid)));
        let id = "11111111-2222-4333-8444-55555555555a".to_owned();
        let ids = parse_profile_ids(std::slice::from_ref(&id)).unwrap();
        assert_eq!(ids.into_iter().map(format_uuid).collect::<Vec<_>>(), [id]);
        assert_eq!(format_uuid(0x0123_4567_89ab_cdef), "00000000-0000-0000-0123-456789abcdef");
        assert!(parse_profile_ids(&["not-a-uuid".into()]).is_err());
    }
}
