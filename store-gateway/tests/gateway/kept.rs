//! A block is asked once, however often and by however many the question comes.

use super::*;

#[tokio::test]
async fn a_question_that_comes_again_reads_nothing() {
    let bucket = Bucket::new();
    let (old, new) = (profiles(0..3, &[10, 20, 30], 20), profiles(0..3, &[40, 50], 20));
    bucket
        .put(block(1), &[("other", profiles(0..1, &[10], 3)), ("shop", profiles(0..3, &[10, 20, 30], 20))])
        .await;
    bucket.put(block(2), &[("shop", profiles(0..3, &[40, 50], 20))]).await;
    let gateway = gateway(&bucket, &StoreGatewayConfig { block_cache_bytes: ByteSize::bytes(0), ..config() });
    let first = of_block(&gateway, &tree("{}", 0, 60), 1, true).await;
    assert_eq!(said(&first), said(&expected(&tree("{}", 0, 60), &old)));
    assert!(bucket.read().0 > 1);
    // A dashboard goes on: the end moves, and the beginning; what comes in is read, what was there is not.
    for (from, to) in [(0, 60), (1, 61), (10, 31), (9, 1_000)] {
        let moved = of_block(&gateway, &tree("{}", from, to), 1, true).await;
        assert_eq!(said(&moved), said(&first));
        assert_eq!(bucket.read(), (0, 0));
    }
    let of_new = of_block(&gateway, &tree("{}", 0, 60), 2, true).await;
    assert_eq!(said(&of_new), said(&expected(&tree("{}", 0, 60), &new)));
    assert!(bucket.read().0 > 1, "it was not asked before");
    // Another question, and another tenant's.
    let other = of_block(&gateway, &tree(r#"{pod="pod-1"}"#, 0, 60), 1, true).await;
    assert_eq!(said(&other), said(&expected(&tree(r#"{pod="pod-1"}"#, 0, 60), &old)));
    assert!(bucket.read().0 > 1);
    let question = BlockQuery::new("other".parse().unwrap(), tree("{}", 0, 60));
    let (of_other, found) =
        gateway.query_block(&question, &BlockTarget::without_duplicates(block(1), true)).await.unwrap();
    assert_eq!(found, PartialOrigin::Computed);
    let theirs = expected(&tree("{}", 0, 60), &profiles(0..1, &[10], 3));
    assert_eq!(said(&of_other), said(&theirs));
    let stats = gateway.stats().answers.cache;
    assert_eq!((stats.hits, stats.misses, stats.entries, stats.damaged), (4, 4, 4, 0));
}

#[tokio::test]
async fn a_block_that_is_cut_by_the_beginning_is_kept_whatever_the_end_is() {
    let bucket = Bucket::new();
    let source = profiles(0..3, &[10, 20, 30], 20);
    bucket.put(block(1), &[("shop", profiles(0..3, &[10, 20, 30], 20))]).await;
    let gateway = gateway(&bucket, &config());
    for (from, to, reads) in [(15, 60, 1), (15, 99, 0), (15, 31, 0), (15, 30, 1), (25, 60, 1)] {
        let ask = tree("{}", from, to);
        let misses = gateway.stats().answers.cache.misses;
        assert_eq!(said(&of_block(&gateway, &ask, 1, false).await), said(&expected(&ask, &source)));
        let before = gateway.stats().answers.cache;
        assert_eq!(before.misses, misses + reads, "{from}..{to}");
        of_block(&gateway, &ask, 1, false).await;
        let after = gateway.stats().answers.cache;
        assert_eq!((after.hits, after.misses), (before.hits + 1, before.misses), "{from}..{to}");
    }
    // One part was asked for five times, once for each answer that was not kept; the other question looked at it.
    let parts = gateway.stats().parts;
    assert_eq!((parts.hits, parts.misses, parts.entries), (2, 1, 1));
    // It is said where the answer was.
    for (from, found) in
        [(25, PartialOrigin::Memory), (5, PartialOrigin::Computed), (5, PartialOrigin::Memory)]
    {
        let question = BlockQuery::new(tenant(), tree("{}", from, 60));
        let answered =
            gateway.query_block(&question, &BlockTarget::without_duplicates(block(1), false)).await;
        assert_eq!(answered.unwrap().1, found, "{from}");
    }
}

#[tokio::test]
async fn equal_questions_at_once_read_once() {
    let bucket = Bucket::new();
    bucket.put(block(1), &[("shop", profiles(0..3, &[10, 20, 30], 20))]).await;
    let alone = gateway(&bucket, &config());
    let once = of_block(&alone, &tree("{}", 0, 60), 1, true).await;
    let (requests, _) = bucket.read();
    let gateway = gateway(&bucket, &config());
    bucket.hold().await;
    let ask = tree("{}", 0, 60);
    let mut asking: Vec<_> = (0..5).map(|_| Box::pin(of_block(&gateway, &ask, 1, true))).collect();
    for one in &mut asking {
        assert!(futures::poll!(one).is_pending());
    }
    // Who began it leaves.
    drop(asking.remove(0));
    bucket.go_on();
    for answer in futures::future::join_all(asking).await {
        assert_eq!(said(&answer), said(&once));
    }
    assert_eq!(bucket.read().0, requests);
    let stats = gateway.stats().answers;
    assert_eq!((stats.joined, stats.cache.misses, stats.cache.hits), (4, 1, 0));
}

#[tokio::test]
async fn nothing_is_kept_where_there_is_no_room_for_it() {
    let bucket = Bucket::new();
    let source = profiles(0..3, &[10, 20, 30], 20);
    bucket.put(block(1), &[("shop", profiles(0..3, &[10, 20, 30], 20))]).await;
    let none = StoreGatewayConfig {
        partial_cache_bytes: ByteSize::bytes(0),
        block_cache_bytes: ByteSize::bytes(0),
        ..config()
    };
    let gateway = gateway(&bucket, &none);
    for _ in 0..2 {
        let ask = tree("{}", 0, 60);
        assert_eq!(said(&of_block(&gateway, &ask, 1, true).await), said(&expected(&ask, &source)));
        assert!(bucket.read().0 > 1);
    }
}

#[tokio::test]
async fn a_restart_forgets_nothing_that_is_on_disk() {
    let (bucket, disk) = (Bucket::new(), MemoryDisk::new());
    let source = profiles(0..30, &[10, 20, 30, 40], 300);
    bucket.put(block(1), &[("shop", profiles(0..30, &[10, 20, 30, 40], 300))]).await;
    let ask = tree("{}", 0, 60);
    let before = on_disk(&bucket, &disk, &config()).await;
    let first = of_block(&before, &ask, 1, true).await;
    assert_eq!(said(&first), said(&expected(&ask, &source)));
    before.maintain_disk_cache().await;
    bucket.read();
    let again = on_disk(&bucket, &disk, &config()).await;
    assert_eq!(said(&of_block(&again, &ask, 1, true).await), said(&first));
    assert_eq!((bucket.read(), again.stats().shelf.cache.hits), ((0, 0), 1));
    // What is in memory by now needs no disk.
    assert_eq!(said(&of_block(&again, &ask, 1, true).await), said(&first));
    let answers = again.stats().answers;
    assert_eq!((answers.on_disk, answers.cache.hits, answers.cache.misses), (1, 1, 0));
    assert_eq!(again.stats().shelf.cache.hits, 1);
    // Another question finds what was read for the first one.
    let other = tree(r#"{pod="pod-3"}"#, 0, 60);
    assert_eq!(said(&of_block(&again, &other, 1, true).await), said(&expected(&other, &source)));
    let (requests, _) = bucket.read();
    assert!(requests <= 1 && again.stats().shelf.cache.hits > 6, "{requests} {:?}", again.stats().shelf);
    again.maintain_disk_cache().await;
    // Whatever the disk has become, what it gives is the answer.
    for round in 0..20 {
        for (number, name) in disk.list().unwrap().into_iter().enumerate() {
            let length = disk.len(&name).unwrap();
            disk.flip_bit(&name, (round * 7_919 + number as u64 * 31) % length, (round % 8) as u8);
        }
        let hurt = on_disk(&bucket, &disk, &config()).await;
        assert_eq!(said(&of_block(&hurt, &ask, 1, true).await), said(&first));
        assert_eq!(said(&of_block(&hurt, &other, 1, true).await), said(&expected(&other, &source)));
        assert!(hurt.stats().shelf.cache.damaged > 0);
        hurt.maintain_disk_cache().await;
    }
}

#[tokio::test]
async fn a_disk_that_is_full_fails_no_question() {
    let (bucket, disk) = (Bucket::new(), MemoryDisk::new());
    let source = profiles(0..30, &[10, 20, 30, 40], 300);
    bucket.put(block(1), &[("shop", profiles(0..30, &[10, 20, 30, 40], 300))]).await;
    for capacity in [0, 1_000, 50_000, 200_000] {
        disk.set_capacity(Some(capacity));
        let gateway = on_disk(&bucket, &disk, &config()).await;
        for ask in [tree("{}", 0, 60), tree(r#"{pod="pod-3"}"#, 15, 60)] {
            assert_eq!(said(&of_block(&gateway, &ask, 1, false).await), said(&expected(&ask, &source)));
            gateway.maintain_disk_cache().await;
        }
    }
}

/// Questions that differ have what they read in common.
#[tokio::test]
async fn a_new_block_is_fetched_once_for_all_who_ask_at_once() {
    let bucket = Bucket::new();
    let source = profiles(0..3, &[10, 20, 30], 20);
    bucket.put(block(1), &[("shop", profiles(0..3, &[10, 20, 30], 20))]).await;
    let mut asks =
        vec![ask("{}", 0, 60, QueryKind::LabelNames), ask("{}", 0, 60, QueryKind::Series(Vec::new()))];
    for (from, pod) in [0, 5, 15, 25].into_iter().flat_map(|from| [(from, 0), (from, 1)]) {
        asks.push(tree(&format!(r#"{{pod=~"pod-[{pod}-2]"}}"#), from, 60));
    }
    let gateway = gateway(&bucket, &config());
    bucket.hold().await;
    // Some know that they want all of it, others first look of which time it is.
    let whole = |ask: &ProfileQuery| ask.selection.time.from == 0;
    let mut asking: Vec<_> =
        asks.iter().map(|ask| Box::pin(of_block(&gateway, ask, 1, whole(ask)))).collect();
    for one in &mut asking {
        assert!(futures::poll!(one).is_pending());
    }
    // Who came first leaves.
    drop(asking.remove(0));
    bucket.go_on();
    for (ask, answer) in asks[1..].iter().zip(futures::future::join_all(asking).await) {
        assert_eq!(said(&answer), said(&expected(ask, &source)), "{:?}", ask.selection);
    }
    let mut files: Vec<String> = bucket.reads().into_iter().map(|(file, _)| file).collect();
    files.sort();
    let wanted = ["functions", "locations", "meta", "profiles", "rollup", "samples", "series", "stacks"];
    let names: Vec<&str> = files.iter().filter_map(|file| file.split('.').next()).collect();
    assert_eq!(names, wanted, "each file is small, and was read once");
}
