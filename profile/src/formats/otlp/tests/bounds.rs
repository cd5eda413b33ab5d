//! What is too much.

use super::*;

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
    assert!(why.contains("the limit is 4194304 (64 times the request and limits.max_profile_size"), "{why}");
    let small = OtlpLimits { profile: 50_000, ..BOUNDS };
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
    for (value, why) in [
        (deep, "nested lists and maps of an attribute, the limit is 16"),
        (wide, "the limit is 65536: shorten the text"),
    ] {
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
        read_one(&msg().m(1, super::resource(resource, &[profile])).m(2, dictionary.clone()).0)
    };
    let sized = |made: Result<Vec<OtlpProfile>, OtlpError>| match &made.unwrap()[0].content {
        OtlpProfileContent::Pprof(bytes) => bytes.len(),
        content => panic!("{content:?}"),
    };
    assert!(sized(with(cpu().m(2, msg().n(1, 2).p(2, &keys).p(4, &[1])), &[])) < 210_000);
    let builds = with(cpu().m(2, sample(4, 1)), &[]).unwrap_err();
    assert!(matches!(builds, OtlpError::OverLimit { what: error::PROFILE_BYTES_LIMIT_NAME, .. }), "{builds}");
    let label = with(cpu().m(2, sample(1, 1)), &[("a", named)]).unwrap_err().to_string();
    assert_eq!(label, "200000 bytes in the text of an attribute, the limit is 65536: shorten the text");
}

#[test]
fn a_small_request_becomes_no_large_one() {
    let dictionary = dictionary()
        .b(5, "x".repeat(20_000))
        .m(3, msg().n(1, TEXTS.len() as u64 + 1))
        .m(2, msg().m(3, msg().n(1, 3)))
        .m(7, msg().p(1, &[4]));
    let bytes = msg().m(1, resource(&[], &vec![cpu().m(2, sample(4, 1)); 100])).m(2, dictionary).0;
    let export = read(&bytes, &OtlpLimits { profile: 30_000, ..BOUNDS }).unwrap();
    let refused: Vec<_> = export.profiles.iter().filter_map(|made| made.as_ref().err()).collect();
    let most = 64 * bytes.len() + 30_000;
    assert!(refused.len() > 5 && most < BOUNDS.total / 2);
    for error in refused {
        assert!(
            matches!(error, OtlpError::OverLimit { what: error::REQUEST_BYTES_LIMIT_NAME, limit, .. } if *limit == most),
            "{error}"
        );
    }
}

#[test]
fn labels_of_a_resource_count_with_each_scope_that_has_them() {
    let at = TEXTS.len() as u64 + 1;
    let attributes: Vec<_> = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
        .into_iter()
        .map(|key| (key, msg().n(8, at)))
        .collect();
    // Nothing comes of these but an error each.
    let scopes = (0..100)
        .fold(resource(&attributes, &[]), |resource, _| resource.m(2, msg().m(2, cpu().m(2, sample(99, 1)))));
    let bytes = msg().m(1, scopes).m(2, dictionary().b(5, "x".repeat(60_000))).0;
    let export = read(&bytes, &BOUNDS).unwrap();
    let last = export.profiles[99].as_ref().unwrap_err();
    assert!(matches!(last, OtlpError::OverLimit { what: error::REQUEST_BYTES_LIMIT_NAME, .. }), "{last}");
}
