//! Requests are written here field by field.

mod any;
mod bounds;
mod json;
mod labels;
mod layouts;
mod samples;

use std::collections::BTreeMap;

use super::*;
use crate::data_model::model::Profile;
use crate::formats::pprof::wire::{write_message, write_number, write_packed};
use crate::formats::pprof::{self, DecodeLimits};
use crate::generate::arbitrary_profile;

const BOUNDS: OtlpLimits = OtlpLimits { profile: 1 << 20, total: 1 << 22, profiles: 100 };

/// A message, field by field.
#[derive(Clone, Default)]
struct Msg(Vec<u8>);

impl Msg {
    fn n(mut self, field: u64, value: u64) -> Self {
        write_number(&mut self.0, field, value);
        self
    }
    fn b(mut self, field: u64, content: impl AsRef<[u8]>) -> Self {
        write_message(&mut self.0, field, content.as_ref());
        self
    }
    fn m(self, field: u64, content: Msg) -> Self {
        self.b(field, content.0)
    }
    fn p(mut self, field: u64, values: &[u64]) -> Self {
        write_packed(&mut self.0, field, values.iter().copied());
        self
    }
    /// A number of eight bytes.
    fn f(mut self, field: u64, value: u64) -> Self {
        self.0.push((field << 3 | 1) as u8);
        self.0.extend(value.to_le_bytes());
        self
    }
    fn times(self, field: u64, times: &[u64]) -> Self {
        self.b(field, times.iter().flat_map(|time| time.to_le_bytes()).collect::<Vec<u8>>())
    }
}

fn msg() -> Msg {
    Msg::default()
}

fn text(value: &str) -> Msg {
    msg().b(1, value)
}

fn pair(key: &str, value: Msg) -> Msg {
    msg().b(1, key).m(2, value)
}

/// Texts from 1 on, each table beginning with nothing; `main` calls `work`, which is stack 1, and `main` alone is 2.
const TEXTS: [&str; 12] = [
    "cpu",
    "nanoseconds",
    "samples",
    "count",
    "main",
    "work",
    "m.c",
    "thread.name",
    "service.name",
    "off_cpu",
    "lib.so",
    "process.executable.build_id.gnu",
];

fn index(text: &str) -> u64 {
    TEXTS.iter().position(|known| *known == text).unwrap() as u64 + 1
}

fn value_type(kind: &str, unit: &str) -> Msg {
    msg().n(1, index(kind)).n(2, index(unit))
}

fn attribute(key: &str, value: Msg) -> Msg {
    msg().n(1, index(key)).m(2, value)
}

/// Attributes: 1 and 2 name threads, 3 and 4 services, 5 a build.
fn dictionary() -> Msg {
    let mut out = msg().b(5, "");
    for text in TEXTS {
        out = out.b(5, text);
    }
    for table in [1, 2, 3, 4, 6, 7] {
        out = out.b(table, "");
    }
    let function = |name: &str| msg().n(1, index(name)).n(2, index(name)).n(3, index("m.c"));
    out.m(1, msg().n(1, 0x1000).n(2, 0x9000).n(4, index("lib.so")).p(5, &[5]))
        .m(3, function("main"))
        .m(3, function("work"))
        .m(2, msg().m(3, msg().n(1, 1).n(2, 10)))
        .m(2, msg().m(3, msg().n(1, 2).n(2, 20)))
        .m(2, msg().n(1, 1).n(2, 0x1500))
        .m(4, msg().b(1, [0xaa; 16]).b(2, [0xbb; 8]))
        .m(6, attribute("thread.name", text("t1")))
        .m(6, attribute("thread.name", text("t2")))
        .m(6, attribute("service.name", text("one")))
        .m(6, attribute("service.name", text("two")))
        .m(6, attribute("process.executable.build_id.gnu", text("abcd")))
        .m(7, msg().p(1, &[2, 1]))
        .m(7, msg().p(1, &[1]))
        .m(7, msg().p(1, &[3]))
}

fn cpu() -> Msg {
    msg()
        .m(1, value_type("samples", "count"))
        .m(5, value_type("cpu", "nanoseconds"))
        .n(6, 1000)
        .f(3, 5_000)
        .n(4, 100)
}

fn resource(attributes: &[(&str, Msg)], profiles: &[Msg]) -> Msg {
    let labels = attributes.iter().fold(msg(), |labels, (key, value)| labels.m(1, pair(key, value.clone())));
    let scope = profiles.iter().fold(msg(), |scope, profile| scope.m(2, profile.clone()));
    msg().m(1, labels).m(2, scope)
}

fn request(profiles: &[Msg]) -> Vec<u8> {
    msg().m(1, resource(&[("service.name", text("shop"))], profiles)).m(2, dictionary()).0
}

/// A sample of the new layout.
fn sample(stack: u64, value: u64) -> Msg {
    msg().n(1, stack).p(4, &[value])
}

fn read_one(bytes: &[u8]) -> Result<Vec<OtlpProfile>, OtlpError> {
    let mut export = read(bytes, &BOUNDS)?;
    assert_eq!(export.profiles.len(), 1);
    export.profiles.remove(0)
}

fn decoded(made: &OtlpProfile) -> Profile {
    let OtlpProfileContent::Pprof(bytes) = &made.content else { panic!("no samples") };
    let (profile, dropped) = pprof::decode(bytes, &DecodeLimits::default()).unwrap();
    assert_eq!(dropped, Default::default());
    profile
}

/// Stacks by name, root first, with their labels.
fn samples_of(profile: &Profile) -> BTreeMap<String, i64> {
    let (dictionary, strings) = (&profile.dictionary, &profile.dictionary.symbols.strings);
    let mut found = BTreeMap::new();
    for (stack, labels, values) in profile.samples.rows(profile.header.types.len()) {
        let mut frames: Vec<String> = Vec::new();
        for location in dictionary.stacks.locations(stack) {
            let lines = dictionary.symbols.lines(location).iter();
            frames.extend(lines.map(|line| {
                let function = dictionary.symbols.functions()[line.function as usize];
                format!("{}:{}", strings.get(function.name), line.line)
            }));
        }
        frames.reverse();
        let labels = dictionary.label_sets.get(labels).iter().map(|label| match strings.get(label.text) {
            "" => format!(" {}={}{}", strings.get(label.key), label.number, strings.get(label.unit)),
            text => format!(" {}={text}", strings.get(label.key)),
        });
        *found.entry(frames.join(";") + &labels.collect::<String>()).or_default() += values[0];
    }
    found
}

fn label<'m>(made: &'m OtlpProfile, name: &str) -> Option<&'m str> {
    made.labels.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn of(pairs: &[(&str, i64)]) -> BTreeMap<String, i64> {
    pairs.iter().map(|(stack, value)| ((*stack).to_owned(), *value)).collect()
}
