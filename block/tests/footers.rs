//! What footers take in a block of many tenants.
#![expect(clippy::unwrap_used, reason = "a test")]

use athanor_block::{BlockFolder, MemoryFolder, MemoryProfiles, PARQUET_FILES, write_from_memory};
use athanor_profile::generate::ReferenceDataset;
use athanor_profile::store_interface::source::MemorySource;

/// Bytes of a block, and of its footers.
fn bytes(tenants: usize, held: &dyn MemoryProfiles) -> (u64, u64) {
    let names: Vec<String> = (0..tenants).map(|number| format!("tenant-{number:04}")).collect();
    let folder = MemoryFolder::default();
    let parts = names.iter().map(|name| (name.as_str(), held));
    let meta = write_from_memory(&folder, "tenants", None, parts).unwrap();
    let footer = |file: &&str| {
        let end = folder.length(file).unwrap();
        let tail = folder.read(file, end - 8, 4).unwrap();
        u64::from(u32::from_le_bytes(tail[..].try_into().unwrap()))
    };
    (meta.bytes(), PARQUET_FILES.iter().map(footer).sum())
}

/// 20 profiles: a minute of five pods.
fn minute(set: &ReferenceDataset, samples: usize) -> MemorySource {
    let mut held = MemorySource::default();
    for number in 0..20 {
        let mut profile = set.profile(number);
        let rows = &mut profile.samples;
        rows.stacks.truncate(samples);
        rows.labels.truncate(samples);
        rows.values.truncate(samples * profile.header.types.len());
        held.add(&set.labels(number), &profile, number as u128);
    }
    held
}

/// Footers hold a row group of each file for each tenant, whatever its rows say. So a thousand tenants with few rows
/// have the footers of a thousand with all rows of their profiles, of whom two are enough to know their bytes. The
/// bench writes the thousand whole.
#[test]
fn footers_of_a_thousand_tenants_are_a_fiftieth_at_most() {
    let set = ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED);
    let (_, footers) = bytes(1000, &minute(&set, 4));
    let (whole, _) = bytes(2, &minute(&set, ReferenceDataset::SAMPLES_PER_PROFILE));
    let (of_tenant, footer) = (whole / 2, footers / 1000);
    println!("{of_tenant} bytes a tenant, of which footers {footer}");
    assert!(footer * 50 <= of_tenant, "{footer} bytes of footers beside {of_tenant} of a tenant");
}
