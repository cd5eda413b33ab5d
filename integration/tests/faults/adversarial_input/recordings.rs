//! Flight recordings of little that each becomes much: constants, frames, lines of code, labels, types.

use athanor_profile::generate::{FlightChunk, FlightEvent};

use athanor_integration::bodies::{gzip, gzip_stored, protobuf_field};

use crate::adversarial_input::bombs::{Bomb, form, ingest, number, zstd};

/// Plain bytes of each, a little below what a body may have.
pub const PLAIN: usize = 60 << 20;
/// Types of the recording that each is made of.
const TEXT: u8 = 20;
const STACK: u8 = 22;
const FRAME: u8 = 23;
const SYMBOL: u8 = 25;
const STATE: u8 = 26;
const SAMPLE: u8 = 100;
const SETTING: u8 = 101;

/// A number in four bytes.
fn four(number: usize) -> [u8; 4] {
    [number | 0x80, number >> 7 | 0x80, number >> 14 | 0x80, number >> 21 & 0x7f].map(|part| part as u8)
}

fn event(class: u8, fields: &[u8]) -> Vec<u8> {
    [&four(fields.len() + 5)[..], &[class], fields].concat()
}

/// Constants of a type.
fn constants(class: u8, count: usize, entries: &[u8]) -> Vec<u8> {
    event(1, &[&[0, 0, 0, 0, 1, class][..], &four(count), entries].concat())
}

fn sample() -> FlightEvent {
    FlightEvent {
        name: "jdk.ExecutionSample",
        stack: vec![("App".into(), "main".into(), 1)],
        numbers: vec![("contextId", 0)],
        ..FlightEvent::default()
    }
}

/// A recording of these events, with more after them.
fn of_events(events: Vec<FlightEvent>, more: &[u8]) -> Vec<u8> {
    let mut raw = FlightChunk { compressed: true, ticks: 1, events }.chunk();
    raw.extend_from_slice(more);
    let size = raw.len() as u64;
    raw[8..16].copy_from_slice(&size.to_be_bytes());
    raw
}

/// A recording of one sample, with more events after it.
fn recording(more: &[u8]) -> Vec<u8> {
    of_events(vec![sample()], more)
}

/// A stack of frames, and a sample that has it.
fn stack(count: usize, frames: &[u8]) -> Vec<u8> {
    let constant = [&[50, 0][..], &four(count), frames].concat();
    [constants(STACK, 1, &constant), event(SAMPLE, &[0, 50, 0])].concat()
}

/// So many entries, and their bytes.
fn each(bytes: usize, entry: &dyn Fn(usize) -> Vec<u8>) -> (usize, Vec<u8>) {
    let count = bytes / entry(0).len();
    (count, (0..count).flat_map(entry).collect())
}

fn named(name: &str, raw: &[u8], status: u16, word: &'static str) -> Bomb {
    ingest(name, "jfr", gzip(raw), status, word).of_body()
}

/// A recording with a stack of many frames, which has so many bytes.
pub fn frames(bytes: usize) -> Vec<u8> {
    let (frames, equal) = each(bytes, &|_| vec![1, 1]);
    recording(&stack(frames, &equal))
}

/// Those that take most.
pub fn greedy() -> Vec<Bomb> {
    let mut greedy = counted();
    greedy.retain(|bomb| ["jfr: lines without end", "jfr: labels without end"].contains(&&*bomb.name));
    greedy
}

pub fn all() -> Vec<Bomb> {
    [counted(), repeated(), labelled()].into_iter().flatten().collect()
}

/// Lists of much.
fn counted() -> Vec<Bomb> {
    let (texts, empty) = each(PLAIN, &|number| [&four(number)[..], &[1]].concat());
    let (lines, different) = each(PLAIN, &|number| [&[1][..], &four(number)].concat());
    let (_, labelled) = each(PLAIN, &|number| event(SAMPLE, &[&[0, 1][..], &four(number)].concat()));
    let (_, bare) = each(PLAIN, &|_| event(SAMPLE, &[0, 77, 0]));
    let chunks = recording(&[]);
    vec![
        named(
            "constants without end",
            &recording(&constants(SYMBOL, texts, &empty)),
            422,
            "262145 constants",
        ),
        named("frames without end", &frames(PLAIN), 422, "8388609 frames"),
        ingest("plain frames without end", "jfr", frames(PLAIN), 422, "8388609 frames").of_body(),
        ingest("stored frames without end", "jfr", gzip_stored(&frames(PLAIN)), 422, "8388609 frames")
            .of_body(),
        named("lines without end", &recording(&stack(lines, &different)), 422, "262145 lines of code"),
        named("labels without end", &recording(&labelled), 400, "limits.max_profile_stacktrace_samples"),
        named("samples without a stack", &recording(&bare), 200, ""),
        named("chunks without end", &chunks.repeat(PLAIN / chunks.len()), 200, ""),
        named("a count without end", &recording(&constants(SYMBOL, (1 << 28) - 1, &[])), 422, "is truncated"),
    ]
}

