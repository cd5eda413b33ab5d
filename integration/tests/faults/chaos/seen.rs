//! Whether a cluster is whole: what its processes and pages say.

use serde_json::Value;

use crate::chaos::http::get;
use crate::chaos::process::Process;

/// What is not as it should be; nothing where the cluster is whole.
pub fn lacks(processes: &[Process]) -> Option<String> {
    let unready = processes.iter().find_map(|process| {
        let ready = get(process.address, "/ready");
        match ready {
            Ok(answer) if answer.status == 200 => None,
            Ok(answer) => Some(format!("{} is not ready: {}", process.name, answer.body.trim())),
            Err(error) => Some(format!("{} is not ready: {error}", process.name)),
        }
    });
    unready.or_else(|| {
        let mut queriers = processes.iter().filter(|process| process.role == "querier");
        queriers.find_map(|querier| {
            let why = not_whole(querier, processes.len())?;
            Some(format!("seen by {}: {why}", querier.name))
        })
    })
}

fn page(process: &Process, path: &str) -> Result<Value, String> {
    let answer = get(process.address, path).map_err(|error| format!("{path}: {error}"))?;
    match answer.status {
        200 => serde_json::from_str(&answer.body).map_err(|error| format!("{path}: {error}")),
        status => Err(format!("{path}: {status}, {}", answer.body)),
    }
}

fn list<'a>(told: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    told[key].as_array().into_iter().flatten()
}

/// What one of them misses.
fn not_whole(process: &Process, members: usize) -> Option<String> {
    let (told, shards) = match (page(process, "/members.json"), page(process, "/shards.json")) {
        (Ok(members), Ok(shards)) => (members, shards),
        (Err(why), _) | (_, Err(why)) => return Some(why),
    };
    let ready = list(&told, "members").filter(|member| member["alive"] == true && member["state"] == "ready");
    let ready = ready.count();
    if ready != members {
        return Some(format!("{ready} of {members} members are ready"));
    }
    if list(&shards, "voters").count() != 3 {
        return Some(format!("the voters are {}", shards["voters"]));
    }
    let mut slots = 0;
    for shard in list(&shards, "shards") {
        match (shard["phase"].as_str(), shard["leader"].is_object()) {
            (Some("open"), true) => slots += 1,
            // It gives what it has to its successor and is no more.
            (Some("retired"), _) => {}
            (phase, leader) => return Some(format!("shard {} is {phase:?}, led: {leader}", shard["shard"])),
        }
    }
    (slots == 0).then(|| "there are no shards".to_owned())
}

/// How many shards each process leads, by name, as a querier that answers says.
pub fn leaders(processes: &[Process]) -> Vec<String> {
    let queriers = processes.iter().filter(|process| process.role == "querier");
    let told = queriers.filter_map(|querier| page(querier, "/shards.json").ok()).next();
    let told = told.unwrap_or_default();
    list(&told, "shards").filter_map(|shard| shard["leader"]["name"].as_str().map(str::to_owned)).collect()
}
