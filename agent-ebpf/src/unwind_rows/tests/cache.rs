//! Arena and cache: blocks do not overlap, and the accounts are exact.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use crate::layout::{PageKey, ROWS_PER_CHUNK};
use crate::unwind_rows::{RowArena, RowBlock, RowCache};

const CHUNK_BYTES: u64 = 256 << 10;

fn assert_no_overlap(blocks: &[RowBlock]) {
    let mut ends: BTreeMap<u32, u32> = BTreeMap::new();
    let mut sorted = blocks.to_vec();
    sorted.sort_unstable();
    for block in sorted {
        let end = ends.entry(block.chunk).or_default();
        assert!(block.first_row >= *end, "{block:?} begins before {end}");
        *end = block.first_row + block.row_count;
        assert!(*end <= ROWS_PER_CHUNK);
    }
}

#[derive(Clone, Debug)]
enum ArenaStep {
    Allocate(u32),
    Free(prop::sample::Index),
}

fn arena_step() -> impl Strategy<Value = ArenaStep> {
    let rows = prop_oneof![4 => 1u32..2000, 1 => 2000u32..ROWS_PER_CHUNK + 10];
    prop_oneof![
        3 => rows.prop_map(ArenaStep::Allocate),
        2 => any::<prop::sample::Index>().prop_map(ArenaStep::Free),
    ]
}

proptest! {
    #[test]
    fn blocks_do_not_overlap(steps in prop::collection::vec(arena_step(), 1..200)) {
        let mut arena = RowArena::new(3 * CHUNK_BYTES + 100);
        let mut blocks: Vec<RowBlock> = Vec::new();
        for step in steps {
            match step {
                ArenaStep::Allocate(rows) => match arena.allocate(rows) {
                    Some(block) => {
                        prop_assert_eq!(block.row_count, rows);
                        prop_assert!(block.chunk < 3);
                        blocks.push(block);
                    }
                    // No range between blocks is large enough.
                    None => prop_assert!(rows > ROWS_PER_CHUNK || largest_gap(&blocks) < rows),
                },
                ArenaStep::Free(_) if blocks.is_empty() => {}
                ArenaStep::Free(index) => {
                    let block = blocks.swap_remove(index.index(blocks.len()));
                    let is_last = blocks.iter().all(|other| other.chunk != block.chunk);
                    prop_assert_eq!(arena.free(block), is_last);
                    prop_assert!(!arena.free(block), "a block is freed once");
                }
            }
            assert_no_overlap(&blocks);
            let rows: u64 = blocks.iter().map(|block| u64::from(block.row_count)).sum();
            prop_assert_eq!(arena.used_rows(), rows);
            let chunks = (0..3).filter(|chunk| blocks.iter().any(|block| block.chunk == *chunk)).count();
            prop_assert_eq!(arena.chunk_bytes(), chunks as u64 * CHUNK_BYTES);
        }
    }
}

fn largest_gap(blocks: &[RowBlock]) -> u32 {
    let mut largest = 0;
    for chunk in 0..3 {
        let mut used: Vec<RowBlock> = blocks.iter().filter(|block| block.chunk == chunk).copied().collect();
        used.sort_unstable();
        let mut end = 0;
        for block in used {
            largest = largest.max(block.first_row - end);
            end = block.first_row + block.row_count;
        }
        largest = largest.max(ROWS_PER_CHUNK - end);
    }
    largest
}

#[test]
fn arena_without_memory_allocates_nothing() {
    assert_eq!(RowArena::new(CHUNK_BYTES - 1).allocate(1), None);
    assert_eq!(RowArena::new(CHUNK_BYTES).allocate(0), None);
}

fn key(file: u32, page: u32) -> PageKey {
    PageKey { file, page }
}

