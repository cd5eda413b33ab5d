//! Input files of commands: reads profiles of any format, and merges many files.

use std::fs::{self, File};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use athanor_block::{Block, LocalFolder, META_FILE};
use athanor_chassis::{Clock, ComputePool, ErrorCode, Status, TenantId, Timestamp};
use athanor_profile::analysis::merge::ProfileMerger;
use athanor_profile::call_tree::tree::MAX_MAGNITUDE;
use athanor_profile::data_model::dropped_counts::DropReason;
use athanor_profile::formats::format::{InputFormat, SUPPORTED_FORMATS};
use athanor_profile::formats::pprof::{self, DecodeLimits};
use athanor_profile::{Profile, analysis::prune};
use athanor_query::{ProfileFilter, TimeRange};
use indicatif::ProgressBar;

use crate::args::{InputArgs, ProfileSelectionArgs};
use crate::output::{harmless, type_name};
use crate::profile::sample_input;
use crate::{failure, progress};

/// Returns a compute pool with one thread per processor.
pub fn compute() -> Result<ComputePool, Status> {
    let width = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    ComputePool::with_threads(width, 0).map_err(|error| Status::from_error(&error))
}

/// Reads the bytes of a file, or of standard input if the path is `-`.
pub fn read(path: &Path, limits: &DecodeLimits) -> Result<Vec<u8>, Status> {
    let failed = |error| failure::io_error(path, error);
    let mut bytes = Vec::new();
    let limit = limits.bytes as u64 + 1;
    if path.as_os_str() == "-" {
        io::stdin().lock().take(limit).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        File::open(path).map_err(failed)?.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    }
    if bytes.len() > limits.bytes {
        let limit = limits.bytes;
        return Err(Status::new(
            ErrorCode::TooLarge,
            format!("{}: file exceeds {limit} bytes, which is the limit; split it", path.display()),
        ));
    }
    if bytes.is_empty() {
        return Err(failure::invalid_file(
            path,
            format!("file is empty; supported formats are {SUPPORTED_FORMATS}"),
        ));
    }
    Ok(bytes)
}

/// Decompressed contents of a file.
pub enum InputContent {
    /// Profile in plain pprof, not decoded.
    Pprof(Vec<u8>),
    /// Decoded profile of any other format.
    Read(Box<Profile>),
    /// Flight recording, with its profiles merged into one.
    Recording(Box<Profile>),
}

/// Reads a file and detects its format.
pub fn content(path: &Path, limits: &DecodeLimits) -> Result<InputContent, Status> {
    if path.as_os_str() != "-"
        && path.is_file()
        && let Some(format) = sample_input::detect_file(path)?
    {
        return Ok(InputContent::Read(Box::new(sample_input::read_file(path, format)?)));
    }
    let bytes = read(path, limits)?;
    if let Some(format) = sample_input::detect(&bytes) {
        return Ok(InputContent::Read(Box::new(sample_input::read_bytes(path, format, bytes)?)));
    }
    parse_content(path, &bytes, limits)
}

/// Detects the format of the bytes and decodes them.
pub fn parse_content(path: &Path, bytes: &[u8], limits: &DecodeLimits) -> Result<InputContent, Status> {
    let raw = pprof::inflate(bytes, limits.bytes).map_err(|error| failure::invalid_file(path, error))?;
    if raw.is_empty() {
        return Ok(InputContent::Pprof(raw));
    }
    let read = match InputFormat::detect(&raw) {
        Ok(InputFormat::Pprof) => return Ok(InputContent::Pprof(raw)),
        Ok(format) => format.read(&raw, limits).map(|profile| (format, Box::new(profile))),
        Err(error) => Err(error),
    };
    match read {
        Ok((InputFormat::Jfr, profile)) => Ok(InputContent::Recording(profile)),
        Ok((_, profile)) => Ok(InputContent::Read(profile)),
        Err(error) => {
            Err(failure::invalid_file(path, format!("{error}; supported formats are {SUPPORTED_FORMATS}")))
        }
    }
}

