//! Who founds the catalogue's group.
//!
//! One node founds it alone, and takes the others in; were there two founders, there would be two catalogues for one
//! bucket. The bucket's note of who founded it decides, and is written once. A bucket may accept a condition and ignore
//! it, so that of two who write the note both may succeed, and nothing may be built on that alone. What makes it safe is
//! that three things must go wrong together: only the node with the smallest number of at least as many as shall vote,
//! which see each other alive, writes at all; it looks whether there is a note first; and it goes by what it reads
//! after a pause, not by what it wrote. So a second note that overwrites the first one in the pause is what both read,
//! and one that comes later comes from somebody who did not see a note that was there for long.
//!
//! A founder that has lost its disk has another number, finds the note of the one that it was, and joins: it must not
//! found again what others may still have.

use std::time::Duration;

use athanor_chassis::{Clock, ErrorCode, ErrorCodeExt};
use athanor_cluster::NodeId;
use athanor_cluster::members::{ClusterMembers, MemberState, RoleName};
use athanor_consensus::Log;
use athanor_consensus::replicated::GroupBootstrap;
use athanor_storage::path::{KeyPrefix, ObjectKey};
use athanor_storage::{Store, StoreError};
use serde::{Deserialize, Serialize};

use crate::CATALOG_GROUP;

/// How many may vote, of those that are wanted.
pub const VALID_VOTER_COUNTS: [u16; 3] = [1, 3, 5];
/// From writing the note to reading it again: longer than another one's note may be on its way.
const RECORD_CONFIRM_DELAY: Duration = Duration::from_secs(5);
/// Between looks.
const BOOTSTRAP_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often is told what is waited for.
const BOOTSTRAP_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// How notes are written so far.
const BOOTSTRAP_RECORD_FORMAT: u32 = 1;

/// What deciding takes.
#[derive(Clone)]
pub struct BootstrapDeps {
    /// Has the note.
    pub store: Store,
    /// Who is here.
    pub members: ClusterMembers,
    /// This node.
    pub node: NodeId,
    /// The cluster's id.
    pub cluster: u128,
    /// How many shall vote: 1, 3 or 5.
    pub wanted: u16,
    /// Time.
    pub clock: Clock,
}

/// Why it cannot be decided.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each says what it is by its message")]
pub enum BootstrapError {
    #[error("{seen} nodes shall vote in the catalogue; 1, 3 or 5 can")]
    Wanted { seen: u16 },
    #[error(
        "the bucket holds the catalogue of cluster {theirs}, this node is of cluster {ours}; configure another bucket, \
         or cluster.id as there"
    )]
    Foreign { theirs: String, ours: String },
    #[error(
        "{key} in the bucket cannot be read: {cause}; it says who founded the catalogue, so put it back as it was"
    )]
    Unreadable { key: String, cause: String },
}

impl ErrorCodeExt for BootstrapError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Wanted { .. } => ErrorCode::Invalid,
            Self::Foreign { .. } => ErrorCode::Conflict,
            Self::Unreadable { .. } => ErrorCode::DataLoss,
        }
    }
}

/// The note in the bucket.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BootstrapRecord {
    format: u32,
    /// 32 hexadecimal digits.
    cluster: String,
    /// 16 of them.
    founder: String,
}

/// What the bucket says.
enum BucketRecordState {
    Nothing,
    Founder(NodeId),
    /// It cannot be asked now.
    Silence(StoreError),
}

/// How the catalogue's group begins on this node. Waits until that is decided: by the node's log, or by the bucket.
pub async fn decide_bootstrap(log: &Log, deciding: &BootstrapDeps) -> Result<GroupBootstrap, BootstrapError> {
    let BootstrapDeps { wanted, clock, .. } = deciding;
    if !VALID_VOTER_COUNTS.contains(wanted) {
        return Err(BootstrapError::Wanted { seen: *wanted });
    }
    // Its log says who votes; the bucket may be away.
    if log.group_state(CATALOG_GROUP).last.is_some() {
        return Ok(GroupBootstrap::Kept);
    }
    let mut told = None;
    loop {
        let why = match deciding.read_record().await? {
            BucketRecordState::Founder(founder) => return Ok(deciding.bootstrap_mode(founder)),
            BucketRecordState::Silence(error) => format!("the bucket, which says who founded it: {error}"),
            BucketRecordState::Nothing => match deciding.check_may_bootstrap().await {
                Err(why) => why,
                Ok(()) => match deciding.write_record().await {
                    // Whoever wrote it: what counts is what is read.
                    Ok(()) | Err(StoreError::Exists { .. }) => {
                        clock.sleep(RECORD_CONFIRM_DELAY).await;
                        continue;
                    }
                    Err(error) => format!("the bucket, to note in it that this node founds it: {error}"),
                },
            },
        };
        let now = clock.monotonic();
        if told.is_none_or(|told| now >= told + BOOTSTRAP_LOG_INTERVAL) {
            tracing::info!("the catalogue waits for {why}");
            told = Some(now);
        }
        clock.sleep(BOOTSTRAP_POLL_INTERVAL).await;
    }
}

