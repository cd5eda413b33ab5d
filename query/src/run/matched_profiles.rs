//! Profiles of a source that a query selects, and the labels of their series.

use std::collections::HashMap;
use std::sync::Arc;

use athanor_profile::encoding::hash::{ContentHash, PrehashedSet, vec_memory};
use athanor_profile::store_interface::series::BucketCounts;
use athanor_profile::{Labels, ProfileRow, ProfileSeries, ProfileSource, SourceError};

use super::labels::series_labels;
use super::sum_bound::sums_fit;
use crate::request::profile_query::{ProfileQuery, ProfileQueryError, QueryKind, RequiredData};

/// Profiles of a source that a query selects. Finding them is part of execution, and [`run_matched`] runs the
/// query on them.
pub struct MatchedProfiles {
    pub(super) series: Arc<[ProfileSeries]>,
    pub(crate) profiles: Arc<[ProfileRow]>,
    /// Row indexes of the profiles, ascending.
    pub(crate) places: Vec<u32>,
    /// True if the query picks exemplars among them.
    pub(super) has_exemplars: bool,
    /// True if each row is a bucket of a downsampled tier.
    pub(super) is_downsampled: bool,
}

impl MatchedProfiles {
    /// Finds the selected profiles of a source.
    pub fn find_matching(
        ask: &ProfileQuery,
        source: &dyn ProfileSource,
    ) -> Result<MatchedProfiles, ProfileQueryError> {
        MatchedProfiles::find_matching_with(ask, ask.required_data(), source)
    }

    /// Finds the selected profiles, with at least the required columns of each.
    pub(super) fn find_matching_with(
        ask: &ProfileQuery,
        needs: RequiredData,
        source: &dyn ProfileSource,
    ) -> Result<MatchedProfiles, ProfileQueryError> {
        let selection = &ask.selection;
        let series = source.series()?;
        let is_downsampled = source.is_downsampled();
        let compares_ids = !is_downsampled && ask.needs_dedup() && !source.has_distinct_ids()?;
        let reads_ids = needs.profiles || compares_ids || is_downsampled && ask.counts_profiles();
        let profiles = if reads_ids { source.profiles()? } else { source.brief_profiles()? };
        // Full labels are built on use: all of them would take more memory than the series themselves.
        let all = selection.selector.matchers().is_empty();
        let matches = |one: &ProfileSeries| all || selection.selector.matches(&series_labels(one));
        let meant: Vec<bool> = series
            .iter()
            .map(|one| {
                let wanted = &selection.profile_type;
                let of_type = wanted.as_ref().is_none_or(|wanted| one.profile_type() == *wanted);
                of_type && matches(one)
            })
            .collect();
        if profiles.iter().any(|profile| profile.series as usize >= series.len()) {
            return Err(ProfileQueryError::Damaged("a profile has an unknown series"));
        }
        // A bucket is no single profile, and has no id.
        let has_no_match = is_downsampled && ask.required_resolution().single_profiles;
        let is_selected = |profile: &ProfileRow| match is_downsampled {
            true => selection.time.contains(profile.time),
            false => selection.matches_profile(profile),
        };
        let is_meant =
            |profile: &ProfileRow| !has_no_match && meant[profile.series as usize] && is_selected(profile);
        let numbered = (0..).zip(profiles.iter());
        let mut places: Vec<u32> =
            numbered.filter(|(_, profile)| is_meant(profile)).map(|(place, _)| place).collect();
        if compares_ids {
            dedup_by_id(&profiles, &mut places);
        }
        let has_exemplars = matches!(&ask.what, QueryKind::Points(points) if points.exemplars);
        Ok(MatchedProfiles { series, profiles, places, has_exemplars, is_downsampled })
    }

    /// Returns the number of stored profiles that a row stands for.
    pub(super) fn record_count(&self, row: &ProfileRow) -> u64 {
        if self.is_downsampled { BucketCounts::from_row_id(row.id).records } else { 1 }
    }

    /// Returns the row indexes of the profiles, ascending.
    pub fn row_indexes(&self) -> &[u32] {
        &self.places
    }

    /// Returns true if no sum over values of the profiles passes 63 bits. Otherwise the query reads single rows, even if
    /// the source stores sums.
    pub fn sums_fit(&self, source: &dyn ProfileSource) -> Result<bool, SourceError> {
        sums_fit(&self.places, source)
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &ProfileRow> {
        self.places.iter().map(|&place| &self.profiles[place as usize])
    }

    /// Returns a cache of full labels, for a pass over the profiles.
    pub(crate) fn label_cache(&self) -> SeriesLabelCache<'_> {
        SeriesLabelCache { series: &self.series, known: HashMap::new(), most: MAX_CACHED_SERIES_LABELS }
    }

