//! The lead is handed over, and members come and go.
#![expect(clippy::disallowed_methods, reason = "members wait on raft's time")]

use super::cluster::Cluster;
use super::*;

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn the_lead_is_handed_over_at_once_and_nothing_is_lost() {
    for (voters, seed) in [(3, 60), (3, 61), (3, 62), (5, 63), (5, 64)] {
        simulate(async {
            let cluster = Cluster::of(voters, seed).await;
            let mut expected = vec![cluster.propose(1).await];
            for to in 1..=voters {
                let old = cluster.leader().await;
                // One that has just come to lead is not voted out yet.
                tokio::time::sleep(Duration::from_secs(1)).await;
                let start = tokio::time::Instant::now();
                cluster.member(old).transfer_leadership(to, LIMIT).await.unwrap();
                let took = start.elapsed();
                assert!(took < Duration::from_millis(2_500), "{voters} voters: {took:?} of virtual time");
                assert_eq!(cluster.leader().await, to, "seed {seed}");
                expected.push(cluster.propose(10 + to).await);
            }
            assert_eq!(cluster.settle().await, expected);
        });
    }
}

#[test]
fn only_the_leader_hands_over_and_only_to_voters_that_are_there() {
    simulate(async {
        let mut cluster = Cluster::of(3, 70).await;
        cluster.propose(1).await;
        let leader = cluster.leader().await;
        let (other, third) = (leader % 3 + 1, (leader + 1) % 3 + 1);
        let refused = cluster.member(other).transfer_leadership(third, LIMIT).await;
        assert_eq!(refused, Err(LeadershipError::NotLeader { leader: Some(leader) }));
        let refused = cluster.member(leader).transfer_leadership(9, LIMIT).await;
        assert_eq!(refused, Err(LeadershipError::NoVoter { to: 9, voters: [1, 2, 3].into() }));
        cluster.kill(other).await;
        let late = cluster.member(leader).transfer_leadership(other, Duration::from_secs(3)).await;
        assert!(matches!(late, Err(LeadershipError::Late { .. })), "{late:?}");
        // It leads on, and takes proposals.
        assert_eq!(cluster.leader().await, leader);
        cluster.propose(2).await;
    });
}

#[test]
fn members_come_and_go_while_it_works() {
    simulate(async {
        let mut cluster = Cluster::of(1, 80).await;
        let mut expected = vec![cluster.propose(1).await];
        for node in 2..=3 {
            cluster.join(node).await;
            let leader = cluster.member(cluster.leader().await);
            leader.add_voter(node, LIMIT).await.unwrap();
            leader.add_voter(node, LIMIT).await.unwrap();
            expected.push(cluster.propose(node).await);
        }
        let leader = cluster.leader().await;
        assert_eq!(cluster.member(leader).members().voters, [1, 2, 3].into());
        // A disk that knew more than itself is no more trusted alone.
        let lost = cluster.member(leader).remove_voter(leader, LIMIT).await;
        assert_eq!(lost, Err(LeadershipError::Leads { node: leader }));
        let (next, gone) = (leader % 3 + 1, leader);
        tokio::time::sleep(Duration::from_secs(1)).await;
        cluster.member(leader).transfer_leadership(next, LIMIT).await.unwrap();
        cluster.member(next).remove_voter(gone, LIMIT).await.unwrap();
        cluster.member(next).remove_voter(gone, LIMIT).await.unwrap();
        let left = cluster.member(next).members();
        assert!(!left.voters.contains(&gone) && left.learners.is_empty() && !left.changing, "{left:?}");
        cluster.kill(gone).await;
        expected.push(cluster.propose(7).await);
        assert_eq!(cluster.settle().await, expected);
    });
}

#[test]
fn a_change_that_a_dying_leader_left_half_done_is_finished_by_the_next() {
    let mut halves = 0;
    for seed in 90..120 {
        halves += simulate(half_done(seed));
    }
    assert!(halves > 0, "no leader died in the middle");
}

/// A leader dies while it adds a voter. Says whether that left a change half done.
async fn half_done(seed: u64) -> u64 {
    let mut cluster = Cluster::of(3, seed).await;
    let mut expected = vec![cluster.propose(1).await];
    cluster.join(4).await;
    let old = cluster.leader().await;
    let dying = cluster.member(old);
    let adding = tokio::spawn(async move { dying.add_voter(4, LIMIT).await });
    tokio::time::sleep(Duration::from_micros(cluster.random.next_below(40_000))).await;
    cluster.kill(old).await;
    adding.abort();
    let next = cluster.leader().await;
    let changing = cluster.member(next).members().changing;
    cluster.member(next).add_voter(4, LIMIT).await.unwrap();
    let members = cluster.member(next).members();
    assert_eq!((members.voters, members.changing), ([1, 2, 3, 4].into(), false), "seed {seed}");
    expected.push(cluster.propose(2).await);
    cluster.boot(old).await;
    assert_eq!(cluster.settle().await, expected, "seed {seed}");
    u64::from(changing)
}
