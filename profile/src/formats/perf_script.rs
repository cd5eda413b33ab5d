//! Reader of the output of `perf script`.
//!
//! ```text
//!  comm pid [cpu] time: period event:     a sample begins
//!      address symbol+offset (binary)     its frames, leaf first; an empty line ends it
//! ```
//! The command is the root of each stack, as in tools that fold such text. For one event with periods, both
//! the sample count and the event count are types. Otherwise each event has one type, because samples of
//! different events cannot be added up.

mod line;
#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use crate::data_model::model::{Dictionary, Profile, ValueType};
use crate::data_model::symbols::{Function, Line, Mapping, NO_ENTRY};
use crate::formats::limits::{OverLimitError, check_limit};
use crate::formats::pprof::DecodeLimits;
use crate::formats::sparse_values::{self, SparseCell, SparseRowsError};
use line::{PerfFrame, PerfSampleHead, UNKNOWN_SYMBOL};

/// Flag of a mapping with known functions, in the order of pprof's flags.
const HAS_FUNCTIONS_FLAG: u8 = 1;
/// Maximum number of characters of a line in errors.
const MAX_SHOWN_CHARS: usize = 60;

/// Reason that bytes are not output of `perf script`. Lines and columns start at 1, columns count bytes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PerfScriptError {
    /// The bytes are not valid UTF-8.
    #[error("line {line}, column {column}: not valid UTF-8")]
    NotUtf8 {
        /// Line number, from 1.
        line: usize,
        /// Column of the first invalid byte.
        column: usize,
    },
    /// The line is not the head of a sample, where one is expected.
    #[error(
        "line {line}: {seen:?} does not begin a sample; expected for example \"main 12 [000] 3.456789: 1 cycles:\""
    )]
    NoHead {
        /// Line number, from 1.
        line: usize,
        /// Beginning of the line.
        seen: String,
    },
    /// The line is not a frame, where one is expected.
    #[error("line {line}: {seen:?} is not a frame; expected for example \"7f12ab main+0x34 (/bin/main)\"")]
    NoFrame {
        /// Line number, from 1.
        line: usize,
        /// Beginning of the line.
        seen: String,
    },
    /// The period does not fit into 63 bits.
    #[error("line {line}: period {period} is over 9223372036854775807")]
    BadPeriod {
        /// Line number, from 1.
        line: usize,
        /// Period as written in the line.
        period: String,
    },
    /// The sum of periods of a stack does not fit into 63 bits.
    #[error("the periods of a stack add up to {sum} of {event}, which is over 9223372036854775807")]
    TooLarge {
        /// Name of the event.
        event: String,
        /// Sum of the periods.
        sum: i128,
    },
    /// The text has no samples.
    #[error("there are no samples")]
    NoSamples,
    /// Quantity over a limit.
    #[error("line {line}: {over}")]
    OverLimit {
        /// Line number, from 1.
        line: usize,
        /// Quantity, value seen and limit.
        over: OverLimitError,
    },
}

/// Returns whether a line is the head of a sample.
pub(crate) fn is_sample_head(line: &str) -> bool {
    line::parse_head(line).is_some()
}

/// Reads the samples of one or several events.
pub fn parse(bytes: &[u8], limits: &DecodeLimits) -> Result<Profile, PerfScriptError> {
    let over = |line| move |over| PerfScriptError::OverLimit { line, over };
    check_limit("bytes", bytes.len(), limits.bytes).map_err(over(1))?;
    let mut reading = PerfScriptReader::new(limits);
    let mut last = 1;
    for (line, content) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
        let content = std::str::from_utf8(content)
            .map_err(|error| PerfScriptError::NotUtf8 { line, column: error.valid_up_to() + 1 })?;
        reading.line(line, content.trim_ascii_end())?;
        last = line;
    }
    reading.end_sample(last)?;
    if reading.sums.is_empty() {
        return Err(PerfScriptError::NoSamples);
    }
    reading.finish(last)
}

/// Event with the properties of its samples.
struct PerfEvent {
    name: String,
    /// All samples of the event have a period.
    has_periods: bool,
}

/// Sums of the samples of one event and one stack.
#[derive(Clone, Copy, Default)]
struct PerfStackSum {
    samples: i64,
    /// Sum of the periods. It cannot overflow: there are fewer samples than the spare bits allow.
    periods: i128,
}

struct PerfScriptReader<'a> {
    limits: &'a DecodeLimits,
    dictionary: Dictionary,
    events: Vec<PerfEvent>,
    numbers: HashMap<String, usize>,
    /// Sums by event and stack.
    sums: HashMap<(usize, u32), PerfStackSum>,
    /// Sample that is being read: its root, its event, its period.
    open: Option<(Option<u32>, usize, Option<i64>)>,
    /// Frames of that sample, leaf first.
    path: Vec<u32>,
    /// The frames that follow belong to no sample.
    passed_over: bool,
}

