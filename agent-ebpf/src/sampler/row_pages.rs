//! Pages of unwind rows in the maps of the kernel.

use crate::frame::FileId;
use crate::kernel::{KernelError, KernelSampler};
use crate::layout::{PAGE_EMPTY, PAGE_LOADED, PageKey, PageValue, UnwindRow};
use crate::unwind_rows::{CachedPage, RowCache};

use super::object_files::ObjectFiles;

/// Share of the capacity for rows beyond which the use of pages is read from the kernel, as a divisor.
const USE_TRACKING_DIVISOR: u64 = 2;

/// Pages of rows, with their bound.
pub(super) struct RowPages {
    cache: RowCache,
    max_bytes: u64,
}

impl RowPages {
    pub(super) fn new(max_bytes: u64, max_pages: usize) -> Self {
        Self { cache: RowCache::new(max_bytes, max_pages), max_bytes }
    }

    /// Loads a page of an open file, or all pages of the file if it is small.
    pub(super) fn load(
        &mut self,
        kernel: &mut KernelSampler,
        files: &mut ObjectFiles,
        key: PageKey,
    ) -> Result<(), KernelError> {
        let window = kernel.window();
        let file = FileId(key.file);
        let requested = key.page;
        files.touch(file, window);
        let Some(source) = files.rows(file) else { return Ok(()) };
        let mut pages = if source.is_small() { source.all_pages() } else { Vec::new() };
        // The requested one first, also if the file has no code there.
        pages.retain(|page| *page != key.page);
        pages.insert(0, key.page);
        for page in pages {
            let key = PageKey { file: key.file, page };
            if let Some(cached) = self.cache.get(key).copied()
                && cached.block.is_some()
            {
                // The kernel side has lost the page that it requests.
                if page == requested {
                    self.publish(kernel, key, cached, window)?;
                }
                continue;
            }
            let Some(source) = files.rows(file) else { return Ok(()) };
            // A page whose rows cannot be read has none: frame pointers may do.
            let rows = source.rows_of_page(page).unwrap_or_default();
            self.place(kernel, key, &rows, window)?;
        }
        Ok(())
    }

    fn place(
        &mut self,
        kernel: &mut KernelSampler,
        key: PageKey,
        rows: &[UnwindRow],
        window: u64,
    ) -> Result<(), KernelError> {
        let row_count = rows.len() as u32;
        let Some(page) = self.insert(kernel, key, row_count, window)? else {
            // All of the capacity is in use in this window.
            return kernel.remove_page(key);
        };
        if let Some(block) = page.block
            && let Err(error) = kernel.write_rows(block.chunk, block.first_row, rows)
        {
            let retired = self.cache.remove_page(key);
            self.remove_retired(kernel, &retired)?;
            return Err(error);
        }
        self.publish(kernel, key, page, window)
    }

    /// Sets the page in the map of the kernel. Its rows are written.
    fn publish(
        &mut self,
        kernel: &mut KernelSampler,
        key: PageKey,
        page: CachedPage,
        window: u64,
    ) -> Result<(), KernelError> {
        let mut value = PageValue {
            state: PAGE_EMPTY,
            chunk: 0,
            first_row: 0,
            row_count: 0,
            used_in: window as u32,
            reserved: 0,
        };
        if let Some(block) = page.block {
            value.state = PAGE_LOADED;
            value.chunk = block.chunk;
            value.first_row = block.first_row;
            value.row_count = block.row_count;
        }
        let set = kernel.set_page(key, &value);
        if set.is_err() {
            let retired = self.cache.remove_page(key);
            self.remove_retired(kernel, &retired)?;
        }
        set
    }

    fn insert(
        &mut self,
        kernel: &mut KernelSampler,
        key: PageKey,
        row_count: u32,
        window: u64,
    ) -> Result<Option<CachedPage>, KernelError> {
        if let Some(page) = self.cache.insert(key, row_count, window) {
            return Ok(Some(page));
        }
        let retired = self.cache.evict(row_count, window);
        self.remove_retired(kernel, &retired)?;
        Ok(self.cache.insert(key, row_count, window))
    }

    fn remove_retired(
        &mut self,
        kernel: &mut KernelSampler,
        retired: &crate::unwind_rows::RetiredPages,
    ) -> Result<(), KernelError> {
        for key in &retired.pages {
            kernel.remove_page(*key)?;
        }
        // Rows that a program still reads are written over only after `write_rows` has waited for it.
        for chunk in self.cache.reclaim(retired.generation) {
            kernel.free_chunk(chunk)?;
        }
        Ok(())
    }

    /// Removes all pages of a file.
    pub(super) fn remove_file(
        &mut self,
        kernel: &mut KernelSampler,
        file: FileId,
    ) -> Result<(), KernelError> {
        let retired = self.cache.remove_file(file.0);
        self.remove_retired(kernel, &retired)
    }

    /// Reads from the kernel which pages were used, if the capacity may run out.
    pub(super) fn track_use(&mut self, kernel: &KernelSampler) -> Result<(), KernelError> {
        if self.cache.arena().chunk_bytes() < self.max_bytes / USE_TRACKING_DIVISOR {
            return Ok(());
        }
        let window = kernel.window();
        for key in self.cache.keys() {
            let Some(value) = kernel.get_page(key)? else { continue };
            // The low bits of a recent window.
            let age = (window as u32).wrapping_sub(value.used_in);
            self.cache.touch(key, window.saturating_sub(u64::from(age)));
        }
        Ok(())
    }

    pub(super) fn cache(&self) -> &RowCache {
        &self.cache
    }
}
