//! From events to rows: each event that counts is gone through by the plan of its type and added to its kind.

use super::chunk::Chunk;
use super::kinds::{CPU, EVENT_SETTING, EVENTS, Event, KINDS, KindId, SLEEPING, WALL, WALL_EVENT};
use super::metadata::Types;
use super::plan::{Plan, SLOTS, Slots};
use super::pools::Pool;
use super::rows::{Context, Rows, Times, Writer};
use super::snapshot::Snapshot;
use super::stacks::{StackReader, Stacks};
use super::{About, JfrError, Limits, Made, Recording};
use crate::hash::SeededMap;

const SECOND: i64 = 1_000_000_000;

/// The fields that are wanted of every event, in the order of their slots; that of the amount is the last.
const FIELDS: [&str; SLOTS - 2] =
    ["stackTrace", "state", "contextId", "spanId", "spanName", "traceIdHi", "traceIdLo"];
const AMOUNT: usize = SLOTS - 1;
const STATE: usize = 2;
/// Those of a setting.
const SETTING: [&str; 2] = ["name", "value"];

/// Adds up the chunks of a recording.
pub(super) struct Reader<'a> {
    about: &'a About,
    limits: &'a Limits,
    rows: [Rows; KINDS.len()],
    stacks: Stacks,
    contexts: Vec<Context>,
    context_ids: SeededMap<Context, u32>,
    recording: Recording,
    /// When the first chunk began, and how long all took.
    times: Times,
}

/// What is looked up for each event of a chunk.
struct Lookup {
    plans: SeededMap<u64, (Event, Plan)>,
    stacks: StackReader,
    /// States of threads that use no processor, in their order.
    sleeping: Vec<u64>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(about: &'a About, limits: &'a Limits) -> Self {
        Reader {
            about,
            limits,
            rows: Default::default(),
            stacks: Stacks::default(),
            contexts: vec![Context::default()],
            context_ids: SeededMap::default(),
            recording: Recording::default(),
            times: Times {
                period: if about.sample_rate == 0 { 0 } else { SECOND / i64::from(about.sample_rate) },
                ..Times::default()
            },
        }
    }

    pub(super) fn chunk(&mut self, chunk: &Chunk<'_>) -> Result<(), JfrError> {
        if self.times.start == 0 {
            self.times.start = chunk.start;
        }
        self.times.duration = self.times.duration.saturating_add(chunk.duration.max(0));
        let mut lookup = Lookup {
            plans: plans(&chunk.types),
            stacks: StackReader::new(&chunk.types, &mut self.stacks),
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
                    let stack = lookup.stacks.stack(chunk, slots[1], &mut self.stacks, self.limits)?;
                    self.sample(chunk, event, &lookup.sleeping, (stack, &slots));
                }
            }
        }
        Ok(())
    }

    fn setting(&mut self, chunk: &Chunk<'_>, slots: &Slots) -> Result<(), JfrError> {
        let [_, name, value, ..] = slots.map(|place| place as usize);
        if name != 0 && value != 0 && chunk.is_text(name, EVENT_SETTING)? {
            let event = chunk.text(value)?;
            self.stacks.count_read(event.len(), self.limits)?;
            self.recording.event = event.into_owned();
        }
        Ok(())
    }

    #[inline]
    fn sample(
        &mut self,
        chunk: &Chunk<'_>,
        event: Event,
        sleeping: &[u64],
        (stack, slots): (Option<u32>, &Slots),
    ) {
        let (period, amount) = (self.times.period, slots[AMOUNT] as i64);
        let one = |amount: Option<i64>| amount.map(|amount| [1, amount]);
        match event {
            Event::Execution => {
                if sleeping.binary_search(&slots[STATE]).is_err() {
                    self.add(CPU, stack, slots, Some([period, 0]));
                }
                if self.recording.event == WALL_EVENT {
                    self.add(WALL, stack, slots, Some([period, 0]));
                }
            }
            Event::Wall => {
                self.add(WALL, stack, slots, amount.checked_mul(period).map(|time| [time, 0]));
            }
            Event::Amount(kind) => self.add(kind, stack, slots, one(Some(amount))),
            Event::Ticks(kind) => self.add(kind, stack, slots, one(chunk.nanoseconds(amount))),
            Event::Setting => {}
        }
    }

    /// Contexts are kept with the samples that have them, so that the bound on these is theirs. `values`: nothing if they
    /// are over 63 bits.
    #[inline]
    fn add(&mut self, kind: KindId, stack: Option<u32>, slots: &Slots, values: Option<[i64; 2]>) {
        let Some(stack) = stack else {
            self.rows[kind].without_stack += 1;
            return;
        };
        if !self.rows[kind].is_open() {
            return;
        }
        let Some(values) = values else {
            self.rows[kind].refuse(JfrError::Overflow { kind: KINDS[kind].name() });
            return;
        };
        let context = self.context(slots);
        self.rows[kind].add(kind, (stack, context), values, self.limits.samples);
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

    pub(super) fn finish(self, labels: &Snapshot<'_>) -> Recording {
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
        for (kind, rows) in KINDS.iter().zip(&self.rows).filter(|(_, rows)| !rows.is_unknown()) {
            let (pprof, without_stack) = (writer.pprof(kind, rows), rows.without_stack);
            recording.profiles.push(Made { kind, pprof, without_stack });
        }
        recording
    }
}

/// How the events that count are gone through, by their type.
fn plans(types: &Types<'_>) -> SeededMap<u64, (Event, Plan)> {
    let mut plans = SeededMap::default();
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
        if slots[1] != 0 && chunk.is_text(slots[1] as usize, SLEEPING)? {
            sleeping.push(id);
        }
    }
    sleeping.sort_unstable();
    Ok(sleeping)
}

// === impl Chunk ===

impl Chunk<'_> {
    /// Ticks of this chunk's clock as time; nothing if that is over 63 bits.
    fn nanoseconds(&self, ticks: i64) -> Option<i64> {
        if self.ticks == SECOND as u64 || self.ticks == 0 {
            return Some(ticks);
        }
        i64::try_from(i128::from(ticks) * i128::from(SECOND) / i128::from(self.ticks)).ok()
    }
}
