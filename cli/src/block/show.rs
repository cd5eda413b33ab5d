//! `block list` and `block show`: print the contents of blocks.

use std::fmt::Write;
use std::path::Path;

use athanor_block::{BlockMeta, ProfileSeries, TenantMeta};
use athanor_chassis::Status;
use serde_json::{Value, json};

use crate::args::BlockPathArgs;
use crate::dev::labels_json;
use crate::output::{ConsoleOutput, format_rfc3339, harmless, type_name};
use crate::{failure, profile::input};

/// Maximum series per tenant in text output; JSON lists all.
const MAX_SERIES_SHOWN: usize = 20;

fn summary(path: &Path, meta: &BlockMeta) -> Value {
    json!({
        "folder": path.display().to_string(), "id": meta.id, "format": meta.format, "tier": meta.tier().name(), "tenants": meta.tenants.len(),
        "profiles": profiles(meta), "samples": meta.samples(), "bytes": meta.bytes(),
        "bytes_per_sample": super::bytes_per_sample(meta),
        "min_time": meta.tenants.iter().map(|tenant| tenant.min_time).min(),
        "max_time": meta.tenants.iter().map(|tenant| tenant.max_time).max(),
    })
}

/// Returns the number of profiles in a block. A row of a downsampled tier adds up several.
pub(super) fn profiles(meta: &BlockMeta) -> u64 {
    meta.tenants.iter().map(TenantMeta::profile_count).sum()
}

/// Lists blocks with one line each.
pub(super) fn list(args: &BlockPathArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let blocks = input::blocks(&args.folders)?;
    output.print_json_or_text(
        || blocks.iter().map(|(path, block)| summary(path, block.meta())).collect(),
        || {
            let head = format!(
                "{:>4} {:>7} {:>9} {:>11} {:>12} {:>8}  {:<24}  {:<24}  folder",
                "tier", "tenants", "profiles", "samples", "bytes", "/sample", "from", "to"
            );
            let mut text = output.format_bold(&head) + "\n";
            for (path, block) in &blocks {
                let meta = block.meta();
                let times = |pick: fn(&TenantMeta) -> i64| meta.tenants.iter().map(pick);
                let from = times(|tenant| tenant.min_time).min().map(format_rfc3339).unwrap_or_default();
                let to = times(|tenant| tenant.max_time).max().map(format_rfc3339).unwrap_or_default();
                let tier = meta.tier().name();
                let tenants = meta.tenants.len();
                let profiles = profiles(meta);
                let samples = meta.samples();
                let bytes = meta.bytes();
                let each = super::bytes_per_sample(meta);
                // Writing to a string cannot fail, here and below.
                let _ = writeln!(
                    text,
                    "{tier:>4} {tenants:>7} {profiles:>9} {samples:>11} {bytes:>12} {each:>8.2}  {from:<24}  {to:<24}  {}",
                    path.display()
                );
            }
            text
        },
    )
}

/// Prints the contents of one block.
pub(super) fn show_block(path: &Path, output: &ConsoleOutput) -> Result<(), Status> {
    let block = input::block(path)?;
    let meta = block.meta();
    let mut of_tenants = Vec::new();
    for part in block.tenant_blocks() {
        of_tenants.push(part.read_series().map_err(|error| failure::file_error(path, &error))?);
    }
    let timestamps = block.timestamp_bytes().map_err(|error| failure::file_error(path, &error))?;
    output.print_json_or_text(
        || {
            let mut all = summary(path, meta);
            let files = meta.files.iter().map(|(name, file)| (name.clone(), json!(file.bytes)));
            all["files"] = Value::Object(files.collect());
            all["timestamp_bytes"] = json!(timestamps);
            all["tenants"] = meta
                .tenants
                .iter()
                .zip(&of_tenants)
                .map(|(tenant, series)| tenant_json(tenant, series))
                .collect();
            all
        },
        || text(meta, timestamps, &of_tenants, output),
    )
}

fn tenant_json(tenant: &TenantMeta, series: &[ProfileSeries]) -> Value {
    let series = series
        .iter()
        .map(|one| json!({ "labels": labels_json(one.labels()), "type": type_name(&one.value_type) }));
    json!({
        "tenant": tenant.tenant, "min_time": tenant.min_time, "max_time": tenant.max_time,
        "profiles": tenant.profile_count(), "rows": tenant.profiles.1, "samples": tenant.samples, "stacks": tenant.stacks,
        "functions": tenant.functions.1, "series": series.collect::<Vec<_>>(),
    })
}

fn text(
    meta: &BlockMeta,
    timestamps: Option<u64>,
    of_tenants: &[Vec<ProfileSeries>],
    output: &ConsoleOutput,
) -> String {
    let mut text = String::new();
    let profiles = profiles(meta);
    let samples = meta.samples();
    let bytes = meta.bytes();
    let _ = writeln!(text, "block {}, format {}, tier {}", meta.id, meta.format, meta.tier().name());
    let each = super::bytes_per_sample(meta);
    let _ =
        writeln!(text, "{profiles} profiles, {samples} samples, {bytes} bytes, {each:.2} bytes per sample\n");
    let head = format!("{:<20} {:>12} {:>8} {:>8}", "file", "bytes", "share", "/sample");
    let _ = writeln!(text, "{}", output.format_bold(&head));
    for (name, file) in &meta.files {
        let share = file.bytes as f64 / meta.bytes().max(1) as f64 * 100.0;
        let each = file.bytes as f64 / meta.samples().max(1) as f64;
        let _ = writeln!(text, "{name:<20} {:>12} {share:>7.2}% {each:>8.3}", file.bytes);
    }
    if let Some(bytes) = timestamps {
        let _ = writeln!(text, "\nsamples.parquet contains {bytes} bytes of sample timestamps");
    }
    for (tenant, series) in meta.tenants.iter().zip(of_tenants) {
        let _ = writeln!(text, "\n{}", output.format_bold(&format!("tenant {}", harmless(&tenant.tenant))));
        let from = format_rfc3339(tenant.min_time);
        let to = format_rfc3339(tenant.max_time);
        let _ = writeln!(text, "{from} ({}) to {to} ({})", tenant.min_time, tenant.max_time);
        let profiles = tenant.profile_count();
        let stacks = tenant.stacks;
        let functions = tenant.functions.1;
        let count = series.len();
        let _ = writeln!(text, "{count} series, {profiles} profiles, {stacks} stacks, {functions} functions");
        for one in series.iter().take(MAX_SERIES_SHOWN) {
            let line = format!("{} {}", one.labels(), type_name(&one.value_type));
            let _ = writeln!(text, "  {}", harmless(&line));
        }
        if count > MAX_SERIES_SHOWN {
            let _ = writeln!(text, "  and {} more; --json lists all", count - MAX_SERIES_SHOWN);
        }
    }
    text
}
