//! Series that a piece of a large window has.

use std::collections::BTreeMap;
use std::sync::Arc;

use athanor_profile::encoding::hash::{ContentHash, hash_bytes};
use athanor_profile::store_interface::series::ProfileSeries;

/// Position of a series in the order by which windows are split: its service, then its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesKey {
    service: ContentHash,
    group: ContentHash,
}

/// Groups of the series of some services, by the hash of the series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesGroups(pub(crate) BTreeMap<ContentHash, ContentHash>);

impl SeriesGroups {
    /// Returns the position of a series.
    pub(crate) fn key(&self, series: &ProfileSeries) -> SeriesKey {
        let service = hash_bytes(series.service().as_bytes());
        let group = match self.0.is_empty() {
            true => 0,
            false => self.0.get(&hash_series(series)).copied().unwrap_or_default(),
        };
        SeriesKey { service, group }
    }
}

/// Consecutive series in the order of [`SeriesKey`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesPartition {
    /// Key before the first series. None for no bound.
    pub after: Option<SeriesKey>,
    /// Key of the last series. None for no bound.
    pub until: Option<SeriesKey>,
    /// Groups of the series.
    pub groups: Arc<SeriesGroups>,
}

impl SeriesPartition {
    /// Returns whether the series belongs to the partition.
    pub fn contains(&self, series: &ProfileSeries) -> bool {
        let key = self.groups.key(series);
        self.after.is_none_or(|after| key > after) && self.until.is_none_or(|until| key <= until)
    }
}

/// Hashes labels and types of a series.
pub(crate) fn hash_series(series: &ProfileSeries) -> ContentHash {
    let mut text = String::new();
    let types = [&series.value_type, &series.period_type];
    let types = types.iter().flat_map(|of| [of.kind.as_str(), of.unit.as_str()]);
    let labels = series.labels().iter().flat_map(|(name, value)| [name, value]);
    // Lengths, so that different lists have different texts.
    types.chain(labels).for_each(|part| text.push_str(&format!("{}:{part}", part.len())));
    hash_bytes(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use athanor_profile::{Labels, ValueType};

    use super::*;

    fn series(service: &str) -> ProfileSeries {
        let labels = Labels::new([("service_name".to_owned(), service.to_owned())]);
        ProfileSeries::new(labels, ValueType::new("cpu", "ns"), ValueType::default())
    }

    #[test]
    fn partitions_are_bounded_by_keys() {
        let groups = SeriesGroups::default();
        let mut all = ["a", "b", "c", "d"].map(series);
        all.sort_by_key(|series| groups.key(series));
        let [_, after, _, until] = all.each_ref().map(|series| Some(groups.key(series)));
        let partition = SeriesPartition { after, until, groups: Arc::default() };
        assert_eq!(all.each_ref().map(|series| partition.contains(series)), [false, false, true, true]);
        assert!(all.iter().all(|series| SeriesPartition::default().contains(series)));
    }
}
