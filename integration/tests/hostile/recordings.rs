//! Flight recordings of little that each becomes much: constants, frames, lines of code, labels, types.

use athanor_profile::generate::{Flight, FlightEvent};

use crate::bombs::{Bomb, gzip, ingest};

/// Plain bytes of each, a little below what a body may have.
const PLAIN: usize = 60 << 20;
/// Types of the recording that each is made of.
const STACK: u8 = 22;
const SYMBOL: u8 = 25;
const SAMPLE: u8 = 100;

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

/// A recording of one sample, with more events after it.
fn recording(more: &[u8]) -> Vec<u8> {
    let sample = FlightEvent {
        name: "jdk.ExecutionSample",
        stack: vec![("App".into(), "main".into(), 1)],
        numbers: vec![("contextId", 0)],
        ..FlightEvent::default()
    };
    let mut raw = Flight { compressed: true, ticks: 1, events: vec![sample] }.chunk();
    raw.extend_from_slice(more);
    let size = raw.len() as u64;
    raw[8..16].copy_from_slice(&size.to_be_bytes());
    raw
}

/// A stack of frames, and a sample that has it.
fn stack(count: usize, frames: &[u8]) -> Vec<u8> {
    let constant = [&[50, 0][..], &four(count), frames].concat();
    [constants(STACK, 1, &constant), event(SAMPLE, &[0, 50, 0])].concat()
}

pub fn all() -> Vec<Bomb> {
    let each = |bytes: usize, entry: &dyn Fn(usize) -> Vec<u8>| -> (usize, Vec<u8>) {
        let count = PLAIN / bytes;
        (count, (0..count).flat_map(entry).collect())
    };
    let (texts, empty) = each(5, &|number| [&four(number)[..], &[1]].concat());
    let (frames, equal) = each(2, &|_| vec![1, 1]);
    let (lines, different) = each(5, &|number| [&[1][..], &four(number)].concat());
    let (_, labelled) = each(11, &|number| event(SAMPLE, &[&[0, 1][..], &four(number)].concat()));
    let (_, bare) = each(8, &|_| event(SAMPLE, &[0, 77, 0]));
    let chunks = recording(&[]);
    let named = |name: &str, raw: &[u8]| ingest(name, "jfr", gzip(raw));
    vec![
        named("constants without end", &recording(&constants(SYMBOL, texts, &empty))),
        named("frames without end", &recording(&stack(frames, &equal))),
        named("lines without end", &recording(&stack(lines, &different))),
        named("labels without end", &recording(&labelled)),
        named("samples without a stack", &recording(&bare)),
        named("chunks without end", &chunks.repeat(PLAIN / chunks.len())),
        named("a count without end", &recording(&constants(SYMBOL, (1 << 28) - 1, &[]))),
    ]
}
