//! Exemplars of points: the largest profile of each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use athanor_profile::data_model::identity::profile_id_of_record;
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::{Labels, ProfileRow};

use super::groups::SeriesGroups;
use super::matched_profiles::MatchedProfiles;
use crate::request::profile_query::{ProfileQueryError, TimeSeriesQuery};
use crate::result::heatmap::common_labels;
use crate::result::partial::ProfileExemplar;
use crate::result::sum_check::{PROFILE_VALUES, add_checked};

/// Point of a group of series.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SeriesPointKey {
    pub(super) group: usize,
    pub(super) point: u64,
}

/// Candidate: the records of one profile that belong to one point.
#[derive(Clone, Copy)]
struct ExemplarCandidate {
    value: i64,
    time: i64,
    /// Id of the record if there is one record, otherwise of the profile. A record id finds only a part of a
    /// profile.
    id: ContentHash,
    profile: ContentHash,
}

impl ExemplarCandidate {
    fn new(row: &ProfileRow, value: i64) -> Self {
        ExemplarCandidate { value, time: row.time, id: row.id, profile: profile_id_of_record(row.id) }
    }

    /// Returns the sort key of exemplars: value, then time, then id.
    fn rank(&self) -> (i64, i64, ContentHash) {
        (self.value, self.time, self.id)
    }
}

/// Returns the largest profile of each point of one source. Points without any value have none. `sums` has
/// the value of each record, in the order of the matches.
///
/// Records that text labels split off one profile are added up. The exemplar is thus the whole profile, or as
/// much of it as the query selects and groups together. A source holds all records of a profile or none.
pub(super) fn largest_exemplars(
    picked: &MatchedProfiles,
    points: &TimeSeriesQuery,
    sums: &[i64],
    groups: &mut SeriesGroups<'_>,
) -> Result<Vec<(SeriesPointKey, ProfileExemplar)>, ProfileQueryError> {
    let mut cell_of = |row: &ProfileRow| {
        let point = points.steps.point_index(row.time)?;
        Some(SeriesPointKey { group: groups.group_of(row.series), point })
    };
    let mut candidates: HashMap<(SeriesPointKey, ContentHash), ExemplarCandidate> = HashMap::new();
    for (row, &sum) in picked.rows().zip(sums) {
        let Some(cell) = cell_of(row) else { continue };
        let next = ExemplarCandidate::new(row, sum);
        match candidates.entry((cell, next.profile)) {
            Entry::Vacant(entry) => drop(entry.insert(next)),
            Entry::Occupied(mut entry) => {
                let sum = entry.get_mut();
                add_checked(&mut sum.value, next.value, PROFILE_VALUES)?;
                sum.id = sum.profile;
            }
        }
    }
    let mut winners: HashMap<SeriesPointKey, (ExemplarCandidate, Option<Labels>)> = HashMap::new();
    for ((cell, _), next) in candidates.into_iter().filter(|(_, candidate)| candidate.value != 0) {
        match winners.entry(cell) {
            Entry::Occupied(known) if known.get().0.rank() >= next.rank() => {}
            entry => drop(entry.insert_entry((next, None))),
        }
    }
    // Full labels are built only for the exemplars.
    let mut labels = picked.label_cache();
    for row in picked.rows() {
        let Some(cell) = cell_of(row) else { continue };
        if let Some((winner, shared)) = winners.get_mut(&cell)
            && winner.profile == profile_id_of_record(row.id)
        {
            let of_record = labels.full_labels(row.series);
            *shared = Some(match shared.take() {
                Some(before) => common_labels(before, of_record),
                None => of_record.clone(),
            });
        }
    }
    let shown = |(cell, (ExemplarCandidate { value, time, id, .. }, labels)): (
        SeriesPointKey,
        (ExemplarCandidate, Option<Labels>),
    )| { (cell, ProfileExemplar { value, time, id, labels: labels.unwrap_or_default() }) };
    Ok(winners.into_iter().map(shown).collect())
}
