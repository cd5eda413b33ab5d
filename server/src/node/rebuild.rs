//! A catalogue that lost all its voters is put together again, on a node that has nothing of it: from what lies in the
//! bucket and what ingesters say of their disks (E16).

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use athanor_catalog::Described;
use athanor_chassis::{Code, Overrides, Status, Tasks, Timestamp};
use athanor_cluster::NodeId;
use athanor_cluster::members::{Member, RoleName};
use athanor_metastore::{GROUP, RebuildFailed, Rebuilding, Report, begin_again, rebuild};

use super::build::{self, Offered, Site};
use super::{StartError, System, TASKS};
use crate::config::Config;
use crate::others::{Entry, Others};
use crate::ways::Ways;

/// How long others have to be seen, and then those that the bucket's snapshot names.
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
    let entry = Entry::take(joining, &*system.net).await?;
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
        let rebuilding = Rebuilding {
            store: site.system.store.clone(),
            cluster: site.identity.cluster,
            described: described(others, &ways).await,
            without: without.clone(),
            at,
            kept_from,
        };
        match rebuild(rebuilding).await {
            Ok((rebuilt, report)) => {
                begin_again(&ground.consensus, &rebuilt).await?;
                return Ok(told(&report));
            }
            Err(RebuildFailed::Silent { .. }) if clock.monotonic() < until => clock.sleep(PAUSE).await,
            Err(error) => return Err(StartError::Rebuild(Status::of(&error))),
        }
    }
}

/// What all ingesters that are seen say of their disks.
async fn described(others: &Others, ways: &Ways) -> Vec<Described> {
    let members = others.company().members.now();
    let keeps = |member: &&Member| member.is_alive() && member.roles.contains(&RoleName::Ingester);
    let nodes = members.values().filter(keeps).map(|member| member.node);
    let asked = nodes.map(|node| async move { (node, ways.describe(node).await) });
    let mut all = Vec::new();
    for (node, told) in futures::future::join_all(asked).await {
        match told {
            Ok(told) => all.extend(told),
            Err(status) => {
                tracing::warn!(node, error = %status, "an ingester does not say what is on its disk")
            }
        }
    }
    all
}

fn told(report: &Report) -> String {
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
    let _ = writeln!(text, "{findings:?}\nstart this node now; metastores with empty folders join it");
    text
}
