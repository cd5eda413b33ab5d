//! Settings of user interfaces.

mod wire;

/// Prefix of setting keys in the catalog.
const SETTING_KEY_PREFIX: &str = "setting/";
/// Maximum length of a setting name in bytes.
const MAX_SETTING_NAME_BYTES: usize = 256;