impl<'a> PerfScriptReader<'a> {
    fn new(limits: &'a DecodeLimits) -> Self {
        PerfScriptReader {
            limits,
            dictionary: Dictionary::default(),
            events: Vec::new(),
            numbers: HashMap::new(),
            sums: HashMap::new(),
            open: None,
            path: Vec::new(),
            passed_over: false,
        }
    }

    fn line(&mut self, line: usize, content: &str) -> Result<(), PerfScriptError> {
        let is_within = self.open.is_some() || self.passed_over;
        if content.trim_ascii_start().is_empty() {
            return self.end_sample(line);
        }
        if content.starts_with('#') {
            return Ok(());
        }
        // `perf` indents commands with spaces, never with a tab.
        let is_indented = content.starts_with([' ', '\t']);
        let head = match is_within && is_indented {
            true if content.starts_with('\t') => None,
            true => line::parse_timed_head(content),
            false => {
                let no_head = || PerfScriptError::NoHead { line, seen: beginning(content) };
                Some(line::parse_head(content).ok_or_else(no_head)?)
            }
        };
        match head {
            Some(head) => self.begin_sample(line, &head),
            None if self.passed_over => Ok(()),
            None => match line::parse_frame(content) {
                Some(frame) => self.frame(line, &frame),
                None if line::is_source_line(content) => Ok(()),
                None => Err(PerfScriptError::NoFrame { line, seen: beginning(content) }),
            },
        }
    }

    fn begin_sample(&mut self, line: usize, head: &PerfSampleHead<'_>) -> Result<(), PerfScriptError> {
        let over = |over| PerfScriptError::OverLimit { line, over };
        self.end_sample(line)?;
        let Some(event) = head.event else {
            self.passed_over = true;
            return Ok(());
        };
        let period = head.period.map(|period| {
            let bad = |_| PerfScriptError::BadPeriod { line, period: beginning(period) };
            period.parse::<i64>().map_err(bad)
        });
        let period = period.transpose()?;
        let event = match self.numbers.get(event) {
            Some(&number) => number,
            None => {
                check_limit("events", self.events.len() + 1, self.limits.types).map_err(over)?;
                self.events.push(PerfEvent { name: event.to_owned(), has_periods: true });
                self.numbers.insert(event.to_owned(), self.events.len() - 1);
                self.events.len() - 1
            }
        };
        self.events[event].has_periods &= period.is_some();
        let command = Some(head.command).filter(|command| !command.is_empty());
        self.open =
            Some((command.map(|command| self.dictionary.intern_named_location(command)), event, period));
        match line::parse_frame(head.rest) {
            Some(frame) => self.frame(line, &frame),
            None => Ok(()),
        }
    }

    fn frame(&mut self, line: usize, frame: &PerfFrame<'_>) -> Result<(), PerfScriptError> {
        // Counts this frame and the command.
        let depth = self.path.len() + 2;
        check_limit("frames in a stack", depth, self.limits.depth)
            .map_err(|over| PerfScriptError::OverLimit { line, over })?;
        let location = location(&mut self.dictionary, frame);
        self.path.push(location);
        Ok(())
    }

