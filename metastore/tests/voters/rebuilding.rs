//! All voters have lost their disks, and the catalogue comes back from the bucket and from what nodes tell.

use std::collections::BTreeSet;

use athanor_block::{
    BlockMeta, BlockOrigin, FileMeta, IdRange, JobOrigin, LogRange, META_FILE, PARQUET_FILES, TenantMeta,
};
use athanor_catalog::{
    BlockEntry, BlockId, BlockListing, Catalog, CatalogCommand, CatalogSettings, JobParts, ShardLogRange,
    ShardPhase, ShardReport,
};
use athanor_chassis::{Clock, ErrorCode, ErrorCodeExt, Random, TenantId, Tier, Timestamp};
use athanor_metastore::{
    MetastoreClient, MetastoreRecoveryError, RecoveredState, RecoveryParams, RecoveryReport, SnapshotStore,
    block_owner, bucket_block_from_meta, install_recovered_state, recover_catalog,
};
use athanor_storage::Store;
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};

use crate::asking::change;
use crate::harness::{CLUSTER, Town, simulate};

/// Nodes with logs of shards.
const KEEPERS: [u64; 3] = [11, 12, 13];

fn key(owner: &BlockOwner, id: BlockId, file: &str) -> ObjectKey {
    let file = FileName::new(file).unwrap();
    ObjectKey::Block { owner: owner.clone(), block: id.number(), file }
}

/// A block that lies in the bucket as a cutter leaves it; gives what is registered of it.
async fn write(store: &Store, id: BlockId, cluster: u128, shard: u32, (from, to): (u64, u64)) -> BlockEntry {
    let origin = BlockOrigin {
        cluster: format!("{cluster:032x}"),
        shard,
        epoch: 1,
        from,
        to,
        lost: 0,
        level: 0,
        additional_ranges: Vec::new(),
        tier: Tier::Raw,
        is_covered: false,
        job: None,
    };
    write_of(store, id, origin, tenant_rows(1)).await
}

fn tenant_rows(profiles: u32) -> TenantMeta {
    TenantMeta {
        tenant: "anonymous".to_owned(),
        min_time: 5,
        max_time: 9,
        profiles: IdRange(0, profiles),
        samples: 3 * u64::from(profiles),
        sum: Some(7 * u64::from(profiles)),
        ..TenantMeta::default()
    }
}

/// The outputs of a job that merges all rows of blocks, one for each id. From level 2 on they are of all tiers, and
/// lie in the folder of their tenant.
async fn write_merged(
    store: &Store,
    ids: &[BlockId],
    token: u64,
    level: u8,
    inputs: &[&BlockEntry],
) -> Vec<BlockEntry> {
    let rows = ShardLogRange::join_adjacent(inputs.iter().flat_map(|input| input.log_ranges()));
    let range =
        |&ShardLogRange { shard, epoch, from, to }: &ShardLogRange| LogRange { shard, epoch, from, to };
    let LogRange { shard, epoch, from, to } = range(&rows[0]);
    let job = JobOrigin {
        token,
        outputs: ids.iter().map(ToString::to_string).collect(),
        blocks: inputs.iter().map(|input| input.id.to_string()).collect(),
        tenants: [("anonymous".to_owned(), (0..inputs.len() as u32).collect())].into(),
    };
    let origin = |tier: Tier| BlockOrigin {
        cluster: format!("{CLUSTER:032x}"),
        shard,
        epoch,
        from,
        to,
        lost: 0,
        level,
        additional_ranges: rows[1..].iter().map(range).collect(),
        tier,
        is_covered: tier.is_raw() && level > 1,
        job: Some(job.clone()),
    };
    let arrivals = inputs.iter().map(|input| input.newest_arrival(&input.tenants[0]).nanos());
    let newest_arrival = arrivals.max().unwrap() as u64;
    let rows = TenantMeta { newest_arrival, ..tenant_rows(inputs.len() as u32) };
    let mut outputs = Vec::new();
    for (id, tier) in ids.iter().zip(Tier::ALL) {
        let downsampled = TenantMeta {
            min_time: tier.bucket_end(rows.min_time),
            max_time: tier.bucket_end(rows.max_time),
            profiles: IdRange(0, 1),
            records: inputs.len() as u64,
            ..rows.clone()
        };
        let rows = if tier.is_raw() { rows.clone() } else { downsampled };
        outputs.push(write_of(store, *id, origin(tier), rows).await);
    }
    outputs
}

