//! Settings of pages.

mod wire;

/// What names of their notes begin with.
const SETTING_KEY_PREFIX: &str = "setting/";
/// The longest name.
const MAX_SETTING_NAME_BYTES: usize = 256;
