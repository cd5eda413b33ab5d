//! Parser of single lines of the text.

/// Head of a sample: `comm pid/tid [cpu] time: period event: …`. The options of `perf script` decide which of
/// these fields are present.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PerfSampleHead<'a> {
    /// Name of the thread; empty if it is absent.
    pub(super) command: &'a str,
    /// Event of the sample. `None` for other records, such as a mapping or a fork.
    pub(super) event: Option<&'a str>,
    /// Number of events that the sample stands for.
    pub(super) period: Option<&'a str>,
    /// Text after the event: the frame of a sample without a stack, or the data of a tracepoint.
    pub(super) rest: &'a str,
}

/// Stack frame: `address symbol+offset (binary)`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PerfFrame<'a> {
    /// Symbol without the offset; empty or `[unknown]` if it has none.
    pub(super) symbol: &'a str,
    /// Binary of the frame; `None` if the line has none.
    pub(super) binary: Option<&'a str>,
}

/// Symbol of an address that has none.
pub(super) const UNKNOWN_SYMBOL: &str = "[unknown]";
/// Binary of an inlined function.
const INLINED_BINARY: &str = "inlined";
/// Prefix of records that are not samples.
const RECORD_PREFIX: &str = "PERF_RECORD_";

/// Maximum number of words before an event. Names of threads have at most fifteen characters.
const MAX_WORDS_BEFORE_EVENT: usize = 32;

/// Word and the offset at which it ends.
type LineWord<'a> = (&'a str, usize);

/// Parses the head of a sample.
pub(super) fn parse_head(line: &str) -> Option<PerfSampleHead<'_>> {
    parse_timed_head(line).or_else(|| parse_untimed_head(line))
}

/// Parses the head of a sample that has a time.
pub(super) fn parse_timed_head(line: &str) -> Option<PerfSampleHead<'_>> {
    let mut words = words(line);
    let mut before: Vec<LineWord<'_>> = Vec::new();
    loop {
        let word = words.next()?;
        if is_time(word.0) {
            break;
        }
        if before.len() == MAX_WORDS_BEFORE_EVENT {
            return None;
        }
        before.push(word);
    }
    // A command may have several words and numbers. The last number before processor and time is the thread.
    let thread = before.iter().rposition(|(word, _)| is_thread(word));
    let end =
        thread.or_else(|| before.iter().position(|(word, _)| is_processor(word))).unwrap_or(before.len());
    let command = before[..end].last().map_or("", |&(_, at)| line[..at].trim_start());
    let (first, first_end) = words.next()?;
    let (period, (event, at)) = match words.next() {
        Some(second) if is_number(first) => (Some(first), second),
        _ => (None, (first, first_end)),
    };
    if event.starts_with(RECORD_PREFIX) {
        return Some(PerfSampleHead { command, ..PerfSampleHead::default() });
    }
    let event = event.strip_suffix(':').filter(|event| !event.is_empty())?;
    Some(PerfSampleHead { command, event: Some(event), period, rest: line[at..].trim_ascii() })
}

/// Parses the head of a sample without a time, which only its final event identifies for certain.
fn parse_untimed_head(line: &str) -> Option<PerfSampleHead<'_>> {
    let all: Vec<LineWord<'_>> = words(line).take(MAX_WORDS_BEFORE_EVENT + 2).collect();
    let ((event, _), before) =
        all.split_last().filter(|(_, before)| before.len() <= MAX_WORDS_BEFORE_EVENT)?;
    let event = event.strip_suffix(':').filter(|event| !event.is_empty())?;
    let thread = before.iter().position(|(word, _)| is_thread(word)).filter(|&at| at > 0)?;
    let (_, end) = before[thread - 1];
    let between = &before[thread + 1..];
    let period = between.iter().find(|(word, _)| is_number(word)).map(|&(word, _)| word);
    let is_known = |&(word, _): &LineWord<'_>| is_number(word) || is_processor(word);
    let is_head = between.len() <= 2 && between.iter().all(is_known);
    is_head.then(|| PerfSampleHead {
        command: line[..end].trim_start(),
        event: Some(event),
        period,
        rest: "",
    })
}

/// Parses a frame. Returns `None` if the line is not one.
pub(super) fn parse_frame(line: &str) -> Option<PerfFrame<'_>> {
    let (address, rest) = line.trim_ascii().split_once(' ')?;
    if !address.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let rest = rest.trim_ascii_start();
    let open = find_binary(rest);
    let (symbol, binary) = match open {
        None => (rest, None),
        Some(open) => (rest[..open].trim_ascii_end(), Some(&rest[open + 1..rest.len() - 1])),
    };
    Some(PerfFrame {
        symbol: without_offset(symbol),
        binary: binary.filter(|binary| *binary != INLINED_BINARY),
    })
}

/// Returns whether a line gives the source position of the frame above it: `main.c:12`, `??:0`.
pub(super) fn is_source_line(line: &str) -> bool {
    line.trim_ascii().rsplit_once(':').is_some_and(|(file, line)| !file.is_empty() && is_number(line))
}

/// Returns the offset of the binary's opening bracket: after the symbol's offset or, without one, the last
/// bracket. A bracket directly after a name belongs to its parameters.
fn find_binary(frame: &str) -> Option<usize> {
    // A binary that was deleted has a suffix in brackets.
    let before = frame.strip_suffix(" (deleted))").or_else(|| frame.strip_suffix(')'))?;
    let behind_offset = before.rfind("+0x").and_then(|at| {
        let digits = before[at + 3..].bytes().take_while(u8::is_ascii_hexdigit).count();
        let end = at + 3 + digits;
        before[end..].starts_with(" (").then_some(end + 1)
    });
    let open = behind_offset.or_else(|| before.rfind('('))?;
    (open == 0 || before[..open].ends_with(' ')).then_some(open)
}

