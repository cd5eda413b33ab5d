//! A cluster from a seed: whole nodes, their network and gossip, one bucket; every seed in a process of its own, since
//! libraries draw where nothing can be handed in.
//!
//! ```text
//!  seed ─► process ─► Machines ─ Roles ─┬─ Wires, Post ─┬─ Roles …
//!             │                         └─ one bucket ──┘
//!             └─ one line: hash of all that happened, counts; or what went wrong
//! ```

mod growth;
mod listed;
mod machine;
mod net;
mod peace;
mod post;
mod scenario;
mod trouble;

use std::collections::BTreeMap;
use std::fs::File;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use athanor_chassis::compute::spawn_dedicated_thread;
use athanor_chassis::{ComputePool, Random};
use growth::GROWING;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::client::Breach;
use crate::world::Story;
use crate::{caught, entropy, number, variable};

/// How many seeds are tried where nobody says otherwise.
const SEEDS: u64 = 350;
/// And of those in which blocks are merged.
const MERGING_SEEDS: u64 = 60;
/// A seed that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(600);
const ONE: &str = "fleet::a_cluster_lives_through_one_seed";
/// Bytes of a breach that are shown.
const SHOWN: usize = 1_000;
/// After so many breaches no more seeds are tried.
const ENOUGH: u64 = 4;
/// How often it is said how many are done.
const TOLD: u64 = 100;
/// Begins the line of a process that lived through its seed.
const LIVED: &str = "lived: ";

/// What must happen in some seed, or the simulation shows nothing.
const MUST: [&str; 38] = [
    "acknowledged",
    "acknowledged beside a lost shard",
    "answers that lack something",
    "answers without a bucket",
    "blocks",
    "clients that left",
    "clocks far ahead at boot",
    "clocks that jumped",
    "comparisons of everything",
    "cuts between machines",
    "died before a bucket call",
    "died while starting",
    "disks that did not sync",
    "doors that were deaf",
    "failed pushes",
    "failed queries",
    "full disks",
    "half reads",
    "half uploads",
    "killed in a disk call",
    "killed in between",
    "listings",
    "lost disks",
    "machines cut off",
    "outages of an hour",
    "pauses",
    "power lost in between",
    "power lost in the write of a commit",
    "profiles placed by a later table",
    "queries",
    "repeats",
    "repeats across tables",
    "restarts under load",
    "rotten logs",
    "shards told to seal",
    "stale listings",
    "stopped politely",
    "voters replaced",
];

/// What must happen in some seed where blocks are merged.
const MUST_MERGE: [&str; 4] =
    ["blocks made in vain", "blocks replaced", "comparisons of everything", "merges that failed"];

/// Runs a seed on a thread that nothing ran on before.
fn live(seed: u64, told: Option<File>) -> Result<Story, Breach> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "a secret of some length\n").map_err(|error| error.to_string())?;
    listen();
    let (tell, told_of) = mpsc::channel();
    let living = move || {
        entropy::begin(seed);
        // Nobody listens any more if it hung.
        let _ = tell.send(caught(|| scenario::run(seed, told, &secret)));
    };
    spawn_dedicated_thread("seed", living).map_err(|error| error.to_string())?;
    told_of.recv_timeout(LONGEST).unwrap_or_else(|_| Err(format!("it hangs: not done within {LONGEST:?}")))
}

/// Writes what the nodes say into a file, if one is named. On a thread that draws nothing from the seed.
fn listen() {
    if let Some(path) = variable("ATHANOR_LOG") {
        let filter = variable("ATHANOR_LOG_FILTER").unwrap_or_else(|| "info,openraft=warn".to_owned());
        let file = Arc::new(File::create(path).unwrap());
        let log = tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(file);
        log.with_env_filter(filter).init();
    }
}

/// What a process that lived through a seed says.
fn lived(seed: u64) -> Result<Value, Breach> {
    let exe = std::env::current_exe().map_err(|error| error.to_string())?;
    let ran = Command::new(exe)
        .args(["--exact", ONE, "--nocapture"])
        .env("ATHANOR_FLEET_SEED", seed.to_string())
        .output()
        .map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&ran.stdout);
    let line = said.lines().find_map(|line| line.split_once(LIVED)).map(|(_, told)| told);
    match line.filter(|_| ran.status.success()) {
        Some(line) => serde_json::from_str(line).map_err(|error| error.to_string()),
        None => {
            let why = String::from_utf8_lossy(&ran.stderr);
            Err(why.split_once("\nseed ").map_or(why.to_string(), |(_, why)| format!("seed {why}")))
        }
    }
}

