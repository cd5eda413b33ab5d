//! Outage of the network to the server, in real time: fresh profiles arrive soon afterwards, the backlog is complete, and
//! each increment of a cumulative profile has the time at which it was scraped.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use athanor_chassis::{Clock, Random};
use athanor_integration::report_skipped;
use parking_lot::Mutex;

use crate::ledger::number_of;
use crate::network::AgentNetwork;
use crate::process::{AgentProcess, AgentSetup, config_text};
use crate::proxy::{NetworkFault, Proxy};
use crate::pushed_profile::{PushRetries, PushedProfile};
use crate::server::{CPU_TYPE, MUTEX_TYPE, query_functions, query_range_functions, start_server_accepting};
use crate::target::Target;

/// Length of the outage if the environment names none.
const DEFAULT_OUTAGE_SECONDS: u64 = 3;
/// Outage from which contentions are compared per minute. In a shorter one they are compared per second.
const LONG_OUTAGE_SECONDS: u64 = 120;
const PUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time until a profile that is pushed after the outage is visible.
const FRESH_DEADLINE: Duration = Duration::from_secs(5);
/// Longest time until the backlog is delivered after a short outage.
const DELIVERY_DEADLINE: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const SPOOL_FILES_METRIC: &str = "athanor_agent_spool_files";

/// Processes of a run and the state that its threads share.
struct OutageTrial {
    clock: Clock,
    random: Random,
    target: Target,
    proxy: Proxy,
    /// None if the process may not create namespaces: then the proxy holds the bytes back.
    network: Option<AgentNetwork>,
    next: AtomicUsize,
    acknowledged: Mutex<BTreeMap<String, i64>>,
    retries: Mutex<PushRetries>,
    stop: AtomicBool,
}

