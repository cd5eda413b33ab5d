//! Uploads to push, and what a query sees of them.

use std::collections::BTreeMap;

use athanor_chassis::Clock;
use athanor_profile::data_model::labels::SampleLabel;
use athanor_profile::formats::pprof::encode;
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};

/// One sample as a query sees it: series, time, duration, stack, value.
pub type Row = (String, i64, i64, String, i64);

pub fn read(source: &dyn ProfileSource, out: &mut Vec<Row>) {
    let (series, profiles) = (source.series().unwrap(), source.profiles().unwrap());
    let picked: Vec<u32> = (0..profiles.len() as u32).collect();
    let mut names = BTreeMap::new();
    let mut read = |dictionary: &athanor_profile::Dictionary, stacks: &[u32]| {
        for (place, &stack) in (0u32..).zip(stacks) {
            let symbols = &dictionary.symbols;
            let lines = dictionary.stacks.locations(stack).flat_map(|location| symbols.lines(location));
            let mut path: Vec<&str> = lines.map(|line| symbols.function_name(line.function)).collect();
            path.sort_unstable();
            names.insert(place, path.join(";"));
        }
    };
    source.visit_names(&mut read).unwrap();
    let mut rows: BTreeMap<(String, i64, i64, String), i64> = BTreeMap::new();
    let mut each = |place: u32, stacks: &[u32], values: &[i64]| {
        let profile = &profiles[place as usize];
        let series = &series[profile.series as usize];
        let labels: Vec<String> =
            series.labels().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let series = format!("{} {}", labels.join(","), series.value_type.kind);
        for (stack, value) in stacks.iter().zip(values) {
            let key = (series.clone(), profile.time, profile.duration, names[stack].clone());
            *rows.entry(key).or_default() += value;
        }
    };
    source.visit_rows(&picked, &mut each).unwrap();
    out.extend(rows.into_iter().map(|(key, sum)| (key.0, key.1, key.2, key.3, sum)));
}

pub fn now() -> i64 {
    Clock::system().wall().nanos()
}

pub fn profile(time: i64, rows: &[(&str, i64)]) -> Profile {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    (profile.header.time_nanos, profile.header.duration_nanos, profile.header.period) = (time, 7, 3);
    for (stack, value) in rows {
        let stack = profile.dictionary.intern_named_stack(stack.split(';'));
        profile.samples.push(stack, 0, &[*value]);
    }
    profile
}

pub fn upload(profile: &Profile) -> ProfileUpload {
    let pairs = [("__name__", "process_cpu"), ("service_name", "checkout")];
    let labels = Labels::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let pprof = encode(profile).into();
    ProfileUpload { sent: labels.clone(), labels, pprof, ..ProfileUpload::default() }
}

/// Eleven and `value - 10` more.
pub fn simple(time: i64, value: i64) -> ProfileUpload {
    upload(&profile(time, &[("main;work", value), ("main", 1)]))
}

fn taken(time: i64, types: &[(&str, &str)]) -> Profile {
    let mut profile = Profile::default();
    profile.header.types = types.iter().map(|(kind, unit)| ValueType::new(kind, unit)).collect();
    profile.header.time_nanos = time;
    profile
}

/// As a process sends it that is asked for a measurement.
fn asked(name: &str, profile: &Profile) -> ProfileUpload {
    let pairs = [("__name__", name), ("service_name", "checkout")];
    let labels = Labels::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    ProfileUpload { sent: labels.clone(), labels, pprof: encode(profile).into(), ..ProfileUpload::default() }
}

/// A snapshot of a process that has counted so much for each stack: objects, ten times as many bytes, and one object in
/// use.
pub fn snapshot(time: i64, rows: &[(&str, i64)]) -> ProfileUpload {
    let types = [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count")];
    let mut profile = taken(time, &types);
    for (stack, value) in rows {
        let stack = profile.dictionary.intern_named_stack(stack.split(';'));
        profile.samples.push(stack, 0, &[*value, *value * 10, 1]);
    }
    asked("memory", &profile)
}

/// A snapshot of what a process has waited for, so often and so long under each value of a label.
pub fn contended(time: i64, rows: &[(&str, i64)]) -> ProfileUpload {
    let mut profile = taken(time, &[("contentions", "count"), ("delay", "nanoseconds")]);
    rows.iter().for_each(|(shop, value)| labelled(&mut profile, "main", &[("shop", shop)], *value));
    asked("mutex", &profile)
}

/// Adds a row with text labels, of the same value for each type.
pub fn labelled(profile: &mut Profile, stack: &str, texts: &[(&str, &str)], value: i64) {
    let dictionary = &mut profile.dictionary;
    let stack = dictionary.intern_named_stack(stack.split(';'));
    let strings = &mut dictionary.symbols.strings;
    let mut label =
        |key, text| SampleLabel { key: strings.intern(key), text: strings.intern(text), number: 0, unit: 0 };
    let set: Vec<SampleLabel> = texts.iter().map(|(key, text)| label(key, text)).collect();
    let set = dictionary.label_sets.intern(&dictionary.symbols.strings, &set);
    profile.samples.push(stack, set, &vec![value; profile.header.types.len()]);
}
