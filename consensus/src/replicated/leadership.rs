//! Leadership and membership of a group. The leader changes both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use openraft::error::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::metrics::RaftServerMetrics;
use openraft::{ChangeMembers, EmptyNode, RaftMetrics, ServerState};
use tokio::sync::watch;

use super::codec::{RaftRequest, RaftResponse};
use super::type_config::RaftHandle;
use super::{RaftGroup, RaftGroupShared, StateMachine};

/// Limit of the wait for the result of a proposal.
pub(super) const PROPOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without a response from a majority after which the wait ends earlier.
const QUORUM_SILENCE_LIMIT: Duration = Duration::from_millis(1500);
/// Interval between checks of the quorum.
const QUORUM_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Leadership as this member knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaderInfo {
    /// Node id of the leader, absent during an election.
    pub node: Option<u64>,
    /// Term of this member's vote.
    pub term: u64,
    /// True if this node leads.
    pub here: bool,
}

/// Watch of leadership changes.
pub struct LeaderWatch {
    node: u64,
    /// Last value that [`LeaderWatch::changed`] returned, or the value when the watch began.
    told: LeaderInfo,
    seen: watch::Receiver<RaftServerMetrics<u64, EmptyNode>>,
}

/// Members of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMembers {
    /// Members that vote.
    pub voters: BTreeSet<u64>,
    /// Members that receive all entries and do not vote.
    pub learners: BTreeSet<u64>,
    /// True while a change is in progress. Until it is finished, the old and the new voters decide together.
    pub changing: bool,
}

/// Reason why leadership or membership did not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeadershipError {
    /// Only the leader can make the change.
    #[error("this node does not lead the group; {}", match .leader { Some(node) => format!("retry on node {node}"), None => "election in progress, retry".to_owned() })]
    NotLeader {
        /// Current leader, if known.
        leader: Option<u64>,
    },
    /// Only a voter can lead the group.
    #[error("node {to} is not a voter of the group; the voters are {voters:?}")]
    NoVoter {
        /// Node that should have become leader.
        to: u64,
        /// Voters of the group.
        voters: BTreeSet<u64>,
    },
    /// The change timed out, and may still happen.
    #[error("{what} within {limit:?}; retry")]
    Late {
        /// Description of the change.
        what: String,
        /// Limit of the wait.
        limit: Duration,
    },
    /// The removal would leave the group without voters.
    #[error("node {node} is the last voter of the group; add another voter first")]
    LastVoter {
        /// Node that should have been removed.
        node: u64,
    },
    /// The leader cannot remove itself.
    #[error("node {node} leads the group; transfer leadership first")]
    Leads {
        /// Node that should have been removed.
        node: u64,
    },
    /// Raft refused the change.
    #[error("the change was rejected: {reason}")]
    Refused {
        /// Error message of raft.
        reason: String,
    },
}

/// Interval between checks of another member's progress.
const TRANSFER_POLL_INTERVAL: Duration = Duration::from_millis(5);

impl<S: StateMachine> RaftGroup<S> {
    /// Returns a watch that starts with the current leadership.
    pub fn leadership(&self) -> LeaderWatch {
        let node = self.shared.node;
        let seen = self.shared.raft.server_metrics();
        let mut leadership = LeaderWatch { node, told: LeaderInfo::default(), seen };
        leadership.told = leadership.current();
        leadership
    }

    /// Returns the members of the group, as far as this member knows.
    pub fn members(&self) -> GroupMembers {
        let seen = self.shared.raft.server_metrics();
        let seen = seen.borrow();
        let membership = seen.membership_config.membership();
        GroupMembers {
            voters: membership.voter_ids().collect(),
            learners: membership.learner_ids().collect(),
            changing: membership.get_joint_config().len() > 1,
        }
    }

    /// Returns the last replicated index of each other member. Only a leader has these values.
    pub fn replication_progress(&self) -> BTreeMap<u64, Option<u64>> {
        let seen = self.shared.raft.data_metrics();
        let seen = seen.borrow();
        let matched = seen.replication.iter().flatten();
        matched.map(|(node, matched)| (*node, matched.map(|id| id.index))).collect()
    }

