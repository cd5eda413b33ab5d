//! What each format becomes.

use athanor_chassis::{ByteSize, Timestamp};
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::formats::jfr::{CONSTANTS_LIMIT_NAME, FRAMES_LIMIT_NAME, NAMES_LIMIT_NAME};
use athanor_profile::formats::pprof::{DecodeLimits as All, decode, encode, gzip};
use athanor_profile::{Profile, ValueType, formats::folded};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn converted(query: &str, body: &[u8], limits: &TenantLimits) -> Result<Vec<ConvertedProfile>, IngestError> {
    let request = IngestRequest::parse(query, None, Timestamp::UNIX_EPOCH).unwrap();
    convert_body(&request, Bytes::copy_from_slice(body), &ConvertLimits::from_limits(limits))
        .map(|converted| converted.made)
}

fn read(made: &ConvertedProfile) -> Profile {
    decode(made.pprof.as_ref().unwrap().as_ref().unwrap(), &All::default()).unwrap().0
}

/// The name, the service and the label of a profile of a document, its type and period type, and its stacks.
fn seen(made: &ConvertedProfile) -> String {
    let label = |wanted: &str| {
        let found = made.labels.iter().find(|(name, _)| name == wanted);
        found.map_or("-", |(_, value)| value.as_str())
    };
    let profile = read(made);
    let types: Vec<&str> = profile
        .header
        .types
        .iter()
        .chain(&profile.header.period_type)
        .flat_map(|value| [value.kind.as_str(), value.unit.as_str()])
        .collect();
    let stacks = folded::write(&Tree::from_profile(&profile, 0)).trim().replace('\n', ", ");
    format!(
        "{} {} {} {}: {stacks}",
        label("__name__"),
        label("service_name"),
        label("profile_name"),
        types.join(":")
    )
}

fn speedscope_of(profiles: &[(&str, &str)]) -> Vec<u8> {
    let profile = |(name, unit): &(&str, &str)| {
        json!({ "type": "sampled", "name": name, "unit": unit, "startValue": 0, "endValue": 3,
            "samples": [[0], [0, 1]], "weights": [1, 2.5] })
    };
    let profiles: Vec<_> = profiles.iter().map(profile).collect();
    json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": { "frames": [{ "name": "main" }, { "name": "run" }] },
        "profiles": profiles,
    })
    .to_string()
    .into_bytes()
}

