//! `meta.json`: contents of a block, written last. A block without it does not exist.

use std::collections::BTreeMap;

use athanor_chassis::Tier;
use serde::{Deserialize, Serialize};

use crate::format::error::BlockError;
use crate::format::row_order::RowOrder;

/// Newest block format that this version writes. It reads this format and all earlier ones.
pub const FORMAT_VERSION: u32 = 3;
/// First format that may have rows ordered by hours. Blocks in the order of series have the one before, which older
/// versions read.
const FIRST_FORMAT_WITH_HOURS: u32 = 3;
/// First format in which each tenant's part states the sum of its values.
const FIRST_FORMAT_WITH_SUMS: u32 = 2;
/// Name of the metadata file.
pub const META_FILE: &str = "meta.json";
/// Bytes covered by one checksum.
pub const PAGE_BYTES: usize = 64 * 1024;
/// Upper bound in bytes of a file's tail in `meta.json`.
const MAX_TAIL_BYTES: usize = PAGE_BYTES;
/// Upper bound in bytes of `meta.json`.
pub const MAX_META_BYTES: u64 = 64 << 20;
/// Upper bound of rows per row group, which a writer buffers and a scan job reads.
pub(crate) const MAX_ROWS_PER_GROUP: usize = 1 << 20;
/// Upper bound of rows per page.
pub(crate) const MAX_ROWS_PER_PAGE: usize = 64 * 1024;
/// Upper bound of rows per byte of a file. Every file has at least two columns, and two pages with their
/// headers exceed 32 bytes. Announced row counts are checked against it before memory is allocated.
pub(crate) const MAX_ROWS_PER_FILE_BYTE: u64 = MAX_ROWS_PER_PAGE as u64 / 32;

/// Names of the Parquet files of every block.
pub const PARQUET_FILES: [&str; 9] = [
    SERIES_FILE,
    PROFILES_FILE,
    SAMPLES_FILE,
    STACKS_FILE,
    LOCATIONS_FILE,
    FUNCTIONS_FILE,
    MAPPINGS_FILE,
    ROLLUP_FILE,
    INDEX_FILE,
];
/// Series table: labels and type.
pub const SERIES_FILE: &str = "series.parquet";
/// Profile table: series, time, ID.
pub const PROFILES_FILE: &str = "profiles.parquet";
/// Sample table: profile, stack, value.
pub const SAMPLES_FILE: &str = "samples.parquet";
/// Stack table: a tree of parent pointers.
pub const STACKS_FILE: &str = "stacks.parquet";
/// Location table, with one row per line.
pub const LOCATIONS_FILE: &str = "locations.parquet";
/// Function table with names.
pub const FUNCTIONS_FILE: &str = "functions.parquet";
/// Mapping table with build IDs.
pub const MAPPINGS_FILE: &str = "mappings.parquet";
/// Roll-up table: totals by series and stack.
pub const ROLLUP_FILE: &str = "rollup.parquet";

/// Index table: services that call each function.
pub const INDEX_FILE: &str = "index.parquet";

/// Metadata of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileMeta {
    /// Length of the file in bytes.
    pub bytes: u64,
    /// CRC-32 of every 64 KiB, as one string with eight hex digits each.
    #[serde(with = "hex_words")]
    pub checksums: Vec<u32>,
    /// Tail of the file: its footer and the page index before it, compressed. Opening a block reads these
    /// bytes of each file first. Empty if the tail is long.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "base64_text")]
    pub tail: Vec<u8>,
    /// Length of the file's tail in bytes. 0 in blocks of format 1, which do not state it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tail_bytes: u64,
}

impl FileMeta {
    /// Returns the tail of the file if present, and its offset.
    pub(crate) fn tail(&self) -> Option<(u64, Vec<u8>)> {
        let plain =
            zstd::bulk::decompress(&self.tail, MAX_TAIL_BYTES).ok().filter(|plain| !plain.is_empty())?;
        Some((self.bytes.checked_sub(plain.len() as u64)?, plain))
    }

