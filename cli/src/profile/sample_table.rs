//! Samples of files and blocks as rows of a table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use athanor_arrow_format::{
    ArrowStreamError, SampleColumns, SampleProfile, SampleValue, SampleWriter, StreamMetadata,
    TableFileFormat, TableFileWriter,
};
use athanor_block::TenantBlockSource;
use athanor_chassis::{ComputePool, ErrorCode, Status};
use athanor_profile::analysis::transform::StackTransforms;
use athanor_profile::encoding::hash::{hash_bytes, hash_list};
use athanor_profile::formats::pprof;
use athanor_profile::{Labels, Profile, ProfileType, SpanContext, ValueType};
use athanor_query::{
    PartialResult, ProfileFilter, ProfilePosition, ProfileQuery, ProfileSelection, QueryKind, ResultLimits,
    SampleList, SamplesQuery, StackFilter,
};
use bytes::Bytes;

use crate::args::ProfileSelectionArgs;
use crate::output::ConsoleOutput;
use crate::profile::block_query::matching_types;
use crate::profile::{input, sample_input};
use crate::table_output::{TableOutput, table_error};
use crate::{failure, progress};

/// Columns of local samples. Files have no cursors and no warnings.
const LOCAL_COLUMNS: [&str; 7] = ["profile_id", "time", "labels", "stack", "value", "span_id", "trace_id"];
/// Number of rows that are read from a block at a time.
const MAX_ROWS_PER_READ: u64 = 1 << 18;

/// Blocks and the selected part of them.
#[derive(Clone, Copy)]
pub struct BlockInput<'a> {
    /// Folders of the blocks.
    pub folders: &'a [PathBuf],
    /// Selected part.
    pub picked: &'a ProfileSelectionArgs,
    /// Transforms of the selected stacks.
    pub transforms: &'a StackTransforms,
}

/// Encodes one value type of a profile. A row is the sum of one stack with one set of sample labels.
pub fn encode_profile(profile: &Profile, value: usize, format: TableFileFormat) -> Result<Vec<u8>, Status> {
    input::check_sums(profile, value)?;
    let stream = profile_stream(profile, value).map_err(|error| encoding_failure(&error))?;
    let mut file = TableFileWriter::new(format, Vec::new());
    file.append_stream(&stream[..]).map_err(|error| encoding_failure(&error))?;
    file.finish().map_err(|error| encoding_failure(&error))
}

fn profile_stream(profile: &Profile, value: usize) -> Result<Bytes, ArrowStreamError> {
    let header = &profile.header;
    let period = header.period_type.clone().unwrap_or_default();
    let profile_type = ProfileType { name: String::new(), value: header.types[value].clone(), period };
    let mut writer = sample_writer(&profile_type, sample_input::header_entries(header))?;
    let mut samples_by_set: BTreeMap<u32, Vec<SampleValue>> = BTreeMap::new();
    for (stack, set, values) in profile.samples.rows(header.types.len()) {
        let sample = SampleValue { stack, value: values[value], span: SpanContext::default() };
        samples_by_set.entry(set).or_default().push(sample);
    }
    let content = hash_bytes(&pprof::encode(profile));
    let mut profiles = writer.with_dictionary(&profile.dictionary);
    for (set, samples) in samples_by_set {
        let labels = sample_labels(profile, set);
        let id = hash_list(&[content, u128::from(set)]);
        let rows = SampleProfile { id, time: header.time_nanos, labels: &labels, samples: &samples };
        profiles.write_profile(&rows, 0, u64::MAX)?;
    }
    writer.finish()
}

fn sample_writer(
    profile_type: &ProfileType,
    extra: Vec<(String, String)>,
) -> Result<SampleWriter, ArrowStreamError> {
    let metadata = StreamMetadata {
        unit: profile_type.value.unit.clone(),
        profile_type: profile_type.to_string(),
        extra,
        ..StreamMetadata::default()
    };
    let columns = SampleColumns::from_names(LOCAL_COLUMNS).unwrap_or_default();
    SampleWriter::new(columns, &metadata, Box::new(|_| String::new()))
}

/// Returns the labels of a set of sample labels. Numbers become text with their unit.
fn sample_labels(profile: &Profile, set: u32) -> Labels {
    let strings = &profile.dictionary.symbols.strings;
    let labels = profile.dictionary.label_sets.get(set).iter();
    Labels::new(labels.map(|label| {
        let value = match label.text {
            0 => format!("{}{}", label.number, strings.get(label.unit)),
            text => strings.get(text).to_owned(),
        };
        (strings.get(label.key).to_owned(), value)
    }))
}

