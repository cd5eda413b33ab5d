//! Building a block from profiles in any order, within a bound of memory.
//!
//! Profiles are held decoded until the bound; then they leave with their names as a *run*, a block of its own in
//! scratch space, and at the end all runs are merged. Without a run the block is written directly. Merging holds the
//! names of one tenant, so these must fit whatever the bound.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use athanor_profile::hash::{Hash, list_memory};
use athanor_profile::identity::{Upload, record_id};
use athanor_profile::pprof::{Decoded, Decoder, Inflater, Limits};
use athanor_profile::request::{self, REQUEST_LABELS};
use athanor_profile::{Dictionary, Labels, Moments, Request, ValueType};

use crate::error::BlockError;
use crate::folder::Folder;
use crate::held::{EachRow, Held, HeldRow, write_held};
use crate::merge::merge_all;
use crate::meta::Meta;
use crate::read::Block;
use crate::request::{Requests, Row};
use athanor_profile::series::{ProfileRow, Series};
use athanor_profile::source::{EachRequests, EachRows, Extent, ReadNames, Source, SourceError};

/// Makes an empty folder for a run.
pub type Scratch<'s> = dyn FnMut() -> std::io::Result<Arc<dyn Folder>> + 's;

/// What was taken in and what was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Uploads.
    pub uploads: u64,
    /// Records: one for each type and set of text labels.
    pub profiles: u64,
    /// Rows that are not zero.
    pub samples: u64,
    /// Bytes of uncompressed pprof.
    pub raw_bytes: u64,
    /// Labels of samples that a block has no column for: numbers, and ids of spans and traces that are none.
    pub dropped_labels: u64,
    /// Samples with a dangling location.
    pub dropped_samples: u64,
}

/// A block being built.
pub struct Builder<'s> {
    id: String,
    limits: Limits,
    budget: usize,
    held: usize,
    parts: BTreeMap<String, Part>,
    runs: Vec<Arc<dyn Folder>>,
    scratch: &'s mut Scratch<'s>,
    inflater: Inflater,
    decoder: Decoder,
    decoded: Decoded,
    equals: HashMap<Hash, u64>,
    counts: Counts,
}

/// One tenant's profiles in memory.
#[derive(Default)]
struct Part {
    dictionary: Dictionary,
    series: Vec<Series>,
    series_ids: HashMap<Series, u32>,
    profiles: Vec<(ProfileRow, usize)>,
    rows: Vec<Row>,
    requests: Requests,
    /// Moments of the rows, by their place.
    moments: Moments,
}

impl<'s> Builder<'s> {
    /// A builder that holds about `budget` bytes of rows and names before it writes a run, and beside them what one
    /// profile takes while it is decoded.
    pub fn new(id: &str, limits: Limits, budget: usize, scratch: &'s mut Scratch<'s>) -> Self {
        Builder {
            id: id.into(),
            limits,
            budget,
            held: 0,
            parts: BTreeMap::new(),
            runs: Vec::new(),
            scratch,
            inflater: Inflater::default(),
            decoder: Decoder::default(),
            decoded: Decoded::default(),
            equals: HashMap::new(),
            counts: Counts::default(),
        }
    }

    /// What was taken in so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Adds one pprof profile: a record for each type and each set of text labels on its samples.
    pub fn add_pprof(&mut self, tenant: &str, labels: &Labels, bytes: &[u8]) -> Result<(), BlockError> {
        let raw = self.inflater.inflate(bytes, self.limits.bytes)?;
        if !self.parts.contains_key(tenant) {
            self.parts.insert(tenant.to_owned(), Part::default());
        }
        let part = self.parts.get_mut(tenant).expect("it was just inserted");
        let before = (part.rows.len(), part.memory());
        self.decoder.decode(raw, &self.limits, &mut part.dictionary, &mut self.decoded)?;
        self.counts.uploads += 1;
        self.counts.raw_bytes += raw.len() as u64;
        self.counts.dropped_samples += self.decoded.dropped.samples as u64;
        let header = &self.decoded.header;
        let upload = Upload {
            tenant,
            labels,
            time_nanos: header.time_nanos,
            duration_nanos: header.duration_nanos,
            content: self.decoded.content.finish(header),
            client_id: None,
        };
        // INV-02 and INV-03: the n-th equal upload counts on its own only where it says no time.
        let identity = upload.identity();
        let n = if header.time_nanos == 0 {
            let seen = self.equals.entry(identity).or_default();
            *seen += 1;
            *seen - 1
        } else {
            0
        };
        let splits = part.split(&self.decoded, labels, &mut self.counts);
        for (split, rows) in &splits {
            let mut of_series = labels.clone();
            split.iter().for_each(|(name, text)| of_series.set(name, text));
            for (value, value_type) in header.types.iter().enumerate() {
                let series = part.series_of(&of_series, value_type, header.period_type.as_ref());
                let id = record_id(identity, value_type, split, n);
                part.add(&self.decoded, value, rows, (series, id));
            }
        }
        self.counts.samples += (part.rows.len() - before.0) as u64;
        self.counts.profiles += (splits.len() * header.types.len()) as u64;
        self.held += part.memory() - before.1;
        if self.held > self.budget { self.write_run() } else { Ok(()) }
    }

    fn write_run(&mut self) -> Result<(), BlockError> {
        let folder = (self.scratch)().map_err(BlockError::io("a run"))?;
        write_parts(folder.as_ref(), &self.id, &std::mem::take(&mut self.parts))?;
        self.runs.push(folder);
        self.held = 0;
        Ok(())
    }

