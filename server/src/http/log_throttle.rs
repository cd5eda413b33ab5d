//! What would be said too often.

use std::time::Duration;

/// Between two times that the same is said.
const MIN_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counts what is not said, so that it is said with the next.
#[derive(Debug, Default)]
pub struct LogThrottle {
    last: Option<Duration>,
    unsaid: u64,
}

impl LogThrottle {
    /// It has happened again, at this time of a clock that never goes back. How often since it was last said, if it is
    /// to be said now.
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
