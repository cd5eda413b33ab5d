//! What is over a bound, and sums that do not fit.

use super::*;

/// The error of each profile, or what it adds up to in its last column.
fn outcomes(recording: &JfrRecording) -> Vec<Result<i64, String>> {
    let of = |made: &JfrProfile| match &made.pprof {
        Ok(_) => {
            let profile = decoded(made);
            Ok(profile.total(profile.header.types.len() - 1))
        }
        Err(error) => Err(error.to_string()),
    };
    recording.profiles.iter().map(of).collect()
}

fn allocated(weight: u64) -> FlightEvent {
    event("jdk.ObjectAllocationSample", &[("weight", weight)])
}

#[test]
fn limits_are_named_with_what_was_seen() {
    let stacks = (0..5).map(|line| FlightEvent { stack: stack(&[("A", "a", line)]), ..running(&[]) });
    let raw = chunk(stacks.chain([allocated(7)]).collect());
    let read = |limits: JfrLimits| read(&raw, &ABOUT, &LabelsSnapshot::default(), &limits);
    let said = |limits| read(limits).map(|_| ()).map_err(|error| error.to_string());
    let all = JfrLimits::default();
    assert_eq!(said(all), Ok(()));
    for (limits, expected) in [
        (JfrLimits { names: 2, ..all }, "flight recording has 3 bytes of names, the limit is 2"),
        (JfrLimits { frames: 4, ..all }, "flight recording has 5 frames of different stacks, the limit is 4"),
        (JfrLimits { constants: 3, ..all }, "flight recording has 4 constants, the limit is 3"),
    ] {
        assert_eq!(said(limits), Err(expected.to_owned()));
    }
    assert!(said(JfrLimits { bytes: 20, ..all }).unwrap_err().ends_with(" bytes, the limit is 20"));
    // A profile that is over a limit is refused alone.
    let recording = read(JfrLimits { samples: 4, ..all }).unwrap();
    let over = "profile cpu of the flight recording has 5 samples, the limit is 4";
    assert_eq!(outcomes(&recording), [Err(over.to_owned()), Ok(7)]);
    let sizes: Vec<usize> =
        read(all).unwrap().profiles.iter().map(|made| made.pprof.as_ref().unwrap().len()).collect();
    let larger = usize::from(sizes[1] > sizes[0]);
    let limit = sizes[1 - larger];
    let outcomes = outcomes(&read(JfrLimits { profile: limit, ..all }).unwrap());
    let said = outcomes[larger].as_ref().unwrap_err();
    assert!(said.ends_with(&format!(" bytes, the limit is {limit}")), "{said}");
    assert!(sizes[0] != sizes[1] && outcomes[1 - larger].is_ok());
    let limits = pprof::DecodeLimits { samples: 4, ..pprof::DecodeLimits::default() };
    assert_eq!(read_merged(&raw, &limits).unwrap_err().to_string(), over);
}

#[test]
fn sums_that_do_not_fit_are_refused_and_no_other() {
    const MOST: u64 = i64::MAX as u64;
    let refused =
        |kind: &str| Err(format!("values of profile {kind} of the flight recording add up to over 63 bits"));
    let seen = outcomes(&read_plain(&chunk(vec![allocated(MOST), running(&[]), allocated(1)])));
    assert_eq!(seen, [Ok(10_000_000), refused("alloc_sample_objects")]);
    assert_eq!(outcomes(&read_plain(&chunk(vec![allocated(MOST)]))), [Ok(MOST as i64)]);
    let wall = event("profiler.WallClockSample", &[("samples", MOST)]);
    assert_eq!(outcomes(&read_plain(&chunk(vec![wall, running(&[])]))), [Ok(10_000_000), refused("wall")]);
    let waiting = |ticks| event("jdk.ThreadPark", &[("duration", ticks)]);
    let slow = |ticks| FlightChunk { compressed: true, ticks: 1, events: vec![waiting(ticks)] }.chunk();
    assert_eq!(outcomes(&read_plain(&slow(MOST))), [refused("block")]);
    assert_eq!(outcomes(&read_plain(&slow(9_000_000_000))), [Ok(9_000_000_000_000_000_000)]);
}

