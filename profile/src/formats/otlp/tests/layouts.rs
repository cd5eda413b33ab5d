//! How requests are laid out.

use super::*;

#[test]
fn both_layouts_say_the_same() {
    let new = msg().n(1, 1).p(2, &[1]).n(3, 1).p(4, &[3]).times(5, &[5001]);
    let old = msg().n(1, 1).p(2, &[3]).p(3, &[1]).n(4, 1).times(5, &[5001]);
    let read = |sample: Msg| read(&request(&[cpu().m(2, sample)]), &BOUNDS).unwrap();
    let (new, old) = (read(new), read(old));
    assert_eq!(new.profiles, old.profiles);
    assert_eq!(
        (new.violations.get(OtlpViolation::OldLayout), old.violations.get(OtlpViolation::OldLayout)),
        (0, 1)
    );
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
    assert_eq!(export.violations.get(OtlpViolation::MissingZeroEntry), 6);
}

#[test]
fn requests_that_cannot_be_read_say_why() {
    for (bytes, expected) in [
        (vec![], "request has no resource_profiles"),
        (msg().m(2, dictionary()).0, "request has no resource_profiles"),
        (
            msg().m(1, resource(&[], &[])).0,
            "request has no dictionary, layouts before OTLP 1.8 are not supported: update the sender",
        ),
        (
            msg().m(1, resource(&[], &[cpu().m(2, sample(1, 1))])).0,
            "request has no dictionary, layouts before OTLP 1.8 are not supported: update the sender",
        ),
        (vec![0xff, 0xff], "request is truncated at byte 2, within the request"),
        (
            request(&vec![cpu(); 101]),
            "101 profiles in a request, the limit is 100 (distributor.max_profiles_per_request): send smaller batches",
        ),
    ] {
        assert_eq!(read(&bytes, &BOUNDS).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_profile_as_in_1_8_is_read_as_such() {
    let profile = || cpu().m(2, msg().n(1, 2).p(2, &[3]).p(3, &[1]));
    let told = |profile: Msg| {
        let bytes = request(&[profile]);
        let made = read_one(&bytes).unwrap().remove(0);
        let profile = decoded(&made);
        (made.id.clone(), label(&made, "thread.name").map(str::to_owned), profile.header.comments)
    };
    let id = Some("07".repeat(16));
    let comments = vec!["main".to_owned(), "work".to_owned()];
    let of_1_8 = profile().p(7, &[index("main"), index("work")]).b(8, [7; 16]);
    assert_eq!(told(of_1_8.clone()), (id.clone(), None, comments.clone()));
    assert_eq!(
        told(of_1_8.b(10, "pprof").b(11, [0xff; 9]).p(12, &[2])),
        (id, Some("t2".to_owned()), comments)
    );
    let counted = profile().n(9, 3).p(12, &[1]);
    assert_eq!(
        read(&request(std::slice::from_ref(&counted)), &BOUNDS)
            .unwrap()
            .violations
            .get(OtlpViolation::DroppedAttribute),
        3
    );
    assert_eq!(told(counted), (None, Some("t1".to_owned()), vec![]));
}

#[test]
fn a_field_that_nobody_knows_yet_is_passed_over() {
    let of_now = cpu().m(2, sample(1, 3)).b(7, [7; 16]).n(8, 2).p(11, &[1]);
    for later in [of_now.clone(), of_now.clone().n(12, 5), of_now.clone().b(12, "x"), of_now.b(13, "x")] {
        let bytes = request(std::slice::from_ref(&later));
        let made = read_one(&bytes).unwrap().remove(0);
        assert_eq!((made.id.as_deref(), label(&made, "thread.name")), (Some(&*"07".repeat(16)), Some("t1")));
        assert!(decoded(&made).header.comments.is_empty());
    }
}

#[test]
fn samples_that_tell_no_layout_may_be_of_1_8() {
    let of_1_8 = cpu().m(2, msg().n(1, 1).times(5, &[5001])).b(8, [7; 16]).p(12, &[1]);
    let made = read_one(&request(&[of_1_8])).unwrap().remove(0);
    assert_eq!((made.id.as_deref(), label(&made, "thread.name")), (Some(&*"07".repeat(16)), Some("t1")));
}

#[test]
fn layouts_before_1_8_are_refused() {
    let with = |profile: Msg| read_one(&request(&[profile]));
    let sample = || msg().n(1, 0).n(2, 2).p(3, &[7]);
    let whole = msg()
        .m(1, value_type("off_cpu", "nanoseconds"))
        .m(2, sample())
        .p(3, &[1, 2])
        .n(4, 5_000)
        .n(5, 100)
        .m(6, value_type("cpu", "nanoseconds"))
        .n(7, 1000);
    assert_eq!(with(whole), Err(OtlpError::TooOld));
    let off = || msg().m(1, value_type("off_cpu", "nanoseconds")).m(2, sample());
    for sign in [off().p(3, &[1, 2]), off().n(5, 100), off().m(6, value_type("cpu", "count")), off().n(7, 1)]
    {
        assert_eq!(with(sign), Err(OtlpError::TooOld));
    }
}

#[test]
fn an_attribute_that_nobody_names_may_be_unreadable() {
    let first = msg().m(1, resource(&[], &[cpu().m(2, sample(1, 3))])).m(2, msg().b(6, [0x08]));
    let export = read(&first.m(2, dictionary()).0, &BOUNDS).unwrap();
    let made = export.profiles[0].as_ref().unwrap();
    assert_eq!(samples_of(&decoded(&made[0])), of(&[("main:10;work:20", 3000)]));
    assert_eq!(export.violations.get(OtlpViolation::MissingZeroEntry), 1);
}
