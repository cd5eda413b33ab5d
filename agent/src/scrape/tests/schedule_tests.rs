use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::time::clock::ManualClock;
use proptest::prelude::*;

use super::super::outcome::ScrapeError;
use super::super::test_profiles::{default_kinds, job, kind, target};
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(15);
const RESPONSE: Duration = Duration::from_millis(40);

/// Response to a scrape: its time after the recording, and its result.
type Respond = fn(&ScrapeOrder, u64) -> (Duration, Result<u64, ScrapeError>);

/// Start of a scrape in a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SimulatedStart {
    address: String,
    kind: String,
    at: Duration,
    wall: Timestamp,
    seconds: Option<u32>,
}

/// Schedule on a manual clock, with responses that take a simulated time.
struct Simulation {
    clock: Clock,
    hand: ManualClock,
    schedule: ScrapeSchedule,
    running: BTreeMap<(Duration, u64), ScrapeOrder>,
    starts: Vec<SimulatedStart>,
    number: u64,
    respond: Respond,
}

impl Simulation {
    fn start(wall_seconds: i64) -> Self {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(wall_seconds));
        let schedule = ScrapeSchedule::new(&clock);
        let respond = |_: &ScrapeOrder, _: u64| (RESPONSE, Ok(100));
        Self { clock, hand, schedule, running: BTreeMap::new(), starts: vec![], number: 0, respond }
    }

    fn set_targets(&mut self, targets: Vec<ScrapeTarget>) {
        self.schedule.set_targets(&Arc::new(targets), self.clock.monotonic());
    }

    fn run(&mut self, time: Duration) {
        let end = self.clock.monotonic() + time;
        loop {
            let finish = self.running.keys().next().map(|(at, _)| *at);
            let next = [finish, self.schedule.next_wake()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.hand.advance(next.saturating_sub(self.clock.monotonic()));
            self.step();
        }
        self.hand.advance(end - self.clock.monotonic());
    }

    fn step(&mut self) {
        let now = self.clock.monotonic();
        while let Some(entry) = self.running.first_entry()
            && entry.key().0 <= now
        {
            let (key, order) = entry.remove_entry();
            if order.cancel.is_cancelled() {
                continue;
            }
            let (_, result) = (self.respond)(&order, key.1);
            let is_stored = result.is_ok();
            let report = ScrapeReport { started_at: self.clock.wall(), duration: RESPONSE, result };
            assert!(self.schedule.finish(order.id, &report, now));
            if is_stored {
                self.schedule.finish_store(&order);
            }
        }
        for order in self.schedule.start_due(now) {
            let target = order.target.get();
            self.starts.push(SimulatedStart {
                address: target.address.clone(),
                kind: order.kind().name.clone(),
                at: now,
                wall: self.clock.wall(),
                seconds: order.seconds,
            });
            self.number += 1;
            let (response, result) = (self.respond)(&order, self.number);
            // A target that fails responds without a recording.
            let recorded = order.seconds.filter(|_| result.is_ok()).unwrap_or_default();
            let time = (Duration::from_secs(recorded.into()) + response).min(order.limit);
            let is_running = |other: &&ScrapeOrder| {
                other.target.get().address == target.address && !other.cancel.is_cancelled()
            };
            assert_eq!(self.running.values().find(is_running).map(|_| ()), None, "kinds overlap");
            self.running.insert((now + time, self.number), order);
        }
    }

    fn starts_of<'a>(&'a self, address: &'a str, kind: &'a str) -> impl Iterator<Item = &'a SimulatedStart> {
        self.starts.iter().filter(move |start| start.address == address && start.kind == kind)
    }
}

fn hosts(count: usize, timeout: Duration) -> Vec<ScrapeTarget> {
    let job = job(INTERVAL, timeout);
    (0..count).map(|host| target(&job, &format!("host-{host}:80"), default_kinds())).collect()
}

fn error(kind: ScrapeErrorKind) -> Result<u64, ScrapeError> {
    Err(ScrapeError::new(kind, "test"))
}

#[test]
fn each_kind_is_scraped_once_in_each_interval() {
    let mut simulation = Simulation::start(1_700_000_000);
    simulation.set_targets(hosts(50, 10 * SECOND));
    simulation.run(20 * INTERVAL);
    for host in 0..50 {
        for kind in default_kinds() {
            let address = format!("host-{host}:80");
            let starts: Vec<_> = simulation.starts_of(&address, &kind.name).collect();
            assert!((19..=20).contains(&starts.len()), "{address} {}: {}", kind.name, starts.len());
            for pair in starts.windows(2) {
                let distance = pair[1].at - pair[0].at;
                assert!(distance.abs_diff(INTERVAL) < SECOND / 2, "{distance:?}");
            }
            assert!(starts.iter().all(|start| start.seconds == kind.seconds));
        }
    }
    let counts = simulation.schedule.counts;
    assert_eq!((counts.late, counts.missed), (0, 0));
    assert_eq!(simulation.schedule.count_states(), [0, 50, 0, 0, 0]);
}

