//! What surrounds nodes and outlives them: machines that die, the weather at the bucket, and what is told of both.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Clock, Random};
use athanor_profile::encoding::hash::{self, ContentHash};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::bucket::UNLISTED;

/// How a machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The power goes: what was not synced may be lost, also half of what is being written.
    Power,
    /// The process is killed: what it wrote is there.
    Kill,
}

/// Where a machine ends.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// In the call after so many...
    pub calls: u64,
    /// ...of those to a disk only.
    pub disk: bool,
    /// How.
    pub death: Death,
}

/// How the bucket is today.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weather {
    /// It does what it is asked.
    #[default]
    Fair,
    /// Some calls fail, some succeed and say that they failed, some are slow.
    Rough,
    /// All calls fail.
    Down,
    /// Calls are never answered; some of them are heard.
    Mute,
}

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is done.
    Done,
    /// It is not done.
    Fails,
    /// It is done, and the caller is told that it was not.
    Lies,
    /// Half of it is done: of the bytes half arrives, then it fails.
    Half,
}

/// What one seed did: how often what happened, and a hash over all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    /// Over every event, with its time and its bytes.
    pub trace: ContentHash,
    /// How many there were.
    pub events: u64,
    /// By name.
    pub counts: BTreeMap<&'static str, u64>,
}

/// The world of one seed, as one of its machines has it. Cheap to clone.
#[derive(Clone)]
pub struct World {
    shared: Arc<Shared>,
    machine: Arc<Machine>,
}

struct Shared {
    random: Random,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    weather: Weather,
    story: Story,
    told: Option<BufWriter<File>>,
}

struct Machine {
    name: String,
    life: Mutex<Life>,
    /// Which boot is dead.
    dead: watch::Sender<u64>,
}

#[derive(Default)]
struct Life {
    boot: u64,
    alive: bool,
    clock: Option<Clock>,
    fate: Option<Fate>,
    death: Option<Death>,
    /// By its monotonic clock.
    paused_until: Duration,
}

/// The machine is dead: whoever asks is a ghost.
#[derive(Debug)]
pub struct Dead;

impl World {
    /// A world that tells its story into a file, if one is named.
    pub fn new(random: Random, told: Option<File>) -> Self {
        let state = State { told: told.map(BufWriter::new), ..State::default() };
        let shared = Arc::new(Shared { random, state: Mutex::new(state) });
        Self { shared, machine: Machine::new("") }
    }

    /// What this machine is called.
    pub fn name(&self) -> &str {
        &self.machine.name
    }

    /// Another machine in this world.
    pub fn machine(&self, name: &str) -> Self {
        Self { shared: Arc::clone(&self.shared), machine: Machine::new(name) }
    }

    /// A new process; gives its number.
    pub fn boot(&self, clock: Clock, fate: Option<Fate>) -> u64 {
        let mut life = self.life();
        (life.alive, life.death, life.clock, life.fate) = (true, None, Some(clock), fate);
        life.paused_until = Duration::ZERO;
        life.boot += 1;
        life.boot
    }

    /// The process ends now. What it still does, nobody sees.
    pub fn die(&self, death: Death) {
        let mut life = self.life();
        if life.alive {
            life.alive = false;
            life.death = Some(death);
            self.machine.dead.send_replace(life.boot);
        }
    }

    /// What the process says to others, and hears of them, waits until then.
    pub fn pause(&self, until: Duration) {
        self.life().paused_until = until;
    }

    /// How long the process is still paused.
    pub fn paused(&self) -> Duration {
        let life = self.life();
        let now = life.clock.as_ref().map_or(Duration::ZERO, Clock::monotonic);
        life.paused_until.saturating_sub(now)
    }

    /// The process is not to end by itself any more.
    pub fn spare(&self) {
        self.life().fate = None;
    }

    /// How the process ended, if it did.
    pub fn death(&self) -> Option<Death> {
        self.life().death
    }

    /// Whether a process has ended: it is a ghost then, and what it says is said to nobody.
    pub fn is_over(&self, boot: u64) -> bool {
        let life = self.life();
        !life.alive || life.boot != boot
    }