/// What is said once and looked at for each of many events.
fn repeated() -> Vec<Bomb> {
    let states = {
        let sleeping = |id: usize| [&four(id)[..], &[3, 14], b"STATE_SLEEPING"].concat();
        let entries: Vec<u8> = (0..1_000_000).flat_map(sleeping).collect();
        let (_, events) =
            each(PLAIN / 2, &|number| event(SAMPLE, &[&[0, 1, 0][..], &four(number % 1_000_000)].concat()));
        let sleeper = FlightEvent { state: Some("STATE_SLEEPING"), ..sample() };
        of_events(vec![sleeper], &[constants(STATE, 1_000_000, &entries), events].concat())
    };
    let settings = {
        let long = [&four(7)[..], &[3], &four(64 << 10), &[b'x'; 64 << 10]].concat();
        let same = [&[0, 0, 2][..], &four(7), &[2], &four(7)].concat();
        let (_, events) = each(PLAIN, &|_| event(SETTING, &same));
        let texts = vec![("name", "event".to_owned()), ("value", "wall".to_owned())];
        let setting = FlightEvent { name: "jdk.ActiveSetting", texts, ..FlightEvent::default() };
        of_events(vec![sample(), setting], &[constants(TEXT, 1, &long), events].concat())
    };
    vec![
        named("frames that are called stacks", &called_stacks(), 200, ""),
        named("states that are called alike", &states, 422, "262145 constants"),
        named("settings with a long name", &settings, 200, ""),
        named("numbers of many digits", &digits(), 200, ""),
    ]
}

/// A recording of frames whose type is called as that of stacks is: read as such, each would have all that is behind it.
fn called_stacks() -> Vec<u8> {
    const COUNT: usize = 100_000;
    // Its method is a stack's flag, and its line the number of frames.
    let frame = |id: usize| [&four(id)[..], &[77], &four(1 << 20)].concat();
    let frames: Vec<u8> = (0..COUNT).flat_map(frame).collect();
    let behind = event(99, &[0; 4 << 20]);
    let samples = (0..COUNT).flat_map(|id| event(SAMPLE, &[&[0][..], &four(id), &[0]].concat()));
    let mut raw = recording(&[constants(FRAME, COUNT, &frames), samples.collect(), behind].concat());
    let name = b"jdk.types.StackFrame";
    let at = raw.windows(name.len()).position(|window| window == name).unwrap();
    raw[at..at + name.len()].copy_from_slice(b"jdk.types.StackTrace");
    raw
}

/// A recording whose metadata says one long number again and again.
fn digits() -> Vec<u8> {
    let text = |text: &[u8]| [&[3][..], &four(text.len()), text].concat();
    let texts = [&b"root"[..], b"class", b"id", &[b'0'; 64 << 10]].map(text).concat();
    let (count, attributes) = each(PLAIN, &|_| vec![2, 3]);
    let class = [&[1][..], &four(count), &attributes, &[0]].concat();
    let metadata = event(0, &[&[0, 0, 1, 4][..], &texts, &[0, 0, 1], &class].concat());
    let checkpoint = event(1, &[0, 0, 0, 0, 0]);
    let mut raw = recording(&[]);
    raw.truncate(68);
    let starts = [68, 68 + checkpoint.len() as u64];
    raw.extend([checkpoint, metadata].concat());
    let words = [raw.len() as u64, starts[0], starts[1]];
    for (at, word) in (8..).step_by(8).zip(words) {
        raw[at..at + 8].copy_from_slice(&word.to_be_bytes());
    }
    raw
}

/// Recordings in a form, beside labels that their events name by numbers.
fn labelled() -> Vec<Bomb> {
    let of = |name: &str, labels: &[u8], status, word| {
        let recording = gzip(&recording(&event(SAMPLE, &[0, 1, 1])));
        form(name, "jfr", &[("jfr", &recording), ("labels", labels)], status, word).of_body()
    };
    let context = |labels: &[u8]| protobuf_field(1, &[&[8, 1][..], &protobuf_field(2, labels)].concat());
    let text =
        |id: u64, text: &[u8]| protobuf_field(2, &[&[8][..], &number(id), &protobuf_field(2, text)].concat());
    let same = protobuf_field(1, &[8, 1, 16, 1]).repeat(262_000);
    let different: Vec<u8> = (0..1_000_000)
        .flat_map(|id| protobuf_field(1, &[&[8][..], &number(id), &[16, 1]].concat()))
        .collect();
    let texts: Vec<u8> = (0..1_000_000).flat_map(|id| text(id, b"x")).collect();
    vec![
        of(
            "labels with a long text",
            &gzip(&[context(&same), text(1, &vec![b'x'; 8 << 20])].concat()),
            422,
            "1001 labels of one context",
        ),
        of("labels of a context without end", &gzip(&context(&different)), 422, "1001 labels of one context"),
        of("texts without end", &gzip(&texts), 422, "limit is 262144"),
        of("contexts without end", &gzip(&protobuf_field(1, b"").repeat(7 << 20)), 200, ""),
        of(
            "labels that inflate",
            &zstd(300 << 20, 23),
            422,
            "labels of the flight recording: 16777217 bytes, the limit is 16777216",
        ),
        of("labels that are cut off", &context(&same)[..1_000_000], 422, "truncated"),
        form(
            "a recording that inflates",
            "jfr",
            &[("jfr", &gzip(&vec![0; 300 << 20]))],
            422,
            "limits.ingestion_body_limit",
        )
        .of_body(),
        form("no recording", "jfr", &[("labels", &[0; 1 << 20])], 422, "form has no part jfr"),
    ]
}