/// As samplers write them that look at all threads a hundred times a second: much of little that differs.
#[test]
fn a_long_document_of_equal_samples_takes_no_more_than_it_is_long() {
    let frames: Vec<String> = (0..10).map(|frame| format!(r#"{{"name":"f{frame}"}}"#)).collect();
    let samples: Vec<String> = (0..20_000)
        .map(|sample| format!("[{}]", ["0,1,2,3,4,5,6,7,8,9", "0,1,2,3,4,9,8,7,6,5"][sample % 2]))
        .collect();
    let document = format!(
        r#"{{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{{"frames":[{}]}},"profiles":[{{"type":"sampled","name":"p","unit":"seconds","startValue":0,"endValue":1,"samples":[{}],"weights":[{}]}}]}}"#,
        frames.join(","),
        samples.join(","),
        ["0.01"; 20_000].join(",")
    );
    let of = |kib| TenantLimits {
        max_profile_size_bytes: ByteSize::kib(kib),
        max_profile_stacktrace_samples: 20_000,
        ..TenantLimits::default()
    };
    let made = converted("name=app&format=speedscope", document.as_bytes(), &of(16)).unwrap();
    assert_eq!(read(&made[0]).total(0), 200_000_000_000);
}

#[test]
fn labels_of_all_profiles_of_a_document_are_bounded() {
    let profiles: Vec<(String, &str)> = (0..600).map(|number| (number.to_string(), "none")).collect();
    let profiles: Vec<(&str, &str)> = profiles.iter().map(|(name, unit)| (&**name, *unit)).collect();
    let query = format!("format=speedscope&name=app%7Ba%3D{}%7D", "v".repeat(40_000));
    let made = converted(&query, &speedscope_of(&profiles), &TenantLimits::default()).unwrap();
    let refused: Vec<&IngestError> = made.iter().filter_map(|made| made.pprof.as_ref().err()).collect();
    assert_eq!(made.len(), 600);
    assert!((180..190).contains(&refused.len()), "{}", refused.len());
    let said = refused[0].status.message.as_str();
    assert!(
        said.contains("bytes of labels, the limit is 16777216 (or limits.max_profile_size_bytes"),
        "{said}"
    );
}

#[test]
fn one_profile_of_speedscope_is_what_the_name_says_in_its_own_unit() {
    for (name, unit, expected) in [
        (
            "app",
            "seconds",
            "process_cpu app p cpu:nanoseconds:cpu:nanoseconds: main 1000000000, main;run 2500000000",
        ),
        ("app.wall", "nanoseconds", "wall app p wall:nanoseconds:cpu:nanoseconds: main 1, main;run 3"),
        (
            "app",
            "none",
            "process_cpu app p cpu:nanoseconds:cpu:nanoseconds: main 10000000, main;run 30000000",
        ),
        ("app", "bytes", "process_cpu app p samples:count: main 1, main;run 3"),
        (
            "app&sampleRate=0",
            "seconds",
            "process_cpu app p cpu:nanoseconds:cpu:nanoseconds: main 1000000000, main;run 2500000000",
        ),
        ("app&sampleRate=0", "none", "process_cpu app p samples:count: main 1, main;run 3"),
        ("app.alloc_space", "bytes", "memory app p alloc_space:bytes: main 1, main;run 3"),
        ("app.mutex_duration", "microseconds", "mutex app p delay:nanoseconds: main 1000, main;run 2500"),
    ] {
        let body = speedscope_of(&[("p", unit)]);
        for format in ["speedscope", ""] {
            let made =
                converted(&format!("name={name}&format={format}"), &body, &TenantLimits::default()).unwrap();
            assert_eq!(made.iter().map(seen).collect::<Vec<_>>(), [expected], "{format}");
        }
    }
}

#[test]
fn several_profiles_of_speedscope_are_what_their_units_say() {
    let body = speedscope_of(&[("a", "milliseconds"), ("b", "bytes"), ("c", "none"), ("a", "milliseconds")]);
    let made = converted("name=app&format=speedscope", &body, &TenantLimits::default()).unwrap();
    assert_eq!(
        made.iter().map(seen).collect::<Vec<_>>(),
        [
            "wall app a wall:nanoseconds:cpu:nanoseconds: main 2000000, main;run 5000000",
            "memory app b samples:bytes: main 1, main;run 3",
            "process_cpu app c cpu:nanoseconds:cpu:nanoseconds: main 10000000, main;run 30000000",
        ]
    );
    let none =
        converted("name=app&format=speedscope", &speedscope_of(&[]), &TenantLimits::default()).unwrap();
    assert!(none.len() == 1 && none[0].pprof == Ok(None));
}

/// Each profile names its frames anew.
#[test]
fn a_document_does_not_become_far_more_than_it_was() {
    let names: Vec<String> = (0..100).map(|number| format!("p{number}")).collect();
    let profiles: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "seconds")).collect();
    let body = String::from_utf8(speedscope_of(&profiles))
        .unwrap()
        .replace("\"run\"", &format!("{:?}", "x".repeat(900)));
    let limits =
        |bytes| TenantLimits { max_profile_size_bytes: ByteSize::bytes(bytes), ..TenantLimits::default() };
    let made = |bytes| converted("name=app&format=speedscope", body.as_bytes(), &limits(bytes)).unwrap();
    let size = |made: &ConvertedProfile| made.pprof.as_ref().map_or(0, |pprof| pprof.as_ref().unwrap().len());
    let all = made(1 << 20);
    assert!(all.iter().map(size).sum::<usize>() > 3 * body.len(), "{}", body.len());
    let made = made(1 << 15);
    let stored: usize = made.iter().map(size).sum();
    assert!(stored > body.len() && stored <= body.len() + (1 << 15), "{stored} of {}", body.len());
    let first = made.iter().position(|made| made.pprof.is_err()).unwrap();
    assert_eq!(made.iter().skip(first).filter(|made| made.pprof.is_err()).count(), 100 - first);
    let refused = made[first].pprof.as_ref().unwrap_err();
    assert_eq!((refused.http, refused.status.reason), (400, Some("profile_size_limit")), "{refused}");
    assert!(refused.to_string().contains("(limits.max_profile_size_bytes)"), "{refused}");
}

