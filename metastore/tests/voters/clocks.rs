//! The catalog's time while the clock of a voter is wrong.

use std::time::Duration;

use athanor_catalog::Catalog;
use tokio_util::sync::CancellationToken;

use crate::asking::change;
use crate::harness::{PATIENCE, Town, simulate};

const FAR_AHEAD: Duration = Duration::from_secs(40 * 24 * 3600);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn idle_catalog_is_stamped_every_hour() {
    simulate(async {
        let town = Town::start(1, 52).await;
        town.client(1).propose(change(1)).await.unwrap();
        let begin = town.metastore(1).newest_command_time();
        town.clocks[&1].jump_wall_time((HOUR * 2).as_nanos() as i64);
        let watching = town.metastore(1).watch_clock(CancellationToken::new());
        let stamped = async {
            while town.metastore(1).newest_command_time().since(begin) < HOUR {
                town.clock.sleep(Duration::from_secs(60)).await;
            }
        };
        let stamped = async { town.clock.timeout(HOUR * 2, stamped).await.expect("it is stamped") };
        tokio::select! {
            () = watching => panic!("the watch ended"),
            () = stamped => {}
        }
        let ahead_seconds = town.metastore(1).clock_ahead_seconds().unwrap();
        assert!((1..3600).contains(&ahead_seconds), "{ahead_seconds}");
    });
}

#[test]
fn leader_far_ahead_does_not_move_the_catalogs_time() {
    simulate(async {
        let mut town = Town::new(51);
        for node in 1..=3 {
            town.begin(node, 3).await;
        }
        let grown = async {
            while town.client(1).voters().await.unwrap().len() < 3 {
                town.clock.sleep(Duration::from_millis(100)).await;
            }
        };
        town.clock.timeout(PATIENCE, grown).await.expect("three vote");
        // Until each knows the clocks of the others.
        town.clock.sleep(Duration::from_secs(30)).await;
        let begin = town.clock.wall();
        let leader = town.leader().await;
        for ahead in [FAR_AHEAD, Duration::ZERO] {
            town.clocks[&leader].jump_wall_time(ahead.as_nanos() as i64);
            for number in 0..3 {
                town.clock.sleep(Duration::from_secs(30)).await;
                town.client(number + 1).propose(change(number)).await.unwrap();
                let ages = town
                    .metastore(leader)
                    .block_ages(&athanor_catalog::RetentionPolicy::uniform(HOUR))
                    .await
                    .unwrap();
                assert!(ages.time >= begin, "{ages:?}");
                assert!(ages.time.since(begin) < HOUR, "ahead by {ahead:?}: {ages:?}, it began at {begin}");
            }
        }
        assert_eq!(town.leader().await, leader, "else another clock was looked at");
    });
}
