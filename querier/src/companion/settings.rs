//! Settings of pages.

mod wire;

/// What names of their notes begin with.
const PREFIX: &str = "setting/";
/// The longest name.
const MAX_NAME: usize = 256;