    pub(crate) fn set_tail(&mut self, plain: &[u8]) {
        self.tail_bytes = plain.len() as u64;
        if plain.len() <= MAX_TAIL_BYTES {
            self.tail = zstd::bulk::compress(plain, 3).unwrap_or_default();
        }
    }
}

/// Range of consecutive IDs or row groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange(
    /// First ID of the range.
    pub u32,
    /// Number of IDs.
    pub u32,
);

impl IdRange {
    /// Returns the IDs as a range.
    pub fn range(self) -> std::ops::Range<usize> {
        self.0 as usize..self.0 as usize + self.1 as usize
    }
}

/// Metadata of one tenant's part of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantMeta {
    /// ID of the tenant.
    pub tenant: String,
    /// Time of the earliest profile in Unix nanoseconds.
    pub min_time: i64,
    /// Time of the latest profile in Unix nanoseconds.
    pub max_time: i64,
    /// ID range in `series.parquet`.
    pub series: IdRange,
    /// ID range in `profiles.parquet`.
    pub profiles: IdRange,
    /// Number of rows in `samples.parquet`.
    pub samples: u64,
    /// Sum of all sample values, modulo 2^64. None in blocks of format 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<u64>,
    /// Number of profiles that the rows of a downsampled tier add up. 0 for the raw tier, where each row is one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub records: u64,
    /// Time of the newest arrival of a profile in Unix nanoseconds. 0 if that is the time in the block's ID.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub newest_arrival: u64,
    /// ID range in `stacks.parquet`: whole stacks first, by falling popularity, then the frames between.
    pub nodes: IdRange,
    /// Number of nodes that are whole stacks.
    pub stacks: u32,
    /// ID range in `locations.parquet`.
    pub locations: IdRange,
    /// ID range in `functions.parquet`.
    pub functions: IdRange,
    /// ID range in `mappings.parquet`.
    pub mappings: IdRange,
    /// Row groups of each file, in the order of [`PARQUET_FILES`].
    pub groups: [IdRange; PARQUET_FILES.len()],
}

impl TenantMeta {
    /// Returns the number of profiles in the part.
    pub fn profile_count(&self) -> u64 {
        if self.records > 0 { self.records } else { u64::from(self.profiles.1) }
    }
}

/// Range of entries in a shard's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogRange {
    /// ID of the shard.
    pub shard: u32,
    /// Epoch of the shard.
    pub epoch: u32,
    /// Log index before the first entry.
    pub from: u64,
    /// Log index of the last entry.
    pub to: u64,
}

/// Merge job that wrote a block. A catalog that lost the block recovers the job from here: all of its outputs
/// or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobOrigin {
    /// Token of the claim under which the job ran.
    pub token: u64,
    /// IDs of all blocks that the job wrote, including this one.
    pub outputs: Vec<String>,
    /// IDs of the input blocks.
    pub blocks: Vec<String>,
    /// Inputs of each tenant, as indexes in `blocks`.
    pub tenants: BTreeMap<String, Vec<u32>>,
}

impl JobOrigin {
    /// Checks that the job names the block among its outputs, and only listed blocks as inputs.
    fn check(&self, id: &str) -> Result<(), String> {
        let count = self.blocks.len();
        if count == 0 {
            return Err("a merged block has 0 input blocks".to_owned());
        }
        if !self.outputs.iter().any(|output| output == id) {
            return Err(format!("block {id} is not among the outputs of its job"));
        }
        for (tenant, inputs) in &self.tenants {
            if let Some(input) = inputs.iter().find(|input| **input as usize >= count) {
                return Err(format!("tenant {tenant:?} has input {input}, the job has {count} input blocks"));
            }
        }
        Ok(())
    }
}

