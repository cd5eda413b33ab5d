//! Spool at its limit, or on a full disk: clients get 429, no acknowledged profile is lost, and the total of a cumulative profile is exact.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use athanor_chassis::{Clock, Random};
use athanor_integration::report_skipped;
use parking_lot::Mutex;

use crate::process::{AgentProcess, AgentSetup, check_mounts, config_text};
use crate::proxy::{NetworkFault, Proxy};
use crate::pushed_profile::{PushRetries, PushedProfile};
use crate::server::{CPU_TYPE, MUTEX_TYPE, query_functions, start_server};
use crate::target::Target;

/// Lines of each profile: about 600 kB.
const PROFILE_LINES: i64 = 30_000;
/// Profiles that neither the spool of 16 MiB nor the disk can hold.
const PROFILES: usize = 40;
/// Size of the disk of a spool that is smaller than its limit.
const SMALL_DISK_SIZE: &str = "6m";
/// The same in bytes.
const SMALL_DISK_BYTES: f64 = 6.0 * 1024.0 * 1024.0;
/// Bytes of the spool.
const SPOOL_BYTES_METRIC: &str = "athanor_agent_spool_bytes";
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const DELIVERY_DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn full_spool_loses_no_acknowledged_profile() {
    run(None);
}

#[test]
fn full_disk_loses_no_acknowledged_profile() {
    match check_mounts() {
        Ok(()) => run(Some(SMALL_DISK_SIZE.to_owned())),
        Err(error) => report_skipped("no mount namespaces to fill a disk in", &error),
    }
}

/// Fills the spool while the server is not reachable, and compares all totals afterwards.
fn run(spool_disk: Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let mut server = start_server(folder.path(), Ipv4Addr::LOCALHOST.into(), 0);
    let proxy = Proxy::start(server.address(), Ipv4Addr::LOCALHOST);
    let target = Target::start(clock.clone(), Random::system(), Ipv4Addr::LOCALHOST);
    let jobs = format!(
        "scrape_configs:
- job_name: mutex
  scrape_interval: 2s
  profiling_config:
    pprof_config: {{process_cpu: {{enabled: false}}, memory: {{enabled: false}}, goroutine: {{enabled: false}},
      block: {{enabled: false}}}}
  static_configs:
  - {{targets: ['{}'], labels: {{service_name: scraped}}}}
",
        target.address()
    );
    let config = config_text(proxy.address(), Ipv4Addr::LOCALHOST, &jobs);
    let is_disk_full = spool_disk.is_some();
    let setup =
        AgentSetup { folder: folder.path().join("agent"), config, spool_disk, ..AgentSetup::default() };
    let agent = Mutex::new(AgentProcess::start(setup));
    let retries = Mutex::new(PushRetries::default());
    proxy.set_fault(NetworkFault::Partition);
    let mut acknowledged = BTreeMap::new();
    let mut spooled_bytes = 0.0;
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let profiles = (0..PROFILES).map(|number| PushedProfile::large(number, &clock, PROFILE_LINES));
            let acknowledge = |profile: PushedProfile| {
                profile.send_until_acknowledged(&agent, &clock, &retries);
                (profile.function(), profile.value())
            };
            profiles.map(acknowledge).collect()
        });
        let begun = clock.monotonic();
        while retries.lock().too_many == 0 && !sending.is_finished() {
            assert!(clock.monotonic() - begun < DELIVERY_DEADLINE, "the spool is not full");
            thread::sleep(POLL_INTERVAL);
        }
        spooled_bytes = agent.lock().metric(SPOOL_BYTES_METRIC);
        proxy.set_fault(NetworkFault::None);
        acknowledged = sending.join().unwrap();
    });
    assert!(retries.lock().too_many > 0, "the spool took everything");
    assert_eq!(retries.lock().server_errors, 0, "a full spool is a 429");
    assert_eq!(spooled_bytes <= SMALL_DISK_BYTES, is_disk_full, "{spooled_bytes} bytes in the spool");
    let contentions = target.freeze();
    let begun = clock.monotonic();
    loop {
        let pushed = query_functions(proxy.address(), CPU_TYPE, "pushed");
        let counted = query_functions(proxy.address(), MUTEX_TYPE, "scraped");
        // A target that was not scraped yet has counted nothing.
        let counted_contentions = counted.get("contended").copied().unwrap_or_default();
        if pushed == acknowledged && counted_contentions == contentions as i64 {
            break;
        }
        assert!(
            clock.monotonic() - begun < DELIVERY_DEADLINE,
            "{pushed:?} of {acknowledged:?}, {counted:?} of {contentions}"
        );
        thread::sleep(POLL_INTERVAL);
    }
    agent.into_inner().stop();
    server.stop();
}
