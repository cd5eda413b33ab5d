//! Mappings as prefixes of the trie `mappings`.

use std::collections::HashMap;

use crate::layout::{MappingKey, MappingValue};

const PID_BITS: u32 = 32;
const ADDRESS_BITS: u32 = 64;

/// Range of addresses that share their high bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressPrefix {
    /// First address.
    pub address: u64,
    /// Number of high bits that count, 0 to 64.
    pub bits: u32,
}

/// Entries to change in the trie. Insertions follow removals: together they may have the same key.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PrefixChanges {
    /// Keys to remove.
    pub removed: Vec<MappingKey>,
    /// Entries to insert or to overwrite.
    pub inserted: Vec<(MappingKey, MappingValue)>,
}

/// Iterator over the prefixes of a range.
#[derive(Clone, Debug)]
pub struct PrefixCover {
    next: u64,
    end: u64,
}

// === impl PrefixCover ===

/// Returns the fewest prefixes that cover exactly the addresses from `start` to before `end`, in order. At most 126.
pub fn cover_with_prefixes(start: u64, end: u64) -> PrefixCover {
    PrefixCover { next: start, end }
}

impl Iterator for PrefixCover {
    type Item = AddressPrefix;

    fn next(&mut self) -> Option<AddressPrefix> {
        let rest = self.end.checked_sub(self.next).filter(|rest| *rest > 0)?;
        // The largest block that starts here: it is aligned, and it ends within the range.
        let free_bits = self.next.trailing_zeros().min(rest.ilog2());
        let prefix = AddressPrefix { address: self.next, bits: ADDRESS_BITS - free_bits };
        self.next = self.next.checked_add(1_u64.checked_shl(free_bits)?)?;
        Some(prefix)
    }
}

// === impl AddressPrefix ===

impl AddressPrefix {
    /// Returns the key in the trie.
    pub fn key(self, pid: u32) -> MappingKey {
        MappingKey {
            prefix_bits: PID_BITS + self.bits,
            pid_be: pid.to_be(),
            address_be: self.address.to_be(),
        }
    }
}

// === impl PrefixChanges ===

impl PrefixChanges {
    /// Returns the changes that turn the loaded entries of a process into the wanted ones. Entries that stay as they
    /// are have no change, so samples meanwhile find them. Ranges within `wanted` must not overlap.
    pub fn between(pid: u32, loaded: &[MappingValue], wanted: &[MappingValue]) -> Self {
        let entries = |values: &[MappingValue]| -> HashMap<AddressPrefix, MappingValue> {
            let prefixes = |value: &MappingValue| {
                let value = *value;
                cover_with_prefixes(value.start, value.end).map(move |prefix| (prefix, value))
            };
            values.iter().flat_map(prefixes).collect()
        };
        let unchanged: std::collections::HashSet<&MappingValue> = {
            let loaded: std::collections::HashSet<_> = loaded.iter().collect();
            wanted.iter().filter(|value| loaded.contains(value)).collect()
        };
        let changed = |values: &[MappingValue]| -> Vec<MappingValue> {
            values.iter().filter(|value| !unchanged.contains(value)).copied().collect()
        };
        let loaded = entries(&changed(loaded));
        let wanted = entries(&changed(wanted));
        let mut changes = Self::default();
        let mut removed: Vec<_> =
            loaded.keys().filter(|prefix| !wanted.contains_key(prefix)).copied().collect();
        removed.sort_unstable();
        changes.removed = removed.into_iter().map(|prefix| prefix.key(pid)).collect();
        let mut inserted: Vec<_> =
            wanted.into_iter().filter(|(prefix, value)| loaded.get(prefix) != Some(value)).collect();
        inserted.sort_unstable_by_key(|(prefix, _)| *prefix);
        changes.inserted = inserted.into_iter().map(|(prefix, value)| (prefix.key(pid), value)).collect();
        changes
    }
}

#[cfg(test)]
#[path = "tests/prefixes_tests.rs"]
mod tests;
