//! Reading profiles: whatever format a file has, and many files at once.

use std::fs::{self, File};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use athanor_block::{Block, LocalFolder, META};
use athanor_chassis::{Code, Compute, Status, TenantId};
use athanor_profile::format::{Format, KNOWN};
use athanor_profile::merge::Merger;
use athanor_profile::pprof::{self, Limits};
use athanor_profile::{Profile, prune};
use athanor_query::{Query, TimeRange};
use indicatif::ProgressBar;

use crate::args::{Input, Picked};
use crate::output::harmless;
use crate::views::type_name;
use crate::{failure, progress};

/// As many threads as there are processors.
pub fn compute() -> Result<Compute, Status> {
    let width = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    Compute::threads(width, 0).map_err(|error| Status::of(&error))
}

/// The bytes of a file, or of standard input if it is `-`.
pub fn read(path: &Path, limits: &Limits) -> Result<Vec<u8>, Status> {
    let failed = |error| failure::io(path, error);
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
            Code::TooLarge,
            format!("{}: it has more than {limit} bytes, the limit; split it", path.display()),
        ));
    }
    if bytes.is_empty() {
        return Err(failure::invalid(path, format!("it is empty; a profile is {KNOWN}")));
    }
    Ok(bytes)
}

/// What a file holds, once decompressed.
pub enum Content {
    /// Plain pprof.
    Pprof(Vec<u8>),
    /// Any other format, read.
    Read(Box<Profile>),
    /// A flight recording: several profiles, read into one.
    Recording(Box<Profile>),
}

/// Reads a file of any format.
pub fn content(path: &Path, limits: &Limits) -> Result<Content, Status> {
    content_of(path, &read(path, limits)?, limits)
}

/// Tells the format by the content.
pub fn content_of(path: &Path, bytes: &[u8], limits: &Limits) -> Result<Content, Status> {
    let raw = pprof::inflate(bytes, limits.bytes).map_err(|error| failure::invalid(path, error))?;
    if raw.is_empty() {
        return Ok(Content::Pprof(raw));
    }
    let read = match Format::of(&raw) {
        Ok(Format::Pprof) => return Ok(Content::Pprof(raw)),
        Ok(format) => format.read(&raw, limits).map(|profile| (format, Box::new(profile))),
        Err(error) => Err(error),
    };
    match read {
        Ok((Format::Jfr, profile)) => Ok(Content::Recording(profile)),
        Ok((_, profile)) => Ok(Content::Read(profile)),
        Err(error) => Err(failure::invalid(path, format!("{error}; a profile is {KNOWN}"))),
    }
}

/// Blocks by their folders, or by a folder that they lie in.
pub fn blocks(folders: &[PathBuf]) -> Result<Vec<(PathBuf, Block)>, Status> {
    let mut paths = Vec::new();
    for folder in folders {
        let within = if folder.join(META).is_file() { Vec::new() } else { blocks_within(folder)? };
        // What holds none is told as no block.
        paths.extend(if within.is_empty() { vec![folder.clone()] } else { within });
    }
    paths.into_iter().map(|path| block(&path).map(|block| (path, block))).collect()
}

fn blocks_within(folder: &Path) -> Result<Vec<PathBuf>, Status> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |error| failure::io(folder, error);
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>().map_err(failed)?;
    paths.retain(|path| path.join(META).is_file());
    paths.sort_unstable();
    Ok(paths)
}

/// Opens a block.
pub fn block(path: &Path) -> Result<Block, Status> {
    if !path.join(META).is_file() {
        let why = if path.exists() { "no block, it has no meta.json" } else { "there is no such folder" };
        return Err(Status::new(Code::NotFound, format!("{}: {why}", path.display())));
    }
    Block::open(Arc::new(LocalFolder::open(path))).map_err(|error| failure::of(path, &error))
}

/// What `picked` asks of a block. A tenant must be named only where there are several.
fn query(path: &Path, block: &Block, picked: &Picked) -> Result<Query, Status> {
    let tenants = &block.meta().tenants;
    let tenant = match (&picked.tenant, tenants.as_slice()) {
        (Some(tenant), _) => tenant.clone(),
        (None, [only]) => only.tenant.parse().map_err(|error| failure::invalid(path, error))?,
        (None, []) => TenantId::anonymous(),
        (None, several) => {
            let names: Vec<&str> = several.iter().take(5).map(|part| part.tenant.as_str()).collect();
            let (count, names) = (several.len(), names.join(", "));
            let message = format!("it holds {count} tenants ({names}); name one with --tenant");
            return Err(failure::invalid(path, message));
        }
    };
    let all = TimeRange::default();
    let time = TimeRange { from: picked.since.unwrap_or(all.from), to: picked.until.unwrap_or(all.to) };
    Ok(Query {
        tenant,
        selector: picked.select.clone().unwrap_or_default(),
        value_type: picked.value_type.clone(),
        time,
    })
}

