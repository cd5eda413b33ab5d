//! Plain lists of profiles: written as blocks, and read back.

use std::collections::BTreeMap;
use std::sync::Arc;

use athanor_block::{
    Block, MemoryFolder, MemoryProfiles, MemoryRow, MemoryRowVisitor, RowTotals, SpanContext, TenantBlock,
    TenantBlockSource, write_from_memory,
};
use athanor_chassis::compute::ComputePool;
use athanor_profile::store_interface::series::{ProfileRow, ProfileSeries};
use athanor_profile::store_interface::source::{
    ProfileSource, SourceError, SourceNameVisitor, SourceReadSize, SourceRowVisitor, SourceSpanRowVisitor,
};
use athanor_profile::{Dictionary, Labels, ValueType};

/// Number of stacks that profiles use.
pub const STACK_COUNT: u32 = 9;

/// Number of series. They are of two services, the last two of another value type.
pub const SERIES_COUNT: u32 = 6;

/// Sample of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Number of the stack.
    pub stack: u32,
    /// Span ID, 0 for none.
    pub span: u64,
    /// Value of the sample.
    pub value: i64,
    /// Timestamp of the sample, if known.
    pub timestamp: Option<i64>,
}

/// Profile of a tenant.
#[derive(Clone, Debug)]
pub struct Record {
    /// Name of the tenant.
    pub tenant: &'static str,
    /// Number of the series, below [`SERIES_COUNT`].
    pub series: u32,
    /// Time of the profile.
    pub time: i64,
    /// Record ID.
    pub id: u128,
    /// Samples of the profile.
    pub samples: Vec<Sample>,
}

/// Profiles of one tenant in memory.
struct RecordSource<'r> {
    dictionary: Dictionary,
    stacks: Vec<u32>,
    series: Vec<ProfileSeries>,
    records: Vec<&'r Record>,
}

/// Returns the series with a number.
pub fn series(number: u32) -> ProfileSeries {
    let pod = ("pod".to_owned(), format!("pod-{number}"));
    let service = ("service_name".to_owned(), format!("service-{}", number % 2));
    let kind = if number < 4 { "cpu" } else { "wall" };
    ProfileSeries::new(Labels::new([pod, service]), ValueType::new(kind, "ns"), ValueType::default())
}

impl<'r> RecordSource<'r> {
    fn from_records(records: impl Iterator<Item = &'r Record>) -> Self {
        let mut dictionary = Dictionary::default();
        let stack = |number: u32| format!("main;f{};g{number}", number % 3);
        let numbers = 0..STACK_COUNT;
        let stacks = numbers.map(|number| dictionary.intern_named_stack(stack(number).split(';')));
        let stacks = stacks.collect();
        RecordSource {
            stacks,
            dictionary,
            series: (0..SERIES_COUNT).map(series).collect(),
            records: records.collect(),
        }
    }
}

impl ProfileSource for RecordSource<'_> {
    fn series(&self) -> Result<Arc<[ProfileSeries]>, SourceError> {
        Ok(self.series.as_slice().into())
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        let row = |record: &&Record| ProfileRow {
            series: record.series,
            time: record.time,
            id: record.id,
            samples: record.samples.len() as u32,
            duration: record.time ^ 7,
            period: record.time ^ 5,
        };
        Ok(self.records.iter().map(row).collect())
    }
    fn totals(&self, _: &[u32]) -> Result<Vec<i64>, SourceError> {
        Ok(vec![0; self.stacks.len()])
    }
    fn visit_rows(&self, picked: &[u32], each: &mut SourceRowVisitor<'_>) -> Result<(), SourceError> {
        self.for_each_row(picked, &mut |place, row| each(place, &[row.stack], &[row.value]))
    }
    fn visit_span_rows(
        &self,
        picked: &[u32],
        each: &mut SourceSpanRowVisitor<'_>,
    ) -> Result<(), SourceError> {
        self.for_each_row(picked, &mut |place, row| {
            each(place, &[row.stack], &[row.value], &[SpanContext { span: row.span, trace: row.trace }]);
        })
    }
    fn read_size(&self, _: &[u32], _: bool) -> Result<SourceReadSize, SourceError> {
        Ok(SourceReadSize::default())
    }
    fn visit_names(&self, read: &mut SourceNameVisitor<'_>) -> Result<(), SourceError> {
        read(&self.dictionary, &self.stacks);
        Ok(())
    }
}

