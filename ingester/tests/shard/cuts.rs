//! Cuts that are asked for.

use super::*;

#[test]
fn a_shard_that_cannot_be_cut_keeps_no_other_from_it() {
    simulate(async {
        let World { remains, .. } = World::new().await;
        let (log_disk, state_disk, catalog) = (MemoryDisk::new(), MemoryDisk::new(), Arc::default());
        let world = World::boot(Remains { slots: 2, log_disk, state_disk, catalog, ..remains }).await;
        let rows = profile(now(), &[("a;b", 1)]);
        for slot in 0..2 {
            let stored = world.ingester.append(slot, &tenant("acme"), vec![upload(&rows)]).await;
            assert_eq!(stored[0].as_ref().unwrap().new, 1);
        }
        world.remains.catalog.barred.store(1, Ordering::Relaxed);
        let failed = world.ingester.cut(&world.remains.clock, Duration::from_secs(30)).await.unwrap_err();
        let said = "shard 1: not done within 30s: the catalogue cannot be asked: told to fail";
        assert_eq!((failed.code, failed.message.as_str()), (Code::Deadline, said));
        let shards: Vec<u32> =
            world.remains.catalog.blocks().await.unwrap().iter().map(|block| block.shard).collect();
        assert_eq!(shards, [2]);
        let stats = world.ingester.stats(&world.remains.clock);
        let counted: Vec<_> =
            stats.iter().map(|shard| (shard.cuts.took.count(), shard.cuts.failed > 0)).collect();
        assert_eq!(counted, [(0, true), (1, false)]);
        world.remains.catalog.barred.store(0, Ordering::Relaxed);
        world.cut().await;
        assert_eq!((world.blocks().await, world.total().await), (2, 2));
    });
}
