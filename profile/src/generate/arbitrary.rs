//! Small random profiles that use every feature of the model.

use super::random::SeededRandom;
use crate::data_model::labels::SampleLabel;
use crate::data_model::model::{Dictionary, Profile, ProfileHeader, Samples, ValueType};
use crate::data_model::symbols::{Function, Line, Mapping, NO_ENTRY};

const SAMPLE_TEXTS: [&str; 14] = [
    "main",
    "runtime.mallocgc",
    "java/lang/Thread.run",
    "std::vec::Vec<T>::push",
    "größe",
    "関数",
    "a b",
    "semi;colon",
    "\"quoted\"",
    "new\nline",
    "🔥",
    "/usr/bin/server",
    "libc.so.6",
    "x",
];
const VALUE_TYPES: [(&str, &str); 5] = [
    ("cpu", "nanoseconds"),
    ("samples", "count"),
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_space", "bytes"),
];

/// Returns a random profile of up to 40 samples with 1 to 4 types. Features: text and number labels, inlined
/// lines, locations with and without mapping and lines, empty and recursive stacks. Also equal rows, negative
/// and extreme values, and timestamps in some profiles.
pub fn arbitrary_profile(seed: u64) -> Profile {
    let mut random = SeededRandom::from_path(&[seed, 20]);
    let mut dictionary = Dictionary::default();
    let header = header(&mut random);
    let locations = locations(&mut random, &mut dictionary);
    let mut samples = Samples::default();
    for _ in 0..random.next_below(40) {
        let stack = stack(&mut random, &mut dictionary, &locations);
        let labels = labels(&mut random, &mut dictionary);
        let values: Vec<i64> = header.types.iter().map(|_| value(&mut random)).collect();
        samples.push(stack, labels, &values);
        if random.next_bool(100) {
            samples.push(stack, labels, &values);
        }
    }
    moments(seed, &header, &mut samples);
    Profile { header, samples, dictionary }
}

/// Adds timestamps to some rows of every third profile. Most lie within the profile's duration.
fn moments(seed: u64, header: &ProfileHeader, samples: &mut Samples) {
    let mut random = SeededRandom::from_path(&[seed, 21]);
    if !random.next_bool(333) {
        return;
    }
    for row in 0..samples.len() {
        let count = if random.next_bool(600) { random.next_below(6) } else { 0 };
        let within = 1 + header.duration_nanos as usize;
        let times: Vec<i64> = (0..count)
            .map(|_| match random.next_below(20) {
                0 => random.next_u64() as i64,
                _ => header.time_nanos + random.next_below(within) as i64,
            })
            .collect();
        samples.moments.add(row, times);
    }
}

fn text(random: &mut SeededRandom) -> &'static str {
    random.pick(&SAMPLE_TEXTS)
}

fn value(random: &mut SeededRandom) -> i64 {
    match random.next_below(10) {
        0 => 0,
        1 => -(random.next_below(1000) as i64),
        2 => random.next_u64() as i64,
        3 => i64::MIN,
        _ => random.next_below(100_000) as i64,
    }
}

fn header(random: &mut SeededRandom) -> ProfileHeader {
    let first = random.next_below(VALUE_TYPES.len());
    let count = 1 + random.next_below(4);
    let kinds = VALUE_TYPES.iter().cycle().skip(first).take(count);
    let types: Vec<ValueType> = kinds.map(|(kind, unit)| ValueType::new(kind, unit)).collect();
    let mut optional =
        || if random.next_bool(300) { random.pick(&SAMPLE_TEXTS).to_owned() } else { String::new() };
    let drop_frames = optional();
    let keep_frames = optional();
    let default_type = optional();
    let doc_url = optional();
    ProfileHeader {
        period_type: random.next_bool(700).then(|| types[0].clone()),
        types,
        period: value(random),
        time_nanos: random.next_below(1 << 61) as i64,
        duration_nanos: random.next_below(1 << 40) as i64,
        comments: (0..random.next_below(3)).map(|_| text(random).to_owned()).collect(),
        drop_frames,
        keep_frames,
        default_type,
        doc_url,
    }
}

fn locations(random: &mut SeededRandom, dictionary: &mut Dictionary) -> Vec<u32> {
    let symbols = &mut dictionary.symbols;
    let functions: Vec<u32> = (0..1 + random.next_below(8))
        .map(|_| {
            let function = Function {
                name: symbols.strings.intern(text(random)),
                system_name: symbols.strings.intern(text(random)),
                filename: if random.next_bool(500) { symbols.strings.intern(text(random)) } else { 0 },
                start_line: random.next_below(300) as i64 - 20,
            };
            symbols.intern_function(function)
        })
        .collect();
    let mappings: Vec<u32> = (0..random.next_below(4))
        .map(|_| {
            let mapping = Mapping {
                start: random.next_u64() >> random.next_below(60),
                size: random.next_below(1 << 30) as u64,
                offset: random.next_below(3) as u64 * 4096,
                filename: symbols.strings.intern(text(random)),
                build_id: if random.next_bool(500) { symbols.strings.intern(text(random)) } else { 0 },
                flags: random.next_below(16) as u8,
            };
            symbols.intern_mapping(mapping)
        })
        .collect();
    (0..1 + random.next_below(12))
        .map(|_| {
            let has_mapping = !mappings.is_empty() && random.next_bool(700);
            let mapping = if has_mapping { mappings[random.next_below(mappings.len())] } else { NO_ENTRY };
            let lines: Vec<Line> = (0..random.next_below(4))
                .map(|_| Line {
                    function: functions[random.next_below(functions.len())],
                    line: random.next_below(500) as i64,
                    column: if random.next_bool(200) { random.next_below(80) as i64 } else { 0 },
                })
                .collect();
            symbols.intern_location(
                mapping,
                random.next_u64() >> random.next_below(64),
                random.next_bool(100),
                &lines,
            )
        })
        .collect()
}

fn stack(random: &mut SeededRandom, dictionary: &mut Dictionary, locations: &[u32]) -> u32 {
    let depth = random.next_below(9);
    let path: Vec<u32> = (0..depth).map(|_| locations[random.next_below(locations.len())]).collect();
    dictionary.stacks.intern(&dictionary.symbols, &path)
}

fn labels(random: &mut SeededRandom, dictionary: &mut Dictionary) -> u32 {
    let strings = &mut dictionary.symbols.strings;
    let count = if random.next_bool(500) { 0 } else { random.next_below(4) };
    let labels: Vec<SampleLabel> = (0..count)
        .map(|_| {
            let key = strings.intern(text(random));
            if random.next_bool(500) {
                return SampleLabel { key, text: strings.intern(text(random)), number: 0, unit: 0 };
            }
            let unit = if random.next_bool(500) { strings.intern("bytes") } else { 0 };
            SampleLabel { key, text: 0, number: 1 + random.next_below(1 << 40) as i64, unit }
        })
        .collect();
    dictionary.label_sets.intern(strings, &labels)
}
