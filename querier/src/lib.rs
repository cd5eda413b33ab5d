//! The querier: answers what dashboards and command lines ask.
//!
//! ```text
//!  wire request ─► check ─► Ask ─► Sources::plan ─► run on each source, on compute threads ─► merge
//!                                                                                              │
//!  wire answer  ◄─ flame graph, tree, DOT, pprof, points, lists ◄─ cut to max_nodes, once ◄────┘
//! ```
//!
//! A request is refused before anything is read, or it is answered exactly: partial answers are merged by id and
//! name, and only the whole is cut down to what was asked for. Several tenants are read as one by asking the
//! sources of each. What is not answered yet is refused in `later`, and nowhere else.

#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{Activity, Clock, Code, Compute, Limits, Overrides, Status, TenantId};
use athanor_profile::Source;
use athanor_query::{Ask, AskError, Partial, TimeRange, run};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};

mod check;
mod dot;
mod later;
mod lists;
mod merge;
mod points;
mod reader;
mod render;

pub use reader::{MAX_TENANTS, Reader, TenantsError};
pub use render::{Rendered, parse_parameters};

/// How long a question may take.
const MAX_TIME: Duration = Duration::from_secs(5 * 60);

/// What there is to read.
#[derive(Default)]
pub struct Plan {
    /// Each profile is in exactly one of them.
    pub sources: Vec<Arc<dyn Source>>,
    /// What should be there and is not, in words: the answer is partial.
    pub missing: Vec<String>,
}

/// Where a tenant's profiles lie at the moment.
#[async_trait]
pub trait Sources: Send + Sync {
    /// Whatever may hold profiles of this time.
    async fn plan(&self, tenant: &TenantId, range: TimeRange) -> Result<Plan, Status>;
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
}

impl Querier {
    /// A querier over these sources.
    pub fn new(deps: Deps) -> Self {
        Querier { deps }
    }

    /// Asks all sources of all tenants, and merges their answers as they come.
    async fn ask(&self, reader: &Reader, ask: Ask) -> Result<Partial, Status> {
        let answer = self.deps.clock.within(MAX_TIME, self.ask_all(reader, ask)).await;
        answer.unwrap_or_else(|elapsed| {
            let message = format!("query {elapsed}; select fewer series or a shorter time");
            Err(Status::new(Code::Deadline, message))
        })
    }

    async fn ask_all(&self, reader: &Reader, ask: Ask) -> Result<Partial, Status> {
        let mut sources = Vec::new();
        for tenant in reader.tenants() {
            let plan = self.deps.sources.plan(tenant, ask.selection.time).await?;
            sources.extend(plan.sources);
            reader.miss(plan.missing);
        }
        let ask = Arc::new(ask);
        let merged = Arc::new(Mutex::new(None));
        // One more job than there are threads: none waits for the next one to be handed in.
        let width = self.deps.compute.width() + 1;
        let jobs =
            sources.into_iter().map(|source| -> BoxFuture<'static, Result<Result<(), AskError>, Status>> {
                let (ask, merged, compute) =
                    (Arc::clone(&ask), Arc::clone(&merged), self.deps.compute.clone());
                let job = move || answer_into(&merged, &ask, source.as_ref());
                Box::pin(async move {
                    compute.run_as(Activity::Query, job).await.map_err(|error| Status::of(&error))
                })
            });
        futures::stream::iter(jobs.collect::<Vec<_>>())
            .buffer_unordered(width)
            .try_for_each(|answered| async { answered.map_err(|error| Status::of(&error)) })
            .await?;
        let merged = merged.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(merged.unwrap_or_else(|| Partial::none(&ask.what)))
    }

    /// Runs what would hold up an I/O thread.
    async fn compute<R, F>(&self, job: F) -> Result<R, Status>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        self.deps.compute.run_as(Activity::Query, job).await.map_err(|error| Status::of(&error))
    }

    /// The limits of whoever asks; of several tenants, the strictest.
    fn limits(&self, reader: &Reader) -> Limits {
        let all = reader.tenants().iter().map(|tenant| (*self.deps.overrides.of(tenant)).clone());
        let strictest = all.reduce(|left, right| Limits {
            max_flamegraph_nodes_default: left
                .max_flamegraph_nodes_default
                .min(right.max_flamegraph_nodes_default),
            max_flamegraph_nodes_max: left.max_flamegraph_nodes_max.min(right.max_flamegraph_nodes_max),
            ..left
        });
        strictest.unwrap_or_default()
    }
}

/// Adds the answer of one source. Whoever finds an answer there takes it and merges it into its own, so that no
/// thread waits while another one merges.
fn answer_into(merged: &Mutex<Option<Partial>>, ask: &Ask, source: &dyn Source) -> Result<(), AskError> {
    let mut mine = run(ask, source)?;
    loop {
        let mut place = merged.lock().unwrap_or_else(PoisonError::into_inner);
        match place.take() {
            None => {
                *place = Some(mine);
                return Ok(());
            }
            Some(other) => {
                drop(place);
                mine = other.merge(mine, &ask.bounds)?;
            }
        }
    }
}

/// An answer to another question than the one asked: a mistake in this program.
fn mixed_up() -> Status {
    Status::new(Code::Internal, "the answer is to another question than the one asked")
}
