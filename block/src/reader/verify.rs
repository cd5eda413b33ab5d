//! Cross-check of the tables of a part: stored sums must equal the sums of the samples.

use std::collections::BTreeMap;

use athanor_profile::data_model::symbols::NO_ENTRY;
use athanor_profile::store_interface::series::{ProfileRow, ProfileSeries};
use parquet::data_type::{FixedLenByteArrayType, Int32Type, Int64Type};

use crate::format::duplicates::DuplicateIds;
use crate::format::error::BlockError;
use crate::format::index::{StackNodes, StackSet, for_each_function_service};
use crate::format::meta::{INDEX_FILE, IdRange, LOCATIONS_FILE, PROFILES_FILE, ROLLUP_FILE, SAMPLES_FILE};
use crate::reader::read::{RollupRows, TenantBlock, local_id, local_id_or_none};
use crate::reader::row_ids::ID_COLUMN;

impl TenantBlock<'_> {
    /// Reads everything and compares the sums of profiles, the roll-up and the index with the samples.
    pub(crate) fn verify(&self) -> Result<(), BlockError> {
        self.read_names()?;
        self.check_timestamps()?;
        self.compare_tables(&self.read_rollup()?, &self.read_index()?)
    }

    fn compare_tables(&self, rollup: &RollupRows, index: &[(u32, String)]) -> Result<(), BlockError> {
        let series = self.read_series()?;
        let profiles = self.read_all_profiles()?;
        match self.is_downsampled() {
            true => self.check_buckets(&profiles)?,
            false => self.check_ids_of_rows(&profiles)?,
        }
        let stacks = vec![(0, 0); self.meta.stacks as usize];
        let touched = Vec::new();
        let services = BTreeMap::new();
        let order = self.block.meta().order;
        let mut sums =
            RollupVerifier { rollup, series: &series, next: 0, hour: 0, at: 0, stacks, touched, services };
        let mut of_profiles = self.read_profile_totals()?;
        let sum = of_profiles.iter().fold(0, |sum: u64, &value| sum.wrapping_add(value as u64));
        if let Some(expected) = self.meta.sum.filter(|&expected| expected != sum) {
            let why = format!("the sum of all values is {sum}, meta.json lists {expected}");
            return Err(BlockError::corrupt(PROFILES_FILE, why));
        }
        self.for_each_sample(&profiles, |profile, stack, value| {
            let of_profile = &mut of_profiles[profile];
            *of_profile = of_profile.wrapping_sub(value);
            let row = &profiles[profile];
            sums.add((order.hour(row.time), row.series), stack, value)
        })?;
        if let Some(profile) = of_profiles.iter().position(|&rest| rest != 0) {
            let why = format!("total of profile {profile} differs from the sum of its samples");
            return Err(BlockError::corrupt(PROFILES_FILE, why));
        }
        let services = sums.finish()?;
        let tree = StackTree::read(self)?;
        let mut rest = index.iter().map(|(function, service)| (*function, service.as_str()));
        let why = "functions and services differ from those of the samples' stacks";
        let wrong = || BlockError::corrupt(INDEX_FILE, why);
        for_each_function_service(&tree, self.meta.functions.1 as usize, &services, |expected| {
            let named = expected.iter().map(|pair| (pair.0, services[pair.1 as usize].0.as_str()));
            match named.into_iter().all(|pair| rest.next() == Some(pair)) {
                true => Ok(()),
                false => Err(wrong()),
            }
        })?;
        if rest.next().is_none() { Ok(()) } else { Err(wrong()) }
    }

    /// Checks the order of rows, and that their IDs are distinct if the footer declares it.
    fn check_ids_of_rows(&self, profiles: &[ProfileRow]) -> Result<(), BlockError> {
        let order = self.block.meta().order;
        if !profiles.is_sorted_by_key(|row| order.key(row)) {
            return Err(BlockError::corrupt(
                PROFILES_FILE,
                "rows are not in the order that meta.json states",
            ));
        }
        if self.has_distinct_ids()? && DuplicateIds::has_any(profiles.iter().map(|row| row.id)) {
            let why = "two rows have the same id, but the footer declares distinct ids";
            return Err(BlockError::corrupt(PROFILES_FILE, why));
        }
        Ok(())
    }

    /// Checks that the rows of a downsampled tier are at ends of its buckets, in order and without IDs.
    fn check_buckets(&self, profiles: &[ProfileRow]) -> Result<(), BlockError> {
        let tier = self.block.meta().tier();
        if let Some(row) = profiles.iter().find(|row| tier.bucket_end(row.time) != row.time) {
            let why = format!("time {} is not the end of a bucket of tier {}", row.time, tier.name());
            return Err(BlockError::corrupt(PROFILES_FILE, why));
        }
        let order = self.block.meta().order;
        if !profiles.is_sorted_by_key(|row| (order.hour(row.time), row.series, row.time)) {
            return Err(BlockError::corrupt(
                PROFILES_FILE,
                "rows are not in the order that meta.json states",
            ));
        }
        let table = self.profiles_table()?;
        for group in self.row_groups(PROFILES_FILE).range() {
            let ids = table.read_column::<FixedLenByteArrayType>(group, ID_COLUMN)?;
            if ids.iter().flat_map(|id| id.data()).any(|&byte| byte != 0) {
                return Err(BlockError::corrupt(PROFILES_FILE, "a row of a downsampled tier has an id"));
            }
        }
        Ok(())
    }

    /// Visits the samples: profile and stack indexes, and the value.
    fn for_each_sample(
        &self,
        profiles: &[ProfileRow],
        mut visit: impl FnMut(usize, usize, i64) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let table = self.samples_table()?;
        let mut expected = (self.meta.profiles.0..)
            .zip(profiles)
            .flat_map(|(id, row)| std::iter::repeat_n(id, row.samples as usize));
        let first = self.meta.profiles.0;
        for group in self.row_groups(SAMPLES_FILE).range() {
            let ids = table.read_column::<Int32Type>(group, 0)?;
            let stacks = table.read_column::<Int32Type>(group, 1)?;
            let values = table.read_column::<Int64Type>(group, 2)?;
            for ((id, stack), value) in ids.into_iter().zip(stacks).zip(values) {
                let expected = expected.next().filter(|&expected| u32::try_from(id) == Ok(expected));
                let Some(id) = expected else {
                    let why = "profiles differ from those of profiles.parquet";
                    return Err(BlockError::corrupt(SAMPLES_FILE, why));
                };
                let stack = local_id(SAMPLES_FILE, stack, IdRange(self.meta.nodes.0, self.meta.stacks))?;
                visit((id - first) as usize, stack as usize, value)?;
            }
        }
        match expected.next() {
            Some(_) => Err(BlockError::corrupt(SAMPLES_FILE, "too few rows")),
            None => Ok(()),
        }
    }
}

