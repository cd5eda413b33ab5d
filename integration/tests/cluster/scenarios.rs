//! What must hold, whatever fails.

use std::time::Duration;

use athanor_catalog::View;
use athanor_server::Config;

use crate::oracle::Oracle;
use crate::town::Cluster;

fn three_of_all(config: &mut Config) {
    config.cluster.slots = Some(3);
    config.ingester.cut.max_age = Duration::from_secs(3600);
}

const ALL: [(&str, &str, &str); 3] = [("a", "za", "all"), ("b", "zb", "all"), ("c", "zc", "all")];

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_whoever_dies() {
    let mut cluster = Cluster::start(&ALL, three_of_all).await;
    cluster.until("slots are open", |view| open(view) == 3).await;
    let mut oracle = Oracle::default();
    oracle.store(&cluster, 30).await;
    for place in 0..3 {
        oracle.check(&cluster, place).await;
    }
    for name in ["a", "b", "c"] {
        cluster.kill(name);
        oracle.store(&cluster, 10).await;
        oracle.check(&cluster, 0).await;
        oracle.repeat(&cluster, 1).await;
        oracle.check(&cluster, 1).await;
        cluster.begin(&[name]).await;
        oracle.check(&cluster, 2).await;
    }
    assert_eq!(oracle.len(), 60);
}

/// Whoever is asked while a lead is on its way to another, or to the node that asks, waits for it and then has all.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_finds_the_lead_wherever_it_goes() {
    let cluster = Cluster::start(&ALL, three_of_all).await;
    cluster.until("slots are open", |view| open(view) == 3).await;
    let mut oracle = Oracle::default();
    oracle.store(&cluster, 21).await;
    let mut moved = 0;
    for round in 0..6 {
        let shard = 1 + round % 3;
        cluster.wait("somebody leads", || cluster.leader(shard).is_some()).await;
        let leads = cluster.leader(shard).unwrap();
        let to = cluster.names().into_iter().find(|name| *name != leads).unwrap();
        let (handed, ..) = tokio::join!(
            cluster.hand_over(&leads, shard, &to),
            oracle.check(&cluster, 0),
            oracle.check(&cluster, 1),
            oracle.check(&cluster, 2)
        );
        // Another may be chosen meanwhile, which is as good here.
        moved += u32::from(handed.is_ok());
    }
    assert!(moved > 0, "no lead went where it was sent");
}

/// Who is cut off from the others goes on neither storing nor answering by itself.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_cut_off_does_no_harm() {
    let cluster = Cluster::start(&ALL, three_of_all).await;
    cluster.until("slots are open", |view| open(view) == 3).await;
    let mut oracle = Oracle::default();
    oracle.store(&cluster, 12).await;
    for (name, others, place) in [("a", ["b", "c"], 0), ("b", ["a", "c"], 1)] {
        others.iter().for_each(|other| cluster.web.cut(name, other));
        // Who asks at the lonely one is refused, or told what the answer lacks; it may be stored, or not.
        let number = oracle.make();
        let refused = oracle.send(&cluster, place, &[number]).await;
        assert!(refused.is_err(), "{refused:?}");
        let answer = oracle.ask(&cluster, place).await;
        assert!(answer.as_ref().map_or(true, |answer| answer.missing.is_some()), "{answer:?}");
        // The others go on.
        let number = oracle.make();
        oracle.send(&cluster, place + 1, &[number]).await.unwrap();
        oracle.check(&cluster, place + 1).await;
        cluster.web.heal();
        oracle.repeat(&cluster, 0).await;
        for place in 0..3 {
            oracle.check(&cluster, place).await;
        }
    }
}

/// Roles in processes of their own: 1 metastore, 2 ingesters, a distributor and a querier in each of 3 zones.
#[tokio::test(flavor = "multi_thread")]
async fn roles_apart_do_what_one_does() {
    let mut nodes = Vec::new();
    for (zone, names) in [
        ("za", ["ma", "ia1", "ia2", "da", "qa"]),
        ("zb", ["mb", "ib1", "ib2", "db", "qb"]),
        ("zc", ["mc", "ic1", "ic2", "dc", "qc"]),
    ] {
        let roles = ["metastore", "ingester", "ingester", "distributor", "querier"];
        nodes.extend(names.into_iter().zip(roles).map(|(name, role)| (name, zone, role)));
    }
    let mut cluster = Cluster::start(&nodes, |config| config.cluster.slots = Some(4)).await;
    cluster.until("slots are open", |view| open(view) == 4).await;
    let mut oracle = Oracle::default();
    oracle.store(&cluster, 40).await;
    for place in 0..3 {
        oracle.check(&cluster, place).await;
    }
    // Who leads a shard dies, and who leads the catalogue.
    let leader = cluster.leader(1).expect("somebody leads it");
    cluster.kill(&leader);
    cluster.kill("ma");
    oracle.store(&cluster, 20).await;
    oracle.repeat(&cluster, 1).await;
    oracle.check(&cluster, 1).await;
    cluster.begin(&[&leader, "ma"]).await;
    // A polite end gives leads away first: nothing fails meanwhile.
    let leader = cluster.leader(1).expect("somebody leads it");
    cluster.stop(&leader).await.unwrap();
    oracle.store(&cluster, 20).await;
    oracle.check(&cluster, 2).await;
}

/// Whose members are gone for long is succeeded: repeats of what the dead have taken are known to who comes after.
#[tokio::test(flavor = "multi_thread")]
async fn others_take_the_place_of_who_is_gone_for_long() {
    let five = [
        ("a", "za", "all"),
        ("b", "zb", "all"),
        ("c", "zc", "all"),
        ("d", "za", "ingester"),
        ("e", "zb", "ingester"),
    ];
    let mut cluster = Cluster::start(&five, |config| {
        config.cluster.slots = Some(2);
        config.cluster.dead_after = Duration::from_secs(10);
    })
    .await;
    cluster.until("slots are open", |view| open(view) == 2).await;
    let mut oracle = Oracle::default();
    oracle.store(&cluster, 20).await;
    // One that keeps shards and does not vote in the catalogue alone: the others decide.
    cluster.kill("c");
    let gone = |view: &View| view.shards.iter().filter(|shard| shard.epoch > 1 && shard.serves()).count();
    cluster.until("shards of the dead are succeeded", |view| gone(view) > 0 && open(view) == 2).await;
    oracle.repeat(&cluster, 0).await;
    oracle.store(&cluster, 20).await;
    oracle.check(&cluster, 0).await;
    cluster.begin(&["c"]).await;
    oracle.repeat(&cluster, 1).await;
    oracle.check(&cluster, 2).await;
}

fn open(view: &View) -> usize {
    view.shards.iter().filter(|shard| shard.serves()).count()
}