async fn write_of(store: &Store, id: BlockId, origin: BlockOrigin, tenant: TenantMeta) -> BlockEntry {
    let file = FileMeta { bytes: 8, checksums: vec![7], ..FileMeta::default() };
    let meta = BlockMeta {
        id: id.to_string(),
        origin: Some(origin),
        tenants: vec![tenant],
        files: PARQUET_FILES.iter().map(|name| ((*name).to_owned(), file.clone())).collect(),
        ..BlockMeta::default()
    };
    let block = bucket_block_from_meta(id, &meta, meta.origin.as_ref().unwrap()).unwrap().block;
    let owner = block_owner(&block);
    for name in PARQUET_FILES {
        store.create(&key(&owner, id, name), vec![0; 8].into()).await.unwrap();
    }
    store.create(&key(&owner, id, META_FILE), meta.encode().into()).await.unwrap();
    block
}

fn reports(shard: u32, cut: u64) -> impl Iterator<Item = ShardReport> {
    let told = move |node: u64| ShardReport {
        node: Some(node),
        shard,
        members: KEEPERS.into(),
        // Not all have heard of the last cut.
        flushed: cut.saturating_sub(node % 2),
        fenced: 1,
        ..ShardReport::default()
    };
    KEEPERS.into_iter().map(told)
}

async fn listed(catalog: &dyn Catalog) -> BlockListing {
    catalog.list_blocks(&TenantId::anonymous(), i64::MIN, i64::MAX).await.unwrap()
}

async fn open_two_shards(client: &MetastoreClient) {
    let settings = CatalogSettings { replication_factor: 3, ..CatalogSettings::default() };
    client
        .apply_command(CatalogCommand::UpdateSettings { expected: CatalogSettings::default(), settings })
        .await
        .unwrap();
    let zones = KEEPERS.map(|node| (node, node.to_string())).into();
    let members = vec![KEEPERS.into(); 2];
    client.apply_command(CatalogCommand::OpenSlots { count: 2, members, zones }).await.unwrap();
    for shard in [1, 2] {
        let opened =
            CatalogCommand::Opened { shard, inherited: athanor_catalog::HandoffSource::None, fenced: 1 };
        client.apply_command(opened).await.unwrap();
    }
}

/// Merges the newest blocks of both shards, and removes an object of one. Another job does not finish.
async fn run_jobs(client: &MetastoreClient, store: &Store, clock: &Clock, random: &Random) {
    let name = || BlockId::new(clock.wall(), random);
    let BlockListing { blocks, .. } = listed(client).await;
    let newest = |shard| blocks.iter().filter(|block| block.shard == shard).max_by_key(|block| block.to);
    let inputs = [newest(1).unwrap(), newest(2).unwrap()];
    let claim = |blocks: &[&BlockEntry]| JobParts::from_entries(blocks.iter().copied());
    let token = client.claim_parts(11, claim(&inputs)).await.unwrap();
    clock.sleep(std::time::Duration::from_secs(1)).await;
    let merged = write_merged(store, &Tier::ALL.map(|_| name()), token, 2, &inputs).await;
    assert!(merged.iter().all(|block| block_owner(block) == BlockOwner::Tenant(TenantId::anonymous())));
    for _ in 0..2 {
        client.finish_job(token, merged.clone(), Vec::new(), Vec::new()).await.unwrap();
    }
    store.delete(&key(&BlockOwner::Shared, inputs[1].id, META_FILE)).await.unwrap();
    let unmerged = blocks.iter().find(|block| block.shard == 1 && block.to == 25).unwrap();
    let token = client.claim_parts(12, claim(&[unmerged])).await.unwrap();
    write_merged(store, &[name()], token, 1, &[unmerged]).await;
}

