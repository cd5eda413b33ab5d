//! A program that is busy in one known function and sends its profiles with the SDK for Rust.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pyroscope::backend::{BackendConfig, PprofConfig, pprof_backend};
use pyroscope::pyroscope::PyroscopeAgentBuilder;

#[inline(never)]
fn known_busy_function(until: Instant) -> u64 {
    let mut sum = 0u64;
    while Instant::now() < until {
        for i in 0..1_000_000u64 {
            sum = sum.wrapping_add(black_box(i) * i);
        }
    }
    sum
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("the server's address is wanted")?;
    let backend = pprof_backend(PprofConfig::default(), BackendConfig::default());
    let agent = PyroscopeAgentBuilder::new(url, "rust-busy", 100, "pyroscope-rs", "2.1.5", backend)
        .upload_interval(Duration::from_secs(3))
        .build()?;
    let running = agent.start()?;
    let (tag, untag) = running.tag_wrapper();
    tag("work".to_owned(), "known".to_owned())?;
    black_box(known_busy_function(Instant::now() + Duration::from_secs(7)));
    untag("work".to_owned(), "known".to_owned())?;
    running.stop()?.shutdown();
    Ok(())
}
