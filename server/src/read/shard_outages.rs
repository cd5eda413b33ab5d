//! Shards without a leader, from the view of this node's queries.
//!
//! Queries share their findings: the first ones wait for a leader, and all others stop waiting when they do.
//! After that, queries return at once without the newest profiles of the shard and report it, until a probe
//! finds a leader.
//!
//! ```text
//!  no entry ──attempt failed──► waiting ──timeout──► unavailable ──probe or query answered──► no entry
//! ```
//!
//! Probes repeat as long as queries arrive, so that no query reports an outage that is over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_catalog::{ShardEntry, ShardId};
use athanor_cluster::NodeId;
use athanor_cluster::members::ClusterMember;
use parking_lot::Mutex;

/// Time that queries wait for a leader while most members are reachable: an election may be in progress.
pub const LEADERLESS_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that queries wait for a leader while most members are unreachable: no leader can be elected.
pub const NO_QUORUM_TIMEOUT: Duration = Duration::from_secs(2);
/// Age after which the last failed attempt is stale, so that the next query calls each member once. Only
/// relevant while no probe is running.
const MAX_VERDICT_AGE: Duration = Duration::from_secs(1);
/// Pause between two probes of a shard.
pub const PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// Time that probes of a shard continue after the last query that lacked it.
const PROBING_TIME: Duration = Duration::from_secs(10);
/// Maximum number of tracked shards. Beyond that, the outage with the oldest attempt is dropped.
const MAX_TRACKED_SHARDS: usize = 4096;

/// Table of shards without a leader.
#[derive(Debug, Default)]
pub struct ShardOutages {
    outages: Mutex<BTreeMap<ShardId, ShardOutage>>,
    /// Number of the next probing task.
    next_probe_number: AtomicU64,
}

/// Right to probe a shard. At most one task per outage has it. Dropping it ends probing, also if the task
/// panics.
#[derive(Debug)]
pub struct ProbePermit {
    outages: Arc<ShardOutages>,
    shard: ShardId,
    number: u64,
}

/// Outage of a shard without a leader. All times are on the node's monotonic clock.
#[derive(Debug)]
struct ShardOutage {
    /// Begin of the outage, as far as attempts prove it.
    since: Duration,
    last_attempt: Duration,
    last_error: String,
    /// Members that could not be called, with the time of their first failure.
    unreachable: BTreeMap<NodeId, Duration>,
    /// Time since which the shard has too few members to elect a leader.
    no_quorum_since: Option<Duration>,
    /// Last query that went on without the shard, and the shard's entry in its plan.
    last_missed: Option<(Duration, ShardEntry)>,
    /// Number of the task that probes.
    probe: Option<u64>,
}

/// A failed attempt to read a shard.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt<'a> {
    /// Member that was called.
    pub node: NodeId,
    /// Kind of the failure.
    pub failure: AttemptFailure,
    /// Error text.
    pub error: &'a str,
    /// Begin of the attempt.
    pub begun: Duration,
    /// Time of the failure.
    pub now: Duration,
}

/// Kind of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFailure {
    /// The member responded, but is not the leader.
    NotLeader,
    /// The member could not be called, or the connection broke.
    Unreachable,
    /// The query's deadline expired first. That begins no outage: the member may just be slow.
    TimedOut,
}

// === impl ShardOutages ===

impl ShardOutages {
    /// Records that a member does not serve a shard. `known` is the gossip view of the members.
    pub fn record_failure(
        &self,
        shard: &ShardEntry,
        attempt: FailedAttempt<'_>,
        known: &BTreeMap<NodeId, ClusterMember>,
    ) {
        let FailedAttempt { node, failure, error, begun, now } = attempt;
        let mut outages = self.outages.lock();
        if failure == AttemptFailure::TimedOut && !outages.contains_key(&shard.id) {
            return;
        }
        if outages.len() >= MAX_TRACKED_SHARDS && !outages.contains_key(&shard.id) {
            let oldest = outages.iter().min_by_key(|(_, outage)| outage.last_attempt).map(|(id, _)| *id);
            oldest.map(|id| outages.remove(&id));
        }
        // A leader that has lost its quorum takes seconds to reject a read. Other failures, and time beyond
        // that, do not prove that the outage began before now: the call may just have been long.
        let since = match failure {
            AttemptFailure::NotLeader => begun.max(now.saturating_sub(NO_QUORUM_TIMEOUT)),
            AttemptFailure::Unreachable | AttemptFailure::TimedOut => now,
        };
        let outage = outages.entry(shard.id).or_insert_with(|| ShardOutage::new(since));
        outage.last_attempt = now;
        error.clone_into(&mut outage.last_error);
        match failure {
            AttemptFailure::NotLeader => drop(outage.unreachable.remove(&node)),
            AttemptFailure::Unreachable => drop(outage.unreachable.entry(node).or_insert(now)),
            AttemptFailure::TimedOut => {}
        }
        outage.no_quorum_since = quorum_lost_since(&shard.members, &outage.unreachable, known);
    }