/// Sums by series and stack, and by hour if rows are ordered by hours. Samples are in the order of the block, so one
/// series is summed at a time.
struct RollupVerifier<'r> {
    rollup: &'r RollupRows,
    series: &'r [ProfileSeries],
    /// Next row of the roll-up.
    next: usize,
    /// Hour and series that are being summed.
    hour: i64,
    at: u32,
    /// Value and count of each stack of that series.
    stacks: Vec<(i64, u32)>,
    /// Stacks of that series that have samples.
    touched: Vec<u32>,
    /// Stacks of each service.
    services: BTreeMap<String, StackSet>,
}

impl RollupVerifier<'_> {
    fn add(&mut self, place: (i64, u32), stack: usize, value: i64) -> Result<(), BlockError> {
        if place != (self.hour, self.at) {
            self.end_series()?;
            (self.hour, self.at) = place;
        }
        let sum = &mut self.stacks[stack];
        if sum.1 == 0 {
            self.touched.push(stack as u32);
        }
        *sum = (sum.0.wrapping_add(value), sum.1.saturating_add(1));
        Ok(())
    }

    /// Compares the roll-up rows of the current series with its sums.
    fn end_series(&mut self) -> Result<(), BlockError> {
        let RollupVerifier { rollup, series, next, at, stacks, touched, services, .. } = self;
        touched.sort_unstable();
        for &stack in &*touched {
            let (value, count) = std::mem::take(&mut stacks[stack as usize]);
            let seen = (rollup.series.get(*next), rollup.stack.get(*next));
            let sums = (rollup.value.get(*next), rollup.samples.get(*next));
            // A count beyond the range of its column is stored saturated.
            let count = count.min(i32::MAX as u32);
            if seen != (Some(&*at), Some(&stack)) || sums != (Some(&value), Some(&count)) {
                let why =
                    format!("sum or count of series {at} and stack {stack} differs from that of its samples");
                return Err(BlockError::corrupt(ROLLUP_FILE, why));
            }
            *next += 1;
        }
        if let Some(series) = series.get(*at as usize).filter(|_| !touched.is_empty()) {
            services.entry(series.service().to_owned()).or_default().add(touched);
        }
        touched.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<(String, Vec<u32>)>, BlockError> {
        self.end_series()?;
        match self.rollup.series.len() - self.next {
            0 => Ok(self
                .services
                .into_iter()
                .map(|(service, stacks)| (service, stacks.into_sorted()))
                .collect()),
            more => {
                let why = format!("{more} more rows than pairs of series and stack in the samples");
                Err(BlockError::corrupt(ROLLUP_FILE, why))
            }
        }
    }
}

