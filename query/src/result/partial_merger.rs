//! Merger of partial results from many sources, on any threads.

use std::sync::Arc;

use athanor_chassis::Status;
use athanor_chassis::compute::yield_slice;
use athanor_chassis::requests::result_budget::{ResultBudget, ResultReservation};
use parking_lot::Mutex;

use crate::{PartialResult, ResultLimits};

/// Merger of the partial results of one query.
#[derive(Debug)]
pub struct PartialMerger {
    bounds: ResultLimits,
    room: Arc<ResultBudget>,
    held: Mutex<Option<BudgetedPartial>>,
}

/// Partial result with its memory reservation.
#[derive(Debug)]
pub struct BudgetedPartial {
    /// Partial result in memory.
    pub partial: PartialResult,
    /// Reservation of at least the memory of the result.
    pub taken: ResultReservation,
}

impl PartialMerger {
    /// Creates a merger without results.
    pub fn new(bounds: ResultLimits, room: Arc<ResultBudget>) -> Self {
        Self { bounds, room, held: Mutex::default() }
    }

    /// Returns the memory budget of the results.
    pub fn memory_budget(&self) -> &Arc<ResultBudget> {
        &self.room
    }

    /// Adds a result, for which some memory may already be reserved. A thread that finds another result takes
    /// and merges it, so that no thread waits while another one merges.
    pub fn add(&self, partial: PartialResult, taken: Option<ResultReservation>) -> Result<(), Status> {
        let bytes = partial.bytes();
        let taken = match taken {
            None => self.room.reserve(bytes)?,
            Some(mut taken) => {
                taken.shrink(bytes);
                let more = self.room.reserve(bytes - taken.bytes())?;
                taken.merge(more)
            }
        };
        let mut mine = BudgetedPartial { partial, taken };
        loop {
            let mut held = self.held.lock();
            let Some(other) = held.take() else {
                *held = Some(mine);
                return Ok(());
            };
            drop(held);
            yield_slice();
            mine = self.merge(other, mine)?;
        }
    }

    fn merge(&self, one: BudgetedPartial, other: BudgetedPartial) -> Result<BudgetedPartial, Status> {
        let partial =
            one.partial.merge(other.partial, &self.bounds).map_err(|error| Status::from_error(&error))?;
        let mut taken = one.taken.merge(other.taken);
        // The sum includes shared parts of both results. The exact size needs a full traversal, so it is
        // computed only if the sum is over budget.
        if self.room.check_request(taken.bytes()).is_err() {
            taken.shrink(partial.bytes());
            self.room.check_request(taken.bytes())?;
        }
        Ok(BudgetedPartial { partial, taken })
    }

    /// Takes the merged result. None if nothing was added.
    pub fn take_merged(&self) -> Option<BudgetedPartial> {
        self.held.lock().take()
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::memory_budget::BudgetLimit;
    use athanor_chassis::{ByteSize, ErrorCode};

    use super::*;

    fn names(from: usize, to: usize) -> PartialResult {
        PartialResult::Texts((from..to).map(|n| format!("label{n}")).collect())
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test of threads")]
    fn nothing_that_comes_is_lost() {
        let bound = BudgetLimit { limit: ByteSize::mib(8), setting: "a" };
        let meeting = PartialMerger::new(ResultLimits::default(), ResultBudget::new(bound, bound));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let meeting = &meeting;
                scope.spawn(move || {
                    (0..50).try_for_each(|n| meeting.add(names(thread * 50 + n, thread * 50 + n + 2), None))
                });
            }
        });
        let held = meeting.take_merged().unwrap();
        assert!(held.taken.bytes() >= held.partial.bytes());
        assert!(
            matches!((held.partial, names(0, 201)), (PartialResult::Texts(all), PartialResult::Texts(of)) if all == of)
        );
    }

    #[test]
    fn what_takes_too_much_is_refused_be_it_the_first_or_the_last() {
        let bound = |bytes| BudgetLimit { limit: ByteSize::bytes(bytes as u64), setting: "a" };
        let (ten, all) = (names(0, 10).bytes(), names(0, 100).bytes());
        let room = ResultBudget::new(bound(ten), bound(all));
        let meeting = PartialMerger::new(ResultLimits::default(), Arc::clone(&room));
        let refused = meeting.add(names(0, 11), None).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Invalid);
        // What both have counts once.
        (0..5).for_each(|_| meeting.add(names(0, 10), None).unwrap());
        assert_eq!(meeting.add(names(5, 15), None).unwrap_err().code, ErrorCode::Invalid);
        drop(meeting);
        assert!(room.reserve(ten).is_ok());
    }
}