/// What a block holds, as one profile.
pub fn block_profile(path: &Path, picked: &Picked) -> Result<Profile, Status> {
    let block = block(path)?;
    let query = query(path, &block, picked)?;
    crate::ask::run(&block, &query, &compute()?).map_err(|error| failure::of(path, &error))
}

fn add(merger: &mut Merger, path: &Path, picked: &Picked) -> Result<u64, Status> {
    let limits = Limits::default();
    let refused = |error| failure::invalid(path, error);
    if path.is_dir() {
        if !path.join(META).is_file() {
            let message = format!(
                "{}: a folder that is no block, it has no {META}; name the files in it",
                path.display()
            );
            return Err(Status::new(Code::NotFound, message));
        }
        merger.add(&block_profile(path, picked)?).map_err(refused)?;
        return Ok(0);
    }
    match content(path, &limits)? {
        Content::Pprof(raw) => {
            let dropped = merger.add_bytes(&raw, &limits).map_err(refused)?;
            Ok(dropped.samples as u64)
        }
        Content::Read(profile) | Content::Recording(profile) => {
            merger.add(&profile).map_err(refused).map(|()| 0)
        }
    }
}

/// All files as one profile. Each thread merges its own run of files; then the runs are.
pub fn merged(files: &[PathBuf], picked: &Picked) -> Result<Profile, Status> {
    let compute = compute()?;
    let bar = progress::files(files.len(), "merging");
    let runs: Vec<&[PathBuf]> = files.chunks(files.len().div_ceil(compute.width()).max(1)).collect();
    let of_runs =
        compute.map(runs.clone(), |run| merge_run(run, picked, &bar)).map_err(|error| Status::of(&error))?;
    bar.finish_and_clear();
    let mut whole = Merger::default();
    let mut dropped = 0;
    for (run, merger) in runs.iter().zip(of_runs) {
        let (merger, of_run) = merger?;
        dropped += of_run;
        whole.absorb(merger).map_err(|error| failure::invalid(&run[0], error))?;
    }
    if dropped > 0 {
        eprintln!("athanor: {dropped} samples point to locations that are not there and were left out");
    }
    let left_out: Vec<String> = whole.left_out().map(type_name).collect();
    if !left_out.is_empty() {
        eprintln!("athanor: left out, as not all files have them: {}", harmless(&left_out.join(", ")));
    }
    Ok(whole.finish())
}

fn merge_run(run: &[PathBuf], picked: &Picked, bar: &ProgressBar) -> Result<(Merger, u64), Status> {
    let mut merger = Merger::default();
    let mut dropped = 0;
    for path in run {
        dropped += add(&mut merger, path, picked)?;
        bar.inc(1);
    }
    Ok((merger, dropped))
}

/// A merged profile without the frames that it declares uninteresting, and the type to show.
pub fn shown(files: &[PathBuf], picked: &Picked) -> Result<(Profile, usize), Status> {
    let (profile, bad) = prune::prune(merged(files, picked)?);
    if let Some(bad) = bad {
        eprintln!("athanor: {bad}");
    }
    let value = value_of(&files[0], &profile, picked)?;
    Ok((profile, value))
}

/// As [`shown`], for the usual arguments.
pub fn shown_of(input: &Input) -> Result<(Profile, usize), Status> {
    shown(&input.files, &input.picked)
}

/// The column of the type that was asked for.
pub fn value_of(path: &Path, profile: &Profile, picked: &Picked) -> Result<usize, Status> {
    let types = &profile.header.types;
    let Some(filter) = &picked.value_type else { return Ok(profile.header.shown_type()) };
    types.iter().position(|value| filter.matches(value)).ok_or_else(|| {
        let known: Vec<String> = types.iter().map(type_name).collect();
        let message =
            format!("{}: no values of type {filter}; there are {}", path.display(), known.join(", "));
        Status::new(Code::NotFound, message)
    })
}

/// Folders and files that must not be overwritten: it must be missing or an empty folder.
pub fn must_be_empty(out: &Path) -> Result<(), Status> {
    let refused = |why| Err(Status::new(Code::Conflict, format!("{}: {why}", out.display())));
    match fs::read_dir(out).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => refused("the folder is not empty; name a new one"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            refused("it is a file; name a new folder")
        }
        Err(error) => Err(failure::io(out, error)),
    }
}