/// Opens blocks by their folders or by a parent folder.
pub fn blocks(folders: &[PathBuf]) -> Result<Vec<(PathBuf, Block)>, Status> {
    let mut paths = Vec::new();
    for folder in folders {
        let within = if folder.join(META_FILE).is_file() { Vec::new() } else { blocks_within(folder)? };
        // A folder without blocks is passed on, so that opening it reports the error.
        paths.extend(if within.is_empty() { vec![folder.clone()] } else { within });
    }
    paths.into_iter().map(|path| block(&path).map(|block| (path, block))).collect()
}

fn blocks_within(folder: &Path) -> Result<Vec<PathBuf>, Status> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |error| failure::io_error(folder, error);
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>().map_err(failed)?;
    paths.retain(|path| path.join(META_FILE).is_file());
    paths.sort_unstable();
    Ok(paths)
}

/// Opens the block in a folder.
pub fn block(path: &Path) -> Result<Block, Status> {
    if !path.join(META_FILE).is_file() {
        let why = if path.exists() { "not a block, meta.json is missing" } else { "no such folder" };
        return Err(Status::new(ErrorCode::NotFound, format!("{}: {why}", path.display())));
    }
    Block::open(Arc::new(LocalFolder::open(path))).map_err(|error| failure::file_error(path, &error))
}

/// Returns the filter that `picked` defines for a block. The tenant is required only if the block has
/// several.
pub fn filter(path: &Path, block: &Block, picked: &ProfileSelectionArgs) -> Result<ProfileFilter, Status> {
    let tenants = &block.meta().tenants;
    let tenant = match (&picked.tenant, tenants.as_slice()) {
        (Some(tenant), _) => tenant.clone(),
        (None, [only]) => only.tenant.parse().map_err(|error| failure::invalid_file(path, error))?,
        (None, []) => TenantId::anonymous(),
        (None, several) => {
            let names: Vec<&str> = several.iter().take(5).map(|part| part.tenant.as_str()).collect();
            let count = several.len();
            let names = names.join(", ");
            let message = format!("block holds {count} tenants ({names}); select one with --tenant");
            return Err(failure::invalid_file(path, message));
        }
    };
    let all = TimeRange::default();
    let now = Clock::system().wall();
    let end = picked.until.map(|until| until.resolve_end(now));
    let start = picked.since.map(|since| since.resolve_start(now, end.unwrap_or(now)));
    let time = TimeRange {
        from: start.map_or(all.from, Timestamp::nanos),
        to: end.map_or(all.to, Timestamp::nanos),
    };
    Ok(ProfileFilter {
        tenant,
        selector: picked.selector.clone().unwrap_or_default(),
        value_type: picked.value_type.clone(),
        time,
    })
}

/// Returns the matching profiles of a block, merged into one.
pub fn block_profile(path: &Path, picked: &ProfileSelectionArgs) -> Result<Profile, Status> {
    let block = block(path)?;
    let query = filter(path, &block, picked)?;
    crate::profile::block_query::query_block(&block, &query, &compute()?)
        .map_err(|error| failure::file_error(path, &error))
}

fn add(merger: &mut ProfileMerger, path: &Path, picked: &ProfileSelectionArgs) -> Result<u64, Status> {
    let limits = DecodeLimits::default();
    let refused = |error| failure::invalid_file(path, error);
    if path.is_dir() {
        if !path.join(META_FILE).is_file() {
            let message = format!(
                "{}: folder is not a block, {META_FILE} is missing; name the files in it",
                path.display()
            );
            return Err(Status::new(ErrorCode::NotFound, message));
        }
        merger.add(&block_profile(path, picked)?).map_err(refused)?;
        return Ok(0);
    }
    match content(path, &limits)? {
        InputContent::Pprof(raw) => {
            let dropped = merger.add_bytes(&raw, &limits).map_err(refused)?;
            Ok(dropped.get(DropReason::DanglingSample))
        }
        InputContent::Read(profile) | InputContent::Recording(profile) => {
            merger.add(&profile).map_err(refused).map(|()| 0)
        }
    }
}

