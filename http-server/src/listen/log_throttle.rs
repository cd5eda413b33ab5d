//! Throttle for frequent log messages.

use std::time::Duration;

/// Minimum time between two equal messages.
const MIN_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Throttle that counts suppressed messages, so that the next message includes their number.
#[derive(Debug, Default)]
pub struct LogThrottle {
    last: Option<Duration>,
    unsaid: u64,
}

impl LogThrottle {
    /// Counts an occurrence at a monotonic time. If a message is due, returns the number of occurrences since
    /// the last one.
    pub fn should_log(&mut self, now: Duration) -> Option<u64> {
        self.unsaid += 1;
        if self.last.is_some_and(|last| now.saturating_sub(last) < MIN_LOG_INTERVAL) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_counted() {
        let mut seldom = LogThrottle::default();
        let said = [0, 1, 9, 10, 12, 40].map(|second| seldom.should_log(Duration::from_secs(second)));
        assert_eq!(said, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
