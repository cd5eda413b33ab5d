mod bounds;

use proptest::prelude::*;

use super::*;
use crate::formats::pprof;
use crate::generate::{FLIGHT_DURATION_NANOS, FLIGHT_START_NANOS, FlightChunk, FlightEvent};
use crate::{Profile, ValueType};

const ABOUT: RecordingInfo = RecordingInfo { start: 0, duration: 0, sample_rate: 100 };

/// A stack, leaf first.
fn stack(frames: &[(&str, &str, u32)]) -> Vec<(String, String, u32)> {
    frames.iter().map(|&(class, method, line)| (class.to_owned(), method.to_owned(), line)).collect()
}

fn event(name: &'static str, numbers: &[(&'static str, u64)]) -> FlightEvent {
    let stack = stack(&[("java/lang/Long", "valueOf", 7), ("App", "fib", 82), ("App", "main", 0)]);
    FlightEvent { name, stack, numbers: numbers.to_vec(), ..FlightEvent::default() }
}

fn running(numbers: &[(&'static str, u64)]) -> FlightEvent {
    FlightEvent { state: Some("STATE_RUNNABLE"), ..event("jdk.ExecutionSample", numbers) }
}

fn setting(name: &str, value: &str) -> FlightEvent {
    let texts = vec![("name", name.to_owned()), ("value", value.to_owned())];
    FlightEvent { name: "jdk.ActiveSetting", texts, ..FlightEvent::default() }
}

fn chunk(events: Vec<FlightEvent>) -> Vec<u8> {
    FlightChunk { compressed: true, ticks: 1_000_000_000, events }.chunk()
}

fn read_plain(raw: &[u8]) -> JfrRecording {
    read(raw, &ABOUT, &LabelsSnapshot::default(), &JfrLimits::default()).unwrap()
}

fn decoded(made: &JfrProfile) -> Profile {
    pprof::decode(made.pprof.as_ref().unwrap(), &pprof::DecodeLimits::default()).unwrap().0
}

/// Metric, types and sums of each profile.
fn shown(recording: &JfrRecording) -> Vec<String> {
    let profile = |made: &JfrProfile| {
        let profile = decoded(made);
        let types = profile.header.types.iter().enumerate();
        let types =
            types.map(|(at, ValueType { kind, unit })| format!("{kind}:{unit}={}", profile.total(at)));
        let period =
            profile.header.period_type.as_ref().map(|period| format!("{}:{}", period.kind, period.unit));
        format!("{} {} {}", made.kind.metric, types.collect::<Vec<_>>().join(","), period.unwrap_or_default())
    };
    recording.profiles.iter().map(profile).collect()
}

/// Every kind of event once.
fn every_kind() -> Vec<FlightEvent> {
    vec![
        setting("interval", "10ms"),
        running(&[]),
        event("profiler.WallClockSample", &[("samples", 3)]),
        event("jdk.ObjectAllocationInNewTLAB", &[("allocationSize", 24), ("tlabSize", 4096)]),
        event("jdk.ObjectAllocationOutsideTLAB", &[("allocationSize", 1 << 20)]),
        event("jdk.ObjectAllocationSample", &[("weight", 77)]),
        event("profiler.LiveObject", &[("allocationSize", 24), ("allocationTime", 9)]),
        event("profiler.Malloc", &[("address", 1 << 63), ("size", 64)]),
        event("profiler.Free", &[("address", 1 << 63)]),
        event("jdk.JavaMonitorEnter", &[("duration", 1_500)]),
        event("jdk.ThreadPark", &[("duration", 2_500), ("timeout", 1)]),
        event("jdk.CPULoad", &[("jvmUser", 1)]),
    ]
}

#[test]
fn every_kind_of_event_becomes_its_profile() {
    for compressed in [true, false] {
        let raw = FlightChunk { compressed, ticks: 1_000_000_000, events: every_kind() }.chunk();
        let recording = read_plain(&raw);
        assert_eq!(
            shown(&recording),
            [
                "process_cpu cpu:nanoseconds=10000000 cpu:nanoseconds",
                "wall wall:nanoseconds=30000000 wall:nanoseconds",
                "memory alloc_in_new_tlab_objects:count=1,alloc_in_new_tlab_bytes:bytes=4096 space:bytes",
                "memory alloc_outside_tlab_objects:count=1,alloc_outside_tlab_bytes:bytes=1048576 space:bytes",
                "memory alloc_sample_objects:count=1,alloc_sample_bytes:bytes=77 space:bytes",
                "memory live:count=1 objects:count",
                "memory malloc_objects:count=1,malloc_bytes:bytes=64 ",
                "mutex contentions:count=1,delay:nanoseconds=1500 mutex:count",
                "block contentions:count=1,delay:nanoseconds=2500 block:count",
            ]
        );
        for made in &recording.profiles {
            let profile = decoded(made);
            let frames = profile.dictionary.frame_names(profile.samples.stacks[0]);
            assert_eq!(frames, ["App.main", "App.fib", "java/lang/Long.valueOf"]);
            let leaf = profile.dictionary.stacks.locations(profile.samples.stacks[0]).next().unwrap();
            assert_eq!(profile.dictionary.symbols.lines(leaf)[0].line, 7);
            let header = &profile.header;
            let times = (header.time_nanos as u64, header.duration_nanos as u64);
            assert_eq!(times, (FLIGHT_START_NANOS, FLIGHT_DURATION_NANOS));
        }
        assert_eq!(recording.event, "");
    }
}

#[test]
fn equal_stacks_add_up_across_chunks() {
    let other = FlightEvent { stack: stack(&[("B", "b", 1)]), ..running(&[]) };
    let first = chunk(vec![running(&[]), other.clone(), running(&[])]);
    let second = FlightChunk { compressed: false, ticks: 10, events: vec![other, running(&[])] }.chunk();
    let recording = read_plain(&[first, second].concat());
    let profile = decoded(&recording.profiles[0]);
    assert_eq!(profile.samples.values, [30_000_000, 20_000_000]);
    assert_eq!(profile.header.period, 10_000_000);
    assert_eq!(profile.header.duration_nanos as u64, 2 * FLIGHT_DURATION_NANOS);
}

#[test]
fn each_chunk_numbers_its_methods_anew() {
    let of = |method, line| FlightEvent { stack: stack(&[("A", method, line)]), ..running(&[]) };
    let (one, two, elsewhere) = (of("one", 7), of("two", 7), of("two", 8));
    let first = chunk(vec![one.clone(), two.clone(), elsewhere.clone()]);
    let second = chunk(vec![two, one.clone(), one.clone(), elsewhere, one]);
    let profile = decoded(&read_plain(&[first, second].concat()).profiles[0]);
    assert_eq!(profile.samples.values, [40_000_000, 20_000_000, 20_000_000]);
}

#[test]
fn sleepers_use_no_processor_and_count_for_time_that_passes() {
    let asleep = FlightEvent { state: Some("STATE_SLEEPING"), ..running(&[]) };
    let events = vec![setting("event", "wall"), running(&[]), asleep.clone(), asleep.clone()];
    let recording = read_plain(&chunk(events));
    assert_eq!(recording.event, "wall");
    let expected = [
        "process_cpu cpu:nanoseconds=10000000 cpu:nanoseconds",
        "wall wall:nanoseconds=30000000 wall:nanoseconds",
    ];
    assert_eq!(shown(&recording), expected);
    let recording = read_plain(&chunk(vec![setting("event", "itimer"), asleep]));
    assert_eq!((recording.event.as_str(), recording.profiles.len()), ("itimer", 0));
}

#[test]
fn times_are_those_of_the_client_and_a_rate_of_zero_makes_them_zero() {
    let raw = chunk(vec![running(&[]), event("jdk.ObjectAllocationSample", &[("weight", 5)])]);
    let about = RecordingInfo { start: 5, duration: 6, sample_rate: 0 };
    let recording = read(&raw, &about, &LabelsSnapshot::default(), &JfrLimits::default()).unwrap();
    let cpu = decoded(&recording.profiles[0]);
    assert_eq!((cpu.header.time_nanos, cpu.header.duration_nanos, cpu.header.period), (5, 6, 0));
    assert_eq!(cpu.total(0), 0);
    assert_eq!(decoded(&recording.profiles[1]).total(1), 5);
}

#[test]
fn waiting_is_told_in_nanoseconds_whatever_the_clock() {
    let events = vec![event("jdk.JavaMonitorEnter", &[("duration", 3_000_000)])];
    let raw = FlightChunk { compressed: true, ticks: 3_000_000_000, events }.chunk();
    assert_eq!(shown(&read_plain(&raw)), ["mutex contentions:count=1,delay:nanoseconds=1000000 mutex:count"]);
}

#[test]
fn samples_without_a_stack_are_counted_by_kind_and_left_out() {
    let bare = |name| FlightEvent { stack: Vec::new(), ..event(name, &[("samples", 3)]) };
    let nameless = FlightEvent { stack: stack(&[("", "", 3)]), ..running(&[]) };
    let recording = read_plain(&chunk(vec![
        bare("jdk.ExecutionSample"),
        running(&[]),
        nameless,
        bare("profiler.Malloc"),
    ]));
    let seen: Vec<_> = recording.profiles.iter().map(|made| (made.kind.name(), made.without_stack)).collect();
    assert_eq!(seen, [("cpu", 2), ("malloc_objects", 1)]);
    assert_eq!(decoded(&recording.profiles[0]).total(0), 10_000_000);
    assert_eq!(recording.profiles[1].pprof, Ok(Vec::new()));
    let whole =
        read_merged(&chunk(vec![running(&[]), bare("profiler.Malloc")]), &pprof::DecodeLimits::default())
            .unwrap();
    assert_eq!(whole.header.types.len(), 1);
}

#[test]
fn names_that_differ_in_each_process_meet() {
    let lambda = |class: &str| FlightEvent { stack: stack(&[(class, "run", 1)]), ..running(&[]) };
    let native = FlightEvent { stack: stack(&[("", "itable stub", 0)]), ..running(&[]) };
    let raw = chunk(vec![lambda("A$$Lambda$4/0x1f"), lambda("A$$Lambda.0x2e"), native]);
    let profile = decoded(&read_plain(&raw).profiles[0]);
    let frames: Vec<Vec<String>> =
        profile.samples.stacks.iter().map(|&id| profile.dictionary.frame_names(id)).collect();
    assert_eq!(frames, [["A$$Lambda_.run"], ["itable stub"]]);
}

/// A field of a message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

fn labels() -> Vec<u8> {
    let pair = |name: u8, value: u8| field(1, &[8, name, 16, value]);
    let context =
        |id: u8, labels: &[Vec<u8>]| field(1, &[&[8, id][..], &field(2, &labels.concat())].concat());
    let text = |id: u8, text: &str| field(2, &[&[8, id][..], &field(2, text.as_bytes())].concat());
    [
        context(1, &[pair(10, 11), pair(12, 13)]),
        context(2, &[pair(10, 99)]),
        text(10, "thread"),
        text(11, "pool-1"),
        text(12, "zone"),
        text(13, "eu"),
        text(14, "GET /"),
    ]
    .concat()
}

#[test]
fn labels_come_from_the_snapshot_and_from_spans() {
    let with = |numbers: [u64; 5]| {
        let names = ["contextId", "spanId", "spanName", "traceIdHi", "traceIdLo"];
        running(&names.into_iter().zip(numbers).collect::<Vec<_>>())
    };
    let raw = chunk(vec![
        with([0, 0, 0, 0, 0]),
        with([1, 0, 0, 0, 0]),
        with([1, 0, 0, 0, 0]),
        with([2, 0, 0, 0, 0]),
        with([0, 0xabc, 14, 1, u64::MAX]),
    ]);
    let labels = labels();
    let snapshot = LabelsSnapshot::parse(&labels).unwrap();
    let recording = read(&raw, &ABOUT, &snapshot, &JfrLimits::default()).unwrap();
    let profile = decoded(&recording.profiles[0]);
    let text = |id| profile.dictionary.symbols.strings.get(id);
    let shown = profile.samples.rows(1).map(|(_, set, values)| {
        let labels = profile.dictionary.label_sets.get(set);
        let mut labels: Vec<_> =
            labels.iter().map(|label| format!("{}={}", text(label.key), text(label.text))).collect();
        labels.sort();
        format!("{} {}", values[0], labels.join(","))
    });
    let expected = [
        "10000000 ",
        "20000000 thread=pool-1,zone=eu",
        "10000000 ",
        "10000000 profile_id=0000000000000abc,span_name=GET /,trace_id=0000000000000001ffffffffffffffff",
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

#[test]
fn what_is_no_recording_is_refused_in_words() {
    let whole = chunk(every_kind());
    let said = |raw: &[u8]| {
        read(raw, &ABOUT, &LabelsSnapshot::default(), &JfrLimits::default())
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let changed = |at: usize, bytes: &[u8]| {
        let mut raw = whole.clone();
        raw[at..at + bytes.len()].copy_from_slice(bytes);
        said(&raw)
    };
    assert_eq!(said(b""), "flight recording is truncated at byte 0");
    assert_eq!(changed(0, b"x"), "not a flight recording: it does not begin with FLR");
    assert!(
        changed(4, &[0, 1]).starts_with("flight recording has version 1.1; the supported version is 2.x")
    );
    assert!(changed(8, &[0; 8]).starts_with("chunk at byte 0 of the flight recording is unfinished"));
    assert_eq!(
        changed(68, &[0; 4]),
        "flight recording is damaged: an event smaller than its header at byte 68"
    );
    assert!(changed(24, &[0xff; 8]).starts_with("flight recording is truncated at byte"));
    for junk in [&b"junk"[..], &[0; 100]] {
        let said = said(&[&whole[..], junk].concat());
        assert_eq!(said, format!("flight recording is damaged: no chunk at byte {}", whole.len()));
    }
    for cut in 0..whole.len() {
        said(&whole[..cut]);
    }
    assert!(
        LabelsSnapshot::parse(&labels()[..5])
            .unwrap_err()
            .to_string()
            .starts_with("labels of the flight recording are")
    );
}

/// A chunk with nothing in it but a metadata event, whose fields follow its type.
fn bare(fields: &[u8]) -> Vec<u8> {
    let mut raw = chunk(Vec::new())[..68].to_vec();
    let size = fields.len() + 2;
    raw.extend([size as u8]);
    raw.push(0);
    raw.extend_from_slice(fields);
    let all = raw.len() as u64;
    raw[8..16].copy_from_slice(&all.to_be_bytes());
    raw[24..32].copy_from_slice(&68u64.to_be_bytes());
    raw
}

#[test]
fn types_that_have_no_end_are_refused() {
    let said = |raw: &[u8]| {
        read(raw, &ABOUT, &LabelsSnapshot::default(), &JfrLimits::default()).map(|_| ()).unwrap_err()
    };
    // Symbols hold a text, which is type 20: let each hold a symbol, which is type 25.
    let mut raw = chunk(vec![running(&[])]);
    let at = raw.windows(4).position(|bytes| bytes == [3, 2, b'2', b'0']).unwrap();
    raw[at + 3] = b'5';
    assert!(matches!(said(&raw), JfrError::UnknownType { class: 25, .. }), "{}", said(&raw));

    let head = |texts: &[u8]| [&[1, 1, 1][..], texts].concat();
    assert_eq!(read_plain(&bare(&head(&[1, 3, 1, b'a', 0, 0, 0]))), JfrRecording::default());
    let nested = [&head(&[1, 3, 1, b'a'])[..], &[0, 0, 1].repeat(20)].concat();
    let (what, seen, limit) = ("nested elements of metadata", 17, 16);
    assert_eq!(said(&bare(&nested)), JfrError::OverLimit { what, seen, limit });
    let many = head(&[0xff, 0xff, 0xff, 0x7f]);
    assert!(said(&bare(&many)).to_string().ends_with(" texts of metadata, the limit is 131072"));
    for children in [&[0xff, 0xff, 0xff, 0x7f][..], &[1]] {
        let cut = [&head(&[1, 3, 1, b'a', 0, 0])[..], children].concat();
        assert!(matches!(said(&bare(&cut)), JfrError::Truncated { .. }));
    }
    let outside = head(&[1, 3, 1, b'a', 7, 0, 0]);
    assert_eq!(
        said(&bare(&outside)).to_string().split(" at byte").next(),
        Some("flight recording is damaged: an unknown text index")
    );
}

#[test]
fn a_file_is_shown_as_one_profile() {
    let profile = read_merged(&chunk(every_kind()), &pprof::DecodeLimits::default()).unwrap();
    let types: Vec<&str> = profile.header.types.iter().map(|value| value.kind.as_str()).collect();
    assert_eq!(types[..2], ["cpu", "wall"]);
    assert_eq!(
        types[types.len() - 4..],
        ["mutex_contentions", "mutex_delay", "block_contentions", "block_delay"]
    );
    assert_eq!((profile.header.shown_type(), profile.samples.len()), (0, 1));
    assert_eq!(profile.total(types.len() - 3), 1_500);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<prop::sample::Index>(),
        compressed: bool,
    ) {
        let mut raw = FlightChunk { compressed, ticks: 1, events: every_kind() }.chunk();
        for (at, byte) in changes {
            let at = at.index(raw.len());
            raw[at] = byte;
        }
        let limits = JfrLimits { constants: 1_000, names: 10_000, samples: 100, profile: 10_000, ..JfrLimits::default() };
        for raw in [&raw[..], &raw[..cut.index(raw.len())]] {
            let _ = read(raw, &ABOUT, &LabelsSnapshot::default(), &limits);
        }
    }

    #[test]
    fn any_labels_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = LabelsSnapshot::parse(&bytes);
    }

    #[test]
    fn sums_are_those_of_the_events(
        events in prop::collection::vec((0..4u8, 0..3u8, 0..1_000_000u64), 0..40),
        split in any::<prop::sample::Index>(),
        compressed: bool,
    ) {
        let made: Vec<FlightEvent> = events.iter().map(|&(class, line, weight)| FlightEvent {
            stack: stack(&[(format!("C{class}").as_str(), "m", u32::from(line))]),
            ..event("jdk.ObjectAllocationSample", &[("weight", weight)])
        }).collect();
        let (first, second) = made.split_at(split.index(made.len() + 1));
        let bytes = [first, second].map(|events| FlightChunk { compressed, ticks: 1, events: events.to_vec() }.chunk());
        let recording = read_plain(&bytes.concat());
        let profile = recording.profiles.first().map(decoded).unwrap_or_default();
        prop_assert_eq!(recording.profiles.len(), usize::from(!events.is_empty()));
        if !events.is_empty() {
            prop_assert_eq!(profile.total(0), events.len() as i64);
            prop_assert_eq!(profile.total(1), events.iter().map(|event| event.2 as i64).sum::<i64>());
            let stacks: std::collections::BTreeSet<_> = events.iter().map(|event| (event.0, event.1)).collect();
            prop_assert_eq!(profile.samples.len(), stacks.len());
        }
    }
}