#[test]
fn documents_of_tools_are_told_by_how_they_begin() {
    let graph = json!({
        "version": 1,
        "flamebearer": { "names": ["total", "main"], "levels": [[0, 3, 0, 0], [0, 3, 3, 1]], "numTicks": 3 },
        "metadata": { "units": "samples", "sampleRate": 1_000_000_000, "name": "cpu", "format": "single" },
    });
    let perf = "main 12 [000] 1.5: 7 cycles:\n\tab run+0x1 (/bin/main)\n\n";
    for (format, body, expected) in [
        ("flamebearer", graph.to_string(), "process_cpu app.x - cpu:nanoseconds: main 3"),
        ("perf_script", perf.to_owned(), "process_cpu app.x - samples:count:cycles:count: main;run 1"),
    ] {
        for format in ["", format] {
            let query = format!("name=app.x&format={format}");
            let made = converted(&query, body.as_bytes(), &TenantLimits::default()).unwrap();
            let seen = seen(&made[0]);
            assert!(seen.starts_with(expected.split(": ").next().unwrap()), "{seen}, not {expected}");
            assert!(seen.ends_with(expected.rsplit(": ").next().unwrap()), "{seen}, not {expected}");
        }
        let refused = converted("name=app&format=flamebearer", b"{}", &TenantLimits::default()).unwrap_err();
        assert_eq!((refused.http, refused.code), (422, "unknown"));
    }
}

#[test]
fn too_much_in_a_document_names_its_setting() {
    let limits = TenantLimits { max_profile_size_bytes: ByteSize::bytes(1), ..TenantLimits::default() };
    let mut perf = String::new();
    for frame in 0..20_000 {
        perf += &format!("main 12 [000] 1.5: 7 cycles:\n\tab f{frame}+0x1 (/bin/main)\n\n");
    }
    let refused = converted("name=app", perf.as_bytes(), &limits).unwrap_err();
    assert_eq!((refused.http, refused.status.reason), (422, Some("profile_size_limit")));
    let said = refused.to_string();
    assert!(
        said.ends_with(
            " different frames, the limit is 16384 (one for 96 bytes of limits.max_profile_size_bytes): profile for a \
             shorter time"
        ),
        "{said}"
    );
}

#[test]
fn what_begins_as_another_format_is_not_taken_for_text() {
    for (body, expected) in [
        (&b"FLR\0\0\x02\0\x01"[..], "the body starts like a flight recording; send format=jfr"),
        (b"\x1f\x8b\x08\0", "the body starts like gzip or zstd; send format=pprof, or format=jfr"),
        (b"\x28\xb5\x2f\xfd", "the body starts like gzip or zstd; send format=pprof, or format=jfr"),
    ] {
        let refused = converted("name=app", body, &TenantLimits::default()).unwrap_err();
        assert!(refused.http == 422 && refused.to_string().starts_with(expected), "{refused}");
    }
}

