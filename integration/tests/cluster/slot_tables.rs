//! A new table of slots, and what is sent again across it.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_catalog::{CatalogCommand, RoutingView};
use athanor_chassis::{ErrorCode, TenantId};
use athanor_cluster::placement::{SlotTable, SlotTableSpec, series_slot};
use athanor_integration::cluster::{TestCluster, run_on};
use athanor_profile::Labels;
use athanor_profile::labeling::normalize::SERVICE_LABEL;

use crate::oracle::{labels, time};
use crate::scenarios::opened;

const SLOTS: u32 = 4;
/// The first profile that the new table places.
pub const CHANGE: usize = 21;
/// Doors that hear of it, and one that does not.
const DOORS: [usize; 3] = [0, 1, 2];
const DEAF: usize = 3;

fn newest(view: &RoutingView) -> u64 {
    view.tables.as_ref().map_or(0, |tables| tables.table_at(i64::MAX).version())
}

/// By the second table the tenant has one slot, so that of its services most move.
fn second() -> SlotTable {
    let tenants = BTreeMap::from([(TenantId::anonymous(), 1)]);
    let services = BTreeMap::new();
    let (version, from, slots, subset) = (2, time(CHANGE), (0..SLOTS).collect(), u16::MAX);
    SlotTableSpec { version, from, slots, subset, tenants, services }.try_into().unwrap()
}

/// Whether the second table places a profile elsewhere than the first one.
fn moves(number: usize) -> bool {
    let first = SlotTable::with_all_slots(1, i64::MIN, (0..SLOTS).collect()).unwrap();
    let sent = Labels::new(labels(number));
    let slot = |table: &SlotTable| {
        series_slot(table, &TenantId::anonymous(), sent.get(SERVICE_LABEL).unwrap(), &sent)
    };
    slot(&first) != slot(&second())
}

/// Has a new table hold, and waits until some nodes know it.
pub async fn change(cluster: &TestCluster, table: SlotTable, by: &[&str]) {
    let (runtime, catalog) = cluster.catalog(by[0]);
    let version = table.version();
    run_on(runtime, async move { catalog.apply_command(CatalogCommand::ProposeTable { table }).await })
        .await
        .unwrap();
    for name in by {
        let known = || newest(&cluster.node(name).roles().views.current()) == version;
        cluster.wait_until(&format!("{name} knows the new table"), known).await;
    }
}

/// Profiles go by the table of their time, whichever door takes them and whenever they come. A door that knows the first table
/// only stores nothing that the second one places [INV-04, INV-05].
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_again_after_a_new_table_is_known() {
    let all_else = "ingester,distributor,querier";
    let nodes = TestCluster::builder()
        .node("m", "zm", "metastore")
        .node("a", "za", all_else)
        .node("b", "zb", all_else)
        .node("c", "zc", all_else)
        .node("d", "zd", "distributor")
        .config(|config| {
            config.metastore.voters = 1;
            config.cluster.initial_slots = Some(SLOTS);
            config.ingester.flush.max_head_age = Duration::from_secs(1);
        });
    let (mut cluster, mut oracle) = opened(nodes, SLOTS as usize).await;
    // The last ones of the first table's time come late.
    oracle.store_at(&cluster, &DOORS, CHANGE - 7).await;
    cluster.partition("d", "m");
    change(&cluster, second(), &["m", "a", "b", "c"]).await;
    oracle.store_at(&cluster, &DOORS, 7).await;
    oracle.store_at(&cluster, &DOORS, 14).await;
    let moved = (CHANGE..oracle.len()).filter(|&number| moves(number)).count();
    assert!(moved > 0, "the second table moves nothing");
    // What the first table places may come by any door.
    oracle.repeat_at(&cluster, &[DEAF, 0, 1, 2], 0..CHANGE).await;
    oracle.repeat_at(&cluster, &DOORS, CHANGE..oracle.len()).await;

    let late = oracle.make();
    assert_eq!(newest(&cluster.node("d").roles().views.current()), 1);
    let refused = oracle.sending(&cluster, DEAF, &[late]);
    let meanwhile = async {
        for place in DOORS {
            oracle.check(&cluster, place).await;
        }
    };
    let (refused, ()) = tokio::join!(refused, meanwhile);
    let refused = refused.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unavailable, "{refused:?}");
    let stored = oracle.send(&cluster, 0, &[late]).await.unwrap();
    assert_eq!(
        (stored.new, stored.repeats),
        (1, 0),
        "the door that knew nothing of the table stored nothing"
    );

    cluster.heal_network();
    // Each of them by each door, the one among them that hears of the table only now.
    for place in 0..=DEAF {
        oracle.repeat(&cluster, place).await;
    }
    // Fences are in logs, and outlive who led.
    cluster.kill("a");
    oracle.repeat(&cluster, 1).await;
    oracle.store_at(&cluster, &[0, 1], 7).await;
    cluster.start_nodes(&["a"]).await;
    oracle.repeat(&cluster, 2).await;
    cluster.wait_until("all is cut", || cluster.is_flushed(SLOTS as usize)).await;
    for (name, place) in [("a", 0), ("b", 1), ("c", 2)] {
        oracle.check(&cluster, place).await;
        oracle.check_blocks(&cluster, name).await;
    }
}
