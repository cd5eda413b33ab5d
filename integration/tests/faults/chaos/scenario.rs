//! What happens to the cluster, and what must be true afterwards.

use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use athanor_chassis::{Clock, Random};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::chaos::figures::{Event, LEADER_DIES, misses, tell};
use crate::chaos::ledger::SERVICES;
use crate::chaos::load::Load;
use crate::chaos::oracle::{Held, ask};
use crate::chaos::process::Process;
use crate::chaos::say;
use crate::chaos::seen::{lacks, leaders};
use crate::chaos::world::{Cut, Inside, ZONES};

/// Kills between two comparisons.
const COMPARE_EVERY: usize = 10;
const LOOK: Duration = Duration::from_millis(100);
/// For a querier to see that a shard has a leader again: a round of probes calls each member, for up to two seconds each.
const PROBED_WITHIN: Duration = Duration::from_secs(10);
/// For states that must come. Long: a test that is slow proves nothing.
const PATIENCE: Duration = Duration::from_secs(180);
/// Acknowledgements that must come while a zone is cut off.
const GOES_ON: usize = 50;
/// Differences that are shown.
const SHOWN: usize = 10;

/// How much of it.
pub struct Numbers {
    pub kills: usize,
    /// How long a zone is cut off.
    pub isolated: Duration,
    /// How long a process stands still, at most.
    pub still: Duration,
    /// How long a process may be missing until others take its place.
    pub node_failure_timeout: Duration,
    /// Whether it fails where recovery takes too long.
    pub limits: bool,
}

pub struct Scenario {
    inside: Inside,
    random: Random,
    clock: Clock,
    load: Load,
    events: Mutex<Vec<Event>>,
    /// How long those took that were asked to end.
    ends: Mutex<Vec<Duration>>,
    // Ended before their folder goes.
    processes: Vec<Process>,
    folder: Option<TempDir>,
}

impl Scenario {
    pub fn new(inside: Inside, random: &Random, node_failure_timeout: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let processes = Process::all(&inside, folder.path(), node_failure_timeout);
        let clock = Clock::system();
        let load = Load::new(clock.clone(), &processes);
        let (random, folder) = (random.split(), Some(folder));
        let (events, ends) = (Mutex::default(), Mutex::default());
        Self { inside, random, clock, load, events, ends, processes, folder }
    }

    pub fn run(&self, numbers: &Numbers) {
        self.processes.iter().for_each(Process::start);
        let begun = self.clock.monotonic();
        say(&format!("the cluster is whole after {:.1} s", self.whole().as_secs_f64()));
        let mut killed = 0;
        while killed < numbers.kills {
            let until = (killed + COMPARE_EVERY).min(numbers.kills);
            self.load.during(&self.random, || {
                let mut zone = self.zone();
                while killed < until {
                    if self.random.next_below(8) == 0 {
                        self.stand_still(numbers.still);
                    }
                    killed += self.kill_some(&mut zone);
                }
                self.recovered();
            });
            self.compare();
            say(&format!("{killed} kills, {} profiles, all equal", self.load.ledger().acknowledged()));
        }
        self.load.during(&self.random, || self.isolate(numbers.isolated));
        self.compare();
        self.restart();
        self.compare();
        self.tell(killed, self.clock.monotonic() - begun);
        if numbers.limits {
            let misses = misses(&self.events.lock(), &self.load.ledger().took, &self.ends.lock());
            assert!(misses.is_empty(), "nothing was lost, but it took too long: {misses:#?}");
        }
    }

    fn zone(&self) -> usize {
        self.random.next_below(ZONES.len() as u64) as usize
    }

    fn rest(&self, most: Duration) {
        thread::sleep(Duration::from_millis(self.random.next_below(most.as_millis() as u64 + 1)));
    }

    /// Waits until the cluster is whole; gives how long that took.
    fn whole(&self) -> Duration {
        let begun = self.clock.monotonic();
        loop {
            self.processes.iter().for_each(Process::check);
            self.load.check();
            let lacks = lacks(&self.processes);
            let after = self.clock.monotonic() - begun;
            let Some(lacks) = lacks else { return after };
            assert!(after < PATIENCE, "the cluster is not whole: {lacks}");
            thread::sleep(LOOK);
        }
    }

    /// Waits until the cluster has recovered from what happened last.
    fn recovered(&self) {
        let after = self.whole();
        if let Some(last) = self.events.lock().last_mut() {
            last.whole_after.get_or_insert(after);
        }
    }

    fn happens(&self, what: &'static str) {
        let event = Event { what, at: self.clock.monotonic(), whole_after: None };
        self.events.lock().push(event);
    }

    /// Ends some processes of a zone and starts them again; gives how many were killed. Another zone is touched only when all
    /// are whole.
    fn kill_some(&self, zone: &mut usize) -> usize {
        if self.random.next_below(4) > 0 {
            self.recovered();
            *zone = self.zone();
        }
        let here: Vec<&Process> = self.processes.iter().filter(|process| process.zone == *zone).collect();
        let (what, victims) = match self.random.next_below(12) {
            0 => ("a zone's processes die", here),
            1 => {
                let ingesters = here.into_iter().filter(|process| process.role == "ingester");
                ("a zone's ingesters die", ingesters.collect())
            }
            _ => {
                let victim = here[self.random.next_below(here.len() as u64) as usize];
                (self.named(victim), vec![victim])
            }
        };
        self.happens(what);
        let mut killed = 0;
        for victim in &victims {
            if self.random.next_below(4) == 0 {
                self.stop(victim);
            } else {
                victim.kill();
                killed += 1;
            }
        }
        self.rest(Duration::from_millis(1500));
        for victim in victims {
            victim.start();
            if self.random.next_below(6) == 0 {
                // Again, while it starts.
                self.rest(Duration::from_millis(300));
                victim.kill();
                victim.start();
                killed += 1;
            }
        }
        killed
    }

