//! Parameters of an export. Unlike older URLs, an export refuses those that it does not know: the file of a request
//! whose transform is misspelled looks complete.

use athanor_chassis::Status;
use athanor_chassis::config::nearest_name;
use athanor_profile::analysis::transform::{StackTransform, TRANSFORM_OPTIONS};
use athanor_query::ProfileSelection;

use super::super::UrlParameters;
use crate::api::explore::refused_transforms;
use crate::validate::{self, invalid_argument};

/// Parameter with the id of a span. Like the next two, it may be repeated.
const SPAN_ID_PARAMETER: &str = "spanId";
/// Parameter with the id of a trace.
const TRACE_ID_PARAMETER: &str = "traceId";
/// Parameter with the id of a profile.
const PROFILE_ID_PARAMETER: &str = "profileId";
/// Both spellings of the number of nodes. The first one has precedence.
const NODE_PARAMETERS: [&str; 2] = ["max-nodes", "maxNodes"];
/// Parameters other than node numbers and transforms.
const PLAIN_PARAMETERS: [&str; 8] = [
    "query",
    "from",
    "until",
    "format",
    "addresses",
    SPAN_ID_PARAMETER,
    TRACE_ID_PARAMETER,
    PROFILE_ID_PARAMETER,
];
/// Transforms of the API that are values of the parameter `collapse`, without capitals and separators.
const COLLAPSE_HINTS: [(&str, &str); 2] =
    [("collapserecursion", "collapse=recursion"), ("collapsebelow", "collapse=below:PATTERN")];

/// Checks that all parameters are known.
pub(super) fn check_names(parameters: &UrlParameters) -> Result<(), Status> {
    let known: Vec<&str> = [&PLAIN_PARAMETERS[..], &NODE_PARAMETERS, &TRANSFORM_OPTIONS].concat();
    let Some((name, _)) = parameters.iter().find(|(name, _)| !known.contains(name)) else { return Ok(()) };
    let advice = match similar_name(name, &known) {
        Some(similar) => format!("did you mean {similar}?"),
        None => format!("known are {}", known.join(", ")),
    };
    Err(invalid_argument(format!("parameter {name:?} is unknown; {advice}")))
}

/// Returns the known name that differs in case or separators only, or in few characters.
fn similar_name<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = plain_name(name);
    let hint = COLLAPSE_HINTS.iter().find(|(action, _)| *action == plain);
    let alike = known.iter().copied().find(|known| plain_name(known) == plain);
    alike.or(hint.map(|(_, option)| *option)).or_else(|| nearest_name(name, known.iter().copied()))
}

/// Returns a name without capitals and separators.
fn plain_name(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// Parses the number of nodes. An empty value or zero is none.
pub(super) fn parse_nodes(parameters: &UrlParameters) -> Result<Option<i64>, Status> {
    let given = NODE_PARAMETERS.iter().find_map(|name| Some((name, parameters.first(name)?)));
    let Some((name, text)) = given.filter(|(_, text)| !text.is_empty()) else { return Ok(None) };
    match text.parse::<i64>() {
        Ok(nodes) => Ok(Some(nodes).filter(|nodes| *nodes != 0)),
        Err(_) => Err(invalid_argument(format!("{name} is {text:?}; write a number of nodes"))),
    }
}

/// Parses the transforms, in the order of their parameters.
pub(super) fn parse_transforms(parameters: &UrlParameters) -> Result<Vec<StackTransform>, Status> {
    let transforms = parameters.iter().filter_map(|(name, text)| StackTransform::parse_option(name, text));
    transforms.map(|transform| transform.map_err(|error| refused_transforms(&error))).collect()
}

/// Restricts a selection to the spans, traces and profiles that the parameters name.
pub(super) fn select_ids(selection: &mut ProfileSelection, parameters: &UrlParameters) -> Result<(), Status> {
    let ids = |name| parameters.all(name).map(str::to_owned).collect::<Vec<String>>();
    selection.requests = validate::parse_request_filter(&ids(SPAN_ID_PARAMETER), &ids(TRACE_ID_PARAMETER))?;
    selection.profiles = validate::parse_profile_ids(&ids(PROFILE_ID_PARAMETER))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str) -> Result<(), String> {
        check_names(&UrlParameters::parse(query).unwrap()).map_err(|status| status.message)
    }

    #[test]
    fn unknown_parameters_are_refused_with_the_nearest_name() {
        let known = [&PLAIN_PARAMETERS[..], &NODE_PARAMETERS, &TRANSFORM_OPTIONS].concat();
        assert_eq!(check(&format!("{}=x", known.join("=x&"))), Ok(()));
        for (name, similar) in [
            ("showFrom", "show_from"),
            ("show-from", "show_from"),
            ("Focus", "focus"),
            ("ingore", "ignore"),
            ("collapseRecursion", "collapse=recursion"),
            ("collapse_recursion", "collapse=recursion"),
            ("collapse-below", "collapse=below:PATTERN"),
            ("max_nodes", "max-nodes"),
            ("span_id", "spanId"),
        ] {
            let expected = format!("parameter {name:?} is unknown; did you mean {similar}?");
            assert_eq!(check(&format!("query=x&{name}=y")), Err(expected));
        }
        let message = check("groupBy=pod").unwrap_err();
        assert!(message.ends_with("show, show_from, collapse"), "{message}");
    }

    #[test]
    fn number_of_nodes_is_a_number() {
        let nodes =
            |query: &str| parse_nodes(&UrlParameters::parse(query).unwrap()).map_err(|status| status.message);
        assert_eq!([nodes(""), nodes("maxNodes="), nodes("maxNodes=0")], [Ok(None), Ok(None), Ok(None)]);
        assert_eq!([nodes("maxNodes=7"), nodes("max-nodes=-1")], [Ok(Some(7)), Ok(Some(-1))]);
        assert_eq!(nodes("maxNodes=abc"), Err("maxNodes is \"abc\"; write a number of nodes".to_owned()));
        assert!(nodes("max-nodes=1e3").unwrap_err().starts_with("max-nodes is \"1e3\""));
    }
}
