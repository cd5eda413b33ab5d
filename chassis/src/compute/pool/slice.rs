//! Slices of CPU time: a query job yields where it calls [`yield_slice`].

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{PoolInner, PoolState, QueuedQueryJob, ResumeSignal};
use crate::compute::fair_queue::{CPU_QUANTUM, FlowKey};

thread_local! {
    /// The slice of the query job on this thread.
    static CURRENT_SLICE: RefCell<Option<CpuSlice>> = const { RefCell::new(None) };
}

/// Slice of a query job.
pub(in crate::compute) struct CpuSlice {
    shared: Arc<PoolInner>,
    flow: FlowKey,
    ticket: u64,
    /// CPU time of the thread at the beginning of the slice.
    begun: Duration,
    /// Tick at which the CPU time was last read.
    checked_tick: u64,
    /// Number of [`hold_slice`] calls on the stack.
    holds: usize,
}

/// Yields to other jobs if the job on this thread used up its slice or a tenant below its share waits.
/// Returns when the job may continue. Cheap, and without effect outside of query jobs.
///
/// The caller must not hold a lock that other jobs wait for: they may have all the slots. If that cannot be
/// avoided, the caller holds the slice ([`hold_slice`]).
pub fn yield_slice() {
    CURRENT_SLICE.with_borrow_mut(|current| {
        if let Some(slice) = current.as_mut().filter(|slice| slice.holds == 0) {
            slice.check();
        }
    });
}

/// Runs a step of a query job during which [`yield_slice`] has no effect.
pub fn hold_slice<R>(step: impl FnOnce() -> R) -> R {
    struct SliceHoldGuard;
    impl Drop for SliceHoldGuard {
        fn drop(&mut self) {
            update_holds(|holds| holds - 1);
        }
    }
    update_holds(|holds| holds + 1);
    let _hold = SliceHoldGuard;
    step()
}

fn update_holds(change: impl FnOnce(usize) -> usize) {
    CURRENT_SLICE.with_borrow_mut(|current| {
        if let Some(slice) = current {
            slice.holds = change(slice.holds);
        }
    });
}

/// Runs a query job in its slice.
pub(in crate::compute) fn run_in_slice<R>(mut slice: CpuSlice, job: impl FnOnce() -> R) -> R {
    struct SliceEndGuard;
    impl Drop for SliceEndGuard {
        fn drop(&mut self) {
            if let Some(slice) = CURRENT_SLICE.take() {
                slice.end();
            }
        }
    }
    slice.begin();
    CURRENT_SLICE.set(Some(slice));
    let _end = SliceEndGuard;
    job()
}

/// Starts up to `max_helpers` helpers of the query job on this thread. `None` outside of query jobs.
pub(in crate::compute) fn start_helpers(max_helpers: usize) -> Option<Vec<CpuSlice>> {
    CURRENT_SLICE.with_borrow(|current| {
        let CpuSlice { shared, flow, holds, .. } = current.as_ref()?;
        let tickets = shared.lock().schedule.start_helpers(flow, max_helpers);
        let helper = |ticket| CpuSlice { holds: *holds, ..CpuSlice::new(shared, flow.clone(), ticket) };
        Some(tickets.into_iter().map(helper).collect())
    })
}

/// Waits for helpers. Meanwhile the job releases its slot, unless it holds its slice. In that case its
/// helpers hold theirs too.
pub(in crate::compute) fn wait_for_helpers<R>(wait: impl FnOnce() -> R) -> R {
    CURRENT_SLICE.with_borrow(|current| {
        if let Some(slice) = current.as_ref().filter(|slice| slice.holds == 0) {
            slice.release();
        }
    });
    let done = wait();
    CURRENT_SLICE.with_borrow_mut(|current| {
        if let Some(slice) = current.as_mut().filter(|slice| slice.holds == 0) {
            slice.wait_for_slot();
        }
    });
    done
}

impl CpuSlice {
    pub(in crate::compute) fn new(shared: &Arc<PoolInner>, flow: FlowKey, ticket: u64) -> Self {
        Self { shared: Arc::clone(shared), flow, ticket, begun: Duration::ZERO, checked_tick: 0, holds: 0 }
    }

    fn begin(&mut self) {
        self.begun = (self.shared.clock.thread_time)();
        self.checked_tick = (self.shared.clock.tick)();
    }

    fn used(&self) -> Duration {
        (self.shared.clock.thread_time)().saturating_sub(self.begun)
    }

    fn check(&mut self) {
        let tick = (self.shared.clock.tick)();
        if tick == self.checked_tick && !self.shared.is_pressed.load(Ordering::Relaxed) {
            return;
        }
        self.checked_tick = tick;
        let used = self.used();
        let mut state = self.shared.lock();
        if state.is_closed {
            return;
        }
        if state.schedule.must_yield(&self.flow, used) {
            let gate = Arc::new(ResumeSignal::default());
            state.schedule.suspend_query(
                &self.flow,
                self.ticket,
                used,
                QueuedQueryJob::Resume(Arc::clone(&gate)),
            );
            self.shared.dispatch(&mut state);
            drop(state);
            gate.wait();
            self.begin();
        } else if used >= CPU_QUANTUM {
            state.schedule.renew_slice(&self.flow, used);
            drop(state);
            self.begin();
        }
    }

    /// Waits for a slot and begins a new slice.
    fn wait_for_slot(&mut self) {
        let mut state = self.shared.lock();
        if state.is_closed {
            return;
        }
        let gate = Arc::new(ResumeSignal::default());
        state.schedule.resume_query(&self.flow, self.ticket, QueuedQueryJob::Resume(Arc::clone(&gate)));
        self.shared.dispatch(&mut state);
        drop(state);
        gate.wait();
        self.begin();
    }

    /// Releases the slot.
    fn release(&self) {
        self.end_in(&mut self.shared.lock());
    }

    fn end(self) {
        self.end_in(&mut self.shared.lock());
    }

    fn end_in(&self, state: &mut PoolState) {
        state.schedule.end_query(&self.flow, self.used());
        self.shared.dispatch(state);
    }
}
