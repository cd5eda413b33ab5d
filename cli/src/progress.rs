//! Progress bars on standard error, only on a terminal and for long work.

use indicatif::{ProgressBar, ProgressStyle};

/// Minimum number of files for a bar. Fewer are done too quickly.
const MIN_FILES_FOR_BAR: u64 = 64;
/// Minimum number of samples for a bar.
const MIN_SAMPLES_FOR_BAR: u64 = 8 << 20;
/// Minimum number of bytes for a bar.
const MIN_BYTES_FOR_BAR: u64 = 64 << 20;

/// Creates a bar that counts files.
pub fn files(count: usize, doing: &'static str) -> ProgressBar {
    bar(count as u64, MIN_FILES_FOR_BAR, doing, "{msg} {wide_bar} {pos}/{len} files, {eta} left")
}

/// Creates a bar that counts samples.
pub fn samples(count: u64, doing: &'static str) -> ProgressBar {
    bar(count, MIN_SAMPLES_FOR_BAR, doing, "{msg} {wide_bar} {human_pos}/{human_len} samples, {eta} left")
}

/// Creates a bar that counts bytes.
pub fn bytes(count: u64, doing: &'static str) -> ProgressBar {
    bar(count, MIN_BYTES_FOR_BAR, doing, "{msg} {wide_bar} {bytes}/{total_bytes}, {eta} left")
}

/// Creates a bar of the exported part of a time range. It is drawn when the first of several pages was read.
pub fn time_range(seconds: u64, doing: &'static str) -> ProgressBar {
    bar(seconds, 0, doing, "{msg} {wide_bar} {percent}% of the time range, {eta} left")
}

fn bar(length: u64, long: u64, doing: &'static str, template: &str) -> ProgressBar {
    if length < long {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    // The bar draws on standard error, and not at all without a terminal.
    ProgressBar::new(length).with_style(style).with_message(doing)
}
