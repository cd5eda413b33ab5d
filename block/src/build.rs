//! Building a block from profiles in any order, in bounded memory.
//!
//! Profiles are held decoded up to the budget. Then they are written with their names as a *run*, a separate
//! block in scratch space. At the end all runs are merged. Without a run the block is written directly.
//! Merging holds the names of one tenant, so these must fit regardless of the budget.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use athanor_profile::data_model::dropped_counts::DropReason;
use athanor_profile::data_model::identity::{UploadIdentity, record_id};
use athanor_profile::data_model::span_context::{self, SPAN_CONTEXT_LABELS};
use athanor_profile::encoding::hash::{ContentHash, vec_memory};
use athanor_profile::formats::pprof::{DecodeLimits, DecodedProfile, Inflater, PprofDecoder};
use athanor_profile::{Dictionary, Labels, SampleTimestamps, SpanContext, ValueType};

use crate::format::error::BlockError;
use crate::format::folder::{BlockFolder, ScratchFactory};
use crate::format::meta::BlockMeta;
use crate::format::sample_rows::{SampleRow, SpanContextTable};
use crate::merge::merge_all;
use crate::reader::read::Block;
use crate::writer::memory_profiles::{MemoryProfiles, MemoryRow, MemoryRowVisitor, write_from_memory};
use athanor_profile::store_interface::series::{ProfileRow, ProfileSeries};
use athanor_profile::store_interface::source::{
    ProfileSource, SourceError, SourceNameVisitor, SourceReadSize, SourceRowVisitor, SourceSpanRowVisitor,
};

/// Counts of the input that was added and dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildCounts {
    /// Number of added uploads.
    pub uploads: u64,
    /// Number of records: one per value type and set of text labels.
    pub profiles: u64,
    /// Number of nonzero rows.
    pub samples: u64,
    /// Bytes of uncompressed pprof.
    pub raw_bytes: u64,
    /// Sample labels without a block column: numeric labels, and invalid span and trace IDs.
    pub dropped_labels: u64,
    /// Samples that were dropped because of a dangling location.
    pub dropped_samples: u64,
}

/// Builder of one block.
pub struct BlockBuilder<'s> {
    id: String,
    limits: DecodeLimits,
    budget: usize,
    held: usize,
    parts: BTreeMap<String, TenantBuffer>,
    runs: Vec<Arc<dyn BlockFolder>>,
    scratch: &'s mut ScratchFactory<'s>,
    inflater: Inflater,
    decoder: PprofDecoder,
    decoded: DecodedProfile,
    equals: HashMap<ContentHash, u64>,
    counts: BuildCounts,
}

/// Profiles of one tenant in memory.
#[derive(Default)]
struct TenantBuffer {
    dictionary: Dictionary,
    series: Vec<ProfileSeries>,
    series_ids: HashMap<ProfileSeries, u32>,
    profiles: Vec<(ProfileRow, usize)>,
    rows: Vec<SampleRow>,
    requests: SpanContextTable,
    /// Timestamps of the rows, by row index.
    moments: SampleTimestamps,
}

