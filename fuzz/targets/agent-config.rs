//! Any bytes as the configuration of the agent: refused with positions in the text, or settings within their limits.
//! Secrets appear neither in the settings nor in the text that pages show.
#![no_main]

use std::collections::BTreeSet;
use std::path::Path;

use athanor_agent::config::{AgentConfig, ConfigErrors, Environment, parse};
use athanor_agent::operator::config_mask::mask_secrets;
use libfuzzer_sys::fuzz_target;

/// Maximum errors of one configuration.
const MAX_ERRORS: usize = 100;
/// Maximum bytes of a message. It shows up to 100 characters of a value or key, each up to 10 bytes if escaped.
const MAX_MESSAGE_BYTES: usize = 4000;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    match parse(&text, Path::new("agent.yml"), &Environment::default()) {
        Ok(config) => check_settings(&config),
        Err(errors) => check_errors(&errors, &text),
    }
    mask_secrets(&text);
});

fn check_settings(config: &AgentConfig) {
    assert!((1..=16).contains(&config.servers.len()));
    let servers: BTreeSet<&str> = config.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(servers.len(), config.servers.len());
    assert!(servers.iter().all(|name| !name.contains('/') && !name.starts_with('.')));
    assert!(config.spool.min_free_percent < 100);
    let jobs: BTreeSet<&str> = config.jobs.iter().map(|job| job.job.name.as_str()).collect();
    assert_eq!(jobs.len(), config.jobs.len());
    for job in &config.jobs {
        assert!(!job.job.interval.is_zero());
        assert!(!job.job.timeout.is_zero() && job.job.timeout <= job.job.interval);
        assert!(job.job.max_body_bytes <= 64 << 20);
        for kind in job.profiling.kinds.values().filter(|kind| kind.enabled) {
            assert!(kind.recorded_seconds(job.job.interval) != Some(0));
        }
    }
}

fn check_errors(errors: &ConfigErrors, text: &str) {
    assert!((1..=MAX_ERRORS).contains(&errors.errors.len()));
    let lines = text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count() as u64;
    for error in &errors.errors {
        assert!((1..=lines + 1).contains(&error.position.line), "{error:?} in {lines} lines");
        assert!(error.position.column >= 1);
        assert!((1..=MAX_MESSAGE_BYTES).contains(&error.message.len()), "{error:?}");
    }
}