    /// Records that a shard has a leader.
    pub fn record_response(&self, shard: ShardId) {
        self.outages.lock().remove(&shard);
    }

    /// Returns whether queries still wait for a leader of this shard.
    pub fn is_worth_waiting(&self, shard: ShardId, now: Duration) -> bool {
        self.outages.lock().get(&shard).is_none_or(|outage| now < outage.give_up_at())
    }

    /// Returns the reason if a shard is not worth an attempt.
    pub fn unavailable(&self, shard: ShardId, now: Duration) -> Option<String> {
        let outages = self.outages.lock();
        let outage = outages.get(&shard)?;
        let is_recent = outage.probe.is_some() || now.saturating_sub(outage.last_attempt) <= MAX_VERDICT_AGE;
        (now >= outage.give_up_at() && is_recent).then(|| outage.reason(shard, now))
    }

    /// Returns the message for a query that continues without a shard.
    pub fn reason(&self, shard: ShardId, now: Duration) -> String {
        let outages = self.outages.lock();
        let known = outages.get(&shard).map(|outage| outage.reason(shard, now));
        known.unwrap_or_else(|| format!("shard {shard} has no leader, its latest profiles are left out"))
    }

    /// Records that a query continues without a shard. Returns a permit if no task probes the shard.
    pub fn begin_probe(self: &Arc<Self>, shard: &ShardEntry, now: Duration) -> Option<ProbePermit> {
        let mut outages = self.outages.lock();
        let outage = outages.get_mut(&shard.id)?;
        outage.last_missed = Some((now, shard.clone()));
        if outage.probe.is_some() {
            return None;
        }
        let number = self.next_probe_number.fetch_add(1, Ordering::Relaxed);
        outage.probe = Some(number);
        Some(ProbePermit { outages: Arc::clone(self), shard: shard.id, number })
    }
}

// === impl ProbePermit ===

impl ProbePermit {
    /// Returns the shard with the members to probe next. None ends probing: the outage is over, or no more
    /// queries arrive.
    pub fn next_probe(&self, now: Duration) -> Option<ShardEntry> {
        let outages = self.outages.outages.lock();
        let outage = outages.get(&self.shard).filter(|outage| outage.probe == Some(self.number))?;
        let (missed_at, shard) = outage.last_missed.as_ref()?;
        (now.saturating_sub(*missed_at) <= PROBING_TIME).then(|| shard.clone())
    }
}

impl Drop for ProbePermit {
    fn drop(&mut self) {
        let mut outages = self.outages.outages.lock();
        if let Some(outage) = outages.get_mut(&self.shard).filter(|outage| outage.probe == Some(self.number))
        {
            outage.probe = None;
        }
    }
}

// === impl ShardOutage ===

impl ShardOutage {
    fn new(since: Duration) -> Self {
        Self {
            since,
            last_attempt: since,
            last_error: String::new(),
            unreachable: BTreeMap::new(),
            no_quorum_since: None,
            last_missed: None,
            probe: None,
        }
    }

    fn give_up_at(&self) -> Duration {
        match self.no_quorum_since {
            Some(no_quorum_since) => self.since.min(no_quorum_since) + NO_QUORUM_TIMEOUT,
            None => self.since + LEADERLESS_TIMEOUT,
        }
    }

    fn reason(&self, shard: ShardId, now: Duration) -> String {
        let state = if self.no_quorum_since.is_some() { "no majority of members" } else { "no leader" };
        let since = self.no_quorum_since.unwrap_or(self.since).min(self.since);
        let outage = now.saturating_sub(since);
        format!(
            "shard {shard} has had {state} for {outage:.1?}, its latest profiles are left out: {}",
            self.last_error
        )
    }
}

