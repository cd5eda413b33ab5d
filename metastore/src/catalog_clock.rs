//! Clock that stamps the catalog's commands.
//!
//! The catalog's time never goes back, and retention removes blocks by it. One wrong clock must not move it:
//!
//! - With several voters, a majority must have reached it. Each voter reads the clocks of the others.
//! - While fewer clocks than a majority are known, it advances from the newest command with the monotonic
//!   clock.
//! - A sole voter's clock is checked against the newest command's time plus uptime. If the clock is ahead of
//!   that, the server was off or its clock is wrong. The two cases cannot be distinguished. The catalog's
//!   time then runs at [`CATCH_UP_SPEED`] times the normal speed until it has caught up, or an operator
//!   confirms the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use athanor_chassis::{Clock, Timestamp};
use athanor_cluster::NodeId;
use parking_lot::Mutex;

/// Speed of the catalog's time, relative to the monotonic clock, while it catches up with a sole voter's
/// clock.
const CATCH_UP_SPEED: u32 = 2;

/// Clock of the catalog as one voter computes it.
pub(crate) struct CatalogClock {
    clock: Clock,
    state: Mutex<CatalogTimeState>,
}

#[derive(Default)]
struct CatalogTimeState {
    /// Catalog time that was returned last.
    time: Timestamp,
    /// Monotonic time at which `time` was returned.
    returned_at: Duration,
    /// The wall time of each other voter when this process's monotonic clock was at zero.
    others: BTreeMap<NodeId, Timestamp>,
}

/// Input from which the catalog's time is computed.
struct ClockEvidence {
    /// Timestamp of the newest command, or a later time that was returned before; the epoch if there is
    /// neither.
    base: Timestamp,
    /// Time that has passed since `base` by the monotonic clock.
    elapsed: Duration,
    /// The clock of this voter.
    wall: Timestamp,
    /// Known clocks of other voters.
    others: Vec<Timestamp>,
    /// Number of voters, this one included.
    voters: usize,
}

impl CatalogClock {
    pub(crate) fn new(clock: Clock) -> Self {
        let state = CatalogTimeState { returned_at: clock.monotonic(), ..CatalogTimeState::default() };
        Self { clock, state: Mutex::new(state) }
    }

    /// Returns the catalog's time, given the timestamp of the newest command and the set of voters.
    pub(crate) fn now(&self, newest_command: Timestamp, me: NodeId, voters: &BTreeSet<NodeId>) -> Timestamp {
        let monotonic = self.clock.monotonic();
        let wall = self.clock.wall();
        let mut state = self.state.lock();
        state.others.retain(|node, _| voters.contains(node) && *node != me);
        let is_newer = newest_command > state.time;
        let evidence = ClockEvidence {
            base: newest_command.max(state.time),
            elapsed: match is_newer {
                true => Duration::ZERO,
                false => monotonic.saturating_sub(state.returned_at),
            },
            wall,
            others: state.others.values().map(|start| start.plus(monotonic)).collect(),
            voters: voters.len(),
        };
        let time = evidence.time();
        // Without a command no reference exists for checking the clock, so the result is not stored.
        if evidence.has_history() {
            state.time = time;
            state.returned_at = monotonic;
        }
        time
    }

    /// Records the clock of another voter, as read at a time of the monotonic clock.
    pub(crate) fn record(&self, voter: NodeId, wall: Timestamp, read_at: Duration) {
        self.state.lock().others.insert(voter, wall.minus(read_at));
    }

    /// Adopts this machine's wall time after an operator confirmed it.
    pub(crate) fn confirm(&self) -> Timestamp {
        let mut state = self.state.lock();
        state.time = state.time.max(self.clock.wall());
        state.returned_at = self.clock.monotonic();
        state.time
    }
}

impl ClockEvidence {
    fn has_history(&self) -> bool {
        self.base > Timestamp::UNIX_EPOCH
    }

    fn time(&self) -> Timestamp {
        if self.voters == 1 && self.has_history() {
            return self.wall.min(self.base.plus(self.elapsed * CATCH_UP_SPEED)).max(self.base);
        }
        match self.majority_time() {
            Some(time) if self.voters > 1 => time.max(self.base),
            _ if self.has_history() => self.base.plus(self.elapsed),
            _ => self.wall,
        }
    }

