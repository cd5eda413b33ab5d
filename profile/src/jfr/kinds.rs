//! Which events count, and what becomes of them.

/// What profile a sample belongs to, as a place in [`KINDS`].
pub(super) type KindId = usize;
pub(super) const CPU: KindId = 0;
pub(super) const WALL: KindId = 1;
const IN_BUFFER: KindId = 2;
const OUTSIDE_BUFFER: KindId = 3;
const SAMPLED: KindId = 4;
const LIVE: KindId = 5;
const NATIVE: KindId = 6;
const MONITOR: KindId = 7;
const PARK: KindId = 8;

use crate::suffix;

/// A kind of profile. Names and units are those that servers of this wire give.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// The label `__name__`.
    pub metric: &'static str,
    /// Type and unit of its values; of two the first counts events.
    pub types: &'static [(&'static str, &'static str)],
    /// Type and unit of its period, if it has one.
    pub period: Option<(&'static str, &'static str)>,
}

const SPACE: Option<(&str, &str)> = Some(("space", "bytes"));
const WAITING: &[(&str, &str)] = &[("contentions", "count"), ("delay", "nanoseconds")];

/// All kinds, in the order in which they are given.
pub(super) const KINDS: [Kind; 9] = [
    Kind { metric: suffix::CPU, types: &[("cpu", "nanoseconds")], period: Some(("cpu", "nanoseconds")) },
    Kind { metric: suffix::WALL, types: &[("wall", "nanoseconds")], period: Some(("wall", "nanoseconds")) },
    memory(&[("alloc_in_new_tlab_objects", "count"), ("alloc_in_new_tlab_bytes", "bytes")], SPACE),
    memory(&[("alloc_outside_tlab_objects", "count"), ("alloc_outside_tlab_bytes", "bytes")], SPACE),
    memory(&[("alloc_sample_objects", "count"), ("alloc_sample_bytes", "bytes")], SPACE),
    memory(&[("live", "count")], Some(("objects", "count"))),
    memory(&[("malloc_objects", "count"), ("malloc_bytes", "bytes")], None),
    Kind { metric: suffix::MUTEX, types: WAITING, period: Some(("mutex", "count")) },
    Kind { metric: suffix::BLOCK, types: WAITING, period: Some(("block", "count")) },
];

const fn memory(
    types: &'static [(&'static str, &'static str)],
    period: Option<(&'static str, &'static str)>,
) -> Kind {
    Kind { metric: suffix::MEMORY, types, period }
}

/// What an event is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A thread was seen: on a processor unless it sleeps, and for wall-clock time where that was asked for.
    Execution,
    /// A thread was seen as often as `amount` says, since the last such event.
    Wall,
    /// One more, and `amount`.
    Amount(KindId),
    /// One more, and `amount` in ticks of the chunk's clock.
    Ticks(KindId),
    /// Says how the profiler was set.
    Setting,
}

/// By the name of its type: what an event is taken for, and the field that says how much.
pub(super) const EVENTS: [(&str, Event, &str); 10] = [
    ("jdk.ExecutionSample", Event::Execution, ""),
    ("profiler.WallClockSample", Event::Wall, "samples"),
    ("jdk.ObjectAllocationInNewTLAB", Event::Amount(IN_BUFFER), "tlabSize"),
    ("jdk.ObjectAllocationOutsideTLAB", Event::Amount(OUTSIDE_BUFFER), "allocationSize"),
    ("jdk.ObjectAllocationSample", Event::Amount(SAMPLED), "weight"),
    ("profiler.LiveObject", Event::Amount(LIVE), ""),
    ("profiler.Malloc", Event::Amount(NATIVE), "size"),
    ("jdk.JavaMonitorEnter", Event::Ticks(MONITOR), "duration"),
    ("jdk.ThreadPark", Event::Ticks(PARK), "duration"),
    ("jdk.ActiveSetting", Event::Setting, ""),
];

/// The setting whose value says by which event threads are sampled.
pub(super) const EVENT_SETTING: &str = "event";
/// Its value for samples of wall-clock time.
pub(super) const WALL_EVENT: &str = "wall";
/// The state of threads that use no processor.
pub(super) const SLEEPING: &str = "STATE_SLEEPING";

impl Kind {
    /// What to call it where people read.
    pub fn name(&self) -> &'static str {
        let first = self.types[0].0;
        if first == "contentions" { self.metric } else { first }
    }

    /// Whether samples of threads make it.
    pub(super) fn is_time(&self) -> bool {
        matches!(self.metric, suffix::CPU | suffix::WALL)
    }
}