#[test]
fn target_that_hangs_does_not_delay_others() {
    let mut simulation = Simulation::start(1_700_000_000);
    simulation.respond = |order, _| match order.target.get().address.as_str() {
        "host-3:80" => (3600 * SECOND, error(ScrapeErrorKind::Timeout)),
        _ => (RESPONSE, Ok(1)),
    };
    simulation.set_targets(hosts(20, 10 * SECOND));
    simulation.run(20 * INTERVAL);
    for host in (0..20).filter(|host| *host != 3) {
        let address = format!("host-{host}:80");
        assert!(simulation.starts_of(&address, "process_cpu").count() >= 19);
        assert!(simulation.starts_of(&address, "mutex").count() >= 19);
    }
    assert_eq!(simulation.schedule.count_states(), [0, 19, 0, 0, 1]);
}

#[test]
fn kind_that_hangs_delays_others_of_its_target_once() {
    let mut simulation = Simulation::start(1_700_000_000);
    simulation.respond = |order, _| match order.kind().name.as_str() {
        "goroutine" => (order.limit, error(ScrapeErrorKind::Timeout)),
        _ => (RESPONSE, Ok(1)),
    };
    simulation.set_targets(hosts(5, 10 * SECOND));
    simulation.run(16 * INTERVAL);
    for host in 0..5 {
        let address = format!("host-{host}:80");
        let seconds: Vec<u32> =
            simulation.starts_of(&address, "process_cpu").filter_map(|start| start.seconds).collect();
        let whole = seconds.iter().filter(|seconds| **seconds >= 13).count();
        assert!(seconds.len() >= 14 && whole + 2 >= seconds.len(), "{seconds:?}");
    }
}

#[test]
fn targets_that_differ_in_their_kinds_only_are_all_scraped() {
    let job = job(INTERVAL, SECOND);
    let at_path = |path: &str| ProfileKind { path: path.to_owned(), ..kind("memory", None) };
    let with_param = ProfileKind { params: vec![("gc".into(), "1".into())], ..kind("memory", None) };
    let with_name = ProfileKind { metric_name: "heap".into(), ..kind("memory", None) };
    let kinds = [at_path("/a"), at_path("/b"), with_param, with_name, kind("mutex", None)];
    let targets: Vec<_> = kinds.into_iter().map(|kind| target(&job, "a:1", vec![kind])).collect();
    let mut schedule = Simulation::start(1_700_000_000).schedule;
    schedule.set_targets(&Arc::new(vec![targets[0].clone()]), Duration::ZERO);
    let first_wake = schedule.next_wake();
    let doubled = Arc::new([targets.clone(), targets.clone()].concat());
    let mut timers = Vec::new();
    for _ in 0..2 {
        schedule.set_targets(&doubled, Duration::ZERO);
        assert_eq!(schedule.queued_timers(), targets.len());
        let times = schedule.targets.values().map(|entry| (entry.target.get().kinds[0].clone(), entry.timer));
        let times: BTreeMap<_, _> = times.map(|(kind, timer)| (format!("{kind:?}"), timer)).collect();
        timers.push(times);
    }
    assert_eq!(timers[0], timers[1], "an unchanged list moves nothing");
    let first = &timers[0][&format!("{:?}", targets[0].kinds[0])];
    assert_eq!(*first, first_wake, "a further target moves no other one");
    let orders = schedule.start_due(INTERVAL);
    let requests: BTreeSet<_> = orders.iter().map(|order| format!("{:?}", order.kind())).collect();
    assert_eq!((orders.len(), requests.len()), (targets.len(), targets.len()));
}

#[test]
fn late_scrapes_and_missed_scrapes_are_counted() {
    let mut simulation = Simulation::start(1_700_000_000);
    let kinds = vec![kind("memory", None), kind("mutex", None)];
    simulation.set_targets(vec![target(&job(INTERVAL, 60 * SECOND), "slow:1", kinds)]);
    // Each takes 10 s, so two kinds do not fit in 15 s.
    simulation.respond = |_, _| (10 * SECOND, Ok(1));
    simulation.run(40 * INTERVAL);
    let counts = simulation.schedule.counts;
    assert!(counts.late > 10 && counts.missed > 10, "{counts:?}");
    let memory = simulation.starts_of("slow:1", "memory").count();
    let mutex = simulation.starts_of("slow:1", "mutex").count();
    assert!(memory.abs_diff(mutex) <= 1 && memory >= 14, "{memory} {mutex}");
}

