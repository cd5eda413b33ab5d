//! Tables for the terminal. Texts of processes and files are escaped.

use std::cmp::Reverse;
use std::fmt::Write;
use std::time::Duration;

use athanor_profile::analysis::top_table::TopTable;
use athanor_profile::render::printable::escape_control;
use athanor_profile::render::units::format_value;

use super::{CPU_COLUMN, UnnamedFrames, build_profile};
use crate::window::{CountedStack, SampleWindow, SampledProcess};

/// Maximum characters of a name before the width of the terminal cuts it.
const MAX_NAME_CHARS: usize = 1000;
const PROCESS_HEADING: &str = "      PID    CPU%   SAMPLES  COMM             EXECUTABLE";
const FUNCTION_HEADING: &str = "     FLAT   FLAT%       CUM    CUM%  FUNCTION";

/// Size of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopOptions {
    /// Maximum number of processes.
    pub max_processes: usize,
    /// Maximum number of functions.
    pub max_functions: usize,
    /// Maximum characters of a line.
    pub width: usize,
}

/// Writes the processes and functions of a window with the most CPU time.
pub fn write_top(window: &SampleWindow, options: TopOptions) -> String {
    let mut text = String::new();
    write_processes(&mut text, window, options);
    push_line(&mut text, "", options.width);
    write_functions(&mut text, window, options);
    text
}

fn write_processes(text: &mut String, window: &SampleWindow, options: TopOptions) {
    let mut usages: Vec<ProcessUsage<'_>> = window.processes.iter().map(ProcessUsage::new).collect();
    for stack in &window.stacks {
        if let Some(usage) = usages.get_mut(stack.process as usize) {
            usage.add(stack);
        }
    }
    // The sort is stable: processes of equal CPU time stay in the order of the window.
    usages.sort_by_key(|usage| Reverse(usage.nanos));
    push_line(text, PROCESS_HEADING, options.width);
    for usage in usages.iter().filter(|usage| usage.samples > 0).take(options.max_processes) {
        let facts = &usage.process.facts;
        let pid = if facts.identity.pid == 0 { facts.identity.host_pid } else { facts.identity.pid };
        let line = format!(
            "{pid:>9} {:>7.1} {:>9}  {:<16} {}",
            cpu_percent(usage.nanos, window.duration),
            usage.samples,
            escape(&facts.comm),
            escape(&facts.executable),
        );
        push_line(text, &line, options.width);
    }
}

fn write_functions(text: &mut String, window: &SampleWindow, options: TopOptions) {
    let profile = build_profile(window, window.stacks.iter(), UnnamedFrames::Display);
    let table = TopTable::from_profile(&profile, CPU_COLUMN);
    push_line(text, FUNCTION_HEADING, options.width);
    for row in table.rows.iter().take(options.max_functions) {
        let line = format!(
            "{:>9} {:>6.2}% {:>9} {:>6.2}%  {}",
            format_value(row.flat, "nanoseconds"),
            row.flat_share * 100.0,
            format_value(row.cum, "nanoseconds"),
            row.cum_share * 100.0,
            escape(&row.name),
        );
        push_line(text, &line, options.width);
    }
}

struct ProcessUsage<'a> {
    process: &'a SampledProcess,
    samples: u64,
    nanos: u64,
}

impl<'a> ProcessUsage<'a> {
    fn new(process: &'a SampledProcess) -> Self {
        Self { process, samples: 0, nanos: 0 }
    }

    fn add(&mut self, stack: &CountedStack) {
        self.samples = self.samples.saturating_add(stack.samples);
        self.nanos = self.nanos.saturating_add(stack.nanos);
    }
}

/// Returns the share of one CPU.
fn cpu_percent(nanos: u64, duration: Duration) -> f64 {
    if duration.is_zero() { 0.0 } else { nanos as f64 * 100.0 / duration.as_nanos() as f64 }
}

/// Escapes what a terminal would act on.
fn escape(text: &str) -> String {
    let end = text.char_indices().nth(MAX_NAME_CHARS).map_or(text.len(), |(end, _)| end);
    escape_control(text.get(..end).unwrap_or_default())
}

/// Adds a line, cut to a number of characters.
fn push_line(text: &mut String, line: &str, width: usize) {
    let end = line.char_indices().nth(width).map_or(line.len(), |(end, _)| end);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", line.get(..end).unwrap_or_default().trim_end());
}
