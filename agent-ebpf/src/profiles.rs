//! Stacks of a window as pprof, folded stacks, SVG and tables for the terminal.
//!
//! ```text
//!  SampleWindow + chosen stacks ─► Profile ─► pprof
//!                                     └─► Tree ─► folded stacks, SVG, table of functions
//! ```
//!
//! Every frame stays: one without a name is `file+0x1234` or `[anonymous]`. A stack that is not complete begins with the
//! reason.

mod builder;
mod terminal;

use athanor_profile::Profile;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::formats::{folded, pprof};
use athanor_profile::render::svg;

use crate::window::{CountedStack, SampleWindow};
use builder::ProfileBuilder;

pub use terminal::{TopOptions, write_top};

/// Column of the number of samples.
const SAMPLES_COLUMN: usize = 0;
/// Column of the CPU time.
const CPU_COLUMN: usize = 1;

/// Content of a location whose address has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnnamedFrames {
    /// Address and mapping only: the receiver looks up the name.
    AddressOnly,
    /// Address, mapping and a function such as `libc.so.6+0x1234`.
    Display,
}

/// Returns stacks of a window as a profile of types `samples` and `cpu`. Equal stacks become one row. The order of the
/// stacks does not matter.
pub fn build_profile<'a>(
    window: &SampleWindow,
    stacks: impl Iterator<Item = &'a CountedStack>,
    unnamed: UnnamedFrames,
) -> Profile {
    ProfileBuilder::new(window, unnamed).build(stacks)
}

/// Encodes stacks of a window as uncompressed pprof.
pub fn encode_pprof<'a>(
    window: &SampleWindow,
    stacks: impl Iterator<Item = &'a CountedStack>,
    unnamed: UnnamedFrames,
) -> Vec<u8> {
    pprof::encode(&build_profile(window, stacks, unnamed))
}

/// Writes stacks of a window as folded stacks with the number of samples.
pub fn write_folded<'a>(window: &SampleWindow, stacks: impl Iterator<Item = &'a CountedStack>) -> String {
    let profile = build_profile(window, stacks, UnnamedFrames::Display);
    folded::write(&Tree::from_profile(&profile, SAMPLES_COLUMN))
}

/// Draws stacks of a window as a flame graph of CPU time.
pub fn write_svg<'a>(
    window: &SampleWindow,
    stacks: impl Iterator<Item = &'a CountedStack>,
    title: &str,
) -> String {
    let profile = build_profile(window, stacks, UnnamedFrames::Display);
    svg::write(&Tree::from_profile(&profile, CPU_COLUMN), "nanoseconds", title)
}

#[cfg(test)]
mod tests;
