//! A node from a seed: its disks lose power, its bucket fails and lies, its clients repeat themselves and leave.
//!
//! ```text
//!  clients ─► Roles ─┬─► disks in memory ─┐
//!     │              └─► bucket in memory ─┤  told, event by event: one hash for each seed
//!     └─ model: sent, acknowledged, seen ──┘
//! ```
//!
//! One seed is one thread: a runtime whose time is paused, chance from the seed, compute inline. The machine may die
//! inside any call to a disk or to the bucket, and between them. After each life the next one begins on what is left.
//! Every answer is compared with the model: what was acknowledged or seen is there, what was not is there once or not
//! at all, and sums are equal to the unit. A query may fail while something is broken; it may never be wrong.

#![allow(clippy::unwrap_used)]
// What a seed does is one future, as deep as the calls in it.
#![recursion_limit = "256"]

mod bucket;
mod chain;
mod client;
mod compaction;
mod disk;
mod entropy;
mod fleet;
mod lives;
mod model;
mod processes;
mod world;

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use athanor_chassis::{ComputePool, Random};
use client::Breach;
use world::Story;

/// How many seeds are tried where nobody says otherwise.
const SEEDS: u64 = 300;
/// And those that found something.
const FOUND: [u64; 1] = [
    // A view between two slots that a damaged catalogue learned of again placed by a table without the second.
    20_782_091,
];

/// What must happen in some seed, or the simulation shows nothing.
const MUST: [&str; 39] = [
    "acknowledged",
    "answers that lack something",
    "answers that may count twice",
    "answers that name what age took",
    "blocks",
    "clients that left",
    "clocks far ahead at boot",
    "comparisons of everything",
    "comparisons of processes",
    "cuts",
    "died after a bucket call",
    "died before a bucket call",
    "died while starting",
    "disks full for minutes",
    "failed cuts",
    "failed pushes",
    "failed queries",
    "failed reads",
    "failed syncs",
    "failed uploads",
    "full disks",
    "killed in a disk call",
    "killed in between",
    "power lost in another disk call",
    "power lost in between",
    "power lost in the sync of a commit",
    "power lost in the write of a commit",
    "processes that began anew",
    "queries",
    "refused",
    "repeats",
    "retentions",
    "rotten ids",
    "rotten logs",
    "rotten snapshots",
    "slow bucket calls",
    "snapshots",
    "stopped politely",
    "uploads whose answer was lost",
];

#[expect(clippy::disallowed_methods, reason = "the test's own switch")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str) -> Option<u64> {
    variable(name).and_then(|text| text.parse().ok())
}

thread_local! {
    /// What panicked on this thread: a task that does is otherwise merely gone.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Does the work of a seed; a panic anywhere is a breach.
fn caught(work: impl FnOnce() -> Result<Story, Breach>) -> Result<Story, Breach> {
    static LISTEN: Once = Once::new();
    LISTEN.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
            before(panic);
        }));
    });
    PANICS.take();
    let caught = catch_unwind(AssertUnwindSafe(work));
    let lived = caught.unwrap_or_else(|payload| Err(said(&*payload)));
    lived.and_then(|story| match PANICS.take().pop() {
        Some(panic) => Err(panic),
        None => Ok(story),
    })
}

/// Runs a seed. What goes wrong is told with the way to see it again.
fn run(seed: u64, told: Option<File>) -> Story {
    caught(|| lives::run(seed, told)).unwrap_or_else(|breach| {
        panic!(
            "seed {seed}: {breach}\nagain, with all that happened in a file: ATHANOR_SEED={seed} \
             ATHANOR_STORY=story.txt cargo test -p athanor-integration --test simulation counted_once"
        )
    })
}

fn said(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

#[test]
fn what_is_acknowledged_is_counted_once_whatever_fails() {
    if let Some(seed) = number("ATHANOR_SEED") {
        let told = variable("ATHANOR_STORY").map(|path| File::create(path).unwrap());
        println!("{:#?}", run(seed, told));
        return;
    }
    let seeds = number("ATHANOR_SEEDS").unwrap_or(SEEDS);
    let first = number("ATHANOR_FIRST").unwrap_or(1);
    let threads = std::thread::available_parallelism().unwrap();
    let compute = ComputePool::with_threads(threads, 1).unwrap();
    let all = FOUND.into_iter().filter(|_| first == 1).chain(first..first + seeds);
    let stories = compute.map(all.collect(), |seed| run(seed, None));
    let stories = stories.unwrap_or_else(|error| panic!("{error}"));
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for story in &stories {
        story.counts.iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
    }
    println!("{seeds} seeds, {} events: {counts:#?}", stories.iter().map(|story| story.events).sum::<u64>());
    let never: Vec<&str> = MUST.into_iter().filter(|what| !counts.contains_key(what)).collect();
    assert!(seeds < SEEDS || never.is_empty(), "it never happened in {seeds} seeds: {never:?}");
}

#[test]
fn a_seed_replays_bit_for_bit() {
    let random = Random::from_seed(number("ATHANOR_SEED").unwrap_or(1));
    let mut traces = Vec::new();
    for _ in 0..10 {
        let seed = random.next_below(1 << 32);
        let (first, second) = (run(seed, None), run(seed, None));
        assert_eq!(first, second, "seed {seed} went differently the second time");
        traces.push(first.trace);
    }
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 10, "two seeds went alike");
}
