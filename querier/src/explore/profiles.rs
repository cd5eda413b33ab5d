//! The single profiles that a query merges.

mod wire;

/// Most profiles that are put in order: those of all pages up to the last one that is asked for.
const MAX_LISTED_PROFILES: u64 = 100_000;
