//! Ledger of all profiles that clients pushed and a target served, compared with queries after kills and faults.
//!
//! ```text
//!  clients ─► agent (killed) ─► proxy (partitions, lost responses) ─► server (killed)
//!  target  ◄──┘                                                         │
//!     └──────────────── ledger ── compared with ── queries ─────────────┘
//! ```
//!
//! A pushed profile counts exactly once after its acknowledgement. A served CPU profile counts at most once, and only
//! a kill of the agent may lose it. Contentions are counted from the start of the target, so their total is exact
//! even after lost profiles.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use athanor_chassis::{Clock, Random};
use athanor_integration::process::ServerProcess;
use athanor_integration::report_skipped;
use athanor_integration::server::RESPONSE_DEADLINE;
use parking_lot::Mutex;

use crate::clock_shift::ClockShift;
use crate::network::AgentNetwork;
use crate::process::{AgentProcess, AgentSetup, config_text};
use crate::proxy::{NetworkFault, Proxy};
use crate::pushed_profile::{PushRetries, PushedProfile};
use crate::server::{CPU_TYPE, MUTEX_TYPE, query_functions, start_server};
use crate::target::{ServedProfile, Target};

const CLIENTS: usize = 3;
/// Number of targets with CPU profiles, all at one address.
const CPU_TARGETS: usize = 8;
/// Time for which the agent may hold a scraped profile before it is durable: the time until a file is closed, and a
/// slow disk.
const UNSPOOLED_WINDOW: Duration = Duration::from_secs(4);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longest pause before a fault.
const MAX_FAULT_PAUSE: Duration = Duration::from_millis(1500);
const MAX_PARTITION: Duration = Duration::from_secs(3);
/// Longest time of a shifted clock.
const MAX_SHIFT_TIME: Duration = Duration::from_secs(3);
const CLOCK_SHIFT_SECONDS: i64 = 3600;
const CLOCK_JUMPS_METRIC: &str = "athanor_agent_clock_jumps_total";
/// Longest wait for the delivery of everything after the faults.
const DELIVERY_DEADLINE: Duration = Duration::from_secs(90);

/// Fault between two pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LedgerFault {
    AgentKill,
    ServerKill,
    Partition,
    LostResponse,
    ClockAhead,
    ClockBehind,
}

/// Kill of the agent, by the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct AgentKill {
    begun: Duration,
    ended: Duration,
}

/// Processes of a run and the state that its threads share.
struct Trial<'f> {
    folder: &'f Path,
    clock: Clock,
    random: Random,
    target: Target,
    proxy: Proxy,
    /// None if the process may not create namespaces: then the proxy holds the bytes of a partition back.
    network: Option<AgentNetwork>,
    clock_shift: ClockShift,
    acknowledged: Mutex<BTreeMap<String, i64>>,
    next: AtomicUsize,
    retries: Mutex<PushRetries>,
    agent_kills: Mutex<Vec<AgentKill>>,
    stop: AtomicBool,
}

/// Returns jobs for the kinds of the target. The CPU profiles are those since the last request, not recordings.
fn scrape_jobs(target: &Target) -> String {
    let address = target.address();
    let mut jobs = format!(
        "scrape_configs:
- job_name: mutex
  scrape_interval: 2s
  profiling_config:
    pprof_config: {{process_cpu: {{enabled: false}}, memory: {{enabled: false}}, goroutine: {{enabled: false}},
      block: {{enabled: false}}}}
  static_configs:
  - {{targets: ['{address}'], labels: {{service_name: scraped}}}}
- job_name: cpu
  scrape_interval: 2s
  profiling_config:
    pprof_config: {{process_cpu: {{delta: false}}, memory: {{enabled: false}}, goroutine: {{enabled: false}},
      block: {{enabled: false}}, mutex: {{enabled: false}}}}
  static_configs:
"
    );
    for copy in 0..CPU_TARGETS {
        let labels = format!("{{service_name: scraped, copy: '{copy}'}}");
        jobs.push_str(&format!("  - {{targets: ['{address}'], labels: {labels}}}\n"));
    }
    jobs
}