    /// Adds the sample that ends before this line. Equal samples share one sum, so most of a long text takes
    /// no memory.
    fn end_sample(&mut self, line: usize) -> Result<(), PerfScriptError> {
        let over = |over| PerfScriptError::OverLimit { line, over };
        self.passed_over = false;
        if let Some((command, event, period)) = self.open.take() {
            self.path.extend(command);
            let stack = self.dictionary.stacks.intern(&self.dictionary.symbols, &self.path);
            let Dictionary { symbols, stacks, .. } = &self.dictionary;
            check_limit("different frames", symbols.locations().len(), self.limits.entries).map_err(over)?;
            check_limit("frames in different stacks", stacks.nodes().len(), self.limits.frames)
                .map_err(over)?;
            let seen = self.sums.len() + 1;
            let sum = match self.sums.entry((event, stack)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    check_limit("samples of different stacks", seen, self.limits.samples).map_err(over)?;
                    new.insert(PerfStackSum::default())
                }
            };
            sum.samples += 1;
            sum.periods += i128::from(period.unwrap_or(0));
        }
        self.path.clear();
        Ok(())
    }

    fn finish(self, last: usize) -> Result<Profile, PerfScriptError> {
        let PerfScriptReader { limits, dictionary, events, sums, .. } = self;
        let mut profile = Profile { dictionary, ..Profile::default() };
        let counts_samples = events.len() == 1 && events[0].has_periods;
        if counts_samples {
            profile.header.types.push(ValueType::new("samples", "count"));
        }
        let first = profile.header.types.len();
        let event_types = types(&events, &profile.header.types);
        profile.header.types.extend(event_types);
        let too_large = |event: usize, sum| {
            let event = beginning(&events[event].name);
            PerfScriptError::TooLarge { event, sum }
        };
        let mut cells = Vec::with_capacity(sums.len() << first);
        for ((event, stack), PerfStackSum { samples, periods }) in sums {
            let cell = |column, value| SparseCell { stack, labels: 0, column, value };
            if counts_samples {
                cells.push(cell(0, samples));
            }
            let value = if events[event].has_periods { i64::try_from(periods).ok() } else { Some(samples) };
            cells.push(cell(first + event, value.ok_or_else(|| too_large(event, periods))?));
        }
        let rows = sparse_values::rows_from_cells(cells, profile.header.types.len(), limits);
        profile.samples = rows.map_err(|error| match error {
            SparseRowsError::Over(over) => PerfScriptError::OverLimit { line: last, over },
            // The map has one sum for each event and stack.
            SparseRowsError::Overflow(column) => too_large(column - first, i128::from(i64::MAX)),
        })?;
        Ok(profile)
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

/// Returns the location of a frame. If the symbol is unknown, the binary's name replaces it, as in tools that
/// fold such text.
fn location(dictionary: &mut Dictionary, frame: &PerfFrame<'_>) -> u32 {
    let binary = frame.binary.filter(|binary| !binary.is_empty() && *binary != UNKNOWN_SYMBOL);
    let file = binary.map(|binary| binary.rsplit('/').next().unwrap_or(binary));
    let unknown = |file: &str| format!("[{}]", file.trim_start_matches('[').trim_end_matches(']'));
    let name = match frame.symbol {
        "" | UNKNOWN_SYMBOL => file.map_or_else(|| UNKNOWN_SYMBOL.to_owned(), unknown),
        symbol => symbol.to_owned(),
    };
    let symbols = &mut dictionary.symbols;
    let name = symbols.strings.intern(&name);
    let function = symbols.intern_function(Function { name, system_name: 0, filename: 0, start_line: 0 });
    let mapping = binary.map_or(NO_ENTRY, |binary| {
        let filename = symbols.strings.intern(binary);
        let nowhere =
            Mapping { start: 0, size: 0, offset: 0, filename, build_id: 0, flags: HAS_FUNCTIONS_FLAG };
        symbols.intern_mapping(nowhere)
    });
    symbols.intern_location(mapping, 0, false, &[Line { function, line: 0, column: 0 }])
}

// === events ===

/// Events with a fixed name. The text after their colon is a modifier.
const KNOWN_EVENTS: [&str; 14] = [
    "alignment-faults",
    "branch-misses",
    "branches",
    "cache-misses",
    "cache-references",
    "context-switches",
    "cpu-clock",
    "cpu-migrations",
    "cycles",
    "instructions",
    "major-faults",
    "minor-faults",
    "page-faults",
    "task-clock",
];

/// Returns the value type of each event. Their names differ from each other and from those of `others`.
fn types(events: &[PerfEvent], others: &[ValueType]) -> Vec<ValueType> {
    let short: Vec<&str> = events.iter().map(|event| short(&event.name)).collect();
    let mut taken: HashSet<String> = others.iter().map(|other| other.kind.clone()).collect();
    let mut value_type = |(event, name): (&PerfEvent, &&str)| {
        let is_alone = short.iter().filter(|other| *other == name).count() == 1;
        // Clock events count nanoseconds.
        let is_time = event.has_periods && matches!(*name, "cpu-clock" | "task-clock");
        let unit = if is_time { "nanoseconds" } else { "count" };
        let name = distinct_name(&plain(if is_alone { name } else { &event.name }), &taken);
        taken.insert(name.clone());
        ValueType::new(&name, unit)
    };
    events.iter().zip(&short).map(&mut value_type).collect()
}

/// Returns a name that is not taken, with a number at its end if necessary. Different events may have equal names
/// without special characters, and their values must not be added.
fn distinct_name(name: &str, taken: &HashSet<String>) -> String {
    let mut distinct = name.to_owned();
    let mut number = 1;
    while taken.contains(&distinct) {
        number += 1;
        distinct = format!("{name}_{number}");
    }
    distinct
}

/// Returns an event's name without modifiers: `cycles` for `cycles:ppp`. The name of a tracepoint also has a
/// colon.
fn short(name: &str) -> &str {
    let event = name.split_once(':').map_or(name, |(event, _)| event);
    if KNOWN_EVENTS.contains(&event) { event } else { name }
}

/// Replaces special characters: value types become parts of names that use colons and slashes as separators.
/// Servers reject types with a hyphen, which most events of `perf` have: `cpu-clock` becomes `cpu_clock`.
fn plain(name: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.' | ',' | '=');
    let letters = name.chars().map(|letter| if is_plain(letter) { letter } else { '_' });
    match letters.collect::<String>().trim_matches('_') {
        "" => "event".to_owned(),
        plain => plain.to_owned(),
    }
}