    /// A process stands still while others may take its place, and goes on where it was.
    fn stand_still(&self, most: Duration) {
        self.recovered();
        let victim = &self.processes[self.random.next_below(self.processes.len() as u64) as usize];
        self.happens("a process stands still");
        victim.stand_still();
        self.rest(most);
        victim.go_on();
        self.happens("a process goes on");
        self.recovered();
    }

    fn stop(&self, process: &Process) {
        let begun = self.clock.monotonic();
        let how = process.stop();
        self.ends.lock().push(self.clock.monotonic() - begun);
        // One that has only just begun ends as any process does.
        let is_early = how.signal() == Some(15) && process.is_silent();
        assert!(
            how.success() || is_early,
            "{} was asked to end and did with {how}:\n{}",
            process.name,
            process.tail()
        );
    }

    /// What the death of a process is called.
    fn named(&self, process: &Process) -> &'static str {
        let leads = leaders(&self.processes).contains(&process.name);
        match (process.role, leads) {
            ("ingester", true) => LEADER_DIES,
            ("ingester", false) => "an ingester that leads nothing dies",
            ("metastore", _) => "a metastore dies",
            ("distributor", _) => "a distributor dies",
            _ => "a querier dies",
        }
    }

    /// Cuts a zone off for a time, during which the others go on; one of its processes dies meanwhile.
    fn isolate(&self, span: Duration) {
        let zone = self.zone();
        let cut = if self.random.next_below(2) == 0 { Cut::Wholly } else { Cut::FromOtherZones };
        say(&format!("zone {} is cut off for {} s: {cut:?}", ZONES[zone], span.as_secs()));
        let begun = self.clock.monotonic();
        let before = self.load.ledger().acknowledged();
        self.happens("a zone is cut off");
        self.inside.cut(zone, cut);
        let mut victim =
            self.processes.iter().find(|process| process.zone == zone && self.random.next_below(3) == 0);
        loop {
            thread::sleep(LOOK);
            self.processes.iter().for_each(Process::check);
            self.load.check();
            let (goes_on, over) =
                (self.load.ledger().acknowledged() - before, self.clock.monotonic() - begun);
            assert!(
                goes_on >= GOES_ON || over < PATIENCE,
                "two zones of three do not go on: {goes_on} profiles"
            );
            if over >= span / 2
                && let Some(victim) = victim.take()
            {
                victim.kill();
                victim.start();
            }
            if over >= span && goes_on >= GOES_ON {
                say(&format!("{goes_on} profiles were acknowledged meanwhile"));
                break;
            }
        }
        self.happens("a zone is back");
        self.inside.heal(zone, cut);
        self.recovered();
    }

    /// Asks all to end, and starts them again: what they have on their disks is all.
    fn restart(&self) {
        self.processes.iter().for_each(|process| self.stop(process));
        self.processes.iter().for_each(Process::start);
        say(&format!("started again, whole after {:.1} s", self.whole().as_secs_f64()));
    }

    /// With nothing under way and all whole: each querier holds what was acknowledged, once, and says that it is all.
    fn compare(&self) {
        self.whole();
        for (querier, service) in self
            .load
            .queriers()
            .iter()
            .flat_map(|querier| (0..SERVICES).map(move |service| (querier, service)))
        {
            let held = self.asked(*querier, service);
            assert_eq!(
                held.partial, None,
                "service{service} at {querier}: all is whole, and so must answers be"
            );
            let wrong = self.load.ledger().differences(service, &held.values);
            let shown = &wrong[..wrong.len().min(SHOWN)];
            assert!(wrong.is_empty(), "service{service} at {querier}: {} are wrong: {shown:#?}", wrong.len());
        }
    }

    /// Asks until there is an answer; says what came before it, since all is whole. That a shard has a leader again is
    /// known to a querier by its next probe, and is waited for.
    fn asked(&self, querier: SocketAddr, service: usize) -> Held {
        let begun = self.clock.monotonic();
        loop {
            let why = match ask(querier, service, self.load.now()) {
                Ok(Held { partial: Some(why), .. }) if self.clock.monotonic() - begun < PROBED_WITHIN => why,
                Ok(held) => return held,
                Err(why) => why,
            };
            let after = self.clock.monotonic() - begun;
            say(&format!(
                "service{service} at {querier}, no answer after {:.1} s: {why}",
                after.as_secs_f64()
            ));
            assert!(after < PATIENCE, "service{service} at {querier}: {why}");
            self.processes.iter().for_each(Process::check);
            thread::sleep(LOOK);
        }
    }

    fn tell(&self, killed: usize, span: Duration) {
        let ledger = self.load.ledger();
        tell(&self.events.lock(), &ledger.took, &self.ends.lock());
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        say(&format!(
            "{killed} kills in {} s: {} profiles acknowledged, {} given up, {} repeats, {} retries, {} answers under load, \
             {} of them partial, {} questions not answered; nothing lost, nothing twice",
            span.as_secs(),
            ledger.acknowledged(),
            ledger.given_up(),
            ledger.repeats,
            ledger.retries,
            of(&self.load.answers),
            of(&self.load.partial),
            of(&self.load.refused),
        ));
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        if thread::panicking()
            && let Some(folder) = self.folder.take()
        {
            say(&format!("settings, data and logs of all processes are kept in {}", folder.keep().display()));
        }
    }
}
