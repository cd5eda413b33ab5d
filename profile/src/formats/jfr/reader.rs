//! Conversion of events to rows: each known event is decoded by the plan of its type and added to its kind.

use super::chunk::JfrChunk;
use super::decode_plan::{DecodePlan, FieldSlots, SLOT_COUNT};
use super::metadata::JfrTypeTable;
use super::pools::ConstantPoolKind;
use super::profile_kinds::{
    CPU_KIND, EVENT_SETTING, JfrEventKind, JfrProfileKindId, KNOWN_EVENTS, PROFILE_KINDS, SLEEPING_STATE,
    WALL_EVENT, WALL_KIND,
};
use super::sample_rows::{JfrPprofWriter, JfrRows, JfrSampleContext, RecordingTimes};
use super::snapshot::LabelsSnapshot;
use super::stacks::{JfrStacks, StackReader};
use super::{JfrError, JfrLimits, JfrProfile, JfrRecording, RecordingInfo};
use crate::encoding::hash::SeededMap;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Wanted fields of every event, in slot order. The amount field follows in the last slot.
const EVENT_FIELDS: [&str; SLOT_COUNT - 2] =
    ["stackTrace", "state", "contextId", "spanId", "spanName", "traceIdHi", "traceIdLo"];
const AMOUNT_SLOT: usize = SLOT_COUNT - 1;
const STATE_SLOT: usize = 2;
/// Wanted fields of a setting event.
const SETTING_FIELDS: [&str; 2] = ["name", "value"];

/// Reader that sums the chunks of a recording.
pub(super) struct RecordingReader<'a> {
    about: &'a RecordingInfo,
    limits: &'a JfrLimits,
    rows: [JfrRows; PROFILE_KINDS.len()],
    stacks: JfrStacks,
    contexts: Vec<JfrSampleContext>,
    context_ids: SeededMap<JfrSampleContext, u32>,
    recording: JfrRecording,
    /// Start of the first chunk, and duration of all chunks.
    times: RecordingTimes,
}

/// Lookup tables for the events of one chunk.
struct ChunkLookup {
    plans: SeededMap<u64, (JfrEventKind, DecodePlan)>,
    stacks: StackReader,
    /// Ids of thread states that use no processor, sorted.
    sleeping: Vec<u64>,
}

impl<'a> RecordingReader<'a> {
    pub(super) fn new(about: &'a RecordingInfo, limits: &'a JfrLimits) -> Self {
        RecordingReader {
            about,
            limits,
            rows: Default::default(),
            stacks: JfrStacks::default(),
            contexts: vec![JfrSampleContext::default()],
            context_ids: SeededMap::default(),
            recording: JfrRecording::default(),
            times: RecordingTimes {
                period: if about.sample_rate == 0 {
                    0
                } else {
                    NANOS_PER_SECOND / i64::from(about.sample_rate)
                },
                ..RecordingTimes::default()
            },
        }
    }

    pub(super) fn read_chunk(&mut self, chunk: &JfrChunk<'_>) -> Result<(), JfrError> {
        if self.times.start == 0 {
            self.times.start = chunk.start;
        }
        self.times.duration = self.times.duration.saturating_add(chunk.duration.max(0));
        let mut lookup = ChunkLookup {
            plans: event_plans(&chunk.types),
            stacks: StackReader::new(&chunk.types, &mut self.stacks),
            sleeping: sleeping_states(chunk)?,
        };
        let mut events = chunk.events();
        while let Some((class, mut input)) = events.next()? {
            let Some((event, plan)) = lookup.plans.get(&class) else { continue };
            let mut slots = [0; SLOT_COUNT];
            plan.run(&mut input, &mut slots)?;
            match *event {
                JfrEventKind::Setting => self.read_setting(chunk, &slots)?,
                event => {
                    let stack = lookup.stacks.find_stack(chunk, slots[1], &mut self.stacks, self.limits)?;
                    self.read_sample(chunk, event, &lookup.sleeping, stack, &slots);
                }
            }
        }
        Ok(())
    }

    fn read_setting(&mut self, chunk: &JfrChunk<'_>, slots: &FieldSlots) -> Result<(), JfrError> {
        let [_, name, value, ..] = slots.map(|place| place as usize);
        if name != 0 && value != 0 && chunk.is_text(name, EVENT_SETTING)? {
            let event = chunk.text(value)?;
            self.stacks.count_read(event.len(), self.limits)?;
            self.recording.event = event.into_owned();
        }
        Ok(())
    }

