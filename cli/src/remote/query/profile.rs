//! Commands `query top`, `query flamegraph` and `query diff`, on profiles that a server merges.

use athanor_chassis::{ErrorCode, Status};
use athanor_client::ApiClient;
use athanor_profile::analysis::transform::StackTransforms;
use athanor_profile::analysis::value_divisor::ValueDivisor;
use athanor_profile::formats::pprof::{self, DecodeError, DecodeLimits};
use athanor_profile::{Profile, ProfileType};
use athanor_proto::athanor::v1::{FunctionsRequest, FunctionsResponse, Page};
use athanor_proto::querier::v1::SelectMergeProfileRequest;
use athanor_query::Selector;
use bytes::Bytes;

use super::{MillisTimeRange, types};
use crate::args::{OutputFileArgs, QueryDiffArgs, QueryFlamegraphArgs, QuerySelectionArgs, QueryTopArgs};
use crate::output::{ConsoleOutput, harmless, type_name};
use crate::profile::convert::{self, ConversionOptions};
use crate::profile::diff::DiffSide;
use crate::remote::connection;
use crate::{profile::diff as changes, profile::profile_views};

/// Maximum bytes of the parameters of an export. HTTP libraries reject URLs from 64 KiB on, and the rest is for the
/// address.
const MAX_EXPORT_QUERY_BYTES: usize = 60 << 10;

/// Lists the functions with the highest cost.
pub(super) async fn top(args: QueryTopArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let SelectedProfile { profile, divisor } = selected(&args.select, &args.view.stacks.transforms).await?;
    match args.written.out {
        Some(_) => write(profile, &args.written, None, output),
        None => profile_views::table(&convert::pruned(profile), 0, divisor, &args.view, output),
    }
}

/// Draws a flame graph.
pub(super) async fn flamegraph(args: QueryFlamegraphArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let SelectedProfile { profile, divisor } = selected(&args.select, &args.view.stacks.transforms).await?;
    match args.written.out {
        Some(_) => write(profile, &args.written, Some(args.view.max_nodes), output),
        None => profile_views::draw_flamegraph(&convert::pruned(profile), 0, divisor, &args.view, output),
    }
}

fn write(
    profile: Profile,
    written: &OutputFileArgs,
    max_nodes: Option<usize>,
    output: &ConsoleOutput,
) -> Result<(), Status> {
    let Some(out) = &written.out else { return Ok(()) };
    let format = convert::format(out, written.to)?;
    let title = type_name(&profile.header.types[0]);
    convert::write(profile, 0, out, ConversionOptions { format, max_nodes }, title, output)
}

/// Merged profile of a selection. Its values are sums.
struct SelectedProfile {
    profile: Profile,
    /// Divisor for the values that a view shows: those of a gauge are averages.
    divisor: ValueDivisor,
}

async fn selected(
    select: &QuerySelectionArgs,
    transforms: &StackTransforms,
) -> Result<SelectedProfile, Status> {
    let client = connection::client(&select.remote)?;
    let range = MillisTimeRange::of(&select.times, client.clock())?;
    let meant = types::resolve_type(&client, select.profile_type.as_deref(), &select.selector, range).await?;
    fetch(&client, &meant, &select.selector, range, transforms).await
}

/// Fetches all matching profiles, merged into one with a single value type.
async fn fetch(
    client: &ApiClient,
    meant: &ProfileType,
    selector: &Selector,
    range: MillisTimeRange,
    transforms: &StackTransforms,
) -> Result<SelectedProfile, Status> {
    let bytes = match transforms.is_empty() {
        true => fetch_merged(client, meant, selector, range).await?,
        false => fetch_transformed(client, meant, selector, range, transforms).await?,
    };
    let profile = match pprof::decode(&bytes, &DecodeLimits::default()) {
        Ok((profile, _)) => profile,
        Err(DecodeError::NoSampleType | DecodeError::NoEmptyString) => Profile::default(),
        Err(error) => {
            let message = format!("{}: response is not a profile: {error}", client.address());
            return Err(Status::new(ErrorCode::Invalid, message));
        }
    };
    if profile.samples.is_empty() || profile.header.types.is_empty() {
        return Err(missing(client, meant, selector, range, transforms).await);
    }
    let divisor = fetch_divisor(client, meant, selector, range).await?;
    Ok(SelectedProfile { profile, divisor })
}

async fn fetch_merged(
    client: &ApiClient,
    meant: &ProfileType,
    selector: &Selector,
    range: MillisTimeRange,
) -> Result<Bytes, Status> {
    let request = SelectMergeProfileRequest {
        profile_type_id: meant.to_string(),
        label_selector: selector.to_string(),
        start: range.start,
        end: range.end,
        ..SelectMergeProfileRequest::default()
    };
    // The response body is the bare pprof profile.
    client.request_bytes("querier.v1.QuerierService/SelectMergeProfile", &request).await
}

/// Fetches an export, since no call of other servers has transforms.
async fn fetch_transformed(
    client: &ApiClient,
    meant: &ProfileType,
    selector: &Selector,
    range: MillisTimeRange,
    transforms: &StackTransforms,
) -> Result<Bytes, Status> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("query", &format!("{meant}{selector}"));
    query.append_pair("from", &nanos_text(range.start)).append_pair("until", &nanos_text(range.end));
    query.append_pair("format", "pprof");
    for transform in transforms.transforms() {
        let (name, text) = transform.to_option();
        query.append_pair(name, &text);
    }
    let query = query.finish();
    if query.len() > MAX_EXPORT_QUERY_BYTES {
        let message = format!(
            "selector and transforms take {} bytes of a URL, the limit is {MAX_EXPORT_QUERY_BYTES}; write shorter patterns",
            query.len()
        );
        return Err(Status::new(ErrorCode::Invalid, message));
    }
    client.file("athanor/export", &query, "application/octet-stream").await
}

/// Returns a time in nanoseconds, with so many digits that it is not read in another unit.
fn nanos_text(millis: i64) -> String {
    format!("{:018}", i128::from(millis) * 1_000_000)
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
    let query = range.to_query(meant, selector, &StackTransforms::default());
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
    transforms: &StackTransforms,
) -> Status {
    match types::fetch_types(client, selector, range).await {
        Ok(known) if !known.is_empty() && !known.contains(meant) => {
            types::unknown(&meant.to_string(), &known)
        }
        Ok(_) => {
            let meant = harmless(&meant.to_string());
            let message = match transforms.is_empty() {
                true => format!("no profiles of {meant}{selector} {range}; change --since or --selector"),
                false => format!(
                    "no stacks of {meant}{selector} {range} that the transforms keep; change the transforms, --since or --selector"
                ),
            };
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
    let transforms = &args.stacks.transforms;
    let left = fetch(&client, &meant, &args.left, left_range, transforms);
    let right = fetch(&client, &meant, &args.right, right_range, transforms);
    let (left, right) = futures::future::try_join(left, right).await?;
    let shown = right.profile.header.types[0].clone();
    let [left, right] =
        [left, right].map(|side| DiffSide::from_profile(&convert::pruned(side.profile), 0, side.divisor));
    changes::compare(&left, &right, &shown, args.limit, output)
}
