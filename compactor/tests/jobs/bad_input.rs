//! Damaged inputs are quarantined by name, and all else is merged.

use std::collections::BTreeSet;

use athanor_block::{BlockMeta, META_FILE, PARQUET_FILES};
use athanor_catalog::{BlockId, Catalog, CatalogCommand, PartId};
use athanor_compactor::JobOutcome;
use object_store::ObjectStoreExt;

use crate::test_catalog::quarantined;
use crate::world::{CLUSTER, Row, SECOND, START, World, model, path, row};

const TIME: i64 = START * SECOND;

/// Fault of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    FlippedBit,
    Truncated,
    Extended,
    Missing,
}

const FAULTS: [Fault; 4] = [Fault::FlippedBit, Fault::Truncated, Fault::Extended, Fault::Missing];

async fn break_object(world: &World, block: BlockId, file: &str, fault: Fault) {
    match fault {
        Fault::FlippedBit => {
            world
                .tamper(block, file, |bytes| {
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 4;
                })
                .await;
        }
        Fault::Truncated => world.tamper(block, file, |bytes| bytes.truncate(bytes.len() / 2)).await,
        Fault::Extended => world.tamper(block, file, |bytes| bytes.extend_from_slice(b"more")).await,
        Fault::Missing => world.objects.delete(&path(block, None, file)).await.unwrap(),
    }
}

fn rows(tenant: &str, from: u64) -> Vec<Row> {
    (from..from + 5).map(|id| row(tenant, "shop", TIME + id as i64, id)).collect()
}

/// Compacts, and returns the parts that were quarantined after three failures that each named them.
async fn compact_with_failures(world: &World) -> BTreeSet<PartId> {
    let outcomes = world.compact().await;
    let culprits: Vec<PartId> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            JobOutcome::Finished => None,
            JobOutcome::Failed { reason, culprit: Some(culprit) } => {
                assert!(reason.contains(&culprit.block.to_string()), "{reason}");
                Some(culprit.clone())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let quarantined = quarantined(&world.catalog.compaction_status().await.unwrap());
    for part in &quarantined {
        assert_eq!(culprits.iter().filter(|culprit| *culprit == part).count(), 3, "{culprits:?}");
    }
    assert_eq!(culprits.len(), 3 * quarantined.len(), "{culprits:?}");
    quarantined
}

#[tokio::test]
async fn each_damaged_object_of_one_tenant_is_quarantined_by_name() {
    for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
        for fault in FAULTS {
            let world = World::new().await;
            let sound = world.flush(&rows("acme", 0)).await;
            let broken = world.flush(&rows("acme", 10)).await;
            world.flush(&rows("beta", 20)).await;
            break_object(&world, broken, file, fault).await;
            let quarantined = compact_with_failures(&world).await;
            // No merge reads the index or an empty table, and none reads beyond the listed length of a file.
            let is_unread = file == "index.parquet" || file == "mappings.parquet";
            let is_harmless = is_unread || fault == Fault::Extended && file != META_FILE;
            if is_harmless {
                assert!(quarantined.is_empty(), "{file} {fault:?}");
                continue;
            }
            let part = PartId { block: broken, tenant: "acme".parse().unwrap() };
            assert_eq!(quarantined, [part].into(), "{file} {fault:?}");
            let listed = world.listed().await;
            let flushed: Vec<BlockId> =
                listed.iter().filter(|block| block.level == 0).map(|block| block.id).collect();
            assert_eq!(flushed, [broken], "{file} {fault:?}: {sound} and all others are merged");
        }
    }
}

#[tokio::test]
async fn damage_of_one_tenant_stops_no_other_of_its_block() {
    let world = World::new().await;
    // Each tenant has several pages of its own in the table of samples.
    let many = |tenant: &str, from: u64| -> Vec<Row> {
        let values =
            |id: u64| (1..16_000).map(|value| (value * 2_654_435_761 + id as i64) % 4_294_967_291).collect();
        (from..from + 4).map(|id| Row { values: values(id), ..row(tenant, "shop", TIME, id) }).collect()
    };
    let both = [many("acme", 0), many("zulu", 10)].concat();
    let broken = world.flush(&both).await;
    world.flush(&rows("acme", 20)).await;
    world.flush(&rows("zulu", 30)).await;
    // The last rows of the last tenant, before the footer.
    let file = "samples.parquet";
    world
        .tamper(broken, file, |bytes| {
            let place = bytes.len() * 85 / 100;
            bytes[place] ^= 1;
        })
        .await;
    let quarantined = compact_with_failures(&world).await;
    assert_eq!(quarantined, [PartId { block: broken, tenant: "zulu".parse().unwrap() }].into());
    let listed = world.listed().await;
    let left = listed.iter().find(|block| block.id == broken).unwrap();
    assert_eq!(left.tenants.len(), 1, "the part of acme is merged");
    assert!(listed.iter().filter(|block| block.id != broken).all(|block| block.level == 1));
}

#[tokio::test]
async fn block_of_another_cluster_is_quarantined() {
    let world = World::new().await;
    let sound = rows("beta", 10);
    let foreign = world.flush_of_cluster(&rows("acme", 0), CLUSTER + 1).await;
    world.flush(&sound).await;
    let quarantined = compact_with_failures(&world).await;
    assert_eq!(quarantined, [PartId { block: foreign, tenant: "acme".parse().unwrap() }].into());
}

#[tokio::test]
async fn block_of_a_newer_format_is_quarantined_until_it_is_retried() {
    let world = World::new().await;
    let written = rows("acme", 0);
    let newer = world.flush(&written).await;
    let path = path(newer, None, META_FILE);
    let known = world.objects.get(&path).await.unwrap().bytes().await.unwrap();
    let mut meta = BlockMeta::decode(&known).unwrap();
    meta.format = 99;
    world.objects.put(&path, meta.encode().into()).await.unwrap();
    let quarantined = compact_with_failures(&world).await;
    assert_eq!(quarantined.len(), 1);
    let status = world.catalog.compaction_status().await.unwrap();
    assert!(status.failures[0].1.reason.contains("format 99"), "{status:?}");
    world.objects.put(&path, known.into()).await.unwrap();
    let retry = CatalogCommand::RetryParts { parts: Vec::new() };
    world.catalog.apply_command(retry).await.unwrap();
    assert_eq!(world.compact().await, [JobOutcome::Finished]);
    assert_eq!(world.rows().await, model(&[&written]));
}