/// Returns the time since which less than a majority is present. A member is missing from its first failed
/// call, or from its loss in gossip if that was earlier.
fn quorum_lost_since(
    members: &BTreeSet<NodeId>,
    unreachable: &BTreeMap<NodeId, Duration>,
    known: &BTreeMap<NodeId, ClusterMember>,
) -> Option<Duration> {
    let missing_since = |node: &NodeId| {
        let by_gossip = known.get(node).and_then(|member| member.missing_since);
        let by_calls = unreachable.get(node).copied();
        by_gossip.into_iter().chain(by_calls).min()
    };
    let mut missing: Vec<Duration> = members.iter().filter_map(missing_since).collect();
    missing.sort_unstable();
    let majority = members.len() / 2 + 1;
    let tolerated = members.len().checked_sub(majority)?;
    missing.get(tolerated).copied()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use athanor_catalog::ShardPhase;
    use athanor_chassis::Timestamp;
    use athanor_cluster::members::MemberState;

    use super::AttemptFailure::{NotLeader, TimedOut, Unreachable};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn shard_of_three() -> ShardEntry {
        ShardEntry {
            id: 1,
            slot: 0,
            epoch: 1,
            watermark: 0,
            members: BTreeSet::from([1, 2, 3]),
            phase: ShardPhase::Open,
            fenced: 1,
            since: Timestamp::UNIX_EPOCH,
        }
    }

    fn gossip(missing: &[(NodeId, u32)]) -> BTreeMap<NodeId, ClusterMember> {
        let member = |node: NodeId| ClusterMember {
            node,
            name: String::new(),
            zone: String::new(),
            roles: BTreeSet::new(),
            internal: SocketAddr::from(([127, 0, 0, 1], 1)),
            boot: 1,
            state: MemberState::Ready,
            missing_since: missing.iter().find(|(of, _)| *of == node).map(|(_, since)| *since * SECOND),
        };
        [1, 2, 3].into_iter().map(|node| (node, member(node))).collect()
    }

    fn attempt(node: NodeId, failure: AttemptFailure, seconds: u32) -> FailedAttempt<'static> {
        let now = seconds * SECOND;
        FailedAttempt { node, failure, error: "connection refused", begun: now, now }
    }

    #[test]
    fn shard_with_most_members_unreachable_is_given_up_after_the_short_timeout() {
        let (outages, shard, all_alive) = (ShardOutages::default(), shard_of_three(), gossip(&[]));
        outages.record_failure(&shard, attempt(1, Unreachable, 10), &all_alive);
        assert!(outages.is_worth_waiting(1, 19 * SECOND), "two of three may elect a leader");
        outages.record_failure(&shard, attempt(3, Unreachable, 11), &all_alive);
        assert!(outages.is_worth_waiting(1, 11 * SECOND));
        assert_eq!(outages.unavailable(1, 11 * SECOND), None);
        outages.record_failure(&shard, attempt(2, NotLeader, 12), &all_alive);
        assert!(!outages.is_worth_waiting(1, 12 * SECOND));
        let reason = outages.unavailable(1, 12 * SECOND).expect("unavailable");
        assert_eq!(
            reason,
            "shard 1 has had no majority of members for 2.0s, its latest profiles are left out: connection refused"
        );
        outages.record_response(1);
        assert_eq!(outages.unavailable(1, 12 * SECOND), None);
        assert!(outages.is_worth_waiting(1, 12 * SECOND));
    }

    #[test]
    fn outage_begins_with_the_call_to_the_leader_that_cannot_confirm_its_lead() {
        let (outages, shard, all_alive) = (ShardOutages::default(), shard_of_three(), gossip(&[]));
        let rejected = FailedAttempt { begun: 10 * SECOND, ..attempt(1, NotLeader, 12) };
        outages.record_failure(&shard, rejected, &all_alive);
        outages.record_failure(&shard, attempt(2, Unreachable, 12), &all_alive);
        assert!(outages.is_worth_waiting(1, 12 * SECOND), "two of three may elect a leader");
        outages.record_failure(&shard, attempt(3, Unreachable, 12), &all_alive);
        assert!(!outages.is_worth_waiting(1, 12 * SECOND), "two seconds are over");
    }

    #[test]
    fn long_call_that_breaks_begins_an_outage_when_it_breaks() {
        let (outages, shard, all_alive) = (ShardOutages::default(), shard_of_three(), gossip(&[]));
        let broken = FailedAttempt { begun: 8 * SECOND, ..attempt(1, Unreachable, 20) };
        outages.record_failure(&shard, broken, &all_alive);
        assert!(outages.is_worth_waiting(1, 29 * SECOND), "an election may be in progress");
        outages.record_response(1);
        let rejected = FailedAttempt { begun: 30 * SECOND, ..attempt(1, NotLeader, 60) };
        outages.record_failure(&shard, rejected, &all_alive);
        assert!(outages.is_worth_waiting(1, 67 * SECOND), "at most two seconds of the call count");
        assert!(!outages.is_worth_waiting(1, 68 * SECOND));
    }

    #[test]
    fn shard_whose_members_respond_is_waited_for_as_long_as_an_election_may_take() {
        let (outages, shard, all_alive) = (ShardOutages::default(), shard_of_three(), gossip(&[]));
        for second in 0..10 {
            outages.record_failure(&shard, attempt(1 + u64::from(second % 3), NotLeader, second), &all_alive);
            assert!(outages.is_worth_waiting(1, second * SECOND));
        }
        assert!(!outages.is_worth_waiting(1, 10 * SECOND), "all queries waited once, and no longer");
        assert!(
            outages.unavailable(1, 10 * SECOND).is_some_and(|reason| reason.contains("no leader for 10.0s"))
        );
    }

    #[test]
    fn members_that_gossip_has_lost_are_missing_since_then() {
        let (outages, shard) = (ShardOutages::default(), shard_of_three());
        // Gossip alone decides nothing: calls may go through.
        assert!(outages.is_worth_waiting(1, 60 * SECOND));
        outages.record_failure(&shard, attempt(2, Unreachable, 60), &gossip(&[(2, 31), (3, 30)]));
        assert!(!outages.is_worth_waiting(1, 60 * SECOND), "the majority is missing since second 31");
        let single = ShardEntry { members: BTreeSet::from([2]), ..shard_of_three() };
        assert_eq!(quorum_lost_since(&single.members, &BTreeMap::new(), &gossip(&[])), None);
        assert_eq!(
            quorum_lost_since(&single.members, &BTreeMap::new(), &gossip(&[(2, 5)])),
            Some(5 * SECOND)
        );
        assert_eq!(quorum_lost_since(&BTreeSet::new(), &BTreeMap::new(), &gossip(&[])), None);
    }

    #[test]
    fn verdict_without_recent_attempts_allows_attempts_and_no_wait() {
        let (outages, shard) = (Arc::<ShardOutages>::default(), shard_of_three());
        outages.record_failure(&shard, attempt(2, Unreachable, 60), &gossip(&[(2, 31), (3, 30)]));
        assert!(outages.unavailable(1, 61 * SECOND).is_some());
        let permit = outages.begin_probe(&shard, 61 * SECOND).expect("nobody probes");
        assert!(outages.begin_probe(&shard, 62 * SECOND).is_none(), "one probe at a time");
        assert!(outages.unavailable(1, 90 * SECOND).is_some(), "a probe is under way");
        drop(permit);
        assert_eq!(outages.unavailable(1, 90 * SECOND), None);
        assert!(!outages.is_worth_waiting(1, 90 * SECOND), "queries have waited once");
        outages.record_response(1);
        assert!(outages.begin_probe(&shard, 90 * SECOND).is_none(), "there is nothing to probe");
    }

    #[test]
    fn probes_continue_while_queries_miss_the_shard() {
        let (outages, shard) = (Arc::<ShardOutages>::default(), shard_of_three());
        outages.record_failure(&shard, attempt(2, Unreachable, 60), &gossip(&[(2, 31), (3, 30)]));
        let permit = outages.begin_probe(&shard, 61 * SECOND).expect("nobody probes");
        assert_eq!(permit.next_probe(71 * SECOND).as_ref(), Some(&shard));
        assert_eq!(permit.next_probe(72 * SECOND), None, "no query for more than ten seconds");
        let moved = ShardEntry { members: BTreeSet::from([4, 5, 6]), ..shard_of_three() };
        assert!(outages.begin_probe(&moved, 70 * SECOND).is_none(), "a query missed it again");
        assert_eq!(permit.next_probe(80 * SECOND), Some(moved), "its members are others by now");
        outages.record_response(1);
        assert_eq!(permit.next_probe(80 * SECOND), None, "it has a leader");
        outages.record_failure(&shard, attempt(2, Unreachable, 81), &gossip(&[]));
        let second = outages.begin_probe(&shard, 82 * SECOND).expect("another outage");
        assert_eq!(permit.next_probe(82 * SECOND), None, "it is for the outage before");
        drop(permit);
        assert!(outages.begin_probe(&shard, 82 * SECOND).is_none(), "the second permit still holds");
        drop(second);
    }

    #[test]
    fn slow_member_begins_no_outage() {
        let (outages, shard, all_alive) = (ShardOutages::default(), shard_of_three(), gossip(&[]));
        outages.record_failure(&shard, attempt(1, TimedOut, 10), &all_alive);
        assert!(outages.outages.lock().is_empty());
        outages.record_failure(&shard, attempt(1, Unreachable, 10), &all_alive);
        outages.record_failure(&shard, attempt(2, TimedOut, 19), &all_alive);
        assert_eq!(outages.outages.lock()[&1].last_attempt, 19 * SECOND);
        assert_eq!(outages.outages.lock()[&1].no_quorum_since, None);
    }

    #[test]
    fn table_is_bounded_and_drops_the_oldest_attempt() {
        let (outages, all_alive) = (ShardOutages::default(), gossip(&[]));
        for id in 0..=MAX_TRACKED_SHARDS as u32 {
            let shard = ShardEntry { id, ..shard_of_three() };
            outages.record_failure(&shard, attempt(1, Unreachable, id), &all_alive);
        }
        let tracked = outages.outages.lock();
        assert_eq!(tracked.len(), MAX_TRACKED_SHARDS);
        assert!(!tracked.contains_key(&0) && tracked.contains_key(&(MAX_TRACKED_SHARDS as u32)));
    }
}
