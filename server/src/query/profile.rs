//! `query top`, `query flamegraph` and `query diff`: profiles that a server has merged.

use athanor_chassis::{Code, Status};
use athanor_profile::pprof::{self, DecodeError, Limits};
use athanor_profile::tree::Tree;
use athanor_profile::{Profile, ProfileType, prune};
use athanor_proto::querier::v1::SelectMergeProfileRequest;
use athanor_query::Selector;

use super::{Range, types};
use crate::args::{QueryDiff, QueryFlamegraph, QueryTop, Select, Written};
use crate::client::Client;
use crate::convert::{self, Shape};
use crate::output::{Output, harmless};
use crate::{diff as changes, views};

/// Lists the functions that cost most.
pub(super) async fn top(args: QueryTop, output: &Output) -> Result<(), Status> {
    let profile = selected(&args.select).await?;
    match args.written.out {
        Some(_) => write(profile, &args.written, (None, args.view.focus.as_deref()), output),
        None => views::table(&pruned(profile), 0, &args.view, output),
    }
}

/// Draws a flame graph.
pub(super) async fn flamegraph(args: QueryFlamegraph, output: &Output) -> Result<(), Status> {
    let profile = selected(&args.select).await?;
    let (max_nodes, focus) = (args.view.max_nodes, args.view.focus.as_deref());
    match args.written.out {
        Some(_) => write(profile, &args.written, (Some(max_nodes), focus), output),
        None => views::drawing(&pruned(profile), 0, &args.view, output),
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
    written: &Written,
    (max_nodes, focus): (Option<usize>, Option<&str>),
    output: &Output,
) -> Result<(), Status> {
    let Some(out) = &written.out else { return Ok(()) };
    let format = convert::format(out, written.to)?;
    let title = views::type_name(&profile.header.types[0]);
    convert::write(profile, 0, (out, Shape { format, max_nodes, focus }, title), output)
}

async fn selected(select: &Select) -> Result<Profile, Status> {
    let client = Client::new(&select.remote)?;
    let range = Range::of(&select.times, client.clock())?;
    let meant = types::meant(&client, select.profile_type.as_deref(), &select.selector, range).await?;
    fetch(&client, &meant, &select.selector, range).await
}

/// All profiles of a type as one, which has one type of value.
async fn fetch(
    client: &Client,
    meant: &ProfileType,
    selector: &Selector,
    range: Range,
) -> Result<Profile, Status> {
    let request = SelectMergeProfileRequest {
        profile_type_id: meant.to_string(),
        label_selector: selector.to_string(),
        start: range.start,
        end: range.end,
        ..SelectMergeProfileRequest::default()
    };
    // The answer is a pprof profile and nothing around it.
    let bytes = client.ask_bytes("querier.v1.QuerierService/SelectMergeProfile", &request).await?;
    let profile = match pprof::decode(&bytes, &Limits::default()) {
        Ok((profile, _)) => profile,
        Err(DecodeError::NoSampleType | DecodeError::NoEmptyString) => Profile::default(),
        Err(error) => {
            let message = format!("{}: the answer is no profile: {error}", client.address());
            return Err(Status::new(Code::Invalid, message));
        }
    };
    if profile.samples.is_empty() || profile.header.types.is_empty() {
        return Err(missing(client, meant, selector, range).await);
    }
    Ok(profile)
}

/// Why there is nothing: no such type, or nothing of it then.
async fn missing(client: &Client, meant: &ProfileType, selector: &Selector, range: Range) -> Status {
    match types::of(client, selector, range).await {
        Ok(known) if !known.is_empty() && !known.contains(meant) => {
            types::unknown(&meant.to_string(), &known)
        }
        Ok(_) => {
            let meant = harmless(&meant.to_string());
            let message =
                format!("there are no profiles of {meant}{selector} {range}; see --since and --selector");
            Status::new(Code::NotFound, message)
        }
        Err(status) => status,
    }
}

/// Compares two selections.
pub(super) async fn diff(args: &QueryDiff, output: &Output) -> Result<(), Status> {
    let client = Client::new(&args.remote)?;
    let left_range = Range::with(&args.times, (args.left_from, args.left_until), client.clock())?;
    let right_range = Range::with(&args.times, (args.right_from, args.right_until), client.clock())?;
    let own_times = [args.left_from, args.left_until, args.right_from, args.right_until];
    if args.left.to_string() == args.right.to_string() && own_times.iter().all(Option::is_none) {
        let message =
            "both sides are the same; set --left and --right, or times such as --left-from and --left-until";
        return Err(Status::new(Code::Invalid, message));
    }
    let meant = types::meant(&client, args.profile_type.as_deref(), &args.right, right_range).await?;
    let left = fetch(&client, &meant, &args.left, left_range);
    let right = fetch(&client, &meant, &args.right, right_range);
    let (left, right) = futures::future::try_join(left, right).await?;
    let (left, right) = (pruned(left), pruned(right));
    let shown = &right.header.types[0];
    changes::compare(&Tree::of(&left, 0), &Tree::of(&right, 0), shown, (args.limit, output))
}
