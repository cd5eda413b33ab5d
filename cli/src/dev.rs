//! `dev`: synthetic profiles, benchmarks and a local cluster.

pub(crate) mod bench;
mod cluster;

use std::fs;
use std::path::{Path, PathBuf};

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_profile::formats::pprof;
use athanor_profile::generate::ReferenceDataset;
use serde_json::{Value, json};

use crate::args::{DevArgs, DevSubcommand};
use crate::output::ConsoleOutput;
use crate::{failure, profile::example, profile::input, progress, server::serve};
use athanor_profile::formats::pprof::gzip;

/// Manifest file with a set's profiles and their labels.
pub const SET_MANIFEST_FILE: &str = "set.json";

/// Runs a `dev` subcommand.
pub fn run(args: DevArgs, output: &ConsoleOutput) -> Result<(), Status> {
    match args.command {
        DevSubcommand::Generate { dataset, out, seed } => generate(dataset.profiles(), seed, &out, output),
        DevSubcommand::Bench(args) => bench::run(&args, output),
        DevSubcommand::Cluster(args) => serve::block_on(cluster::run(&args, output)),
        DevSubcommand::Example { out } => {
            let example = example::checkout();
            output.write_result(&out, &gzip(&pprof::encode(&example)), example.samples.len())
        }
    }
}

fn generate(count: usize, seed: u64, out: &Path, output: &ConsoleOutput) -> Result<(), Status> {
    input::check_empty(out)?;
    fs::create_dir_all(out).map_err(|error| failure::io_error(out, error))?;
    let set = ReferenceDataset::new(seed);
    let bar = progress::files(count, "generating");
    let write = |i: usize| -> Result<u64, Status> {
        let path = out.join(file_name(i));
        let bytes = gzip(&set.pprof(i));
        fs::write(&path, &bytes).map_err(|error| failure::io_error(&path, error))?;
        bar.inc(1);
        Ok(bytes.len() as u64)
    };
    let written =
        input::compute()?.map((0..count).collect(), write).map_err(|error| Status::from_error(&error))?;
    let bytes = written.into_iter().sum::<Result<u64, Status>>()?;
    bar.finish_and_clear();
    let listed = (0..count).map(|i| json!({ "file": file_name(i), "labels": labels_json(&set.labels(i)) }));
    let manifest = json!({ "seed": seed, "profiles": listed.collect::<Vec<_>>() });
    let path = out.join(SET_MANIFEST_FILE);
    fs::write(&path, manifest.to_string()).map_err(|error| failure::io_error(&path, error))?;
    output.print_json_or_text(
        || json!({ "out": out.display().to_string(), "profiles": count, "bytes": bytes, "seed": seed }),
        || format!("{}: {count} profiles, {bytes} bytes\n", out.display()),
    )
}

fn file_name(i: usize) -> String {
    format!("{i:06}.pb.gz")
}

/// Converts labels to a JSON object.
pub fn labels_json(labels: &Labels) -> Value {
    labels
        .iter()
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Returns the files of a generated set with their labels.
pub fn read_profile_set(folder: &Path) -> Result<Vec<(PathBuf, Labels)>, Status> {
    #[derive(serde::Deserialize)]
    struct ProfileSetManifest {
        profiles: Vec<ProfileSetEntry>,
    }
    #[derive(serde::Deserialize)]
    struct ProfileSetEntry {
        file: String,
        #[serde(default)]
        labels: std::collections::BTreeMap<String, String>,
    }
    let path = folder.join(SET_MANIFEST_FILE);
    let bytes = fs::read(&path).map_err(|error| failure::io_error(&path, error))?;
    let manifest: ProfileSetManifest =
        serde_json::from_slice(&bytes).map_err(|error| failure::invalid_file(&path, error))?;
    Ok(manifest
        .profiles
        .into_iter()
        .map(|entry| (folder.join(entry.file), Labels::new(entry.labels)))
        .collect())
}
