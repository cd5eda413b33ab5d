//! What people decide about a cluster, by the `athanor` command on the folder of a node.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use athanor_integration::athanor_binary;
use athanor_integration::cluster::TestCluster;

use crate::scenarios::opened;

const METASTORES: [&str; 4] = ["m1", "m2", "m3", "m4"];

/// What the command says: as an error, if it fails.
pub fn command(cluster: &TestCluster, node: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(athanor_binary());
    let run =
        command.args(arguments).arg("--data").arg(cluster.data_folder(node)).env_clear().output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if run.status.success() { Ok(said(&run.stdout)) } else { Err(said(&run.stderr)) }
}

/// Runs a command about voters; gives their names, or why it failed.
fn voters(cluster: &TestCluster, arguments: &[&str]) -> Result<BTreeSet<String>, String> {
    let told = command(cluster, "i", &[&["metastore", "voters"], arguments].concat())?;
    Ok(told.lines().filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect())
}

fn three_vote(cluster: &TestCluster) -> Option<BTreeSet<String>> {
    voters(cluster, &["list"]).ok().filter(|voters| voters.len() == 3)
}

/// The one of four that does not vote.
fn spare(voters: &BTreeSet<String>) -> &'static str {
    METASTORES.into_iter().find(|name| !voters.contains(*name)).expect("three of four vote")
}

/// The catalogue's voters change one after the other, also the one that leads and one that is gone for good, and it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn voters_come_and_go_by_command() {
    let keeper = TestCluster::builder().node("i", "zi", "ingester,distributor,querier");
    let nodes = METASTORES.into_iter().fold(keeper, |nodes, name| nodes.node(name, name, "metastore"));
    let nodes = nodes.config(|config| {
        config.cluster.replication_factor = 1;
        config.cluster.initial_slots = Some(1);
        config.ingester.flush.max_head_age = Duration::from_millis(500);
    });
    let (mut cluster, mut oracle) = opened(nodes, 1).await;
    cluster.wait_until("three vote", || three_vote(&cluster).is_some()).await;
    let first = three_vote(&cluster).unwrap();
    let mut voting = first.clone();
    for old in &first {
        let new = spare(&voting);
        voting.remove(old);
        voting.insert(new.to_owned());
        assert_eq!(voters(&cluster, &["replace", old, new]), Ok(voting.clone()));
        oracle.store_at(&cluster, &[0], 3).await;
    }
    assert_ne!(voting, first, "the last of them has not come back");

    let more = spare(&voting);
    for _ in 0..2 {
        assert_eq!(voters(&cluster, &["add", more]).map(|voters| voters.len()), Ok(4));
    }
    assert_eq!(voters(&cluster, &["remove", more]), Ok(voting.clone()));
    for (arguments, why) in [
        (["add", "i"], "node i is not a metastore; add metastore to its target"),
        (["add", "m9"], "no node has the name or id m9; known nodes"),
        (["remove", "m9"], "no node has the name or id m9; known nodes"),
    ] {
        let refused = voters(&cluster, &arguments).unwrap_err();
        assert!(refused.contains(why), "{arguments:?}: {refused}");
    }
    assert_eq!(voters(&cluster, &["list"]), Ok(voting.clone()));

    // Of one that is gone people may know no more than its number.
    let gone = voting.first().unwrap().clone();
    let number = format!("{:016x}", cluster.node_id(&gone));
    cluster.kill(&gone);
    let new = spare(&voting);
    voting.remove(&gone);
    voting.insert(new.to_owned());
    assert_eq!(voters(&cluster, &["replace", &number, new]), Ok(voting));
    oracle.store_at(&cluster, &[0], 3).await;
    cluster.flush_all(1).await;
    oracle.repeat(&cluster, 0).await;
    oracle.check(&cluster, 0).await;
}
