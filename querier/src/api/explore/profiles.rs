//! The single profiles that a query merges.

mod wire;

/// Maximum number of profiles that are sorted: those of all pages up to the last requested one.
const MAX_LISTED_PROFILES: u64 = 100_000;
