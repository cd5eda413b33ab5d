//! Queue that brings the records of several rings into the order of time.

use super::record::{RecordError, SidebandEvent, SidebandRecord};

/// Bytes of waiting records: more than the rings of 64 CPUs hold when one drain follows the other soon enough.
const MAX_QUEUE_BYTES: usize = 4 << 20;

/// Waiting records.
///
/// Each CPU has a ring, and a process that forks on one CPU may execute on another. A record may also be written to a
/// ring that was just drained, before a later one to a ring that is drained next. So records that are newer than the
/// start of a drain wait for the next one.
#[derive(Debug, Default)]
pub struct RecordQueue {
    bytes: Vec<u8>,
    entries: Vec<QueueEntry>,
    dropped: u64,
}

#[derive(Clone, Copy, Debug)]
struct QueueEntry {
    time_nanos: u64,
    start: usize,
    end: usize,
}

// === impl RecordQueue ===

impl RecordQueue {
    /// Adds a record as the ring has it. Returns the number of records whose loss it reports.
    ///
    /// # Errors
    ///
    /// Returns an error if the record does not have the form of its type.
    pub fn push(&mut self, bytes: &[u8]) -> Result<u64, RecordError> {
        let (record, size) = SidebandRecord::parse(bytes)?;
        let lost = match record.event {
            SidebandEvent::Lost(loss) => loss.count,
            SidebandEvent::Other(_) => return Ok(0),
            _ => 0,
        };
        let start = self.bytes.len();
        let end = start.saturating_add(size);
        if end > MAX_QUEUE_BYTES {
            self.dropped += 1;
            return Ok(lost + 1);
        }
        self.bytes.extend_from_slice(bytes.get(..size).unwrap_or_default());
        self.entries.push(QueueEntry { time_nanos: record.time_nanos, start, end });
        Ok(lost)
    }

    /// Returns whether no record waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Passes the records up to a time to `apply`, oldest first. Records of one time keep their order. Returns the
    /// number of records that were dropped since the last call because the queue was full.
    pub fn take_until(&mut self, time_nanos: u64, mut apply: impl FnMut(&SidebandRecord<'_>)) -> u64 {
        self.entries.sort_by_key(|entry| entry.time_nanos);
        let due = self.entries.partition_point(|entry| entry.time_nanos <= time_nanos);
        for entry in self.entries.drain(..due) {
            let bytes = self.bytes.get(entry.start..entry.end).unwrap_or_default();
            if let Ok((record, _)) = SidebandRecord::parse(bytes) {
                apply(&record);
            }
        }
        let mut waiting = Vec::new();
        for entry in &mut self.entries {
            let start = waiting.len();
            waiting.extend_from_slice(self.bytes.get(entry.start..entry.end).unwrap_or_default());
            *entry = QueueEntry { start, end: waiting.len(), ..*entry };
        }
        self.bytes = waiting;
        std::mem::take(&mut self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Exit of a process at a time.
    fn record(pid: u32, time_nanos: u64) -> Vec<u8> {
        let mut bytes = [4_u32.to_ne_bytes(), [0, 0, 48, 0]].concat();
        bytes.extend([pid, 1, pid, 1].map(u32::to_ne_bytes).concat());
        bytes.extend(time_nanos.to_ne_bytes());
        bytes.extend([pid, pid].map(u32::to_ne_bytes).concat());
        bytes.extend(time_nanos.to_ne_bytes());
        bytes
    }

    fn take(queue: &mut RecordQueue, until: u64) -> Vec<(u64, u32)> {
        let mut taken = Vec::new();
        queue.take_until(until, |record| taken.push((record.time_nanos, record.pid)));
        taken
    }

    proptest! {
        /// Oracle: a stable sort of all records that are due.
        #[test]
        fn records_come_in_order_of_time_in_any_number_of_drains(
            drains in prop::collection::vec(prop::collection::vec(0_u64..100, 0..20), 0..6),
        ) {
            let mut queue = RecordQueue::default();
            let mut waiting: Vec<(u64, u32)> = Vec::new();
            let mut pid = 0;
            for (times, until) in drains.into_iter().zip((20_u64..).step_by(20)) {
                for time_nanos in times {
                    pid += 1;
                    queue.push(&record(pid, time_nanos)).unwrap();
                    waiting.push((time_nanos, pid));
                }
                waiting.sort_by_key(|(time_nanos, _)| *time_nanos);
                let due = waiting.partition_point(|(time_nanos, _)| *time_nanos <= until);
                let expected: Vec<_> = waiting.drain(..due).collect();
                prop_assert_eq!(take(&mut queue, until), expected);
                prop_assert_eq!(queue.is_empty(), waiting.is_empty());
            }
            prop_assert_eq!(take(&mut queue, u64::MAX), waiting);
            prop_assert!(queue.is_empty() && queue.bytes.is_empty());
        }
    }

    #[test]
    fn full_queue_drops_and_counts() {
        let mut queue = RecordQueue::default();
        let capacity = MAX_QUEUE_BYTES / 48;
        let mut lost = 0;
        for number in 0..capacity + 5 {
            lost += queue.push(&record(1, number as u64)).unwrap();
        }
        assert_eq!(lost, 5);
        let mut taken = 0;
        assert_eq!(queue.take_until(u64::MAX, |_| taken += 1), 5);
        assert_eq!(taken, capacity);
        assert_eq!(queue.take_until(u64::MAX, |_| taken += 1), 0);
    }

    #[test]
    fn losses_are_counted_and_other_records_skipped() {
        let mut queue = RecordQueue::default();
        let mut lost = record(1, 5);
        lost[0] = 2;
        lost[16..24].copy_from_slice(&7_u64.to_ne_bytes());
        assert_eq!(queue.push(&lost), Ok(7));
        let mut other = record(1, 5);
        other[0] = 9;
        assert_eq!(queue.push(&other), Ok(0));
        assert!(queue.push(&other[..20]).is_err());
        assert_eq!(take(&mut queue, 5).len(), 1);
    }
}
