//! Query command: requests data from a server and shows it like a file.
//!
//! ```text
//!  --type, --selector ─► types ─► one type ─┬─► SelectMergeProfile ─► Profile ─► top, flamegraph, diff, file
//!                                           ├─► /athanor/export, if there are transforms ─► Profile
//!                                           ├─► SelectSeries ─► series
//!                                           └─► Samples, Functions or SelectSeries as Arrow ─► file of a table
//! ```
//!
//! Profiles are requested as complete pprof, which no server truncates. So tables are exact, and every view
//! of a file also works for a response.

mod functions;
mod labels;
mod profile;
mod samples;
mod series;
mod types;

use athanor_chassis::{Clock, ErrorCode, Status};
use athanor_profile::ProfileType;
use athanor_profile::analysis::transform::{FramePattern, StackTransform, StackTransforms, TransformAction};
use athanor_proto::athanor::v1::frame_match::Pattern;
use athanor_proto::athanor::v1::transform::Action;
use athanor_proto::athanor::v1::{FrameMatch, Query, Transform};
use athanor_query::Selector;

use crate::args::time_arg::TimeArg;
use crate::args::{QueryArgs, QuerySubcommand, TimeRangeArgs};
use crate::output::{ConsoleOutput, format_rfc3339};
use crate::remote::connection;

/// Runs a query against a server.
pub fn run(args: QueryArgs, output: &ConsoleOutput) -> Result<(), Status> {
    connection::block_on(async {
        match args.command {
            QuerySubcommand::Top(args) => profile::top(args, output).await,
            QuerySubcommand::Flamegraph(args) => profile::flamegraph(args, output).await,
            QuerySubcommand::Samples(args) => samples::run(args, output).await,
            QuerySubcommand::Functions(args) => functions::run(args, output).await,
            QuerySubcommand::Series(args) => series::run(&args, output).await,
            QuerySubcommand::Labels(args) => labels::run(&args, output).await,
            QuerySubcommand::Types(args) => types::run(&args, output).await,
            QuerySubcommand::Diff(args) => profile::diff(&args, output).await,
        }
    })?
}

/// Time range in Unix milliseconds, both ends inclusive, as in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MillisTimeRange {
    start: i64,
    end: i64,
}

impl MillisTimeRange {
    fn of(times: &TimeRangeArgs, clock: &Clock) -> Result<Self, Status> {
        MillisTimeRange::with(times, None, None, clock)
    }

    /// Returns the query of a type and series in the range.
    fn to_query(self, meant: &ProfileType, selector: &Selector, transforms: &StackTransforms) -> Query {
        Query {
            profile_type: meant.to_string(),
            selector: selector.to_string(),
            start: self.start,
            end: self.end,
            transforms: transforms.transforms().iter().map(wire_transform).collect(),
            ..Query::default()
        }
    }

    /// Returns the time range of the arguments, with optional overrides of both ends.
    fn with(
        times: &TimeRangeArgs,
        since: Option<TimeArg>,
        until: Option<TimeArg>,
        clock: &Clock,
    ) -> Result<Self, Status> {
        let now = clock.wall();
        let end = until.unwrap_or(times.until).resolve_end(now);
        let start = since.unwrap_or(times.since).resolve_start(now, end);
        if start > end || start.millis() <= 0 {
            let start = format_rfc3339(start.nanos());
            let end = format_rfc3339(end.nanos());
            let message = format!(
                "time range from {start} until {end} is empty or before 1970; change --since and --until"
            );
            return Err(Status::new(ErrorCode::Invalid, message));
        }
        Ok(MillisTimeRange { start: start.millis(), end: end.millis() })
    }
}

fn wire_transform(transform: &StackTransform) -> Transform {
    let pattern = match &transform.pattern {
        FramePattern::AnyFrame => None,
        FramePattern::ExactName(name) => Some(Pattern::Name(name.clone())),
        FramePattern::Regex(regex) => Some(Pattern::Regex(regex.clone())),
    };
    let action = match transform.action {
        TransformAction::Focus => Action::Focus,
        TransformAction::Ignore => Action::Ignore,
        TransformAction::Hide => Action::Hide,
        TransformAction::Show => Action::Show,
        TransformAction::ShowFrom => Action::ShowFrom,
        TransformAction::CollapseRecursion => Action::CollapseRecursion,
        TransformAction::CollapseBelow => Action::CollapseBelow,
    };
    Transform { action: Some(action(FrameMatch { pattern })) }
}

impl std::fmt::Display for MillisTimeRange {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "from {} until {}",
            format_rfc3339(self.start * 1_000_000),
            format_rfc3339(self.end * 1_000_000)
        )
    }
}
