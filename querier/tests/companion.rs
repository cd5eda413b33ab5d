//! Settings and rules: kept for each tenant, changed by several at once.

use std::sync::Arc;

use async_trait::async_trait;
use athanor_catalog::{
    BlockEntry, BlockId, BlockListing, Catalog, CatalogCommand, CatalogError, CommandResult, InMemoryCatalog,
    TenantDocuments, Tombstone,
};
use athanor_chassis::{Clock, ErrorCode, LimitOverrides, Status, TenantId, TenantLimits, Timestamp};
use athanor_proto::capabilities::v1::GetFeatureFlagsRequest;
use athanor_proto::settings::v1::*;
use athanor_proto::vcs::v1::Question;
use athanor_proto::version::v1::VersionRequest;
use athanor_querier::TenantSettings;

/// A catalogue that takes its time: whoever reads and then changes is overtaken.
struct Slow(InMemoryCatalog);

#[async_trait]
impl Catalog for Slow {
    async fn propose(&self, command: CatalogCommand) -> Result<CommandResult, CatalogError> {
        tokio::task::yield_now().await;
        self.0.propose(command).await
    }
    async fn list_blocks(&self, tenant: &TenantId, from: i64, to: i64) -> Result<BlockListing, CatalogError> {
        self.0.list_blocks(tenant, from, to).await
    }
    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError> {
        self.0.blocks().await
    }
    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError> {
        self.0.tenants().await
    }
    async fn tenant_documents(&self, tenant: &TenantId) -> Result<TenantDocuments, CatalogError> {
        let notes = self.0.tenant_documents(tenant).await;
        tokio::task::yield_now().await;
        notes
    }
    async fn tombstones(&self) -> Result<Vec<(BlockId, Tombstone)>, CatalogError> {
        self.0.tombstones().await
    }
}

fn companion() -> TenantSettings {
    let (clock, _hand) = Clock::manual(Timestamp::from_seconds(5));
    TenantSettings::new(
        Arc::new(Slow(InMemoryCatalog::new(clock))),
        LimitOverrides::new(TenantLimits::default()),
    )
}

fn tenant(name: &str) -> TenantId {
    name.parse().expect("a tenant")
}

async fn set(
    companion: &TenantSettings,
    of: &str,
    name: &str,
    value: &str,
) -> Result<Option<Setting>, Status> {
    let setting = Some(Setting { name: name.to_owned(), value: value.to_owned(), modified_at: 77 });
    Ok(companion.set_setting(&tenant(of), SetSettingsRequest { setting }).await?.setting)
}

async fn settings(companion: &TenantSettings, of: &str) -> Vec<(String, String)> {
    let all = companion.get_settings(&tenant(of), GetSettingsRequest {}).await.expect("settings").settings;
    all.into_iter().map(|one| (one.name, one.value)).collect()
}

#[tokio::test]
async fn settings_are_a_tenants() {
    let companion = companion();
    let stored = set(&companion, "a", "maxNodes", "100").await.unwrap().unwrap();
    assert_eq!((stored.value.as_str(), stored.modified_at), ("100", 5_000));
    set(&companion, "a", "maxNodes", "200").await.unwrap();
    set(&companion, "a", "collapsed", "").await.unwrap();
    set(&companion, "b", "maxNodes", "7").await.unwrap();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(settings(&companion, "a").await, [pair("collapsed", ""), pair("maxNodes", "200")]);
    assert_eq!(settings(&companion, "b").await, [pair("maxNodes", "7")]);
    for _ in 0..2 {
        let forget = DeleteSettingsRequest { name: "maxNodes".to_owned() };
        companion.delete_setting(&tenant("a"), forget).await.unwrap();
    }
    assert_eq!(settings(&companion, "a").await, [pair("collapsed", "")]);
    assert_eq!(settings(&companion, "c").await, []);
    let code = |result: Result<_, Status>| result.unwrap_err().code;
    assert_eq!(code(set(&companion, "a", "", "x").await), ErrorCode::Invalid);
    assert_eq!(code(set(&companion, "a", "x", &"x".repeat(1 << 20)).await), ErrorCode::Invalid);
}

#[tokio::test]
async fn settings_of_tenant_over_quota_are_refused_and_others_are_not() {
    let companion = companion();
    let quota = TenantLimits::default().max_settings_bytes.as_usize();
    let half = "x".repeat(quota / 2);
    set(&companion, "a", "1", &half).await.unwrap();
    let refused = set(&companion, "a", "2", &half).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Exhausted);
    for said in ["64KiB", "limits.max_settings_bytes", "athanor settings delete"] {
        assert!(refused.message.contains(said), "{said}: {refused}");
    }
    // Replacing does not add up, and whoever deletes has space again.
    set(&companion, "a", "1", &"y".repeat(quota / 2)).await.unwrap();
    companion.delete_setting(&tenant("a"), DeleteSettingsRequest { name: "1".to_owned() }).await.unwrap();
    set(&companion, "a", "2", &half).await.unwrap();
    for other in 0..17 {
        set(&companion, &format!("b{other}"), "1", &half).await.unwrap();
    }
    set(&companion, "c", "1", &half).await.unwrap();
}

