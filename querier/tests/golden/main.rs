//! Recorded questions and answers, asked in process: what existing clients see today is what they must see here.
//! Where a recorded answer is a defect, the record says which answer is right.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use athanor_chassis::{Clock, ComputePool, LimitOverrides, Status, TenantId, TenantLimits, Timestamp};
use athanor_profile::ProfileSource;
use athanor_profile::store_interface::source::MemorySource;
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, Querier, QuerierConfig, QuerierDeps, QueryContext, QueryPlan,
};
use athanor_query::ProfileQuery;
use serde_json::{Value, json};

mod answers;
mod compare;
mod requests;
mod uploads;

/// One source for each upload: partial answers must add up.
struct Uploads(Vec<Arc<dyn ProfileSource>>);

#[async_trait::async_trait]
impl DataSources for Uploads {
    async fn plan(
        &self,
        _tenant: &TenantId,
        _ask: &ProfileQuery,
        _: &DedupHints,
    ) -> Result<QueryPlan, Status> {
        Ok(QueryPlan::from_sources(self.0.clone()))
    }

    async fn data_time_range(&self, _tenant: &TenantId) -> Result<DataTimeRange, Status> {
        let profiles = self.0.iter().map(|source| source.profiles().expect("memory does not fail"));
        let times: Vec<i64> =
            profiles.flat_map(|all| all.iter().map(|row| row.time).collect::<Vec<_>>()).collect();
        let span = times.iter().min().copied().zip(times.iter().max().copied());
        Ok(DataTimeRange { span, ..DataTimeRange::default() })
    }
}

fn golden() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/golden");
    folder.is_dir().then_some(folder)
}

fn read(folder: &Path, name: &str) -> Value {
    let text = std::fs::read_to_string(folder.join(name)).expect("readable");
    // Bytes of uploads that are no text are written as halves of characters; what is asked has none.
    serde_json::from_str(&text.replace("\\udc", "\\u00")).expect("JSON")
}

fn querier(scenario: &Value, base: i64) -> Querier {
    let mut sources: Vec<Arc<dyn ProfileSource>> = Vec::new();
    for (upload, id) in scenario["uploads"].as_array().expect("a list").iter().zip(0u128..) {
        let mut source = MemorySource::default();
        uploads::add(&mut source, upload, base, id << 32);
        sources.push(Arc::new(source));
    }
    let (clock, _hand) = Clock::manual(Timestamp::from_nanos(base * 1_000_000));
    let overrides = LimitOverrides::new(TenantLimits::default());
    let deps =
        QuerierDeps { sources: Arc::new(Uploads(sources)), overrides, clock, compute: ComputePool::inline() };
    Querier::new(QuerierConfig::default(), deps)
}

/// Milliseconds of the scenario's base: all recorded scenarios begin on a whole hour of 2026.
fn base_of(scenario: &Value) -> i64 {
    let text = scenario["base"].as_str().expect("a time");
    let part = |from: usize, to: usize| text[from..to].parse::<i64>().expect("a number");
    let days_before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    assert_eq!(part(0, 4), 2026);
    let days = 20_454 + days_before[part(5, 7) as usize - 1] + part(8, 10) - 1;
    ((days * 24 + part(11, 13)) * 60 + part(14, 16)) * 60_000
}

async fn ask(querier: &Querier, case: &Value, base: i64, kept: &mut Option<String>) -> Option<Value> {
    let accept = case["headers"]["Accept"].as_str().unwrap_or_default();
    let reader = QueryContext::for_tenant(TenantId::anonymous()).with_accept_header(accept);
    // About a push that is a case of its own.
    if case["name"].as_str()?.starts_with("push/") {
        return None;
    }
    let answer = if let Some(rpc) = case["rpc"].as_str() {
        // Some ask back with the id that an earlier answer gave.
        let id = kept.clone().unwrap_or_default();
        let request = case["request"].to_string().replace("{id:profile}", &id);
        let request: Value = serde_json::from_str(&request).expect("it was JSON");
        answers::rpc(querier, &reader, rpc, &request, base, kept).await
    } else {
        let path = case["path"].as_str()?;
        let is_plain = case["method"].as_str().is_none_or(|method| method == "GET");
        if !is_plain || !path.starts_with("/pyroscope/render") {
            return None;
        }
        answers::render(querier, &reader, path, &requests::query(&case["query"], base)).await
    };
    Some(match answer {
        Ok(answer) => json!({"status": 200, "answer": answer}),
        Err(status) => json!({"status": status.code.http_status(), "code": status.code.connect_code()}),
    })
}

