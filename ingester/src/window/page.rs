//! What a window knows, in pages: for the shard that comes after.
//!
//! Pages are in the order of ids, so that one goes on where the last one ended whatever was written, merged and forgotten
//! in between: whatever was known when the first page was read, and is not too old, is in one of them.

use std::sync::Mutex;

use athanor_profile::hash::Hash;

use super::run::{self, Pages, RunError};
use super::{Window, age};
use crate::machine::lock;

/// Some ids of a window, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The ids.
    pub ids: Vec<Hash>,
    /// There may be more behind the last one.
    pub more: bool,
    /// The log's time, as ids are told apart by it: who asks again only for what is not older misses nothing.
    pub age: u32,
    /// How long ids are remembered, nanoseconds.
    pub span: u64,
}

impl Window {
    /// At most so many ids behind one, of those that came at an age or later. Reads files, without holding the window.
    pub fn page(
        window: &Mutex<Self>,
        after: Option<Hash>,
        since: u32,
        most: usize,
    ) -> Result<Page, RunError> {
        let (shelf, runs, mut ids, oldest, mut page) = {
            let this = lock(window);
            let now = this.now();
            let oldest = now.oldest().max(since);
            let mut ids = Vec::new();
            for (arrival, some) in this.recent.arrivals().filter(|(arrival, _)| age(arrival.stamp) >= oldest)
            {
                debug_assert!(arrival.stamp <= now.stamp, "nothing comes from later on");
                ids.extend(some.filter(|&id| after.is_none_or(|after| id > after)));
            }
            let page = Page { age: age(now.stamp), span: now.span, ..Page::default() };
            (this.shelf(), this.runs.clone(), ids, oldest, page)
        };
        for run in runs.into_iter().filter(|run| run.newest >= oldest) {
            let mut pages = Pages::behind(&*shelf.disk, run, after);
            let mut found = 0;
            while found < most
                && let Some(record) = pages.next()?
            {
                let id = run::id(&record);
                if run::age(&record) >= oldest && after.is_none_or(|after| id > after) {
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
