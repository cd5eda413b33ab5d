use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::generate::arbitrary;
use crate::model::Profile;
use crate::pprof::wire::{message, number, packed};
use crate::pprof::{self, Limits};

const BOUNDS: Bounds = Bounds { profile: 1 << 20, total: 1 << 22, profiles: 100 };

/// A message, field by field.
#[derive(Clone, Default)]
struct Msg(Vec<u8>);

impl Msg {
    fn n(mut self, field: u64, value: u64) -> Self {
        number(&mut self.0, field, value);
        self
    }
    fn b(mut self, field: u64, content: impl AsRef<[u8]>) -> Self {
        message(&mut self.0, field, content.as_ref());
        self
    }
    fn m(self, field: u64, content: Msg) -> Self {
        self.b(field, content.0)
    }
    fn p(mut self, field: u64, values: &[u64]) -> Self {
        packed(&mut self.0, field, values.iter().copied());
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

fn read_one(bytes: &[u8]) -> Result<Vec<Made>, OtlpError> {
    let mut export = read(bytes, &BOUNDS)?;
    assert_eq!(export.profiles.len(), 1);
    export.profiles.remove(0)
}

fn decoded(made: &Made) -> Profile {
    let Content::Pprof(bytes) = &made.content else { panic!("no samples") };
    let (profile, dropped) = pprof::decode(bytes, &Limits::default()).unwrap();
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

fn label<'m>(made: &'m Made, name: &str) -> Option<&'m str> {
    made.labels.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn of(pairs: &[(&str, i64)]) -> BTreeMap<String, i64> {
    pairs.iter().map(|(stack, value)| ((*stack).to_owned(), *value)).collect()
}

#[test]
fn samples_of_a_processor_become_its_time() {
    let made = read_one(&request(&[cpu().m(2, sample(1, 3)).m(2, sample(2, 2)).b(7, [7; 16])])).unwrap();
    let [made] = &made[..] else { panic!("{made:?}") };
    let profile = decoded(made);
    assert_eq!(samples_of(&profile), of(&[("main:10;work:20", 3000), ("main:10", 2000)]));
    let header = &profile.header;
    assert_eq!((header.types[0].kind.as_str(), header.types[0].unit.as_str()), ("cpu", "nanoseconds"));
    assert_eq!((header.time_nanos, header.duration_nanos, header.period), (5000, 100, 1000));
    assert_eq!(made.id.as_deref(), Some("07070707070707070707070707070707"));
    let expected = [
        ("__name__", "process_cpu"),
        ("service_name", "shop"),
        ("__otel__", "true"),
        ("__delta__", "false"),
        ("service.name", "shop"),
    ];
    assert_eq!(made.labels, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn both_layouts_say_the_same() {
    let new = msg().n(1, 1).p(2, &[1]).n(3, 1).p(4, &[3]).times(5, &[5001]);
    let old = msg().n(1, 1).p(2, &[3]).p(3, &[1]).n(4, 1).times(5, &[5001]);
    let read = |sample: Msg| read(&request(&[cpu().m(2, sample)]), &BOUNDS).unwrap();
    let (new, old) = (read(new), read(old));
    assert_eq!(new.profiles, old.profiles);
    assert_eq!((new.oddities.old_layouts, old.oddities.old_layouts), (0, 1));
    let ids = format!(" span_id={} thread.name=t1 trace_id={}", "bb".repeat(8), "aa".repeat(16));
    let expected = of(&[(&format!("main:10;work:20{ids}"), 3000)]);
    assert_eq!(samples_of(&decoded(&new.profiles[0].as_ref().unwrap()[0])), expected);
}

#[test]
fn a_layout_that_no_sample_tells_is_told_by_what_field_2_can_be() {
    // Values, since nothing else counts; attributes, since there are times and all of them exist; values, since 9 does not.
    for (field_2, times, expected) in [
        (&[2][..], &[][..], "main:10;work:20"),
        (&[2], &[5001, 5002], "main:10;work:20 thread.name=t2"),
        (&[9, 9], &[5001, 5002], "main:10;work:20"),
    ] {
        let mut sample = msg().n(1, 1).p(2, field_2);
        if !times.is_empty() {
            sample = sample.times(5, times);
        }
        let made = read_one(&request(&[cpu().m(2, sample)])).unwrap();
        assert_eq!(samples_of(&decoded(&made[0])).keys().next().unwrap(), expected);
    }
}

#[test]
fn services_of_samples_split_a_profile() {
    let with = |attributes: &[u64], value| msg().n(1, 2).p(2, attributes).p(4, &[value]);
    let samples = [with(&[3], 1), with(&[4, 1], 2), with(&[], 4), with(&[3], 8)];
    let profile = samples.into_iter().fold(cpu(), |profile, sample| profile.m(2, sample));
    let made = read_one(&request(&[profile])).unwrap();
    let split: Vec<_> =
        made.iter().map(|made| (label(made, "service_name").unwrap(), samples_of(&decoded(made)))).collect();
    let expected = [
        ("shop", of(&[("main:10", 4000)])),
        ("one", of(&[("main:10", 9000)])),
        ("two", of(&[("main:10 thread.name=t1", 2000)])),
    ];
    assert_eq!(split, expected);
    assert_eq!(label(&made[1], "service.name"), Some("shop"), "the resource's own attribute stays");
}

#[test]
fn who_names_no_service_is_named_by_the_executable() {
    let profile = cpu().m(2, sample(1, 1));
    for (attributes, expected) in [
        (&[("host.name", text("h"))][..], "unknown_service"),
        (&[("process.executable.name", text("exe"))], "unknown_service:exe"),
        (&[("service.name", text("")), ("process.executable.name", text("exe"))], "unknown_service:exe"),
    ] {
        let bytes = msg().m(1, resource(attributes, std::slice::from_ref(&profile))).m(2, dictionary()).0;
        assert_eq!(label(&read_one(&bytes).unwrap()[0], "service_name"), Some(expected));
    }
}

#[test]
fn attributes_of_resources_are_labels_where_existing_servers_have_them_so() {
    let list = |values: &[Msg]| msg().m(5, values.iter().fold(msg(), |list, value| list.m(1, value.clone())));
    let attributes = [
        ("host.name", text("h1")),
        ("count", msg().n(3, 3)),
        ("flag", msg().n(2, 1)),
        ("ratio", msg().f(4, 0.5f64.to_bits())),
        ("one", list(&[text("x")])),
        ("two", list(&[text("x"), text("y")])),
        ("empty", text("")),
        ("named", msg().n(8, index("main"))),
        ("host.name", text("again")),
        ("service_name", text("mine")),
        ("__name__", text("mine")),
    ];
    let bytes = msg().m(1, resource(&attributes, &[cpu().m(2, sample(1, 1))])).m(2, dictionary()).0;
    let export = read(&bytes, &BOUNDS).unwrap();
    let made = &export.profiles[0].as_ref().unwrap()[0];
    let own: Vec<_> = made.labels[4..].iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(own, ["host.name=h1", "count=3", "one=x", "named=main"]);
    assert_eq!(export.oddities.unusable_attributes, 1);
}

#[test]
fn keys_may_be_named_by_the_table() {
    let by_index = msg().n(3, index("service.name")).m(2, msg().n(8, index("work")));
    let resource = msg().m(1, msg().m(1, by_index)).m(2, msg().m(2, cpu().m(2, sample(1, 1))));
    let made = read_one(&msg().m(1, resource).m(2, dictionary()).0).unwrap();
    assert_eq!(label(&made[0], "service_name"), Some("work"));
}

#[test]
fn a_value_of_any_kind_becomes_a_text_of_a_sample() {
    let inner = msg()
        .m(1, pair("a\"b", msg().n(3, 7)))
        .m(1, pair("c", msg().m(5, msg().m(1, msg().n(2, 1)).m(1, msg()))));
    for (value, expected) in [
        (text("plain"), " thread.name=plain"),
        (msg().n(3, -5i64 as u64), " thread.name=-5"),
        (msg().b(2, "").n(2, 1), " thread.name=true"),
        (msg().f(4, 0.5f64.to_bits()), " thread.name=0.5"),
        (msg().f(4, f64::NAN.to_bits()), " thread.name=NaN"),
        (msg().b(7, [0xff, 0xfe]), " thread.name=//4="),
        (msg().n(8, index("main")), " thread.name=main"),
        (msg().m(6, inner), " thread.name={\"a\\\"b\":7,\"c\":[true,null]}"),
        (msg(), ""),
    ] {
        let dictionary = dictionary().m(6, attribute("thread.name", value));
        let profile = cpu().m(2, msg().n(1, 2).p(2, &[6]).p(4, &[1]));
        let bytes = msg().m(1, resource(&[], &[profile])).m(2, dictionary).0;
        let found = samples_of(&decoded(&read_one(&bytes).unwrap()[0]));
        assert_eq!(found, of(&[(&format!("main:10{expected}"), 1000)]));
    }
}

#[test]
fn a_whole_number_with_a_unit_is_a_numeric_label() {
    let dictionary = dictionary().m(6, attribute("thread.name", msg().n(3, 512)).n(3, index("count")));
    let profile = cpu().m(2, msg().n(1, 2).p(2, &[6]).p(4, &[1]));
    let bytes = msg().m(1, resource(&[], &[profile])).m(2, dictionary).0;
    let profile = decoded(&read_one(&bytes).unwrap()[0]);
    assert_eq!(samples_of(&profile), of(&[("main:10 thread.name=512count", 1000)]));
}

#[test]
fn times_go_with_their_sample_and_count_where_there_are_no_values() {
    let profile = cpu().m(2, msg().n(1, 1).times(5, &[5001, 5003, 5003, 9000]));
    let export = read(&request(&[profile]), &BOUNDS).unwrap();
    let made = &export.profiles[0].as_ref().unwrap()[0];
    assert_eq!(samples_of(&decoded(made)), of(&[("main:10;work:20", 4000)]));
    assert_eq!((export.oddities.unordered_times, export.oddities.times_out_of_range), (1, 1));
    let Content::Pprof(bytes) = &made.content else { panic!("{made:?}") };
    let extension = msg().times(1000, &[5001, 5003, 5003, 9000]).0;
    assert!(bytes.windows(extension.len()).any(|window| window == extension));
    assert_eq!(decoded(made).samples.moments.of(0), [5001, 5003, 5003, 9000]);
}

#[test]
fn values_are_one_or_one_for_each_time_and_only_what_is_off_the_processor_is_summed_always() {
    let counted = |profile: Msg, sample: Msg| {
        let made = read_one(&request(&[profile.m(2, sample.n(1, 2))]))?;
        Ok::<_, OtlpError>((
            label(&made[0], "__name__").unwrap().to_owned(),
            samples_of(&decoded(&made[0]))["main:10"],
        ))
    };
    let off = || msg().m(1, value_type("off_cpu", "nanoseconds"));
    let named = |name: &str, value| Ok((name.to_owned(), value));
    assert_eq!(counted(off(), msg().p(4, &[5, 6])), named("off_cpu", 11));
    assert_eq!(counted(cpu(), msg().p(4, &[5, 6]).times(5, &[5001, 5002])), named("process_cpu", 11_000));
    let values = |values, times| Err(OtlpError::Values { sample: 1, values, times });
    assert_eq!(counted(cpu(), msg()), values(0, 0));
    assert_eq!(counted(cpu(), msg().p(4, &[1, 2])), values(2, 0));
    let value = i64::MAX / 2;
    let over = OtlpError::Overflow { sample: 1, value, period: 1000 };
    assert_eq!(counted(cpu(), msg().p(4, &[value as u64])), Err(over));
    assert_eq!(
        counted(msg().m(1, value_type("samples", "count")), msg().p(4, &[1])),
        Err(OtlpError::NoMetric)
    );
}

#[test]
fn code_without_names_keeps_its_address_and_its_build() {
    let profile = decoded(&read_one(&request(&[cpu().m(2, sample(3, 1))])).unwrap()[0]);
    let symbols = &profile.dictionary.symbols;
    let mapping = symbols.mappings()[0];
    assert_eq!(
        (symbols.strings.get(mapping.filename), symbols.strings.get(mapping.build_id)),
        ("lib.so", "abcd")
    );
    assert_eq!((mapping.start, symbols.locations()[0].address), (0x1000, 0x500));
}

#[test]
fn an_entry_0_that_means_something_is_one() {
    let bare = msg()
        .b(5, "")
        .b(5, "main")
        .b(5, "cpu")
        .b(5, "nanoseconds")
        .m(3, msg().n(1, 1))
        .m(2, msg().m(3, msg().n(2, 7)))
        .m(6, msg().n(1, 2).m(2, text("x")))
        .m(7, msg().b(1, [0]));
    let kind = || msg().n(1, 2).n(2, 3);
    let profile = msg().m(1, kind()).m(5, kind()).m(2, msg().b(2, [0]).p(4, &[5])).f(3, 1).n(4, 1);
    let export = read(&msg().m(1, resource(&[], &[profile])).m(2, bare).0, &BOUNDS).unwrap();
    let made = export.profiles[0].as_ref().unwrap();
    assert_eq!(samples_of(&decoded(&made[0])), of(&[("main:7 cpu=x", 5)]));
    assert_eq!(export.oddities.missing_zero_entries, 6);
}

#[test]
fn one_bad_profile_does_not_hurt_the_others() {
    let good = || cpu().m(2, sample(1, 1));
    let bad = [
        (cpu().m(2, sample(99, 1)), "a sample refers to entry 99 of stack_table, which has 4"),
        (cpu().m(2, sample(1, 1).p(2, &[99])), "a sample refers to entry 99 of attribute_table, which has 6"),
        (cpu().m(2, sample(1, 1).n(3, 9)), "a sample refers to entry 9 of link_table, which has 2"),
        (
            cpu().m(2, sample(1, 1)).m(1, msg().n(1, 77)),
            "a type of values refers to entry 77 of string_table, which has 13",
        ),
    ];
    for (bad, why) in bad {
        let export = read(&request(&[good(), good().m(2, sample(2, 2)), bad, good()]), &BOUNDS).unwrap();
        let failed: Vec<_> = export.profiles.iter().filter_map(|made| made.as_ref().err()).collect();
        assert_eq!(failed.iter().map(ToString::to_string).collect::<Vec<_>>(), [why]);
        let last = export.profiles[3].as_ref().unwrap();
        assert_eq!(Some(last), export.profiles[0].as_ref().ok(), "nothing of the bad one is left");
    }
}

#[test]
fn requests_that_cannot_be_read_say_why() {
    for (bytes, expected) in [
        (vec![], "request has no resource_profiles"),
        (msg().m(2, dictionary()).0, "request has no resource_profiles"),
        (
            msg().m(1, resource(&[], &[])).0,
            "request has no dictionary; layouts before OTLP 1.8 have none and are not read: update the sender",
        ),
        (vec![0xff, 0xff], "request is cut off at byte 2, within the request"),
        (
            request(&vec![cpu(); 101]),
            "101 profiles in a request, the limit is 100 (distributor.max_profiles_per_request): send smaller batches",
        ),
    ] {
        assert_eq!(read(&bytes, &BOUNDS).unwrap_err().to_string(), expected);
    }
}

#[test]
fn what_was_recorded_stands_in_for_samples_and_else_is_counted() {
    let payload = || cpu().b(9, "pprof").b(10, "bytes");
    let bytes = request(&[payload(), payload().m(2, sample(1, 1)), cpu()]);
    let export = read(&bytes, &BOUNDS).unwrap();
    let contents: Vec<_> = export.profiles.iter().map(|made| &made.as_ref().unwrap()[0].content).collect();
    let Content::Payload { format, bytes: at } = contents[0] else { panic!("{contents:?}") };
    assert_eq!((format.as_str(), &bytes[at.clone()]), ("pprof", &b"bytes"[..]));
    assert!(matches!(contents[1], Content::Pprof(_)));
    assert_eq!(contents[2], &Content::Nothing);
    assert_eq!(export.oddities.ignored_payloads, 1);
}

#[test]
fn attributes_of_a_profile_are_labels_and_comments() {
    let dictionary = dictionary().b(5, "pprof.profile.comment");
    let comment =
        msg().n(1, TEXTS.len() as u64 + 1).m(2, msg().m(5, msg().m(1, text("one")).m(1, text("two"))));
    let profile = cpu().m(2, sample(1, 1)).p(11, &[1, 6, 44]);
    let bytes = msg().m(1, resource(&[], &[profile])).m(2, dictionary.m(6, comment)).0;
    let export = read(&bytes, &BOUNDS).unwrap();
    let made = &export.profiles[0].as_ref().unwrap()[0];
    assert_eq!(label(made, "thread.name"), Some("t1"));
    assert_eq!(decoded(made).header.comments, ["one", "two"]);
    assert_eq!(export.oddities.dangling_attributes, 1);
}

#[test]
fn what_comes_of_a_request_is_bounded_however_often_a_name_is_used() {
    let long = "x".repeat(100_000);
    let dictionary = dictionary()
        .b(5, &long)
        .m(3, msg().n(1, TEXTS.len() as u64 + 1))
        .m(2, msg().m(3, msg().n(1, 3)))
        .m(7, msg().p(1, &[4]));
    let profiles = vec![cpu().m(2, sample(4, 1)); 100];
    let bytes = msg().m(1, resource(&[], &profiles)).m(2, dictionary).0;
    let export = read(&bytes, &BOUNDS).unwrap();
    let stored = export.profiles.iter().filter(|made| made.is_ok()).count();
    assert_eq!(stored, BOUNDS.total / 100_100);
    let why = export.profiles[99].as_ref().unwrap_err().to_string();
    assert!(
        why.ends_with("the limit is 4194304 (limits.ingestion_body_limit): send smaller batches"),
        "{why}"
    );
    let small = Bounds { profile: 50_000, ..BOUNDS };
    let why = read(&bytes, &small).unwrap().profiles[0].as_ref().unwrap_err().to_string();
    assert!(
        why.ends_with("the limit is 50000 (limits.max_profile_size_bytes): profile for a shorter time"),
        "{why}"
    );
}

#[test]
fn lists_in_lists_end_somewhere() {
    let deep = (0..20).fold(text("x"), |inner, _| msg().m(5, msg().m(1, inner)));
    let wide = msg().m(5, (0..20_000).fold(msg(), |list, _| list.m(1, text("xxx"))));
    for (value, why) in
        [(deep, "within each other, the limit is 16"), (wide, "the limit is 65536: send less in it")]
    {
        let dictionary = dictionary().m(6, attribute("thread.name", value));
        let profile = cpu().m(2, msg().n(1, 2).p(2, &[6]).p(4, &[1]));
        let refused =
            read_one(&msg().m(1, resource(&[], &[profile])).m(2, dictionary).0).unwrap_err().to_string();
        assert!(refused.ends_with(why), "{refused}");
    }
}

#[test]
fn a_long_name_that_much_refers_to_is_written_once_or_not_at_all() {
    let long = "x".repeat(200_000);
    let at = TEXTS.len() as u64 + 1;
    let named = msg().n(8, at);
    let mut dictionary = dictionary().b(5, &long);
    for number in 0..100 {
        let build = attribute("process.executable.build_id.gnu", named.clone());
        dictionary = dictionary
            .m(6, msg().n(1, at).m(2, msg().n(3, number)))
            .m(6, build)
            .m(1, msg().n(1, number).p(5, &[7 + 2 * number]))
            .m(2, msg().n(1, 2 + number).n(2, number + 1));
    }
    let keys: Vec<u64> = (0..100).map(|number| 6 + 2 * number).collect();
    let locations: Vec<u64> = (4..104).collect();
    let dictionary = dictionary.m(7, msg().p(1, &locations));
    let with = |profile: Msg, resource: &[(&str, Msg)]| {
        read_one(&msg().m(1, super::tests::resource(resource, &[profile])).m(2, dictionary.clone()).0)
    };
    let sized = |made: Result<Vec<Made>, OtlpError>| match &made.unwrap()[0].content {
        Content::Pprof(bytes) => bytes.len(),
        content => panic!("{content:?}"),
    };
    assert!(sized(with(cpu().m(2, msg().n(1, 2).p(2, &keys).p(4, &[1])), &[])) < 210_000);
    let builds = with(cpu().m(2, sample(4, 1)), &[]).unwrap_err();
    assert!(matches!(builds, OtlpError::OverLimit { what: error::BYTES, .. }), "{builds}");
    let label = with(cpu().m(2, sample(1, 1)), &[("a", named)]).unwrap_err().to_string();
    assert_eq!(label, "200000 bytes in the text of an attribute, the limit is 65536: send less in it");
}

/// The request in `json` reads as one in protobuf does.
#[test]
fn json_is_the_same_request() {
    let json = r#"{
        "resource_profiles": [{
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}], "unknown": [1, {}]},
            "scopeProfiles": [{"profiles": [{
                "sampleType": {"typeStrindex": 3, "unit_strindex": 4},
                "samples": [
                    {"stackIndex": 1, "attributeIndices": [1], "linkIndex": 1, "values": ["3"], "timestampsUnixNano": ["5001"]},
                    {"stackIndex": 2, "values": [2, 0e0], "timestampsUnixNano": [5001, 5002]}
                ],
                "timeUnixNano": "5000", "durationNano": 100, "period": 1e3,
                "periodType": {"typeStrindex": 1, "unitStrindex": 2},
                "profileId": "07070707070707070707070707070707", "originalPayload": null
            }]}]
        }],
        "dictionary": DICTIONARY
    }"#;
    let dictionary = serde_json::json!({
        "stringTable": std::iter::once("").chain(TEXTS).collect::<Vec<_>>(),
        "functionTable": [{}, {"nameStrindex": 5, "systemNameStrindex": 5, "filenameStrindex": 7},
            {"nameStrindex": 6, "systemNameStrindex": 6, "filenameStrindex": 7}],
        "locationTable": [{}, {"lines": [{"functionIndex": 1, "line": "10"}]}, {"lines": [{"functionIndex": 2, "line": 20}]}],
        "mappingTable": [{}],
        "linkTable": [{}, {"traceId": "aa".repeat(16), "spanId": "u7u7u7u7u7s="}],
        "attributeTable": [{}, {"keyStrindex": 8, "value": {"stringValue": "t1"}}],
        "stackTable": [{}, {"locationIndices": [2, 1]}, {"location_indices": [1]}],
    });
    let json = json.replace("DICTIONARY", &dictionary.to_string());
    let bytes = from_json(json.as_bytes(), 1 << 20).unwrap();
    let first = msg().n(1, 1).p(2, &[1]).n(3, 1).p(4, &[3]).times(5, &[5001]);
    let second = msg().n(1, 2).p(4, &[2, 0]).times(5, &[5001, 5002]);
    let expected = read_one(&request(&[cpu().m(2, first).m(2, second).b(7, [7; 16])])).unwrap();
    let made = read_one(&bytes).unwrap();
    assert_eq!((&made[0].labels, &made[0].id), (&expected[0].labels, &expected[0].id));
    assert_eq!(samples_of(&decoded(&made[0])), samples_of(&decoded(&expected[0])));
    assert!(matches!(from_json(json.as_bytes(), 100), Err(JsonRefused::TooLarge { limit: 100 })));
}

