//! Rebuild of a catalog that lost all its voters, on a node without any catalog data. Its sources are the
//! bucket and the disks of the ingesters [INV-16].

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{RecoveryFindings, ShardId, ShardReport};
use athanor_chassis::{Backoff, ErrorCode, LimitOverrides, Status, TaskGroup, Timestamp};
use athanor_cluster::NodeId;
use athanor_cluster::members::{ClusterMember, MemberState, RoleName};
use athanor_metastore::{
    CATALOG_GROUP, MetastoreRecoveryError, RecoveryParams, RecoveryReport, install_recovered_state,
    recover_catalog,
};

use super::assembly::{self, InternalServices, NodeContext};
use super::{MAX_TASKS, NodeDeps, StartError};
use crate::config::ServerConfig;
use crate::membership::cluster_handle::{ClusterBootstrap, ClusterHandle, MembershipView};
use crate::rpc::ingester_client::IngesterClient;

/// Time for gossip to find the members. The deadline below then limits two waits: for the nodes that the
/// bucket's snapshot names, and for reports of most members of each shard.
const MEMBER_SETTLE_TIME: Duration = Duration::from_secs(10);
const REBUILD_DEADLINE: Duration = Duration::from_secs(60);
/// Delay between two attempts.
const REBUILD_RETRY_BACKOFF: Backoff = Backoff::constant(Duration::from_secs(2)).with_jitter(0.0);

/// Makes this node the only voter of a rebuilt catalog, which serves after the next start. Returns the report
/// for the operator. Nodes in `without` are lost for good, and so is data that only they have.
pub async fn rebuild_catalog(
    config: &ServerConfig,
    system: NodeDeps,
    without: BTreeSet<NodeId>,
) -> Result<String, StartError> {
    let refused = |why: &str| StartError::Rebuild(Status::new(ErrorCode::Conflict, why));
    if !config.target.has(RoleName::Metastore) {
        return Err(refused(
            "target does not include metastore; run the command with the settings of a metastore",
        ));
    }
    let alone = || {
        refused(
            "cluster.seed_nodes is empty; name running nodes, because recovery reads the logs of the ingesters",
        )
    };
    let joining = config.cluster.join_config()?.ok_or_else(alone)?;
    let tasks = TaskGroup::new(system.clock.clone(), MAX_TASKS);
    let entry = ClusterBootstrap::take(joining, Arc::clone(&system.net), &system.clock).await?;
    let (identity, others) =
        assembly::join_cluster(config, &system, &tasks, Some(entry), &InternalServices::default()).await?;
    let others = others.ok_or_else(alone)?;
    let overrides = LimitOverrides::new(config.limits.clone());
    let site = NodeContext { config, system, overrides, tasks, identity, others: Some(&others) };
    let ground = site.open_log().await?.ok_or_else(|| refused("this node has no log"))?;
    let done = if ground.log.groups().contains(&CATALOG_GROUP) {
        Err(refused("this node already has a catalog; start it, or name an empty folder with --data"))
    } else {
        again(&site, &others, &ground, without).await
    };
    let tasks = site.tasks;
    others.leave().await;
    tasks.shutdown(MEMBER_SETTLE_TIME).await;
    ground.log.close();
    done
}

async fn again(
    site: &NodeContext<'_>,
    others: &ClusterHandle,
    ground: &assembly::ConsensusRuntime,
    without: BTreeSet<NodeId>,
) -> Result<String, StartError> {
    let NodeDeps { clock, random, .. } = &site.system;
    clock.sleep(MEMBER_SETTLE_TIME).await;
    let ways = site.routing_handles(None).ways;
    let at = clock.wall();
    let until = clock.monotonic() + REBUILD_DEADLINE;
    // A younger block that is missing may belong to a tenant or tier with a shorter retention. It is reported as lost
    // all the same: that is better than silence about a loss.
    let longest = site.config.retention(site.overrides.clone()).policy().longest();
    let retained_since = longest.map_or(Timestamp::UNIX_EPOCH, |retention| at.minus(retention));
    loop {
        let may_wait = clock.monotonic() < until;
        match voting(others) {
            None => {}
            Some(_) if may_wait => {
                REBUILD_RETRY_BACKOFF.wait(0, clock, random).await;
                continue;
            }
            Some(name) => {
                let message = format!(
                    "metastore {name} already serves a catalog; stop it first if the recovered catalog shall replace it"
                );
                return Err(StartError::Rebuild(Status::new(ErrorCode::Conflict, message)));
            }
        }
        let (reports, unsure) = collect_reports(others, &ways, &without).await;
        if may_wait && !unsure.is_empty() {
            tracing::info!(?unsure, "waiting for reports of most members of these shards");
            REBUILD_RETRY_BACKOFF.wait(0, clock, random).await;
            continue;
        }
        let rebuilding = RecoveryParams {
            store: site.system.store.clone(),
            cluster: site.identity.cluster,
            reports,
            without: without.clone(),
            at,
            retained_since,
        };
        match recover_catalog(rebuilding).await {
            Ok((rebuilt, report)) => {
                install_recovered_state(&ground.consensus, &rebuilt).await?;
                return Ok(told(&report, &unsure));
            }
            Err(MetastoreRecoveryError::MissingReport { .. }) if may_wait => {
                REBUILD_RETRY_BACKOFF.wait(0, clock, random).await
            }
            Err(error) => return Err(StartError::Rebuild(Status::from_error(&error))),
        }
    }
}

