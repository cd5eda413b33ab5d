//! Answers of all sources become one: opened some at a time, run on compute threads, merged as they come.

use std::sync::{Arc, Mutex, PoisonError};

use athanor_chassis::{Activity, Code, Status};
use athanor_profile::Source;
use athanor_query::{Ask, Partial, run};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};

use crate::room::{Room, Taken};
use crate::{Opened, Plan, Querier, Reader, Stored};

/// Sources of one question that are open at once, at least: while some are fetched, others are read.
const OPEN: usize = 16;

/// Where answers meet.
struct Merging {
    ask: Ask,
    room: Arc<Room>,
    merged: Mutex<Option<Held>>,
}

/// An answer in memory.
struct Held {
    partial: Partial,
    /// At least what it takes.
    taken: Taken,
}

impl Querier {
    /// Asks all sources of all tenants. The reader holds the room that the answer takes.
    pub(crate) async fn gather(&self, reader: &Reader, ask: Ask) -> Result<Partial, Status> {
        let (mut sources, mut stored) = (Vec::new(), Vec::new());
        for tenant in reader.tenants() {
            let plan = self.deps.sources.plan(tenant, &ask).await?;
            let Plan { sources: here, stored: there, missing } = plan;
            sources.extend(here);
            stored.extend(there);
            reader.miss(missing);
        }
        let merged = Mutex::new(None);
        let merging = Arc::new(Merging { ask, room: Arc::clone(&self.room), merged });
        let here = sources.into_iter().map(|source| Box::pin(self.run(&merging, source)) as BoxFuture<'_, _>);
        let there =
            stored.into_iter().map(|stored| Box::pin(self.open(&merging, stored)) as BoxFuture<'_, _>);
        // One more job than there are threads: none waits for the next one to be handed in.
        let width = OPEN.max(self.deps.compute.width() + 1);
        let jobs: Vec<BoxFuture<'_, Result<(), Status>>> = here.chain(there).collect();
        futures::stream::iter(jobs).buffer_unordered(width).try_collect::<()>().await?;
        let held = merging.merged.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Held { partial, taken }) = held else { return Ok(Partial::none(&merging.ask.what)) };
        // As much again is made of it to be shown.
        reader.hold(self.room.take(taken.bytes())?);
        reader.hold(taken);
        Ok(partial)
    }

    async fn open(&self, merging: &Arc<Merging>, stored: Box<dyn Stored>) -> Result<(), Status> {
        let Opened { source, held } = stored.open().await?;
        let run = self.run(merging, source).await;
        drop(held);
        run
    }

    async fn run(&self, merging: &Arc<Merging>, source: Arc<dyn Source>) -> Result<(), Status> {
        let merging = Arc::clone(merging);
        let job = move || merging.answer(source.as_ref());
        self.deps.compute.run_as(Activity::Query, job).await.map_err(|error| Status::of(&error))?
    }
}

impl Merging {
    /// Adds the answer of one source. Whoever finds an answer there takes it and merges it into its own, so that no
    /// thread waits while another one merges.
    fn answer(&self, source: &dyn Source) -> Result<(), Status> {
        let partial = run(&self.ask, source).map_err(|error| Status::of(&error))?;
        let taken = self.room.take(partial.bytes())?;
        let mut mine = Held { partial, taken };
        loop {
            let mut place = self.merged.lock().unwrap_or_else(PoisonError::into_inner);
            match place.take() {
                None => {
                    *place = Some(mine);
                    return Ok(());
                }
                Some(other) => {
                    drop(place);
                    mine = self.merge(other, mine)?;
                }
            }
        }
    }

    fn merge(&self, one: Held, other: Held) -> Result<Held, Status> {
        let partial = one.partial.merge(other.partial, &self.ask.bounds);
        let partial = partial.map_err(|error| Status::of(&error))?;
        let mut taken = one.taken.and(other.taken);
        // What both had counts twice: it is counted anew only where that matters, as counting takes a walk.
        if self.room.check(taken.bytes()).is_err() {
            taken.shrink(partial.bytes());
            self.room.check(taken.bytes())?;
        }
        Ok(Held { partial, taken })
    }
}

/// An answer to another question than the one asked: a mistake in this program.
pub(crate) fn mixed_up() -> Status {
    Status::new(Code::Internal, "the answer is to another question than the one asked")
}