/// Log range that a block was flushed from, or log ranges and job of a merged block. A catalog that lost the
/// block recovers it from here, and the blocks that it replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockOrigin {
    /// Cluster ID as 32 hexadecimal digits.
    pub cluster: String,
    /// ID of the shard.
    pub shard: u32,
    /// Epoch of the shard.
    pub epoch: u32,
    /// Log index before the first entry in the block.
    pub from: u64,
    /// Log index of the last entry in the block.
    pub to: u64,
    /// Number of entries in the range that were lost before the flush.
    pub lost: u64,
    /// Number of merges that its rows went through, 0 for a flushed block.
    #[serde(default, skip_serializing_if = "is_flushed_level")]
    pub level: u8,
    /// Log ranges of a merged block after the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_ranges: Vec<LogRange>,
    /// Job that merged the block. None for a flushed block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobOrigin>,
    /// Tier of the rows.
    #[serde(default, skip_serializing_if = "Tier::is_raw")]
    pub tier: Tier,
    /// True if the downsampled tiers hold all rows of a raw block.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_covered: bool,
}

impl BlockOrigin {
    fn check(&self, id: &str) -> Result<(), String> {
        match (self.level, &self.job) {
            (0, None) if self.additional_ranges.is_empty() => Ok(()),
            (1.., Some(job)) => job.check(id),
            (level, job) => {
                let ranges = 1 + self.additional_ranges.len();
                let with = if job.is_some() { "a merge job" } else { "no merge job" };
                Err(format!("level {level} does not match {ranges} log ranges and {with}"))
            }
        }?;
        // Merges write downsampled tiers, and mark the rows of the raw tier that these hold.
        let is_merged = self.level > 0;
        if !is_merged && !self.tier.is_raw() || self.is_covered && !(is_merged && self.tier.is_raw()) {
            let covered = if self.is_covered { ", which downsampled tiers hold," } else { "" };
            return Err(format!(
                "rows of tier {}{covered} cannot have level {}",
                self.tier.name(),
                self.level
            ));
        }
        Ok(())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in references")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Returns whether a block of this level was flushed, not merged.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in references")]
fn is_flushed_level(level: &u8) -> bool {
    *level == 0
}

/// Contents of `meta.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockMeta {
    /// Version of the block format.
    pub format: u32,
    /// ID of the block.
    pub id: String,
    /// Origin in the log. None for a block that was not flushed or merged from flushed ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<BlockOrigin>,
    /// Order of the rows.
    #[serde(default, skip_serializing_if = "RowOrder::is_series")]
    pub order: RowOrder,
    /// Metadata of each tenant's part.
    pub tenants: Vec<TenantMeta>,
    /// Metadata of each file.
    pub files: BTreeMap<String, FileMeta>,
}

/// Stored form: the metadata with its own checksum.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChecksummedMeta {
    checksum: String,
    meta: Box<serde_json::value::RawValue>,
}

/// Format version, which is parsed before the rest.
#[derive(Deserialize)]
struct MetaVersion {
    format: u32,
}

