//! Who leads, and who is a member: both are changed by the leader.

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

/// What was proposed is waited for so long...
pub(super) const PROPOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// ...and no longer than a majority is silent for so long.
const QUORUM_SILENCE_LIMIT: Duration = Duration::from_millis(1500);
/// Between two looks at that.
const QUORUM_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Who leads, as this member knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaderInfo {
    /// The leader; none while there is an election.
    pub node: Option<u64>,
    /// Of this member's vote.
    pub term: u64,
    /// It is this node.
    pub here: bool,
}

/// Watches who leads.
pub struct LeaderWatch {
    node: u64,
    /// By [`LeaderWatch::changed`], or when the watch began.
    told: LeaderInfo,
    seen: watch::Receiver<RaftServerMetrics<u64, EmptyNode>>,
}

/// Who is in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMembers {
    /// Who votes.
    pub voters: BTreeSet<u64>,
    /// Who is told everything and does not vote.
    pub learners: BTreeSet<u64>,
    /// A change is half done: the voters of before and after decide together until it is finished.
    pub changing: bool,
}

/// Why the lead or the members did not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeadershipError {
    /// Only the leader can do this.
    #[error("this node does not lead the group; {}", match .leader { Some(node) => format!("ask node {node}"), None => "an election is on, try again".to_owned() })]
    NotLeader {
        /// Who leads, where that is known.
        leader: Option<u64>,
    },
    /// Only a voter can lead.
    #[error("node {to} is no voter of the group; its voters are {voters:?}")]
    NoVoter {
        /// Who should have led.
        to: u64,
        /// Who could.
        voters: BTreeSet<u64>,
    },
    /// It did not happen in time, and may yet.
    #[error("{what} within {limit:?}; try again")]
    Late {
        /// What did not.
        what: String,
        /// The time that there was.
        limit: Duration,
    },
    /// The group would have nobody to decide.
    #[error("node {node} is the last voter of the group; add another first")]
    LastVoter {
        /// Who should have left.
        node: u64,
    },
    /// The leader cannot leave.
    #[error("node {node} leads the group; have it hand over the lead first")]
    Leads {
        /// Who should have left.
        node: u64,
    },
    /// Raft refused.
    #[error("the change was refused: {reason}")]
    Refused {
        /// What it said.
        reason: String,
    },
}

/// How often what another member does is looked at.
const TRANSFER_POLL_INTERVAL: Duration = Duration::from_millis(5);

impl<S: StateMachine> RaftGroup<S> {
    /// Who leads, now and whenever that changes.
    pub fn leadership(&self) -> LeaderWatch {
        let node = self.shared.node;
        let seen = self.shared.raft.server_metrics();
        let mut leadership = LeaderWatch { node, told: LeaderInfo::default(), seen };
        leadership.told = leadership.current();
        leadership
    }

    /// Who is in the group, as far as this member knows.
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

    /// How far each other member is known to have the log; of a leader.
    pub fn replication_progress(&self) -> BTreeMap<u64, Option<u64>> {
        let seen = self.shared.raft.data_metrics();
        let seen = seen.borrow();
        let matched = seen.replication.iter().flatten();
        matched.map(|(node, matched)| (*node, matched.map(|id| id.index))).collect()
    }

