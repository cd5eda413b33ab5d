//! One shard on three nodes, which die and come back, are cut off and heard of again.

mod nodes;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{Catalog, CatalogCommand, HandoffSource, ReplicaPlacement, ShardPhase};
use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{ComputePool, ErrorCode, Random, TaskGroup};
use athanor_ingester::{HandoffWindowRequest, Ingester, ShardReadError};
use athanor_profile::store_interface::upload::ProfileUpload;
use bytes::Bytes;

use crate::samples::{now, profile, simple, upload};
use crate::world::{simulate, tenant};
pub use nodes::Trio;
use nodes::{LOOK, NODES, PATIENCE, SHARD, SUCCESSOR};

#[test]
fn what_was_acknowledged_outlives_its_leader() {
    simulate(async {
        let mut trio = Trio::start(1).await;
        let uploads: Vec<ProfileUpload> = (0..12).map(|number| simple(now() + number, 10)).collect();
        let mut stored = 0;
        for (round, some) in uploads.chunks(3).enumerate() {
            for one in some {
                assert_eq!(trio.push(one).await, 1);
                stored += 11;
            }
            if round % 2 == 1 {
                trio.cut().await;
            }
            let (leader, _) = trio.leader().await;
            trio.kill(leader).await;
            assert_ne!(trio.leader().await.0, leader);
            for one in &uploads[..round * 3 + 3] {
                assert_eq!(trio.push(one).await, 0, "round {round}");
            }
            assert_eq!(trio.total().await, stored, "round {round}");
            trio.boot(leader).await;
        }
        trio.cut().await;
        assert_eq!(trio.total().await, stored);
    });
}

#[test]
fn a_member_that_was_away_gets_the_ids_with_their_files() {
    simulate(async {
        let mut trio = Trio::start(2).await;
        let uploads: Vec<ProfileUpload> = (0..6).map(|number| simple(now() + number, 10)).collect();
        trio.push(&uploads[0]).await;
        let away = trio.leader().await.0 % NODES + 1;
        trio.kill(away).await;
        for one in &uploads[1..] {
            trio.push(one).await;
            // The log lets go of it.
            trio.cut().await;
        }
        trio.boot(away).await;
        for round in 0..20 {
            let (leader, _) = trio.leader().await;
            for one in &uploads {
                assert_eq!(trio.push(one).await, 0, "round {round}, node {leader} leads");
            }
            if leader == away {
                assert_eq!(trio.total().await, 6 * 11);
                return;
            }
            trio.kill(leader).await;
            trio.leader().await;
            trio.boot(leader).await;
        }
        panic!("it never led");
    });
}

#[test]
fn a_leader_that_is_cut_off_neither_stores_nor_shows() {
    simulate(async {
        let trio = Trio::start(3).await;
        trio.push(&simple(now(), 10)).await;
        let (old, cut_off) = trio.leader().await;
        trio.hub.cut_off.lock().insert(old);
        let (lost, tasks) = (simple(now() + 1, 20), TaskGroup::new(trio.clock.clone(), 10));
        let (late, sent) = (Arc::clone(&cut_off), lost.clone());
        let sending = tasks.spawn("sends", async move {
            late.append(SHARD, 1, &tenant("acme"), vec![sent]).await.unwrap().remove(0)
        });
        trio.clock.sleep(Duration::from_secs(5)).await;
        assert!(cut_off.confirm_leadership(SHARD).await.is_err());
        let refused = cut_off.append(SHARD, 1, &tenant("acme"), vec![simple(now() + 9, 1)]).await;
        assert_eq!(refused, Err(ShardReadError::Lead { shard: SHARD, leader: None }));
        // What it took before is not known to be stored, nor to be lost.
        let answer = sending.unwrap().await.unwrap();
        assert_eq!(answer.unwrap_err().code, ErrorCode::Unavailable);
        assert_ne!(trio.leader().await.0, old);
        assert_eq!(trio.push(&simple(now() + 2, 30)).await, 1);
        trio.hub.cut_off.lock().clear();
        assert_eq!(trio.push(&lost).await, 1);
        assert_eq!(trio.total().await, 11 + 21 + 31);
    });
}

