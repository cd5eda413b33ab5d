//! All voters have lost their disks, and the catalogue comes back from the bucket and from what nodes tell.

use std::collections::BTreeSet;

use athanor_block::{FILES, FileMeta, LogRange, META, Meta, Origin, Run, TenantMeta};
use athanor_catalog::{BlockEntry, BlockId, Catalog, Command, Described, Listing, Phase, Rows, Settings};
use athanor_chassis::{Code, Coded, Random, TenantId, Timestamp};
use athanor_metastore::{
    Client, RebuildFailed, Rebuilding, Rebuilt, Report, Shelf, begin_again, lying_block, rebuild,
};
use athanor_storage::Store;
use athanor_storage::path::{FileName, Key, Owner};

use crate::asking::change;
use crate::harness::{CLUSTER, Town, simulate};

/// Nodes with logs of shards.
const KEEPERS: [u64; 3] = [11, 12, 13];

fn key(id: BlockId, file: &str) -> Key {
    let file = FileName::new(file).unwrap();
    Key::Block { owner: Owner::Shared, block: id.number(), file }
}

/// A block that lies in the bucket as a cutter leaves it; gives what is registered of it.
async fn write(store: &Store, id: BlockId, cluster: u128, shard: u32, (from, to): (u64, u64)) -> BlockEntry {
    let origin = Origin {
        cluster: format!("{cluster:032x}"),
        shard,
        epoch: 1,
        from,
        to,
        lost: 0,
        level: 0,
        further: Vec::new(),
        inputs: Vec::new(),
    };
    write_of(store, id, origin).await
}

/// One that was made of others, which are all of the cluster.
async fn write_made(store: &Store, id: BlockId, inputs: &[&BlockEntry]) -> BlockEntry {
    let rows = Rows::joined(inputs.iter().flat_map(|input| input.rows()));
    let range = |&Rows { shard, epoch, from, to }: &Rows| LogRange { shard, epoch, from, to };
    let LogRange { shard, epoch, from, to } = range(&rows[0]);
    let origin = Origin {
        cluster: format!("{CLUSTER:032x}"),
        shard,
        epoch,
        from,
        to,
        lost: 0,
        level: 1,
        further: rows[1..].iter().map(range).collect(),
        inputs: inputs.iter().map(|input| input.id.to_string()).collect(),
    };
    write_of(store, id, origin).await
}

async fn write_of(store: &Store, id: BlockId, origin: Origin) -> BlockEntry {
    let file = FileMeta { bytes: 8, checksums: vec![7], ..FileMeta::default() };
    let tenant = TenantMeta {
        tenant: "anonymous".to_owned(),
        min_time: 5,
        max_time: 9,
        profiles: Run(0, 1),
        samples: 3,
        ..TenantMeta::default()
    };
    let meta = Meta {
        id: id.to_string(),
        origin: Some(origin),
        tenants: vec![tenant],
        files: FILES.iter().map(|name| ((*name).to_owned(), file.clone())).collect(),
        ..Meta::default()
    };
    for name in FILES {
        store.create(&key(id, name), vec![0; 8].into()).await.unwrap();
    }
    store.create(&key(id, META), meta.encode().into()).await.unwrap();
    lying_block(id, &meta, meta.origin.as_ref().unwrap()).unwrap().block
}

fn described(shard: u32, cut: u64) -> impl Iterator<Item = Described> {
    let told = move |node: u64| Described {
        node: Some(node),
        shard,
        members: KEEPERS.into(),
        // Not all have heard of the last cut.
        cut: cut.saturating_sub(node % 2),
        fenced: 1,
        ..Described::default()
    };
    KEEPERS.into_iter().map(told)
}

async fn listed(catalog: &dyn Catalog) -> Listing {
    catalog.listing(&TenantId::anonymous(), i64::MIN, i64::MAX).await.unwrap()
}

async fn open_two_shards(client: &Client) {
    let settings = Settings { copies: 3, ..Settings::default() };
    client.change(Command::Configure { expected: Settings::default(), settings }).await.unwrap();
    let zones = KEEPERS.map(|node| (node, node.to_string())).into();
    let members = vec![KEEPERS.into(); 2];
    client.change(Command::OpenSlots { count: 2, members, zones }).await.unwrap();
    for shard in [1, 2] {
        let opened = Command::Opened { shard, inherited: athanor_catalog::Inherits::Nothing, fenced: 1 };
        client.change(opened).await.unwrap();
    }
}

