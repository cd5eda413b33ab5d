//! CPU profile of this process, for `go tool pprof` and for upload by the program itself.
//!
//! ```text
//!  sampler   a timer signal ─► addresses of stacks, counted
//!  names     addresses ─► functions, once sampling has ended
//! ```

mod names;
mod sampler;

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use athanor_chassis::{CpuActivity, ErrorCode, Status};
use athanor_profile::{Profile, ValueType, formats::pprof};

use self::sampler::{SAMPLES_PER_SECOND, SLOT_COUNT, StackCounts, StackSampler};
use crate::RequestBudget;

/// Nanoseconds of CPU time that each sample represents.
const SAMPLE_PERIOD_NANOS: i64 = 1_000_000_000 / SAMPLES_PER_SECOND as i64;
const MAX_SECONDS: u64 = 300;
const DEFAULT_SECONDS: u64 = 10;
/// Retry delay that a rejected client receives.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(10);
/// Longest interval between drains of the pending samples.
const MAX_DRAIN_INTERVAL: Duration = Duration::from_secs(1);

/// Samples all threads for the duration that the query `seconds=N` requests. Returns gzipped pprof.
///
/// # Errors
///
/// The duration is invalid, another profile of this process is being taken, or the system refuses the timer.
pub async fn profile(query: &str, door: &RequestBudget) -> Result<Vec<u8>, Status> {
    let seconds = parse_seconds(query)?;
    let failed =
        |error| Status::new(ErrorCode::Unavailable, format!("this process cannot be sampled now: {error}"));
    let Some(mut sampler) = StackSampler::start().map_err(failed)? else {
        let message = format!(
            "another profile of this process is being taken, for at most {MAX_SECONDS} s; retry afterwards"
        );
        return Err(Status::new(ErrorCode::Exhausted, message).with_retry_after(BUSY_RETRY_AFTER));
    };
    let start_wall = door.clock.wall();
    let start = door.clock.monotonic();
    let duration = Duration::from_secs(seconds);
    let mut stacks = StackCounts::default();
    let interval = drain_interval();
    loop {
        let elapsed = door.clock.monotonic().saturating_sub(start);
        let Some(remaining) = duration.checked_sub(elapsed).filter(|remaining| !remaining.is_zero()) else {
            break;
        };
        door.clock.sleep(remaining.min(interval)).await;
        sampler.drain(&mut stacks);
    }
    drop(sampler);
    let time_nanos = start_wall.nanos();
    let elapsed = door.clock.monotonic().saturating_sub(start);
    door.run_on_compute(CpuActivity::Query, usize::MAX, move || encode(&stacks, time_nanos, elapsed)).await
}

/// Returns the time in which all cores together fill half of the slots.
fn drain_interval() -> Duration {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let samples_per_second = cores as f64 * f64::from(SAMPLES_PER_SECOND);
    MAX_DRAIN_INTERVAL.min(Duration::from_secs_f64(SLOT_COUNT as f64 / 2.0 / samples_per_second))
}

fn parse_seconds(query: &str) -> Result<u64, Status> {
    let given = query.split('&').find_map(|pair| pair.strip_prefix("seconds="));
    let seconds = given.map_or(Ok(DEFAULT_SECONDS), str::parse);
    seconds.ok().filter(|seconds| (1..=MAX_SECONDS).contains(seconds)).ok_or_else(|| {
        let given = given.unwrap_or_default();
        Status::new(ErrorCode::Invalid, format!("seconds={given} is not a number from 1 to {MAX_SECONDS}"))
    })
}

fn encode(stacks: &StackCounts, time_nanos: i64, duration: Duration) -> Vec<u8> {
    let mut profile = Profile::default();
    let header = &mut profile.header;
    header.types = vec![ValueType::new("samples", "count"), ValueType::new("cpu", "nanoseconds")];
    header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
    header.period = SAMPLE_PERIOD_NANOS;
    header.time_nanos = time_nanos;
    header.duration_nanos = duration.as_nanos() as i64;
    if stacks.lost > 0 {
        header.comments.push(format!("{} samples were dropped because they arrived too fast", stacks.lost));
    }
    let addresses: HashSet<usize> = stacks.iter().flat_map(|(stack, _)| call_addresses(stack)).collect();
    let modules = if stacks.is_empty() { Vec::new() } else { sampler::modules() };
    let locations = names::add_locations(&mut profile, &modules, addresses);
    for (stack, count) in stacks.iter() {
        let stack: Vec<_> = call_addresses(stack).map(|address| locations[&address]).collect();
        add_sample(&mut profile, &stack, count);
    }
    if stacks.others > 0 {
        let others = names::add_unnamed(&mut profile, "[other stacks]");
        add_sample(&mut profile, &[others], stacks.others);
    }
    pprof::gzip(&pprof::encode(&profile))
}

fn add_sample(profile: &mut Profile, stack: &[u32], count: u64) {
    let stack = profile.dictionary.stacks.intern(&profile.dictionary.symbols, stack);
    let count = count as i64;
    profile.samples.push(stack, 0, &[count, count * SAMPLE_PERIOD_NANOS]);
}

/// Returns the addresses to name: the interrupted instruction, and the calls of the frames around it. A call
/// instruction precedes its return address.
fn call_addresses(stack: &[usize]) -> impl Iterator<Item = usize> {
    stack
        .iter()
        .enumerate()
        .map(|(place, &address)| if place == 0 { address } else { address.saturating_sub(1) })
}
