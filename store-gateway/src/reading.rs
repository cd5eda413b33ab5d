//! Finds what single blocks answer: what was kept, or else by reading them, and keeps what it found.

use std::sync::{Arc, Mutex, PoisonError};

use athanor_catalog::BlockId;
use athanor_chassis::{Activity, Code, Status, Stop, TenantId};
use athanor_query::{Ask, Canonical, Found, Partial, run_picked};

use crate::answers::{AnswerKey, Answers, Packed};
use crate::blocks::{Blocks, Opened, Wanted};
use crate::flights::Flights;

/// A larger answer of a block is not kept: it would take the place of many others.
const MOST_KEPT: usize = 64 << 20;

/// What reads blocks, and what was found.
pub struct Reading {
    /// What it reads.
    pub blocks: Arc<Blocks>,
    /// What was found, in memory.
    pub answers: Answers,
    /// What is being found.
    pub flights: Flights<AnswerKey, Result<Arc<Made>, Status>>,
}

/// An answer that was just found.
pub struct Made {
    /// As it is: for the first of those who wait for it.
    fresh: Mutex<Option<Partial>>,
    /// For the others, and for later. None where there is neither, or it is longer than packed answers are.
    pub packed: Option<Packed>,
    /// What the part of the block took in memory by then.
    pub bytes: u64,
}

/// Where an answer was kept.
enum Kept {
    InMemory(Packed),
    OnDisk(Packed),
}

impl Reading {
    /// Finds an answer and keeps it.
    pub async fn find(
        self: Arc<Self>,
        key: AnswerKey,
        at: (BlockId, bool),
        ask: Arc<Ask>,
    ) -> Result<Arc<Made>, Status> {
        let (reading, of) = (Arc::clone(&self), key.clone());
        let is_wanted = move || reading.keeps_answers() || reading.flights.askers(&of) > 1;
        let made = Arc::clone(&self).make(key.tenant.clone(), at, ask, is_wanted).await?;
        if let Some(packed) = &made.packed {
            if let Some(shelf) = &self.blocks.shelf {
                shelf.offer(key.on_shelf(), packed.bytes().clone());
            }
            self.answers.put(key, packed.clone());
        }
        Ok(Arc::new(made))
    }

    /// Whether there is any use in packing an answer for which nobody else waits.
    fn keeps_answers(&self) -> bool {
        self.answers.is_on() || self.blocks.shelf.as_ref().is_some_and(|shelf| shelf.is_on())
    }

    /// What was answered before. None where that was not kept, or is damaged.
    pub async fn known(
        &self,
        key: &AnswerKey,
        canonical: &Arc<Canonical>,
    ) -> Option<Result<(Partial, Found), Status>> {
        let kept = self.kept(key).await?;
        let (Kept::InMemory(packed) | Kept::OnDisk(packed)) = &kept;
        match self.unpack(&key.tenant, canonical, packed.clone()).await {
            // It is whole, and more than may be asked for.
            Err(status) if status.code != Code::Invalid => {
                self.damaged(key).await;
                None
            }
            answered => {
                let found = match kept {
                    Kept::InMemory(_) => {
                        self.answers.hit();
                        Found::InMemory
                    }
                    Kept::OnDisk(_) => {
                        self.answers.hit_on_disk();
                        Found::OnDisk
                    }
                };
                Some(answered.map(|partial| (partial, found)))
            }
        }
    }

    /// An answer that was kept, in memory or on disk.
    async fn kept(&self, key: &AnswerKey) -> Option<Kept> {
        if let Some(packed) = self.answers.get(key) {
            return Some(Kept::InMemory(packed));
        }
        let (shelf, on_shelf) = (self.blocks.shelf.as_ref()?, key.on_shelf());
        let (place, shelf) = (shelf.find(&on_shelf)?, Arc::clone(shelf));
        let job = move || shelf.read(&on_shelf, place).map(Packed::new);
        let compute = self.blocks.compute.for_tenant(&key.tenant);
        let packed = compute.run_as(Activity::Query, job).await.ok().flatten()?;
        self.answers.put(key.clone(), packed.clone());
        Some(Kept::OnDisk(packed))
    }