    /// Writes the block into an empty folder.
    pub fn finish(mut self, folder: &dyn Folder) -> Result<Meta, BlockError> {
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

fn write_parts(folder: &dyn Folder, id: &str, parts: &BTreeMap<String, Part>) -> Result<Meta, BlockError> {
    write_held(folder, id, None, parts.iter().map(|(tenant, part)| (tenant.as_str(), part as &dyn Held)))
}

/// Text labels that split samples off, and the rows that have them with the request that each belongs to.
type Splits = Vec<(Labels, Vec<(u32, u32)>)>;

impl Part {
    /// About how many bytes it takes. Series are few and short beside what they hold.
    fn memory(&self) -> usize {
        let rows = list_memory(&self.rows) + list_memory(&self.profiles);
        rows + self.dictionary.memory() + self.requests.memory() + self.moments.memory()
    }

    /// Groups the rows by the text labels that the series does not have already.
    fn split(&mut self, decoded: &Decoded, labels: &Labels, counts: &mut Counts) -> Splits {
        let mut places: HashMap<u32, (usize, u32, u64)> = HashMap::new();
        let mut splits: Splits = Vec::new();
        let mut last = None;
        for (row, &set) in (0u32..).zip(&decoded.samples.labels) {
            let of_last = last.filter(|(of_last, _)| *of_last == set).map(|(_, known)| known);
            let (place, request, dropped) = match of_last.or_else(|| places.get(&set).copied()) {
                Some(known) => known,
                None => {
                    let split = self.text_labels(set, labels);
                    let (request, used) = request::of_labels(&self.dictionary, set);
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
            !value.is_empty() && !REQUEST_LABELS.contains(name) && of_series.get(name).is_none()
        });
        Labels::new(promoted.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    fn series_of(&mut self, labels: &Labels, value_type: &ValueType, period_type: Option<&ValueType>) -> u32 {
        let series =
            Series::new(labels.clone(), value_type.clone(), period_type.cloned().unwrap_or_default());
        *self.series_ids.entry(series).or_insert_with_key(|series| {
            self.series.push(series.clone());
            self.series.len() as u32 - 1
        })
    }

    fn add(&mut self, decoded: &Decoded, value: usize, rows: &[(u32, u32)], (series, id): (u32, Hash)) {
        let header = &decoded.header;
        let width = header.types.len();
        let start = self.rows.len();
        for &(row, request) in rows {
            let amount = decoded.samples.values[row as usize * width + value];
            if amount != 0 {
                let stack = decoded.samples.stacks[row as usize];
                let moments = decoded.samples.moments.of(row as usize);
                self.moments.add(self.rows.len(), moments.iter().copied());
                self.rows.push(Row { stack, request, value: amount });
            }
        }
        let (time, duration, period) = (header.time_nanos, header.duration_nanos, header.period);
        let samples = (self.rows.len() - start) as u32;
        self.profiles.push((ProfileRow { series, time, id, duration, period, samples }, start));
    }

    fn places_of(&self, place: u32) -> Range<usize> {
        let (profile, start) = &self.profiles[place as usize];
        *start..start + profile.samples as usize
    }

    fn rows_of(&self, place: u32) -> &[Row] {
        &self.rows[self.places_of(place)]
    }
}

impl Source for Part {
    fn series(&self) -> Result<Arc<[Series]>, SourceError> {
        Ok(self.series.as_slice().into())
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        Ok(self.profiles.iter().map(|(profile, _)| *profile).collect())
    }
    fn totals(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError> {
        let mut totals = vec![0i64; self.dictionary.stacks.len()];
        for row in picked.iter().flat_map(|&place| self.rows_of(place)) {
            let total = &mut totals[row.stack as usize];
            *total = total.wrapping_add(row.value);
        }
        Ok(totals)
    }
    fn rows(&self, picked: &[u32], each: &mut EachRows<'_>) -> Result<(), SourceError> {
        for &place in picked {
            self.rows_of(place).iter().for_each(|row| each(place, &[row.stack], &[row.value]));
        }
        Ok(())
    }
    fn rows_of_requests(&self, picked: &[u32], each: &mut EachRequests<'_>) -> Result<(), SourceError> {
        for &place in picked {
            for row in self.rows_of(place) {
                each(place, &[row.stack], &[row.value], &[self.requests.all()[row.request as usize]]);
            }
        }
        Ok(())
    }
    fn extent(&self, picked: &[u32], _whole: bool) -> Result<Extent, SourceError> {
        let rows: usize = picked.iter().map(|&place| size_of_val(self.rows_of(place))).sum();
        let index = size_of_val(&self.profiles[..]) as u64;
        let names = self.dictionary.memory() as u64;
        Ok(Extent { is_block: false, index, rows: rows as u64, names })
    }
    fn names(&self, read: &mut ReadNames<'_>) -> Result<(), SourceError> {
        let same: Vec<u32> = (0..self.dictionary.stacks.len() as u32).collect();
        read(&self.dictionary, &same);
        Ok(())
    }
}

impl Held for Part {
    fn each_row(&self, picked: &[u32], each: &mut EachRow<'_>) -> Result<(), SourceError> {
        for &place in picked {
            for at in self.places_of(place) {
                let Row { stack, request, value } = self.rows[at];
                let Request { span, trace } = self.requests.all()[request as usize];
                each(place, HeldRow { stack, span, trace, value, moments: self.moments.of(at) });
            }
        }
        Ok(())
    }
}
