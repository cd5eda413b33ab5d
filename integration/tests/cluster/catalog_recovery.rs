//! A cluster whose catalogue lost the disks of all its voters is put together again by `athanor metastore recover`, and every
//! sum is what it was [INV-16].
//!
//! Real processes, killed. When that happens, some profiles lie in blocks and some in logs only; one shard was followed by
//! another that no snapshot knows; and in the bucket lie a block that was never registered, one that was not written to its
//! end, one that lacks files, and one that says nothing.

mod bucket;
mod fleet;
mod ledger;

use fleet::Fleet;
use ledger::Ledger;

const METASTORES: [&str; 3] = ["metastore-a", "metastore-b", "metastore-c"];
const INGESTERS: [&str; 3] = ["ingester-a", "ingester-b", "ingester-c"];

fn cut(fleet: &Fleet) {
    for name in INGESTERS {
        fleet.command(&["flush", "--data", &fleet.data(name)]);
    }
}

#[test]
fn all_is_there_once_after_all_voters_lost_their_disks() {
    let mut fleet = Fleet::plan(&METASTORES, &INGESTERS);
    let mut ledger = Ledger::default();
    fleet.start(&METASTORES);
    fleet.start(&INGESTERS);
    fleet.until("two shards are open", |fleet| fleet.serving() == [(0, 1), (1, 1)]);
    ledger.push(&fleet, &INGESTERS, 1);
    cut(&fleet);
    ledger.push(&fleet, &INGESTERS, 2);
    fleet.command(&["shard", "seal", "1", "--data", &fleet.data(INGESTERS[0])]);
    fleet.until("the first shard is followed", |fleet| fleet.serving() == [(0, 2), (1, 1)]);
    ledger.push(&fleet, &INGESTERS, 3);
    ledger.compare(&fleet, &INGESTERS);

    fleet.kill(&METASTORES);
    fleet.kill(&INGESTERS);
    let litter = bucket::litter(&fleet.bucket());
    fleet.wipe(&METASTORES);
    fleet.start(&INGESTERS);
    let said = fleet.command(&["metastore", "recover", "--config", &fleet.config(METASTORES[0])]);
    for block in litter.odd {
        assert!(said.contains(&format!("skipped: block {block}")), "{block} is not told:\n{said}");
    }
    assert!(!said.contains("lost"), "{said}");

    fleet.start(&METASTORES);
    fleet.until("the shards are open again", |fleet| fleet.serving() == [(0, 2), (1, 1)]);
    ledger.compare(&fleet, &INGESTERS);
    // What comes again is known.
    ledger.repeat(&fleet, &INGESTERS);
    ledger.compare(&fleet, &INGESTERS);
    ledger.push(&fleet, &INGESTERS, 4);
    cut(&fleet);
    ledger.compare(&fleet, &INGESTERS);
    fleet.until("three vote", |fleet| {
        fleet.command(&["metastore", "voters", "list", "--data", &fleet.data(METASTORES[0])]).lines().count()
            == 3
    });
}
