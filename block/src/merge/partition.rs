//! Partition of a tenant's series, for windows that are too large for one block.
//!
//! Series are split by service. The series of a service with more than its share are split further, into groups: all
//! series with records of one profile are in one group, because queries add up the records of a profile in one block.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use athanor_profile::data_model::identity::profile_id_of_record;
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::store_interface::series::ProfileSeries;

use crate::format::error::BlockError;
use crate::merge::plan::{TenantSelection, parts_by_tenant};
use crate::merge::selection::RowSelection;
use crate::merge::series_partition::{SeriesGroups, SeriesKey, SeriesPartition, hash_series};
use crate::merge::{MergeOutput, MergeSource};
use crate::reader::profile_stream::{ProfileStream, StoredProfile};

/// Splits the series of a tenant's selected rows into at most `pieces` partitions with about equal numbers of
/// sample rows. The result depends on the rows only. A partition is empty only if the tenant has no rows.
pub fn partition_series(
    sources: &[MergeSource],
    tenant: &str,
    rows: &RowSelection,
    pieces: usize,
) -> Result<Vec<SeriesPartition>, BlockError> {
    let tenants = BTreeSet::from([tenant.to_owned()]);
    let output = MergeOutput { rows: rows.clone(), ..MergeOutput::default() };
    let mut samples: BTreeMap<ProfileSeries, u64> = BTreeMap::new();
    let mut profiles = ProfileSeriesList::default();
    for parts in parts_by_tenant(sources, Some(&tenants)).values() {
        for part in TenantSelection::read(sources, parts, &output)?.parts {
            let series = part.part.read_series()?;
            for (series, rows) in series.into_iter().zip(part.samples_by_series()) {
                if let Some(rows) = rows {
                    *samples.entry(series).or_default() += rows.max(1);
                }
            }
        }
    }
    let services = large_services(&samples, pieces);
    if !services.is_empty() {
        for parts in parts_by_tenant(sources, Some(&tenants)).values() {
            for part in TenantSelection::read(sources, parts, &output)?.parts {
                let series = part.part.read_series()?;
                let places: Vec<Option<u32>> = series
                    .into_iter()
                    .map(|series| services.contains(series.service()).then(|| profiles.place_of(series)))
                    .collect();
                // Rows of a downsampled tier have no IDs, and no query adds up records of one profile there.
                if part.part.is_downsampled() {
                    continue;
                }
                let mut stream = ProfileStream::open(&part.part)?;
                while let Some(StoredProfile { row, .. }) = stream.next_profile()? {
                    if let Some(place) = places[row.series as usize].filter(|_| rows.has_time(row.time)) {
                        profiles.add_record(row.id, place);
                    }
                }
            }
        }
    }
    let groups = Arc::new(profiles.into_groups());
    let mut of_keys: BTreeMap<SeriesKey, u64> = BTreeMap::new();
    samples.iter().for_each(|(series, count)| *of_keys.entry(groups.key(series)).or_default() += count);
    let whole = SeriesPartition { groups, ..rows.series.clone().unwrap_or_default() };
    Ok(split_by_samples(&whole, &of_keys, pieces))
}

/// Returns the services with more samples than a piece should have.
fn large_services(samples: &BTreeMap<ProfileSeries, u64>, pieces: usize) -> BTreeSet<String> {
    let mut services: BTreeMap<&str, u128> = BTreeMap::new();
    for (series, &count) in samples {
        *services.entry(series.service()).or_default() += u128::from(count);
    }
    let total: u128 = services.values().sum();
    let large = services.into_iter().filter(|(_, count)| count * pieces as u128 > total);
    large.map(|(service, _)| service.to_owned()).collect()
}

/// Series of some services, and the profiles with records in them.
#[derive(Default)]
struct ProfileSeriesList {
    places: BTreeMap<ProfileSeries, u32>,
    /// Profile of each record, and the place of its series.
    records: Vec<(u64, u32)>,
}

impl ProfileSeriesList {
    fn place_of(&mut self, series: ProfileSeries) -> u32 {
        let next = self.places.len() as u32;
        *self.places.entry(series).or_insert(next)
    }

    fn add_record(&mut self, record: ContentHash, place: u32) {
        self.records.push(((profile_id_of_record(record) >> 64) as u64, place));
    }

