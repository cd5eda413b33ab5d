//! What samples come to.

use super::*;

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
fn times_go_with_their_sample_and_count_where_there_are_no_values() {
    let profile = cpu().m(2, msg().n(1, 1).times(5, &[5001, 5003, 5003, 9000]));
    let export = read(&request(&[profile]), &BOUNDS).unwrap();
    let made = &export.profiles[0].as_ref().unwrap()[0];
    assert_eq!(samples_of(&decoded(made)), of(&[("main:10;work:20", 4000)]));
    assert_eq!(
        (
            export.violations.get(OtlpViolation::UnorderedTime),
            export.violations.get(OtlpViolation::TimeOutOfRange)
        ),
        (1, 1)
    );
    let OtlpProfileContent::Pprof(bytes) = &made.content else { panic!("{made:?}") };
    let extension = msg().times(1000, &[5001, 5003, 5003, 9000]).0;
    assert!(bytes.windows(extension.len()).any(|window| window == extension));
    assert_eq!(decoded(made).samples.moments.row_timestamps(0), [5001, 5003, 5003, 9000]);
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
    let most = i64::MAX as u64;
    assert_eq!(counted(off(), msg().p(4, &[most, most])), Err(OtlpError::SumOverflow { sample: 1 }));
    assert_eq!(
        counted(msg().m(1, value_type("samples", "count")), msg().p(4, &[1])),
        Err(OtlpError::NoMetric)
    );
}

/// pprof has a value of each sample, where protobuf would leave out what is 0.
#[test]
fn samples_of_nothing_hurt_no_other() {
    let off = msg().m(1, value_type("off_cpu", "nanoseconds"));
    let nothing = [
        cpu().m(2, sample(2, 0)),
        cpu().m(2, msg().n(1, 2).p(4, &[0, 0]).times(5, &[5001, 5002])),
        off.m(2, msg().n(1, 2).p(4, &[3000, -3000i64 as u64])),
    ];
    for profile in nothing {
        let profile = profile.m(2, sample(1, 3));
        let made = read_one(&request(&[profile])).unwrap();
        let samples = samples_of(&decoded(&made[0]));
        assert!(samples["main:10;work:20"] > 0, "{samples:?}");
        assert_eq!(samples.get("main:10").copied().unwrap_or_default(), 0);
    }
}

#[test]
fn of_what_a_heap_held_again_and_again_the_last_counts() {
    let dictionary = dictionary().b(5, "memory.heap").b(5, "memory.heap.bytes").b(5, "bytes");
    let at = TEXTS.len() as u64 + 1;
    let heap = |sample: Msg| {
        let kinds = msg().m(1, msg().n(1, at + 1).n(2, at + 2)).m(5, msg().n(1, at).n(2, index("count")));
        let profile = kinds.f(3, 5000).n(4, 100).m(2, sample);
        let export =
            read(&msg().m(1, resource(&[], &[profile])).m(2, dictionary.clone()).0, &BOUNDS).unwrap();
        let made = export.profiles[0].as_ref().unwrap();
        (samples_of(&decoded(&made[0]))["main:10"], export.violations.get(OtlpViolation::Snapshot))
    };
    let old = |values: &[u64], times: &[u64]| heap(msg().n(1, 2).p(2, values).b(3, []).times(5, times));
    assert_eq!(old(&[760, 770], &[5001, 5002]), (770, 1));
    assert_eq!(old(&[760, 770, 750], &[5001, 5003, 5002]), (770, 1));
    assert_eq!(old(&[760], &[5001]), (760, 0));
    let new = msg().n(1, 2).p(4, &[760, 770]).times(5, &[5001, 5002]);
    assert_eq!(heap(new), (770, 1), "however it is laid out");
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

/// The eBPF profiler sends mappings at 0 and addresses of the file; others send both kinds.
#[test]
fn address_outside_of_its_mapping_is_stored_as_one_of_the_elf_file() {
    use crate::data_model::symbols::ELF_ADDRESSES_FLAG;
    let of = |start: u64, limit: u64, address: u64| {
        let mut dictionary = msg().b(5, "");
        for text in TEXTS {
            dictionary = dictionary.b(5, text);
        }
        for table in [1, 2, 3, 4, 6, 7] {
            dictionary = dictionary.b(table, "");
        }
        let dictionary = dictionary
            .m(1, msg().n(1, start).n(2, limit).n(4, index("lib.so")).p(5, &[1]))
            .m(2, msg().n(1, 1).n(2, address))
            .m(2, msg().n(1, 1).n(2, 0x7f00_0000_1234))
            .m(6, attribute("process.executable.build_id.gnu", text("0123456789abcdef")))
            .m(7, msg().p(1, &[1, 2]));
        let resource = resource(&[("service.name", text("shop"))], &[cpu().m(2, sample(1, 1))]);
        let profile = decoded(&read_one(&msg().m(1, resource).m(2, dictionary).0).unwrap()[0]);
        let symbols = &profile.dictionary.symbols;
        let location = |place: u32| {
            let location = symbols.locations()[place as usize];
            let flags = symbols.mappings()[location.mapping as usize].flags;
            (symbols.address_name(place), location.address, flags & ELF_ADDRESSES_FLAG != 0)
        };
        let mut all = profile.dictionary.stacks.locations(0).map(location);
        (all.next().unwrap(), all.next().unwrap())
    };
    let name = |address: u64| format!("lib.so@01234567+0x{address:x}");
    let process = |address: u64| (name(address), address, false);
    let elf = |address: u64| (name(address), address, true);
    // Both kinds in one mapping.
    assert_eq!(of(0x7f00_0000_0000, 0x7f00_0001_0000, 0x88), (elf(0x88), process(0x1234)));
    assert_eq!(of(0, 0x16f000, 0x7a9a1), (elf(0x7a9a1), elf(0x7f00_0000_1234)));
    assert_eq!(of(0, 0, 0x7a9a1).0, elf(0x7a9a1));
    assert_eq!(of(0x40_0000, 0, 0x40_1000).0, process(0x1000));
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
fn what_was_recorded_has_labels_and_needs_no_names() {
    let profile = cpu().b(9, "pprof").b(10, "bytes").p(11, &[1, 99]);
    let made = read_one(&request(std::slice::from_ref(&profile))).unwrap();
    assert_eq!(label(&made[0], "thread.name"), Some("t1"));
    let alone = read(&msg().m(1, resource(&[], &[profile])).0, &BOUNDS).unwrap();
    assert!(matches!(alone.profiles[0].as_ref().unwrap()[0].content, OtlpProfileContent::Payload { .. }));
    assert_eq!(alone.violations.get(OtlpViolation::DanglingAttribute), 2);
}

#[test]
fn what_was_recorded_stands_in_for_samples_and_else_is_counted() {
    let payload = || cpu().b(9, "pprof").b(10, "bytes");
    let bytes = request(&[payload(), payload().m(2, sample(1, 1)), cpu()]);
    let export = read(&bytes, &BOUNDS).unwrap();
    let contents: Vec<_> = export.profiles.iter().map(|made| &made.as_ref().unwrap()[0].content).collect();
    let OtlpProfileContent::Payload { format, bytes: at } = contents[0] else { panic!("{contents:?}") };
    assert_eq!((format.as_str(), &bytes[at.clone()]), ("pprof", &b"bytes"[..]));
    assert!(matches!(contents[1], OtlpProfileContent::Pprof(_)));
    assert_eq!(contents[2], &OtlpProfileContent::Nothing);
    assert_eq!(export.violations.get(OtlpViolation::IgnoredPayload), 1);
}
