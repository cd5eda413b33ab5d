//! Rules of tenants: what is stored, what is dropped, and that repeats are known whatever rules say.

use athanor_chassis::{Clock, ErrorCode, TenantLimits};
use athanor_ingester::StoredUpload;
use athanor_profile::data_model::dropped_counts::DropReason;
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_profile::{Profile, ValueType};
use serde_json::{Value, json};

use crate::samples::{labelled, now, profile, upload};
use crate::world::{World, simulate};

fn with_rules(rules: &Value) -> TenantLimits {
    TenantLimits { ingestion_relabeling_rules: rules.as_array().cloned().unwrap(), ..TenantLimits::default() }
}

async fn world(limits: TenantLimits) -> World {
    World::with(limits, Clock::system()).await
}

/// A profile of two types, of three threads in one pod.
fn threads() -> Profile {
    let mut profile = profile(now(), &[]);
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds"), ValueType::new("samples", "count")];
    for (thread, value) in [("a", 3), ("b", 2), ("c", 1)] {
        labelled(&mut profile, "main", &[("pod", "p"), ("thread", thread)], value);
    }
    profile
}

async fn stored(world: &World, upload: &ProfileUpload) -> StoredUpload {
    world.push("acme", vec![upload.clone()]).await.remove(0).unwrap()
}

/// The series and what each adds up to.
async fn seen(world: &World) -> Vec<(String, i64)> {
    let rows = world.rows("acme").await.into_iter();
    rows.map(|(series, _, _, _, value)| (series.replace("__name__=process_cpu,", ""), value)).collect()
}

#[test]
fn rules_change_and_drop_series_by_labels_of_samples_and_by_types() {
    simulate(async {
        let rules = json!([
            {"action": "drop", "source_labels": ["thread", "__type__"], "regex": "b;cpu|c;samples"},
            {"action": "labeldrop", "regex": "pod"},
            {"source_labels": ["thread"], "regex": "a|b", "target_label": "thread", "replacement": "early"},
            {"source_labels": ["service_name", "__unit__"], "separator": "/", "regex": "(.*/count)", "target_label": "of"},
        ]);
        let world = world(with_rules(&rules)).await;
        let stored = stored(&world, &upload(&threads())).await;
        assert_eq!((stored.new, stored.samples, stored.dropped.get(DropReason::RelabelRule)), (4, 3, 2));
        let expected = [
            // Two of its threads became one.
            ("of=checkout/count,service_name=checkout,thread=early samples".to_owned(), 5),
            ("service_name=checkout,thread=c cpu".to_owned(), 1),
            ("service_name=checkout,thread=early cpu".to_owned(), 3),
        ];
        assert_eq!(seen(&world).await, expected);
        world.cut().await;
        assert_eq!(seen(&world).await, expected);
    });
}

#[test]
fn a_profile_of_which_all_is_dropped_is_stored_as_nothing() {
    simulate(async {
        let drop = json!({"action": "drop", "source_labels": ["service_name"], "regex": "checkout"});
        for limits in [
            with_rules(&json!([drop])),
            TenantLimits { sample_type_relabeling_rules: vec![drop], ..TenantLimits::default() },
        ] {
            let world = world(limits).await;
            let stored = stored(&world, &upload(&threads())).await;
            assert_eq!((stored.new, stored.repeats, stored.dropped.get(DropReason::RelabelRule)), (0, 0, 6));
            assert_eq!(seen(&world).await, []);
        }
    });
}

/// INV-01, INV-04: what was sent says what is a repeat.
#[test]
fn a_repeat_is_known_though_rules_have_changed_meanwhile() {
    simulate(async {
        let mut world = world(TenantLimits::default()).await;
        let sent = upload(&threads());
        assert_eq!(stored(&world, &sent).await.new, 6);
        world.remains.limits = with_rules(&json!([
            {"target_label": "service_name", "replacement": "other"},
            {"action": "labeldrop", "regex": "thread"},
        ]));
        world = world.crash(1).await;
        let again = stored(&world, &sent).await;
        assert_eq!((again.new, again.repeats), (0, 6));
    });
}

#[test]
fn what_rules_spoil_is_refused_and_leaves_nothing() {
    simulate(async {
        let rules = json!([{"action": "labeldrop", "regex": "service_name"}]);
        let world = world(with_rules(&rules)).await;
        let refused = world.push("acme", vec![upload(&threads())]).await.remove(0).unwrap_err();
        assert_eq!((refused.code, refused.metric_reason()), (ErrorCode::Invalid, "invalid_labels"));
        assert!(refused.message.contains("limits.ingestion_relabeling_rules"), "{}", refused.message);
        assert_eq!(seen(&world).await, []);
    });
}

#[test]
fn a_tenant_has_so_many_series_in_memory_if_it_has_a_limit() {
    simulate(async {
        let limits = TenantLimits { max_local_series_per_tenant: Some(7), ..TenantLimits::default() };
        let world = world(limits).await;
        assert_eq!(stored(&world, &upload(&threads())).await.new, 6);
        // Known ones are taken.
        let mut later = threads();
        later.header.duration_nanos += 1;
        assert_eq!(stored(&world, &upload(&later)).await.new, 6);
        let mut other = threads();
        labelled(&mut other, "main", &[("thread", "d")], 1);
        let refused = world.push("acme", vec![upload(&other)]).await.remove(0).unwrap_err();
        assert_eq!((refused.code, refused.metric_reason()), (ErrorCode::Exhausted, "series_limit"));
        assert!(refused.message.contains("adds 2 series to 6 in memory"), "{}", refused.message);
        let elsewhere = world.push("other", vec![upload(&other)]).await.remove(0).unwrap_err();
        assert!(elsewhere.message.contains("adds 8 series to 0 in memory"), "{}", elsewhere.message);
        world.cut().await;
        assert!(world.push("acme", vec![upload(&profile(now(), &[("main", 1)]))]).await.remove(0).is_ok());
    });
}

#[test]
fn of_series_that_rules_make_one_there_is_one() {
    simulate(async {
        let rules = json!([{"action": "labeldrop", "regex": "thread"}]);
        let limits = TenantLimits { max_local_series_per_tenant: Some(2), ..with_rules(&rules) };
        let world = world(limits).await;
        assert_eq!(stored(&world, &upload(&threads())).await.new, 6);
    });
}
