//! What it costs to place one profile.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::hint::black_box;

use athanor_chassis::TenantId;
use athanor_cluster::placement::{SlotTable, SlotTableSpec, SlotTables, TenantSlots, series_slot};
use athanor_profile::Labels;
use criterion::{Criterion, criterion_group, criterion_main};

fn table(tenant: &TenantId, slots: u32, subset: u16) -> SlotTable {
    let services = BTreeMap::from([(tenant.clone(), BTreeMap::from([("large".to_owned(), 8)]))]);
    let slots = (0..slots).collect();
    SlotTableSpec { version: 1, from: i64::MIN, slots, subset, tenants: BTreeMap::new(), services }
        .try_into()
        .unwrap()
}

fn placement(criterion: &mut Criterion) {
    let tenant: TenantId = "acme".parse().unwrap();
    let pairs = [("service_name", "checkout"), ("pod", "checkout-7d9c5b7c4-x2x7q"), ("region", "eu-west-1")];
    let sent = Labels::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    for (slots, subset) in [(4, u16::MAX), (64, 16), (4096, 64)] {
        let table = table(&tenant, slots, subset);
        let mut group = criterion.benchmark_group(format!("{slots} slots, {subset} of a tenant"));
        group.bench_function("one request of one", |bench| {
            let tables = SlotTables::from(table.clone());
            bench.iter(|| tables.route(&tenant, i64::MIN, i64::MAX).slot(black_box("checkout"), &sent));
        });
        group
            .bench_function("tenant", |bench| bench.iter(|| series_slot(&table, &tenant, "checkout", &sent)));
        let share = TenantSlots::from_table(&table, &tenant);
        group.bench_function("service", |bench| {
            bench.iter(|| share.series_slot(black_box("checkout"), &sent))
        });
        group.bench_function("large service", |bench| {
            bench.iter(|| share.series_slot(black_box("large"), &sent))
        });
    }
}

criterion_group!(benches, placement);
criterion_main!(benches);
