//! Memory budget of query results, of which one tenant among others gets half: each running query reserves
//! bytes and releases them when it ends. A [`MemoryBudget`](crate::memory_budget::MemoryBudget) has neither
//! tenants nor a limit per result, and counts in coarser units.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::memory_budget::{BudgetLimit, MemoryBudgetStats};
use crate::requests::tenant_shares::TenantShares;
use crate::units::ByteSize;
use crate::{ErrorCode, Status, TenantId};

/// Wait before a retry after a rejection because of a full budget.
const BUDGET_RETRY_AFTER: Duration = Duration::from_secs(2);

/// Memory budget for all results, as seen by the tenants of one query.
#[derive(Debug)]
pub struct ResultBudget {
    whole: Arc<ResultBudgetInner>,
    /// Tenants of the results. Empty if none were given.
    tenants: Arc<[TenantId]>,
}

#[derive(Debug)]
struct ResultBudgetInner {
    each: BudgetLimit,
    all: BudgetLimit,
    taken: AtomicU64,
    refused: AtomicU64,
    shares: TenantShares,
    /// Notification that bytes were released.
    given: Notify,
}

/// Reservation of a part of the budget. Dropping it releases the bytes.
#[derive(Debug)]
pub struct ResultReservation {
    room: Arc<ResultBudget>,
    bytes: u64,
}

impl ResultBudget {
    /// Creates a budget with a limit per result and a limit for all results.
    pub fn new(each: BudgetLimit, all: BudgetLimit) -> Arc<Self> {
        let whole = ResultBudgetInner {
            each,
            all,
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            shares: TenantShares::new(all.limit.get()),
            given: Notify::new(),
        };
        Arc::new(ResultBudget { whole: Arc::new(whole), tenants: Arc::default() })
    }

    /// Returns the same budget for results of these tenants. Reservations count for each of them.
    #[must_use]
    pub fn for_tenants(&self, tenants: &[TenantId]) -> Arc<Self> {
        Arc::new(ResultBudget { whole: Arc::clone(&self.whole), tenants: tenants.into() })
    }

    /// Waits until no other tenant holds more than its share. Meanwhile such a tenant gets no further bytes.
    pub async fn wait_for_fair_share(&self) {
        loop {
            let given = self.whole.given.notified();
            tokio::pin!(given);
            // Registered before the check, so no notification is missed.
            given.as_mut().enable();
            if self.whole.shares.is_free_for(&self.tenants) {
                return;
            }
            given.await;
        }
    }

    /// Returns the utilization of the budget.
    pub fn stats(&self) -> MemoryBudgetStats {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let ResultBudgetInner { taken, all, refused, .. } = &*self.whole;
        MemoryBudgetStats { taken: now(taken), limit: all.limit.get(), refused: now(refused) }
    }

    /// Reserves bytes for a part of a result.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Result<ResultReservation, Status> {
        self.check_request(bytes)?;
        let bytes = bytes as u64;
        let ResultBudgetInner { all: BudgetLimit { limit, setting }, shares, refused, .. } = &*self.whole;
        let refuse = |message: String| {
            refused.fetch_add(1, Ordering::Relaxed);
            Err(Status::new(ErrorCode::Exhausted, message).with_retry_after(BUDGET_RETRY_AFTER))
        };
        let more = ByteSize::bytes(bytes);
        if let Err(exceeded) = shares.reserve(&self.tenants, bytes) {
            return refuse(format!(
                "results in progress of tenant {} use {}, this one needs {more} more, the limit of one \
                 tenant among others is {}, half of {setting}; retry later",
                exceeded.tenant,
                ByteSize::bytes(exceeded.held),
                ByteSize::bytes(exceeded.share)
            ));
        }
        let before = self.whole.taken.fetch_add(bytes, Ordering::Relaxed);
        let taken = ResultReservation { room: Arc::clone(self), bytes };
        if before.saturating_add(bytes) > limit.get() {
            let before = ByteSize::bytes(before);
            return refuse(format!(
                "results in progress use {before}, this one needs {more} more, the limit is {limit} ({setting}); retry later"
            ));
        }
        Ok(taken)
    }

    fn release(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.whole.taken.fetch_sub(bytes, Ordering::Relaxed);
        self.whole.shares.release(&self.tenants, bytes);
        self.whole.given.notify_waiters();
    }

    /// Rejects a result that alone exceeds the limit per result.
    pub fn check_request(&self, bytes: usize) -> Result<(), Status> {
        let BudgetLimit { limit, setting } = self.whole.each;
        if bytes <= limit.as_usize() {
            return Ok(());
        }
        let bytes = ByteSize::bytes(bytes as u64);
        let message = format!(
            "the result uses {bytes} of memory, the limit is {limit} ({setting}); select fewer series or a shorter time, or request fewer nodes"
        );
        Err(Status::new(ErrorCode::Invalid, message))
    }
}