fn upsert(id: &str, metric: &str, generation: i64) -> UpsertRecordingRuleRequest {
    UpsertRecordingRuleRequest {
        id: id.to_owned(),
        metric_name: format!("profiles_recorded_{metric}"),
        matchers: vec![r#"{__profile_type__="a:b:c:d:e", x="y"}"#.to_owned()],
        group_by: vec!["pod".to_owned()],
        generation,
        ..UpsertRecordingRuleRequest::default()
    }
}

#[tokio::test]
async fn a_rule_is_changed_by_who_has_read_it() {
    let (companion, a) = (companion(), tenant("a"));
    let write = async |request| companion.upsert_rule(&a, request).await.map(|answer| answer.rule.unwrap());
    let first = write(upsert("", "x", 0)).await.unwrap();
    assert_eq!((first.generation, first.profile_type.as_str()), (1, "a:b:c:d:e"));
    let again = write(upsert("", "x", 0)).await.unwrap();
    assert_eq!(again, first, "the same rule is the same");
    let second = write(upsert(&first.id, "y", 1)).await.unwrap();
    assert_eq!((second.generation, second.metric_name.as_str()), (2, "profiles_recorded_y"));
    assert_eq!(write(upsert(&first.id, "y", 1)).await.unwrap(), second, "a lost answer is asked for again");
    assert_eq!(write(upsert(&first.id, "z", 1)).await.unwrap_err().code, ErrorCode::Conflict);
    let get = GetRecordingRuleRequest { id: first.id.clone() };
    assert_eq!(companion.get_rule(&a, get.clone()).await.unwrap().rule, Some(second.clone()));
    assert_eq!(companion.get_rule(&tenant("b"), get).await.unwrap_err().code, ErrorCode::NotFound);
    let list = async || companion.list_rules(&a, ListRecordingRulesRequest {}).await.unwrap().rules;
    assert_eq!(list().await, [second]);
    companion.delete_rule(&a, DeleteRecordingRuleRequest { id: first.id }).await.unwrap();
    assert_eq!(list().await, []);
    for count in 0..25 {
        write(upsert("", &count.to_string(), 0)).await.unwrap();
    }
    assert_eq!(write(upsert("", "more", 0)).await.unwrap_err().code, ErrorCode::Exhausted);
    assert!(settings(&companion, "a").await.is_empty(), "rules are no settings");
}

#[tokio::test]
async fn changes_at_once_lose_nothing() {
    let (companion, a) = (companion(), tenant("a"));
    let many = (0..20).map(|at| companion.upsert_rule(&a, upsert("one", &at.to_string(), 0)));
    let done = futures::future::join_all(many).await;
    let generation =
        companion.list_rules(&a, ListRecordingRulesRequest {}).await.unwrap().rules[0].generation;
    let done: Vec<Result<i64, ErrorCode>> = done
        .into_iter()
        .map(|answer| answer.map(|answer| answer.rule.unwrap().generation).map_err(|status| status.code))
        .collect();
    assert_eq!(done.iter().filter(|answer| answer.is_ok()).count() as i64, generation);
    let overtaken = done.iter().filter(|answer| **answer == Err(ErrorCode::Conflict)).count();
    assert!(generation > 1 && overtaken > 0, "{done:?}");
}

#[tokio::test]
async fn a_new_rule_never_takes_the_place_of_another() {
    let (companion, a) = (companion(), tenant("a"));
    let write = async |id: &str, metric: &str| {
        companion.upsert_rule(&a, upsert(id, metric, 0)).await.map(|answer| answer.rule.unwrap())
    };
    let rules = async || {
        let rules = companion.list_rules(&a, ListRecordingRulesRequest {}).await.unwrap().rules;
        let mut rules: Vec<(String, String)> =
            rules.into_iter().map(|rule| (rule.metric_name, rule.id)).collect();
        rules.sort();
        rules
    };
    let first = write("", "x").await.unwrap();
    write(&first.id, "y").await.unwrap();
    let again = write("", "x").await.unwrap();
    assert_eq!(write("", "x").await.unwrap(), again, "the same rule is the same");
    let rule = |metric: &str, id: &str| (format!("profiles_recorded_{metric}"), id.to_owned());
    assert_eq!(rules().await, [rule("x", &again.id), rule("y", &first.id)]);
    companion.delete_rule(&a, DeleteRecordingRuleRequest { id: first.id.clone() }).await.unwrap();
    assert_eq!(write("", "x").await.unwrap(), again, "it has an id already");
    assert_eq!(rules().await, [rule("x", &again.id)]);
    // Each new one is changed at once, so that none keeps the id of what it says.
    for count in 1..25 {
        let new = write("", "z").await.unwrap();
        write(&new.id, &format!("z{count}")).await.unwrap();
    }
    assert_eq!((rules().await.len(), write("", "z").await.unwrap_err().code), (25, ErrorCode::Exhausted));
}

#[tokio::test]
async fn a_page_learns_what_is_here() {
    let (companion, a) = (companion(), tenant("a"));
    assert_eq!(companion.version(&a, VersionRequest {}).await.unwrap().querier_api, 1);
    let flags = companion.feature_flags(&a, GetFeatureFlagsRequest {}).await.unwrap().feature_flags;
    let enabled: Vec<(&str, bool)> = flags.iter().map(|flag| (flag.name.as_str(), flag.enabled)).collect();
    assert!(enabled.contains(&("utf8LabelNames", true)) && enabled.contains(&("pyroscopeRuler", false)));
    let refused = companion.source_code(&a, Question {}).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unimplemented);
    assert!(refused.message.contains("source code lookup is not supported"));
}
