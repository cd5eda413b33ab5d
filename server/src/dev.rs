//! `dev`: synthetic profiles, a load of them, and a cluster to send them to.

mod cluster;

use std::fs;
use std::path::{Path, PathBuf};

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_profile::generate::Reference;
use athanor_profile::pprof;
use serde_json::{Value, json};

use crate::args::{Dev, DevCommand};
use crate::output::Output;
use crate::{example, failure, input, load, progress, serve};
use athanor_profile::pprof::gzip;

/// The file that lists a set's profiles and their labels.
pub const SET: &str = "set.json";

/// Runs the command.
pub fn run(args: Dev, output: &Output) -> Result<(), Status> {
    match args.command {
        DevCommand::Generate { set, out, seed } => generate(set.profiles(), seed, &out, output),
        DevCommand::Load(args) => load::run(&args, output),
        DevCommand::Cluster(args) => serve::block_on(cluster::run(&args, output)),
        DevCommand::Example { out } => {
            let example = example::checkout();
            output.result(&out, &gzip(&pprof::encode(&example)), example.samples.len())
        }
    }
}

fn generate(count: usize, seed: u64, out: &Path, output: &Output) -> Result<(), Status> {
    input::must_be_empty(out)?;
    fs::create_dir_all(out).map_err(|error| failure::io(out, error))?;
    let set = Reference::new(seed);
    let bar = progress::files(count, "generating");
    let write = |i: usize| -> Result<u64, Status> {
        let path = out.join(file_name(i));
        let bytes = gzip(&set.pprof(i));
        fs::write(&path, &bytes).map_err(|error| failure::io(&path, error))?;
        bar.inc(1);
        Ok(bytes.len() as u64)
    };
    let written = input::compute()?.map((0..count).collect(), write).map_err(|error| Status::of(&error))?;
    let bytes = written.into_iter().sum::<Result<u64, Status>>()?;
    bar.finish_and_clear();
    let listed = (0..count).map(|i| json!({ "file": file_name(i), "labels": labels_json(&set.labels(i)) }));
    let manifest = json!({ "seed": seed, "profiles": listed.collect::<Vec<_>>() });
    let path = out.join(SET);
    fs::write(&path, manifest.to_string()).map_err(|error| failure::io(&path, error))?;
    output.either(
        || json!({ "out": out.display().to_string(), "profiles": count, "bytes": bytes, "seed": seed }),
        || format!("{}: {count} profiles, {bytes} bytes\n", out.display()),
    )
}

fn file_name(i: usize) -> String {
    format!("{i:06}.pb.gz")
}

/// Labels as a JSON object.
pub fn labels_json(labels: &Labels) -> Value {
    labels
        .iter()
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The files of a generated set, with their labels.
pub fn set(folder: &Path) -> Result<Vec<(PathBuf, Labels)>, Status> {
    #[derive(serde::Deserialize)]
    struct Manifest {
        profiles: Vec<Entry>,
    }
    #[derive(serde::Deserialize)]
    struct Entry {
        file: String,
        #[serde(default)]
        labels: std::collections::BTreeMap<String, String>,
    }
    let path = folder.join(SET);
    let bytes = fs::read(&path).map_err(|error| failure::io(&path, error))?;
    let manifest: Manifest =
        serde_json::from_slice(&bytes).map_err(|error| failure::invalid(&path, error))?;
    Ok(manifest
        .profiles
        .into_iter()
        .map(|entry| (folder.join(entry.file), Labels::new(entry.labels)))
        .collect())
}