impl MemoryProfiles for RecordSource<'_> {
    fn for_each_row(&self, picked: &[u32], each: &mut MemoryRowVisitor<'_>) -> Result<(), SourceError> {
        for &place in picked {
            for sample in &self.records[place as usize].samples {
                let Sample { stack, span, value, ref timestamp } = *sample;
                each(place, MemoryRow { stack, span, trace: 0, value, moments: timestamp.as_slice() });
            }
        }
        Ok(())
    }
}

/// Writes records as a block.
pub fn block_of(records: &[Record]) -> Block {
    let mut tenants: Vec<&str> = records.iter().map(|record| record.tenant).collect();
    tenants.sort_unstable();
    tenants.dedup();
    let of_tenant = |tenant| records.iter().filter(move |record| record.tenant == tenant);
    let sources: Vec<(&str, RecordSource<'_>)> =
        tenants.into_iter().map(|tenant| (tenant, RecordSource::from_records(of_tenant(tenant)))).collect();
    let parts = sources.iter().map(|(tenant, source)| (*tenant, source as &dyn MemoryProfiles));
    let folder = MemoryFolder::default();
    write_from_memory(&folder, "input", None, parts).unwrap();
    Block::open(Arc::new(folder)).unwrap()
}

/// Profile as a block stores it, without numbers of the block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredRecord {
    /// Name of the tenant.
    pub tenant: String,
    /// Series of the profile.
    pub series: ProfileSeries,
    /// Time of the profile.
    pub time: i64,
    /// Record ID.
    pub id: u128,
    /// Duration and period.
    pub header: [i64; 2],
    /// Values by stack and span.
    pub values: BTreeMap<(Vec<String>, u64), i64>,
    /// Timestamps by stack, ascending.
    pub timestamps: BTreeMap<Vec<String>, Vec<i64>>,
}

impl StoredRecord {
    /// Returns the counts and the sum of the profile.
    pub fn totals(&self) -> RowTotals {
        let sum = self.values.values().fold(0u64, |sum, &value| sum.wrapping_add(value as u64));
        RowTotals { profiles: 1, samples: self.values.len() as u64, sum }
    }
}

/// Reads all profiles of a block in order.
pub fn records_of(block: &Block) -> Vec<StoredRecord> {
    let mut all = Vec::new();
    for part in block.tenant_blocks() {
        let tenant = &part.meta.tenant;
        let source = TenantBlockSource::new(Arc::new(block.clone()), tenant, ComputePool::inline()).unwrap();
        let names = part.read_names().unwrap();
        let name = |stack: u32| names.dictionary.frame_names(names.stacks[stack as usize]);
        let series = part.read_series().unwrap();
        let profiles = part.read_all_profiles().unwrap();
        for (place, row) in (0u32..).zip(&profiles) {
            let mut values = BTreeMap::new();
            let read = source.visit_span_rows(&[place], &mut |_, stacks, amounts, requests| {
                for (at, (&stack, &value)) in stacks.iter().zip(amounts).enumerate() {
                    let span = requests.get(at).map_or(0, |request| request.span);
                    assert_eq!(values.insert((name(stack), span), value), None);
                }
            });
            read.unwrap();
            let mut timestamps: BTreeMap<Vec<String>, Vec<i64>> = BTreeMap::new();
            let mut at = 0..;
            let ranges = TenantBlock::sample_ranges(&profiles, |_| at.next() == Some(place));
            let read = part.read_timestamps(&ranges, |stack, times| {
                let of_stack = timestamps.entry(name(stack)).or_default();
                of_stack.extend(times);
                of_stack.sort_unstable();
            });
            read.unwrap();
            all.push(StoredRecord {
                tenant: tenant.clone(),
                series: series[row.series as usize].clone(),
                time: row.time,
                id: row.id,
                header: [row.duration, row.period],
                values,
                timestamps,
            });
        }
    }
    all
}
