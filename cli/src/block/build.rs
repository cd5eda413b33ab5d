//! `block build`: builds a block from profile files.

use std::path::PathBuf;

use athanor_block::{BlockBuilder, BlockError};
use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_profile::formats::pprof::{self, DecodeLimits};
use serde_json::json;

use super::BlockStagingDir;
use crate::args::BlockBuildArgs;
use crate::output::ConsoleOutput;
use crate::profile::input::InputContent;
use crate::{dev, failure, profile::input, progress};

/// Builds a block from input files.
pub(super) fn run(args: &BlockBuildArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let files = files(args)?;
    let making = BlockStagingDir::start(&args.out)?;
    let limits = DecodeLimits::default();
    let mut scratch = making.scratch();
    let mut builder = BlockBuilder::new(&super::new_id(), limits, args.max_memory.as_usize(), &mut scratch);
    let bar = progress::files(files.len(), "building");
    for (path, labels) in &files {
        let raw = match input::content(path, &limits)? {
            InputContent::Pprof(raw) => raw,
            InputContent::Read(profile) | InputContent::Recording(profile) => pprof::encode(&profile),
        };
        let added = builder.add_pprof(args.tenant.as_str(), labels, &raw);
        added.map_err(|error| match error {
            BlockError::Profile(error) => failure::invalid_file(path, error),
            error => failure::file_error(&args.out, &error),
        })?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let counts = builder.counts();
    let meta = builder.finish(&making.folder()?).map_err(|error| failure::file_error(&args.out, &error))?;
    making.finish()?;
    if counts.dropped_samples > 0 {
        let dropped = counts.dropped_samples;
        eprintln!("athanor: dropped {dropped} samples with missing locations");
    }
    if counts.dropped_labels > 0 {
        let dropped = counts.dropped_labels;
        eprintln!("athanor: dropped {dropped} sample labels that are neither text nor request ids");
    }
    let inputs = json!({ "uploads": counts.uploads, "raw_bytes": counts.raw_bytes,
        "dropped_samples": counts.dropped_samples, "dropped_labels": counts.dropped_labels });
    super::made(&args.out, &meta, inputs, output)
}

/// Returns all input files with their labels. Labels of the command line override those of a set.
fn files(args: &BlockBuildArgs) -> Result<Vec<(PathBuf, Labels)>, Status> {
    let mut all = Vec::new();
    for path in &args.files {
        if !path.is_dir() {
            all.push((path.clone(), Labels::default()));
        } else if path.join(dev::SET_MANIFEST_FILE).is_file() {
            all.extend(dev::read_profile_set(path)?);
        } else if path.join(athanor_block::META_FILE).is_file() {
            return Err(failure::invalid_file(path, "is a block; use `athanor block merge`"));
        } else {
            return Err(failure::invalid_file(path, "folder has no set.json; name the files in it"));
        }
    }
    for (_, labels) in &mut all {
        args.labels.iter().for_each(|(name, value)| labels.set(name, value));
    }
    Ok(all)
}
