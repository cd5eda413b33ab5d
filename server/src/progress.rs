//! Progress on standard error, where that is a terminal and the work is long.

use indicatif::{ProgressBar, ProgressStyle};

/// Files fewer than these are done before one could look.
const MANY_FILES: u64 = 64;
/// As few samples as these, too.
const MANY_SAMPLES: u64 = 8 << 20;
/// And as few bytes.
const MANY_BYTES: u64 = 64 << 20;

/// A bar that counts files.
pub fn files(count: usize, doing: &'static str) -> ProgressBar {
    bar(count as u64, MANY_FILES, doing, "{msg} {wide_bar} {pos}/{len} files, {eta} left")
}

/// A bar that counts samples.
pub fn samples(count: u64, doing: &'static str) -> ProgressBar {
    bar(count, MANY_SAMPLES, doing, "{msg} {wide_bar} {human_pos}/{human_len} samples, {eta} left")
}

/// A bar that counts bytes.
pub fn bytes(count: u64, doing: &'static str) -> ProgressBar {
    bar(count, MANY_BYTES, doing, "{msg} {wide_bar} {bytes}/{total_bytes}, {eta} left")
}

fn bar(length: u64, long: u64, doing: &'static str, template: &str) -> ProgressBar {
    if length < long {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    // It draws on standard error, and nothing where that is no terminal.
    ProgressBar::new(length).with_style(style).with_message(doing)
}
