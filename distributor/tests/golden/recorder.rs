//! Shards that decode what they are given, as real ones do, and answer simple questions about it.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use athanor_chassis::{ErrorCode, Status, TenantId, TenantLimits};
use athanor_distributor::{ProfileOutcome, ShardWriter, StoredProfile};
use athanor_profile::data_model::dropped_counts::DroppedCounts;
use athanor_profile::formats::pprof::{self, DecodedProfile, Inflater, PprofDecoder};
use athanor_profile::labeling::normalize::{
    LabelLimits, normalize_relabeled, promote, resolve_profile_time, strip_go_shapes,
};
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_profile::{Dictionary, Labels, labeling::relabel};
use parking_lot::Mutex;

/// One profile of one type and one set of labels.
#[derive(Clone, Debug)]
pub struct Record {
    pub labels: Labels,
    pub profile_type: String,
    pub time_nanos: i64,
    /// Value by path, root first.
    pub stacks: BTreeMap<Vec<String>, i64>,
}

#[derive(Default)]
pub struct Recorder {
    pub records: Mutex<Vec<Record>>,
}

#[async_trait]
impl ShardWriter for Recorder {
    async fn append(&self, _: &TenantId, uploads: Vec<ProfileUpload>) -> Vec<Result<StoredProfile, Status>> {
        uploads.iter().map(|upload| self.store(upload)).collect()
    }
}

fn invalid(error: impl std::fmt::Display) -> Status {
    Status::new(ErrorCode::Invalid, error.to_string())
}

impl Recorder {
    fn store(&self, upload: &ProfileUpload) -> Result<StoredProfile, Status> {
        let limits = TenantLimits::default();
        let bounds = pprof::DecodeLimits {
            bytes: limits.max_profile_size_bytes.as_usize(),
            samples: limits.max_profile_stacktrace_samples as usize,
            labels: limits.max_profile_stacktrace_sample_labels as usize,
            ..pprof::DecodeLimits::default()
        };
        let mut inflater = Inflater::default();
        let raw = inflater.inflate(&upload.pprof, bounds.bytes).map_err(invalid)?;
        let raw = strip_go_shapes(raw).map_err(invalid)?;
        let (mut dictionary, mut decoded) = (Dictionary::default(), DecodedProfile::default());
        PprofDecoder::default().decode(&raw, &bounds, &mut dictionary, &mut decoded).map_err(invalid)?;
        if decoded.header.types.iter().any(|value| value.kind.contains('-')) {
            return Err(invalid("a sample type contains '-'"));
        }
        let records = records(upload, &dictionary, &decoded)?;
        let outcome = if records.is_empty() { ProfileOutcome::Empty } else { ProfileOutcome::New };
        self.records.lock().extend(records);
        let (raw_bytes, samples) = (raw.len() as u64, decoded.samples.len() as u64);
        Ok(StoredProfile { outcome, raw_bytes, samples, dropped: DroppedCounts::default() })
    }

    /// The label sets of a service's series, as a reader sees them.
    pub fn series(&self, service: &str) -> BTreeSet<String> {
        let shown = |record: &Record| {
            let parts: Vec<&str> = record.profile_type.split(':').collect();
            let mut labels = record.labels.clone();
            for (name, value) in [
                ("__profile_type__", record.profile_type.as_str()),
                ("__service_name__", service),
                ("__type__", parts[1]),
                ("__unit__", parts[2]),
                ("__period_type__", parts[3]),
                ("__period_unit__", parts[4]),
            ] {
                labels.set(name, value);
            }
            labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
        };
        self.of(service).iter().map(shown).collect()
    }

    /// Total and self value by path, as a flame graph shows them.
    pub fn graph(&self, service: &str, profile_type: &str) -> BTreeMap<String, [i64; 2]> {
        let mut nodes = BTreeMap::from([("total".to_owned(), [0, 0])]);
        for record in self.of(service).iter().filter(|record| record.profile_type == profile_type) {
            for (path, value) in &record.stacks {
                let mut name = "total".to_owned();
                nodes.get_mut("total").expect("it was put in first")[0] += value;
                for frame in path {
                    name = format!("{name};{frame}");
                    nodes.entry(name.clone()).or_default()[0] += value;
                }
                nodes.get_mut(&name).expect("the path was put in")[1] += value;
            }
        }
        nodes
    }

    pub fn of(&self, service: &str) -> Vec<Record> {
        let records = self.records.lock();
        records.iter().filter(|record| record.labels.get("service_name") == Some(service)).cloned().collect()
    }
}

/// Splits a profile by type and by the labels of its samples; rows of zeros and with negative values say nothing.
fn records(
    upload: &ProfileUpload,
    dictionary: &Dictionary,
    decoded: &DecodedProfile,
) -> Result<Vec<Record>, Status> {
    let limits = TenantLimits::default();
    let limits = LabelLimits {
        name_length: limits.max_label_name_length as usize,
        value_length: limits.max_label_value_length as usize,
        names: limits.max_label_names_per_series as usize,
        ..LabelLimits::default()
    };
    let header = &decoded.header;
    let mut split: BTreeMap<(Labels, usize), BTreeMap<Vec<String>, i64>> = BTreeMap::new();
    for (stack, set, values) in decoded.samples.rows(header.types.len()) {
        if values.iter().any(|&value| value < 0) || values.iter().all(|&value| value == 0) {
            continue;
        }
        let strings = &dictionary.symbols.strings;
        let texts = dictionary.label_sets.get(set).iter().filter(|label| label.text != 0);
        let texts = texts.map(|label| (strings.get(label.key), strings.get(label.text)));
        let labels = promote(&upload.labels, texts, &limits).map_err(invalid)?;
        let labels = relabel::apply(relabel::default_rules(), &labels).expect("they add two labels at most");
        let labels = normalize_relabeled(labels.expect("they drop none"), &limits).map_err(invalid)?;
        for (place, &value) in values.iter().enumerate() {
            let stacks = split.entry((labels.clone(), place)).or_default();
            *stacks.entry(dictionary.frame_names(stack)).or_default() += value;
        }
    }
    let period = header.period_type.clone().unwrap_or_default();
    let record = |((labels, place), stacks): ((Labels, usize), _)| {
        let (name, kind) = (labels.get("__name__").unwrap_or_default(), &header.types[place]);
        let profile_type = format!("{name}:{}:{}:{}:{}", kind.kind, kind.unit, period.kind, period.unit);
        let time_nanos = resolve_profile_time(header.time_nanos, upload.time_nanos);
        Record { profile_type, labels, time_nanos, stacks }
    };
    Ok(split.into_iter().map(record).collect())
}
