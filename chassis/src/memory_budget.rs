//! Memory budget of one purpose: callers reserve bytes and release them with the reservation.
//!
//! The budget counts whole KiB and serves waiting reservations in their order. It knows no tenants: a budget
//! that each tenant has a share of is a [`ResultBudget`](crate::requests::result_budget::ResultBudget), or has
//! [`TenantShares`](crate::requests::tenant_shares::TenantShares) beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;

use crate::code::{ErrorCode, ErrorCodeExt};
use crate::units::ByteSize;

/// Unit in which a budget counts.
const UNIT_BYTES: u64 = 1024;

/// Limit in bytes, and the setting that configures it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetLimit {
    /// Upper bound in bytes.
    pub limit: ByteSize,
    /// Name of the setting in the configuration.
    pub setting: &'static str,
}

/// Memory budget. A reservation that exceeds the whole budget takes all of it.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: BudgetLimit,
    units: u32,
    free: Semaphore,
    refused: AtomicU64,
}

/// Reservation of a part of a budget. Dropping it releases the bytes.
#[derive(Debug)]
pub struct MemoryReservation {
    budget: Arc<MemoryBudget>,
    units: u32,
}

/// Utilization of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryBudgetStats {
    /// Reserved bytes.
    pub taken: u64,
    /// Upper bound of reserved bytes.
    pub limit: u64,
    /// Number of reservations that were rejected because the budget was used up.
    pub refused: u64,
}

/// Rejection of a reservation, because the budget has too few free bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} of {} ({}) are free, the request needs {}", .free.to_approximate_string(), .limit.limit,
    .limit.setting, .needed.to_approximate_string())]
pub struct BudgetExceeded {
    /// Bytes that were requested.
    pub needed: ByteSize,
    /// Bytes that were free.
    pub free: ByteSize,
    /// Limit of the budget.
    pub limit: BudgetLimit,
}

impl MemoryBudget {
    /// Creates a budget with all bytes free.
    pub fn new(limit: BudgetLimit) -> Arc<Self> {
        let max_units = Semaphore::MAX_PERMITS.min(u32::MAX as usize) as u64;
        let units = (limit.limit.get() / UNIT_BYTES).clamp(1, max_units) as u32;
        Arc::new(Self { limit, units, free: Semaphore::new(units as usize), refused: AtomicU64::new(0) })
    }

    /// Upper bound of all reservations together.
    pub fn limit(&self) -> ByteSize {
        self.limit.limit
    }

    /// Reserves bytes that are free now.
    pub fn try_reserve(self: &Arc<Self>, bytes: u64) -> Result<MemoryReservation, BudgetExceeded> {
        let mut reserved = MemoryReservation { budget: Arc::clone(self), units: 0 };
        if reserved.try_resize(bytes) {
            return Ok(reserved);
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        let free = ByteSize::bytes(self.free.available_permits() as u64 * UNIT_BYTES);
        Err(BudgetExceeded { needed: ByteSize::bytes(bytes), free, limit: self.limit })
    }

    /// Reserves bytes as soon as they are free.
    pub async fn reserve(self: &Arc<Self>, bytes: u64) -> MemoryReservation {
        let units = self.units_of(bytes);
        let permits = self.free.acquire_many(units).await.expect("the semaphore is never closed");
        permits.forget();
        MemoryReservation { budget: Arc::clone(self), units }
    }

    /// Returns the utilization of the budget.
    pub fn stats(&self) -> MemoryBudgetStats {
        let taken = self.units as usize - self.free.available_permits();
        MemoryBudgetStats {
            taken: taken as u64 * UNIT_BYTES,
            limit: self.limit.limit.get(),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    fn units_of(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).min(self.units)
    }
}

impl MemoryReservation {
    /// Shrinks the reservation, or grows it without waiting. Returns false and leaves it as it is if the
    /// budget has too few free bytes.
    pub fn try_resize(&mut self, bytes: u64) -> bool {
        let units = self.budget.units_of(bytes);
        match units.checked_sub(self.units) {
            None => self.budget.free.add_permits((self.units - units) as usize),
            Some(more) => match self.budget.free.try_acquire_many(more) {
                Ok(permits) => permits.forget(),
                Err(_) => return false,
            },
        }
        self.units = units;
        true
    }

    /// Adds another reservation of the same budget.
    pub fn merge(&mut self, mut other: MemoryReservation) {
        debug_assert!(Arc::ptr_eq(&self.budget, &other.budget), "reservations of two budgets");
        self.units += std::mem::take(&mut other.units);
    }

    /// Reserved bytes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.units) * UNIT_BYTES
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.budget.free.add_permits(self.units as usize);
    }
}

impl ErrorCodeExt for BudgetExceeded {
    fn code(&self) -> ErrorCode {
        ErrorCode::Exhausted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(kibibytes: u64) -> Arc<MemoryBudget> {
        MemoryBudget::new(BudgetLimit { limit: ByteSize::kib(kibibytes), setting: "a.limit" })
    }

    #[test]
    fn reservation_beyond_the_free_bytes_is_rejected_with_its_setting() {
        let budget = budget(8);
        let mut first = budget.try_reserve(5000).unwrap();
        assert_eq!((first.bytes(), budget.stats().taken), (5 << 10, 5 << 10));
        let refused = budget.try_reserve(4 << 10).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Exhausted);
        assert_eq!(refused.to_string(), "3KiB of 8KiB (a.limit) are free, the request needs 4KiB");
        first.merge(budget.try_reserve(3 << 10).unwrap());
        drop(first);
        assert_eq!(budget.stats(), MemoryBudgetStats { taken: 0, limit: 8 << 10, refused: 1 });
    }

    #[test]
    fn reservation_larger_than_the_budget_takes_all_of_it() {
        let budget = budget(8);
        let all = budget.try_reserve(u64::MAX).unwrap();
        assert_eq!(all.bytes(), 8 << 10);
        assert!(budget.try_reserve(1).is_err());
    }

    #[test]
    fn resized_reservation_keeps_its_size_if_the_budget_is_used_up() {
        let budget = budget(8);
        let mut one = budget.try_reserve(2 << 10).unwrap();
        let mut other = budget.try_reserve(4 << 10).unwrap();
        assert!(one.try_resize(4 << 10) && !one.try_resize(5 << 10));
        assert_eq!(one.bytes(), 4 << 10);
        assert!(other.try_resize(1 << 10) && one.try_resize(7 << 10));
        assert_eq!(budget.stats().taken, 8 << 10);
    }

    #[tokio::test]
    async fn waiting_reservation_gets_released_bytes_before_later_ones() {
        let budget = budget(8);
        let held = budget.reserve(6 << 10).await;
        let mut waits = Box::pin(budget.reserve(4 << 10));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        assert!(budget.try_reserve(2 << 10).is_err(), "they are kept for the one that waits");
        drop(held);
        assert_eq!(waits.await.bytes(), 4 << 10);
    }
}
