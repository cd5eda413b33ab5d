//! Exemplars of points: the largest profile of each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use athanor_profile::hash::Hash;
use athanor_profile::identity::profile_of;
use athanor_profile::{Labels, ProfileRow};

use super::Picked;
use super::groups::Groups;
use crate::ask::Points;
use crate::heat::common;
use crate::partial::Exemplar;

/// Bytes of a candidate in the map of all of them, about.
pub(super) const CANDIDATE_BYTES: usize = 160;

/// A point of a group of series.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CellKey {
    pub(super) group: usize,
    pub(super) point: u64,
}

/// The records of one profile that lie in one cell.
#[derive(Clone, Copy)]
struct Candidate {
    value: i64,
    time: i64,
    /// Of the record where there is one, else of the profile: the id of a record finds only a part of a profile.
    id: Hash,
    profile: Hash,
}

impl Candidate {
    fn new(row: &ProfileRow, value: i64) -> Self {
        Candidate { value, time: row.time, id: row.id, profile: profile_of(row.id) }
    }

    /// Order of exemplars: by value, then time, then id.
    fn rank(&self) -> (i64, i64, Hash) {
        (self.value, self.time, self.id)
    }
}

/// Returns the largest profile of each point of one source; none where nothing has a value. `sums` has the value of each
/// record.
///
/// Records that text labels split off one profile are added up, so the exemplar is the whole profile, or as much of it as
/// the query selects and groups together. A source holds all records of a profile or none.
pub(super) fn largest(
    picked: &Picked,
    points: &Points,
    sums: &HashMap<u32, i64>,
    groups: &mut Groups<'_>,
) -> Vec<(CellKey, Exemplar)> {
    let mut cell_of = |row: &ProfileRow| {
        let point = points.steps.place(row.time)?;
        Some(CellKey { group: groups.of(row.series), point })
    };
    let mut candidates: HashMap<(CellKey, Hash), Candidate> = HashMap::new();
    for &place in &picked.places {
        let row = &picked.profiles[place as usize];
        let Some(cell) = cell_of(row) else { continue };
        let next = Candidate::new(row, sums.get(&place).copied().unwrap_or_default());
        match candidates.entry((cell, next.profile)) {
            Entry::Vacant(entry) => drop(entry.insert(next)),
            Entry::Occupied(mut entry) => {
                let sum = entry.get_mut();
                sum.value = sum.value.wrapping_add(next.value);
                sum.id = sum.profile;
            }
        }
    }
    let mut winners: HashMap<CellKey, (Candidate, Option<Labels>)> = HashMap::new();
    for ((cell, _), next) in candidates.into_iter().filter(|(_, candidate)| candidate.value != 0) {
        match winners.entry(cell) {
            Entry::Occupied(known) if known.get().0.rank() >= next.rank() => {}
            entry => drop(entry.insert_entry((next, None))),
        }
    }
    // Full labels are made for the winners alone.
    let mut labels = picked.labels();
    for row in picked.rows() {
        let Some(cell) = cell_of(row) else { continue };
        if let Some((winner, shared)) = winners.get_mut(&cell)
            && winner.profile == profile_of(row.id)
        {
            let of_record = labels.of(row.series);
            *shared = Some(match shared.take() {
                Some(before) => common(before, of_record),
                None => of_record.clone(),
            });
        }
    }
    let shown =
        |(cell, (Candidate { value, time, id, .. }, labels)): (CellKey, (Candidate, Option<Labels>))| {
            (cell, Exemplar { value, time, id, labels: labels.unwrap_or_default() })
        };
    winners.into_iter().map(shown).collect()
}