impl<'s> BlockBuilder<'s> {
    /// Creates a builder that holds about `budget` bytes of rows and names before it writes a run. Decoding
    /// one profile takes additional memory.
    pub fn new(id: &str, limits: DecodeLimits, budget: usize, scratch: &'s mut ScratchFactory<'s>) -> Self {
        BlockBuilder {
            id: id.into(),
            limits,
            budget,
            held: 0,
            parts: BTreeMap::new(),
            runs: Vec::new(),
            scratch,
            inflater: Inflater::default(),
            decoder: PprofDecoder::default(),
            decoded: DecodedProfile::default(),
            equals: HashMap::new(),
            counts: BuildCounts::default(),
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> BuildCounts {
        self.counts
    }

    /// Adds one pprof profile as one record per value type and set of text labels on its samples.
    pub fn add_pprof(&mut self, tenant: &str, labels: &Labels, bytes: &[u8]) -> Result<(), BlockError> {
        let raw = self.inflater.inflate(bytes, self.limits.bytes)?;
        if !self.parts.contains_key(tenant) {
            self.parts.insert(tenant.to_owned(), TenantBuffer::default());
        }
        let part = self.parts.get_mut(tenant).expect("it was just inserted");
        let before = (part.rows.len(), part.memory());
        self.decoder.decode(raw, &self.limits, &mut part.dictionary, &mut self.decoded)?;
        self.counts.uploads += 1;
        self.counts.raw_bytes += raw.len() as u64;
        self.counts.dropped_samples += self.decoded.dropped.get(DropReason::DanglingSample);
        let header = &self.decoded.header;
        let upload = UploadIdentity {
            tenant,
            labels,
            time_nanos: header.time_nanos,
            duration_nanos: header.duration_nanos,
            content: self.decoded.content.finish(header),
            client_id: None,
        };
        // INV-02 and INV-03: the n-th equal upload counts separately only if it has no time.
        let identity = upload.identity();
        let n = if header.time_nanos == 0 {
            let seen = self.equals.entry(identity).or_default();
            *seen += 1;
            *seen - 1
        } else {
            0
        };
        let splits = part.split_by_labels(&self.decoded, labels, &mut self.counts);
        for (split, rows) in &splits {
            let mut of_series = labels.clone();
            split.iter().for_each(|(name, text)| of_series.set(name, text));
            for (value, value_type) in header.types.iter().enumerate() {
                let series = part.intern_series(&of_series, value_type, header.period_type.as_ref());
                let id = record_id(identity, value_type, split, n);
                part.add_profile(&self.decoded, value, rows, series, id);
            }
        }
        self.counts.samples += (part.rows.len() - before.0) as u64;
        self.counts.profiles += (splits.len() * header.types.len()) as u64;
        self.held += part.memory() - before.1;
        if self.held > self.budget { self.write_run() } else { Ok(()) }
    }

    fn write_run(&mut self) -> Result<(), BlockError> {
        let folder = (self.scratch)().map_err(BlockError::io("scratch folder of a run"))?;
        write_parts(folder.as_ref(), &self.id, &std::mem::take(&mut self.parts))?;
        self.runs.push(folder);
        self.held = 0;
        Ok(())
    }

    /// Writes the block into an empty folder.
    pub fn finish(mut self, folder: &dyn BlockFolder) -> Result<BlockMeta, BlockError> {
        if self.runs.is_empty() {
            return write_parts(folder, &self.id, &self.parts);
        }
        if self.held > 0 {
            self.write_run()?;
        }
        let runs = self.runs.into_iter().map(Block::open).collect::<Result<Vec<_>, _>>()?;
        merge_all(folder, &self.id, runs, self.scratch, &mut |_| ())
    }
}

fn write_parts(
    folder: &dyn BlockFolder,
    id: &str,
    parts: &BTreeMap<String, TenantBuffer>,
) -> Result<BlockMeta, BlockError> {
    write_from_memory(
        folder,
        id,
        None,
        parts.iter().map(|(tenant, part)| (tenant.as_str(), part as &dyn MemoryProfiles)),
    )
}

/// Rows by the text labels that split them off, each row with its span context.
type LabelSplits = Vec<(Labels, Vec<(u32, u32)>)>;

impl TenantBuffer {
    /// Returns the approximate memory in bytes. Series are neglected: they are few and short.
    fn memory(&self) -> usize {
        let rows = vec_memory(&self.rows) + vec_memory(&self.profiles);
        rows + self.dictionary.memory() + self.requests.memory() + self.moments.memory()
    }

    /// Groups the rows by the text labels that the series does not have already.
    fn split_by_labels(
        &mut self,
        decoded: &DecodedProfile,
        labels: &Labels,
        counts: &mut BuildCounts,
    ) -> LabelSplits {
        let mut places: HashMap<u32, (usize, u32, u64)> = HashMap::new();
        let mut splits: LabelSplits = Vec::new();
        let mut last = None;
        for (row, &set) in (0u32..).zip(&decoded.samples.labels) {
            let of_last = last.filter(|(of_last, _)| *of_last == set).map(|(_, known)| known);
            let (place, request, dropped) = match of_last.or_else(|| places.get(&set).copied()) {
                Some(known) => known,
                None => {
                    let split = self.text_labels(set, labels);
                    let (request, used) = span_context::span_context_from_labels(&self.dictionary, set);
                    let of_set = self.dictionary.label_sets.get(set).len();
                    let dropped = of_set.saturating_sub(split.len() + used) as u64;
                    let known = splits.iter().position(|(known, _)| *known == split);
                    let place = known.unwrap_or(splits.len());
                    if known.is_none() {
                        splits.push((split, Vec::new()));
                    }
                    *places.entry(set).or_insert((place, self.requests.intern(request), dropped))
                }
            };
            last = Some((set, (place, request, dropped)));
            counts.dropped_labels += dropped;
            splits[place].1.push((row, request));
        }
        if splits.is_empty() {
            splits.push((Labels::default(), Vec::new()));
        }
        splits
    }

    fn text_labels(&self, set: u32, of_series: &Labels) -> Labels {
        let text = |id| self.dictionary.symbols.strings.get(id);
        let of_sample = self.dictionary.label_sets.get(set).iter();
        let named = of_sample.map(|label| (text(label.key), text(label.text)));
        let promoted = named.filter(|(name, value)| {
            !value.is_empty() && !SPAN_CONTEXT_LABELS.contains(name) && of_series.get(name).is_none()
        });
        Labels::new(promoted.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    fn intern_series(
        &mut self,
        labels: &Labels,
        value_type: &ValueType,
        period_type: Option<&ValueType>,
    ) -> u32 {
        let series =
            ProfileSeries::new(labels.clone(), value_type.clone(), period_type.cloned().unwrap_or_default());
        *self.series_ids.entry(series).or_insert_with_key(|series| {
            self.series.push(series.clone());
            self.series.len() as u32 - 1
        })
    }

    fn add_profile(
        &mut self,
        decoded: &DecodedProfile,
        value: usize,
        rows: &[(u32, u32)],
        series: u32,
        id: ContentHash,
    ) {
        let header = &decoded.header;
        let width = header.types.len();
        let start = self.rows.len();
        for &(row, request) in rows {
            let amount = decoded.samples.values[row as usize * width + value];
            if amount != 0 {
                let stack = decoded.samples.stacks[row as usize];
                let moments = decoded.samples.moments.row_timestamps(row as usize);
                self.moments.add(self.rows.len(), moments.iter().copied());
                self.rows.push(SampleRow { stack, request, value: amount });
            }
        }
        let time = header.time_nanos;
        let duration = header.duration_nanos;
        let period = header.period;
        let samples = (self.rows.len() - start) as u32;
        self.profiles.push((ProfileRow { series, time, id, duration, period, samples }, start));
    }

    fn row_range(&self, place: u32) -> Range<usize> {
        let (profile, start) = &self.profiles[place as usize];
        *start..start + profile.samples as usize
    }

    fn rows_of_profile(&self, place: u32) -> &[SampleRow] {
        &self.rows[self.row_range(place)]
    }
}

impl ProfileSource for TenantBuffer {
    fn series(&self) -> Result<Arc<[ProfileSeries]>, SourceError> {
        Ok(self.series.as_slice().into())
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        Ok(self.profiles.iter().map(|(profile, _)| *profile).collect())
    }
    fn totals(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError> {
        let mut totals = vec![0i64; self.dictionary.stacks.len()];
        for row in picked.iter().flat_map(|&place| self.rows_of_profile(place)) {
            let total = &mut totals[row.stack as usize];
            *total = total.wrapping_add(row.value);
        }
        Ok(totals)
    }
    fn visit_rows(&self, picked: &[u32], each: &mut SourceRowVisitor<'_>) -> Result<(), SourceError> {
        for &place in picked {
            self.rows_of_profile(place).iter().for_each(|row| each(place, &[row.stack], &[row.value]));
        }
        Ok(())
    }
    fn visit_span_rows(
        &self,
        picked: &[u32],
        each: &mut SourceSpanRowVisitor<'_>,
    ) -> Result<(), SourceError> {
        for &place in picked {
            for row in self.rows_of_profile(place) {
                each(place, &[row.stack], &[row.value], &[self.requests.all()[row.request as usize]]);
            }
        }
        Ok(())
    }
    fn read_size(&self, picked: &[u32], _whole: bool) -> Result<SourceReadSize, SourceError> {
        let rows: usize = picked.iter().map(|&place| size_of_val(self.rows_of_profile(place))).sum();
        let index = size_of_val(&self.profiles[..]) as u64;
        let names = self.dictionary.memory() as u64;
        Ok(SourceReadSize { is_block: false, index, rows: rows as u64, names })
    }
    fn visit_names(&self, read: &mut SourceNameVisitor<'_>) -> Result<(), SourceError> {
        let same: Vec<u32> = (0..self.dictionary.stacks.len() as u32).collect();
        read(&self.dictionary, &same);
        Ok(())
    }
}

impl MemoryProfiles for TenantBuffer {
    fn for_each_row(&self, picked: &[u32], each: &mut MemoryRowVisitor<'_>) -> Result<(), SourceError> {
        for &place in picked {
            for at in self.row_range(place) {
                let SampleRow { stack, request, value } = self.rows[at];
                let SpanContext { span, trace } = self.requests.all()[request as usize];
                each(
                    place,
                    MemoryRow { stack, span, trace, value, moments: self.moments.row_timestamps(at) },
                );
            }
        }
        Ok(())
    }
}
