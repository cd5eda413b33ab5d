//! Watch of the leader's clock.
//!
//! Retention uses the catalog's time. The leader reports how far its own clock differs from that time. It also
//! stamps an idle catalog, so that a restart later finds a recent command.

use std::time::Duration;

use athanor_catalog::{Catalog, CatalogCommand, RetentionPolicy};
use tokio_util::sync::CancellationToken;

use crate::voter::MetastoreVoter;

/// Interval between comparisons of the clock with the catalog's time.
const CLOCK_WATCH_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum interval between commands, so that the time of the newest command is that of a running voter.
const STAMP_INTERVAL: Duration = Duration::from_secs(3600);
/// Maximum difference between the clock and the catalog's time without a warning.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(3600);

impl MetastoreVoter {
    /// Stamps an idle catalog with its time, and warns if this machine's clock differs from that time, while
    /// this voter leads. Runs until shutdown.
    pub async fn watch_clock(self, token: CancellationToken) {
        let watching = async {
            let mut is_wrong = false;
            loop {
                self.clock().sleep(CLOCK_WATCH_INTERVAL).await;
                if self.leader().here {
                    is_wrong = self.warn_of_wrong_clock(is_wrong);
                    self.stamp_if_idle().await;
                }
            }
        };
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = watching => {}
        }
    }

    /// Warns if this machine's clock differs from the catalog's time and no warning was logged before. Returns
    /// whether it differs.
    fn warn_of_wrong_clock(&self, was_wrong: bool) -> bool {
        let wall = self.clock().wall();
        let time = self.time();
        let is_wrong = wall.since(time).max(time.since(wall)) > MAX_CLOCK_DIFFERENCE;
        if is_wrong && !was_wrong {
            tracing::warn!(
                ahead_seconds = (wall.millis() - time.millis()) / 1000,
                "the clock of this machine differs from the catalog's time, which retention uses; set the clock, or \
                 run `athanor retention confirm-clock` if the clock is right"
            );
        }
        is_wrong
    }

    /// Proposes a command without an effect if the newest one is old. So the time of the newest command is that
    /// of a running voter.
    async fn stamp_if_idle(&self) {
        if self.time().since(self.newest_command_time()) < STAMP_INTERVAL {
            return;
        }
        let stamp =
            CatalogCommand::ExpireBlocks { retention: RetentionPolicy::default(), max_percent: Some(0) };
        if let Err(error) = self.propose(stamp).await {
            tracing::debug!(%error, "failed to stamp the idle catalog, will retry");
        }
    }

    /// Returns the seconds by which this machine's clock is ahead of the catalog's time. None unless this voter
    /// leads.
    pub fn clock_ahead_seconds(&self) -> Option<i64> {
        let ahead = || (self.clock().wall().millis() - self.time().millis()) / 1000;
        self.leader().here.then(ahead)
    }
}