impl ResultReservation {
    /// Adds another reservation. Its bytes then count for the tenants of this one.
    #[must_use]
    pub fn merge(mut self, mut other: ResultReservation) -> ResultReservation {
        let bytes = std::mem::take(&mut other.bytes);
        if self.room.tenants != other.room.tenants {
            let shares = &self.room.whole.shares;
            shares.release(&other.room.tenants, bytes);
            shares.reserve_unchecked(&self.room.tenants, bytes);
        }
        self.bytes += bytes;
        self
    }

    /// Releases the bytes beyond `bytes`.
    pub fn shrink(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes as u64);
        self.bytes -= less;
        self.room.release(less);
    }

    /// Reserved bytes of this reservation.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }
}

impl Drop for ResultReservation {
    fn drop(&mut self) {
        self.room.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_share_the_room_and_give_it_back() {
        let bound = |bytes, setting| BudgetLimit { limit: ByteSize::bytes(bytes), setting };
        let room = ResultBudget::new(bound(60, "a.each"), bound(100, "a.all"));
        let code = |bytes| room.reserve(bytes).map(drop).map_err(|status| status.code);
        assert_eq!((code(60), code(61)), (Ok(()), Err(ErrorCode::Invalid)));
        let mut both = room.reserve(40).unwrap().merge(room.reserve(30).unwrap());
        assert_eq!((both.bytes(), code(31), code(30)), (70, Err(ErrorCode::Exhausted), Ok(())));
        assert!(room.reserve(31).unwrap_err().message.contains("(a.all)"));
        both.shrink(50);
        assert_eq!(code(50), Ok(()));
        drop(both);
        assert_eq!(room.stats(), MemoryBudgetStats { taken: 0, limit: 100, refused: 2 });
    }

    #[tokio::test]
    async fn tenant_leaves_half_of_the_room_to_others() {
        let bound = |bytes, setting| BudgetLimit { limit: ByteSize::bytes(bytes), setting };
        let room = ResultBudget::new(bound(100, "a.each"), bound(100, "a.all"));
        let [heavy, light] = ["heavy", "light"].map(|name| room.for_tenants(&[name.parse().unwrap()]));
        let alone = heavy.reserve(90).unwrap();
        let mut waits = Box::pin(light.wait_for_fair_share());
        assert!(futures::poll!(waits.as_mut()).is_pending());
        let refused = heavy.reserve(1).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Exhausted);
        assert!(
            refused.message.contains("tenant heavy use 90B") && refused.message.contains("is 50B"),
            "{refused}"
        );
        drop(alone);
        waits.await;
        let half = heavy.reserve(30).unwrap().merge(heavy.reserve(20).unwrap());
        assert!(heavy.reserve(1).is_err());
        let other = light.reserve(50).unwrap();
        assert_eq!(room.stats().taken, 100);
        let mut all = other.merge(half);
        all.shrink(20);
        assert!(heavy.reserve(50).is_ok() && light.reserve(31).is_err());
        drop(all);
        assert_eq!(room.stats().taken, 0);
    }
}