    #[inline]
    fn read_sample(
        &mut self,
        chunk: &JfrChunk<'_>,
        event: JfrEventKind,
        sleeping: &[u64],
        stack: Option<u32>,
        slots: &FieldSlots,
    ) {
        let period = self.times.period;
        let amount = slots[AMOUNT_SLOT] as i64;
        let one = |amount: Option<i64>| amount.map(|amount| [1, amount]);
        match event {
            JfrEventKind::Execution => {
                if sleeping.binary_search(&slots[STATE_SLOT]).is_err() {
                    self.add(CPU_KIND, stack, slots, Some([period, 0]));
                }
                if self.recording.event == WALL_EVENT {
                    self.add(WALL_KIND, stack, slots, Some([period, 0]));
                }
            }
            JfrEventKind::Wall => {
                self.add(WALL_KIND, stack, slots, amount.checked_mul(period).map(|time| [time, 0]));
            }
            JfrEventKind::Amount(kind) => self.add(kind, stack, slots, one(Some(amount))),
            JfrEventKind::Ticks(kind) => self.add(kind, stack, slots, one(chunk.nanoseconds(amount))),
            JfrEventKind::Setting => {}
        }
    }

    /// Adds a sample to its kind. The context is interned only if the kind accepts samples, so the limit on
    /// samples bounds the contexts too. `values` is `None` if they exceed 63 bits.
    #[inline]
    fn add(
        &mut self,
        kind: JfrProfileKindId,
        stack: Option<u32>,
        slots: &FieldSlots,
        values: Option<[i64; 2]>,
    ) {
        let Some(stack) = stack else {
            self.rows[kind].without_stack += 1;
            return;
        };
        if !self.rows[kind].is_open() {
            return;
        }
        let Some(values) = values else {
            self.rows[kind].refuse(JfrError::Overflow { kind: PROFILE_KINDS[kind].name() });
            return;
        };
        let context = self.intern_context(slots);
        self.rows[kind].add(kind, stack, context, values, self.limits.samples);
    }

    #[inline]
    fn intern_context(&mut self, slots: &FieldSlots) -> u32 {
        let &[_, _, _, labels, span, span_name, hi, lo, _] = slots;
        if labels | span | span_name | hi | lo == 0 {
            return 0;
        }
        let context = JfrSampleContext { labels, span, span_name, trace: [hi, lo] };
        *self.context_ids.entry(context).or_insert_with(|| {
            self.contexts.push(context);
            self.contexts.len() as u32 - 1
        })
    }

    pub(super) fn finish(self, labels: &LabelsSnapshot<'_>) -> JfrRecording {
        let mut times = self.times;
        if self.about.start != 0 {
            (times.start, times.duration) = (self.about.start, self.about.duration);
        }
        let writer = JfrPprofWriter {
            stacks: &self.stacks,
            contexts: &self.contexts,
            snapshot: labels,
            times,
            limits: self.limits,
        };
        let mut recording = self.recording;
        for (kind, rows) in PROFILE_KINDS.iter().zip(&self.rows).filter(|(_, rows)| !rows.is_unknown()) {
            let pprof = writer.pprof(kind, rows);
            let without_stack = rows.without_stack;
            recording.profiles.push(JfrProfile { kind, pprof, without_stack });
        }
        recording
    }
}

/// Returns the plans of all known events, by type id.
fn event_plans(types: &JfrTypeTable<'_>) -> SeededMap<u64, (JfrEventKind, DecodePlan)> {
    let mut plans = SeededMap::default();
    for (name, event, amount) in KNOWN_EVENTS {
        let Some(class) = types.find_class(name) else { continue };
        let mut wanted = EVENT_FIELDS.to_vec();
        wanted.push(amount);
        let wanted = if event == JfrEventKind::Setting { &SETTING_FIELDS[..] } else { &wanted };
        if let Some(plan) = DecodePlan::for_class(types, class, wanted) {
            plans.insert(class.id, (event, plan));
        }
    }
    plans
}

fn sleeping_states(chunk: &JfrChunk<'_>) -> Result<Vec<u64>, JfrError> {
    let types = &chunk.types;
    let class = types.find_class(ConstantPoolKind::ThreadState.type_name());
    let Some(plan) = class.and_then(|class| DecodePlan::for_class(types, class, &["name"])) else {
        return Ok(Vec::new());
    };
    let mut sleeping = Vec::new();
    for id in chunk.pools.ids(ConstantPoolKind::ThreadState) {
        let mut slots = [0; SLOT_COUNT];
        let Some(place) = chunk.pools.constant_position(ConstantPoolKind::ThreadState, id) else { continue };
        plan.run(&mut chunk.input.at_position(place), &mut slots)?;
        if slots[1] != 0 && chunk.is_text(slots[1] as usize, SLEEPING_STATE)? {
            sleeping.push(id);
        }
    }
    sleeping.sort_unstable();
    Ok(sleeping)
}

// === impl JfrChunk ===

impl JfrChunk<'_> {
    /// Converts ticks of this chunk's clock to nanoseconds; `None` if the result exceeds 63 bits.
    fn nanoseconds(&self, ticks: i64) -> Option<i64> {
        if self.ticks == NANOS_PER_SECOND as u64 || self.ticks == 0 {
            return Some(ticks);
        }
        i64::try_from(i128::from(ticks) * i128::from(NANOS_PER_SECOND) / i128::from(self.ticks)).ok()
    }
}