#[test]
fn what_was_registered_is_again_and_nothing_else() {
    simulate(async {
        let mut town = Town::new(61);
        let (store, clock, random) = (town.store.clone(), town.clock.clone(), Random::from_seed(61));
        for node in 1..=3 {
            town.begin(node, 3).await;
        }
        let client = town.client(2);
        open_two_shards(&client).await;
        let name = || BlockId::new(clock.wall(), &random);
        for (shard, range) in [(1, (0, 10)), (2, (0, 7))] {
            // One that was written before, and then by another leader; only that was registered.
            write(&store, name(), CLUSTER, shard, range).await;
            clock.sleep(std::time::Duration::from_secs(1)).await;
            client.register_block(write(&store, name(), CLUSTER, shard, range).await).await.unwrap();
        }
        let shelf = SnapshotStore::new(store.clone(), CLUSTER);
        while shelf.newest_readable().await.unwrap().0.is_none_or(|found| found.state.blocks().count() < 2) {
            clock.sleep(std::time::Duration::from_secs(10)).await;
        }
        // After the last snapshot: more blocks, one of another cluster, and one that was not finished.
        let mut cut = 10;
        for to in [20, 25, 40] {
            cut = client.register_block(write(&store, name(), CLUSTER, 1, (cut, to)).await).await.unwrap();
        }
        run_jobs(&client, &store, &clock, &random).await;
        write(&store, name(), CLUSTER, 2, (5, 7)).await;
        write(&store, name(), CLUSTER + 1, 2, (7, 9)).await;
        let unfinished = name();
        store
            .create(&key(&BlockOwner::Shared, unfinished, PARQUET_FILES[0]), vec![0; 8].into())
            .await
            .unwrap();
        let before = listed(&client).await;
        for node in 1..=3 {
            town.kill(node).await;
        }

        let reports: Vec<ShardReport> = reports(1, 40).chain(reports(2, 7)).collect();
        let rebuilding = RecoveryParams {
            store: store.clone(),
            cluster: CLUSTER,
            reports: reports.clone(),
            without: BTreeSet::new(),
            at: clock.wall(),
            retained_since: Timestamp::UNIX_EPOCH,
        };
        let silent = reports.iter().filter(|told| told.node != Some(12)).cloned().collect();
        let silent = RecoveryParams { reports: silent, ..rebuilding.clone() };
        let refused = recover_catalog(silent.clone()).await.unwrap_err();
        assert!(
            matches!(refused, MetastoreRecoveryError::MissingReport { node: 12 })
                && refused.code() == ErrorCode::Unavailable
        );
        recover_catalog(RecoveryParams { without: [12].into(), ..silent }).await.unwrap();

        let (rebuilt, report) = recover_catalog(rebuilding).await.unwrap();
        let RecoveryReport { snapshot, skipped_blocks, findings, .. } = &report;
        assert!(snapshot.is_some_and(|index| index < rebuilt.index), "{report:?}");
        assert_eq!((findings.reinstated.len(), findings.skipped.len()), (6, 5), "{report:?}");
        assert!(findings.gaps.is_empty() && findings.new_shards.is_empty(), "{report:?}");
        assert_eq!(skipped_blocks.len(), 3, "{report:?}");
        goes_on(town, &before, &rebuilt).await;
    });
}

/// The group is founded again on a node without a disk, others join, and all is as it was.
async fn goes_on(mut town: Town, before: &BlockListing, rebuilt: &RecoveredState) {
    let deps = town.deps(4);
    install_recovered_state(&deps, rebuilt).await.unwrap();
    let again = install_recovered_state(&deps, rebuilt).await.unwrap_err();
    assert!(again.to_string().contains("already has a log of group 0"), "{again}");
    deps.log.close();
    for node in [4, 5, 6] {
        town.begin(node, 3).await;
    }
    let client = town.client(5);
    while client.voters().await.unwrap().len() < 3 {
        town.clock.sleep(std::time::Duration::from_secs(1)).await;
    }
    for node in [4, 5, 6] {
        let after = listed(&town.client(node)).await;
        assert!(after.revision > before.revision);
        assert_eq!(after.blocks, before.blocks);
        let shards = |listing: &BlockListing| -> Vec<(u32, u64, ShardPhase)> {
            let shards = listing.shards.iter();
            shards.map(|shard| (shard.id, shard.watermark, shard.phase.clone())).collect()
        };
        assert_eq!(shards(&after), shards(before));
    }
    client.propose(change(1)).await.unwrap();
    for node in [4, 5, 6] {
        town.kill(node).await;
    }
    for node in [4, 5, 6] {
        town.begin(node, 3).await;
    }
    town.leader().await;
    assert_eq!(listed(&town.client(6)).await.blocks, before.blocks);
}
