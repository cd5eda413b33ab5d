//! Decoded upload: inflated, walked once, checked, and split into records of the head's dictionary.
//!
//! An error in a profile as a whole rejects it. References to nothing were dropped and counted by the
//! decoder. Text labels of samples split their samples off into series of their own, except for labels that
//! name a request: those stay with the rows.

use std::collections::{HashMap, HashSet};

use athanor_chassis::units::{format_approximate_duration, format_duration};
use athanor_chassis::{ByteSize, ErrorCode, Status, TenantId, TenantLimits, Timestamp};
use athanor_profile::data_model::dropped_counts::{DropReason, DroppedCounts};
use athanor_profile::data_model::identity::{UploadIdentity as Identity, record_id};
use athanor_profile::encoding::hash::{ContentHash, vec_memory};
use athanor_profile::formats::pprof::{
    self, DecodedProfile, PprofReader, SenderInfo, TIMESTAMP_BYTES_LIMIT_NAME,
};
use athanor_profile::labeling::normalize::{find_cumulative_types, is_go_sender, resolve_profile_time};
use athanor_profile::store_interface::series::ProfileSeries;
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_profile::{Dictionary, Labels, ValueType};

use crate::admission::SHARD_BUSY_RETRY_AFTER;
use crate::decode::label_split::{LabelSplit, split_by_labels};
use crate::decode::relabel_rules::TenantRelabelRules;
use crate::delta::cumulative_values::DeltaOp;
use crate::delta::delta_converter::{DeltaCandidate, DeltaConverter, DeltaOutcome};
use crate::head_store::head::TenantRows;
use crate::head_store::rows::{self, InputRow};
use crate::log::entry::{ProfileRecord, UploadBatch};

/// Maximum bytes of labels and types in the series of one upload: a text may be in each of them.
const MAX_SERIES_TEXT_BYTES: usize = 4 << 20;

/// Label that names a measurement.
const METRIC_NAME_LABEL: &str = "__name__";

/// Upload that is decoded and checked as far as that needs no head. Its memory is reused for the next one.
#[derive(Default)]
pub struct DecodedUpload {
    walk: PprofReader,
    upload: ProfileUpload,
    time: i64,
    /// Arrival of the upload, Unix nanoseconds.
    received: i64,
    identity: ContentHash,
    /// Number of the upload among the equal ones of its request [INV-02].
    number: u64,
    taken: DecodeStats,
    rows: Vec<InputRow>,
    /// True for each cumulative sample type. `source` identifies the sender by labels as sent, since rules
    /// may change.
    counting: Vec<bool>,
    source: ContentHash,
}

/// Counts of an upload beside its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeStats {
    /// Bytes of uncompressed pprof.
    pub raw_bytes: u64,
    /// Samples, including dropped ones.
    pub samples: u64,
    /// Counts of dropped parts.
    pub dropped: DroppedCounts,
}

/// Number of occurrences of each upload in a request [INV-02].
pub type OccurrenceCounts = HashMap<ContentHash, u64>;

