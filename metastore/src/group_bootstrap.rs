//! Bootstrap of the catalog's raft group.
//!
//! One node bootstraps the group alone and adds the other voters. Two such nodes would create two catalogs
//! for one bucket. A bootstrap record in the bucket names the node that bootstraps the group. It is written
//! once.
//!
//! A bucket may accept a conditional write and ignore the condition, so both of two concurrent writes may
//! succeed. A conditional write alone is therefore no protection. Three rules must fail together before two
//! nodes bootstrap:
//!
//! - A node writes the record only if it sees as many live candidates as voters are wanted and has the
//!   smallest id.
//! - It first reads the bucket and writes only if there is no record.
//! - It waits for [`RECORD_CONFIRM_DELAY`] and obeys the record that it then reads, not the one that it
//!   wrote.
//!
//! If a second write overwrites the first within the delay, both nodes read the second record. A later write
//! can only come from a node that missed a record which had existed for long.
//!
//! A node that has lost its disk gets a new id, finds the record of its old id and joins. It must not
//! bootstrap a second time, because other voters may still hold the catalog.

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

/// Valid values for the number of wanted voters.
pub const VALID_VOTER_COUNTS: [u16; 3] = [1, 3, 5];
/// Pause between writing the record and reading it, longer than another node's write may be in flight.
const RECORD_CONFIRM_DELAY: Duration = Duration::from_secs(5);
/// Interval between checks of the bucket and the membership.
const BOOTSTRAP_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between log messages about the reason for the wait.
const BOOTSTRAP_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Format of the record. Other formats are rejected.
const BOOTSTRAP_RECORD_FORMAT: u32 = 1;

/// Dependencies of the bootstrap decision.
#[derive(Clone)]
pub struct BootstrapDeps {
    /// Bucket with the bootstrap record.
    pub store: Store,
    /// Membership of the cluster by gossip.
    pub members: ClusterMembers,
    /// Id of this node.
    pub node: NodeId,
    /// Id of the cluster.
    pub cluster: u128,
    /// Number of wanted voters: 1, 3 or 5.
    pub wanted: u16,
    /// Clock for pauses and intervals.
    pub clock: Clock,
}

/// Reason why the bootstrap cannot be decided.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each says what it is by its message")]
pub enum BootstrapError {
    #[error("the number of metastore voters is {seen}; must be 1, 3 or 5")]
    Wanted { seen: u16 },
    #[error(
        "the bucket holds the catalog of cluster {theirs}, this node belongs to cluster {ours}; configure another bucket, or \
         the same cluster.id"
    )]
    Foreign { theirs: String, ours: String },
    #[error("bootstrap record {key} in the bucket is unreadable: {cause}; restore the object")]
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

/// Bootstrap record in the bucket.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BootstrapRecord {
    format: u32,
    /// Cluster id as 32 hexadecimal digits.
    cluster: String,
    /// Id of the node that bootstraps the group, as 16 hexadecimal digits.
    bootstrap_node: String,
}

/// Result of reading the bootstrap record.
enum BucketRecordState {
    Absent,
    BootstrapNode(NodeId),
    /// The bucket is unavailable now.
    Unavailable(StoreError),
}

/// Returns the bootstrap mode of the catalog's group on this node. Waits until the node's log or the bucket
/// decides it.
pub async fn decide_bootstrap(log: &Log, deciding: &BootstrapDeps) -> Result<GroupBootstrap, BootstrapError> {
    let BootstrapDeps { wanted, clock, .. } = deciding;
    if !VALID_VOTER_COUNTS.contains(wanted) {
        return Err(BootstrapError::Wanted { seen: *wanted });
    }
    // The log contains the voters, so the bucket need not be available.
    if log.group_state(CATALOG_GROUP).last.is_some() {
        return Ok(GroupBootstrap::Kept);
    }
    let mut logged = None;
    loop {
        let why = match deciding.read_record().await? {
            BucketRecordState::BootstrapNode(node) => return Ok(deciding.bootstrap_mode(node)),
            BucketRecordState::Unavailable(error) => format!("the bucket with the bootstrap record: {error}"),
            BucketRecordState::Absent => match deciding.check_may_bootstrap().await {
                Err(why) => why,
                Ok(()) => match deciding.write_record().await {
                    // The record that is read after the delay decides, whichever node wrote it.
                    Ok(()) | Err(StoreError::Exists { .. }) => {
                        clock.sleep(RECORD_CONFIRM_DELAY).await;
                        continue;
                    }
                    Err(error) => format!("the bucket, to write the bootstrap record: {error}"),
                },
            },
        };
        let now = clock.monotonic();
        if logged.is_none_or(|logged| now >= logged + BOOTSTRAP_LOG_INTERVAL) {
            tracing::info!("catalog bootstrap is waiting for {why}");
            logged = Some(now);
        }
        clock.sleep(BOOTSTRAP_POLL_INTERVAL).await;
    }
}

