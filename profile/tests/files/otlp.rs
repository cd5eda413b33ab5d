//! OpenTelemetry's profiles, read by the numbers of the wire.

use std::collections::BTreeMap;

use athanor_profile::call_tree::tree::Tree;
use athanor_profile::formats::pprof::{DecodeLimits, decode};
use athanor_profile::generate::arbitrary_profile;
use athanor_profile::{Profile, formats::otlp};
use proptest::prelude::*;
use prost::Message;

use crate::paths::{Frame, Paths, named, of_tree, unnamed};

macro_rules! wire {
    ($($name:ident { $($(#[$meta:meta])* $field:ident: $of:ty,)* })*) => {
        $(#[derive(Clone, PartialEq, Message)] struct $name { $($(#[$meta])* $field: $of,)* })*
    };
}

wire! {
    ProfilesData {
        #[prost(message, repeated, tag = "1")] resources: Vec<ResourceProfiles>,
        #[prost(message, optional, tag = "2")] dictionary: Option<Dictionary>,
    }
    ResourceProfiles {
        #[prost(message, optional, tag = "1")] resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")] scopes: Vec<ScopeProfiles>,
    }
    Resource { #[prost(message, repeated, tag = "1")] attributes: Vec<KeyValue>, }
    KeyValue {
        #[prost(string, tag = "1")] key: String,
        #[prost(message, optional, tag = "2")] value: Option<AnyValue>,
    }
    AnyValue {
        #[prost(string, optional, tag = "1")] text: Option<String>,
        #[prost(int64, optional, tag = "3")] number: Option<i64>,
    }
    ScopeProfiles { #[prost(message, repeated, tag = "2")] profiles: Vec<OneProfile>, }
    OneProfile {
        #[prost(message, optional, tag = "1")] sample_type: Option<ValueType>,
        #[prost(message, repeated, tag = "2")] samples: Vec<Sample>,
        #[prost(fixed64, tag = "3")] time: u64,
        #[prost(uint64, tag = "4")] duration: u64,
        #[prost(message, optional, tag = "5")] period_type: Option<ValueType>,
        #[prost(int64, tag = "6")] period: i64,
    }
    ValueType { #[prost(int32, tag = "1")] kind: i32, #[prost(int32, tag = "2")] unit: i32, }
    Sample {
        #[prost(int32, tag = "1")] stack: i32,
        #[prost(int32, repeated, tag = "2")] attributes: Vec<i32>,
        #[prost(int64, repeated, tag = "4")] values: Vec<i64>,
    }
    Dictionary {
        #[prost(message, repeated, tag = "1")] mappings: Vec<Mapping>,
        #[prost(message, repeated, tag = "2")] locations: Vec<Location>,
        #[prost(message, repeated, tag = "3")] functions: Vec<Function>,
        #[prost(message, repeated, tag = "4")] links: Vec<Link>,
        #[prost(string, repeated, tag = "5")] strings: Vec<String>,
        #[prost(message, repeated, tag = "6")] attributes: Vec<Attribute>,
        #[prost(message, repeated, tag = "7")] stacks: Vec<Stack>,
    }
    Mapping {
        #[prost(uint64, tag = "1")] start: u64,
        #[prost(uint64, tag = "2")] limit: u64,
        #[prost(int32, tag = "4")] file: i32,
        #[prost(int32, repeated, tag = "5")] attributes: Vec<i32>,
    }
    Location {
        #[prost(int32, tag = "1")] mapping: i32,
        #[prost(uint64, tag = "2")] address: u64,
        #[prost(message, repeated, tag = "3")] lines: Vec<Line>,
    }
    Line {
        #[prost(int32, tag = "1")] function: i32,
        #[prost(int64, tag = "2")] line: i64,
        #[prost(int64, tag = "3")] column: i64,
    }
    Function {
        #[prost(int32, tag = "1")] name: i32,
        #[prost(int32, tag = "3")] file: i32,
    }
    Link { #[prost(bytes = "vec", tag = "1")] trace: Vec<u8>, }
    Attribute {
        #[prost(int32, tag = "1")] key: i32,
        #[prost(message, optional, tag = "2")] value: Option<AnyValue>,
        #[prost(int32, tag = "3")] unit: i32,
    }
    Stack { #[prost(int32, repeated, tag = "1")] locations: Vec<i32>, }
}

/// Frames, leaf first: names with file and line, or the address.
type Stacks = BTreeMap<(Vec<String>, Vec<String>), i64>;

fn add(stacks: &mut Stacks, key: (Vec<String>, Vec<String>), value: i64) {
    let sum = stacks.entry(key).or_default();
    *sum = sum.wrapping_add(value);
}

fn stacks_of(profile: &Profile, column: usize) -> Stacks {
    let (mut found, dictionary) = (Stacks::new(), &profile.dictionary);
    let (symbols, strings) = (&dictionary.symbols, &dictionary.symbols.strings);
    for (stack, labels, values) in profile.samples.rows(profile.header.types.len()) {
        let mut frames = Vec::new();
        for location in dictionary.stacks.locations(stack) {
            let entry = symbols.locations()[location as usize];
            frames.push(format!("0x{:x}", symbols.sent_address(&entry)));
            for line in symbols.lines(location) {
                let of = symbols.functions()[line.function as usize];
                let (name, file) = (strings.get(of.name), strings.get(of.filename));
                frames.push(format!("{name}@{file}:{}:{}", line.line, line.column));
            }
        }
        let labels = dictionary.label_sets.get(labels).iter().map(|label| match strings.get(label.text) {
            "" => format!("{}={}{}", strings.get(label.key), label.number, strings.get(label.unit)),
            text => format!("{}={text}", strings.get(label.key)),
        });
        add(&mut found, (frames, labels.collect()), values[column]);
    }
    found.retain(|_, value| *value != 0);
    found
}

fn stacks_on_the_wire(profile: &OneProfile, dictionary: &Dictionary) -> Stacks {
    let mut found = Stacks::new();
    let text = |index: i32| dictionary.strings[index as usize].as_str();
    for sample in &profile.samples {
        let mut frames = Vec::new();
        assert_ne!(sample.stack, 0, "0 stands for no stack");
        for &location in &dictionary.stacks[sample.stack as usize].locations {
            let location = &dictionary.locations[location as usize];
            frames.push(format!("0x{:x}", location.address));
            for line in &location.lines {
                let of = &dictionary.functions[line.function as usize];
                frames.push(format!("{}@{}:{}:{}", text(of.name), text(of.file), line.line, line.column));
            }
        }
        let label = |index: &i32| {
            let of = &dictionary.attributes[*index as usize];
            let value = of.value.clone().unwrap_or_default();
            let value = value.number.map_or(value.text.unwrap_or_default(), |number| number.to_string());
            format!("{}={value}{}", text(of.key), text(of.unit))
        };
        assert_eq!(sample.values.len(), 1);
        add(&mut found, (frames, sample.attributes.iter().map(label).collect()), sample.values[0]);
    }
    found.retain(|_, value| *value != 0);
    found
}

/// The same by names, the root first.
fn paths_on_the_wire(profile: &OneProfile, dictionary: &Dictionary) -> Paths {
    let mut paths = Paths::new();
    let text = |index: i32| dictionary.strings[index as usize].as_str();
    for sample in &profile.samples {
        let mut path = Vec::new();
        for &location in &dictionary.stacks[sample.stack as usize].locations {
            let location = &dictionary.locations[location as usize];
            let functions = location.lines.iter().map(|line| &dictionary.functions[line.function as usize]);
            path.extend(functions.map(|function| Frame::Function(text(function.name).to_owned())));
            if location.lines.is_empty() {
                // The first one stands for none.
                let mapping =
                    Some(&dictionary.mappings[location.mapping as usize]).filter(|_| location.mapping > 0);
                let build_id = mapping.and_then(|mapping| mapping.attributes.first()).and_then(|attribute| {
                    dictionary.attributes[*attribute as usize].value.as_ref()?.text.as_deref()
                });
                path.push(unnamed(
                    mapping.map_or("", |mapping| text(mapping.file)),
                    build_id.unwrap_or_default(),
                ));
            }
        }
        crate::paths::add(&mut paths, named(path), sample.values[0]);
    }
    paths.retain(|_, value| *value != 0);
    paths
}

proptest! {
    #[test]
    fn any_profile_says_the_same(seed: u64) {
        let profile = arbitrary_profile(seed);
        let bytes = otlp::encode(&profile, &[("service.name", "shop")]);
        let data = ProfilesData::decode(bytes.as_slice()).unwrap();
        let dictionary = data.dictionary.unwrap();
        let resource = data.resources[0].resource.clone().unwrap();
        let service = resource.attributes[0].value.clone().unwrap().text;
        prop_assert_eq!(service.as_deref(), Some("shop"));
        prop_assert_eq!(&dictionary.strings[0], "");
        prop_assert_eq!(&dictionary.mappings[0], &Mapping::default());
        prop_assert_eq!(&dictionary.attributes[0], &Attribute::default());
        let profiles = &data.resources[0].scopes[0].profiles;
        prop_assert_eq!(profiles.len(), profile.header.types.len());
        for (column, one) in profiles.iter().enumerate() {
            let of = one.sample_type.clone().unwrap_or_default();
            let expected = &profile.header.types[column];
            let text = |index: i32| dictionary.strings[index as usize].clone();
            prop_assert_eq!((text(of.kind), text(of.unit)), (expected.kind.clone(), expected.unit.clone()));
            prop_assert_eq!(one.time, profile.header.time_nanos.max(0) as u64);
            prop_assert_eq!(one.period, profile.header.period);
            prop_assert_eq!(stacks_on_the_wire(one, &dictionary), stacks_of(&profile, column));
            prop_assert_eq!(paths_on_the_wire(one, &dictionary), of_tree(&Tree::from_profile(&profile, column)));
        }
    }
}

/// Several numbers of one name come by their value, and as texts by how they are written.
fn of_sorted_labels(stacks: impl IntoIterator<Item = ((Vec<String>, Vec<String>), i64)>) -> Stacks {
    let mut sorted = Stacks::new();
    for ((stack, mut labels), value) in stacks {
        labels.sort_unstable();
        let sum = sorted.entry((stack, labels)).or_default();
        *sum = sum.wrapping_add(value);
    }
    sorted
}

proptest! {
    #[test]
    fn any_profile_that_was_written_reads_the_same(seed: u64) {
        let profile = arbitrary_profile(seed);
        let bounds = otlp::OtlpLimits { profile: 1 << 20, total: 1 << 22, profiles: 100 };
        let export = otlp::read(&otlp::encode(&profile, &[("service.name", "shop")]), &bounds).unwrap();
        prop_assert_eq!(export.profiles.len(), profile.header.types.len());
        for (column, read) in export.profiles.iter().enumerate() {
            let expected = stacks_of(&profile, column);
            let header = &profile.header;
            let period = header.period_type.clone().unwrap_or_default();
            if expected.is_empty() {
                continue;
            }
            let of_cpu = (period.kind.as_str(), period.unit.as_str()) == ("cpu", "nanoseconds")
                && header.types[column].kind == "samples"
                && header.period > 0;
            match read {
                Ok(made) => {
                    let otlp::OtlpProfileContent::Pprof(bytes) = &made[0].content else { panic!("{made:?}") };
                    let (again, _) = decode(bytes, &DecodeLimits::default()).unwrap();
                    let factor = if of_cpu { header.period } else { 1 };
                    let expected = expected.into_iter().map(|(key, value)| (key, value.wrapping_mul(factor)));
                    prop_assert_eq!(of_sorted_labels(stacks_of(&again, 0)), of_sorted_labels(expected));
                    prop_assert_eq!(again.header.time_nanos, header.time_nanos.max(0));
                }
                Err(otlp::OtlpError::NoMetric) => prop_assert_eq!(period.kind, ""),
                Err(error) => prop_assert!(matches!(error, otlp::OtlpError::Overflow { .. }) && of_cpu, "{}", error),
            }
        }
    }
}