impl DecodedUpload {
    /// Decompresses, decodes and checks an upload.
    pub fn read(
        &mut self,
        tenant: &TenantId,
        upload: ProfileUpload,
        limits: &TenantLimits,
        now: Timestamp,
    ) -> Result<(), Status> {
        self.upload = upload;
        let sender = SenderInfo {
            is_go: is_go_sender(&self.upload.sent),
            has_elf_addresses: self.upload.has_elf_addresses,
        };
        let read = self.walk.read_from(sender, &self.upload.pprof, &bounds(limits));
        let raw = read.map_err(|error| refused(&error))?;
        self.counting = find_cumulative_types(&self.upload.sent, &self.walk.decoded().header);
        // A cumulative profile must keep its stacks, whatever else is in the next one.
        if !self.counting.contains(&true) {
            self.walk.repair_roots().map_err(|error| refused(&error))?;
        }
        let decoded = self.walk.decoded();
        let samples = decoded.samples.len() as u64 + decoded.dropped.get(DropReason::DanglingSample);
        self.taken = DecodeStats { raw_bytes: raw as u64, samples, dropped: decoded.dropped };
        check_types(decoded)?;
        check_name(&self.upload.labels, decoded)?;
        check_sums(decoded)?;
        let header = &decoded.header;
        let drawn = self.upload.drawn.to_le_bytes();
        let client_id = self.upload.client_id.as_deref().filter(|id| !is_nil(id));
        let sent = resolve_profile_time(header.time_nanos, self.upload.time_nanos);
        let received = Some(self.upload.received_nanos).filter(|time| *time != 0);
        self.received = received.unwrap_or(now.nanos());
        self.time = if sent == 0 { self.received } else { sent };
        check_time(self.time, now, limits)?;
        self.identity = Identity {
            tenant: tenant.as_str(),
            labels: &self.upload.sent,
            time_nanos: sent,
            duration_nanos: header.duration_nanos,
            content: decoded.content.finish(header),
            // INV-03: a profile with neither id nor time cannot be distinguished from its duplicate, so each
            // counts. The arrival time would not distinguish two that come together. The number was drawn
            // before any shard was called: the next shard that receives the same upload recognizes it.
            client_id: client_id.map(str::as_bytes).or((sent == 0).then_some(&drawn[..])),
        }
        .identity();
        let tenant = tenant.as_str();
        let labels = &self.upload.sent;
        let source =
            Identity { tenant, labels, time_nanos: 0, duration_nanos: 0, content: 0, client_id: None };
        self.source = source.identity();
        Ok(())
    }

    /// Returns the identity, which only equal uploads share.
    pub fn identity(&self) -> ContentHash {
        self.identity
    }

    /// Returns the bytes of uncompressed pprof.
    pub fn raw_bytes(&self) -> usize {
        self.taken.raw_bytes as usize
    }

    /// Returns the bytes of memory that it has allocated.
    pub fn memory(&self) -> usize {
        self.walk.memory() + vec_memory(&self.rows)
    }

    /// Numbers the upload among equal ones of its request [INV-02].
    pub fn count(&mut self, equals: &mut OccurrenceCounts) {
        let n = equals.entry(self.identity).or_default();
        self.number = *n;
        *n += 1;
    }

    /// Adds the names to a head's dictionary and the rows to `batch`, and returns the records.
    pub fn add_to_batch(
        &mut self,
        rows: &mut TenantRows,
        rules: &TenantRelabelRules,
        batch: &mut UploadBatch,
        counting: &mut DeltaConverter,
    ) -> Result<(Vec<ProfileRecord>, DecodeStats), Status> {
        let (mut splits, lost) =
            split_by_labels(&self.walk, &self.upload.labels, &rules.limits_before_rules())?;
        self.taken.dropped.set(DropReason::NegativeSample, lost.negative);
        self.taken.dropped.set(DropReason::MalformedId, lost.ids);
        // An empty profile may be the first one of a restarted process.
        if splits.is_empty() && self.counting.contains(&true) {
            let labels = self.upload.labels.clone();
            splits.push(LabelSplit { promoted: Labels::default(), labels, rows: Vec::new() });
        }
        let kept = self.keep(&splits, rules)?;
        check_series(&splits, &kept, rows, &rules.limits)?;
        self.walk.resolve_stacks(&mut rows.dictionary).map_err(|error| refused(&error))?;
        let records = self.records(&rows.dictionary, &splits, kept, batch, counting);
        counting.check_budget()?;
        // A rejected upload leaves no series behind.
        let with_series = |(series, record)| ProfileRecord { series: rows.series_id(series), ..record };
        Ok((records.into_iter().map(with_series).collect(), self.taken))
    }

    /// Drops the upload and keeps its memory for the next one. Memory of more than `most` bytes is freed.
    pub fn forget(&mut self, most: usize) {
        self.upload = ProfileUpload::default();
        self.walk.release(most);
        if vec_memory(&self.rows) > most {
            self.rows = Vec::new();
        }
    }