    /// Returns the approximate memory of the matches and of a pass over them, without series and profiles.
    pub fn memory_bytes(&self) -> usize {
        let mut labels = 0;
        let mut largest = 0;
        for series in self.series.iter() {
            labels += series.memory();
            largest = largest.max(series.memory());
        }
        let labels = FULL_LABELS_SIZE_FACTOR * labels.min(MAX_CACHED_SERIES_LABELS * largest);
        let of_candidate = if self.has_exemplars { CANDIDATE_BYTES } else { 0 };
        let places = vec_memory(&self.places) + self.places.len() * (PROFILE_SUM_BYTES + of_candidate);
        labels + places + self.series.len() * SERIES_STATE_BYTES
    }

    /// Returns the series that have a selected profile.
    pub(crate) fn matched_series(&self) -> impl Iterator<Item = &ProfileSeries> {
        let mut seen = vec![false; self.series.len()];
        self.rows().for_each(|row| seen[row.series as usize] = true);
        self.series.iter().zip(seen).filter_map(|(series, seen)| seen.then_some(series))
    }
}

/// Drops all but the first of the selected profiles that have one id. A source holds a profile in two series
/// if label rules changed between its two copies. A copy without rows adds nothing and may precede one that
/// has some.
fn dedup_by_id(profiles: &[ProfileRow], places: &mut Vec<u32>) {
    let mut seen: PrehashedSet<ContentHash> = PrehashedSet::default();
    seen.reserve(places.len());
    places.retain(|&place| {
        let profile = &profiles[place as usize];
        profile.samples == 0 || seen.insert(profile.id)
    });
}

/// Bounded cache of full labels by series. Labels that a result shares do not count. Profiles are mostly
/// sorted by series, and otherwise there are few series.
pub(crate) struct SeriesLabelCache<'p> {
    series: &'p [ProfileSeries],
    known: HashMap<u32, Labels>,
    /// Number of entries at which the cache evicts labels that no result shares.
    most: usize,
}

/// Memory of an exemplar candidate in the map of all candidates.
const CANDIDATE_BYTES: usize = 160;
/// Number of unshared series in the cache.
const MAX_CACHED_SERIES_LABELS: usize = 1024;
/// Memory of a series with full labels, relative to the series alone.
const FULL_LABELS_SIZE_FACTOR: usize = 2;
/// Memory of a profile's sum, and of its second row index in groups.
const PROFILE_SUM_BYTES: usize = 40;
/// Memory of the state of each series: selected, seen and complete flags, and a count of selected profiles.
const SERIES_STATE_BYTES: usize = 16;

impl SeriesLabelCache<'_> {
    /// Returns the full labels of a series, by its index.
    pub(crate) fn full_labels(&mut self, series: u32) -> &Labels {
        if self.known.len() >= self.most && !self.known.contains_key(&series) {
            // Rebuilding labels that a result shares would store them a second time.
            self.known.retain(|_, labels| labels.is_shared());
            self.most = self.known.len() + MAX_CACHED_SERIES_LABELS;
        }
        self.known.entry(series).or_insert_with(|| series_labels(&self.series[series as usize]))
    }
}

#[cfg(test)]
mod tests {
    use athanor_profile::store_interface::source::MemorySource;
    use athanor_profile::{Profile, ValueType};

    use super::*;
    use crate::request::profile_query::TimeSeriesQuery;

    #[test]
    fn memory_of_points_counts_exemplar_candidates() {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        let mut source = MemorySource::default();
        (0..10).for_each(|number| source.add(&Labels::default(), &profile, number));
        let memory = |exemplars: bool| {
            let what = QueryKind::Points(TimeSeriesQuery { exemplars, ..TimeSeriesQuery::default() });
            MatchedProfiles::find_matching(&ProfileQuery { what, ..ProfileQuery::default() }, &source)
                .unwrap()
                .memory_bytes()
        };
        assert_eq!(memory(true), memory(false) + 10 * CANDIDATE_BYTES);
    }

    #[test]
    fn full_labels_are_those_of_the_series_and_few_are_known_at_once() {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        let mut source = MemorySource::default();
        let count = MAX_CACHED_SERIES_LABELS as u32 + 10;
        for number in 0..count {
            let pod = [("pod".to_owned(), number.to_string())];
            source.add(&Labels::new(pod), &profile, u128::from(number));
        }
        let picked = MatchedProfiles::find_matching(&ProfileQuery::default(), &source).unwrap();
        let mut labels = picked.label_cache();
        for series in (0..count).chain((0..count).rev()) {
            let expected = series_labels(&picked.series[series as usize]);
            assert_eq!(labels.full_labels(series), &expected);
            assert!(labels.known.len() <= MAX_CACHED_SERIES_LABELS);
        }
        let held: Vec<Labels> = (0..count).map(|series| labels.full_labels(series).clone()).collect();
        for series in (0..count).rev() {
            assert!(labels.full_labels(series).is_same(&held[series as usize]), "{series}");
        }
        drop(held);
        let mut labels = picked.label_cache();
        (0..count).for_each(|series| drop(labels.full_labels(series).clone()));
        assert!(labels.known.len() <= MAX_CACHED_SERIES_LABELS);
        let known: usize = labels.known.values().map(Labels::memory).sum();
        assert!(picked.memory_bytes() >= known, "{} {known}", picked.memory_bytes());
    }
}