#[test]
fn scrape_waits_for_the_spool_to_store_the_profiles_before_it() {
    for (is_cumulative, max_stores) in [(true, 1), (false, 2)] {
        let mut simulation = Simulation::start(1_700_000_000);
        let kind = ProfileKind { is_cumulative, ..kind("memory", None) };
        simulation.set_targets(vec![target(&job(INTERVAL, SECOND), "a:1", vec![kind])]);
        let mut due = simulation.schedule.next_wake().unwrap();
        let mut orders = Vec::new();
        for _ in 0..max_stores {
            let order = simulation.schedule.start_due(due).remove(0);
            let report = ScrapeReport { started_at: Timestamp::UNIX_EPOCH, duration: SECOND, result: Ok(1) };
            assert!(simulation.schedule.finish(order.id, &report, due));
            orders.push(order);
            due += INTERVAL;
        }
        assert!(simulation.schedule.start_due(due).is_empty());
        assert_eq!(simulation.schedule.counts.missed, 1);
        simulation.schedule.finish_store(&orders[0]);
        assert_eq!(simulation.schedule.start_due(due + INTERVAL).len(), 1);
    }
}

#[test]
fn states_of_busy_absent_and_failed_kinds() {
    let mut simulation = Simulation::start(1_700_000_000);
    simulation.respond = |order, _| {
        let result = match (order.target.get().address.as_str(), order.kind().name.as_str()) {
            ("host-0:80", "process_cpu") => error(ScrapeErrorKind::Busy),
            ("host-1:80", "mutex") | ("host-2:80", _) => error(ScrapeErrorKind::NotFound),
            ("host-3:80", "block") => error(ScrapeErrorKind::NotPprof),
            _ => Ok(1),
        };
        (RESPONSE, result)
    };
    simulation.set_targets(hosts(4, 10 * SECOND));
    simulation.run(4 * INTERVAL);
    let now = simulation.clock.monotonic();
    let statuses = simulation.schedule.statuses(now, simulation.clock.wall());
    let states: Vec<KindState> = statuses.iter().map(|status| status.state).collect();
    assert_eq!(states, [KindState::Busy, KindState::Up, KindState::Absent, KindState::Down]);
    assert_eq!(simulation.starts_of("host-1:80", "mutex").count(), 1);
    // Each interval has one retry. The last one may lie past the end.
    assert!((7..=8).contains(&simulation.starts_of("host-0:80", "process_cpu").count()));
    let block = &statuses[3].kinds[4];
    assert!((3..=4).contains(&block.scrapes) && block.scrapes == block.failures, "{block:?}");
    assert_eq!(block.error.as_deref(), Some("test"));
    assert!(block.next_scrape > simulation.clock.wall());
}

#[test]
fn reload_moves_only_scrapes_whose_settings_changed() {
    let mut simulation = Simulation::start(1_700_000_000);
    let old = hosts(4, 10 * SECOND);
    simulation.set_targets(old.clone());
    simulation.run(3 * INTERVAL + 7 * SECOND);
    let running: Vec<ScrapeOrder> = simulation.running.values().cloned().collect();
    let mut new = old;
    new.remove(0);
    // Another parameter of one kind, and a kind more.
    new[0].kinds[1].params = vec![("gc".to_owned(), "1".to_owned())];
    new[1].kinds.push(kind("godeltaprof_mutex", None));
    new.reverse();
    simulation.set_targets(new);
    for order in &running {
        let is_removed = order.target.get().address == "host-0:80";
        assert_eq!(order.cancel.is_cancelled(), is_removed, "{}", order.target.get().address);
    }
    simulation.starts.retain(|start| start.address != "host-0:80");
    simulation.run(3 * INTERVAL);
    for host in 1..4 {
        for kind in default_kinds() {
            let address = format!("host-{host}:80");
            let starts: Vec<_> = simulation.starts_of(&address, &kind.name).collect();
            assert!(starts.len() >= 6, "{address} {}", kind.name);
            for pair in starts.windows(2) {
                assert!((pair[1].at - pair[0].at).abs_diff(INTERVAL) < SECOND / 2, "{pair:?}");
            }
        }
    }
    assert_eq!(simulation.starts_of("host-0:80", "memory").count(), 0);
    assert_eq!(simulation.starts_of("host-2:80", "godeltaprof_mutex").count(), 3);
    assert_eq!(simulation.schedule.counts.missed, 0);
}