    /// Returns the series that rules keep, each with the places of its split and sample type. Rows of others
    /// are counted.
    fn keep(
        &mut self,
        splits: &[LabelSplit],
        rules: &TenantRelabelRules,
    ) -> Result<Vec<(usize, usize, ProfileSeries)>, Status> {
        let header = &self.walk.decoded().header;
        let period_type = header.period_type.clone().unwrap_or_default();
        let keep_type = |of| rules.keeps_type(&self.upload.labels, of);
        let types = header.types.iter().map(keep_type).collect::<Result<Vec<bool>, Status>>()?;
        let mut kept = Vec::new();
        let mut bytes = 0;
        let mut dropped = 0;
        for (place, split) in splits.iter().enumerate() {
            for (value, of) in header.types.iter().enumerate() {
                let labels = match types[value] {
                    true => rules.apply(&split.labels, &self.upload.sent, of, &period_type)?,
                    false => None,
                };
                let Some(labels) = labels else {
                    dropped += split.rows.len() as u64;
                    continue;
                };
                let of_types = [of, &period_type].map(|of| of.kind.len() + of.unit.len());
                bytes += labels.text_bytes() + of_types[0] + of_types[1];
                check_texts(bytes)?;
                kept.push((place, value, ProfileSeries::new(labels, of.clone(), period_type.clone())));
            }
        }
        self.taken.dropped.set(DropReason::RelabelRule, dropped);
        Ok(kept)
    }

    /// Returns records, each with its series.
    fn records(
        &mut self,
        dictionary: &Dictionary,
        splits: &[LabelSplit],
        kept: Vec<(usize, usize, ProfileSeries)>,
        batch: &mut UploadBatch,
        counting: &mut DeltaConverter,
    ) -> Vec<(ProfileSeries, ProfileRecord)> {
        let mut records = Vec::new();
        let of_type = equals(&self.walk.decoded().header.types);
        let anew = self.has_counter_reset(dictionary, splits, &kept, counting);
        for (place, value, series) in kept {
            let split = &splits[place];
            self.gather(split, value);
            let header = &self.walk.decoded().header;
            let candidate = self.candidate(split, value, of_type[value], anew);
            let said = if self.counting[value] {
                counting.subtract(&candidate, &mut self.rows, dictionary)
            } else if self.rows.is_empty() {
                DeltaOutcome::Nothing
            } else {
                DeltaOutcome::New(DeltaOp::None)
            };
            let delta_op = match said {
                DeltaOutcome::Nothing => continue,
                // Nothing is stored of a duplicate, which its id identifies.
                DeltaOutcome::Again => DeltaOp::None,
                DeltaOutcome::New(delta_op) => delta_op,
            };
            let start = batch.rows.len();
            let moments = &self.walk.decoded().samples.moments;
            let samples = rows::pack_rows(&mut self.rows, moments, &mut batch.rows);
            let record = ProfileRecord {
                id: candidate.id,
                series: 0,
                time: self.time,
                duration: header.duration_nanos,
                period: header.period,
                samples,
                delta_op,
                delta_key: candidate.counter,
                rows: start..batch.rows.len(),
            };
            records.push((series, record));
        }
        records
    }

    /// Returns whether the upload comes from a restarted process. An upload comes from one process. So lower
    /// values in one type, under one set of labels, hold for all.
    fn has_counter_reset(
        &mut self,
        dictionary: &Dictionary,
        splits: &[LabelSplit],
        kept: &[(usize, usize, ProfileSeries)],
        counting: &DeltaConverter,
    ) -> bool {
        let of_type = equals(&self.walk.decoded().header.types);
        kept.iter().any(|&(place, value, _)| {
            if !self.counting[value] {
                return false;
            }
            self.gather(&splits[place], value);
            let candidate = self.candidate(&splits[place], value, of_type[value], false);
            counting.has_counter_reset(&candidate, &self.rows, dictionary)
        })
    }

    /// Returns the keys of the record of a split and one of its values, given the occurrence of its type.
    fn candidate(
        &self,
        split: &LabelSplit,
        value: usize,
        occurrence: SampleTypeOccurrence,
        anew: bool,
    ) -> DeltaCandidate {
        let SampleTypeOccurrence { nth, equal } = occurrence;
        let of = &self.walk.decoded().header.types[value];
        DeltaCandidate {
            id: record_id(self.identity, of, &split.promoted, self.number * equal + nth),
            counter: record_id(self.source, of, &split.promoted, nth),
            time: self.time,
            received: self.received,
            anew,
        }
    }