    /// Transfers leadership to another voter. Returns an error if the election made a third member lead.
    /// Earlier proposals stay. Proposals during the transfer are refused for a short time, so it is fastest
    /// without load.
    ///
    /// The target stands for election when it has the whole log. This node votes for it, because it follows
    /// no other leader. With three voters these two are a majority. With more voters a further vote is
    /// necessary, and members refuse it while they receive heartbeats. So this node pauses its heartbeats
    /// first.
    pub async fn transfer_leadership(&self, to: u64, limit: Duration) -> Result<(), LeadershipError> {
        self.ensure_leader()?;
        let voters = self.members().voters;
        if to == self.shared.node {
            return Ok(());
        }
        if !voters.contains(&to) {
            return Err(LeadershipError::NoVoter { to, voters });
        }
        let what = || format!("node {to} did not take over leadership");
        with_timeout(limit, what, async {
            let silent = voters.len() > 3;
            let _silence = silent.then(|| HeartbeatPause::begin(&self.shared.raft));
            if silent {
                sleep(self.shared.silence).await;
            }
            while self.ensure_leader().is_ok() {
                self.request_takeover(to).await;
                sleep(TRANSFER_POLL_INTERVAL).await;
            }
            let led = |seen: &RaftMetrics<u64, EmptyNode>| {
                seen.current_leader.filter(|_| seen.state != ServerState::Candidate)
            };
            let seen =
                self.shared.raft.wait(None).metrics(|seen| led(seen).is_some(), "a leader is elected").await;
            match seen.ok().as_ref().and_then(led) {
                Some(leader) if leader == to => Ok(()),
                leader => Err(LeadershipError::NotLeader { leader }),
            }
        })
        .await?
    }

    /// Returns whether this member leads as far as it knows, but a majority is silent for so long that
    /// another may lead. Proposals to it may never be committed, or only when the majority is reachable.
    pub fn is_partitioned(&self) -> bool {
        if self.members().voters == [self.shared.node].into() {
            return false;
        }
        let seen = self.shared.raft.data_metrics();
        let silent = seen.borrow().millis_since_quorum_ack;
        silent.is_some_and(|millis| Duration::from_millis(millis) > QUORUM_SILENCE_LIMIT)
    }

    /// Returns when the wait for a proposal's result should end. A single voter never times out here: it
    /// commits as soon as its disk accepts the entry.
    pub(super) async fn wait_for_quorum_loss(&self) {
        let others = || self.members().voters != [self.shared.node].into();
        let mut waited = Duration::ZERO;
        while !(others() && (self.is_partitioned() || waited >= PROPOSE_TIMEOUT)) {
            sleep(QUORUM_CHECK_INTERVAL).await;
            waited += QUORUM_CHECK_INTERVAL;
        }
    }

    /// Requests that another member takes over if it has the whole log, and waits for the change for a
    /// limited time.
    async fn request_takeover(&self, to: u64) {
        let RaftGroupShared { raft, links, silence, log, group, .. } = &*self.shared;
        let Some((last, term)) = log.group_state(*group).last else { return };
        if self.replication_progress().get(&to).copied().flatten() != Some(last) {
            return;
        }
        if let Ok(RaftResponse::More) =
            links.to(to).call(RaftRequest::TakeOver { term, last }, *silence).await
        {
            // If no new leader appears in that time, this node continues to lead.
            let node = self.shared.node;
            let other =
                |seen: &RaftMetrics<u64, EmptyNode>| seen.current_leader.is_some_and(|leader| leader != node);
            let _ = raft.wait(Some(*silence)).metrics(other, "another node leads").await;
        }
    }

    /// Adds a voter, which receives the log first. The node must have been started to join. A retry does no
    /// harm.
    pub async fn add_voter(&self, node: u64, limit: Duration) -> Result<(), LeadershipError> {
        self.finish_membership_change(limit).await?;
        if self.members().voters.contains(&node) {
            return Ok(());
        }
        let raft = &self.shared.raft;
        let what = || format!("node {node} was not added to the group");
        with_timeout(limit, what, async {
            raft.add_learner(node, EmptyNode {}, false).await.map_err(|error| to_leadership_error(&error))?;
            // A voter without the log would delay every majority.
            let last = self.shared.log.group_state(self.shared.group).last.map(|(index, _)| index);
            let has_it = |seen: &RaftMetrics<u64, EmptyNode>| {
                let matched = seen.replication.as_ref().and_then(|all| all.get(&node).copied().flatten());
                // Only a leader knows the progress of others.
                seen.replication.is_none() || matched.map(|id| id.index) >= last
            };
            let seen = raft.wait(Some(limit)).metrics(has_it, "a new voter has the log").await;
            seen.map_err(|_| LeadershipError::Late { what: what(), limit })?;
            self.ensure_leader()?;
            let added = raft.change_membership(ChangeMembers::AddVoterIds([node].into()), false).await;
            added.map(drop).map_err(|error| to_leadership_error(&error))
        })
        .await?
    }

