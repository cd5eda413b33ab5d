//! Command `query types`, and resolution of the profile type that an argument names.

use athanor_chassis::config::nearest_name;
use athanor_chassis::{ErrorCode, Status};
use athanor_client::ApiClient;
use athanor_profile::ProfileType;
use athanor_proto::querier::v1::{ProfileTypesRequest, ProfileTypesResponse, SeriesRequest, SeriesResponse};
use athanor_query::Selector;
use serde_json::{Value, json};

use super::MillisTimeRange;
use crate::args::QueryTypesArgs;
use crate::output::{ConsoleOutput, harmless};
use crate::remote::connection;

/// Label that holds the full profile type.
const PROFILE_TYPE_LABEL: &str = "__profile_type__";
/// Maximum number of types that an error lists.
const MAX_NAMED_TYPES: usize = 20;

/// Lists the profile types of the selected series.
pub(super) async fn run(args: &QueryTypesArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let client = connection::client(&args.remote)?;
    let range = MillisTimeRange::of(&args.times, client.clock())?;
    let types = fetch_types(&client, &args.selector, range).await?;
    output.print_json_or_text(
        || json!({ "types": types.iter().map(type_json).collect::<Vec<_>>() }),
        || types.iter().map(|one| format!("{}\n", harmless(&one.to_string()))).collect(),
    )?;
    if types.is_empty() && !output.json {
        eprintln!("athanor: {}", nothing(&args.selector, range));
    }
    Ok(())
}

fn type_json(one: &ProfileType) -> Value {
    json!({ "id": one.to_string(), "name": one.name, "type": one.value.kind, "unit": one.value.unit,
        "period_type": one.period.kind, "period_unit": one.period.unit })
}

fn nothing(selector: &Selector, range: MillisTimeRange) -> String {
    format!("no profiles of {selector} {range}; change --since or --selector")
}

/// Returns the types of all series that a selector matches, sorted.
pub(super) async fn fetch_types(
    client: &ApiClient,
    selector: &Selector,
    range: MillisTimeRange,
) -> Result<Vec<ProfileType>, Status> {
    let MillisTimeRange { start, end } = range;
    let ids: Vec<String> = if selector.matchers().is_empty() {
        let request = ProfileTypesRequest { start, end };
        let answer: ProfileTypesResponse =
            client.request("querier.v1.QuerierService/ProfileTypes", &request).await?;
        answer.profile_types.into_iter().map(|one| one.id).collect()
    } else {
        let label_names = vec![PROFILE_TYPE_LABEL.to_owned()];
        let request = SeriesRequest { matchers: vec![selector.to_string()], label_names, start, end };
        let answer: SeriesResponse = client.request("querier.v1.QuerierService/Series", &request).await?;
        let pairs = answer.labels_set.into_iter().flat_map(|set| set.labels);
        pairs.filter(|pair| pair.name == PROFILE_TYPE_LABEL).map(|pair| pair.value).collect()
    };
    // Malformed types are skipped, because no query could name them.
    let mut types: Vec<ProfileType> = ids.iter().filter_map(|id| id.parse().ok()).collect();
    types.sort_unstable();
    types.dedup();
    Ok(types)
}

/// Returns the requested type: as given in full, else the only one that fits. Without a request, returns the
/// only type or the CPU time, and prints a choice among several.
pub(super) async fn resolve_type(
    client: &ApiClient,
    asked: Option<&str>,
    selector: &Selector,
    range: MillisTimeRange,
) -> Result<ProfileType, Status> {
    if let Some(asked) = asked
        && let Ok(full) = asked.parse()
    {
        return Ok(full);
    }
    let known = fetch_types(client, selector, range).await?;
    if known.is_empty() {
        return Err(Status::new(ErrorCode::NotFound, nothing(selector, range)));
    }
    let chosen = choose(&known, asked)?;
    if asked.is_none() && known.len() > 1 {
        let others = known.len() - 1;
        eprintln!(
            "athanor: showing {chosen}; --type selects one of {others} other types, `athanor query types` lists them"
        );
    }
    Ok(chosen.clone())
}