fn without_offset(symbol: &str) -> &str {
    let offset = symbol.rsplit_once("+0x");
    let offset = offset.filter(|(_, digits)| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    offset.map_or(symbol, |(name, _)| name)
}

fn words(line: &str) -> impl Iterator<Item = LineWord<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + line[at..].bytes().position(|byte| !byte.is_ascii_whitespace())?;
        at = start
            + line[start..].bytes().position(|byte| byte.is_ascii_whitespace()).unwrap_or(line.len() - start);
        Some((&line[start..at], at))
    })
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a word is a thread: `12`, `12/13`, or `-1` for an unknown one.
fn is_thread(word: &str) -> bool {
    let is_id = |id: &str| is_number(id.strip_prefix('-').unwrap_or(id));
    word.split_once('/').map_or_else(|| is_id(word), |(process, thread)| is_id(process) && is_id(thread))
}

/// Returns whether a word is a processor, such as `[003]`.
fn is_processor(word: &str) -> bool {
    word.strip_prefix('[').and_then(|word| word.strip_suffix(']')).is_some_and(is_number)
}

/// Returns whether a word is a time, such as `57011.696755:`.
fn is_time(word: &str) -> bool {
    let parts = word.strip_suffix(':').and_then(|word| word.split_once('.'));
    parts.is_some_and(|(seconds, rest)| is_number(seconds) && is_number(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> Option<[&str; 4]> {
        parse_head(line)
            .map(|head| [head.command, head.event.unwrap_or("-"), head.period.unwrap_or("-"), head.rest])
    }

    #[test]
    fn heads_are_told_by_their_time_and_event() {
        for (line, expected) in [
            ("python3 30278 57011.696755:    1001001 cpu-clock: ", ["python3", "cpu-clock", "1001001", ""]),
            (
                "opt cgu.15 30678 [000] 57026.380607:   20408163 cycles:ppp: ",
                ["opt cgu.15", "cycles:ppp", "20408163", ""],
            ),
            ("Thread 3 4242/4243 [001] 1.000001: 1 cycles:", ["Thread 3", "cycles", "1", ""]),
            (
                "   swapper     0 [000]   100.25:  7 cycles:  ffff81 halt+0x6 (vmlinux)",
                ["swapper", "cycles", "7", "ffff81 halt+0x6 (vmlinux)"],
            ),
            (
                "cc 12 [000] 1.5: sched:sched_switch: prev_comm=a next_pid=0",
                ["cc", "sched:sched_switch", "-", "prev_comm=a next_pid=0"],
            ),
            (
                "python3 30278 K     57011.696755:    1001001 cpu-clock:     ",
                ["python3", "cpu-clock", "1001001", ""],
            ),
            (
                "swapper     0 [000]     0.000000: PERF_RECORD_MMAP -1/0: [0xff(0x12) @ 0xff]: x [kernel]",
                ["swapper", "-", "-", ""],
            ),
            ("sh [000] 1.5: cycles:", ["sh", "cycles", "-", ""]),
            ("12 1.5: cycles:", ["", "cycles", "-", ""]),
            ("1.5: 3 cycles:", ["", "cycles", "3", ""]),
            ("python3 30278 cpu-clock: ", ["python3", "cpu-clock", "-", ""]),
            ("a b 30278 [001] 12 cycles:u:", ["a b", "cycles:u", "12", ""]),
        ] {
            assert_eq!(shown(line), Some(expected), "{line}");
        }
        for line in [
            "main;work 12",
            "",
            "a 1",
            "a b: 3",
            "a 1.5: b",
            "a 1.5:",
            "a 1.5: 3",
            "a 1.5: :",
            "cycles:",
            "12 cycles:",
            "a 12 x cycles:",
            &format!("{}12 cycles:", "a ".repeat(MAX_WORDS_BEFORE_EVENT)),
            &format!("{}12 1.5: cycles:", "a ".repeat(MAX_WORDS_BEFORE_EVENT)),
            "{\"a\": 1.5: 3}",
        ] {
            assert_eq!(shown(line), None, "{line}");
        }
    }

    #[test]
    fn frames_have_symbol_and_binary() {
        for (line, symbol, binary) in [
            (
                "\tffffffff8168f964 try_charge_memcg+0x54 ([kernel.kallsyms])",
                "try_charge_memcg",
                Some("[kernel.kallsyms]"),
            ),
            ("  3033 [unknown] (/usr/bin/env)", "[unknown]", Some("/usr/bin/env")),
            ("  0 [unknown] ([unknown])", "[unknown]", Some("[unknown]")),
            ("\t7f ([unknown])", "", Some("[unknown]")),
            ("\tab f(int (*)(void), a b)+0x0 (/a b (1)/c)", "f(int (*)(void), a b)", Some("/a b (1)/c")),
            ("\tab f(int (*)(void), a b)+0x10 (/x y/z)", "f(int (*)(void), a b)", Some("/x y/z")),
            ("\tab f(int)", "f(int)", None),
            ("\tab f+0x12", "f", None),
            ("\tab a+0xzz (b)", "a+0xzz", Some("b")),
            ("\tab f (/tmp/x (deleted))", "f", Some("/tmp/x (deleted)")),
            ("\tab g (inlined)", "g", None),
        ] {
            assert_eq!(parse_frame(line), Some(PerfFrame { symbol, binary }), "{line}");
        }
        for line in ["\tmain.c:12", "", "\tf", "\txyz f (b)"] {
            assert_eq!(parse_frame(line), None, "{line}");
        }
        assert!(is_source_line("  main.c:12") && is_source_line("??:0") && !is_source_line("a:b"));
    }
}