impl OutageTrial {
    /// Pushes one profile and returns its function.
    fn push_profile(&self, agent: &Mutex<AgentProcess>) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let profile = PushedProfile::new(number, &self.clock, &self.random);
        profile.send_until_acknowledged(agent, &self.clock, &self.retries);
        self.acknowledged.lock().insert(profile.function(), profile.value());
        profile.function()
    }

    fn push_profiles(&self, agent: &Mutex<AgentProcess>) {
        while !self.stop.load(Ordering::Relaxed) {
            self.push_profile(agent);
            thread::sleep(PUSH_INTERVAL);
        }
    }

    fn set_partition(&self, is_partitioned: bool) {
        match &self.network {
            Some(network) => network.set_partition(is_partitioned),
            None if is_partitioned => self.proxy.set_fault(NetworkFault::Partition),
            None => self.proxy.set_fault(NetworkFault::None),
        }
    }

    /// Waits until a condition holds and returns the time until then. The condition returns what is missing.
    fn wait_until(&self, deadline: Duration, condition: impl Fn() -> Result<(), String>) -> Duration {
        let begun = self.clock.monotonic();
        loop {
            let result = condition();
            let waited = self.clock.monotonic() - begun;
            match result {
                Ok(()) => return waited,
                Err(missing) => assert!(waited < deadline, "{missing} after {waited:?}"),
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn pushed(&self) -> BTreeMap<String, i64> {
        query_functions(self.proxy.address(), CPU_TYPE, "pushed")
    }

    fn contended(&self) -> Option<i64> {
        query_functions(self.proxy.address(), MUTEX_TYPE, "scraped").get("contended").copied()
    }

    /// Compares the contentions of each window of time with those that the target counted.
    fn compare_windows(&self, window: Duration) {
        let window_millis = window.as_millis() as i64;
        let mut expected: BTreeMap<i64, i64> = BTreeMap::new();
        for (millis, increment) in self.target.contention_increments() {
            *expected.entry(millis - millis % window_millis).or_default() += increment as i64;
        }
        let mut stored = BTreeMap::new();
        for &from in expected.keys() {
            let range = format!("from={from}&until={}", from + window_millis - 1);
            let counted = query_range_functions(self.proxy.address(), MUTEX_TYPE, "scraped", &range);
            stored.insert(from, counted.get("contended").copied().unwrap_or_default());
        }
        assert_eq!(stored, expected, "contentions per {window:?}");
        println!("contentions are equal in {} windows of {window:?}", stored.len());
    }
}

/// Returns the configuration of the agent.
fn agent_config(trial: &OutageTrial, agent_ip: Ipv4Addr) -> String {
    let jobs = format!(
        "scrape_configs:
- job_name: mutex
  scrape_interval: 1s
  profiling_config:
    pprof_config: {{process_cpu: {{enabled: false}}, memory: {{enabled: false}}, goroutine: {{enabled: false}},
      block: {{enabled: false}}}}
  static_configs:
  - {{targets: ['{}'], labels: {{service_name: scraped}}}}
",
        trial.target.address()
    );
    config_text(trial.proxy.address(), agent_ip, &jobs).replace("max_bytes: 16MiB", "max_bytes: 256MiB")
}

/// Runs with an outage of `ATHANOR_AGENT_OUTAGE_SECONDS`. The time until fresh profiles are visible is checked only if
/// it is set, because other tests may run beside this one otherwise.
#[test]
fn profiles_of_an_outage_are_delivered_with_their_times() {
    let outage_seconds = number_of("ATHANOR_AGENT_OUTAGE_SECONDS");
    let outage = Duration::from_secs(outage_seconds.unwrap_or(DEFAULT_OUTAGE_SECONDS));
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let random = Random::system();
    let network = AgentNetwork::build();
    if let Err(error) = &network {
        report_skipped("no network namespaces to cut processes off with", error);
    }
    let network = network.ok();
    let ip_of = |side: fn(&AgentNetwork) -> Ipv4Addr| network.as_ref().map_or(Ipv4Addr::LOCALHOST, side);
    let (server_ip, client_ip) = (ip_of(AgentNetwork::server_side), ip_of(AgentNetwork::client_side));
    let agent_ip = ip_of(AgentNetwork::agent_address);
    let mut server = start_server_accepting(folder.path(), server_ip.into(), 0, "2h");
    let trial = OutageTrial {
        target: Target::start_with_mutex_times(clock.clone(), random.split(), client_ip),
        proxy: Proxy::start(server.address(), server_ip),
        clock,
        random,
        network,
        next: AtomicUsize::new(0),
        acknowledged: Mutex::default(),
        retries: Mutex::default(),
        stop: AtomicBool::new(false),
    };
    let agent = Mutex::new(AgentProcess::start(AgentSetup {
        folder: folder.path().join("agent"),
        config: agent_config(&trial, agent_ip),
        namespace: trial.network.as_ref().map(|network| network.namespace().to_owned()),
        ..AgentSetup::default()
    }));
    thread::scope(|scope| {
        let pushing = scope.spawn(|| trial.push_profiles(&agent));
        trial.wait_until(DELIVERY_DEADLINE, || {
            let is_delivered = !trial.pushed().is_empty() && trial.contended().is_some();
            is_delivered.then_some(()).ok_or_else(|| "no profile before the outage".to_owned())
        });
        trial.set_partition(true);
        thread::sleep(outage);
        let backlog = agent.lock().metric(SPOOL_FILES_METRIC);
        assert!(backlog >= outage.as_secs_f64() / 2.0, "{backlog} files after an outage of {outage:?}");
        trial.set_partition(false);
        let fresh = trial.push_profile(&agent);
        let delay = trial.wait_until(DELIVERY_DEADLINE, || {
            trial.pushed().contains_key(&fresh).then_some(()).ok_or_else(|| format!("{fresh} is missing"))
        });
        println!("{backlog} files after {outage:?}, a fresh profile was visible after {delay:?}");
        assert!(outage_seconds.is_none() || delay <= FRESH_DEADLINE, "a fresh profile after {delay:?}");
        trial.stop.store(true, Ordering::Relaxed);
        pushing.join().unwrap();
    });
    let contentions = trial.target.freeze() as i64;
    let delay = trial.wait_until(DELIVERY_DEADLINE + outage / 10, || {
        let (pushed, contended) = (trial.pushed(), trial.contended());
        let acknowledged = trial.acknowledged.lock();
        let is_complete = pushed == *acknowledged && contended == Some(contentions);
        let state = || format!("{pushed:?} of {acknowledged:?}, {contended:?} of {contentions}");
        is_complete.then_some(()).ok_or_else(state)
    });
    println!("{} pushed profiles and the contentions are complete {delay:?} later", trial.pushed().len());
    let is_long = outage.as_secs() >= LONG_OUTAGE_SECONDS;
    trial.compare_windows(Duration::from_secs(if is_long { 60 } else { 1 }));
    agent.into_inner().stop();
    server.stop();
}