/// A recording is told what of it is too much, and which setting that follows.
#[test]
fn limits_of_recordings_name_their_settings() {
    let over = |what| JfrError::OverLimit { what, seen: 2, limit: 1 };
    for (error, http, reason, said) in [
        (over("bytes"), 422, "profile_size_limit", "(limits.ingestion_body_limit)"),
        (over(CONSTANTS_LIMIT_NAME), 422, "profile_size_limit", "which follows limits.ingestion_body_limit"),
        (over(FRAMES_LIMIT_NAME), 422, "profile_size_limit", "which follows limits.ingestion_body_limit"),
        (over(NAMES_LIMIT_NAME), 400, "profile_size_limit", "(nine times limits.max_profile_size_bytes)"),
        (over("types"), 422, "profile_size_limit", "which no setting changes"),
        (
            JfrError::Profile { kind: "cpu", what: "bytes", seen: 2, limit: 1 },
            400,
            "profile_size_limit",
            "(limits.max_profile_size_bytes)",
        ),
        (
            JfrError::LabelsOverLimit { what: "bytes", seen: 2, limit: 1 },
            422,
            "sample_labels_limit",
            "which no setting changes: set fewer and shorter labels",
        ),
    ] {
        let refused = conversion_refusal(error.into());
        assert_eq!((refused.http, refused.status.reason), (http, Some(reason)), "{refused}");
        assert!(refused.to_string().contains(said), "{refused}");
    }
}

#[test]
fn too_many_stacks_are_refused_with_the_limit_and_the_way_out() {
    let limits = TenantLimits { max_profile_stacktrace_samples: 2, ..TenantLimits::default() };
    let trie = [&[0u8, 0, 3][..], &[1, b'a', 1, 0], &[1, b'b', 1, 0], &[1, b'c', 1, 0]].concat();
    for (format, body) in
        [("groups", &b"a 1\nb 1\nc 1"[..]), ("lines", b"a\nb\nc"), ("trie", &trie), ("tree", &trie)]
    {
        let refused = converted(&format!("name=app&format={format}"), body, &limits).unwrap_err();
        assert_eq!((refused.http, refused.status.reason), (400, Some("samples_limit")), "{format}");
        let said = refused.to_string();
        assert!(
            said.ends_with(
                "3 stacks, the limit is 2 (limits.max_profile_stacktrace_samples): profile for a shorter time"
            ),
            "{said}"
        );
    }
}

proptest! {
    #[test]
    fn any_body_is_taken_or_refused(body in prop::collection::vec(any::<u8>(), 0..80), which in 0usize..7) {
        let format = ["", "lines", "trie", "tree", "speedscope", "flamebearer", "perf"][which];
        if let Ok(made) = converted(&format!("name=app&format={format}"), &body, &TenantLimits::default()) {
            for made in made.iter().filter(|made| matches!(made.pprof, Ok(Some(_)))) {
                let _ = read(made);
            }
        }
    }
}

#[test]
fn pprof_of_1970_without_from_states_no_time_and_keeps_its_identity() {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    let stack = profile.dictionary.intern_named_stack(["main"].into_iter());
    profile.samples.push(stack, 0, &[7]);
    // Microseconds in the field of nanoseconds.
    let micros = 1_772_618_460_000_000;
    for (time, query, stated, client_id) in [
        (micros, "", 0, Some("stated time 1772618460000000")),
        (micros, "&from=1772618460", micros, None),
        (micros * 1_000, "", micros * 1_000, None),
        (0, "", 0, None),
    ] {
        profile.header.time_nanos = time;
        for sent in [encode(&profile), gzip(&encode(&profile))] {
            let made =
                converted(&format!("name=app&format=pprof{query}"), &sent, &TenantLimits::default()).unwrap();
            let read = read(&made[0]);
            assert_eq!((read.header.time_nanos, read.total(0)), (stated, 7), "{time} {query}");
            assert_eq!(made[0].client_id.as_deref(), client_id, "{time} {query}");
        }
    }
}