    /// Returns the latest time that a majority of voters has reached, if the clocks of a majority are known.
    fn majority_time(&self) -> Option<Timestamp> {
        let mut clocks: Vec<Timestamp> = self.others.iter().copied().chain([self.wall]).collect();
        clocks.sort_unstable_by(|one, other| other.cmp(one));
        clocks.get(self.voters / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);
    const MINUTE: Duration = Duration::from_secs(60);
    const BEGIN: Timestamp = Timestamp::from_seconds(1_700_000_000);

    fn voters(count: u64) -> BTreeSet<NodeId> {
        (1..=count).collect()
    }

    #[test]
    fn sole_voter_far_ahead_moves_time_by_twice_its_uptime() {
        let (clock, hand) = Clock::manual(BEGIN.plus(DAY * 40));
        let catalog = CatalogClock::new(clock);
        assert_eq!(catalog.now(BEGIN, 1, &voters(1)), BEGIN);
        hand.advance(MINUTE);
        assert_eq!(catalog.now(BEGIN, 1, &voters(1)), BEGIN.plus(MINUTE * 2));
        hand.advance(MINUTE);
        // A command was stamped meanwhile.
        assert_eq!(catalog.now(BEGIN.plus(MINUTE * 2), 1, &voters(1)), BEGIN.plus(MINUTE * 4));
        hand.advance(DAY * 40);
        let caught_up = BEGIN.plus(DAY * 80 + MINUTE * 2);
        assert_eq!(catalog.now(BEGIN, 1, &voters(1)), caught_up);
    }

    #[test]
    fn sole_voter_in_step_follows_its_clock() {
        let (clock, hand) = Clock::manual(BEGIN);
        let catalog = CatalogClock::new(clock);
        assert_eq!(catalog.now(Timestamp::UNIX_EPOCH, 1, &voters(1)), BEGIN, "a new catalog has no history");
        assert_eq!(catalog.now(BEGIN, 1, &voters(1)), BEGIN);
        hand.advance(DAY);
        assert_eq!(catalog.now(BEGIN, 1, &voters(1)), BEGIN.plus(DAY));
    }

    #[test]
    fn sole_voter_confirmed_by_operator_catches_up_at_once() {
        let (clock, _hand) = Clock::manual(BEGIN.plus(DAY * 40));
        let catalog = CatalogClock::new(clock);
        assert_eq!(catalog.now(BEGIN, 1, &voters(1)), BEGIN);
        assert_eq!(catalog.confirm(), BEGIN.plus(DAY * 40));
        assert_eq!(catalog.now(BEGIN, 1, &voters(1)), BEGIN.plus(DAY * 40));
    }

    #[test]
    fn sole_voter_behind_keeps_the_newest_time() {
        let (clock, hand) = Clock::manual(BEGIN.minus(DAY));
        let catalog = CatalogClock::new(clock);
        hand.advance(MINUTE);
        assert_eq!(catalog.now(BEGIN, 1, &voters(1)), BEGIN);
    }

    #[test]
    fn majority_outvotes_one_clock_wherever_it_leads() {
        for (wall, others, expected) in [
            (BEGIN.plus(DAY * 40), [BEGIN.plus(MINUTE), BEGIN.plus(MINUTE * 2)], BEGIN.plus(MINUTE * 2)),
            (BEGIN.plus(MINUTE), [BEGIN.plus(DAY * 40), BEGIN.plus(MINUTE * 2)], BEGIN.plus(MINUTE * 2)),
            (BEGIN.plus(MINUTE), [BEGIN.minus(DAY), BEGIN.plus(MINUTE * 2)], BEGIN.plus(MINUTE)),
        ] {
            let (clock, _hand) = Clock::manual(wall);
            let catalog = CatalogClock::new(clock.clone());
            (2..).zip(others).for_each(|(node, other)| catalog.record(node, other, clock.monotonic()));
            assert_eq!(catalog.now(BEGIN, 1, &voters(3)), expected);
        }
    }

    #[test]
    fn clock_far_ahead_before_the_first_command_does_not_stick() {
        let (clock, hand) = Clock::manual(BEGIN.plus(DAY * 40));
        let catalog = CatalogClock::new(clock);
        // A voter that has not heard of anything yet.
        assert_eq!(catalog.now(Timestamp::UNIX_EPOCH, 1, &voters(0)), BEGIN.plus(DAY * 40));
        assert_eq!(catalog.now(BEGIN, 1, &voters(3)), BEGIN);
        hand.advance(MINUTE);
        assert_eq!(catalog.now(BEGIN, 1, &voters(3)), BEGIN.plus(MINUTE));
    }

    #[test]
    fn majority_unknown_goes_on_with_the_monotonic_clock() {
        let (clock, hand) = Clock::manual(BEGIN.plus(DAY * 40));
        let catalog = CatalogClock::new(clock.clone());
        assert_eq!(catalog.now(BEGIN, 1, &voters(3)), BEGIN);
        hand.advance(MINUTE);
        assert_eq!(catalog.now(BEGIN, 1, &voters(3)), BEGIN.plus(MINUTE));
        catalog.record(2, BEGIN.plus(MINUTE * 3), clock.monotonic());
        hand.advance(MINUTE);
        assert_eq!(catalog.now(BEGIN, 1, &voters(3)), BEGIN.plus(MINUTE * 4), "read clocks go on");
        assert_eq!(catalog.now(BEGIN, 1, &voters(5)), BEGIN.plus(MINUTE * 4), "two of five are too few");
    }
}
