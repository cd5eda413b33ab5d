//! Kinds of profiles in a recording and the events that contribute to them.

/// Index of a profile kind in [`PROFILE_KINDS`].
pub(super) type JfrProfileKindId = usize;
pub(super) const CPU_KIND: JfrProfileKindId = 0;
pub(super) const WALL_KIND: JfrProfileKindId = 1;
const ALLOC_IN_TLAB_KIND: JfrProfileKindId = 2;
const ALLOC_OUTSIDE_TLAB_KIND: JfrProfileKindId = 3;
const ALLOC_SAMPLE_KIND: JfrProfileKindId = 4;
const LIVE_OBJECT_KIND: JfrProfileKindId = 5;
const MALLOC_KIND: JfrProfileKindId = 6;
const MONITOR_ENTER_KIND: JfrProfileKindId = 7;
const THREAD_PARK_KIND: JfrProfileKindId = 8;

use crate::formats::app_name_suffix;

/// Kind of a profile in a recording. Names and units match those of Pyroscope.
#[derive(Debug, PartialEq, Eq)]
pub struct JfrProfileKind {
    /// Value of the label `__name__`.
    pub metric: &'static str,
    /// Types and units of the values; of two, the first counts events.
    pub types: &'static [(&'static str, &'static str)],
    /// Type and unit of the period, if the kind has one.
    pub period: Option<(&'static str, &'static str)>,
}

const SPACE_PERIOD: Option<(&str, &str)> = Some(("space", "bytes"));
const CONTENTION_TYPES: &[(&str, &str)] = &[("contentions", "count"), ("delay", "nanoseconds")];

/// All kinds, in the order of the decoded profiles.
pub(super) const PROFILE_KINDS: [JfrProfileKind; 9] = [
    JfrProfileKind {
        metric: app_name_suffix::CPU_METRIC,
        types: &[("cpu", "nanoseconds")],
        period: Some(("cpu", "nanoseconds")),
    },
    JfrProfileKind {
        metric: app_name_suffix::WALL_METRIC,
        types: &[("wall", "nanoseconds")],
        period: Some(("wall", "nanoseconds")),
    },
    memory(&[("alloc_in_new_tlab_objects", "count"), ("alloc_in_new_tlab_bytes", "bytes")], SPACE_PERIOD),
    memory(&[("alloc_outside_tlab_objects", "count"), ("alloc_outside_tlab_bytes", "bytes")], SPACE_PERIOD),
    memory(&[("alloc_sample_objects", "count"), ("alloc_sample_bytes", "bytes")], SPACE_PERIOD),
    memory(&[("live", "count")], Some(("objects", "count"))),
    memory(&[("malloc_objects", "count"), ("malloc_bytes", "bytes")], None),
    JfrProfileKind {
        metric: app_name_suffix::MUTEX_METRIC,
        types: CONTENTION_TYPES,
        period: Some(("mutex", "count")),
    },
    JfrProfileKind {
        metric: app_name_suffix::BLOCK_METRIC,
        types: CONTENTION_TYPES,
        period: Some(("block", "count")),
    },
];

const fn memory(
    types: &'static [(&'static str, &'static str)],
    period: Option<(&'static str, &'static str)>,
) -> JfrProfileKind {
    JfrProfileKind { metric: app_name_suffix::MEMORY_METRIC, types, period }
}

/// Meaning of an event for the profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JfrEventKind {
    /// Thread sample. Counts as processor time unless the thread sleeps, and as wall-clock time if the
    /// recording sampled it.
    Execution,
    /// Thread samples since the last such event, `amount` in number.
    Wall,
    /// Counts one event and adds `amount`.
    Amount(JfrProfileKindId),
    /// Counts one event and adds `amount`, given in ticks of the chunk's clock.
    Ticks(JfrProfileKindId),
    /// Setting of the profiler.
    Setting,
}

/// Type name of each known event, its meaning, and the field that holds the amount.
pub(super) const KNOWN_EVENTS: [(&str, JfrEventKind, &str); 10] = [
    ("jdk.ExecutionSample", JfrEventKind::Execution, ""),
    ("profiler.WallClockSample", JfrEventKind::Wall, "samples"),
    ("jdk.ObjectAllocationInNewTLAB", JfrEventKind::Amount(ALLOC_IN_TLAB_KIND), "tlabSize"),
    ("jdk.ObjectAllocationOutsideTLAB", JfrEventKind::Amount(ALLOC_OUTSIDE_TLAB_KIND), "allocationSize"),
    ("jdk.ObjectAllocationSample", JfrEventKind::Amount(ALLOC_SAMPLE_KIND), "weight"),
    ("profiler.LiveObject", JfrEventKind::Amount(LIVE_OBJECT_KIND), ""),
    ("profiler.Malloc", JfrEventKind::Amount(MALLOC_KIND), "size"),
    ("jdk.JavaMonitorEnter", JfrEventKind::Ticks(MONITOR_ENTER_KIND), "duration"),
    ("jdk.ThreadPark", JfrEventKind::Ticks(THREAD_PARK_KIND), "duration"),
    ("jdk.ActiveSetting", JfrEventKind::Setting, ""),
];

/// Setting with the name of the event by which threads are sampled.
pub(super) const EVENT_SETTING: &str = "event";
/// Value of [`EVENT_SETTING`] for samples of wall-clock time.
pub(super) const WALL_EVENT: &str = "wall";
/// State of threads that use no processor.
pub(super) const SLEEPING_STATE: &str = "STATE_SLEEPING";

impl JfrProfileKind {
    /// Returns the name of the kind for display and errors.
    pub fn name(&self) -> &'static str {
        let first = self.types[0].0;
        if first == "contentions" { self.metric } else { first }
    }

    /// Returns whether thread samples contribute to the kind.
    pub(super) fn is_time(&self) -> bool {
        matches!(self.metric, app_name_suffix::CPU_METRIC | app_name_suffix::WALL_METRIC)
    }
}
