//! Processes that count since they began, and what must be stored of them: of each run of a process what it had counted
//! when it was asked last, whatever fails, comes again or comes late.
//!
//! A process is asked by one client at a time, and what an earlier run has said is not sent again after a later one has
//! begun. Each run has a leaf of its own, so that an answer tells what is stored of it. Where a disk was full, a cut may have
//! been made without what was counted before it, and where one was damaged anything may be gone: then others begin.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use athanor_chassis::{ErrorCode, Random, TenantId, Timestamp};
use athanor_distributor::{PushedProfile, PushedSeries};
use athanor_profile::formats::pprof::encode;
use athanor_profile::{Profile, ValueType};
use athanor_proto::querier::v1::SelectMergeStacktracesRequest;
use athanor_querier::QueryContext;
use bytes::Bytes;

use super::client::{Breach, Clients, FOREVER};
use super::model::{NEWER, OLDER, Said};
use super::world::Weather;

/// Theirs alone.
const TENANT: &str = "counting";
/// What they count, and how much of the second for each of the first.
const KINDS: [(&str, &str, i64); 2] = [("contentions", "count", 1), ("delay", "nanoseconds", 1000)];
/// How many are asked at a time, and how many there are in all.
const ASKED: usize = 3;
const MOST: usize = 40;
/// What is sent again is younger than may be by so much.
const MARGIN: Duration = Duration::from_secs(120);

pub struct Processes {
    random: Random,
    all: Vec<Process>,
    /// None is known to count before this life ends: a disk was full.
    full: bool,
}

#[derive(Debug, Default)]
struct Process {
    runs: Vec<Run>,
    /// What the present run has said.
    said: Vec<Snapshot>,
    /// When it was asked last.
    time: i64,
    asked: bool,
    /// What it has counted may be forgotten: it is not asked again.
    over: bool,
}

#[derive(Debug, Default)]
struct Run {
    counted: i64,
    sent: BTreeSet<i64>,
    /// What was acknowledged or seen.
    least: i64,
    /// It may not be there, though it was.
    lost: bool,
}

#[derive(Clone, Copy, Debug)]
struct Snapshot {
    time: i64,
    value: i64,
}

/// What of a process is sent.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    process: usize,
    run: usize,
    snapshot: Snapshot,
    anew: bool,
}

/// How much must be there at least, by process and run.
type Floors = BTreeMap<(usize, usize), i64>;

impl Processes {
    pub fn new(random: Random) -> Self {
        Self { random, all: Vec::new(), full: false }
    }

    /// The node begins another life: nobody is asked any more by who talked to the one before.
    pub fn begin(&mut self) {
        self.full = false;
        self.all.iter_mut().for_each(|process| process.asked = false);
    }

    /// A disk is full.
    pub fn fill(&mut self) {
        self.full = true;
        self.all.iter_mut().for_each(|process| process.over = true);
    }

    /// Disks were damaged.
    pub fn damage(&mut self) {
        for process in &mut self.all {
            process.over = true;
            process.runs.iter_mut().for_each(|run| run.lost = true);
        }
    }

    /// What some process says, if one may be asked.
    fn draw(&mut self, now: Timestamp) -> Option<Drawn> {
        let Self { random, all, full } = self;
        let asked: Vec<usize> = (0..all.len()).filter(|&place| !all[place].over).collect();
        if asked.len() < ASKED && all.len() < MOST && !*full {
            all.push(Process { runs: vec![Run::default()], ..Process::default() });
            return None;
        }
        let place = *asked.get(random.next_below(asked.len().max(1) as u64) as usize)?;
        let process = &mut all[place];
        if process.asked {
            return None;
        }
        let what = random.next_below(8);
        let anew = what == 0 && process.runs.last().is_some_and(|run| !run.sent.is_empty());
        if anew {
            process.runs.push(Run::default());
            process.said.clear();
        }
        let number = process.runs.len() - 1;
        let run = &mut process.runs[number];
        // Clocks of lives differ.
        let (oldest, newest) = (now.minus(OLDER - MARGIN).nanos(), now.plus(NEWER / 2).nanos());
        let is_taken = |snapshot: &Snapshot| (oldest..=newest).contains(&snapshot.time);
        let again: Vec<Snapshot> = process.said.iter().copied().filter(is_taken).collect();
        let snapshot = if (1..3).contains(&what) && !again.is_empty() {
            again[random.next_below(again.len() as u64) as usize]
        } else {
            let time = now.nanos().max(process.time + 1);
            if time > newest {
                return None;
            }
            run.counted += if random.next_below(3) > 0 { random.next_below(100) as i64 } else { 0 };
            let snapshot = Snapshot { time, value: run.counted };
            process.said.push(snapshot);
            process.time = time;
            snapshot
        };
        run.sent.insert(snapshot.value);
        process.asked = true;
        Some(Drawn { process: place, run: number, snapshot, anew })
    }

    fn floors(&self) -> Floors {
        let runs = self.all.iter().enumerate().flat_map(|(process, of)| {
            let kept = of.runs.iter().enumerate().filter(|(_, run)| !run.lost);
            kept.map(move |(number, run)| ((process, number), run.least))
        });
        runs.collect()
    }

