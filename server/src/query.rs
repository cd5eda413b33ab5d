//! `query`: what a server answers, shown as files are.
//!
//! ```text
//!  --type, --selector ─► types ─► one type ─┬─► SelectMergeProfile ─► Profile ─► top, flamegraph, diff, a file
//!                                           └─► SelectSeries ─► series
//! ```
//!
//! Profiles are asked for whole, as pprof, which no server truncates; so tables are exact, and whatever shows a
//! file shows an answer.

mod labels;
mod profile;
mod series;
pub mod time;
mod types;

use athanor_chassis::{Clock, Code, Status};

use crate::args::{Query, QueryCommand, Times};
use crate::client;
use crate::output::{Output, utc};
use time::Moment;

/// Asks a server.
pub fn run(args: Query, output: &Output) -> Result<(), Status> {
    client::block_on(async {
        match args.command {
            QueryCommand::Top(args) => profile::top(args, output).await,
            QueryCommand::Flamegraph(args) => profile::flamegraph(args, output).await,
            QueryCommand::Series(args) => series::run(&args, output).await,
            QueryCommand::Labels(args) => labels::run(&args, output).await,
            QueryCommand::Types(args) => types::run(&args, output).await,
            QueryCommand::Diff(args) => profile::diff(&args, output).await,
        }
    })?
}

/// Milliseconds since 1970, both ends included, as the wire has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: i64,
    end: i64,
}

impl Range {
    fn of(times: &Times, clock: &Clock) -> Result<Self, Status> {
        Range::with(times, (None, None), clock)
    }

    /// With ends of its own, where it has any. Where nothing says from when, it is so long before the end.
    fn with(
        times: &Times,
        (from, until): (Option<Moment>, Option<Moment>),
        clock: &Clock,
    ) -> Result<Self, Status> {
        let now = clock.wall();
        let end = until.unwrap_or(times.until).resolve(now);
        let start = from.or(times.from).map_or_else(|| end.minus(times.since), |from| from.resolve(now));
        if start > end || start.millis() <= 0 {
            let (start, end) = (utc(start.nanos()), utc(end.nanos()));
            let message =
                format!("from {start} until {end} is no span of time after 1970; see --from and --until");
            return Err(Status::new(Code::Invalid, message));
        }
        Ok(Range { start: start.millis(), end: end.millis() })
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "from {} until {}", utc(self.start * 1_000_000), utc(self.end * 1_000_000))
    }
}
