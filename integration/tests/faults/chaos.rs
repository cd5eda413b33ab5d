//! A cluster of real processes in three zones, each a network namespace of its own: processes are killed and zones
//! isolated under load, and at the end each acknowledged profile is there, once.
//!
//! ```text
//!            hub: this test, its clients, a bridge
//!       ┌──────────────────┼──────────────────┐
//!     zone a             zone b             zone c        each: metastore, 2 ingesters, distributor, querier that is a gateway
//!     10.77.1.0/24       10.77.2.0/24       10.77.3.0/24
//! ```
//!
//! The test starts itself a second time inside the hub; the first one makes the namespaces and removes them, whatever
//! becomes of the second. Needs root and iproute2. `integration/chaos` runs it for long.

mod figures;
mod http;
mod ledger;
mod load;
mod oracle;
mod process;
mod scenario;
mod seen;
mod world;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use athanor_chassis::Random;
use athanor_integration::report_skipped;

use scenario::{Numbers, Scenario};
use world::{Inside, World};

/// Name of the test below, which a second process runs inside the namespaces.
const WITHIN_TEST: &str = "chaos::what_is_acknowledged_is_counted_once_whatever_is_killed_or_cut_off";
/// Says to the second test where it is.
const WITHIN: &str = "ATHANOR_CHAOS_WITHIN";
/// Lines of the second test that the first one passes on; the others are those of its harness.
const SAYS: &str = "chaos: ";

#[expect(clippy::disallowed_methods, reason = "the test's own switches")]
fn switch(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str) -> Option<u64> {
    let text = switch(name)?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn say(text: &str) {
    println!("{SAYS}{text}");
}

#[test]
fn what_is_acknowledged_is_counted_once_whatever_is_killed_or_cut_off() {
    if let Some(tag) = switch(WITHIN) {
        return within(Inside::of(&tag));
    }
    let world = match World::build(&std::process::id().to_string()) {
        Ok(world) => world,
        Err(why) => return report_skipped("no network namespaces to cut processes off with", &why),
    };
    let this = std::env::current_exe().unwrap();
    let mut second = Command::new("ip");
    second.args(["netns", "exec", &world.inside().hub()]).arg(this);
    second.args(["--exact", WITHIN_TEST, "--quiet", "--nocapture"]);
    let mut second = second.env(WITHIN, &world.inside().tag).stdout(Stdio::piped()).spawn().unwrap();
    for line in BufReader::new(second.stdout.take().unwrap()).lines() {
        if let Some(said) = line.unwrap().strip_prefix(SAYS) {
            println!("{said}");
        }
    }
    assert!(second.wait().unwrap().success(), "see above");
}

fn within(inside: Inside) {
    let seed = number("ATHANOR_SEED").unwrap_or_else(|| Random::system().next_u64());
    say(&format!("ATHANOR_SEED={seed}"));
    let numbers = Numbers {
        kills: number("ATHANOR_CHAOS_KILLS").unwrap_or(10) as usize,
        isolated: Duration::from_secs(number("ATHANOR_CHAOS_ISOLATED").unwrap_or(20)),
        still: Duration::from_secs(number("ATHANOR_CHAOS_STILL").unwrap_or(6)),
        node_failure_timeout: Duration::from_secs(number("ATHANOR_CHAOS_DEAD_AFTER").unwrap_or(300)),
        limits: number("ATHANOR_CHAOS_LIMITS").is_some(),
    };
    Scenario::new(inside, &Random::from_seed(seed), numbers.node_failure_timeout).run(&numbers);
}