/// Profiles without samples. They were recorded as empty messages, which readers of pprof refuse, and no case says so.
const EMPTY_PROFILES: [&str; 2] = ["pprof/no-match", "profile/no-match"];

/// The recorded answer; of a profile without samples what it must state instead.
fn amended(name: &str, recorded: &Value) -> Value {
    let mut expected = recorded.clone();
    if EMPTY_PROFILES.contains(&name) {
        let answer = &mut expected["answer"];
        let profile = if answer.get("pprof").is_some() { &mut answer["pprof"] } else { answer };
        profile["types"] = json!(["cpu:nanoseconds"]);
        profile["period"] = json!(["cpu:nanoseconds", 1_000_000_000]);
        profile["time"] = json!(1_772_446_200_000_000_u64);
    }
    expected
}

/// The recorded answer and those that are right in its place.
fn accepted(case: &Value, expected: &Value) -> Vec<Value> {
    let right = match &case["right"] {
        Value::Null => Vec::new(),
        Value::Array(all) => all.clone(),
        one => vec![one.clone()],
    };
    std::iter::once(expected.clone()).chain(right).collect()
}

fn differences(case: &Value, expected: &Value, got: &Value) -> Option<String> {
    let is_ok = got["status"].as_u64().is_some_and(|status| status < 500);
    let mut all = Vec::new();
    for wanted in accepted(case, expected) {
        if wanted == "any" && is_ok {
            return None;
        }
        if wanted["status"] != got["status"] || wanted["code"] != got["code"] {
            all.push(format!("status {} {} for {}", got["status"], got["code"], wanted["status"]));
            continue;
        }
        if case["compare"] == "status" || wanted["answer"].is_null() {
            return None;
        }
        let mut got = got["answer"].clone();
        if case["compare"] == "loose" {
            got = compare::loose(&got);
        }
        for ignored in case["ignore"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            compare::forget(&mut got, ignored);
        }
        let found = compare::differences(&wanted["answer"], &got);
        if found.is_empty() {
            return None;
        }
        all.push(found.join("; "));
    }
    Some(all.join(" | or "))
}

async fn replay(name: &str) {
    let Some(folder) = golden() else {
        println!("skip: no recorded answers at ../shared/data/golden");
        return;
    };
    let folder = folder.join(name);
    let (scenario, expected) = (read(&folder, "scenario.json"), read(&folder, "expected.json"));
    let base = base_of(&scenario);
    let querier = querier(&scenario, base);
    let (mut passed, mut failed) = (0, BTreeMap::new());
    let mut kept = None;
    for case in scenario["cases"].as_array().expect("a list") {
        let name = case["name"].as_str().expect("a name");
        let Some(got) = ask(&querier, case, base, &mut kept).await else { continue };
        match differences(case, &amended(name, &expected[name]), &got) {
            None => passed += 1,
            Some(difference) => {
                failed.insert(name, difference);
            }
        }
    }
    println!("{passed} as recorded, {} differ", failed.len());
    assert!(passed > 50, "{passed} cases");
    let lines: Vec<String> = failed.iter().map(|(name, why)| format!("{name}: {why:.600}")).collect();
    assert!(lines.is_empty(), "\n{}", lines.join("\n"));
}

#[tokio::test]
async fn every_read_is_answered_as_recorded() {
    replay("basics").await;
}

#[tokio::test]
async fn every_refusal_is_as_recorded() {
    replay("errors").await;
}