impl BlockMeta {
    /// Encodes the metadata as the bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let meta = serde_json::value::to_raw_value(self).expect("a meta has only strings for keys");
        let checksum = checksum(meta.get());
        serde_json::to_vec(&ChecksummedMeta { checksum, meta }).expect("a meta has only strings for keys")
    }
    /// Parses and checks the bytes of the file.
    pub fn decode(bytes: &[u8]) -> Result<Self, BlockError> {
        let wrong = |why: String| BlockError::Meta { why };
        let sealed: ChecksummedMeta =
            serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        let text = sealed.meta.get();
        let seen = checksum(text);
        if seen != sealed.checksum {
            return Err(wrong(format!("checksum is {seen}, the recorded checksum is {}", sealed.checksum)));
        }
        let version: MetaVersion = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if version.format > FORMAT_VERSION {
            return Err(BlockError::NewerFormat { seen: version.format, known: FORMAT_VERSION });
        }
        let meta: BlockMeta = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        meta.check().map_err(wrong)?;
        Ok(meta)
    }
    /// Returns the bytes of all files except `meta.json`.
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.bytes).sum()
    }
    /// Returns the number of samples of all tenants.
    pub fn samples(&self) -> u64 {
        self.tenants.iter().map(|tenant| tenant.samples).sum()
    }
    /// Returns the format of a block in an order of rows.
    pub(crate) fn format_of(order: RowOrder) -> u32 {
        match order {
            RowOrder::Series => FIRST_FORMAT_WITH_HOURS - 1,
            RowOrder::Hour => FIRST_FORMAT_WITH_HOURS,
        }
    }
    /// Returns the tier of the rows.
    pub fn tier(&self) -> Tier {
        self.origin.as_ref().map_or(Tier::Raw, |origin| origin.tier)
    }
    /// Returns the metadata of a file.
    pub fn file(&self, name: &str) -> Result<&FileMeta, BlockError> {
        self.files.get(name).ok_or_else(|| BlockError::Meta { why: format!("file {name} is not listed") })
    }
    fn check(&self) -> Result<(), String> {
        if let Some(origin) = &self.origin {
            origin.check(&self.id)?;
        }
        if self.format >= FIRST_FORMAT_WITH_SUMS
            && let Some(part) = self.tenants.iter().find(|part| part.sum.is_none())
        {
            return Err(format!("tenant {:?} has no sum of its values", part.tenant));
        }
        for name in PARQUET_FILES {
            let file = self.files.get(name).ok_or_else(|| format!("file {name} is not listed"))?;
            let pages = file.bytes.div_ceil(PAGE_BYTES as u64);
            if file.checksums.len() as u64 != pages {
                let seen = file.checksums.len();
                return Err(format!("{name} has {pages} pages of 64 KiB and {seen} checksums"));
            }
        }
        if let Some(name) = self.files.keys().find(|name| !PARQUET_FILES.contains(&name.as_str())) {
            return Err(format!("listed file {name:?} is not a file of a block"));
        }
        if self.order == RowOrder::Hour && self.format < FIRST_FORMAT_WITH_HOURS {
            return Err(format!("a block of format {} cannot have rows ordered by hours", self.format));
        }
        self.check_tier()?;
        let mut next = TenantMeta::default();
        for tenant in &self.tenants {
            let runs =
                |of: &TenantMeta| [of.series, of.profiles, of.nodes, of.locations, of.functions, of.mappings];
            for (run, before) in
                runs(tenant).into_iter().zip(runs(&next)).chain(tenant.groups.into_iter().zip(next.groups))
            {
                if run.0 != before.0 + before.1
                    || run.0.checked_add(run.1).is_none_or(|end| end > i32::MAX as u32)
                {
                    return Err(format!(
                        "tenant {:?} does not begin where the previous tenant ends",
                        tenant.tenant
                    ));
                }
            }
            if tenant.stacks > tenant.nodes.1 {
                return Err(format!("tenant {:?} has more stacks than nodes", tenant.tenant));
            }
            next = tenant.clone();
        }
        self.check_rows()
    }
    /// Checks that the rows of a downsampled tier, and only these, add up records.
    fn check_tier(&self) -> Result<(), String> {
        let tier = self.tier();
        match self.tenants.iter().find(|part| (part.records > 0) == tier.is_raw()) {
            Some(TenantMeta { tenant, records, .. }) => {
                Err(format!("tenant {tenant:?} has {records} records in rows of tier {}", tier.name()))
            }
            None => Ok(()),
        }
    }
    /// Checks the row counts. Memory is allocated by these counts before the tables are read.
    fn check_rows(&self) -> Result<(), String> {
        for tenant in &self.tenants {
            let ids = [
                (SERIES_FILE, tenant.series),
                (PROFILES_FILE, tenant.profiles),
                (STACKS_FILE, tenant.nodes),
                (LOCATIONS_FILE, tenant.locations),
                (FUNCTIONS_FILE, tenant.functions),
                (MAPPINGS_FILE, tenant.mappings),
            ];
            let rows = ids.map(|(file, run)| (file, u64::from(run.0) + u64::from(run.1)));
            for (file, rows) in rows.into_iter().chain([(SAMPLES_FILE, tenant.samples)]) {
                let bytes = self.files[file].bytes;
                if rows > bytes.saturating_mul(MAX_ROWS_PER_FILE_BYTE) {
                    return Err(format!("{bytes} bytes of {file} cannot hold {rows} rows"));
                }
            }
        }
        Ok(())
    }
}

