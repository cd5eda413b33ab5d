//! A catalogue that lost all its voters is put together again, on a node that has nothing of it: from what lies in the
//! bucket and what ingesters say of their disks [INV-16].

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{Described, Findings, ShardId};
use athanor_chassis::{Code, Overrides, Status, Tasks, Timestamp};
use athanor_cluster::NodeId;
use athanor_cluster::members::{Member, MemberState, RoleName};
use athanor_metastore::{GROUP, RebuildFailed, Rebuilding, Report, begin_again, rebuild};

use super::build::{self, Offered, Site};
use super::{StartError, System, TASKS};
use crate::config::Config;
use crate::others::{Company, Entry, Others};
use crate::ways::Ways;

/// How long others have to be seen, and then those that the bucket's snapshot names; and until most members of each shard
/// have said how much is stored.
const SEEN: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);
/// Between tries.
const PAUSE: Duration = Duration::from_secs(2);

/// Makes this node the catalogue's only voter, with what could be found; it serves when it is started after that. Gives
/// what people should know. Nodes in `without` are gone for good: what only they have is given up.
pub async fn rebuild_catalogue(
    config: &Config,
    system: System,
    without: BTreeSet<NodeId>,
) -> Result<String, StartError> {
    let refused = |why: &str| StartError::Rebuild(Status::new(Code::Conflict, why));
    if !config.target.has(RoleName::Metastore) {
        return Err(refused("target does not say metastore: a node that votes has the catalogue"));
    }
    let alone = || refused("cluster.seeds names nobody: ingesters have to be asked what is on their disks");
    let joining = config.cluster.joining()?.ok_or_else(alone)?;
    let tasks = Tasks::new(system.clock.clone(), TASKS);
    let entry = Entry::take(joining, Arc::clone(&system.net), &system.clock).await?;
    let (identity, others) = build::begin(config, &system, &tasks, Some(entry), &Offered::default()).await?;
    let others = others.ok_or_else(alone)?;
    let overrides = Overrides::new(config.limits.clone());
    let site = Site { config, system, overrides, tasks, identity, others: Some(&others) };
    let ground = site.ground().await?.ok_or_else(|| refused("this node keeps no log"))?;
    let done = if ground.log.groups().contains(&GROUP) {
        Err(refused("this node has a catalogue already: start it, or name an empty folder with --data"))
    } else {
        again(&site, &others, &ground, without).await
    };
    let tasks = site.tasks;
    others.leave().await;
    tasks.shutdown(SEEN).await;
    ground.log.close();
    done
}

async fn again(
    site: &Site<'_>,
    others: &Others,
    ground: &build::Ground,
    without: BTreeSet<NodeId>,
) -> Result<String, StartError> {
    let clock = &site.system.clock;
    clock.sleep(SEEN).await;
    let ways = site.reaching(None).ways;
    let (at, until) = (clock.wall(), clock.monotonic() + PATIENCE);
    let retention = site.config.retention;
    let kept_from = if retention.is_zero() { Timestamp::EPOCH } else { at.minus(retention) };
    loop {
        let may_wait = clock.monotonic() < until;
        match voting(others) {
            None => {}
            Some(_) if may_wait => {
                clock.sleep(PAUSE).await;
                continue;
            }
            Some(name) => {
                let message = format!(
                    "metastore {name} has a catalogue and serves it: what is rebuilt would be a second one; stop it first \
                     if its folder is to be given up"
                );
                return Err(StartError::Rebuild(Status::new(Code::Conflict, message)));
            }
        }
        let (described, unsure) = described(others, &ways, &without).await;
        if may_wait && !unsure.is_empty() {
            tracing::info!(?unsure, "most members of these shards have not said yet how much is stored");
            clock.sleep(PAUSE).await;
            continue;
        }
        let rebuilding = Rebuilding {
            store: site.system.store.clone(),
            cluster: site.identity.cluster,
            described,
            without: without.clone(),
            at,
            kept_from,
        };
        match rebuild(rebuilding).await {
            Ok((rebuilt, report)) => {
                begin_again(&ground.consensus, &rebuilt).await?;
                return Ok(told(&report, &unsure));
            }
            Err(RebuildFailed::Silent { .. }) if may_wait => clock.sleep(PAUSE).await,
            Err(error) => return Err(StartError::Rebuild(Status::of(&error))),
        }
    }
}

/// A voter that serves, if there is one. Who has an empty folder waits for a catalogue and is not ready.
fn voting(others: &Others) -> Option<String> {
    let Company { me, members, .. } = others.company();
    let serves = |member: &&Member| {
        let votes = member.node != me.node && member.roles.contains(&RoleName::Metastore);
        let has_begun = !matches!(member.state, MemberState::Starting | MemberState::Left);
        votes && member.is_alive() && has_begun
    };
    members.now().values().find(serves).map(|member| member.name.clone())
}

/// What all ingesters that are seen say of their disks, and the shards of which none of them is sure to have all that was
/// stored.
async fn described(
    others: &Others,
    ways: &Ways,
    without: &BTreeSet<NodeId>,
) -> (Vec<Described>, BTreeSet<ShardId>) {
    let members = others.company().members.now();
    let keeps = |member: &&Member| {
        member.is_alive() && member.roles.contains(&RoleName::Ingester) && !without.contains(&member.node)
    };
    let nodes = members.values().filter(keeps).map(|member| member.node);
    let asked = nodes.map(|node| async move { (node, ways.describe(node).await) });
    let (mut all, mut sure) = (Vec::new(), BTreeSet::new());
    for (node, told) in futures::future::join_all(asked).await {
        match told {
            Ok((told, whole)) => {
                all.extend(told);
                sure.extend(whole);
            }
            Err(status) => {
                tracing::warn!(node, error = %status, "an ingester does not say what is on its disk")
            }
        }
    }
    let unsure =
        all.iter().map(|told: &Described| told.shard).filter(|shard| !sure.contains(shard)).collect();
    (all, unsure)
}

fn told(report: &Report, unsure: &BTreeSet<ShardId>) -> String {
    let Report { snapshot, snapshots_passed_over, odd_blocks, findings } = report;
    let mut text = match snapshot {
        Some(index) => format!("from the snapshot at {index}, and what came later\n"),
        None => "there was no snapshot: from blocks and ingesters alone\n".to_owned(),
    };
    // Writing to a string does not fail.
    for (what, all) in [("passed over", snapshots_passed_over), ("left out", odd_blocks)] {
        all.iter().for_each(|one| {
            let _ = writeln!(text, "{what}: {one}");
        });
    }
    let Findings { recalled, missing, passed_over, shards, without_log, gaps } = findings;
    let _ = writeln!(
        text,
        "blocks: {} registered again, {} missing, {} never registered or replaced",
        recalled.len(),
        missing.len(),
        passed_over.len()
    );
    let listed = |shards: &mut dyn Iterator<Item = &ShardId>| {
        shards.map(ShardId::to_string).collect::<Vec<_>>().join(", ")
    };
    for (what, all) in [
        ("shards that the snapshot does not know", listed(&mut shards.iter())),
        (
            "shards of whose log no node tells, so that what lies in no block is lost",
            listed(&mut without_log.iter()),
        ),
        (
            "shards of which most members were silent, so that the last of them may be lost",
            listed(&mut unsure.iter()),
        ),
    ] {
        if !all.is_empty() {
            let _ = writeln!(text, "{what}: {all}");
        }
    }
    for (shard, from, to) in gaps {
        let _ = writeln!(text, "lost: entries {} to {to} of shard {shard}; answers say so", from + 1);
    }
    text.push_str("start this node now; metastores with empty folders join it\n");
    text
}