/// A chunk with more events after it.
fn with_events(mut raw: Vec<u8>, events: &[Vec<u8>]) -> Vec<u8> {
    for fields in events {
        raw.extend(
            [fields.len() + 3]
                .map(|size| [size | 0x80, size >> 7 & 0x7f | 0x80, size >> 14])
                .as_flattened()
                .iter()
                .map(|&part| part as u8),
        );
        raw.extend_from_slice(fields);
    }
    let size = raw.len() as u64;
    raw[8..16].copy_from_slice(&size.to_be_bytes());
    raw
}

#[test]
fn settings_are_read_no_more_often_than_a_recording_has_bytes() {
    const TEXT: u8 = 20;
    const SETTING: u8 = 100;
    let constant = [&[1, 0, 0, 0, 0, 1, TEXT, 1, 9, 3, 0xe0, 0xd4, 0x03][..], &[b'x'; 60_000]].concat();
    let set = |name: &[u8]| [&[SETTING, 0, 0, 3, name.len() as u8][..], name, &[2, 9]].concat();
    let raw = |name: &[u8], count| {
        let mut events = vec![constant.clone()];
        events.extend(std::iter::repeat_n(set(name), count));
        with_events(chunk(vec![setting("a", "b")]), &events)
    };
    let read = |raw: &[u8]| {
        let limits = JfrLimits { bytes: 61_000, ..JfrLimits::default() };
        read(raw, &ABOUT, &LabelsSnapshot::default(), &limits).map(|recording| recording.event.len())
    };
    assert_eq!(read(&raw(b"event", 4)), Ok(60_000));
    assert_eq!(
        read(&raw(b"event", 5)).unwrap_err().to_string(),
        "flight recording has 300000 bytes of texts that were read, the limit is 244000"
    );
    // Names of other settings cost nothing, however long they are.
    assert_eq!(read(&raw(b"other", 5)), Ok(0));
}

/// Else what is a few bytes as the one may be as much as there is behind it as the other.
#[test]
fn constants_of_a_second_type_of_a_name_are_none_of_the_first() {
    const FRAME: u8 = 23;
    const SAMPLE: u8 = 100;
    // As a stack the first one would have a frame, which would be the second one.
    let frames = [1, 0, 0, 0, 0, 1, FRAME, 2, 60, 1, 1, 1, 5, 5].to_vec();
    let sample = [SAMPLE, 0, 60, 1].to_vec();
    let mut raw = with_events(chunk(vec![running(&[])]), &[frames, sample]);
    let name = b"jdk.types.StackFrame";
    let at = raw.windows(name.len()).position(|window| window == name).unwrap();
    raw[at..at + name.len()].copy_from_slice(b"jdk.types.StackTrace");
    let recording = read_plain(&raw);
    let cpu = &recording.profiles[0];
    assert_eq!((decoded(cpu).total(0), cpu.without_stack), (10_000_000, 1));
}

#[test]
fn labels_have_bounds_that_are_named() {
    let long = |number: u8, content: &[u8]| {
        let size =
            [content.len() as u8 | 0x80, (content.len() >> 7) as u8 | 0x80, (content.len() >> 14) as u8];
        [&[number << 3 | 2][..], &size, content].concat()
    };
    let context =
        |labels: usize| long(1, &[&[8, 1][..], &long(2, &field(1, &[8, 1, 16, 2]).repeat(labels))].concat());
    let text = |bytes: usize| long(2, &[&[8, 1][..], &long(2, &vec![b'x'; bytes])].concat());
    let said = |bytes: &[u8]| LabelsSnapshot::parse(bytes).map(|_| ()).map_err(|error| error.to_string());
    assert_eq!(said(&[context(1_000), context(1_000), text(1 << 16)].concat()), Ok(()));
    assert_eq!(
        said(&context(1_001)),
        Err("labels of the flight recording: 1001 labels of one context, the limit is 1000".to_owned())
    );
    assert_eq!(
        said(&text((1 << 16) + 1)),
        Err("labels of the flight recording: 65537 bytes in one text, the limit is 65536".to_owned())
    );
}