fn checksum(text: &str) -> String {
    format!("{:032x}", athanor_profile::encoding::hash::hash_bytes(text.as_bytes()))
}

mod base64_text {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

mod hex_words {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::fmt::Write;

    pub(crate) fn serialize<S: Serializer>(words: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(words.len() * 8);
        for word in words {
            write!(text, "{word:08x}").expect("writing to a string does not fail");
        }
        serializer.serialize_str(&text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
        let text = String::deserialize(deserializer)?;
        if !text.is_ascii() || text.len() % 8 != 0 {
            return Err(D::Error::custom("checksums are eight hex digits each"));
        }
        let digits = text.as_bytes().chunks(8).map(|word| std::str::from_utf8(word).unwrap_or_default());
        digits.map(|word| u32::from_str_radix(word, 16).map_err(D::Error::custom)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metadata of a block without rows.
    fn empty_block() -> BlockMeta {
        let origin = BlockOrigin {
            cluster: "c".to_owned(),
            shard: 1,
            epoch: 1,
            from: 0,
            to: 9,
            lost: 0,
            level: 0,
            additional_ranges: Vec::new(),
            tier: Tier::Raw,
            is_covered: false,
            job: None,
        };
        BlockMeta {
            format: FORMAT_VERSION,
            id: "own".to_owned(),
            origin: Some(origin),
            order: RowOrder::Series,
            tenants: vec![TenantMeta { tenant: "acme".to_owned(), sum: Some(0), ..TenantMeta::default() }],
            files: PARQUET_FILES.iter().map(|name| ((*name).to_owned(), FileMeta::default())).collect(),
        }
    }

    fn job() -> JobOrigin {
        JobOrigin {
            token: 7,
            outputs: vec!["other".to_owned(), "own".to_owned()],
            blocks: vec!["first".to_owned(), "second".to_owned()],
            tenants: BTreeMap::from([("acme".to_owned(), vec![0, 1])]),
        }
    }

    fn decode(meta: &BlockMeta) -> Result<BlockMeta, String> {
        BlockMeta::decode(&meta.encode()).map_err(|error| error.to_string())
    }

    fn decode_with_origin(change: impl FnOnce(&mut BlockOrigin)) -> Result<BlockMeta, String> {
        let mut meta = empty_block();
        change(meta.origin.as_mut().unwrap());
        decode(&meta)
    }

    #[test]
    fn meta_of_format_1_decodes() {
        let text = r#"{"format":1,"id":"own","origin":{"cluster":"c","shard":1,"epoch":1,"from":0,"to":9,"lost":0},"#;
        let part =
            r#""tenants":[{"tenant":"acme","min_time":0,"max_time":0,"series":[0,0],"profiles":[0,0],"#;
        let runs =
            r#""samples":0,"nodes":[0,0],"stacks":0,"locations":[0,0],"functions":[0,0],"mappings":[0,0],"#;
        let groups = format!(r#""groups":[{}]}}],"#, ["[0,0]"; PARQUET_FILES.len()].join(","));
        let file = |name: &&str| format!(r#""{name}":{{"bytes":0,"checksums":""}}"#);
        let files: Vec<String> = PARQUET_FILES.iter().map(file).collect();
        let meta = format!(r#"{text}{part}{runs}{groups}"files":{{{}}}}}"#, files.join(","));
        let stored = format!(r#"{{"checksum":"{}","meta":{meta}}}"#, checksum(&meta));
        let mut expected = empty_block();
        expected.format = 1;
        expected.tenants[0].sum = None;
        assert_eq!(BlockMeta::decode(stored.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn meta_of_merged_block_is_read_as_written() {
        let mut meta = empty_block();
        meta.tenants[0].sum = Some(u64::MAX);
        meta.tenants[0].newest_arrival = 5;
        let origin = meta.origin.as_mut().unwrap();
        origin.level = 2;
        origin.additional_ranges = vec![LogRange { shard: 2, epoch: 1, from: 0, to: 9 }];
        origin.job = Some(job());
        assert_eq!(decode(&meta).unwrap(), meta);
    }

    #[test]
    fn records_and_tier_that_differ_are_rejected() {
        let downsampled = |records: u64, change: fn(&mut BlockOrigin)| {
            let mut meta = empty_block();
            meta.tenants[0].records = records;
            let origin = meta.origin.as_mut().unwrap();
            origin.level = 2;
            origin.job = Some(job());
            origin.tier = Tier::OneHour;
            change(origin);
            decode(&meta)
        };
        let meta = downsampled(7, |_| ()).unwrap();
        assert_eq!((meta.tier(), meta.tenants[0].profile_count()), (Tier::OneHour, 7));
        let empty = downsampled(0, |_| ()).unwrap_err();
        assert!(empty.contains("has 0 records in rows of tier 1h"), "{empty}");
        let raw = downsampled(7, |origin| origin.tier = Tier::Raw).unwrap_err();
        assert!(raw.contains("has 7 records in rows of tier raw"), "{raw}");
        downsampled(0, |origin| (origin.tier, origin.is_covered) = (Tier::Raw, true)).unwrap();
        let covered = downsampled(7, |origin| origin.is_covered = true).unwrap_err();
        assert!(covered.contains("rows of tier 1h, which downsampled tiers hold, cannot"), "{covered}");
        let flushed = downsampled(7, |origin| (origin.level, origin.job) = (0, None)).unwrap_err();
        assert!(flushed.contains("rows of tier 1h cannot have level 0"), "{flushed}");
    }

    #[test]
    fn order_by_hours_needs_its_format() {
        let mut meta = empty_block();
        meta.order = RowOrder::Hour;
        assert_eq!(decode(&meta).unwrap(), meta);
        meta.format = FIRST_FORMAT_WITH_HOURS - 1;
        assert!(decode(&meta).unwrap_err().contains("format 2 cannot have rows ordered by hours"));
        meta.order = RowOrder::Series;
        assert_eq!(decode(&meta).unwrap(), meta);
    }

    #[test]
    fn missing_sum_is_rejected() {
        let mut meta = empty_block();
        meta.tenants[0].sum = None;
        assert!(decode(&meta).unwrap_err().contains("has no sum"));
    }

    #[test]
    fn level_without_matching_job_is_rejected() {
        decode_with_origin(|_| ()).unwrap();
        let range = LogRange { shard: 2, epoch: 1, from: 0, to: 9 };
        let unmerged = decode_with_origin(|origin| origin.additional_ranges = vec![range]).unwrap_err();
        assert!(unmerged.contains("level 0 does not match 2 log ranges and no merge job"), "{unmerged}");
        let flushed = decode_with_origin(|origin| origin.job = Some(job())).unwrap_err();
        assert!(flushed.contains("level 0 does not match 1 log ranges and a merge job"), "{flushed}");
        let without_job = decode_with_origin(|origin| origin.level = 1).unwrap_err();
        assert!(without_job.contains("level 1 does not match"), "{without_job}");
    }

    #[test]
    fn job_with_wrong_references_is_rejected() {
        let rejected = |change: fn(&mut JobOrigin)| {
            let mut changed = job();
            change(&mut changed);
            let merged = decode_with_origin(|origin| {
                origin.level = 1;
                origin.job = Some(changed);
            });
            merged.unwrap_err()
        };
        assert!(rejected(|job| job.blocks.clear()).contains("0 input blocks"));
        assert!(rejected(|job| job.outputs.truncate(1)).contains("block own is not among the outputs"));
        let input = rejected(|job| job.tenants.get_mut("acme").unwrap().push(2));
        assert!(input.contains("has input 2, the job has 2 input blocks"), "{input}");
    }
}
