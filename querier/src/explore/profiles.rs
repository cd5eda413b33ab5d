//! The single profiles that a query merges.

mod wire;

/// Most profiles that are put in order: those of all pages up to the last one that is asked for.
const MAX_LISTED: u64 = 100_000;

/// An id as profile id selectors take it.
fn uuid(id: u128) -> String {
    let digits = format!("{id:032x}");
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_uuids() {
        assert_eq!(uuid(0x0123_4567_89ab_cdef), "00000000-0000-0000-0123-456789abcdef");
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-ffff-ffff-ffffffffffff");
    }
}
