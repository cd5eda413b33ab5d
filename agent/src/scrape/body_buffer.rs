//! Buffer of a scraped body, within the memory budget of all bodies.

use std::sync::Arc;

use athanor_chassis::memory_budget::{BudgetExceeded, BudgetLimit, MemoryBudget, MemoryReservation};
use athanor_chassis::units::ByteSize;

use crate::http_client::BodySink;

/// Size up to which bodies use the budget of small bodies.
pub(super) const SMALL_BODY_BYTES: u64 = 1 << 20;
/// First reservation of a body. Usual profiles need no second one.
const FIRST_RESERVATION_BYTES: u64 = 32 << 10;
/// Maximum bytes that are reserved because of an announced length. A target that announces more and sends nothing
/// takes no more memory from others.
const MAX_ANNOUNCED_BYTES: u64 = 64 << 10;
/// Bytes that the upload adds after a body: its time and id.
const MAX_SUFFIX_BYTES: usize = 128;

/// Memory budgets of bodies. Large bodies have a budget of their own, so that they leave no small one without
/// memory.
#[derive(Clone, Debug)]
pub struct BodyBudgets {
    small: Arc<MemoryBudget>,
    large: Arc<MemoryBudget>,
}

/// Body that arrives. It begins with free bytes, in front of the body, for the start of the upload.
#[derive(Debug)]
pub(super) struct BodyBuffer {
    bytes: Vec<u8>,
    prefix: usize,
    budgets: BodyBudgets,
    reservation: Option<MemoryReservation>,
    is_large: bool,
    exceeded: Option<BudgetExceeded>,
}

/// Content of a buffer with its reservation.
#[derive(Debug)]
pub(super) struct BufferedBody {
    /// Free bytes, then the body.
    pub(super) bytes: Vec<u8>,
    /// Number of free bytes.
    pub(super) prefix: usize,
    /// Memory of the bytes until they are dropped.
    pub(super) reservation: Option<MemoryReservation>,
}

impl BodyBudgets {
    /// Creates budgets. `large` limits the bodies over 1 MiB together, `small` all others.
    pub fn new(small: ByteSize, large: ByteSize) -> Self {
        let budget = |limit, setting| MemoryBudget::new(BudgetLimit { limit, setting });
        Self {
            small: budget(small, "scrape.max_small_body_memory_bytes"),
            large: budget(large, "scrape.max_large_body_memory_bytes"),
        }
    }

    /// Reserved bytes of both budgets.
    pub fn taken_bytes(&self) -> u64 {
        self.small.stats().taken + self.large.stats().taken
    }
}

impl Default for BodyBudgets {
    fn default() -> Self {
        Self::new(ByteSize::mib(48), ByteSize::mib(160))
    }
}

impl BodyBuffer {
    pub(super) fn new(prefix: usize, budgets: BodyBudgets) -> Self {
        Self { bytes: vec![0; prefix], prefix, budgets, reservation: None, is_large: false, exceeded: None }
    }

    /// The body so far.
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[self.prefix..]
    }

    /// Returns whether the body was rejected because the budget is used up.
    pub(super) fn is_out_of_memory(&self) -> bool {
        self.exceeded.is_some()
    }

    pub(super) fn into_parts(mut self) -> BufferedBody {
        let needed = self.bytes.len() + MAX_SUFFIX_BYTES;
        if self.bytes.capacity() < needed {
            self.bytes.reserve_exact(MAX_SUFFIX_BYTES);
        } else if self.bytes.capacity() > needed + needed / 4 {
            self.bytes.shrink_to(needed);
            let bytes = self.bytes.capacity() as u64;
            if let Some(reservation) = &mut self.reservation {
                // A reservation that shrinks always succeeds.
                let _ = reservation.try_resize(bytes);
            }
        }
        BufferedBody { bytes: self.bytes, prefix: self.prefix, reservation: self.reservation }
    }

    /// Makes the capacity hold `needed` bytes, after a reservation of the capacity.
    fn grow(&mut self, needed: usize) -> Result<(), BudgetExceeded> {
        if needed <= self.bytes.capacity() && self.reservation.is_some() {
            return Ok(());
        }
        let doubled = (self.bytes.capacity() as u64 * 2).max(FIRST_RESERVATION_BYTES);
        let wanted = doubled.max(needed as u64);
        match &mut self.reservation {
            Some(reservation) if self.is_large || wanted <= SMALL_BODY_BYTES => {
                if !reservation.try_resize(wanted) {
                    let budget = if self.is_large { &self.budgets.large } else { &self.budgets.small };
                    // The rejection counts, and it names the limit.
                    return Err(match budget.try_reserve(wanted) {
                        Err(exceeded) => exceeded,
                        // Bytes were released just now.
                        Ok(reserved) => {
                            *reservation = reserved;
                            self.bytes.reserve_exact(wanted as usize - self.bytes.len());
                            return Ok(());
                        }
                    });
                }
            }
            reservation => {
                let is_large = wanted > SMALL_BODY_BYTES;
                let budget = if is_large { &self.budgets.large } else { &self.budgets.small };
                *reservation = Some(budget.try_reserve(wanted)?);
                self.is_large = is_large;
            }
        }
        self.bytes.reserve_exact(wanted as usize - self.bytes.len());
        Ok(())
    }
}