    /// Has another voter lead; if the election made a third one lead, that is an error. What was proposed before stays; proposals meanwhile are refused for a moment, so it takes
    /// least time where there are none.
    ///
    /// The other stands for election when it has all of the log. This node votes for it, since nobody has led it; with
    /// three voters that is a majority. More of them need another vote, and give none while they hear of a leader: so
    /// this one is silent before.
    pub async fn transfer_leadership(&self, to: u64, limit: Duration) -> Result<(), LeadershipError> {
        self.ensure_leader()?;
        let voters = self.members().voters;
        if to == self.shared.node {
            return Ok(());
        }
        if !voters.contains(&to) {
            return Err(LeadershipError::NoVoter { to, voters });
        }
        let what = || format!("node {to} did not take over the lead");
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
                self.shared.raft.wait(None).metrics(|seen| led(seen).is_some(), "somebody leads").await;
            match seen.ok().as_ref().and_then(led) {
                Some(leader) if leader == to => Ok(()),
                leader => Err(LeadershipError::NotLeader { leader }),
            }
        })
        .await?
    }

    /// Whether this member leads as far as it knows, and has no answer of a majority for so long that another may lead. What
    /// is proposed to it may never be committed, or only when it is reached again.
    pub fn is_partitioned(&self) -> bool {
        if self.members().voters == [self.shared.node].into() {
            return false;
        }
        let seen = self.shared.raft.data_metrics();
        let silent = seen.borrow().millis_since_quorum_ack;
        silent.is_some_and(|millis| Duration::from_millis(millis) > QUORUM_SILENCE_LIMIT)
    }

    /// Returns when what was proposed to this leader was waited for long enough. One that asks nobody need not be waited
    /// for: it commits what its disk takes.
    pub(super) async fn wait_for_quorum_loss(&self) {
        let others = || self.members().voters != [self.shared.node].into();
        let mut waited = Duration::ZERO;
        while !(others() && (self.is_partitioned() || waited >= PROPOSE_TIMEOUT)) {
            sleep(QUORUM_CHECK_INTERVAL).await;
            waited += QUORUM_CHECK_INTERVAL;
        }
    }

    /// Asks another to take over if it has all of the log, and waits a while for that.
    async fn request_takeover(&self, to: u64) {
        let RaftGroupShared { raft, links, silence, log, group, .. } = &*self.shared;
        let Some((last, term)) = log.group_state(*group).last else { return };
        if self.replication_progress().get(&to).copied().flatten() != Some(last) {
            return;
        }
        if let Ok(RaftResponse::More) =
            links.to(to).call(RaftRequest::TakeOver { term, last }, *silence).await
        {
            // A node that hears of no new leader by then goes on leading.
            let node = self.shared.node;
            let other =
                |seen: &RaftMetrics<u64, EmptyNode>| seen.current_leader.is_some_and(|leader| leader != node);
            let _ = raft.wait(Some(*silence)).metrics(other, "another leads").await;
        }
    }

    /// Adds a voter, which gets the log first. The node must have been started to join. Repeating it does no harm.
    pub async fn add_voter(&self, node: u64, limit: Duration) -> Result<(), LeadershipError> {
        self.finish_membership_change(limit).await?;
        if self.members().voters.contains(&node) {
            return Ok(());
        }
        let raft = &self.shared.raft;
        let what = || format!("node {node} was not added to the group");
        with_timeout(limit, what, async {
            raft.add_learner(node, EmptyNode {}, false).await.map_err(|error| to_leadership_error(&error))?;
            // A voter that lacks the log would hold up whoever waits for a majority.
            let last = self.shared.log.group_state(self.shared.group).last.map(|(index, _)| index);
            let has_it = |seen: &RaftMetrics<u64, EmptyNode>| {
                let matched = seen.replication.as_ref().and_then(|all| all.get(&node).copied().flatten());
                // A leader only knows of others.
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

    /// Takes a voter or a learner out of the group. Repeating it does no harm.
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
        let what = || format!("node {node} was not taken out of the group");
        let removed = with_timeout(limit, what, self.shared.raft.change_membership(changes, false)).await?;
        removed.map(drop).map_err(|error| to_leadership_error(&error))
    }

    /// Finishes a change that an earlier leader left half done: the voters decided on then are the voters. Until then
    /// nothing is a majority that is none of those who voted before as well.
    pub async fn finish_membership_change(&self, limit: Duration) -> Result<(), LeadershipError> {
        self.ensure_leader()?;
        let raft = &self.shared.raft;
        let what = || "an earlier change of members was not finished".to_owned();
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
    /// Who leads now.
    pub fn current(&self) -> LeaderInfo {
        let seen = self.seen.borrow();
        let here = seen.state == ServerState::Leader;
        LeaderInfo { node: seen.current_leader, term: seen.vote.leader_id().term, here }
    }

    /// Waits until somebody else leads than was told last; none when the member has ended.
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

    /// This node.
    pub const fn node(&self) -> u64 {
        self.node
    }
}

impl fmt::Debug for LeaderWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.current().fmt(f)
    }
}

/// A leader that sends no heartbeats, until this is dropped.
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
        ))) => LeadershipError::Refused { reason: "another change of the members is under way".to_owned() },
        error => LeadershipError::Refused { reason: error.to_string() },
    }
}
