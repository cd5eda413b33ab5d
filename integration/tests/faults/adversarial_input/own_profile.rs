//! The profile that a server gives of itself: it names functions, and takes little memory where there is little to name.

use std::thread;

use athanor_integration::server::send_request;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::formats::pprof::{DecodeLimits as PprofLimits, decode};
use athanor_profile::{Profile, formats::folded};

use crate::adversarial_input::process::Served;
use crate::adversarial_input::{LIMITS, streams};

/// Memory of a profile without samples: slots of the sampler and buffers of a request.
const IDLE: u64 = 4 << 20;

fn own_profile(server: &Served) -> Profile {
    let answer = send_request(server.address(), "GET /debug/pprof/profile?seconds=1", &[], b"");
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    decode(&answer.body, &PprofLimits::default()).unwrap().0
}

#[test]
fn own_profile_without_samples_takes_no_memory() {
    let server = Served::start_as_shipped(&LIMITS);
    streams::assert_serves(&server);
    // A server that has just started may still have something to do.
    let attempt = |_| {
        let before = server.begin_peak();
        let idle = own_profile(&server);
        let grown = server.peak().saturating_sub(before);
        idle.samples.is_empty().then_some((idle, grown))
    };
    let (idle, grown) = (0..20).find_map(attempt).expect("an idle server takes no processor time");
    let types: Vec<_> = idle.header.types.iter().map(|one| (&*one.kind, &*one.unit)).collect();
    assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
    assert!(idle.header.duration_nanos >= 1_000_000_000);
    println!("{} KiB at the peak of a profile without load", grown >> 10);
    assert!(grown <= IDLE, "{} KiB at the peak of a profile without load", grown >> 10);
    server.end();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a client of a test that waits for its answers")]
fn own_profile_under_load_names_functions() {
    let server = Served::start_as_shipped(&LIMITS);
    let text: String = (0..20_000).map(|number| format!("main;{number:0>100} 1\n")).collect();
    let busy = thread::scope(|scope| {
        let asked = scope.spawn(|| own_profile(&server));
        while !asked.is_finished() {
            let pushed = send_request(server.address(), "POST /ingest?name=busy.cpu", &[], text.as_bytes());
            assert_eq!(pushed.status, 200, "{}", String::from_utf8_lossy(&pushed.body));
        }
        asked.join().unwrap()
    });
    let stacks = folded::write(&Tree::from_profile(&busy, 0));
    println!("{} MiB at the peak under load, {} stacks", server.peak() >> 20, stacks.lines().count());
    // From where the thread begins to what it does: the whole stack, in order.
    let is_whole = |stack: &str| {
        let thread = stack.find("std::sys::thread")?;
        let pool = thread + stack[thread..].find("athanor_chassis::compute")?;
        let walk = pool + stack[pool..].find("athanor_ingester")?;
        Some(walk + stack[walk..].find("athanor_profile")?)
    };
    assert!(stacks.lines().any(|stack| is_whole(stack).is_some()), "{stacks}");
    server.end();
}
