//! `block`: builds, reads and verifies block folders.

mod build;
mod show;

use std::fs;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;

use athanor_block::{Block, BlockError, BlockFolder, BlockMeta, LocalFolder, merge_all, merge_round_count};
use athanor_chassis::code::ErrorCodeExt;
use athanor_chassis::{ErrorCode, Random, Status};
use athanor_profile::analysis::transform::StackTransforms;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::args::{self, BlockCatArgs, BlockPathArgs, BlockSubcommand};
use crate::output::ConsoleOutput;
use crate::profile::convert::{self, ConversionOptions};
use crate::profile::sample_table::{self, BlockInput};
use crate::{failure, profile::input, progress};

/// Runs a `block` subcommand.
pub fn run(args: args::BlockArgs, output: &ConsoleOutput) -> Result<(), Status> {
    match args.command {
        BlockSubcommand::Build(args) => build::run(&args, output),
        BlockSubcommand::List(args) => show::list(&args, output),
        BlockSubcommand::Show { folder } => show::show_block(&folder, output),
        BlockSubcommand::Verify(args) => verify(&args, output),
        BlockSubcommand::Cat(args) => cat(&args, output),
        BlockSubcommand::Merge { folders, out } => merge(&folders, &out, output),
    }
}

/// Staging folder of a new block, beside its destination. It is renamed to the destination once the block is
/// complete.
struct BlockStagingDir {
    out: PathBuf,
    parent: PathBuf,
    temporary: TempDir,
}

impl BlockStagingDir {
    fn start(out: &Path) -> Result<Self, Status> {
        input::check_empty(out)?;
        let parent = match out.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let made = fs::create_dir_all(parent)
            .and_then(|()| tempfile::Builder::new().prefix(".athanor-").tempdir_in(parent));
        let temporary = made.map_err(|error| failure::io_error(parent, error))?;
        Ok(BlockStagingDir { out: out.to_owned(), parent: parent.to_owned(), temporary })
    }
    /// Creates the folder that becomes the block.
    fn folder(&self) -> Result<LocalFolder, Status> {
        let path = self.temporary.path().join("block");
        LocalFolder::create(&path).map_err(|error| failure::io_error(&path, error))
    }
    /// Returns a factory of scratch folders for data that exceeds the memory limit.
    fn scratch(&self) -> impl FnMut() -> std::io::Result<Arc<dyn BlockFolder>> + use<> {
        let path = self.temporary.path().to_owned();
        let mut runs = 0;
        move || {
            runs += 1;
            Ok(Arc::new(LocalFolder::scratch(path.join(format!("run-{runs}")))?))
        }
    }
    fn finish(self) -> Result<(), Status> {
        fs::rename(self.temporary.path().join("block"), &self.out)
            .and_then(|()| fs::File::open(&self.parent)?.sync_all())
            .map_err(|error| failure::io_error(&self.out, error))?;
        self.temporary.close().map_err(|error| failure::io_error(&self.out, error))
    }
}

/// Returns a random block id.
fn new_id() -> String {
    format!("{:032x}", Random::system().next_id())
}

/// Returns the mean bytes per sample of a block.
fn bytes_per_sample(meta: &BlockMeta) -> f64 {
    meta.bytes() as f64 / meta.samples().max(1) as f64
}

/// Reports a block that a command has made.
fn made(out: &Path, meta: &BlockMeta, inputs: Value, output: &ConsoleOutput) -> Result<(), Status> {
    let samples = meta.samples();
    let bytes = meta.bytes();
    let profiles = show::profiles(meta);
    output.print_json_or_text(
        || {
            json!({ "out": out.display().to_string(), "id": meta.id, "profiles": profiles, "samples": samples,
                "bytes": bytes, "bytes_per_sample": bytes_per_sample(meta), "inputs": inputs })
        },
        || {
            let each = bytes_per_sample(meta);
            format!(
                "{}: {profiles} profiles, {samples} samples, {bytes} bytes ({each:.2} per sample)\n",
                out.display()
            )
        },
    )
}

/// Verifies all blocks, also after a failure, so that one run reports every problem.
fn verify(args: &BlockPathArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let mut results = Vec::new();
    let mut worst = None;
    for path in &args.folders {
        let found = input::block(path).and_then(|block| {
            let bar = progress::bytes(block.meta().bytes(), "verifying");
            let verified = block.verify(|bytes| bar.inc(bytes));
            bar.finish_and_clear();
            verified.map(|()| block.meta().clone()).map_err(|error| failure::file_error(path, &error))
        });
        let folder = path.display().to_string();
        match found {
            Ok(meta) => {
                let samples = meta.samples();
                let bytes = meta.bytes();
                if !output.json {
                    output.text(&format!("{folder}: valid, {samples} samples, {bytes} bytes\n"))?;
                }
                results.push(json!({ "folder": folder, "ok": true, "samples": samples, "bytes": bytes }));
            }
            Err(status) => {
                results.push(json!({ "folder": folder, "ok": false, "error": status.message }));
                if let Some(earlier) = worst.replace(status) {
                    eprintln!("athanor: {earlier}");
                }
            }
        }
    }
    if output.json {
        output.json(&json!(results))?;
    }
    worst.map_or(Ok(()), Err)
}

fn cat(args: &BlockCatArgs, output: &ConsoleOutput) -> Result<(), Status> {
    if let Some(format) = args.to.table_format() {
        let transforms = StackTransforms::default();
        let folders = slice::from_ref(&args.folder);
        let input = BlockInput { folders, picked: &args.picked, transforms: &transforms };
        return sample_table::write_blocks(input, format, &args.out, output);
    }
    let profile = input::block_profile(&args.folder, &args.picked)?;
    let value = input::select_value(&args.folder, &profile, &args.picked)?;
    let shape = ConversionOptions { format: args.to, max_nodes: None };
    convert::write(profile, value, &args.out, shape, args.folder.display().to_string(), output)
}

fn merge(folders: &BlockPathArgs, out: &Path, output: &ConsoleOutput) -> Result<(), Status> {
    let blocks: Vec<Block> =
        folders.folders.iter().map(|path| input::block(path)).collect::<Result<_, _>>()?;
    let making = BlockStagingDir::start(out)?;
    let mut scratch = making.scratch();
    let samples: u64 = blocks.iter().map(|block| block.meta().samples()).sum();
    let bar = progress::samples(samples * merge_round_count(blocks.len()), "merging");
    let merged = merge_all(&making.folder()?, &new_id(), blocks, &mut scratch, &mut |read| bar.inc(read));
    bar.finish_and_clear();
    let meta = merged.map_err(|error| blame(&folders.folders, &error))?;
    making.finish()?;
    made(out, &meta, json!(folders.folders.len()), output)
}

/// Names the damaged block of a failed merge. The merge error names only a file, so each block is verified.
fn blame(folders: &[PathBuf], error: &BlockError) -> Status {
    if error.code() == ErrorCode::DataLoss {
        for path in folders {
            let verified = input::block(path)
                .and_then(|block| block.verify(|_| ()).map_err(|error| failure::file_error(path, &error)));
            if let Err(status) = verified {
                return status;
            }
        }
    }
    Status::from_error(error)
}