    /// Compares what is stored of each run with what it has said.
    fn check(
        &mut self,
        floors: &Floors,
        found: &BTreeMap<(usize, usize), i64>,
        said: Said,
    ) -> Result<(), Breach> {
        if said.twice {
            return Ok(());
        }
        for (place, process) in self.all.iter_mut().enumerate() {
            let over = process.over;
            for (number, run) in process.runs.iter_mut().enumerate() {
                let stored = found.get(&(place, number)).copied().unwrap_or_default();
                let least = floors.get(&(place, number)).copied().unwrap_or_default();
                if said.partial || run.lost {
                    continue;
                }
                let is_one = over || stored == 0 || run.sent.contains(&stored);
                if stored < least || !is_one {
                    return Err(format!(
                        "of run {number} of process {place} {stored} is stored, at least {least}: {run:?}"
                    ));
                }
                if !over {
                    run.least = run.least.max(stored);
                }
            }
        }
        match found.keys().find(|(place, run)| self.all.get(*place).is_none_or(|of| of.runs.len() <= *run)) {
            Some(unknown) => Err(format!("{unknown:?} is no run of a process")),
            None => Ok(()),
        }
    }
}

/// Asks some process, and sends what it says.
pub async fn send(
    processes: &RefCell<Processes>,
    clients: &Clients<'_>,
    patience: Duration,
) -> Result<(), Breach> {
    let drawn = processes.borrow_mut().draw(clients.clock.wall());
    let Some(drawn @ Drawn { process, run, snapshot, anew }) = drawn else { return Ok(()) };
    let series = PushedSeries {
        labels: labels(process),
        profiles: vec![PushedProfile { pprof: encoded(process, run, snapshot), id: None }],
    };
    let tenant = tenant();
    let pushed = clients.roles.distributor.as_ref().unwrap().push_series(&tenant, vec![series]);
    let answer = clients.clock.timeout(patience, pushed).await;
    if clients.world.is_over(clients.boot) {
        return Ok(());
    }
    clients.world.tell(format_args!("sent {drawn:?}: {answer:?}"));
    let mut processes = processes.borrow_mut();
    let process = &mut processes.all[process];
    process.asked = false;
    match answer {
        Ok(Ok(_)) => {
            clients.world.count(if anew { "processes that began anew" } else { "snapshots" });
            let run = &mut process.runs[run];
            run.least = run.least.max(snapshot.value);
            Ok(())
        }
        Ok(Err(status)) if status.code == ErrorCode::Invalid => {
            Err(format!("{drawn:?} was refused: {status}"))
        }
        Ok(Err(status)) => clients.may_fail("a snapshot", &status, false),
        Err(_) if patience >= FOREVER => Err(format!("no answer to {drawn:?}")),
        Err(_) => Ok(()),
    }
}

/// Asks what is stored of all of them, and compares.
pub async fn compare(processes: &RefCell<Processes>, clients: &Clients<'_>) -> Result<(), Breach> {
    let floors = processes.borrow().floors();
    let kind = processes.borrow().random.next_below(KINDS.len() as u64) as usize;
    let ((name, unit, each), (period, period_unit, _)) = (KINDS[kind], KINDS[0]);
    let (storms, fair) = (clients.storms.get(), clients.world.weather() == Weather::Fair);
    let (reader, now) = (QueryContext::for_tenant(tenant()), clients.clock.wall().millis());
    let day = 24 * 60 * 60_000;
    let request = SelectMergeStacktracesRequest {
        profile_type_id: format!("mutex:{name}:{unit}:{period}:{period_unit}"),
        label_selector: "{}".to_owned(),
        start: now - day,
        end: now + day,
        ..SelectMergeStacktracesRequest::default()
    };
    let merged = clients.roles.querier.as_ref().unwrap().merged_tree(&reader, request);
    let answer = clients.clock.timeout(FOREVER, merged).await;
    if clients.world.is_over(clients.boot) {
        return Ok(());
    }
    let stormy = !fair || storms != clients.storms.get();
    let tree = match answer.map_err(|_| "no answer of what processes have counted".to_owned())? {
        Ok(tree) => tree,
        Err(status) => return clients.may_fail("a query of processes", &status, stormy),
    };
    let mut found = BTreeMap::new();
    for node in tree.nodes().iter().filter(|node| node.self_value != 0) {
        let of = run_of(tree.name(node)).filter(|_| node.self_value % each == 0);
        let of = of.ok_or_else(|| format!("{} has {} of {name}", tree.name(node), node.self_value))?;
        *found.entry(of).or_default() += node.self_value / each;
    }
    clients.world.tell(format_args!("processes have counted {name} {found:?}"));
    let said = clients.said(&reader, stormy)?;
    clients.world.count("comparisons of processes");
    processes.borrow_mut().check(&floors, &found, said).map_err(|breach| format!("by {name}: {breach}"))
}

/// A snapshot of what a run of a process has waited for.
fn encoded(process: usize, run: usize, snapshot: Snapshot) -> Bytes {
    let mut profile = Profile::default();
    profile.header.types = KINDS.map(|(kind, unit, _)| ValueType::new(kind, unit)).into();
    profile.header.period_type = Some(ValueType::new(KINDS[0].0, KINDS[0].1));
    (profile.header.time_nanos, profile.header.period) = (snapshot.time, 1);
    if snapshot.value > 0 {
        let leaf = format!("process{process}run{run}");
        let stack = profile.dictionary.intern_named_stack(["main", leaf.as_str()].into_iter());
        profile.samples.push(stack, 0, &KINDS.map(|(_, _, each)| snapshot.value * each));
    }
    encode(&profile).into()
}

/// Which run of which process a leaf is of.
fn run_of(leaf: &str) -> Option<(usize, usize)> {
    let (process, run) = leaf.strip_prefix("process")?.split_once("run")?;
    Some((process.parse().ok()?, run.parse().ok()?))
}

fn labels(process: usize) -> Vec<(String, String)> {
    let pod = format!("pod{process}");
    let labels = [("__name__", "mutex"), ("service_name", "locks"), ("pod", pod.as_str())];
    labels.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

fn tenant() -> TenantId {
    TENANT.parse().unwrap()
}