    /// Waits for the end of a process.
    pub async fn ended(&self, boot: u64) {
        let mut dead = self.machine.dead.subscribe();
        // The sender is self, which this call borrows.
        let _ = dead.wait_for(|dead| *dead >= boot).await;
    }

    /// A call of a process to what outlives it: to a disk or to the bucket. Says whether the machine dies in it.
    pub fn enter(&self, boot: u64, disk: bool) -> Result<Option<Death>, Dead> {
        let mut life = self.life();
        if !life.alive || life.boot != boot {
            return Err(Dead);
        }
        match &mut life.fate {
            Some(fate) if fate.disk && !disk => Ok(None),
            Some(Fate { calls: 0, death, .. }) => Ok(Some(*death)),
            Some(fate) => {
                fate.calls -= 1;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Changes the weather.
    pub fn set_weather(&self, weather: Weather) {
        self.lock().weather = weather;
    }

    /// The weather.
    pub fn weather(&self) -> Weather {
        self.lock().weather
    }

    /// What the bucket does with the next call, how long it takes to get there and how long the answer takes.
    pub fn turn(&self) -> (Turn, [Duration; 2]) {
        let random = &self.shared.random;
        let quick = || Duration::from_micros(random.next_below(3_000));
        let never = Duration::from_secs(3600);
        match self.weather() {
            Weather::Fair => (Turn::Done, [quick(), quick()]),
            Weather::Rough => match random.next_below(10) {
                0 | 1 => (Turn::Fails, [quick(), quick()]),
                2 => (Turn::Lies, [quick(), quick()]),
                3 => (Turn::Done, [(); 2].map(|()| Duration::from_millis(random.next_below(2_000)))),
                4 => (Turn::Half, [quick(), quick()]),
                _ => (Turn::Done, [quick(), quick()]),
            },
            Weather::Down => (Turn::Fails, [quick(), quick()]),
            Weather::Mute if random.next_below(2) == 0 => (Turn::Lies, [quick(), never]),
            Weather::Mute => (Turn::Fails, [quick(), never]),
        }
    }

    /// How many of the names written last a listing lacks.
    pub fn unlisted(&self) -> usize {
        if self.shared.random.next_below(4) == 0 {
            return 0;
        }
        self.count("stale listings");
        1 + self.shared.random.next_below(UNLISTED as u64) as usize
    }

    /// Counts something that must happen in some seed.
    pub fn count(&self, what: &'static str) {
        *self.lock().story.counts.entry(what).or_default() += 1;
    }

    /// Returns whether something was counted.
    pub fn has_counted(&self, what: &str) -> bool {
        self.lock().story.counts.contains_key(what)
    }

    /// Tells an event of a process that lives.
    pub fn tell(&self, what: std::fmt::Arguments<'_>) {
        let mut line = String::new();
        {
            let life = self.life();
            let (monotonic, wall) = match &life.clock {
                Some(clock) => (clock.monotonic(), clock.wall().nanos()),
                None => (Duration::ZERO, 0),
            };
            // Writing to a string cannot fail.
            let _ = write!(line, "{}{} {monotonic:?} {wall} {what}", self.machine.name, life.boot);
        }
        let mut state = self.lock();
        let state = &mut *state;
        state.story.trace = hash::hash_list(&[state.story.trace, hash::hash_bytes(line.as_bytes())]);
        state.story.events += 1;
        if let Some(told) = &mut state.told {
            writeln!(told, "{line}").unwrap();
        }
    }

    /// What happened so far.
    pub fn story(&self) -> Story {
        let mut state = self.lock();
        if let Some(told) = &mut state.told {
            told.flush().unwrap();
        }
        state.story.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.machine.life.lock()
    }
}

impl Machine {
    fn new(name: &str) -> Arc<Self> {
        Arc::new(Self { name: name.to_owned(), life: Mutex::default(), dead: watch::Sender::new(0) })
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("World")
    }
}
