//! Three members: they elect, replicate, lose power, come back, and are sent what they missed.
#![expect(clippy::disallowed_methods, reason = "members wait on raft's time")]

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use super::*;

/// Everybody's network; members that are down do not answer, nor those that are cut off.
#[derive(Clone, Default)]
struct Hub {
    members: Arc<Mutex<BTreeMap<u64, RaftGroup<Numbers>>>>,
    cut_off: Arc<Mutex<BTreeSet<u64>>>,
    calls: Arc<AtomicU64>,
}

/// One process' way into it. The dead say nothing.
struct Port {
    node: u64,
    hub: Hub,
    alive: Arc<AtomicBool>,
    random: Random,
}

#[async_trait::async_trait]
impl Network for Port {
    async fn call(&self, to: u64, _group: u32, request: Bytes) -> Result<Bytes, RaftCallError> {
        self.hub.calls.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_micros(200 + self.random.next_below(3_000))).await;
        let target = self.hub.members.lock().get(&to).cloned();
        let cut = [self.node, to].iter().any(|node| self.hub.cut_off.lock().contains(node));
        let target = target.filter(|_| self.alive.load(Ordering::SeqCst) && !cut);
        let down = || RaftCallError { to, reason: "it is down".to_owned() };
        let answer = target.ok_or_else(down)?.handle_request(request).await;
        tokio::time::sleep(Duration::from_micros(200 + self.random.next_below(3_000))).await;
        if self.alive.load(Ordering::SeqCst) { Ok(answer) } else { Err(down()) }
    }
}

pub(super) struct Cluster {
    hub: Hub,
    pub(super) random: Random,
    founders: BTreeSet<u64>,
    disks: BTreeMap<u64, MemoryDisk>,
    alive: BTreeMap<u64, Arc<AtomicBool>>,
}

impl Cluster {
    async fn start(seed: u64) -> Self {
        Self::of(3, seed).await
    }

    pub(super) async fn of(voters: u64, seed: u64) -> Self {
        let disks = (1..=voters).map(|node| (node, MemoryDisk::new())).collect();
        let founders = (1..=voters).collect();
        let random = Random::from_seed(seed);
        let mut cluster = Self { hub: Hub::default(), random, founders, disks, alive: BTreeMap::new() };
        for node in 1..=voters {
            cluster.boot(node).await;
        }
        cluster
    }

    pub(super) async fn boot(&mut self, node: u64) {
        let founding = GroupBootstrap::Members(self.founders.clone());
        self.enter(node, founding).await;
    }

    /// A node that others will ask in.
    pub(super) async fn join(&mut self, node: u64) {
        self.disks.insert(node, MemoryDisk::new());
        self.enter(node, GroupBootstrap::Joining).await;
    }

    async fn enter(&mut self, node: u64, founding: GroupBootstrap) {
        let (disk, alive) = (self.disks[&node].clone(), Arc::new(AtomicBool::new(true)));
        let (log, recovery) = open_log(&disk, node).unwrap();
        assert_eq!(recovery.damage, vec![]);
        let port =
            Port { node, hub: self.hub.clone(), alive: Arc::clone(&alive), random: self.random.split() };
        let deps = deps(log, &disk, node, self.random.next_u64(), Some(Arc::new(port)));
        let member = RaftGroup::open(&deps, 1, founding, Numbers::default()).await.unwrap();
        self.alive.insert(node, alive);
        self.hub.members.lock().insert(node, member);
    }

    /// The power goes.
    pub(super) async fn kill(&mut self, node: u64) {
        self.alive[&node].store(false, Ordering::SeqCst);
        let member = self.hub.members.lock().remove(&node);
        let after = self.disks[&node].crash(self.random.next_u64());
        self.disks.insert(node, after);
        if let Some(member) = member {
            member.shutdown().await;
        }
    }

    pub(super) fn member(&self, node: u64) -> RaftGroup<Numbers> {
        self.hub.members.lock()[&node].clone()
    }

    fn up(&self) -> Vec<u64> {
        self.hub.members.lock().keys().copied().collect()
    }

