//! Described uploads made profiles.

use athanor_profile::data_model::symbols::{Function, Line, Mapping, NO_ENTRY};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Dictionary, Labels, Profile, SampleLabel, ValueType};
use serde_json::Value;

pub fn add(source: &mut MemorySource, upload: &Value, base: i64, id: u128) {
    let mut ids = id + 1..;
    for series in upload["push"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let labels = series["labels"].as_object().expect("labels");
        let labels = Labels::new(labels.iter().map(|(name, value)| (name.clone(), text(value))));
        for described in series["profiles"].as_array().expect("profiles") {
            source.add(&labels, &profile(described, base), ids.next().expect("more ids"));
        }
    }
}

fn value_type(text: &str) -> ValueType {
    let (kind, unit) = text.split_once(':').expect("type:unit");
    ValueType::new(kind, unit)
}

fn profile(described: &Value, base: i64) -> Profile {
    let mut profile = Profile::default();
    let header = &mut profile.header;
    let types = described["types"].as_array().expect("types").iter();
    header.types = types.map(|text| value_type(text.as_str().expect("a type"))).collect();
    if let Some(period) = described["period"].as_array() {
        header.period_type = period[0].as_str().map(value_type);
        header.period = period[1].as_i64().expect("a period");
    }
    let seconds = described["at"].as_f64().expect("a time");
    header.time_nanos = (base + (seconds * 1e3).round() as i64) * 1_000_000;
    header.time_nanos += described["ns"].as_i64().unwrap_or_default();
    header.duration_nanos = (described["duration"].as_f64().unwrap_or(10.0) * 1e9) as i64;
    let mapping = described["mapping"].as_str();
    for sample in described["samples"].as_array().into_iter().flatten() {
        let values: Vec<i64> =
            sample["values"].as_array().expect("values").iter().filter_map(Value::as_i64).collect();
        for number in 0..sample["count"].as_u64().unwrap_or(1) {
            let shown = |text: &str| match sample["count"].is_null() {
                true => text.to_owned(),
                false => text.replace('#', &number.to_string()),
            };
            let frames = frames(&sample["stack"], &shown);
            let dictionary = &mut profile.dictionary;
            let path: Vec<u32> =
                frames.iter().rev().map(|calls| location(dictionary, calls, mapping)).collect();
            let stack = dictionary.stacks.intern(&dictionary.symbols, &path);
            let set = labels(dictionary, sample, &shown);
            profile.samples.push(stack, set, &values);
        }
    }
    profile
}

/// Root first; several calls of one frame are inlined, outermost first.
fn frames(stack: &Value, shown: &dyn Fn(&str) -> String) -> Vec<Vec<String>> {
    let frames: Vec<Value> = match stack {
        Value::String(text) => text.split(';').map(|frame| Value::String(frame.to_owned())).collect(),
        other => other.as_array().expect("frames").clone(),
    };
    let mut all = Vec::new();
    for frame in frames {
        match frame {
            Value::String(text) => match text.split_once("#*") {
                Some((name, times)) => {
                    let times: usize = times.parse().expect("a number");
                    all.extend((0..times).map(|number| vec![format!("{name}{number}")]));
                }
                None => all.push(vec![shown(&text)]),
            },
            calls => {
                let calls = calls.as_array().expect("calls").iter().filter_map(Value::as_str);
                all.push(calls.map(shown).collect());
            }
        }
    }
    all
}

/// `function@file:line`, outermost first.
fn location(dictionary: &mut Dictionary, calls: &[String], mapping: Option<&str>) -> u32 {
    let symbols = &mut dictionary.symbols;
    let mut lines = Vec::new();
    for call in calls.iter().rev() {
        let (name, place) = call.split_once('@').unwrap_or((call, ""));
        let (file, line) = place.split_once(':').unwrap_or((place, "0"));
        let (name, filename) = (symbols.strings.intern(name), symbols.strings.intern(file));
        let function = symbols.intern_function(Function { name, system_name: name, filename, start_line: 0 });
        lines.push(Line { function, line: line.parse().expect("a line"), column: 0 });
    }
    let mapping = mapping.map_or(NO_ENTRY, |file| {
        let filename = symbols.strings.intern(file);
        let (start, size) = (4096, 1 << 24);
        symbols.intern_mapping(Mapping { start, size, offset: 0, filename, build_id: 0, flags: 1 })
    });
    symbols.intern_location(mapping, 0, false, &lines)
}

fn labels(dictionary: &mut Dictionary, sample: &Value, shown: &dyn Fn(&str) -> String) -> u32 {
    let strings = &mut dictionary.symbols.strings;
    let texts = sample["labels"].as_object().into_iter().flatten();
    let set: Vec<SampleLabel> = texts
        .map(|(key, text)| SampleLabel {
            key: strings.intern(key),
            text: strings.intern(&shown(text.as_str().expect("a text"))),
            number: 0,
            unit: 0,
        })
        .collect();
    dictionary.label_sets.intern(&dictionary.symbols.strings, &set)
}
