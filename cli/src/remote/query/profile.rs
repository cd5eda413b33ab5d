//! Commands `query top`, `query flamegraph` and `query diff`, on profiles that a server merges.

use athanor_chassis::{ErrorCode, Status};
use athanor_client::ApiClient;
use athanor_profile::analysis::value_divisor::ValueDivisor;
use athanor_profile::formats::pprof::{self, DecodeError, DecodeLimits};
use athanor_profile::{Profile, ProfileType, analysis::prune};
use athanor_proto::athanor::v1::{FunctionsRequest, FunctionsResponse, Page, Query};
use athanor_proto::querier::v1::SelectMergeProfileRequest;
use athanor_query::Selector;

use super::{MillisTimeRange, types};
use crate::args::{OutputFileArgs, QueryDiffArgs, QueryFlamegraphArgs, QuerySelectionArgs, QueryTopArgs};
use crate::output::{ConsoleOutput, harmless, type_name};
use crate::profile::convert::{self, ConversionOptions};
use crate::profile::diff::DiffSide;
use crate::remote::connection;
use crate::{profile::diff as changes, profile::profile_views};

/// Lists the functions with the highest cost.
pub(super) async fn top(args: QueryTopArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let SelectedProfile { profile, divisor } = selected(&args.select).await?;
    match args.written.out {
        Some(_) => write(profile, &args.written, None, args.view.focus.as_deref(), output),
        None => profile_views::table(&pruned(profile), 0, divisor, &args.view, output),
    }
}

/// Draws a flame graph.
pub(super) async fn flamegraph(args: QueryFlamegraphArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let SelectedProfile { profile, divisor } = selected(&args.select).await?;
    let max_nodes = args.view.max_nodes;
    let focus = args.view.focus.as_deref();
    match args.written.out {
        Some(_) => write(profile, &args.written, Some(max_nodes), focus, output),
        None => profile_views::draw_flamegraph(&pruned(profile), 0, divisor, &args.view, output),
    }
}

fn pruned(profile: Profile) -> Profile {
    let (profile, bad) = prune::prune(profile);
    if let Some(bad) = bad {
        eprintln!("athanor: {bad}");
    }
    profile
}

fn write(
    profile: Profile,
    written: &OutputFileArgs,
    max_nodes: Option<usize>,
    focus: Option<&str>,
    output: &ConsoleOutput,
) -> Result<(), Status> {
    let Some(out) = &written.out else { return Ok(()) };
    let format = convert::format(out, written.to)?;
    let title = type_name(&profile.header.types[0]);
    convert::write(profile, 0, out, ConversionOptions { format, max_nodes, focus }, title, output)
}

/// Merged profile of a selection. Its values are sums.
struct SelectedProfile {
    profile: Profile,
    /// Divisor for the values that a view shows: those of a gauge are averages.
    divisor: ValueDivisor,
}

async fn selected(select: &QuerySelectionArgs) -> Result<SelectedProfile, Status> {
    let client = connection::client(&select.remote)?;
    let range = MillisTimeRange::of(&select.times, client.clock())?;
    let meant = types::resolve_type(&client, select.profile_type.as_deref(), &select.selector, range).await?;
    fetch(&client, &meant, &select.selector, range).await
}

/// Fetches all matching profiles, merged into one with a single value type.
async fn fetch(
    client: &ApiClient,
    meant: &ProfileType,
    selector: &Selector,
    range: MillisTimeRange,
) -> Result<SelectedProfile, Status> {
    let request = SelectMergeProfileRequest {
        profile_type_id: meant.to_string(),
        label_selector: selector.to_string(),
        start: range.start,
        end: range.end,
        ..SelectMergeProfileRequest::default()
    };
    // The response body is the bare pprof profile.
    let bytes = client.request_bytes("querier.v1.QuerierService/SelectMergeProfile", &request).await?;
    let profile = match pprof::decode(&bytes, &DecodeLimits::default()) {
        Ok((profile, _)) => profile,
        Err(DecodeError::NoSampleType | DecodeError::NoEmptyString) => Profile::default(),
        Err(error) => {
            let message = format!("{}: response is not a profile: {error}", client.address());
            return Err(Status::new(ErrorCode::Invalid, message));
        }
    };
    if profile.samples.is_empty() || profile.header.types.is_empty() {
        return Err(missing(client, meant, selector, range).await);
    }
    let divisor = fetch_divisor(client, meant, selector, range).await?;
    Ok(SelectedProfile { profile, divisor })
}

/// Fetches the number of profiles of a gauge. Values of other types are sums.
async fn fetch_divisor(
    client: &ApiClient,
    meant: &ProfileType,
    selector: &Selector,
    range: MillisTimeRange,
) -> Result<ValueDivisor, Status> {
    if !meant.is_gauge() {
        return Ok(ValueDivisor::default());
    }
    let query = Query {
        profile_type: meant.to_string(),
        selector: selector.to_string(),
        start: range.start,
        end: range.end,
        ..Query::default()
    };
    let page = Some(Page { offset: 0, limit: 1 });
    let request = FunctionsRequest { query: Some(query), page, ..FunctionsRequest::default() };
    let response: FunctionsResponse = client.request("athanor.v1.ExploreService/Functions", &request).await?;
    Ok(ValueDivisor::from_profiles(response.averaged_profiles))
}

/// Returns the error for an empty result: the type is unknown, or it has no data in that range.
pub(super) async fn missing(
    client: &ApiClient,
    meant: &ProfileType,
    selector: &Selector,
    range: MillisTimeRange,
) -> Status {
    match types::fetch_types(client, selector, range).await {
        Ok(known) if !known.is_empty() && !known.contains(meant) => {
            types::unknown(&meant.to_string(), &known)
        }
        Ok(_) => {
            let meant = harmless(&meant.to_string());
            let message = format!("no profiles of {meant}{selector} {range}; change --since or --selector");
            Status::new(ErrorCode::NotFound, message)
        }
        Err(status) => status,
    }
}

/// Compares the profiles of two selections.
pub(super) async fn diff(args: &QueryDiffArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let client = connection::client(&args.remote)?;
    let left_range = MillisTimeRange::with(&args.times, args.left_since, args.left_until, client.clock())?;
    let right_range = MillisTimeRange::with(&args.times, args.right_since, args.right_until, client.clock())?;
    let own_times = [args.left_since, args.left_until, args.right_since, args.right_until];
    if args.left.to_string() == args.right.to_string() && own_times.iter().all(Option::is_none) {
        let message =
            "both sides are equal; set --left and --right, or times such as --left-since and --left-until";
        return Err(Status::new(ErrorCode::Invalid, message));
    }
    let meant = types::resolve_type(&client, args.profile_type.as_deref(), &args.right, right_range).await?;
    let left = fetch(&client, &meant, &args.left, left_range);
    let right = fetch(&client, &meant, &args.right, right_range);
    let (left, right) = futures::future::try_join(left, right).await?;
    let shown = right.profile.header.types[0].clone();
    let [left, right] =
        [left, right].map(|side| DiffSide::from_profile(&pruned(side.profile), 0, side.divisor));
    changes::compare(&left, &right, &shown, args.limit, output)
}
