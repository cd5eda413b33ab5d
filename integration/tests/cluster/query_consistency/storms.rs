//! Gateways die while they read, and the bucket is slow or fails: each question is answered as plain lists are, or it is said
//! that the answer lacks something, or the question is refused and may be asked again. Never is an answer smaller and silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use athanor_chassis::ByteSize;
use athanor_integration::cluster::{TestCluster, TestClusterBuilder, run_on};

use crate::query_consistency::asker::{Asker, Storm};
use crate::query_consistency::naive::Naive;
use crate::query_consistency::plain::{all_answers, ids, naive_answers};
use crate::query_consistency::profiles::{IN_A_WAVE, millis, send};
use crate::query_consistency::story::{BOTH, is_equal, serving};

/// Profiles come so often until all are cut, and some that are not.
const BLOCKS: usize = 4;
/// Who reads blocks.
const GATEWAYS: [&str; 2] = ["g", "h"];

/// What befalls those who answer.
#[derive(Clone, Copy, Debug)]
enum Harm {
    /// A gateway dies while it waits for the bucket.
    Killed,
    /// All calls of the bucket fail, for a while.
    Fails,
    /// Reads of the bucket wait, for a while.
    Slow,
}

/// Nothing is kept between questions: each of them reads.
fn apart() -> TestClusterBuilder {
    let all_else = "metastore,ingester,distributor,querier";
    let nodes = [("a", "za", all_else), ("b", "zb", all_else), ("c", "zc", all_else)];
    let gateways = [("g", "za", "store-gateway"), ("h", "zb", "store-gateway")];
    let nodes = nodes.into_iter().chain(gateways);
    let builder = nodes.fold(TestCluster::builder(), |all, (name, zone, roles)| all.node(name, zone, roles));
    builder.max_bucket_attempts(2).config(|config| {
        config.cluster.initial_slots = Some(3);
        config.ingester.flush.max_head_age = Duration::from_secs(24 * 3600);
        let none = ByteSize::bytes(0);
        config.querier.results_cache_bytes = none;
        let gateway = &mut config.store_gateway;
        gateway.partial_cache_bytes = none;
        gateway.block_cache_bytes = none;
        gateway.disk_cache_bytes = none;
    })
}

/// Harms those who answer, again and again, until all is answered.
async fn harm(cluster: &mut TestCluster, harm: Harm, storm: &Storm, is_over: &AtomicBool) {
    let over = || is_over.load(Ordering::SeqCst);
    let whole = || storm.whole.load(Ordering::SeqCst);
    let lacking = || {
        [&storm.partial, &storm.silent, &storm.refused]
            .map(|count| count.load(Ordering::SeqCst))
            .iter()
            .sum::<usize>()
    };
    for name in GATEWAYS.iter().cycle() {
        if over() {
            break;
        }
        match harm {
            Harm::Killed | Harm::Slow => {
                cluster.bucket().hold_reads();
                cluster.wait_until("reads wait", || over() || cluster.bucket().waiting_reads() > 0).await;
                if let Harm::Killed = harm {
                    cluster.kill(name);
                }
                cluster.sleep_briefly().await;
                cluster.bucket().release_reads();
                if let Harm::Killed = harm {
                    cluster.start_nodes(&[name]).await;
                }
            }
            Harm::Fails => {
                let before = lacking();
                cluster.bucket().fail_one_of(1);
                cluster.wait_until("an answer lacks something", || over() || lacking() > before).await;
                cluster.bucket().heal();
            }
        }
        let before = whole();
        cluster.wait_until("something is answered", || over() || whole() > before).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_whole_or_say_that_they_are_not() {
    let mut cluster = apart().start().await;
    cluster.wait_for_view("slots are open", |view| serving(view) == 3).await;
    let count = 2 * IN_A_WAVE;
    for number in 0..count {
        let (new, repeats) = send(&cluster, number, number).await;
        assert!(new + repeats > 0, "profile {number}");
        if number < IN_A_WAVE && (number + 1).is_multiple_of(IN_A_WAVE / BLOCKS) {
            cluster.flush_all(3).await;
        }
    }
    let told = Arc::new(ids(&cluster, 0, count).await);
    let expected = naive_answers(&Naive::of(0..count, BOTH, [millis(0), millis(count)], &told));
    for of_kind in [Harm::Killed, Harm::Fails, Harm::Slow] {
        let (storm, is_over) = (Arc::new(Storm::default()), Arc::new(AtomicBool::new(false)));
        let asker = Asker {
            ids: Arc::clone(&told),
            storm: Some(Arc::clone(&storm)),
            ..Asker::of_all(&cluster, 0, BOTH, count)
        };
        let over = Arc::clone(&is_over);
        let asking = run_on(cluster.querier(0).0, async move {
            let found = all_answers(&asker).await;
            over.store(true, Ordering::SeqCst);
            found
        });
        let asking = async {
            let found = asking.await;
            is_equal(&found, &expected, &format!("{of_kind:?}"));
        };
        tokio::join!(harm(&mut cluster, of_kind, &storm, &is_over), asking);
        println!("{of_kind:?}: {storm:?}");
        let Storm { whole, partial, .. } = &*storm;
        assert!(whole.load(Ordering::SeqCst) > 40, "all questions are answered at last");
        if let Harm::Fails = of_kind {
            assert!(partial.load(Ordering::SeqCst) > 10, "{storm:?}");
        } else {
            // Others can read what one who died could not.
            assert_eq!(partial.load(Ordering::SeqCst), 0, "{storm:?}");
        }
    }
}
