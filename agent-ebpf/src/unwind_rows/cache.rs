//! Pages of rows that are loaded, and the order in which they leave.

use std::collections::{BTreeSet, HashMap};

use super::arena::{RowArena, RowBlock};
use crate::layout::PageKey;

/// Key that no other is before.
const FIRST_PAGE: PageKey = PageKey { file: 0, page: 0 };

/// Loaded page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedPage {
    /// Place of its rows. None if it has none.
    pub block: Option<RowBlock>,
    /// Last window in which a sample used it.
    pub used_in: u64,
}

/// Pages that left the cache. Their rows stay in place until [`RowCache::reclaim`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetiredPages {
    /// Pages whose entries the caller deletes.
    pub pages: Vec<PageKey>,
    /// Generation of their blocks.
    pub generation: u64,
}

/// Cache of the pages of all files.
///
/// A program in the kernel may still read rows of a page whose entry is deleted. So the block of a retired page is
/// reused only after the caller has seen all programs leave, and has reclaimed its generation.
#[derive(Debug)]
pub struct RowCache {
    arena: RowArena,
    max_pages: usize,
    pages: HashMap<PageKey, CachedPage>,
    /// Pages by last use, then by key.
    by_use: BTreeSet<(u64, PageKey)>,
    generation: u64,
    retired: Vec<(u64, RowBlock)>,
    evicted_pages: u64,
}

impl RowCache {
    /// Starts empty. `max_bytes` bounds the bytes of chunks, `max_pages` the number of pages.
    pub fn new(max_bytes: u64, max_pages: usize) -> Self {
        Self {
            arena: RowArena::new(max_bytes),
            max_pages,
            pages: HashMap::new(),
            by_use: BTreeSet::new(),
            generation: 0,
            retired: Vec::new(),
            evicted_pages: 0,
        }
    }

    /// Adds a page. Returns it with its place, or None if there is no capacity: the caller evicts pages.
    ///
    /// A page that is present with as many rows, or with none, may be added again: rows of a page that could not be
    /// read come later. With another number of rows it is not added, as its place may be in use: the caller retires it
    /// before.
    pub fn insert(&mut self, key: PageKey, row_count: u32, window: u64) -> Option<CachedPage> {
        if let Some(present) = self.pages.get(&key).copied() {
            let present_rows = present.block.map_or(0, |block| block.row_count);
            if present_rows == row_count {
                return Some(present);
            }
            if present_rows != 0 {
                return None;
            }
            self.pages.remove(&key);
            self.by_use.remove(&(present.used_in, key));
        }
        if self.pages.len() >= self.max_pages {
            return None;
        }
        let block = if row_count == 0 { None } else { Some(self.arena.allocate(row_count)?) };
        let page = CachedPage { block, used_in: window };
        self.pages.insert(key, page);
        self.by_use.insert((window, key));
        Some(page)
    }

    /// Returns a page.
    pub fn get(&self, key: PageKey) -> Option<&CachedPage> {
        self.pages.get(&key)
    }

    /// Notes the use of a page in a window. Earlier windows than the noted one are ignored.
    pub fn touch(&mut self, key: PageKey, window: u64) {
        let Some(page) = self.pages.get_mut(&key) else { return };
        if page.used_in < window {
            self.by_use.remove(&(page.used_in, key));
            page.used_in = window;
            self.by_use.insert((window, key));
        }
    }

    /// Retires the least recently used pages until a page with `row_count` rows has a place when they are reclaimed,
    /// or no page is left that was last used before `window`.
    pub fn evict(&mut self, row_count: u32, window: u64) -> RetiredPages {
        let mut keys = Vec::new();
        let mut trial = self.arena.trial();
        for (_, key) in self.by_use.range(..(window, FIRST_PAGE)) {
            keys.push(*key);
            let block = self.pages.get(key).and_then(|page| page.block);
            if row_count == 0 || block.is_some_and(|block| trial.free(block, row_count)) {
                break;
            }
        }
        self.evicted_pages += keys.len() as u64;
        self.retire(keys)
    }

    /// Retires one page.
    pub fn remove_page(&mut self, key: PageKey) -> RetiredPages {
        self.retire(vec![key])
    }

    /// Retires all pages of a file.
    pub fn remove_file(&mut self, file: u32) -> RetiredPages {
        let mut keys: Vec<PageKey> = self.pages.keys().filter(|key| key.file == file).copied().collect();
        keys.sort_unstable();
        self.retire(keys)
    }

    fn retire(&mut self, pages: Vec<PageKey>) -> RetiredPages {
        self.generation += 1;
        for key in &pages {
            let Some(page) = self.pages.remove(key) else { continue };
            self.by_use.remove(&(page.used_in, *key));
            self.retired.extend(page.block.map(|block| (self.generation, block)));
        }
        RetiredPages { pages, generation: self.generation }
    }

    /// Frees the blocks of a generation and of all earlier ones. Returns the numbers of chunks that are empty now.
    pub fn reclaim(&mut self, generation: u64) -> Vec<u32> {
        let (reclaimed, kept) = self.retired.drain(..).partition(|(retired_in, _)| *retired_in <= generation);
        let reclaimed: Vec<(u64, RowBlock)> = reclaimed;
        self.retired = kept;
        let mut empty = BTreeSet::new();
        for (_, block) in reclaimed {
            if self.arena.free(block) {
                empty.insert(block.chunk);
            }
        }
        empty.into_iter().collect()
    }

    /// Returns the keys of all pages.
    pub fn keys(&self) -> Vec<PageKey> {
        self.pages.keys().copied().collect()
    }

    /// Returns the number of pages.
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Returns the number of pages that were evicted.
    pub fn evicted_pages(&self) -> u64 {
        self.evicted_pages
    }

    /// Returns the arena.
    pub fn arena(&self) -> &RowArena {
        &self.arena
    }
}
