//! Random histories of pushes, flushes, merges, retention and time against plain lists.
//!
//! ```text
//!  profiles ─► flushed blocks ─► catalog ─► real compactor ─► merged blocks
//!     │                                                            │
//!     └─► plain list ─► query ─► expected  ══ equal ══  found ◄─ query of all listed blocks
//! ```
//! After each step random queries on the listed blocks equal the same queries on the list of all distinct
//! profiles: any range, step, phase, selector and kind of result. After raw rows expired, a profile counts at the
//! end of the bucket that the plan reads, and in no other tier. Some profiles are sent once more, some under
//! other label rules, late, of 1970 or 2100, or exactly at the end of a window.

mod block_cache;
mod history;
mod queries;
mod stopped_workers;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use athanor_chassis::Random;
use parking_lot::Mutex;

use self::history::History;

/// Number of histories without `ATHANOR_HISTORIES`.
const HISTORIES: u64 = 1_000;
/// Steps of one history.
const STEPS: u64 = 16;

/// Events that must happen in some history. Otherwise the test shows nothing.
const REQUIRED: [&str; 18] = [
    "blocks of an hour",
    "blocks of a day",
    "blocks of ten minutes",
    "duplicates dropped",
    "duplicates of other series",
    "expired blocks",
    "jobs that ended early",
    "killed workers",
    "paused workers",
    "paused workers that finished",
    "paused workers that were fenced",
    "jobs of the planner",
    "random jobs",
    "profiles at a window's end",
    "queries of tiers",
    "queries of tiers with expired rows",
    "days of the tier of 5 minutes",
    "30 days of a coarse tier",
];

type EventCounts = BTreeMap<&'static str, u64>;

/// Runs one history. Returns its events.
fn run_history(seed: u64) -> EventCounts {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut history = History::begin(Random::from_seed(seed)).await;
        for _ in 0..STEPS {
            history.step().await;
            history.compare_some().await.unwrap_or_else(|difference| {
                panic!(
                    "history {seed}: {difference}\nagain: ATHANOR_FIRST={seed} ATHANOR_HISTORIES=1 cargo test -p \
                     athanor-integration --test simulation plain_lists_whatever"
                )
            });
        }
        history.end().await
    })
}

#[test]
#[expect(clippy::disallowed_methods, reason = "histories are independent, one thread runs one at a time")]
fn queries_equal_plain_lists_whatever_is_merged() {
    let first = crate::number("ATHANOR_FIRST").unwrap_or(1);
    let count = crate::number("ATHANOR_HISTORIES").unwrap_or(HISTORIES);
    let next = AtomicU64::new(first);
    let seen = Mutex::new(EventCounts::new());
    let run = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= first + count {
            return;
        }
        let events = run_history(seed);
        let mut seen = seen.lock();
        for (event, count) in events {
            *seen.entry(event).or_default() += count;
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(run);
        }
    });
    let seen = seen.into_inner();
    println!("{count} histories: {seen:#?}");
    let missing: Vec<&str> = REQUIRED.into_iter().filter(|event| !seen.contains_key(event)).collect();
    assert!(count < HISTORIES || missing.is_empty(), "never happened in {count} histories: {missing:?}");
}