/// Whoever is chosen shows nothing before it has read back all that others stored: it says that it may be asked again.
/// Threads have a time of their own, so this world's passes as it does.
#[tokio::test]
async fn a_new_leader_answers_nothing_before_it_has_read_all_back() {
    let compute = ComputePool::with_threads(NonZeroUsize::MIN, 100).unwrap();
    let mut trio = Trio::start_on(12, compute.clone()).await;
    let uploads: Vec<ProfileUpload> = (0..5).map(|number| simple(now() + number, 10)).collect();
    for one in &uploads {
        assert_eq!(trio.push(one).await, 1);
    }
    let (old, _) = trio.leader().await;
    let tasks = TaskGroup::new(trio.clock.clone(), 10);
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let pool = compute.clone();
    let holding = tasks.spawn("holds the only thread", async move {
        pool.run(move || begin.send(()).is_ok() && held.recv().is_ok()).await
    });
    begun.await.unwrap();
    trio.kill(old).await;
    let others: Vec<(u64, Arc<Ingester>)> = trio
        .nodes
        .iter()
        .filter_map(|(number, node)| Some((*number, Arc::clone(&node.process.as_ref()?.0))))
        .collect();
    let chosen = async {
        loop {
            let led = others.iter().find(|(number, ingester)| ingester.shard_leader(SHARD) == Some(*number));
            // What reads back waits for the thread.
            match led.filter(|_| compute.pending_jobs() > 1) {
                Some((_, ingester)) => return Arc::clone(ingester),
                None => trio.clock.sleep(LOOK).await,
            }
        }
    };
    let leader = trio.clock.timeout(PATIENCE, chosen).await.expect("another is chosen");
    let not_yet = ShardReadError::Lead { shard: SHARD, leader: None };
    assert!(not_yet.to_string().ends_with("election in progress, retry"), "{not_yet}");
    let acme = tenant("acme");
    assert_eq!(leader.append(SHARD, 1, &acme, vec![simple(now() + 9, 1)]).await, Err(not_yet));
    assert_eq!(leader.head_snapshots(SHARD, 0, &acme).map(drop), Err(not_yet));
    assert_eq!(leader.confirm_leadership(SHARD).await, Err(not_yet));
    assert!(leader.led_shards().is_empty());
    release.send(()).unwrap();
    assert_eq!(holding.unwrap().await.unwrap(), Ok(true));
    assert_eq!(trio.total().await, 5 * 11);
    for one in &uploads {
        assert_eq!(trio.push(one).await, 0, "what was stored is known");
    }
}

/// Another leader took more and sealed the shard: this one has none of those rows.
#[test]
fn a_leader_that_is_cut_off_does_not_end_what_another_sealed() {
    simulate(async {
        let mut trio = Trio::start(9).await;
        trio.push(&simple(now(), 10)).await;
        trio.cut().await;
        let (old, cut_off) = trio.leader().await;
        trio.hub.cut_off.lock().insert(old);
        trio.push(&simple(now() + 1, 20)).await;
        let (new, leader) = trio.leader().await;
        assert_ne!(new, old);
        let zones = (1..=NODES).map(|node| (node, format!("zone-{node}"))).collect();
        let placement = ReplicaPlacement { members: (1..=NODES).collect(), zones };
        trio.catalog.apply_command(CatalogCommand::RequestSeal { shard: SHARD }).await.unwrap();
        trio.catalog.propose(CatalogCommand::CreateSuccessor { shard: SHARD, placement }).await.unwrap();
        leader.apply_view(&trio.view()).await;
        // As the successor does when it has copied what there was.
        leader
            .window_page(SHARD, HandoffWindowRequest { incremental: true, ..HandoffWindowRequest::default() })
            .await
            .unwrap();
        let seals = async {
            loop {
                match trio.phase() {
                    ShardPhase::Sealed { last_index } => return last_index,
                    _ => trio.clock.sleep(LOOK).await,
                }
            }
        };
        let last_index = trio.clock.timeout(PATIENCE, seals).await.expect("it is sealed");
        let inherited = HandoffSource::DedupWindow { predecessor: SHARD, up_to: Some(last_index) };
        let opened = CatalogCommand::Opened { shard: SUCCESSOR, inherited, fenced: 1 };
        trio.catalog.apply_command(opened).await.unwrap();
        trio.kill(new).await;
        cut_off.apply_view(&trio.view()).await;
        trio.clock.sleep(Duration::from_secs(30)).await;
        assert_eq!(trio.phase(), ShardPhase::Sealed { last_index });

        trio.hub.cut_off.lock().clear();
        trio.boot(new).await;
        for (ingester, _) in trio.nodes.values().filter_map(|node| node.process.as_ref()) {
            ingester.apply_view(&trio.view()).await;
        }
        let ends = async {
            while !matches!(trio.phase(), ShardPhase::Retired { .. }) {
                trio.clock.sleep(LOOK).await;
            }
        };
        trio.clock.timeout(PATIENCE, ends).await.expect("it ends");
        let blocks = trio.catalog.blocks().await.unwrap();
        assert_eq!(blocks.iter().flat_map(|block| &block.tenants).map(|part| part.profiles).sum::<u64>(), 2);
    });
}