#[test]
fn least_recently_used_pages_leave_first() {
    let mut cache = RowCache::new(CHUNK_BYTES, 100);
    for page in 0..4 {
        cache.insert(key(1, page), ROWS_PER_CHUNK / 4, u64::from(page)).unwrap();
    }
    cache.touch(key(1, 0), 9);
    cache.touch(key(1, 3), 1);
    assert_eq!(cache.insert(key(2, 0), 100, 9), None);
    let retired = cache.evict(100, 9);
    assert_eq!(retired.pages, [key(1, 1)]);
    // The rows stay in place until no program reads them.
    assert_eq!(cache.insert(key(2, 0), 100, 9), None);
    assert!(cache.reclaim(retired.generation - 1).is_empty());
    assert_eq!(cache.insert(key(2, 0), 100, 9), None);
    assert!(cache.reclaim(retired.generation).is_empty());
    let page = cache.insert(key(2, 0), 100, 9).unwrap();
    assert_eq!(page.block.unwrap().first_row, ROWS_PER_CHUNK / 4);
    // Pages that this window used do not leave.
    let retired = cache.evict(ROWS_PER_CHUNK, 9);
    assert_eq!(retired.pages, [key(1, 2), key(1, 3)]);
    assert_eq!(cache.evicted_pages(), 3);
    assert_eq!(cache.page_count(), 2);
}

#[test]
fn eviction_ends_when_neighbors_make_enough_space() {
    let mut cache = RowCache::new(CHUNK_BYTES, 100);
    // By use, pages that are not neighbors follow each other.
    for (window, page) in [0u32, 2, 4, 1, 3, 5, 6, 7].into_iter().enumerate() {
        let _ = cache.insert(key(1, window as u32), ROWS_PER_CHUNK / 8, u64::from(page)).unwrap();
    }
    let retired = cache.evict(ROWS_PER_CHUNK / 4, 100);
    // Blocks 0, 3, 1: the first and the last of them are neighbors.
    assert_eq!(retired.pages, [key(1, 0), key(1, 3), key(1, 1)]);
    cache.reclaim(retired.generation);
    assert!(cache.insert(key(2, 0), ROWS_PER_CHUNK / 4, 100).is_some());
}

#[test]
fn pages_of_a_file_leave_together() {
    let mut cache = RowCache::new(CHUNK_BYTES, 3);
    cache.insert(key(1, 0), 10, 1).unwrap();
    cache.insert(key(2, 0), 0, 1).unwrap();
    cache.insert(key(1, 7), 10, 2).unwrap();
    assert_eq!(cache.insert(key(3, 0), 0, 2), None, "the number of pages is bounded");
    let retired = cache.remove_file(1);
    assert_eq!(retired.pages, [key(1, 0), key(1, 7)]);
    assert_eq!(cache.reclaim(retired.generation), [0], "the chunk is empty");
    assert_eq!((cache.arena().used_rows(), cache.arena().chunk_bytes()), (0, 0));
    assert_eq!(cache.evicted_pages(), 0);
}

#[test]
fn page_without_rows_gets_them_later() {
    let mut cache = RowCache::new(CHUNK_BYTES, 3);
    assert_eq!(cache.insert(key(1, 0), 0, 1).unwrap().block, None);
    let page = cache.insert(key(1, 0), 5, 2).unwrap();
    assert_eq!(cache.insert(key(1, 0), 5, 3), Some(page));
    assert_eq!(cache.insert(key(1, 0), 6, 3), None);
    assert_eq!(cache.keys(), [key(1, 0)]);
}

proptest! {
    #[test]
    fn cache_stays_in_its_bounds(pages in prop::collection::vec((0u32..4, 0u32..30, 0u32..9000, 0u64..3), 1..300)) {
        let mut cache = RowCache::new(2 * CHUNK_BYTES, 40);
        let mut window = 1;
        let mut placed: HashMap<PageKey, RowBlock> = HashMap::new();
        for (file, page, rows, windows) in pages {
            window += windows;
            let key = key(file, page);
            if placed.get(&key).is_some_and(|block| block.row_count != rows) {
                continue;
            }
            let mut found = cache.insert(key, rows, window);
            if found.is_none() {
                let retired = cache.evict(rows, window + 1);
                placed.retain(|key, _| !retired.pages.contains(key));
                cache.reclaim(retired.generation);
                found = cache.insert(key, rows, window);
            }
            let found = found.expect("eviction makes space");
            placed.extend(found.block.map(|block| (key, block)));
            let blocks: Vec<RowBlock> = placed.values().copied().collect();
            assert_no_overlap(&blocks);
            prop_assert!(cache.page_count() <= 40);
            prop_assert!(cache.arena().chunk_bytes() <= 2 * CHUNK_BYTES);
            let used: u64 = blocks.iter().map(|block| u64::from(block.row_count)).sum();
            prop_assert_eq!(cache.arena().used_rows(), used);
        }
    }
}