    /// Copies one value of a split's rows.
    fn gather(&mut self, split: &LabelSplit, value: usize) {
        let decoded = self.walk.decoded();
        let samples = &decoded.samples;
        let width = decoded.header.types.len();
        self.rows.clear();
        self.rows.extend(split.rows.iter().map(|&(row, span, trace)| {
            let stack = samples.stacks[row as usize];
            let value = samples.values[row as usize * width + value];
            InputRow { stack, place: row, span, trace, value }
        }));
        rows::normalize_rows(&mut self.rows);
    }
}

/// Occurrence of a sample type among the equal types of one profile.
#[derive(Clone, Copy)]
struct SampleTypeOccurrence {
    /// Place among the equal types, from 0.
    nth: u64,
    /// Number of equal types, this one included.
    equal: u64,
}

/// INV-02: returns, for each sample type, its place among equal types, and their number. Equal types are
/// equal profiles of one request like any others.
fn equals(types: &[ValueType]) -> Vec<SampleTypeOccurrence> {
    let mut counts: HashMap<&ValueType, u64> = HashMap::new();
    let count = |value_type| {
        let count = counts.entry(value_type).or_default();
        *count += 1;
        *count - 1
    };
    let places: Vec<u64> = types.iter().map(count).collect();
    let occurrences = types.iter().zip(places);
    occurrences.map(|(value_type, nth)| SampleTypeOccurrence { nth, equal: counts[value_type] }).collect()
}

fn check_texts(bytes: usize) -> Result<(), Status> {
    if bytes <= MAX_SERIES_TEXT_BYTES {
        return Ok(());
    }
    let limit = ByteSize::bytes(MAX_SERIES_TEXT_BYTES as u64);
    let message = format!(
        "the profile's series have more than {limit} of labels and types, the limit; shorten the text labels of its samples"
    );
    Err(Status::new(ErrorCode::Invalid, message).with_reason("series_limit"))
}

/// Checks the limit on a tenant's series in a head, if there is one.
fn check_series(
    splits: &[LabelSplit],
    kept: &[(usize, usize, ProfileSeries)],
    rows: &TenantRows,
    limits: &TenantLimits,
) -> Result<(), Status> {
    let Some(limit) = limits.max_local_series_per_tenant else { return Ok(()) };
    let known = rows.series_count();
    // Rules may make one series of several, and types may be equal.
    let filled = kept.iter().filter(|(place, ..)| !splits[*place].rows.is_empty());
    let new = filled.map(|(_, _, series)| series).filter(|series| !rows.has_series(series));
    let new = new.collect::<HashSet<&ProfileSeries>>().len();
    if new == 0 || known + new <= limit as usize {
        return Ok(());
    }
    let message = format!(
        "the profile adds {new} series to {known} in memory of this shard, the limit is {limit} (limits.max_local_series_per_tenant); drop labels that differ from process to process, or retry after the next flush (ingester.flush.max_head_age)"
    );
    Err(Status::new(ErrorCode::Exhausted, message)
        .with_reason("series_limit")
        .with_retry_after(SHARD_BUSY_RETRY_AFTER))
}

/// Returns whether a client's id is empty, or a UUID of zeros only.
fn is_nil(id: &str) -> bool {
    id.bytes().all(|byte| matches!(byte, b'0' | b'-'))
}

fn bounds(limits: &TenantLimits) -> pprof::DecodeLimits {
    pprof::DecodeLimits {
        samples: limits.max_profile_stacktrace_samples as usize,
        labels: limits.max_profile_stacktrace_sample_labels as usize,
        kept_depth: limits.max_profile_stacktrace_depth as usize,
        kept_text: limits.max_profile_symbol_value_length as usize,
        drop_dangling: true,
        ..pprof::DecodeLimits::for_bytes(limits.max_profile_size_bytes.as_usize())
    }
}