    /// Forgets an answer that is none.
    async fn damaged(&self, key: &AnswerKey) {
        self.answers.damaged(key);
        let Some(shelf) = self.blocks.shelf.as_ref().map(Arc::clone) else { return };
        let on_shelf = key.on_shelf();
        let job = move || shelf.doubt(&[on_shelf]);
        let _ = self.blocks.compute.run_as(Activity::Query, job).await;
    }

    /// Reads a block. What is computed ends when whoever waits for it leaves. Whether it is to be packed as well is asked
    /// when it is there.
    pub async fn make(
        self: Arc<Self>,
        tenant: TenantId,
        (block, whole): (BlockId, bool),
        ask: Arc<Ask>,
        is_packed: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<Made, Status> {
        let (stop, _waiting) = Stop::when_left();
        let compute = self.blocks.compute.for_tenant(&tenant);
        let wanted = Wanted { blocks: Arc::clone(&self.blocks), block, tenant, ask: Arc::clone(&ask), whole };
        let Opened { part, picked, held } = wanted.open().await.map_err(|status| named(block, status))?;
        let source = part.source().until(stop);
        let bytes = part.bytes() as u64;
        let job = move || {
            let partial = run_picked(&ask, &source, &picked).map_err(|error| Status::of(&error))?;
            drop((source, picked, held));
            let may_last = partial.bytes() <= MOST_KEPT && is_packed();
            let packed = may_last.then(|| partial.pack().ok()).flatten();
            let packed = packed.map(|pieces| Packed::new(pieces.into_bytes()));
            Ok::<_, Status>(Made { fresh: Mutex::new(Some(partial)), packed, bytes })
        };
        let done = compute.run_as(Activity::Query, job).await;
        match done.map_err(|error| Status::of(&error))? {
            Err(status) if status.code == Code::DataLoss => {
                self.blocks.doubt(&part).await;
                Err(named(block, status))
            }
            made => made,
        }
    }

    pub async fn unpack(
        &self,
        tenant: &TenantId,
        canonical: &Arc<Canonical>,
        packed: Packed,
    ) -> Result<Partial, Status> {
        let canonical = Arc::clone(canonical);
        let job = move || {
            let changed = || Status::new(Code::DataLoss, "a kept answer is not what was kept");
            let bytes = packed.sound().ok_or_else(changed)?;
            let partial = Partial::unpack(bytes, &canonical.ask).map_err(|error| Status::of(&error))?;
            Ok(canonical.answer(partial))
        };
        let done = self.blocks.compute.for_tenant(tenant).run_as(Activity::Query, job).await;
        done.map_err(|error| Status::of(&error))?
    }

    /// An answer as the one that was asked for. There may be many points to be moved.
    pub async fn as_asked(
        &self,
        tenant: &TenantId,
        canonical: &Arc<Canonical>,
        partial: Partial,
    ) -> Result<Partial, Status> {
        if !canonical.is_moved() {
            return Ok(partial);
        }
        let canonical = Arc::clone(canonical);
        let compute = self.blocks.compute.for_tenant(tenant);
        let moved = compute.run_as(Activity::Query, move || canonical.answer(partial)).await;
        moved.map_err(|error| Status::of(&error))
    }
}

/// An error that says which block is damaged.
pub fn named(block: BlockId, status: Status) -> Status {
    match status.code {
        Code::DataLoss => Status { message: format!("block {block}: {}", status.message), ..status },
        _ => status,
    }
}

/// A mistake in this program.
pub fn lost() -> Status {
    Status::new(Code::Internal, "an answer was taken by somebody else")
}

impl Made {
    /// As it is, for the first who asks for that.
    pub fn take(&self) -> Option<Partial> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
