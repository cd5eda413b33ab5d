//! Java Flight Recorder's files, as the JDK and async-profiler write them, read into pprof.
//!
//! ```text
//!  chunk ─► metadata: which types there are ─────► plans: how to go through their bytes
//!    │                                               │
//!    ├────► checkpoints: stacks, methods, names ─► places of constants
//!    │                                               │
//!    └────► events ─► kind, stack, context, amount ─► rows of each kind ─► one pprof for each
//! ```
//!
//! A recording holds several profiles: processor time, wall-clock time, allocations, waiting. Nothing is known of how an
//! event is laid out but the names of its fields; all else says the chunk itself. Constants are not read before an event
//! needs them, and a stack is made of names once, whatever many events have it.

mod chunk;
mod input;
mod kinds;
mod metadata;
mod names;
mod plan;
mod pools;
mod rows;
mod snapshot;
mod stacks;
mod whole;

use crate::hash::HashedMap;
use chunk::Chunk;
use kinds::{CPU, EVENT_SETTING, EVENTS, Event, KINDS, SLEEPING, WALL, WALL_EVENT};
use metadata::Types;
use plan::{Plan, SLOTS, Slots};
use pools::Pool;
use rows::{Rows, Times, Writer};
use stacks::{StackReader, Stacks};

pub use kinds::Kind;
pub use snapshot::Snapshot;
pub use whole::{WholeError, whole};

const SECOND: i64 = 1_000_000_000;

/// Bounds on what is read. Each is named in the error that it causes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the recording, not compressed.
    pub bytes: usize,
    /// Constants of a chunk that are kept, and lines of code of all.
    pub constants: usize,
    /// Frames of all different stacks.
    pub frames: usize,
    /// Bytes of the names of all functions.
    pub names: usize,
    /// Different stacks of one profile, those with different labels counted apart.
    pub samples: usize,
    /// Bytes of one profile that is made.
    pub profile: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits::of(1 << 30)
    }
}

impl Limits {
    /// For recordings of so many bytes: what is kept beside them takes about as much again at most.
    pub fn of(bytes: usize) -> Self {
        Limits {
            bytes,
            constants: (bytes / 256).max(1 << 18),
            frames: (bytes / 8).max(1 << 20),
            names: bytes,
            samples: bytes / 64,
            profile: bytes,
        }
    }
}

/// Why bytes were refused as a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JfrError {
    /// It begins with something else.
    #[error("not a flight recording: it does not begin with FLR")]
    OtherFormat,
    /// Of another version.
    #[error("flight recording of version {major}.{minor}; 2.x is read, which JDK 11 and later write")]
    Version {
        /// Before the point.
        major: u16,
        /// After it.
        minor: u16,
    },
    /// The JVM was still writing, or died.
    #[error(
        "chunk at byte {at} of the flight recording was never finished; dump it with jcmd or stop the recording"
    )]
    Unfinished {
        /// Where the chunk begins.
        at: usize,
    },
    /// The bytes end in the middle.
    #[error("flight recording is cut off at byte {at}")]
    Truncated {
        /// Offset in the recording.
        at: usize,
    },
    /// Not as the format has it.
    #[error("flight recording is damaged: {why} at byte {at}")]
    Malformed {
        /// Offset in the recording.
        at: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// Constants of a type that cannot be passed.
    #[error(
        "flight recording is damaged: its metadata does not say how constants of type {class} at byte {at} are written"
    )]
    UnknownType {
        /// Offset in the recording.
        at: usize,
        /// The type's id.
        class: u64,
    },
    /// Over a limit.
    #[error("flight recording has {seen} {what}, the limit is {limit}")]
    OverLimit {
        /// What there is too much of.
        what: &'static str,
        /// How much was seen, at least.
        seen: usize,
        /// How much may be.
        limit: usize,
    },
    /// One of its profiles is over a limit.
    #[error("profile {kind} of the flight recording has {seen} {what}, the limit is {limit}")]
    Profile {
        /// Which profile.
        kind: &'static str,
        /// What there is too much of.
        what: &'static str,
        /// How much was seen, at least.
        seen: usize,
        /// How much may be.
        limit: usize,
    },
    /// Labels that cannot be read.
    #[error("labels of the flight recording are damaged: {why} at byte {at}")]
    Labels {
        /// Offset in the labels.
        at: usize,
        /// What is wrong.
        why: &'static str,
    },
}

/// What a client says of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// When it began, Unix nanoseconds; 0 if only the recording says so.
    pub start: i64,
    /// How long it took.
    pub duration: i64,
    /// How often in a second threads were looked at; 0 makes all their time 0.
    pub sample_rate: u32,
}

/// What a recording holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// By which event async-profiler sampled threads: `itimer`, `cpu`, `wall` …; empty if the recording does not say.
    pub event: String,
    /// Its profiles, those with something in them.
    pub profiles: Vec<Made>,
    /// Samples that were left out since they have no stack.
    pub without_stack: u64,
}