impl BootstrapDeps {
    fn cluster_hex(&self) -> String {
        format!("{:032x}", self.cluster)
    }

    async fn read_record(&self) -> Result<BucketRecordState, BootstrapError> {
        let bytes = match self.store.get(&ObjectKey::CatalogBootstrap).await {
            Ok(bytes) => bytes,
            Err(StoreError::NotFound { .. }) => return Ok(BucketRecordState::Absent),
            Err(error) => return Ok(BucketRecordState::Unavailable(error)),
        };
        let unreadable = |cause: String| BootstrapError::Unreadable {
            key: ObjectKey::CatalogBootstrap.to_string(),
            cause,
        };
        let record: BootstrapRecord =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        if record.format != BOOTSTRAP_RECORD_FORMAT {
            let cause = format!(
                "it has format {}, this version reads format {BOOTSTRAP_RECORD_FORMAT}",
                record.format
            );
            return Err(unreadable(cause));
        }
        if record.cluster != self.cluster_hex() {
            return Err(BootstrapError::Foreign { theirs: record.cluster, ours: self.cluster_hex() });
        }
        let node =
            u64::from_str_radix(&record.bootstrap_node, 16).map_err(|error| unreadable(error.to_string()))?;
        Ok(BucketRecordState::BootstrapNode(node))
    }

    fn bootstrap_mode(&self, bootstrap_node: NodeId) -> GroupBootstrap {
        if bootstrap_node == self.node {
            GroupBootstrap::single_voter(self.node)
        } else {
            GroupBootstrap::Joining
        }
    }

    /// Checks that this node may write the record. The error names the condition that is awaited.
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
            return Err(format!("{wanted} nodes with the role metastore, {seen} are alive"));
        }
        if let Some(first) = nodes.first().filter(|first| **first != self.node) {
            return Err(format!("node {first}, which bootstraps the group"));
        }
        // Bootstrapping would hide the snapshots of a catalog that lost its voters.
        match self.store.list(&KeyPrefix::Snapshots, None, 1).await {
            Ok(found) if found.is_empty() => Ok(()),
            Ok(_) => Err(
                "an existing voter: the bucket holds catalog snapshots but no bootstrap record; start a voter \
                          with its data folder, or recover the catalog from the bucket"
                    .to_owned(),
            ),
            Err(error) => Err(format!("the bucket, which may hold catalog snapshots: {error}")),
        }
    }

    async fn write_record(&self) -> Result<(), StoreError> {
        let cluster = self.cluster_hex();
        let bootstrap_node = format!("{:016x}", self.node);
        let record = BootstrapRecord { format: BOOTSTRAP_RECORD_FORMAT, cluster, bootstrap_node };
        let bytes = serde_json::to_vec(&record).expect("all keys are texts");
        self.store.create(&ObjectKey::CatalogBootstrap, bytes.into()).await
    }

    /// Writes the record if there is none, because the catalog of a single node lacks it. Returns whether there
    /// is a record now.
    pub(crate) async fn ensure_record(&self) -> bool {
        match self.read_record().await {
            Ok(BucketRecordState::BootstrapNode(_)) => true,
            Ok(BucketRecordState::Absent) => match self.write_record().await {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(%error, "failed to write the bootstrap record, will retry");
                    false
                }
            },
            Ok(BucketRecordState::Unavailable(_)) => false,
            Err(error) => {
                tracing::error!(%error, "bootstrap record belongs to another cluster or is unreadable");
                true
            }
        }
    }
}