/// Stacks as stored in the block.
struct StackTree {
    parents: Vec<u32>,
    locations: Vec<u32>,
    functions: Vec<u32>,
    /// End of each location's functions.
    ends: Vec<usize>,
}

impl StackTree {
    fn read(part: &TenantBlock<'_>) -> Result<Self, BlockError> {
        let (parents, locations) = part.read_nodes()?;
        let table = part.block.open_table(LOCATIONS_FILE)?;
        let ids = table.read_column_groups::<Int32Type>(part.row_groups(LOCATIONS_FILE), 0)?;
        let of_rows = table.read_column_groups::<Int32Type>(part.row_groups(LOCATIONS_FILE), 5)?;
        let mut ends = vec![0; part.meta.locations.1 as usize];
        let mut functions = Vec::with_capacity(of_rows.len());
        for (id, function) in ids.into_iter().zip(of_rows) {
            let function = local_id_or_none(LOCATIONS_FILE, function, part.meta.functions)?;
            functions.extend((function != NO_ENTRY).then_some(function));
            ends[local_id(LOCATIONS_FILE, id, part.meta.locations)? as usize] = functions.len();
        }
        Ok(StackTree { parents, locations, functions, ends })
    }
}

impl StackNodes for StackTree {
    fn count(&self) -> usize {
        self.parents.len()
    }
    fn parent(&self, node: usize) -> u32 {
        self.parents[node]
    }
    fn functions(&self, node: usize) -> &[u32] {
        let location = self.locations[node] as usize;
        let Some(&end) = self.ends.get(location) else { return &[] };
        let start = if location == 0 { 0 } else { self.ends[location - 1] };
        &self.functions[start..end]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use athanor_profile::formats::pprof::{DecodeLimits, encode};
    use athanor_profile::{Labels, Profile, ValueType};

    use super::*;
    use crate::{Block, BlockBuilder, BlockFolder, MemoryFolder};

    /// Two services with the same stacks.
    fn block() -> Block {
        let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
        let mut builder = BlockBuilder::new("verified", DecodeLimits::default(), 1 << 20, &mut scratch);
        for (service, value) in [("shop", 3), ("till", 4)] {
            let mut profile = Profile::default();
            profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
            for stack in [&["main", "pay"][..], &["main"]] {
                let stack = profile.dictionary.intern_named_stack(stack.iter().copied());
                profile.samples.push(stack, 0, &[value]);
            }
            let labels = Labels::new([("service_name".into(), service.into())]);
            builder.add_pprof("acme", &labels, &encode(&profile)).unwrap();
        }
        let folder = MemoryFolder::default();
        builder.finish(&folder).unwrap();
        Block::open(Arc::new(folder)).unwrap()
    }

    #[test]
    fn what_was_added_up_is_compared_by_series_stack_and_count() {
        let block = block();
        let part = block.tenant_block("acme").unwrap();
        let (rollup, index) = (part.read_rollup().unwrap(), part.read_index().unwrap());
        part.compare_tables(&rollup, &index).unwrap();
        assert_eq!((rollup.value.as_slice(), index.len()), (&[3, 3, 4, 4][..], 4));
        let refused = |change: fn(&mut RollupRows)| {
            let mut changed = rollup.clone();
            change(&mut changed);
            part.compare_tables(&changed, &index).unwrap_err().to_string()
        };
        // The sum of each stack stays.
        let moved = refused(|rollup| (rollup.value[0], rollup.value[2]) = (4, 3));
        assert!(moved.starts_with("rollup.parquet"), "{moved}");
        assert!(moved.contains("sum or count of series 0 and stack 0"), "{moved}");
        let miscounted = refused(|rollup| rollup.samples[3] = 2);
        assert!(miscounted.contains("series 1 and stack 1"), "{miscounted}");
        let short = refused(|rollup| rollup.series.truncate(3));
        assert!(short.contains("series 1 and stack 1"), "{short}");
        let long = refused(|rollup| {
            rollup.series.push(1);
            rollup.stack.push(1);
            rollup.value.push(0);
            rollup.samples.push(0);
        });
        assert!(long.contains("1 more rows"), "{long}");
    }

    #[test]
    fn the_index_is_compared_row_by_row() {
        let block = block();
        let part = block.tenant_block("acme").unwrap();
        let (rollup, index) = (part.read_rollup().unwrap(), part.read_index().unwrap());
        let mut renamed = index.clone();
        renamed[0].1 = "cart".into();
        for wrong in [&index[1..], &renamed, &[]] {
            let error = part.compare_tables(&rollup, wrong).unwrap_err().to_string();
            assert!(error.starts_with("index.parquet"), "{error}");
        }
    }
}