/// One profile of a recording.
#[derive(Debug, PartialEq, Eq)]
pub struct Made {
    /// What it measures.
    pub kind: &'static Kind,
    /// pprof, not compressed.
    pub pprof: Vec<u8>,
}

/// Whether these bytes begin as a recording does.
pub fn is_recording(raw: &[u8]) -> bool {
    chunk::begins(raw)
}

/// Reads a recording that is not compressed, with the labels that its events name.
pub fn read(
    raw: &[u8],
    about: &About,
    labels: &Snapshot<'_>,
    limits: &Limits,
) -> Result<Recording, JfrError> {
    within("bytes", raw.len(), limits.bytes)?;
    let mut reader = Reader::new(about, limits);
    let mut rest = raw;
    while !rest.is_empty() || raw.is_empty() {
        let at = raw.len() - rest.len();
        let (chunk, after) = chunk::read(rest, at, limits)?;
        reader.chunk(&chunk).map_err(|error| error.moved(at))?;
        rest = after;
    }
    reader.finish(labels)
}

/// What a sample's labels come from; numbers that the snapshot of labels explains, or ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Context {
    labels: u64,
    span: u64,
    span_name: u64,
    trace: [u64; 2],
}

/// The fields that are wanted of every event, in the order of their slots; that of the amount is the last.
const FIELDS: [&str; SLOTS - 2] =
    ["stackTrace", "state", "contextId", "spanId", "spanName", "traceIdHi", "traceIdLo"];
const AMOUNT: usize = SLOTS - 1;
/// Those of a setting.
const SETTING: [&str; 2] = ["name", "value"];

/// Adds up the chunks of a recording.
struct Reader<'a> {
    about: &'a About,
    limits: &'a Limits,
    rows: [Rows; KINDS.len()],
    stacks: Stacks,
    contexts: Vec<Context>,
    context_ids: HashedMap<Context, u32>,
    recording: Recording,
    /// When the first chunk began, and how long all took.
    times: Times,
}

/// What is looked up for each event of a chunk.
struct Lookup {
    plans: HashedMap<u64, (Event, Plan)>,
    stacks: StackReader,
    /// States of threads that use no processor.
    sleeping: Vec<u64>,
}

impl<'a> Reader<'a> {
    fn new(about: &'a About, limits: &'a Limits) -> Self {
        Reader {
            about,
            limits,
            rows: Default::default(),
            stacks: Stacks::default(),
            contexts: vec![Context::default()],
            context_ids: HashedMap::default(),
            recording: Recording::default(),
            times: Times {
                period: if about.sample_rate == 0 { 0 } else { SECOND / i64::from(about.sample_rate) },
                ..Times::default()
            },
        }
    }

    fn chunk(&mut self, chunk: &Chunk<'_>) -> Result<(), JfrError> {
        if self.times.start == 0 {
            self.times.start = chunk.start;
        }
        self.times.duration = self.times.duration.saturating_add(chunk.duration.max(0));
        let mut lookup = Lookup {
            plans: plans(&chunk.types),
            stacks: StackReader::new(&chunk.types),
            sleeping: sleeping(chunk)?,
        };
        let mut events = chunk.events();
        while let Some((class, mut input)) = events.next()? {
            let Some((event, plan)) = lookup.plans.get(&class) else { continue };
            let mut slots = [0; SLOTS];
            plan.run(&mut input, &mut slots)?;
            match *event {
                Event::Setting => self.setting(chunk, &slots)?,
                event => {
                    let is_asleep = lookup.sleeping.contains(&slots[2]);
                    let stack = lookup.stacks.stack(chunk, slots[1], &mut self.stacks, self.limits)?;
                    match stack {
                        Some(stack) => self.sample(chunk, event, is_asleep, (stack, &slots))?,
                        None => self.recording.without_stack += 1,
                    }
                }
            }
        }
        Ok(())
    }

    fn setting(&mut self, chunk: &Chunk<'_>, slots: &Slots) -> Result<(), JfrError> {
        if slots[1] != 0 && slots[2] != 0 && chunk.text(slots[1] as usize)? == EVENT_SETTING {
            self.recording.event = chunk.text(slots[2] as usize)?.into_owned();
        }
        Ok(())
    }