impl BodySink for BodyBuffer {
    fn expect_length(&mut self, bytes: u64) {
        if bytes > 0 {
            let needed = self.prefix + bytes.min(MAX_ANNOUNCED_BYTES) as usize;
            self.exceeded = self.grow(needed).err();
        }
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), String> {
        let needed = self.bytes.len() + bytes.len();
        if let Err(exceeded) = self.grow(needed) {
            self.exceeded = Some(exceeded);
            return Err(format!("no memory for the body: {exceeded}; scrape fewer targets per agent"));
        }
        self.exceeded = None;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive_all(buffer: &mut BodyBuffer, bytes: usize) -> Result<(), String> {
        let piece = vec![7; 8 << 10];
        (0..bytes / piece.len()).try_for_each(|_| buffer.receive(&piece))
    }

    #[test]
    fn reservation_is_the_capacity_and_ends_with_the_body() {
        let budgets = BodyBudgets::new(ByteSize::mib(1), ByteSize::mib(8));
        let mut buffer = BodyBuffer::new(100, budgets.clone());
        assert_eq!(budgets.taken_bytes(), 0, "a request without a response reserves nothing");
        receive_all(&mut buffer, 3 << 20).unwrap();
        assert!(buffer.bytes.capacity() as u64 <= budgets.taken_bytes());
        let parts = buffer.into_parts();
        assert_eq!(parts.bytes.len(), 100 + (3 << 20));
        assert!(parts.bytes[100..].iter().all(|&byte| byte == 7));
        assert!(parts.bytes.capacity() as u64 <= budgets.taken_bytes());
        drop(parts);
        assert_eq!(budgets.taken_bytes(), 0);
    }

    #[test]
    fn announced_length_reserves_little_until_bytes_arrive() {
        let budgets = BodyBudgets::default();
        for announced in [1, MAX_ANNOUNCED_BYTES + 1, SMALL_BODY_BYTES, 64 << 20] {
            let mut buffer = BodyBuffer::new(100, budgets.clone());
            buffer.expect_length(announced);
            let reserved = budgets.taken_bytes();
            assert!((1..=2 * MAX_ANNOUNCED_BYTES).contains(&reserved), "{announced}: {reserved}");
            receive_all(&mut buffer, 512 << 10).unwrap();
            assert!((512 << 10..=1 << 20).contains(&budgets.taken_bytes()), "{}", budgets.taken_bytes());
        }
        assert_eq!(budgets.taken_bytes(), 0);
    }

    #[test]
    fn large_bodies_leave_memory_for_small_ones() {
        let budgets = BodyBudgets::new(ByteSize::mib(1), ByteSize::mib(8));
        let mut first = BodyBuffer::new(0, budgets.clone());
        receive_all(&mut first, 6 << 20).unwrap();
        let mut second = BodyBuffer::new(0, budgets.clone());
        let reason = receive_all(&mut second, 6 << 20).unwrap_err();
        assert!(
            second.is_out_of_memory() && reason.contains("scrape.max_large_body_memory_bytes"),
            "{reason}"
        );
        drop(second);
        let mut small = BodyBuffer::new(0, budgets);
        receive_all(&mut small, 256 << 10).unwrap();
    }
}
