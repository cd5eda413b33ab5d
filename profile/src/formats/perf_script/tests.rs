use proptest::prelude::*;

use super::*;
use crate::call_tree::tree::Tree;
use crate::formats::folded;

/// As perf 6.1 printed it, shortened.
const CLOCK: &str = "\
# ========
# captured on    : Mon Nov 23 07:25:38 2026
#
python3 30278 57011.696755:    1001001 cpu-clock: \n\
\tffffffff81690046 charge_pages+0x36 ([kernel.kallsyms])
\t           d4ad7 __GI___execve+0x7 (/usr/lib/x86_64-linux-gnu/libc.so.6)
\t            3033 [unknown] (/usr/bin/env)

opt cgu.15 30279/30280 [001] 57011.697832:    1001002 cpu-clock: \n\
\t          1019b3 f(int (*)(void), a b)+0x13 (/usr/lib/a (deleted))
\t               0 [unknown] ([unknown])

python3 30278 57011.699329:    1001001 cpu-clock: \n\
\tffffffff81690047 charge_pages+0x37 ([kernel.kallsyms])
\t           d4ad7 __GI___execve+0x7 (/usr/lib/x86_64-linux-gnu/libc.so.6)
\t            3033 [unknown] (/usr/bin/env)
";

fn read(text: &str) -> Profile {
    parse(text.as_bytes(), &DecodeLimits::default()).unwrap()
}

