//! Progress on standard error, where that is a terminal and the work is long.

use indicatif::{ProgressBar, ProgressStyle};

/// Files fewer than these are done before one could look.
const MIN_FILES_FOR_BAR: u64 = 64;
/// As few samples as these, too.
const MIN_SAMPLES_FOR_BAR: u64 = 8 << 20;
/// And as few bytes.
const MIN_BYTES_FOR_BAR: u64 = 64 << 20;

/// A bar that counts files.
pub fn files(count: usize, doing: &'static str) -> ProgressBar {
    bar(count as u64, MIN_FILES_FOR_BAR, doing, "{msg} {wide_bar} {pos}/{len} files, {eta} left")
}

/// A bar that counts samples.
pub fn samples(count: u64, doing: &'static str) -> ProgressBar {
    bar(count, MIN_SAMPLES_FOR_BAR, doing, "{msg} {wide_bar} {human_pos}/{human_len} samples, {eta} left")
}

/// A bar that counts bytes.
pub fn bytes(count: u64, doing: &'static str) -> ProgressBar {
    bar(count, MIN_BYTES_FOR_BAR, doing, "{msg} {wide_bar} {bytes}/{total_bytes}, {eta} left")
}

fn bar(length: u64, long: u64, doing: &'static str, template: &str) -> ProgressBar {
    if length < long {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    // It draws on standard error, and nothing where that is no terminal.
    ProgressBar::new(length).with_style(style).with_message(doing)
}