/// Writes one value type of blocks to a file. A row is the sum of one stack in one profile.
pub fn write_blocks(
    input: BlockInput<'_>,
    format: TableFileFormat,
    out: &Path,
    output: &ConsoleOutput,
) -> Result<(), Status> {
    let compute = input::compute()?;
    let opened = input.folders.iter().map(|path| open_block(path, input, &compute));
    let blocks: Vec<SelectedBlock> = opened.collect::<Result<_, Status>>()?;
    let types = blocks.iter().map(|block| block.types.clone()).reduce(|all, types| {
        all.into_iter().filter(|(value_type, _)| types.contains_key(value_type)).collect()
    });
    let chosen = types.unwrap_or_default().into_keys().next_back().ok_or_else(|| {
        let why = "blocks have no value type in common; convert them one by one, or set --type";
        Status::new(ErrorCode::NotFound, why)
    })?;
    let mut file = TableOutput::create(out, format)?;
    let bar = progress::files(input.folders.len(), "converting");
    for block in &blocks {
        for profile_type in block.types.get(&chosen).into_iter().flatten() {
            append_type(block, profile_type, &mut file)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if file.rows() == 0 {
        let message = format!(
            "{}: no samples are selected; change --since, --until, --selector or the transforms",
            out.display()
        );
        return Err(Status::new(ErrorCode::NotFound, message));
    }
    file.finish(output)
}

/// Opened block with its selected types.
struct SelectedBlock<'a> {
    path: &'a Path,
    filter: ProfileFilter,
    source: TenantBlockSource,
    types: BTreeMap<ValueType, Vec<ProfileType>>,
    transforms: &'a StackTransforms,
}

fn open_block<'a>(
    path: &'a Path,
    input: BlockInput<'a>,
    compute: &ComputePool,
) -> Result<SelectedBlock<'a>, Status> {
    let block = Arc::new(input::block(path)?);
    let filter = input::filter(path, &block, input.picked)?;
    let types = matching_types(&block, &filter).map_err(|error| failure::file_error(path, &error))?;
    let source = TenantBlockSource::new(block, filter.tenant.as_str(), compute.clone())
        .map_err(|error| failure::file_error(path, &error))?;
    Ok(SelectedBlock { path, filter, source, types, transforms: input.transforms })
}

fn append_type(
    block: &SelectedBlock<'_>,
    profile_type: &ProfileType,
    file: &mut TableOutput,
) -> Result<(), Status> {
    let mut first = Some(ProfilePosition::default());
    while let Some(position) = first {
        let list = read_list(block, profile_type, position)
            .map_err(|error| failure::file_error(block.path, &error))?;
        let stream = list_stream(&list, profile_type).map_err(|error| table_error(block.path, &error))?;
        file.append(&stream)?;
        first = list.end();
    }
    Ok(())
}

fn read_list(
    block: &SelectedBlock<'_>,
    profile_type: &ProfileType,
    first: ProfilePosition,
) -> Result<Box<SampleList>, athanor_query::ProfileQueryError> {
    let selection = ProfileSelection {
        selector: block.filter.selector.clone(),
        profile_type: Some(profile_type.clone()),
        time: block.filter.time,
        ..ProfileSelection::default()
    };
    let stacks = StackFilter { transforms: block.transforms.clone(), ..StackFilter::default() };
    let samples = SamplesQuery { stacks, first, max_rows: MAX_ROWS_PER_READ, spans: true };
    let what = QueryKind::Samples(samples);
    let query = ProfileQuery { selection, what, bounds: ResultLimits::default() };
    match athanor_query::run(&query, &block.source)? {
        PartialResult::Samples(list) => Ok(list),
        _ => Ok(Box::default()),
    }
}

fn list_stream(list: &SampleList, profile_type: &ProfileType) -> Result<Bytes, ArrowStreamError> {
    let mut writer = sample_writer(profile_type, Vec::new())?;
    let mut profiles = writer.with_dictionary(&list.dictionary);
    for (profile, samples) in list.profiles() {
        let samples: Vec<SampleValue> = samples
            .map(|sample| SampleValue { stack: sample.stack, value: sample.value, span: sample.span })
            .collect();
        let rows =
            SampleProfile { id: profile.id, time: profile.time, labels: &profile.labels, samples: &samples };
        profiles.write_profile(&rows, 0, u64::MAX)?;
    }
    writer.finish()
}

fn encoding_failure(error: &ArrowStreamError) -> Status {
    Status::new(ErrorCode::Internal, format!("failed to encode samples: {error}"))
}