/// Merges all files into one profile. Each thread merges a run of files, and then the runs are merged.
pub fn merge_files(files: &[PathBuf], picked: &ProfileSelectionArgs) -> Result<Profile, Status> {
    let compute = compute()?;
    let bar = progress::files(files.len(), "merging");
    let runs: Vec<&[PathBuf]> = files.chunks(files.len().div_ceil(compute.parallelism()).max(1)).collect();
    let of_runs = compute
        .map(runs.clone(), |run| merge_run(run, picked, &bar))
        .map_err(|error| Status::from_error(&error))?;
    bar.finish_and_clear();
    let mut whole = ProfileMerger::default();
    let mut dropped = 0;
    for (run, merger) in runs.iter().zip(of_runs) {
        let (merger, of_run) = merger?;
        dropped += of_run;
        whole.merge(merger).map_err(|error| failure::invalid_file(&run[0], error))?;
    }
    if dropped > 0 {
        eprintln!("athanor: dropped {dropped} samples with missing locations");
    }
    let dropped_types: Vec<String> = whole.dropped_types().map(type_name).collect();
    if !dropped_types.is_empty() {
        eprintln!(
            "athanor: dropped value types that not all files have: {}",
            harmless(&dropped_types.join(", "))
        );
    }
    if whole.has_wrapped() {
        return Err(sum_error("the files"));
    }
    Ok(whole.finish())
}

fn merge_run(
    run: &[PathBuf],
    picked: &ProfileSelectionArgs,
    bar: &ProgressBar,
) -> Result<(ProfileMerger, u64), Status> {
    let mut merger = ProfileMerger::default();
    let mut dropped = 0;
    for path in run {
        dropped += add(&mut merger, path, picked)?;
        bar.inc(1);
    }
    Ok((merger, dropped))
}

/// Returns a merged profile without the frames that it declares uninteresting, and the index of the value
/// type to show.
pub fn merge_for_view(files: &[PathBuf], picked: &ProfileSelectionArgs) -> Result<(Profile, usize), Status> {
    let (profile, bad) = prune::prune(merge_files(files, picked)?);
    if let Some(bad) = bad {
        eprintln!("athanor: {bad}");
    }
    let value = select_value(&files[0], &profile, picked)?;
    check_sums(&profile, value)?;
    Ok((profile, value))
}

/// Checks that the values of one type add up.
pub fn check_sums(profile: &Profile, value: usize) -> Result<(), Status> {
    if profile.magnitude(value) > MAX_MAGNITUDE { Err(sum_error("the profile")) } else { Ok(()) }
}

fn sum_error(origin: &str) -> Status {
    let message = format!(
        "sum of the values of {origin} does not fit in 63 bits, the limit is {MAX_MAGNITUDE}; merge fewer files or select fewer profiles"
    );
    Status::new(ErrorCode::Invalid, message)
}

/// Like [`merge_for_view`], for the common arguments.
pub fn merge_input_for_view(input: &InputArgs) -> Result<(Profile, usize), Status> {
    merge_for_view(&input.files, &input.picked)
}

/// Returns the index of the requested value type.
pub fn select_value(path: &Path, profile: &Profile, picked: &ProfileSelectionArgs) -> Result<usize, Status> {
    let types = &profile.header.types;
    let Some(filter) = &picked.value_type else { return Ok(profile.header.shown_type()) };
    types.iter().position(|value| filter.matches(value)).ok_or_else(|| {
        let known: Vec<String> = types.iter().map(type_name).collect();
        let message =
            format!("{}: no values of type {filter}; existing types: {}", path.display(), known.join(", "));
        Status::new(ErrorCode::NotFound, message)
    })
}

/// Checks that an output folder is missing or empty, so that nothing is overwritten.
pub fn check_empty(out: &Path) -> Result<(), Status> {
    let refused = |why| Err(Status::new(ErrorCode::Conflict, format!("{}: {why}", out.display())));
    match fs::read_dir(out).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => refused("folder is not empty; name a new one"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => refused("is a file; name a new folder"),
        Err(error) => Err(failure::io_error(out, error)),
    }
}