    #[inline]
    fn sample(
        &mut self,
        chunk: &Chunk<'_>,
        event: Event,
        is_asleep: bool,
        (stack, slots): (u32, &Slots),
    ) -> Result<(), JfrError> {
        let (period, amount) = (self.times.period, slots[AMOUNT] as i64);
        match event {
            Event::Execution => {
                if !is_asleep {
                    self.add(CPU, stack, slots, [period, 0])?;
                }
                if self.recording.event == WALL_EVENT {
                    self.add(WALL, stack, slots, [period, 0])?;
                }
                Ok(())
            }
            Event::Wall => self.add(WALL, stack, slots, [amount.wrapping_mul(period), 0]),
            Event::Amount(kind) => self.add(kind, stack, slots, [1, amount]),
            Event::Ticks(kind) => self.add(kind, stack, slots, [1, chunk.nanoseconds(slots[AMOUNT])]),
            Event::Setting => Ok(()),
        }
    }

    /// Contexts are kept with the samples that have them, so that the bound on these is theirs.
    #[inline]
    fn add(&mut self, kind: usize, stack: u32, slots: &Slots, values: [i64; 2]) -> Result<(), JfrError> {
        let (context, limit) = (self.context(slots), self.limits.samples);
        self.rows[kind].add(stack, context, values, limit).map_err(|seen| JfrError::Profile {
            kind: KINDS[kind].name(),
            what: "samples",
            seen,
            limit,
        })
    }

    #[inline]
    fn context(&mut self, slots: &Slots) -> u32 {
        let &[_, _, _, labels, span, span_name, hi, lo, _] = slots;
        if labels | span | span_name | hi | lo == 0 {
            return 0;
        }
        let context = Context { labels, span, span_name, trace: [hi, lo] };
        *self.context_ids.entry(context).or_insert_with(|| {
            self.contexts.push(context);
            self.contexts.len() as u32 - 1
        })
    }

    fn finish(self, labels: &Snapshot<'_>) -> Result<Recording, JfrError> {
        let mut times = self.times;
        if self.about.start != 0 {
            (times.start, times.duration) = (self.about.start, self.about.duration);
        }
        let writer = Writer {
            stacks: &self.stacks,
            contexts: &self.contexts,
            snapshot: labels,
            times,
            limits: self.limits,
        };
        let mut recording = self.recording;
        for (kind, rows) in KINDS.iter().zip(&self.rows).filter(|(_, rows)| !rows.is_empty()) {
            recording.profiles.push(Made { kind, pprof: writer.pprof(kind, rows)? });
        }
        Ok(recording)
    }
}

/// How the events that count are gone through, by their type.
fn plans(types: &Types<'_>) -> HashedMap<u64, (Event, Plan)> {
    let mut plans = HashedMap::default();
    for (name, event, amount) in EVENTS {
        let Some(class) = types.named(name) else { continue };
        let mut wanted = FIELDS.to_vec();
        wanted.push(amount);
        let wanted = if event == Event::Setting { &SETTING[..] } else { &wanted };
        if let Some(plan) = Plan::of(types, class, wanted) {
            plans.insert(class.id, (event, plan));
        }
    }
    plans
}

fn sleeping(chunk: &Chunk<'_>) -> Result<Vec<u64>, JfrError> {
    let types = &chunk.types;
    let class = types.named(Pool::ThreadState.type_name());
    let Some(plan) = class.and_then(|class| Plan::of(types, class, &["name"])) else { return Ok(Vec::new()) };
    let mut sleeping = Vec::new();
    for id in chunk.pools.ids(Pool::ThreadState) {
        let mut slots = [0; SLOTS];
        let Some(place) = chunk.pools.place(Pool::ThreadState, id) else { continue };
        plan.run(&mut chunk.input.at(place), &mut slots)?;
        if slots[1] != 0 && chunk.text(slots[1] as usize)? == SLEEPING {
            sleeping.push(id);
        }
    }
    Ok(sleeping)
}

// === impl Chunk ===

impl Chunk<'_> {
    /// Ticks of this chunk's clock as time.
    fn nanoseconds(&self, ticks: u64) -> i64 {
        if self.ticks == SECOND as u64 || self.ticks == 0 {
            return ticks as i64;
        }
        (u128::from(ticks) * SECOND as u128 / u128::from(self.ticks)) as i64
    }
}

/// Refuses what is over a limit.
fn within(what: &'static str, seen: usize, limit: usize) -> Result<(), JfrError> {
    if seen > limit { Err(JfrError::OverLimit { what, seen, limit }) } else { Ok(()) }
}

// === impl JfrError ===

impl JfrError {
    /// What is wrong in a word, as metrics of servers of this wire name it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::OverLimit { what: "bytes", .. } | Self::Profile { what: "bytes", .. } => {
                "profile_size_limit"
            }
            Self::Profile { what: "samples", .. } => "samples_limit",
            _ => "malformed_profile",
        }
    }

    /// The same, of a chunk that begins at byte `by`.
    fn moved(mut self, by: usize) -> Self {
        if let Self::Truncated { at } | Self::Malformed { at, .. } | Self::UnknownType { at, .. } = &mut self
        {
            *at += by;
        }
        self
    }
}

#[cfg(test)]
mod tests;