fn again(seed: u64, breach: &str) -> String {
    format!(
        "seed {seed}: {breach}\nagain, with all that happened in a file: ATHANOR_FLEET_SEED={seed} \
         ATHANOR_STORY=story.txt cargo test -p athanor-integration --test simulation {ONE} -- --nocapture"
    )
}

#[test]
fn a_cluster_lives_through_one_seed() {
    let seed = number("ATHANOR_FLEET_SEED").unwrap_or(1);
    let told = variable("ATHANOR_STORY").map(|path| File::create(path).unwrap());
    let story = live(seed, told).unwrap_or_else(|breach| panic!("{}", again(seed, &breach)));
    let Story { trace, events, counts } = story;
    println!("{LIVED}{}", json!({ "trace": format!("{trace:032x}"), "events": events, "counts": counts }));
}

/// Runs seeds, each in a process of its own; how often each thing happened. As many at once as there are processors,
/// whichever test they are of.
fn all_live(first: u64, seeds: u64) -> BTreeMap<String, u64> {
    static ONE_TEST: Mutex<()> = Mutex::new(());
    let _turn = ONE_TEST.lock();
    entropy::place_alike();
    let compute = ComputePool::with_threads(std::thread::available_parallelism().unwrap(), 1).unwrap();
    let all = (first..first + seeds).collect();
    let (breached, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let live = |seed| {
        // Some are enough to see what is wrong.
        if breached.load(Ordering::Relaxed) >= ENOUGH {
            return Err(format!("seed {seed}: left out"));
        }
        let lived = lived(seed);
        breached.fetch_add(u64::from(lived.is_err()), Ordering::Relaxed);
        let done = 1 + done.fetch_add(1, Ordering::Relaxed);
        if done % TOLD == 0 {
            println!("{done} of {seeds} seeds");
        }
        lived
    };
    let lives = compute.map(all, live).unwrap();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let breaches: Vec<&String> = lives.iter().filter_map(|life| life.as_ref().err()).collect();
    for breach in breaches.iter().filter(|breach| !breach.ends_with("left out")) {
        println!("{}", &breach[..breach.floor_char_boundary(SHOWN)]);
    }
    assert!(breaches.is_empty(), "{} of {seeds} seeds", breached.into_inner());
    for life in lives.iter().flatten() {
        for (what, count) in life["counts"].as_object().unwrap() {
            *counts.entry(what.clone()).or_default() += count.as_u64().unwrap();
        }
    }
    let events: u64 = lives.iter().flatten().filter_map(|life| life["events"].as_u64()).sum();
    println!("{seeds} seeds, {events} events: {counts:#?}");
    counts
}

#[test]
fn a_cluster_counts_once_whatever_fails() {
    let seeds = number("ATHANOR_FLEET_SEEDS").unwrap_or(SEEDS);
    let counts = all_live(number("ATHANOR_FLEET_FIRST").unwrap_or(1), seeds);
    let never: Vec<&str> = MUST.into_iter().filter(|what| !counts.contains_key(*what)).collect();
    assert!(seeds < SEEDS || never.is_empty(), "it never happened in {seeds} seeds: {never:?}");
}

/// INV-18, INV-20: nothing is lost and nothing counts twice while blocks take the places of others.
#[test]
fn a_cluster_counts_once_whatever_is_merged() {
    let seeds = number("ATHANOR_FLEET_SEEDS").unwrap_or(MERGING_SEEDS);
    let counts = all_live(scenario::MERGING + number("ATHANOR_FLEET_FIRST").unwrap_or(1), seeds);
    let never: Vec<&str> = MUST_MERGE.into_iter().filter(|what| !counts.contains_key(*what)).collect();
    assert!(seeds < MERGING_SEEDS || never.is_empty(), "it never happened in {seeds} seeds: {never:?}");
}

#[test]
fn a_cluster_replays_bit_for_bit() {
    entropy::place_alike();
    let random = Random::from_seed(number("ATHANOR_FLEET_SEED").unwrap_or(1));
    let mut traces = Vec::new();
    for place in 0..5 {
        let drawn = random.next_below(1 << 32);
        // One of them is one in which tables change.
        let seed = if place == 0 { drawn - drawn % GROWING } else { drawn };
        let [first, second] = [(); 2].map(|()| lived(seed).unwrap_or_else(|breach| panic!("{breach}")));
        assert_eq!(first, second, "seed {seed} went differently the second time");
        traces.push(first["trace"].to_string());
    }
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 5, "two seeds went alike");
}
