//! Pages of the ids in a dedup window, which a successor copies.
//!
//! Pages follow the order of ids. So a page continues the one before, whatever was written, merged and
//! forgotten in between. Each id that was known when the first page was read, and is not too old, is in one
//! of them.

use athanor_profile::encoding::hash::ContentHash;
use parking_lot::Mutex;

use super::sorted_run::{self, RunError, RunReader};
use super::{DedupWindow, age};

/// Page of ids of a window, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdPage {
    /// IDs of the page, ascending.
    pub ids: Vec<ContentHash>,
    /// True if more ids may follow the last one.
    pub more: bool,
    /// Log time of the page, in units of an id's age. A later copy of ids that are not older misses none.
    pub age: u32,
    /// Time for which ids are kept, nanoseconds.
    pub span: u64,
}

impl DedupWindow {
    /// Returns at most `most` ids after `after`, of those that arrived at age `since` or later. Reads files
    /// without the lock of the window.
    pub fn page(
        window: &Mutex<Self>,
        after: Option<ContentHash>,
        since: u32,
        most: usize,
    ) -> Result<IdPage, RunError> {
        let (shelf, runs, mut ids, oldest, mut page) = {
            let this = window.lock();
            let now = this.now();
            let oldest = now.oldest().max(since);
            let mut ids = Vec::new();
            for (arrival, some) in this.recent.arrivals().filter(|(arrival, _)| age(arrival.stamp) >= oldest)
            {
                debug_assert!(arrival.stamp <= now.stamp, "nothing comes from later on");
                ids.extend(some.filter(|&id| after.is_none_or(|after| id > after)));
            }
            let page = IdPage { age: age(now.stamp), span: now.span, ..IdPage::default() };
            (this.run_files(), this.runs.clone(), ids, oldest, page)
        };
        for run in runs.into_iter().filter(|run| run.newest >= oldest) {
            let mut pages = RunReader::after_id(&*shelf.disk, run, after);
            let mut found = 0;
            while found < most
                && let Some(record) = pages.next()?
            {
                let id = sorted_run::record_id(&record);
                if sorted_run::record_age(&record) >= oldest && after.is_none_or(|after| id > after) {
                    ids.push(id);
                    found += 1;
                }
            }
            pages.sound()?;
            page.more |= found == most;
        }
        ids.sort_unstable();
        ids.dedup();
        page.more |= ids.len() > most;
        ids.truncate(most);
        page.ids = ids;
        Ok(page)
    }
}