    /// Returns the groups: the least hash of the series that are connected by profiles.
    fn into_groups(mut self) -> SeriesGroups {
        self.records.sort_unstable();
        self.records.dedup();
        let mut groups: Vec<u32> = (0..self.places.len() as u32).collect();
        for pair in self.records.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            let left = find_group(&mut groups, pair[0].1);
            let right = find_group(&mut groups, pair[1].1);
            groups[left.max(right) as usize] = left.min(right);
        }
        let mut least: BTreeMap<u32, ContentHash> = BTreeMap::new();
        let hashes: Vec<(ContentHash, u32)> = self
            .places
            .iter()
            .map(|(series, &place)| (hash_series(series), find_group(&mut groups, place)))
            .collect();
        for &(hash, group) in &hashes {
            least.entry(group).and_modify(|least| *least = hash.min(*least)).or_insert(hash);
        }
        SeriesGroups(hashes.into_iter().map(|(hash, group)| (hash, least[&group])).collect())
    }
}

/// Returns the representative of a group, and shortens the way to it.
fn find_group(groups: &mut [u32], place: u32) -> u32 {
    let mut at = place;
    while groups[at as usize] != at {
        groups[at as usize] = groups[groups[at as usize] as usize];
        at = groups[at as usize];
    }
    at
}

/// Splits a partition at the keys where each piece has its share of the samples.
fn split_by_samples(
    whole: &SeriesPartition,
    samples: &BTreeMap<SeriesKey, u64>,
    pieces: usize,
) -> Vec<SeriesPartition> {
    let pieces = pieces.min(samples.len()).max(1);
    let total: u128 = samples.values().map(|&count| u128::from(count)).sum();
    let mut partitions = Vec::with_capacity(pieces);
    let mut after = whole.after;
    let mut seen = 0u128;
    for (place, (&key, &count)) in samples.iter().enumerate() {
        seen += u128::from(count);
        let left = pieces - partitions.len() - 1;
        let is_full = seen * pieces as u128 >= total * (partitions.len() as u128 + 1);
        // Each later piece needs a series.
        let is_last_chance = samples.len() - place - 1 == left;
        if left > 0 && (is_full || is_last_chance) {
            partitions.push(SeriesPartition { after, until: Some(key), groups: Arc::clone(&whole.groups) });
            after = Some(key);
        }
    }
    partitions.push(SeriesPartition { after, until: whole.until, groups: Arc::clone(&whole.groups) });
    partitions
}

#[cfg(test)]
mod tests {
    use athanor_profile::{Labels, ValueType};

    use super::*;

    fn series(service: &str, pod: u32) -> ProfileSeries {
        let labels = Labels::new([
            ("service_name".to_owned(), service.to_owned()),
            ("pod".to_owned(), pod.to_string()),
        ]);
        ProfileSeries::new(labels, ValueType::new("cpu", "ns"), ValueType::default())
    }

    #[test]
    fn series_that_share_profiles_are_one_group() {
        let mut list = ProfileSeriesList::default();
        let places: Vec<u32> = (0..6).map(|pod| list.place_of(series("shop", pod))).collect();
        for (profile, pods) in [(1u128, [0, 1]), (2, [4, 5]), (3, [1, 4]), (4, [2, 2])] {
            pods.iter().for_each(|&pod| list.add_record(profile << 64 | pod as u128, places[pod]));
        }
        let groups = list.into_groups();
        let key = |pod| groups.key(&series("shop", pod));
        assert!([1, 4, 5].iter().all(|&pod| key(pod) == key(0)));
        let distinct: BTreeSet<SeriesKey> = (0..6).map(key).collect();
        assert_eq!(distinct.len(), 3);
        assert!(!distinct.contains(&groups.key(&series("other", 0))));
    }

    #[test]
    fn only_services_above_their_share_are_split() {
        let samples = [("a", 0, 5), ("a", 1, 6), ("b", 0, 2), ("b", 1, 3)];
        let samples = samples.map(|(service, pod, count)| (series(service, pod), count)).into();
        assert_eq!(large_services(&samples, 1), BTreeSet::new());
        assert_eq!(large_services(&samples, 2), ["a".to_owned()].into());
        assert_eq!(large_services(&samples, 4), ["a".to_owned(), "b".to_owned()].into());
    }
}
