//! Property tests of prefixes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Fewest aligned blocks for a range of a small space, by trying all first blocks.
fn fewest_blocks(start: u64, end: u64) -> usize {
    let mut fewest = vec![0_usize; usize::try_from(end - start).unwrap() + 1];
    for position in (0..end - start).rev() {
        let address = start + position;
        let blocks = (0..=address.trailing_zeros().min(20)).map(|bits| 1_u64 << bits);
        let reachable = blocks.filter(|block| address + block <= end);
        let best = reachable.map(|block| fewest[usize::try_from(position + block).unwrap()]).min();
        fewest[usize::try_from(position).unwrap()] = 1 + best.unwrap();
    }
    fewest[0]
}

fn size(prefix: AddressPrefix) -> u128 {
    1 << (64 - prefix.bits)
}

proptest! {
    #[test]
    fn cover_is_exact_and_without_overlap(first: u64, second: u64) {
        let (start, end) = (first.min(second), first.max(second));
        let mut next = u128::from(start);
        let mut count = 0;
        for prefix in cover_with_prefixes(start, end) {
            prop_assert_eq!(u128::from(prefix.address), next, "no gap, no overlap");
            prop_assert_eq!(u128::from(prefix.address) % size(prefix), 0, "aligned");
            prop_assert!(prefix.bits <= 64);
            next += size(prefix);
            count += 1;
        }
        prop_assert_eq!(next, u128::from(end));
        prop_assert!(count <= 126);
    }

    #[test]
    fn cover_is_minimal(base in any::<u32>(), start in 1_u64..600, length in 0_u64..600) {
        let start = (u64::from(base) << 12) + start;
        let count = cover_with_prefixes(start, start + length).count();
        prop_assert_eq!(count, fewest_blocks(start, start + length));
    }

    /// Oracle: the trie after the changes has the entries of an empty trie with the wanted ranges.
    #[test]
    fn changes_turn_loaded_into_wanted(loaded in ranges(), wanted in ranges(), pid: u32) {
        let load = |ranges: &[MappingValue]| -> BTreeMap<Key, MappingValue> {
            PrefixChanges::between(pid, &[], ranges).inserted.into_iter().map(|(key, value)| (sortable(key), value))
                .collect()
        };
        let mut trie = load(&loaded);
        let changes = PrefixChanges::between(pid, &loaded, &wanted);
        for key in &changes.removed {
            prop_assert!(trie.remove(&sortable(*key)).is_some(), "only what is there is removed");
        }
        for (key, value) in &changes.inserted {
            prop_assert_ne!(trie.insert(sortable(*key), *value), Some(*value), "only changes are inserted");
        }
        prop_assert_eq!(trie, load(&wanted));
    }

    /// Oracle: the range of each address.
    #[test]
    fn longest_prefix_finds_range_of_address(ranges in ranges(), pid: u32) {
        let changes = PrefixChanges::between(pid, &[], &ranges);
        for address in (0..0x2000_u64).step_by(7) {
            let expected = ranges.iter().find(|range| (range.start..range.end).contains(&address));
            let matching = changes.inserted.iter().filter(|(key, _)| {
                let shift = 96 - key.prefix_bits;
                u64::from_be(key.address_be).checked_shr(shift) == address.checked_shr(shift)
            });
            let longest = matching.max_by_key(|(key, _)| key.prefix_bits).map(|(_, value)| value);
            prop_assert_eq!(longest, expected);
        }
    }
}

type Key = (u32, u32, u64);

fn sortable(key: MappingKey) -> Key {
    (key.prefix_bits, key.pid_be, key.address_be)
}

/// Ranges without overlap, some of which have the same place in two results.
fn ranges() -> impl Strategy<Value = Vec<MappingValue>> {
    prop::collection::vec((0_u64..40, 1_u64..40, 0_u32..2), 0..12).prop_map(|parts| {
        let mut start = 0;
        let range = |(gap, length, file): (u64, u64, u32)| {
            start += gap * 16;
            let end = start + length * 16;
            let value = MappingValue { start, end, bias: 0, file, reserved: 0 };
            start = end;
            value
        };
        parts.into_iter().map(range).collect()
    })
}

#[test]
fn edges_of_the_address_space_are_covered() {
    assert_eq!(cover_with_prefixes(5, 5).count(), 0);
    assert_eq!(cover_with_prefixes(6, 5).count(), 0);
    assert_eq!(cover_with_prefixes(0, u64::MAX).count(), 64);
    assert_eq!(cover_with_prefixes(1, u64::MAX).count(), 126);
    let last: Vec<_> = cover_with_prefixes(u64::MAX - 1, u64::MAX).collect();
    assert_eq!(last, [AddressPrefix { address: u64::MAX - 1, bits: 64 }]);
    let page: Vec<_> = cover_with_prefixes(0x7000, 0x8000).collect();
    assert_eq!(page, [AddressPrefix { address: 0x7000, bits: 52 }]);
}

#[test]
fn key_is_big_endian() {
    let key = AddressPrefix { address: 0x7000, bits: 52 }.key(0x0102);
    assert_eq!(key.prefix_bits, 84);
    assert_eq!(key.pid_be.to_ne_bytes(), [0, 0, 1, 2]);
    assert_eq!(key.address_be.to_ne_bytes(), [0, 0, 0, 0, 0, 0, 0x70, 0]);
}
