//! The querier: answers what dashboards and command lines ask.
//!
//! ```text
//!  wire request ─► check ─► Ask ─► Sources::plan ─► fetch ─► run on each source, on compute threads ─► merge
//!                              ▲        │                                                            ▲ │
//!                              └ replan ┴► Remote::ask, all peers at once ─► pieces ─► unpack ───────┘ │
//!                                                                                                      │
//!  wire answer  ◄─ flame graph, tree, DOT, pprof, points, lists ◄─ cut to max_nodes, once ◄────────────┘
//! ```
//!
//! A request is refused before anything is read, or it is answered exactly: partial answers are merged by id and
//! name, and only the whole is cut down to what was asked for. Several tenants are read as one by asking the
//! sources of each. Answers take room until they are sent, and there is only so much. Only so many questions are answered
//! at once; tenants that have read less go first.

#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::room::Room;
use athanor_chassis::{Activity, Clock, Code, Compute, Overrides, Random, Status, Tasks, TenantId};
use athanor_profile::Source;
use athanor_query::{Ask, Partial};

mod adhoc;
mod background;
mod check;
mod companion;
mod config;
mod estimate;
mod explore;
mod gather;
mod heatmap;
mod inbox;
mod limits;
mod lists;
mod merge;
mod points;
mod quarantine;
mod reader;
mod render;
mod replan;
mod turns;

pub use adhoc::{AdHoc, Shelf, Upload};
pub use companion::Companion;
pub use config::Config;
pub use inbox::{Inbox, Remote};
pub use reader::{MAX_TENANTS, Reader, TenantsError};
pub use render::{Rendered, parse_parameters, parse_time};
pub use replan::Asked;

use background::{Background, Kept};
use gather::mixed_up;
use quarantine::{Quarantine, Question, is_crash};
use turns::Turns;

/// What there is to read. Each profile is in exactly one of the sources.
#[derive(Default)]
pub struct Plan {
    /// Those in memory.
    pub sources: Vec<Arc<dyn Source>>,
    /// Those that are read when it is their turn.
    pub stored: Vec<Box<dyn Stored>>,
    /// Peers that answer for sources of theirs.
    pub remote: Vec<Arc<dyn Remote>>,
    /// What should be there and is not, in words: the answer is partial.
    pub missing: Vec<String>,
    /// About how many bytes of the tenant the blocks of that time hold.
    pub bytes: u64,
    /// What has moved since the listing that this plan is of, in words: which shard, and where its rows went. Another
    /// plan is made, unless there were too many.
    pub moved: Vec<String>,
}

/// A source that is read when it is its turn, or has answered before.
#[async_trait]
pub trait Stored: Send {
    /// What it has of what the plan was made for.
    async fn answer(self: Box<Self>) -> Result<Partial, Status>;
}

/// Of which time profiles there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The first and the last, Unix nanoseconds; none if there is no profile.
    pub span: Option<(i64, i64)>,
    /// What should be there and is not, in words.
    pub missing: Vec<String>,
    /// What has moved since the listing was made, as in [`Plan::moved`].
    pub moved: Vec<String>,
}

/// Where a tenant's profiles lie at the moment.
#[async_trait]
pub trait Sources: Send + Sync {
    /// Whatever may hold profiles that are asked about.
    async fn plan(&self, tenant: &TenantId, ask: &Ask) -> Result<Plan, Status>;

    /// Of which time there are profiles. No profile is read for that.
    async fn times(&self, tenant: &TenantId) -> Result<Times, Status>;
}

/// What the querier needs.
#[derive(Clone)]
pub struct Deps {
    /// Where profiles lie.
    pub sources: Arc<dyn Sources>,
    /// What each tenant may ask for.
    pub overrides: Overrides,
    /// What time it is.
    pub clock: Clock,
    /// Threads for reading and merging.
    pub compute: Compute,
}

/// Answers queries. Cheap to clone.
#[derive(Clone)]
pub struct Querier {
    deps: Deps,
    config: Config,
    room: Arc<Room>,
    turns: Arc<Turns>,
    quarantine: Arc<Quarantine>,
    /// None where no query runs in the background.
    background: Option<Arc<Background<Kept>>>,
}

impl Querier {
    /// A querier over these sources.
    pub fn new(config: Config, deps: Deps) -> Self {
        let turns = Turns::new(config.concurrent_queries);
        let (room, quarantine) = (config.room(), Arc::default());
        Querier { deps, config, room, turns, quarantine, background: None }
    }

    /// Lets queries run in the background as such tasks, if the settings allow it.
    #[must_use]
    pub fn with_background(mut self, tasks: &Tasks, random: &Random) -> Self {
        let most = self.config.background_queries;
        self.background = (most > 0).then(|| {
            let (tasks, random, clock) = (tasks.clone(), random.split(), self.deps.clock.clone());
            Arc::new(Background::new(tasks, random, clock, most))
        });
        self
    }

    /// Asks all sources of all tenants, and merges their answers as they come.
    async fn ask(&self, reader: &Reader, ask: Ask) -> Result<Partial, Status> {
        let (clock, limits) = (&self.deps.clock, self.limits(reader));
        let mut ask = ask;
        let (time, left_out) = limits::within(&limits, clock.wall(), ask.selection.time)?;
        ask.selection.time = time;
        reader.miss(left_out.into_iter().collect());
        let question = Question::of(reader.tenants(), &ask)?;
        self.quarantine.admit(question, clock.monotonic())?;
        let answer = async {
            let turn = self.turns.take(reader.tenants(), limits.max_concurrent_queries as usize).await?;
            self.gather(reader, ask, &turn).await
        };
        let left = reader.until(clock).saturating_sub(clock.monotonic());
        let answer = clock.within(left, answer).await.unwrap_or_else(|elapsed| {
            let message = format!("query {elapsed}; select fewer series or a shorter time");
            Err(Status::new(Code::Deadline, message))
        });
        answer.inspect_err(|status| {
            if is_crash(status) {
                self.quarantine.crashed(question, clock.monotonic());
            }
        })
    }

    /// Takes room for what is made of an answer to be shown, until the reader has it.
    fn make_room(&self, reader: &Reader, bytes: usize) -> Result<(), Status> {
        reader.hold(self.room.take(bytes)?);
        Ok(())
    }

    /// Runs what would hold up an I/O thread.
    async fn compute<R, F>(&self, job: F) -> Result<R, Status>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        self.deps.compute.run_as(Activity::Query, job).await.map_err(|error| Status::of(&error))
    }
}
