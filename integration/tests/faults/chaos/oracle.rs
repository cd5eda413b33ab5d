//! Compares what queriers say with the ledger.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::chaos::http::{Answer, post};

const ASK: &str = "/querier.v1.QuerierService/SelectMergeStacktraces";
/// Around now, in seconds.
const SPAN: u64 = 2 * 3600;

/// What a querier says of a service.
pub struct Held {
    /// By function.
    pub values: BTreeMap<String, i64>,
    /// What it says that it lacks.
    pub partial: Option<String>,
}

/// Asks a querier for a service; says why there is no answer.
pub fn ask(querier: SocketAddr, service: usize, now: u64) -> Result<Held, String> {
    let question = json!({
        "profileTypeID": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        "labelSelector": format!("{{service_name=\"service{service}\"}}"),
        "start": (now - SPAN) * 1000,
        "end": (now + SPAN) * 1000,
        "maxNodes": 1 << 20,
    });
    let answer = post(querier, ASK, "application/json", &question.to_string());
    let answer = answer.map_err(|error| error.to_string())?;
    match answer.status {
        200 => Ok(read(&answer)),
        status if answer.is_for_later() => Err(format!("{status}: {}", answer.body)),
        status => panic!("a query is refused with {status}: {}", answer.body),
    }
}

fn read(answer: &Answer) -> Held {
    let told: Value = serde_json::from_str(&answer.body).unwrap();
    let names = told["flamegraph"]["names"].as_array().cloned().unwrap_or_default();
    let number =
        |value: &Value| value.as_i64().or_else(|| value.as_str().and_then(|text| text.parse().ok())).unwrap();
    let mut values = BTreeMap::new();
    for level in told["flamegraph"]["levels"].as_array().into_iter().flatten() {
        // Each node: how far from the one before, total, self, name.
        for node in level["values"].as_array().unwrap().chunks(4) {
            let self_value = number(&node[2]);
            if self_value != 0 {
                let name = names[number(&node[3]) as usize].as_str().unwrap();
                *values.entry(name.to_owned()).or_default() += self_value;
            }
        }
    }
    Held { values, partial: answer.header("athanor-warnings").map(str::to_owned) }
}