impl BootstrapDeps {
    fn cluster_hex(&self) -> String {
        format!("{:032x}", self.cluster)
    }

    async fn read_record(&self) -> Result<BucketRecordState, BootstrapError> {
        let bytes = match self.store.get(&ObjectKey::Founding).await {
            Ok(bytes) => bytes,
            Err(StoreError::NotFound { .. }) => return Ok(BucketRecordState::Nothing),
            Err(error) => return Ok(BucketRecordState::Silence(error)),
        };
        let unreadable =
            |cause: String| BootstrapError::Unreadable { key: ObjectKey::Founding.to_string(), cause };
        let note: BootstrapRecord =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        if note.format > BOOTSTRAP_RECORD_FORMAT {
            let cause = format!(
                "it is written in format {}, this version reads {BOOTSTRAP_RECORD_FORMAT}",
                note.format
            );
            return Err(unreadable(cause));
        }
        if note.cluster != self.cluster_hex() {
            return Err(BootstrapError::Foreign { theirs: note.cluster, ours: self.cluster_hex() });
        }
        let founder =
            u64::from_str_radix(&note.founder, 16).map_err(|error| unreadable(error.to_string()))?;
        Ok(BucketRecordState::Founder(founder))
    }

    fn bootstrap_mode(&self, founder: NodeId) -> GroupBootstrap {
        if founder == self.node { GroupBootstrap::single_voter(self.node) } else { GroupBootstrap::Joining }
    }

    /// Whether this node is the one to write the note; if not, what is waited for.
    async fn check_may_bootstrap(&self) -> Result<(), String> {
        let members = self.members.current();
        let votes = members.values().filter(|member| {
            member.is_alive()
                && member.roles.contains(&RoleName::Metastore)
                && !matches!(member.state, MemberState::Draining | MemberState::Left)
        });
        let mut nodes: std::collections::BTreeSet<NodeId> = votes.map(|member| member.node).collect();
        nodes.insert(self.node);
        let seen = nodes.len();
        let wanted = self.wanted;
        if seen < usize::from(wanted) {
            return Err(format!("{wanted} nodes with the role metastore; there are {seen}"));
        }
        if let Some(first) = nodes.first().filter(|first| **first != self.node) {
            return Err(format!("node {first}, which is to found it"));
        }
        // A catalogue that lost its voters is not founded anew: what the bucket holds of it would be hidden.
        match self.store.list(&KeyPrefix::Snapshots, None, 1).await {
            Ok(found) if found.is_empty() => Ok(()),
            Ok(_) => Err(
                "a node that has it: the bucket holds snapshots of a catalogue and no note of who founded \
                          it; start a voter that has its folder, or rebuild the catalogue from the bucket"
                    .to_owned(),
            ),
            Err(error) => Err(format!("the bucket, which may hold an earlier one: {error}")),
        }
    }

    async fn write_record(&self) -> Result<(), StoreError> {
        let founder = format!("{:016x}", self.node);
        let note = BootstrapRecord { format: BOOTSTRAP_RECORD_FORMAT, cluster: self.cluster_hex(), founder };
        let bytes = serde_json::to_vec(&note).expect("all keys are texts");
        self.store.create(&ObjectKey::Founding, bytes.into()).await
    }

    /// Notes that there is a catalogue, if nobody has: one that was founded before there were notes, or by a node that
    /// was alone. True: there is a note.
    pub(crate) async fn ensure_record(&self) -> bool {
        match self.read_record().await {
            Ok(BucketRecordState::Founder(_)) => true,
            Ok(BucketRecordState::Nothing) => match self.write_record().await {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(%error, "it is not noted in the bucket that there is a catalogue");
                    false
                }
            },
            Ok(BucketRecordState::Silence(_)) => false,
            Err(error) => {
                tracing::error!(%error, "the bucket is another catalogue's");
                true
            }
        }
    }
}