    pub(super) async fn leader(&self) -> u64 {
        for _ in 0..2_000 {
            for node in self.up() {
                let member = self.member(node);
                if member.leadership().current().here && member.read_index().await.is_ok() {
                    return node;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for node in self.up() {
            let member = self.member(node);
            eprintln!("{node}: {:?} {:?}", member.read_index().await, member.shared.raft.metrics().borrow());
        }
        panic!("nobody leads {:?}", self.up());
    }

    pub(super) async fn propose(&self, number: u64) -> (u64, u64) {
        let leader = self.leader().await;
        (self.member(leader).propose(entry(number)).await.unwrap().0, number)
    }

    /// Waits until all that are up hold the same.
    pub(super) async fn settle(&self) -> Vec<(u64, u64)> {
        let leader = self.leader().await;
        let upto = self.member(leader).read_index().await.unwrap();
        for _ in 0..5_000 {
            if self.up().iter().all(|node| self.member(*node).applied_index() >= Some(upto)) {
                let kept: Vec<_> = self
                    .up()
                    .iter()
                    .map(|node| self.member(*node).with_state_machine(|numbers| numbers.kept.clone()))
                    .collect();
                assert!(kept.iter().all(|other| *other == kept[0]), "{kept:?}");
                return kept[0].clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("not equal at {upto}");
    }
}

#[test]
fn members_elect_replicate_and_say_who_leads() {
    simulate(async {
        let cluster = Cluster::start(1).await;
        let leader = cluster.leader().await;
        let mut expected = Vec::new();
        for number in 1..=20 {
            expected.push(cluster.propose(number).await);
        }
        assert_eq!(cluster.settle().await, expected);
        let follower = cluster.member(leader % 3 + 1);
        let refused = follower.propose(entry(9)).await.unwrap_err();
        assert_eq!(refused, ProposeError::NotLeader { leader: Some(leader) });
        assert_eq!(follower.leadership().current().node, Some(leader));
        assert!(cluster.member(leader).leadership().current().here);
    });
}

#[test]
fn any_member_reads_what_was_acknowledged_before() {
    simulate(async {
        let cluster = Cluster::start(4).await;
        for number in 1..=20 {
            let (index, _) = cluster.propose(number).await;
            for node in 1..=3 {
                let member = cluster.member(node);
                assert!(member.read_index().await.unwrap() >= index);
                assert_eq!(
                    member.with_state_machine(|numbers| numbers.kept.len()),
                    number as usize,
                    "node {node}"
                );
            }
        }
    });
}

#[test]
fn a_member_that_cannot_read_an_entry_stops_and_the_others_go_on() {
    simulate(async {
        let cluster = Cluster::start(6).await;
        for number in [2, 4] {
            cluster.propose(number).await;
        }
        let leader = cluster.leader().await;
        let member = cluster.member(leader % 3 + 1);
        member.with_state_machine(|numbers| numbers.knows_no_odd.store(true, Ordering::Relaxed));
        let (index, _) = cluster.propose(5).await;
        cluster.propose(6).await;
        while member.failure().is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let why = member.failure().unwrap();
        assert!(why.contains("5 is odd"), "{why}");
        assert!(member.applied_index() < Some(index));
        assert_eq!(member.with_state_machine(|numbers| numbers.kept.len()), 2, "nothing is skipped");
        cluster.propose(7).await;
        assert_eq!(
            cluster.member(cluster.leader().await).with_state_machine(|numbers| numbers.kept.len()),
            5
        );
    });
}

#[test]
fn many_reads_ask_the_others_once() {
    simulate(async {
        let cluster = Cluster::start(5).await;
        cluster.propose(1).await;
        let leader = cluster.member(cluster.leader().await);
        let before = cluster.hub.calls.load(Ordering::Relaxed);
        let reads: Vec<_> = (0..100)
            .map(|_| {
                let leader = leader.clone();
                tokio::spawn(async move { leader.read_index().await })
            })
            .collect();
        for read in reads {
            read.await.unwrap().unwrap();
        }
        // Two rounds to two others, and perhaps a heartbeat.
        let calls = cluster.hub.calls.load(Ordering::Relaxed) - before;
        assert!(calls <= 8, "{calls} calls");
    });
}

#[test]
fn a_leader_that_is_cut_off_reads_nothing() {
    for seed in 50..60 {
        simulate(async {
            let cluster = Cluster::start(seed).await;
            cluster.propose(1).await;
            let old = cluster.leader().await;
            cluster.hub.cut_off.lock().insert(old);
            let others = [old % 3 + 1, (old + 1) % 3 + 1].map(|node| cluster.member(node));
            let led = async || loop {
                for member in &others {
                    if member.leadership().current().here && member.propose(entry(2)).await.is_ok() {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            };
            led().await;
            // It still believes that it leads, and says of what it is given that it does not know.
            assert!(cluster.member(old).leadership().current().here);
            let proposed = cluster.member(old).propose(entry(3)).await;
            assert_eq!(proposed, Err(ProposeError::Unknown { limit: Duration::from_secs(5) }), "seed {seed}");
            assert!(cluster.member(old).is_partitioned() && !others.iter().any(RaftGroup::is_partitioned));
            let read = cluster.member(old).read_index().await;
            assert_eq!(read, Err(ProposeError::NoQuorum), "seed {seed}");
            cluster.hub.cut_off.lock().clear();
            cluster.settle().await;
            cluster.member(old).read_index().await.unwrap();
            assert_eq!(cluster.member(old).with_state_machine(|numbers| numbers.kept.len()), 2);
        });
    }
}

#[test]
fn a_new_leader_is_elected_and_the_old_one_catches_up() {
    simulate(async {
        let mut cluster = Cluster::start(2).await;
        let mut expected = vec![cluster.propose(1).await];
        let old = cluster.leader().await;
        let mut watch = cluster.member(old % 3 + 1).leadership();
        cluster.kill(old).await;
        expected.push(cluster.propose(2).await);
        assert_ne!(cluster.leader().await, old);
        assert!(watch.changed().await.is_some());
        cluster.boot(old).await;
        expected.push(cluster.propose(3).await);
        assert_eq!(cluster.settle().await, expected);
    });
}

#[test]
fn a_leader_that_lost_its_power_is_elected_anew() {
    for seed in 100..130 {
        simulate(async {
            let mut cluster = Cluster::start(seed).await;
            let before = [cluster.propose(1).await, cluster.propose(2).await, cluster.propose(3).await];
            let old = cluster.leader().await;
            for node in 1..=3 {
                cluster.kill(node).await;
            }
            cluster.boot(old).await;
            let member = cluster.member(old);
            // Nobody else is there to vote.
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert!(!member.leadership().current().here, "seed {seed}: it leads by votes of its life before");
            for node in [old % 3 + 1, (old + 1) % 3 + 1] {
                cluster.boot(node).await;
            }
            while member.read_index().await.is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(member.with_state_machine(|numbers| numbers.kept.clone()), before, "seed {seed}");
            cluster.settle().await;
        });
    }
}

#[test]
fn who_was_away_when_the_log_was_purged_is_sent_a_snapshot() {
    simulate(async {
        let mut cluster = Cluster::start(3).await;
        let mut expected = vec![cluster.propose(1).await];
        let leader = cluster.leader().await;
        let away = leader % 3 + 1;
        cluster.kill(away).await;
        for number in 2..=40 {
            expected.push(cluster.propose(number).await);
        }
        let (cut, _) = cluster.propose(CUT).await;
        cluster.settle().await;
        for node in cluster.up() {
            assert_eq!(cluster.member(node).compact(cut).await.unwrap(), Some(cut));
        }
        expected.push(cluster.propose(41).await);
        tokio::time::sleep(Duration::from_secs(1)).await;
        for node in cluster.up() {
            let held = cluster.member(node).shared.log.group_state(1);
            assert_eq!(held.purged.map(|(index, _)| index), Some(cut));
        }
        cluster.boot(away).await;
        assert_eq!(cluster.settle().await, expected);
        assert_eq!(cluster.member(away).shared.machine.snapshot_index(), Some(cut));
        // And that snapshot is its own now.
        cluster.kill(away).await;
        cluster.boot(away).await;
        assert_eq!(cluster.settle().await, expected);
    });
}

/// Members lose power one at a time or together, in the midst of proposals; what was acknowledged stays, in place.
async fn storm(seed: u64) -> Vec<(u64, u64)> {
    let mut cluster = Cluster::start(seed).await;
    let (mut acknowledged, mut number) = (Vec::new(), 0);
    for _ in 0..12 {
        for _ in 0..cluster.random.next_below(6) {
            number += 1;
            let leader = cluster.leader().await;
            let cut = cluster.random.next_below(6) == 0;
            let member = cluster.member(leader);
            let proposed = member.propose(entry(if cut { CUT } else { number })).await;
            match proposed {
                Ok((index, _)) if cut => drop(member.compact(index).await),
                Ok((index, _)) => acknowledged.push((index, number)),
                Err(_) => {}
            }
        }
        let dying: Vec<u64> = match cluster.random.next_below(4) {
            0 => vec![1, 2, 3],
            one => vec![one],
        };
        for node in &dying {
            // Perhaps inside an operation.
            cluster.disks[node].lose_power_after(cluster.random.next_below(4));
        }
        if let Some(node) = cluster.up().first().copied() {
            number += 1;
            let ask = cluster.member(node);
            let proposed = tokio::time::timeout(Duration::from_secs(2), ask.propose(entry(number))).await;
            if let Ok(Ok((index, _))) = proposed {
                acknowledged.push((index, number));
            }
        }
        for node in &dying {
            cluster.kill(*node).await;
        }
        if dying.len() == 1 {
            number += 1;
            acknowledged.push(cluster.propose(number).await);
        }
        for node in dying {
            cluster.boot(node).await;
        }
    }
    let kept = cluster.settle().await;
    for entry in &acknowledged {
        assert_eq!(
            kept.iter().filter(|kept| kept == &entry).count(),
            1,
            "seed {seed}: {entry:?} in {kept:?}"
        );
    }
    kept
}

#[test]
fn what_was_acknowledged_outlives_any_member() {
    for seed in 10..40 {
        assert!(simulate(storm(seed)).len() > 8, "seed {seed}");
    }
}

/// Where the disks of all are full, what frees them is committed all the same [INV-08].
#[test]
fn what_frees_space_reaches_members_whose_disks_are_full() {
    simulate(async {
        let cluster = Cluster::start(31).await;
        cluster.propose(1).await;
        cluster.settle().await;
        for disk in cluster.disks.values() {
            const LARGE: u64 = 1 << 40;
            disk.set_capacity(Some(LARGE));
            let used = LARGE - athanor_chassis::Disk::free_bytes(disk).unwrap();
            disk.set_capacity(Some(used + RESERVE.get() / 2));
        }
        let leader = cluster.member(cluster.leader().await);
        let refused = leader.propose(entry(2)).await.unwrap_err();
        assert!(matches!(refused, ProposeError::Refused(LogError::Full { .. })), "{refused}");
        leader.propose_relief(entry(CUT)).await.unwrap();
        assert_eq!(cluster.settle().await.len(), 1);
    });
}