#[test]
fn reload_that_changes_a_running_kind_cancels_its_scrape() {
    let mut simulation = Simulation::start(1_700_000_000);
    let mut targets = hosts(1, 10 * SECOND);
    simulation.set_targets(targets.clone());
    while !simulation.running.values().any(|order| order.kind().name == "process_cpu") {
        simulation.run(SECOND);
    }
    let running = simulation.running.values().next().unwrap().clone();
    targets[0].kinds[0].path = "/other".to_owned();
    simulation.set_targets(targets);
    assert!(running.cancel.is_cancelled());
    simulation.run(3 * INTERVAL);
    assert_eq!(simulation.schedule.count_states(), [0, 1, 0, 0, 0]);
}

#[test]
fn many_reloads_leave_one_timer_per_target() {
    let mut simulation = Simulation::start(1_700_000_000);
    for _ in 0..50 {
        simulation.set_targets(hosts(10, SECOND));
        simulation.set_targets([hosts(10, SECOND), hosts(10, 2 * SECOND)].concat());
    }
    assert_eq!(simulation.schedule.queued_timers(), 10);
    simulation.set_targets(vec![]);
    assert_eq!((simulation.schedule.queued_timers(), simulation.schedule.next_wake()), (0, None));
}

/// Returns the phases of all starts, by target and kind, in milliseconds.
fn phases(simulation: &Simulation, interval: Duration) -> BTreeMap<(String, String), BTreeSet<i64>> {
    let mut phases: BTreeMap<_, BTreeSet<i64>> = BTreeMap::new();
    for start in &simulation.starts {
        let phase = start.wall.nanos().rem_euclid(interval.as_nanos() as i64) / 1_000_000;
        phases.entry((start.address.clone(), start.kind.clone())).or_default().insert(phase);
    }
    phases
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn phases_are_equal_after_a_restart_and_with_other_targets(
        first_start in 1_600_000_000_i64..1_700_000_000,
        second_start in 1_600_000_000_i64..1_700_000_000,
        interval_seconds in 5_u32..120,
        others in 0_usize..10,
    ) {
        let interval = interval_seconds * SECOND;
        let job = job(interval, SECOND);
        let own = || {
            let mut kinds = default_kinds();
            kinds[0].seconds = Some(interval_seconds - 1);
            vec![target(&job, "own:1", kinds), target(&job, "own:2", vec![kind("memory", None)])]
        };
        let mut first = Simulation::start(first_start);
        first.set_targets(own());
        // Nobody waits for a response, so each scrape starts at its phase.
        first.respond = |_, _| (Duration::ZERO, Ok(1));
        first.run(4 * interval);
        let mut second = Simulation::start(second_start);
        second.respond = first.respond;
        second.hand.advance(Duration::from_millis(1234));
        second.set_targets([hosts(others, SECOND), own()].concat());
        second.run(4 * interval);
        let mut found = phases(&second, interval);
        found.retain(|(address, _), _| address.starts_with("own"));
        prop_assert_eq!(phases(&first, interval), found);
    }

    #[test]
    fn kinds_of_a_target_never_overlap_and_recordings_end_in_time(
        responses in proptest::collection::vec(1_u64..4000, 8),
        recordings in 0_usize..4,
        snapshots in 0_usize..6,
    ) {
        let mut kinds: Vec<ProfileKind> =
            (0..recordings).map(|number| kind(&format!("recording-{number}"), Some(14))).collect();
        kinds.extend((0..snapshots).map(|number| kind(&format!("snapshot-{number}"), None)));
        let mut simulation = Simulation::start(1_700_000_000);
        simulation.respond = |_, number| (Duration::from_millis(number * 7919 % 400), Ok(1));
        let job = job(INTERVAL, 10 * SECOND);
        simulation.set_targets(vec![target(&job, "a:1", kinds.clone())]);
        for response in responses {
            // The simulation asserts that no kinds overlap.
            simulation.run(Duration::from_millis(response * 10));
        }
        let time = simulation.clock.monotonic();
        let intervals = (time.as_secs() / 15) as usize;
        for kind in kinds {
            let starts = simulation.starts_of("a:1", &kind.name).count();
            prop_assert!(starts + 2 >= intervals * 3 / 4, "{}: {starts} in {time:?}", kind.name);
        }
    }
}