/// A batch of which nobody knows whether it is stored is stored later, when others were proposed after it.
#[test]
fn what_is_stored_after_it_was_given_up_is_shown() {
    simulate(async {
        let trio = &Trio::start(7).await;
        trio.push(&simple(now(), 10)).await;
        let (old, leader) = &trio.leader().await;
        trio.hub.mute.lock().extend((1..=NODES).filter(|node| node != old));
        let uploads: Vec<ProfileUpload> = (0..8).map(|number| simple(now() + number, 20 + number)).collect();
        // One after the other, so that some wait behind those that are given up.
        let sending = uploads.iter().zip(0..).map(|(one, number)| async move {
            trio.clock.sleep(Duration::from_millis(number * 10)).await;
            let sent = leader.append(SHARD, 1, &tenant("acme"), vec![one.clone()]).await;
            assert!(sent.unwrap().remove(0).is_err());
        });
        futures::future::join_all(sending).await;
        trio.hub.mute.lock().clear();
        for one in &uploads {
            trio.push(one).await;
        }
        assert_eq!(trio.total().await, 11 + (21..29).sum::<i64>());
        trio.cut().await;
        assert_eq!(trio.total().await, 11 + (21..29).sum::<i64>());
    });
}

#[test]
fn a_member_whose_log_is_gone_does_not_vote_and_keeps_no_other_shard_from_opening() {
    simulate(async {
        let mut trio = Trio::start(4).await;
        let zones = (1..=NODES).map(|node| (node, format!("zone-{node}"))).collect();
        let placement = ReplicaPlacement { members: (1..=NODES).collect(), zones };
        trio.push(&simple(now(), 10)).await;
        let (leader, wiped) = (trio.leader().await.0, trio.leader().await.0 % NODES + 1);
        trio.kill(wiped).await;
        trio.catalog.propose(CatalogCommand::AddSlot { slot: 1, placement }).await.unwrap();
        trio.nodes.get_mut(&wiped).unwrap().log_disk = MemoryDisk::new();
        trio.boot(wiped).await;
        let (ingester, _) = trio.nodes[&wiped].process.as_ref().unwrap();
        assert!(ingester.failed().unwrap().starts_with("shard 1: "), "{:?}", ingester.failed());
        assert_eq!(ingester.slots(), [1]);
        let reports = ingester.shard_reports().await.unwrap();
        let found = reports.iter().map(|shard| (shard.shard, shard.cut.is_some()));
        assert_eq!(found.collect::<Vec<_>>(), [(1, false), (2, true)]);
        // The other two are a majority.
        assert_eq!(trio.push(&simple(now() + 1, 10)).await, 1);
        assert_ne!(trio.leader().await.0, wiped);
        assert_eq!(trio.total().await, 22, "node {leader} led");
    });
}

/// INV-16: the catalogue is gone, and what it had told no process knows any more.
#[test]
fn disks_tell_of_shards_and_tables_where_there_is_no_catalogue() {
    simulate(async {
        let mut trio = Trio::start(6).await;
        trio.push(&simple(now(), 10)).await;
        trio.cut().await;
        trio.push(&simple(now() + 1, 11)).await;
        let cut = trio.catalog.held.state().routing_view().shards[0].watermark;
        for number in 1..=NODES {
            trio.kill(number).await;
        }
        trio.wake(1).await;
        let alone = trio.nodes[&1].process.as_ref().unwrap().0.clone();
        let told = alone.shard_reports().await.unwrap();
        assert_eq!(told.iter().map(|shard| (shard.shard, shard.whole)).collect::<Vec<_>>(), [(SHARD, false)]);
        trio.wake(2).await;
        let other = trio.nodes[&2].process.as_ref().unwrap().0.clone();
        let whole = async {
            loop {
                // All are asked, and open what they have.
                other.shard_reports().await.unwrap();
                let told = alone.shard_reports().await.unwrap().remove(0);
                if told.whole {
                    break told;
                }
                trio.clock.sleep(Duration::from_millis(100)).await;
            }
        };
        let told = trio.clock.timeout(PATIENCE, whole).await.expect("two of three are most");
        assert_eq!((told.cut, told.taken, told.sealed, told.inherited), (Some(cut), Some(true), None, None));
        assert_eq!(told.members, (1..=NODES).collect());
        let tables = trio.view().tables.unwrap();
        assert_eq!(alone.tables().await, [tables.table_at(now()).clone()]);
        trio.wake(3).await;
        for number in 1..=NODES {
            let ingester = trio.nodes[&number].process.as_ref().unwrap().0.clone();
            ingester.apply_view(&trio.view()).await;
        }
        assert_eq!(trio.total().await, 23);
    });
}