/// Returns the name of a voter that serves, if there is one. A voter with an empty folder waits for a catalog
/// and is not ready.
fn voting(others: &ClusterHandle) -> Option<String> {
    let MembershipView { me, members, .. } = others.membership();
    let serves = |member: &&ClusterMember| {
        let votes = member.node != me.node && member.roles.contains(&RoleName::Metastore);
        let has_begun = !matches!(member.state, MemberState::Starting | MemberState::Left);
        votes && member.is_alive() && has_begun
    };
    members.current().values().find(serves).map(|member| member.name.clone())
}

/// Returns the shard reports of all reachable ingesters, and the shards for which no report is surely
/// complete.
async fn collect_reports(
    others: &ClusterHandle,
    ways: &IngesterClient,
    without: &BTreeSet<NodeId>,
) -> (Vec<ShardReport>, BTreeSet<ShardId>) {
    let members = others.membership().members.current();
    let keeps = |member: &&ClusterMember| {
        member.is_alive() && member.roles.contains(&RoleName::Ingester) && !without.contains(&member.node)
    };
    let nodes = members.values().filter(keeps).map(|member| member.node);
    let asked = nodes.map(|node| async move { (node, ways.report_shards(node).await) });
    let mut all = Vec::new();
    let mut sure = BTreeSet::new();
    for (node, told) in futures::future::join_all(asked).await {
        match told {
            Ok((told, whole)) => {
                all.extend(told);
                sure.extend(whole);
            }
            Err(status) => {
                tracing::warn!(node, error = %status, "failed to read the shard report of an ingester")
            }
        }
    }
    let unsure =
        all.iter().map(|told: &ShardReport| told.shard).filter(|shard| !sure.contains(shard)).collect();
    (all, unsure)
}

fn told(report: &RecoveryReport, unsure: &BTreeSet<ShardId>) -> String {
    let RecoveryReport { snapshot, skipped_snapshots, skipped_blocks, findings } = report;
    let mut text = match snapshot {
        Some(index) => format!("recovered from the snapshot at {index} and later changes\n"),
        None => "found no snapshot, recovered from blocks and ingesters\n".to_owned(),
    };
    // Writing to a string cannot fail.
    for (what, all) in [("skipped", skipped_snapshots), ("skipped", skipped_blocks)] {
        all.iter().for_each(|one| {
            let _ = writeln!(text, "{what}: {one}");
        });
    }
    let RecoveryFindings { reinstated, missing, skipped, new_shards, shards_without_log, gaps } = findings;
    let _ = writeln!(
        text,
        "blocks: {} reinstated, {} missing, {} never registered or replaced",
        reinstated.len(),
        missing.len(),
        skipped.len()
    );
    let listed = |shards: &mut dyn Iterator<Item = &ShardId>| {
        shards.map(ShardId::to_string).collect::<Vec<_>>().join(", ")
    };
    for (what, all) in [
        ("shards that the snapshot does not contain", listed(&mut new_shards.iter())),
        (
            "shards without a log on any node, whose unflushed profiles are lost",
            listed(&mut shards_without_log.iter()),
        ),
        (
            "shards without reports of most members, whose last profiles may be lost",
            listed(&mut unsure.iter()),
        ),
    ] {
        if !all.is_empty() {
            let _ = writeln!(text, "{what}: {all}");
        }
    }
    for (shard, from, to) in gaps {
        let _ = writeln!(text, "lost: entries {} to {to} of shard {shard}; responses report it", from + 1);
    }
    text.push_str("start this node now; metastores with empty data folders join it\n");
    text
}