fn refused(error: &pprof::DecodeError) -> Status {
    let way_out = match error {
        pprof::DecodeError::OverLimit { what, .. } => way_out(what),
        pprof::DecodeError::SampleLabels { .. } => {
            " (limits.max_profile_stacktrace_sample_labels): send fewer labels on a sample"
        }
        _ => "",
    };
    Status::new(ErrorCode::Invalid, format!("{error}{way_out}")).with_reason(error.reason())
}

fn way_out(what: &str) -> &'static str {
    match what {
        "bytes" => " (limits.max_profile_size_bytes): profile for a shorter time",
        TIMESTAMP_BYTES_LIMIT_NAME => {
            " (limits.max_profile_size_bytes): profile for a shorter time, or send each sample type alone"
        }
        "samples" => " (limits.max_profile_stacktrace_samples): profile for a shorter time",
        "frames" => ", before limits.max_profile_stacktrace_depth applies: truncate stacks in the profiler",
        "bytes of tables in memory" => {
            ", four times limits.max_profile_size_bytes: its tables have too many entries; profile for a shorter time"
        }
        "sample types" | "values of a sample" => " (not configurable): send the types as several profiles",
        _ => " (not configurable): profile for a shorter time",
    }
}

fn check_types(decoded: &DecodedProfile) -> Result<(), Status> {
    match decoded.header.types.iter().find(|value_type| value_type.kind.contains('-')) {
        Some(value_type) => Err(Status::new(
            ErrorCode::Invalid,
            format!("sample type {:?} has a hyphen, which is not allowed; rename the type", value_type.kind),
        )
        .with_reason("malformed_profile")),
        None => Ok(()),
    }
}

/// Rejects names, types and units with a colon: queries name a profile type by five parts with colons in
/// between.
fn check_name(labels: &Labels, decoded: &DecodedProfile) -> Result<(), Status> {
    let of = |value_type: &'_ ValueType| [value_type.kind.clone(), value_type.unit.clone()];
    let header = &decoded.header;
    let types = header.types.iter().chain(&header.period_type).flat_map(of);
    let mut parts = labels.get(METRIC_NAME_LABEL).map(str::to_owned).into_iter().chain(types);
    match parts.find(|part| part.contains(':')) {
        Some(part) => Err(Status::new(
            ErrorCode::Invalid,
            format!("{part:?} has a colon, which is not allowed in names, types and units: queries select name:type:unit:period_type:period_unit"),
        )
        .with_reason("malformed_profile")),
        None => Ok(()),
    }
}

/// Rejects a profile if the sum of a type's values exceeds the numbers that each client can show. Such a
/// profile would spoil each result that contains it.
fn check_sums(decoded: &DecodedProfile) -> Result<(), Status> {
    let types = &decoded.header.types;
    for (place, value_type) in types.iter().enumerate() {
        let values = decoded.samples.values.iter().skip(place).step_by(types.len());
        let sum: i128 = values.map(|&value| i128::from(value.max(0))).sum();
        if sum > i128::from(i64::MAX) {
            let message = format!(
                "the values of sample type {:?} add up to {sum}, the limit is {}; send smaller values in a larger unit",
                value_type.kind,
                i64::MAX
            );
            return Err(Status::new(ErrorCode::Invalid, message).with_reason("malformed_profile"));
        }
    }
    Ok(())
}

fn check_time(time: i64, now: Timestamp, limits: &TenantLimits) -> Result<(), Status> {
    let time = Timestamp::from_nanos(time);
    let age = now.since(time);
    let lead = time.since(now);
    let outside = |span, what, limit: std::time::Duration, name| {
        let span = format_approximate_duration(span);
        let limit = format_duration(limit);
        let message = format!(
            "not in the ingestion window: the profile is {span} {what}, the limit is {limit} \
             (limits.{name}); disable the limit with --set limits.{name}=0s"
        );
        Err(Status::new(ErrorCode::Invalid, message).with_reason("not_in_ingestion_window"))
    };
    if !limits.reject_older_than.is_zero() && age > limits.reject_older_than {
        return outside(age, "old", limits.reject_older_than, "reject_older_than");
    }
    if !limits.reject_newer_than.is_zero() && lead > limits.reject_newer_than {
        return outside(lead, "in the future", limits.reject_newer_than, "reject_newer_than");
    }
    Ok(())
}
