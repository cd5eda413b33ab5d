//! Subtracting, while a batch is made: what its uploads add to what was counted before them.

use std::sync::{Arc, Mutex};

use athanor_profile::Dictionary;
use athanor_profile::hash::{Hash, HashedMap};

use crate::counted::{Counted, Step, key};
use crate::counters::{Count, Counters, Tally};
use crate::machine::lock;
use crate::rows::{Sent, kept, normalise};
use crate::window::Window;

/// One batch.
pub struct Counting {
    counters: Arc<Counters>,
    window: Arc<Mutex<Window>>,
    /// What will be counted after the uploads that are in the batch, and how many of their records count.
    next: HashedMap<Hash, Arc<Count>>,
    open: usize,
    tally: Tally,
    /// The same of the upload that is looked at.
    upload: Vec<(Hash, Arc<Count>)>,
    of_upload: Tally,
}

/// A record that may count.
pub struct Candidate {
    pub id: Hash,
    /// What its series counts under.
    pub counter: Hash,
    pub time: i64,
    /// Its upload is of another process than the one before.
    pub anew: bool,
}

impl Counting {
    /// A batch, after all that was prepared before it.
    pub fn new(counters: Arc<Counters>, window: Arc<Mutex<Window>>) -> Self {
        Self {
            counters,
            window,
            next: HashedMap::default(),
            open: 0,
            tally: Tally::default(),
            upload: Vec::new(),
            of_upload: Tally::default(),
        }
    }

    /// Whether a series counts less at a time than it did before.
    pub fn fell(&self, counter: Hash, time: i64, rows: &[Sent], dictionary: &Dictionary) -> bool {
        let before = self.find(counter);
        before.is_some_and(|before| {
            before.time < time && !before.counted.may_become(&counted(rows, dictionary))
        })
    }

    /// Leaves of a record's rows what they add, and says what it does to its series; none of a repeat, whose rows are not
    /// looked at again: what it says was counted when it came first.
    pub fn subtract(
        &mut self,
        candidate: &Candidate,
        rows: &mut Vec<Sent>,
        dictionary: &Dictionary,
    ) -> Option<Step> {
        if lock(&self.window).knows(candidate.id) {
            rows.clear();
            return None;
        }
        let before = self.find(candidate.counter);
        if before.as_ref().is_some_and(|before| before.time >= candidate.time) {
            // A later profile of its process has said all that it says.
            rows.clear();
            self.of_upload.late += 1;
            return Some(Step::Nothing);
        }
        let counted = counted(rows, dictionary);
        let step = match before {
            Some(before) if !candidate.anew => {
                for same in rows.chunk_by_mut(|a, b| a.key() == b.key()) {
                    let said = before.counted.value(key(same[0].key(), dictionary));
                    same[0].value = same[0].value.wrapping_sub(said);
                }
                normalise(rows);
                self.of_upload.subtracted += 1;
                Step::Adds
            }
            before => {
                let known = before.is_some();
                self.of_upload.restarts += u64::from(known);
                self.of_upload.first += u64::from(!known);
                Step::Begins
            }
        };
        if !rows.is_empty() {
            let count = Count { index: 0, time: candidate.time, counted };
            self.upload.push((candidate.counter, Arc::new(count)));
        }
        Some(step)
    }

    fn find(&self, counter: Hash) -> Option<Arc<Count>> {
        let of_upload = self.upload.iter().rev().find(|(of, _)| *of == counter).map(|(_, count)| count);
        let here = of_upload.or_else(|| self.next.get(&counter)).map(Arc::clone);
        here.or_else(|| self.counters.find(counter))
    }

    /// The upload that was looked at is in the batch, or it is not.
    pub fn decide(&mut self, is_in: bool) {
        let (upload, tally) = (std::mem::take(&mut self.upload), std::mem::take(&mut self.of_upload));
        if is_in {
            self.open += upload.len();
            self.next.extend(upload);
            self.tally += tally;
        }
    }

    /// The batch is on its way.
    pub fn launch(self, token: u64) {
        self.counters.launch(token, self.open, self.next, self.tally);
    }
}

fn counted(rows: &[Sent], dictionary: &Dictionary) -> Counted {
    Counted::of(kept(rows).map(|(same, sum)| (key(same[0].key(), dictionary), sum)).collect())
}