impl Trial<'_> {
    /// Pushes profiles to the agent until the end of the run. Each is sent until it is acknowledged.
    fn push_profiles(&self, agent: &Mutex<AgentProcess>, random: &Random) {
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let profile = PushedProfile::new(number, &self.clock, random);
            profile.send_until_acknowledged(agent, &self.clock, &self.retries);
            self.acknowledged.lock().insert(profile.function(), profile.value());
            thread::sleep(Duration::from_millis(random.next_below(40)));
        }
    }

    /// Waits for at least half of a time.
    fn pause(&self, longest: Duration) {
        thread::sleep(self.random.jitter(longest));
    }

    /// Injects all faults in random order.
    fn inject_faults(
        &self,
        agent: &Mutex<AgentProcess>,
        server: &mut Option<ServerProcess>,
        mut faults: Vec<LedgerFault>,
    ) {
        let mut server_lives = 0;
        while !faults.is_empty() {
            self.pause(MAX_FAULT_PAUSE);
            let index = self.random.next_below(faults.len() as u64) as usize;
            match faults.swap_remove(index) {
                LedgerFault::AgentKill => {
                    let mut agent = agent.lock();
                    let begun = self.clock.monotonic();
                    agent.restart();
                    self.agent_kills.lock().push(AgentKill { begun, ended: self.clock.monotonic() });
                }
                LedgerFault::ServerKill => {
                    server_lives += 1;
                    server.take().expect("it runs").kill();
                    let next =
                        server.insert(start_server(self.folder, self.proxy.address().ip(), server_lives));
                    self.proxy.set_upstream(next.address());
                }
                LedgerFault::Partition => {
                    self.set_partition(true);
                    self.pause(MAX_PARTITION);
                    self.set_partition(false);
                }
                LedgerFault::LostResponse => self.lose_responses(),
                LedgerFault::ClockAhead => self.shift_clock(agent, CLOCK_SHIFT_SECONDS),
                LedgerFault::ClockBehind => self.shift_clock(agent, -CLOCK_SHIFT_SECONDS),
            }
        }
    }

    fn set_partition(&self, is_partitioned: bool) {
        match &self.network {
            Some(network) => network.set_partition(is_partitioned),
            None if is_partitioned => self.proxy.set_fault(NetworkFault::Partition),
            None => self.proxy.set_fault(NetworkFault::None),
        }
    }

    /// Lets the agent's clock jump, and back later.
    fn shift_clock(&self, agent: &Mutex<AgentProcess>, seconds: i64) {
        let before = agent.lock().metric(CLOCK_JUMPS_METRIC);
        self.clock_shift.set_seconds(seconds);
        self.pause(MAX_SHIFT_TIME);
        self.clock_shift.set_seconds(0);
        assert!(agent.lock().metric(CLOCK_JUMPS_METRIC) > before, "the agent counts no jump");
    }

    /// Loses responses until the server has stored a request whose response did not arrive.
    fn lose_responses(&self) {
        let before = self.proxy.lost_responses();
        self.proxy.set_fault(NetworkFault::LostResponses);
        let begun = self.clock.monotonic();
        while self.proxy.lost_responses() == before && self.clock.monotonic() - begun < RESPONSE_DEADLINE {
            thread::sleep(POLL_INTERVAL);
        }
        self.proxy.set_fault(NetworkFault::None);
        assert!(self.proxy.lost_responses() > before, "no response was lost");
    }

    /// Returns whether a kill of the agent may have lost a profile.
    fn is_near_kill(&self, profile: &ServedProfile) -> bool {
        let Some(served) = profile.served else { return true };
        let kills = self.agent_kills.lock();
        kills.iter().any(|kill| served <= kill.ended && served + UNSPOOLED_WINDOW > kill.begun)
    }

    /// Waits until the server has what the agent acknowledged and what the target served.
    fn wait_for_delivery(&self, contentions: u64) {
        let begun = self.clock.monotonic();
        loop {
            let pushed = query_functions(self.proxy.address(), CPU_TYPE, "pushed");
            let acknowledged = self.acknowledged.lock();
            let missing = acknowledged.keys().filter(|function| !pushed.contains_key(*function));
            let missing: Vec<String> = missing.cloned().collect();
            drop(acknowledged);
            let scraped = query_functions(self.proxy.address(), CPU_TYPE, "scraped");
            let served = self.target.served_profiles();
            let lost = served.iter().filter(|(number, profile)| {
                !scraped.contains_key(&format!("scraped{number}")) && !self.is_near_kill(profile)
            });
            let lost: Vec<_> = lost.collect();
            let counted = query_functions(self.proxy.address(), MUTEX_TYPE, "scraped");
            let is_counted = counted.get("contended") == Some(&(contentions as i64));
            if missing.is_empty() && lost.is_empty() && is_counted {
                return;
            }
            let waited = self.clock.monotonic() - begun;
            assert!(
                waited < DELIVERY_DEADLINE,
                "acknowledged and missing: {missing:?}; served and lost: {lost:?}, {:?}; {counted:?} of {contentions}",
                self.agent_kills.lock()
            );
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Compares all values with the ledger.
    fn compare(&self) {
        let pushed = query_functions(self.proxy.address(), CPU_TYPE, "pushed");
        assert_eq!(pushed, *self.acknowledged.lock());
        let served = self.target.served_profiles();
        let scraped = query_functions(self.proxy.address(), CPU_TYPE, "scraped");
        for (function, value) in &scraped {
            let number = function.strip_prefix("scraped").and_then(|number| number.parse().ok());
            let profile = number.and_then(|number: u64| served.get(&number));
            assert_eq!(profile.map(|profile| profile.value), Some(*value), "{function}");
        }
        let kills = self.agent_kills.lock().len();
        let retries = self.retries.lock();
        println!(
            "{kills} kills of the agent, {} pushed profiles after {} retries, {} of {} scraped profiles, {} lost \
             responses",
            pushed.len(),
            retries.no_response + retries.too_many + retries.server_errors,
            scraped.len(),
            served.len(),
            self.proxy.lost_responses(),
        );
        assert!(pushed.len() > 10 * kills && scraped.len() > kills, "hardly any load");
    }
}

fn run(faults: Vec<LedgerFault>, random: Random) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let network = AgentNetwork::build();
    if let Err(error) = &network {
        report_skipped("no network namespaces to cut processes off with", error);
    }
    let network = network.ok();
    let ip_of = |side: fn(&AgentNetwork) -> Ipv4Addr| network.as_ref().map_or(Ipv4Addr::LOCALHOST, side);
    let server_ip = ip_of(AgentNetwork::server_side);
    let client_ip = ip_of(AgentNetwork::client_side);
    let agent_ip = ip_of(AgentNetwork::agent_address);
    let mut first = start_server(folder.path(), server_ip.into(), 0);
    let trial = Trial {
        folder: folder.path(),
        target: Target::start(clock.clone(), random.split(), client_ip),
        proxy: Proxy::start(first.address(), server_ip),
        clock_shift: ClockShift::build(folder.path()).unwrap(),
        clock,
        random,
        acknowledged: Mutex::default(),
        next: AtomicUsize::new(0),
        retries: Mutex::default(),
        agent_kills: Mutex::default(),
        network,
        stop: AtomicBool::new(false),
    };
    let setup = AgentSetup {
        folder: folder.path().join("agent"),
        config: config_text(trial.proxy.address(), agent_ip, &scrape_jobs(&trial.target)),
        variables: trial.clock_shift.variables(),
        namespace: trial.network.as_ref().map(|network| network.namespace().to_owned()),
        spool_disk: None,
    };
    let agent = Mutex::new(AgentProcess::start(setup));
    let mut server = Some(first);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let random = trial.random.split();
            let (trial, agent) = (&trial, &agent);
            scope.spawn(move || trial.push_profiles(agent, &random));
        }
        trial.inject_faults(&agent, &mut server, faults);
        trial.stop.store(true, Ordering::Relaxed);
    });
    let contentions = trial.target.freeze();
    trial.wait_for_delivery(contentions);
    trial.compare();
    agent.into_inner().stop();
    server.expect("it runs").stop();
}

/// Returns the number in an environment variable.
pub fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|number| number.parse().ok())
}

/// Runs with `ATHANOR_AGENT_KILLS` kills of the agent, half as many of the server, and other faults between them.
#[test]
fn profiles_are_delivered_once_whatever_is_killed() {
    let seed = number_of("ATHANOR_SEED").unwrap_or_else(|| Random::system().next_u64());
    println!("ATHANOR_SEED={seed}");
    let agent_kills = number_of("ATHANOR_AGENT_KILLS").unwrap_or(5) as usize;
    let mut faults = vec![LedgerFault::AgentKill; agent_kills];
    faults.extend(vec![LedgerFault::ServerKill; agent_kills.div_ceil(2)]);
    let others = [
        LedgerFault::Partition,
        LedgerFault::LostResponse,
        LedgerFault::ClockAhead,
        LedgerFault::ClockBehind,
    ];
    faults.extend(others.repeat(agent_kills.div_ceil(10)));
    run(faults, Random::from_seed(seed));
}