fn choose<'k>(known: &'k [ProfileType], asked: Option<&str>) -> Result<&'k ProfileType, Status> {
    let fitting: Vec<&ProfileType> = match asked {
        Some(asked) => known.iter().filter(|one| fits(one, asked)).collect(),
        None if known.len() == 1 => known.iter().collect(),
        None => known.iter().filter(|one| is_cpu(one)).collect(),
    };
    if let [only] = fitting[..] {
        return Ok(only);
    }
    let Some(asked) = asked else {
        let why = "several types exist; select one with --type";
        return Err(Status::new(ErrorCode::Invalid, format!("{why}: {}", list(known))));
    };
    if fitting.is_empty() {
        return Err(unknown(asked, known));
    }
    let fitting: Vec<ProfileType> = fitting.into_iter().cloned().collect();
    let message = format!("--type {asked} is ambiguous: {}; write the full type", list(&fitting));
    Err(Status::new(ErrorCode::Invalid, message))
}

/// Returns the error for an unknown type, with the nearest known one.
pub(super) fn unknown(asked: &str, known: &[ProfileType]) -> Status {
    let full: Vec<String> = known.iter().map(ProfileType::to_string).collect();
    let mut names: Vec<&str> = full.iter().map(String::as_str).collect();
    names.extend(known.iter().flat_map(|one| [one.value.kind.as_str(), one.name.as_str()]));
    let hint = nearest_name(asked, names)
        .map(|near| format!("did you mean {}? ", harmless(near)))
        .unwrap_or_default();
    Status::new(ErrorCode::NotFound, format!("no type {asked:?}; {hint}existing types: {}", list(known)))
}

fn list(types: &[ProfileType]) -> String {
    let mut text: Vec<String> =
        types.iter().take(MAX_NAMED_TYPES).map(|one| harmless(&one.to_string())).collect();
    if types.len() > MAX_NAMED_TYPES {
        text.push(format!("{} more", types.len() - MAX_NAMED_TYPES));
    }
    text.join(", ")
}

/// Returns whether the type is CPU time itself, and not a count of samples.
fn is_cpu(one: &ProfileType) -> bool {
    one.value.kind == "cpu" && one.value.unit.ends_with("seconds")
}

/// Returns whether a type matches an argument: `cpu`, `cpu/nanoseconds`, `process_cpu`, or a prefix of the
/// full type such as `process_cpu:cpu`.
fn fits(one: &ProfileType, asked: &str) -> bool {
    let kind = one.value.kind.as_str();
    let unit = one.value.unit.as_str();
    let begins = || one.to_string().strip_prefix(asked).is_some_and(|rest| rest.starts_with(':'));
    asked == kind || asked.split_once('/') == Some((kind, unit)) || begins()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<ProfileType> {
        let ids = [
            "memory:alloc_space:bytes:space:bytes",
            "memory:inuse_space:bytes:space:bytes",
            "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
            "process_cpu:samples:count:cpu:nanoseconds",
        ];
        ids.iter().map(|id| id.parse().unwrap()).collect()
    }

    #[test]
    fn cpu_time_is_chosen_where_nothing_is_asked() {
        assert_eq!(choose(&known(), None).unwrap().value.kind, "cpu");
        let error = choose(&known()[..2], None).unwrap_err();
        assert!(error.message.contains("memory:alloc_space:bytes:space:bytes, memory:inuse"), "{error}");
        assert_eq!(choose(&known()[..1], None).unwrap().value.kind, "alloc_space");
    }

    #[test]
    fn a_part_of_a_type_is_enough_where_it_is_clear() {
        for (asked, kind) in
            [("cpu", "cpu"), ("inuse_space/bytes", "inuse_space"), ("process_cpu:samples", "samples")]
        {
            assert_eq!(choose(&known(), Some(asked)).unwrap().value.kind, kind);
        }
        let error = choose(&known(), Some("memory")).unwrap_err();
        assert!(error.code == ErrorCode::Invalid && error.message.contains("write the full type"), "{error}");
        let error = choose(&known(), Some("inuse_spcae")).unwrap_err();
        assert!(
            error.code == ErrorCode::NotFound && error.message.contains("did you mean inuse_space?"),
            "{error}"
        );
    }
}