#[test]
fn views_open_shards_and_end_them_and_old_ones_change_nothing() {
    simulate(async {
        let trio = Trio::start(5).await;
        let (_, leader) = trio.leader().await;
        let old = trio.view();
        let mut over = old.clone();
        over.revision += 1;
        over.shards[0].phase = ShardPhase::Retired { retired_at: trio.clock.wall(), abandoned: false };
        for (ingester, _) in trio.nodes.values().filter_map(|node| node.process.as_ref()) {
            ingester.apply_view(&over).await;
            ingester.apply_view(&old).await;
            assert_eq!((ingester.slots(), ingester.failed()), (vec![], None));
        }
        assert!(leader.append(SHARD, 1, &tenant("acme"), vec![simple(now(), 10)]).await.is_err());
        assert!(leader.handle_raft_request(SHARD, Bytes::new()).await.is_none());
    });
}

#[test]
fn leads_are_handed_over_to_who_can_take_them() {
    simulate(async {
        let mut trio = Trio::start(6).await;
        trio.push(&simple(now(), 10)).await;
        let (old, ingester) = trio.leader().await;
        assert_eq!((ingester.led_shards(), ingester.shard_leader(SHARD)), (vec![SHARD], Some(old)));
        // The one that is nearest does not answer any more.
        let away = old % NODES + 1;
        trio.kill(away).await;
        ingester.drain(PATIENCE).await.unwrap();
        let (new, next) = trio.leader().await;
        assert!(new != old && new != away);
        assert_eq!(ingester.append(SHARD, 1, &tenant("acme"), vec![]).await.unwrap_err().leader(), Some(new));
        assert_eq!(trio.push(&simple(now(), 20)).await, 1);
        assert_eq!(trio.total().await, 11 + 21);
        next.transfer_shard(SHARD, old, PATIENCE).await.unwrap();
        assert_eq!(trio.leader().await.0, old);
        // Nobody is left who could.
        trio.kill(new).await;
        let status = ingester.drain(Duration::from_secs(10)).await.unwrap_err();
        assert!(status.message.starts_with("this node still leads shard 1: "), "{status}");
    });
}

/// Anything happens in any order: what was acknowledged is there, once.
async fn storm(seed: u64) {
    let mut trio = Trio::start(seed).await;
    let random = Random::from_seed(seed ^ 0xa7);
    let (mut uploads, mut expected) = (Vec::<ProfileUpload>::new(), 0);
    for step in 0..60 {
        match random.next_below(12) {
            0..=4 => {
                let rows = [("main;work", 10), ("main", step + 1)];
                let one = upload(&profile(now() + step, &rows));
                let (new, tries) = trio.send(&one).await;
                assert!(new == 1 || tries > 1, "seed {seed}, step {step}");
                uploads.push(one);
                expected += 10 + step + 1;
            }
            5 | 6 if !uploads.is_empty() => {
                let one = &uploads[random.next_below(uploads.len() as u64) as usize];
                assert_eq!(trio.push(one).await, 0, "seed {seed}, step {step}");
            }
            7 => trio.cut().await,
            8 => {
                let up = trio.up();
                if up.len() == NODES as usize && trio.hub.cut_off.lock().is_empty() {
                    trio.kill(up[random.next_below(NODES) as usize]).await;
                }
            }
            9 if trio.up().len() == NODES as usize => {
                let mut cut_off = trio.hub.cut_off.lock();
                cut_off.clear();
                cut_off.insert(1 + random.next_below(NODES));
            }
            10 => {
                trio.hub.cut_off.lock().clear();
                let down = (1..=NODES).find(|number| !trio.up().contains(number));
                if let Some(down) = down {
                    trio.boot(down).await;
                }
            }
            _ => trio.clock.sleep(Duration::from_millis(random.next_below(3000))).await,
        }
    }
    trio.hub.cut_off.lock().clear();
    assert_eq!(trio.total().await, expected, "seed {seed}");
    trio.cut().await;
    assert_eq!(trio.total().await, expected, "seed {seed}");
    for one in &uploads {
        assert_eq!(trio.push(one).await, 0, "seed {seed}");
    }
    assert_eq!(trio.total().await, expected, "seed {seed}");
}

#[test]
fn anything_may_happen_to_two_nodes_of_three_in_turn() {
    for seed in 1..=20 {
        simulate(storm(seed));
    }
}