    /// Removes a voter or a learner from the group. A retry does no harm.
    pub async fn remove_voter(&self, node: u64, limit: Duration) -> Result<(), LeadershipError> {
        self.finish_membership_change(limit).await?;
        let members = self.members();
        if members.voters == [node].into() {
            return Err(LeadershipError::LastVoter { node });
        }
        if node == self.shared.node {
            return Err(LeadershipError::Leads { node });
        }
        let changes = match (members.voters.contains(&node), members.learners.contains(&node)) {
            (true, _) => ChangeMembers::RemoveVoters([node].into()),
            (false, true) => ChangeMembers::RemoveNodes([node].into()),
            (false, false) => return Ok(()),
        };
        let what = || format!("node {node} was not removed from the group");
        let removed = with_timeout(limit, what, self.shared.raft.change_membership(changes, false)).await?;
        removed.map(drop).map_err(|error| to_leadership_error(&error))
    }

    /// Finishes a membership change that an earlier leader left incomplete, with the voters of that change.
    /// Until then a commit also needs a majority of the earlier voters.
    pub async fn finish_membership_change(&self, limit: Duration) -> Result<(), LeadershipError> {
        self.ensure_leader()?;
        let raft = &self.shared.raft;
        let what = || "an earlier membership change was not finished".to_owned();
        let last = {
            let seen = raft.server_metrics();
            let seen = seen.borrow();
            let configs = seen.membership_config.membership().get_joint_config();
            configs.last().filter(|_| configs.len() > 1).cloned()
        };
        let Some(last) = last else { return Ok(()) };
        let finished =
            with_timeout(limit, what, raft.change_membership(ChangeMembers::ReplaceAllVoters(last), false));
        finished.await?.map(drop).map_err(|error| to_leadership_error(&error))
    }

    fn ensure_leader(&self) -> Result<(), LeadershipError> {
        let leader = self.leadership().current();
        if leader.here { Ok(()) } else { Err(LeadershipError::NotLeader { leader: leader.node }) }
    }
}

impl LeaderWatch {
    /// Returns the current leadership.
    pub fn current(&self) -> LeaderInfo {
        let seen = self.seen.borrow();
        let here = seen.state == ServerState::Leader;
        LeaderInfo { node: seen.current_leader, term: seen.vote.leader_id().term, here }
    }

    /// Waits until the leadership differs from the last returned value. Returns `None` when the member has
    /// ended.
    pub async fn changed(&mut self) -> Option<LeaderInfo> {
        loop {
            let now = self.current();
            if now != self.told {
                self.told = now;
                return Some(now);
            }
            self.seen.changed().await.ok()?;
        }
    }

    /// Returns the id of this node.
    pub const fn node(&self) -> u64 {
        self.node
    }
}

impl fmt::Debug for LeaderWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.current().fmt(f)
    }
}

/// Guard that pauses the heartbeats of a leader until it is dropped.
struct HeartbeatPause<'a>(&'a RaftHandle);

impl<'a> HeartbeatPause<'a> {
    fn begin(raft: &'a RaftHandle) -> Self {
        raft.runtime_config().heartbeat(false);
        Self(raft)
    }
}

impl Drop for HeartbeatPause<'_> {
    fn drop(&mut self) {
        self.0.runtime_config().heartbeat(true);
    }
}

#[expect(clippy::disallowed_methods, reason = "on raft's time, as elections are")]
async fn with_timeout<R>(
    limit: Duration,
    what: impl FnOnce() -> String,
    change: impl Future<Output = R>,
) -> Result<R, LeadershipError> {
    tokio::time::timeout(limit, change).await.map_err(|_| LeadershipError::Late { what: what(), limit })
}

#[expect(clippy::disallowed_methods, reason = "on raft's time, as elections are")]
pub(super) async fn sleep(span: Duration) {
    tokio::time::sleep(span).await;
}

fn to_leadership_error(error: &RaftError<u64, ClientWriteError<u64, EmptyNode>>) -> LeadershipError {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
            LeadershipError::NotLeader { leader: forward.leader_id }
        }
        RaftError::APIError(ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(
            _,
        ))) => LeadershipError::Refused { reason: "another membership change is in progress".to_owned() },
        error => LeadershipError::Refused { reason: error.to_string() },
    }
}