#[test]
fn json_that_is_none_says_where() {
    for (json, why) in [
        ("{", "EOF while parsing an object"),
        ("[]", "invalid type: sequence, expected an object"),
        ("\"x\"", "invalid type: a text, expected an object"),
        ("{} x", "trailing characters"),
        (r#"{"resourceProfiles": {}}"#, "invalid type: map, expected a list in resourceProfiles"),
        (r#"{"dictionary": {"stringTable": [3]}}"#, "3 cannot be the value of stringTable"),
        (
            r#"{"dictionary": {"stackTable": [{"locationIndices": ["x"]}]}}"#,
            "locationIndices is no whole number",
        ),
        (r#"{"dictionary": {"linkTable": [{"traceId": "?"}]}}"#, "traceId is no id"),
    ] {
        let refused = from_json(json.as_bytes(), 1 << 20).unwrap_err().to_string();
        let expected = format!("the request cannot be read: {why} at line 1 column ");
        assert!(refused.starts_with(&expected), "{refused}");
    }
}

/// What is made is never more than may be, and is pprof.
fn sound(export: &Export) {
    let mut total = 0;
    for made in export.profiles.iter().flatten().flatten() {
        let Content::Pprof(bytes) = &made.content else { continue };
        assert!(bytes.len() <= BOUNDS.profile + 1000);
        total += bytes.len();
        match pprof::decode(bytes, &Limits::default()) {
            Ok((_, dropped)) => assert_eq!(dropped.samples, 0),
            Err(error) => assert!(matches!(error, pprof::DecodeError::NotUtf8 { .. }), "{error}"),
        }
    }
    assert!(total <= BOUNDS.total + BOUNDS.profiles * 1000);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(export) = read(&bytes, &BOUNDS) {
            sound(&export);
        }
    }

    #[test]
    fn damaged_requests_are_read_or_refused(seed: u64, places in prop::collection::vec((any::<usize>(), any::<u8>()), 1..8)) {
        let mut bytes = encode(&arbitrary(seed), &[("service.name", "shop")]);
        for (place, byte) in places {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        if let Ok(export) = read(&bytes, &BOUNDS) {
            sound(&export);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in r#"(\{|\}|\[|\]|,|:|"(resourceProfiles|scopeProfiles|profiles|samples|values|dictionary|stringTable|x)"|[0-9]{1,3}|null| ){0,40}"#) {
        if let Ok(bytes) = from_json(text.as_bytes(), 1 << 16) {
            prop_assert!(bytes.len() <= (1 << 16) + 16);
            let _ = read(&bytes, &BOUNDS);
        }
    }
}