fn stacks(profile: &Profile, column: usize) -> Vec<String> {
    let mut lines: Vec<String> =
        folded::write(&Tree::from_profile(profile, column)).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

fn types(profile: &Profile) -> Vec<String> {
    profile.header.types.iter().map(|value| format!("{}/{}", value.kind, value.unit)).collect()
}

#[test]
fn samples_and_what_they_stand_for_are_types() {
    for text in [CLOCK.to_owned(), CLOCK.replace('\n', "\r\n"), CLOCK.replace('\t', "        ")] {
        let profile = read(&text);
        assert_eq!(types(&profile), ["samples/count", "cpu_clock/nanoseconds"]);
        let wanted = |python: u64, opt: u64| {
            [
                format!("opt cgu.15;[unknown];f(int (*)(void), a b) {opt}"),
                format!("python3;[env];__GI___execve;charge_pages {python}"),
            ]
        };
        assert_eq!(stacks(&profile, 0), wanted(2, 1));
        assert_eq!(stacks(&profile, 1), wanted(2_002_002, 1_001_002));
        // Addresses within a function are one place: two rows, of which one has been seen twice.
        assert_eq!((profile.samples.len(), profile.header.shown_type()), (2, 1));
    }
    let profile = read(CLOCK);
    let symbols = &profile.dictionary.symbols;
    let files: Vec<&str> =
        symbols.mappings().iter().map(|mapping| symbols.strings.get(mapping.filename)).collect();
    let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    assert_eq!(files, ["[kernel.kallsyms]", libc, "/usr/bin/env", "/usr/lib/a (deleted)"]);
}

#[test]
fn samples_without_stacks_lie_on_one_line() {
    let text = "         python3 30576 57023.800403:   10101010 cycles:ppp:      7f5e PyUnicode_New+0x3d (/lib/libpython3.11.so.1.0)\n\
         \x20             cc 30576 57023.814560:   5 cycles:ppp:  ffff ([unknown])\n\
         \x20             cc 30576 57023.814561:   6 cycles:ppp: \n";
    let profile = read(text);
    assert_eq!(types(&profile), ["samples/count", "cycles/count"]);
    assert_eq!(stacks(&profile, 1), ["cc 6", "cc;[unknown] 5", "python3;PyUnicode_New 10101010"]);
}

#[test]
fn events_do_not_add_up() {
    let text = "\
a 1 [000] 1.5: 10 task-clock:u: \n\tab f (x)\n\
a 1 [000] 1.6: 7 page-faults: \n\tab f (x)\n\n\
a 1 [000] 1.7: sched:sched_switch: prev_comm=a prev_prio=1 next_comm=b\n\tab g (x)\n\n\
a 1 [000] 1.7: 3 cycles:u:\n\n\
a 1 [000] 1.7: 4 cycles:k:\n\n\
a 1 [000] 1.8: 5 task-clock:u: \n\tab f (x)\n";
    let profile = read(text);
    assert_eq!(
        types(&profile),
        [
            "task_clock/nanoseconds",
            "page_faults/count",
            "sched_sched_switch/count",
            "cycles_u/count",
            "cycles_k/count"
        ]
    );
    let all: Vec<Vec<String>> = (0..5).map(|column| stacks(&profile, column)).collect();
    assert_eq!(all, [["a;f 15"], ["a;f 7"], ["a;g 1"], ["a 3"], ["a 4"]]);
}

#[test]
fn types_have_no_hyphen() {
    for (event, expected) in [
        ("branch-misses:u", "branch_misses/count"),
        ("L1-dcache-load-misses", "L1_dcache_load_misses/count"),
        ("cpu/mem-loads,ldlat=30/P", "cpu_mem_loads,ldlat=30_P/count"),
    ] {
        let text = format!("a 1 1.5: 2 {event}:\n\tab f (x)\n\n");
        assert_eq!(types(&read(&text)), ["samples/count", expected]);
    }
}

#[test]
fn events_with_equal_plain_names_have_distinct_types() {
    let sample = |event: &str, period: u8| format!("a 1 1.5: {period} {event}:\n\tab f (x)\n\n");
    let text = [sample("r/a-b/", 2), sample("r/a_b/", 3), sample("r_a_b_2", 4)].concat();
    let profile = read(&text);
    assert_eq!(types(&profile), ["r_a_b/count", "r_a_b_2/count", "r_a_b_2_2/count"]);
    let values = [0, 1, 2].map(|column| stacks(&profile, column));
    assert_eq!(values, [["a;f 2"], ["a;f 3"], ["a;f 4"]]);
    // The number of samples is a type too.
    assert_eq!(types(&read(&sample("samples", 2))), ["samples/count", "samples_2/count"]);
}

#[test]
fn what_people_leave_out_of_the_output_is_not_needed() {
    // Without time, without command, without periods, without binaries; with lines of the source and inlined calls.
    let text = "python3 30278 cpu-clock: \n\tffff try_charge\n\t  ab main+0x12\n\n";
    assert_eq!(
        (types(&read(text)), stacks(&read(text), 0)),
        (vec!["cpu_clock/count".into()], vec!["python3;main;try_charge 1".into()])
    );
    assert_eq!(stacks(&read("12 1.5: r1a8:\n\tab f (x)\n"), 0), ["f 1"]);
    let lines = "a 1 1.5: 2 cycles:\n\tab g (inlined)\n  main.c:12\n\tab f+0x1 (/x)\n  ??:0\n";
    assert_eq!(stacks(&read(lines), 1), ["a;f;g 2"]);
    // Other records, between samples and instead of a time.
    let records = "a 0 [000] 0.000000: PERF_RECORD_MMAP -1/0: [0xff(0x12) @ 0xff]: x [kernel]\n\ta b c\n\na 1 1.5: 2 cycles:\n\tab f (x)\n\
                   a 0 [000] 0.000000: PERF_RECORD_EXIT(1:1):(1:1)\na 1 1.5: 2 cycles:\n\tab f (x)";
    assert_eq!(stacks(&read(records), 1), ["a;f 4"]);
    let uncounted = "a 1 1.5: 9 cycles:\n\na 1 1.5: cycles:\n";
    assert_eq!(
        (types(&read(uncounted)), stacks(&read(uncounted), 0)),
        (vec!["cycles/count".into()], vec!["a 2".into()])
    );
}

#[test]
fn errors_say_where_and_what() {
    let limits = DecodeLimits { depth: 3, samples: 2, types: 2, bytes: 200, ..DecodeLimits::default() };
    for (text, wanted) in [
        ("", "there are no samples"),
        ("# a\n\n", "there are no samples"),
        (
            "a 1 1.5: 1 b:\n\nmain;work 12\n",
            "line 3: \"main;work 12\" does not begin a sample; expected for example \"main 12 [000]",
        ),
        ("a 1 1.5: 1 b:\n\n\tab f (x)\n", "line 3: \"\\tab f (x)\" does not begin a sample"),
        (
            "a 1 1.5: 1 b:\n\txy f (x)\n",
            "line 2: \"\\txy f (x)\" is not a frame; expected for example \"7f12ab",
        ),
        (
            "a 1 1.5: 9223372036854775808 b:\n",
            "line 1: period 9223372036854775808 is over 9223372036854775807",
        ),
        (
            "a 1 1.5: 1 b:\n\tab f (x)\n\tab f (x)\n\tab f (x)\n",
            "line 4: 4 frames in a stack, the limit is 3",
        ),
        (
            "a 1 1.5: 1 b:\nc 1 1.5: 1 b:\na 1 1.5: 1 b:\nd 1 1.5: 1 b:\n\n",
            "line 5: 3 samples of different stacks, the limit is 2",
        ),
        (
            "a 1 1.5: 9223372036854775807 b:\na 1 1.5: 1 b:\n",
            "the periods of a stack add up to 9223372036854775808 of b, which is over 9223372036854775807",
        ),
        ("a 1 1.5: 1 b:\na 1 1.5: 1 c:\na 1 1.5: 1 d:\n", "line 3: 3 "),
        (&"x".repeat(201), "line 1: 201 bytes, the limit is 200"),
    ] {
        let said = parse(text.as_bytes(), &limits).unwrap_err().to_string();
        assert!(said.contains(wanted), "{said}\nwanted {wanted}");
    }
    let said = parse(b"a 1 1.5: 1 b:\n\tab \xff (x)\n", &limits).unwrap_err().to_string();
    assert_eq!(said, "line 2, column 5: not valid UTF-8");
    let text = "a 1 1.5: 1 b:\n\tab f (x)\n\tab g (x)\n\n";
    let said = |limits| parse(text.as_bytes(), &limits).unwrap_err().to_string();
    let all = DecodeLimits::default();
    assert_eq!(said(DecodeLimits { entries: 2, ..all }), "line 4: 3 different frames, the limit is 2");
    assert_eq!(
        said(DecodeLimits { frames: 2, ..all }),
        "line 4: 3 frames in different stacks, the limit is 2"
    );
    let limits = DecodeLimits { types: 1, ..DecodeLimits::default() };
    let said = parse(b"a 1 1.5: 1 b:\na 1 1.5: 1 c:\n", &limits).unwrap_err().to_string();
    assert_eq!(said, "line 2: 2 events, the limit is 1");
}

fn word() -> impl Strategy<Value = String> {
    let words = [
        "a", "12", "1/2", "[000]", "1.5:", "7", "cycles:", "b:c:", "ab", "f+0x1", "(x)", "\t", "\n", "\n\n",
        "#", "é",
    ];
    prop::sample::select(words.to_vec()).prop_map(str::to_owned)
}

proptest! {
    /// Whoever folds the same samples by hand gets the same.
    #[test]
    fn samples_are_what_they_were_printed_of(samples in prop::collection::vec((0usize..3, prop::collection::vec(0usize..4, 0..6), 1i64..1000), 1..20)) {
        let commands = ["a", "b c", "d 12"];
        let functions = ["main", "f(int (*)(int))", "operator new", "x::y<z>"];
        let (mut text, mut lines) = (String::new(), String::new());
        for (at, (command, stack, period)) in samples.iter().enumerate() {
            text += &format!("{} {at} [00{command}] {at}.000001: {period} cycles:\n", commands[*command]);
            let mut line = commands[*command].to_owned();
            for &function in stack.iter().rev() {
                text += &format!("\t{at:x} {}+0x{at:x} (/bin/x)\n", functions[function]);
            }
            stack.iter().for_each(|&function| line += &format!(";{}", functions[function]));
            lines += &format!("{line} {period}\n");
            text += "\n";
        }
        let wanted = folded::parse(lines.as_bytes(), ValueType::default(), &DecodeLimits::default()).unwrap();
        prop_assert_eq!(Tree::from_profile(&read(&text), 1), Tree::from_profile(&wanted, 0));
        let of_one = lines.lines().map(|line| line.rsplit_once(' ').unwrap().0.to_owned() + " 1\n").collect::<String>();
        let wanted = folded::parse(of_one.as_bytes(), ValueType::default(), &DecodeLimits::default()).unwrap();
        prop_assert_eq!(Tree::from_profile(&read(&text), 0), Tree::from_profile(&wanted, 0));
    }

    #[test]
    fn any_text_is_read_or_refused(words in prop::collection::vec(word(), 0..40), bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        for text in [words.join(" ").into_bytes(), words.concat().into_bytes(), bytes] {
            if let Ok(profile) = parse(&text, &DecodeLimits::default()) {
                prop_assert!(profile.samples.len() <= text.len());
            }
        }
    }
}