#[test]
fn what_was_registered_is_again_and_nothing_else() {
    simulate(async {
        let mut town = Town::new(61);
        let (store, clock, random) = (town.store.clone(), town.clock.clone(), Random::seeded(61));
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
            client.register(write(&store, name(), CLUSTER, shard, range).await).await.unwrap();
        }
        let shelf = Shelf::new(store.clone(), CLUSTER);
        while shelf.newest().await.unwrap().0.is_none_or(|found| found.state.blocks().count() < 2) {
            clock.sleep(std::time::Duration::from_secs(10)).await;
        }
        // After the last snapshot: more blocks, one of another cluster, and one that was not finished.
        let mut cut = 10;
        for to in [20, 25, 40] {
            cut = client.register(write(&store, name(), CLUSTER, 1, (cut, to)).await).await.unwrap();
        }
        // Blocks of both shards become one, and what it was made of still lies there; another one was to be made of that.
        let Listing { blocks, .. } = listed(&client).await;
        let young = |shard| blocks.iter().filter(|block| block.shard == shard).max_by_key(|block| block.to);
        let inputs = [young(1).unwrap(), young(2).unwrap()];
        let made = write_made(&store, name(), &inputs).await;
        client.replace(inputs.map(|input| input.id).to_vec(), vec![made.clone()]).await.unwrap();
        client.replace(inputs.map(|input| input.id).to_vec(), vec![made.clone()]).await.unwrap();
        clock.sleep(std::time::Duration::from_secs(1)).await;
        let other = write_made(&store, name(), &inputs[..1]).await;
        let late = client.replace(vec![inputs[0].id], vec![other]).await.unwrap_err();
        assert!(late.to_string().contains("is not listed: it was replaced"), "{late}");
        write(&store, name(), CLUSTER, 2, (5, 7)).await;
        write(&store, name(), CLUSTER + 1, 2, (7, 9)).await;
        let unfinished = name();
        store.create(&key(unfinished, FILES[0]), vec![0; 8].into()).await.unwrap();
        let before = listed(&client).await;
        for node in 1..=3 {
            town.kill(node).await;
        }

        let described: Vec<Described> = described(1, 40).chain(described(2, 7)).collect();
        let rebuilding = Rebuilding {
            store: store.clone(),
            cluster: CLUSTER,
            described: described.clone(),
            without: BTreeSet::new(),
            at: clock.wall(),
            kept_from: Timestamp::EPOCH,
        };
        let silent = described.iter().filter(|told| told.node != Some(12)).cloned().collect();
        let silent = Rebuilding { described: silent, ..rebuilding.clone() };
        let refused = rebuild(silent.clone()).await.unwrap_err();
        assert!(matches!(refused, RebuildFailed::Silent { node: 12 }) && refused.code() == Code::Unavailable);
        rebuild(Rebuilding { without: [12].into(), ..silent }).await.unwrap();

        let (rebuilt, report) = rebuild(rebuilding).await.unwrap();
        let Report { snapshot, odd_blocks, findings, .. } = &report;
        assert!(snapshot.is_some_and(|index| index < rebuilt.index), "{report:?}");
        assert_eq!((findings.recalled.len(), findings.passed_over.len()), (3, 6), "{report:?}");
        assert!(findings.gaps.is_empty() && findings.shards.is_empty(), "{report:?}");
        assert_eq!(odd_blocks.len(), 2, "{report:?}");
        goes_on(town, &before, &rebuilt).await;
    });
}

/// The group is founded again on a node without a disk, others join, and all is as it was.
async fn goes_on(mut town: Town, before: &Listing, rebuilt: &Rebuilt) {
    let deps = town.deps(4);
    begin_again(&deps, rebuilt).await.unwrap();
    let again = begin_again(&deps, rebuilt).await.unwrap_err();
    assert!(again.to_string().contains("has a log of group 0 already"), "{again}");
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
        let shards = |listing: &Listing| -> Vec<(u32, u64, Phase)> {
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
