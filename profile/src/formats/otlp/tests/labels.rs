//! Labels of series and of samples.

use super::*;

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
    assert_eq!(export.violations.get(OtlpViolation::UnusableAttribute), 1);
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
    assert_eq!(export.violations.get(OtlpViolation::DanglingAttribute), 1);
}

#[test]
fn attributes_of_code_are_counted_where_pprof_has_no_place_for_them() {
    let location = |attributes: &[u64]| msg().m(3, msg().n(1, 1).n(2, 7)).p(4, attributes);
    let mapping = msg().n(1, 1).n(4, index("lib.so")).p(5, &[1, 5]);
    let dictionary = dictionary()
        .m(1, mapping)
        .m(2, location(&[1, 2, 99]))
        .m(2, location(&[]).n(1, 2))
        .m(7, msg().p(1, &[4, 5]));
    let bytes = msg().m(1, resource(&[], &[cpu().m(2, sample(4, 1))])).m(2, dictionary).0;
    let violations = read(&bytes, &BOUNDS).unwrap().violations;
    assert_eq!(
        (violations.get(OtlpViolation::IgnoredAttribute), violations.get(OtlpViolation::DanglingAttribute)),
        (3, 1)
    );
}
