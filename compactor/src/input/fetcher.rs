//! Fetcher of the parts that a job merges.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use athanor_block::{
    Block, BlockError, BlockMeta, FileRanges, MAX_META_BYTES, META_FILE, MergeSource, PAGE_BYTES,
};
use athanor_catalog::{BlockEntry, PartId, TenantSpan};
use athanor_chassis::Status;
use athanor_storage::path::{FileName, ObjectKey};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};

use crate::error::JobError;
use crate::input::part_lookup::{part_of_block, part_of_page};
use crate::input::sparse_folder::{SparseFolder, page_number};
use crate::job::context::JobContext;
use crate::job::objects::{block_key, block_owner};

/// Bytes that one request fetches at most. A whole number of pages.
const FETCH_BYTES: u64 = 4 << 20;
/// Requests of one job that run concurrently.
const MAX_CONCURRENT_FETCHES: usize = 4;
/// Attempts to fetch a range. A transfer may damage it.
const MAX_FETCH_ATTEMPTS: usize = 2;

/// Input block of a job, with the parts that the job takes.
#[derive(Clone)]
pub(crate) struct JobInput {
    pub(crate) entry: Arc<BlockEntry>,
    pub(crate) block: Block,
    folder: Arc<SparseFolder>,
    /// Tenants of the parts.
    pub(crate) tenants: BTreeSet<String>,
    /// Byte ranges of the parts, once they are located.
    ranges: FileRanges,
}

impl JobInput {
    /// Returns the bytes that are still to be fetched.
    fn missing_bytes(&self) -> u64 {
        self.folder.missing_ranges(&self.ranges).iter().map(|(_, range)| range.end - range.start).sum()
    }

    /// Returns the input for a merge.
    pub(crate) fn source(&self) -> MergeSource {
        MergeSource {
            block: self.block.clone(),
            tenants: Some(self.tenants.clone()),
            is_covered: self.entry.is_covered,
        }
    }

    /// Adds fetched pages to the scratch folder. Returns the first damaged page that a part needs, and the part.
    fn add_pages(
        &self,
        file: &'static str,
        range: &Range<u64>,
        bytes: &Bytes,
    ) -> std::io::Result<Option<(PartId, BlockError)>> {
        for (pages, error) in find_damage(self.block.meta(), file, range, bytes) {
            if let Some(part) = part_of_page(&self.entry, &self.block, file, &pages) {
                return Ok(Some((part, error)));
            }
        }
        self.folder.add(file, range.start, bytes)?;
        Ok(None)
    }
}

/// Opens all inputs of a job: fetches each `meta.json`.
pub(crate) async fn open_inputs(
    context: &JobContext<'_>,
    entries: &[BlockEntry],
) -> Result<Vec<JobInput>, JobError> {
    let opening: Vec<BoxFuture<'_, Result<JobInput, JobError>>> =
        entries.iter().map(|entry| open_input(context, entry).boxed()).collect();
    futures::stream::iter(opening).buffered(MAX_CONCURRENT_FETCHES).try_collect().await
}

/// Finds the byte ranges of the parts of all inputs. Holds the footers of their files in memory.
pub(crate) async fn locate_parts(context: &JobContext<'_>, inputs: &mut [JobInput]) -> Result<(), JobError> {
    let finding: Vec<BoxFuture<'_, Result<FileRanges, JobError>>> =
        inputs.iter().map(|input| find_ranges(context, input).boxed()).collect();
    let found: Vec<FileRanges> =
        futures::stream::iter(finding).buffered(MAX_CONCURRENT_FETCHES).try_collect().await?;
    for (input, ranges) in inputs.iter_mut().zip(found) {
        input.ranges = ranges;
    }
    Ok(())
}

/// Returns the bytes of all inputs that are still to be fetched.
pub(crate) fn missing_bytes(inputs: &[JobInput]) -> u64 {
    inputs.iter().map(JobInput::missing_bytes).sum()
}

/// Fetches the parts of all inputs. Returns the number of bytes.
pub(crate) async fn fetch_inputs(context: &JobContext<'_>, inputs: &[JobInput]) -> Result<u64, JobError> {
    let bytes = missing_bytes(inputs);
    let mut fetching: Vec<BoxFuture<'_, Result<(), JobError>>> = Vec::new();
    for input in inputs {
        for (file, range) in split_ranges(input.folder.missing_ranges(&input.ranges)) {
            fetching.push(fetch_range(context, input, file, range).boxed());
        }
    }
    futures::stream::iter(fetching).buffer_unordered(MAX_CONCURRENT_FETCHES).try_collect::<()>().await?;
    Ok(bytes)
}

async fn open_input(context: &JobContext<'_>, entry: &BlockEntry) -> Result<JobInput, JobError> {
    let fail = |reason: &str| JobError::from_part(part_of_block(entry), reason);
    let bytes = fetch_meta(context, entry).await?;
    let decode = move || BlockMeta::decode(&bytes);
    let decoded = context.run_on_pool(decode).await?;
    let meta = decoded.map_err(|error| fail(&Status::from_error(&error).message))?;
    check_meta(context, entry, &meta)?;
    let folder = Arc::new(SparseFolder::new(context.scratch.create_folder()?, &meta));
    let block = Block::with_meta(Arc::<SparseFolder>::clone(&folder), meta)
        .map_err(|error| fail(&Status::from_error(&error).message))?;
    let tenants = entry.tenants.iter().map(|span| span.tenant.to_string()).collect();
    let entry = Arc::new(entry.clone());
    Ok(JobInput { entry, block, folder, tenants, ranges: FileRanges::new() })
}

/// Fetches `meta.json`, at most a byte more than it may have.
async fn fetch_meta(context: &JobContext<'_>, entry: &BlockEntry) -> Result<Bytes, JobError> {
    let key = input_key(entry, META_FILE)?;
    let key = &key;
    let fetched = context.until_available(|| context.store.get_range(key, 0..MAX_META_BYTES + 1)).await?;
    let fail = |reason: &str| JobError::from_part(part_of_block(entry), reason);
    let bytes = fetched.map_err(|error| fail(&Status::from_error(&error).message))?;
    match bytes.len() as u64 > MAX_META_BYTES {
        true => Err(fail(&format!("{META_FILE} has over {MAX_META_BYTES} bytes, the limit"))),
        false => Ok(bytes),
    }
}

/// Checks that `meta.json` describes the listed block.
fn check_meta(context: &JobContext<'_>, entry: &BlockEntry, meta: &BlockMeta) -> Result<(), JobError> {
    let fail = |reason: String| Err(JobError::from_part(part_of_block(entry), &reason));
    if meta.id != entry.id.to_string() {
        return fail(format!("{META_FILE} describes block {}", meta.id));
    }
    let cluster = meta.origin.as_ref().map_or("", |origin| &origin.cluster);
    if cluster != context.cluster {
        return fail(format!("it belongs to cluster {cluster:?}, this cluster is {:?}", context.cluster));
    }
    let parts: BTreeMap<&str, u64> =
        meta.tenants.iter().map(|part| (part.tenant.as_str(), part.profile_count())).collect();
    let profiles = |span: &TenantSpan| parts.get(span.tenant.as_str()).copied();
    let differs = |span: &&TenantSpan| profiles(span) != Some(span.profiles);
    let Some(span) = entry.tenants.iter().find(differs) else { return Ok(()) };
    let seen = profiles(span).unwrap_or_default();
    let reason = format!("{META_FILE} lists {seen} profiles, the catalog {}", span.profiles);
    Err(JobError::from_part(PartId { block: entry.id, tenant: span.tenant.clone() }, &reason))
}

/// Opens a block and fetches the files that a comparison of profile IDs reads.
pub(crate) async fn fetch_ids(context: &JobContext<'_>, entry: &BlockEntry) -> Result<JobInput, JobError> {
    let mut input = open_input(context, entry).await?;
    fetch_tails(context, &input).await?;
    let block = input.block.clone();
    let tenants = input.tenants.clone();
    let find = move || block.byte_ranges_of_ids(Some(&tenants));
    let fail =
        |error: BlockError| JobError::from_part(part_of_block(entry), &Status::from_error(&error).message);
    input.ranges = context.run_on_pool(find).await?.map_err(fail)?;
    fetch_inputs(context, std::slice::from_ref(&input)).await?;
    Ok(input)
}

/// Returns the byte ranges of the parts.
async fn find_ranges(context: &JobContext<'_>, input: &JobInput) -> Result<FileRanges, JobError> {
    fetch_tails(context, input).await?;
    let fail = |error: BlockError| {
        JobError::from_part(part_of_block(&input.entry), &Status::from_error(&error).message)
    };
    let block = input.block.clone();
    let tenants = input.tenants.clone();
    context.run_on_pool(move || block.byte_ranges_of(Some(&tenants))).await?.map_err(fail)
}

/// Fetches the ends of files that `meta.json` does not hold.
async fn fetch_tails(context: &JobContext<'_>, input: &JobInput) -> Result<(), JobError> {
    let fail = |error: BlockError| {
        JobError::from_part(part_of_block(&input.entry), &Status::from_error(&error).message)
    };
    let tails = input.block.tail_ranges().map_err(fail)?;
    for (file, range) in split_ranges(input.folder.missing_ranges(&tails)) {
        fetch_range(context, input, file, range).await?;
    }
    Ok(())
}

/// Fetches whole pages, verifies their checksums and adds them to the scratch folder.
async fn fetch_range(
    context: &JobContext<'_>,
    input: &JobInput,
    file: &'static str,
    range: Range<u64>,
) -> Result<(), JobError> {
    let key = input_key(&input.entry, file)?;
    let key = &key;
    let mut attempt = 1;
    loop {
        let fetch = || context.store.get_range(key, range.clone());
        let fetched = context.until_available(fetch).await?;
        let fail = |reason: &str| JobError::from_part(part_of_block(&input.entry), reason);
        let bytes = fetched.map_err(|error| fail(&Status::from_error(&error).message))?;
        let adding = input.clone();
        let pages = range.clone();
        let add = move || adding.add_pages(file, &pages, &bytes);
        let Some((part, error)) = context.run_on_pool(add).await?? else { return Ok(()) };
        if attempt == MAX_FETCH_ATTEMPTS {
            return Err(JobError::from_part(part, &Status::from_error(&error).message));
        }
        attempt += 1;
    }
}

/// Compares fetched pages with the lengths and checksums in `meta.json`. Returns the ranges that differ.
fn find_damage(
    meta: &BlockMeta,
    file: &'static str,
    range: &Range<u64>,
    bytes: &Bytes,
) -> Vec<(Range<u64>, BlockError)> {
    let Ok(of_file) = meta.file(file) else { return Vec::new() };
    let seen = range.start + bytes.len() as u64;
    if seen != range.end {
        let error = BlockError::Length { file: file.to_owned(), seen, expected: of_file.bytes };
        return vec![(range.clone(), error)];
    }
    let first = page_number(range.start);
    let compare = |(place, page): (usize, &[u8])| {
        let seen = crc32fast::hash(page);
        let expected = of_file.checksums.get(first + place).copied().unwrap_or_default();
        let from = range.start + (place * PAGE_BYTES) as u64;
        let to = from + page.len() as u64;
        let file = file.to_owned();
        (seen != expected).then_some((from..to, BlockError::Damaged { file, from, to, seen, expected }))
    };
    bytes.chunks(PAGE_BYTES).enumerate().filter_map(compare).collect()
}

/// Splits ranges of whole pages into ranges of one request each.
fn split_ranges(ranges: FileRanges) -> FileRanges {
    let split = |(file, range): (&'static str, Range<u64>)| {
        let starts = range.clone().step_by(FETCH_BYTES as usize);
        starts.map(move |start| (file, start..range.end.min(start + FETCH_BYTES)))
    };
    ranges.into_iter().flat_map(split).collect()
}

fn input_key(entry: &BlockEntry, file: &str) -> Result<ObjectKey, JobError> {
    let file = FileName::new(file).map_err(|error| JobError::from_reason(error.to_string()))?;
    Ok(block_key(block_owner(entry.folder_tenant()), entry.id, file))
}

#[cfg(test)]
mod tests {
    use athanor_block::{SAMPLES_FILE, SERIES_FILE};

    use super::*;

    #[test]
    fn ranges_are_split_at_whole_pages() {
        assert_eq!(FETCH_BYTES % PAGE_BYTES as u64, 0);
        let ranges = vec![(SERIES_FILE, 65_536..FETCH_BYTES * 2), (SAMPLES_FILE, 0..10)];
        assert_eq!(
            split_ranges(ranges),
            [
                (SERIES_FILE, 65_536..FETCH_BYTES + 65_536),
                (SERIES_FILE, FETCH_BYTES + 65_536..FETCH_BYTES * 2),
                (SAMPLES_FILE, 0..10)
            ]
        );
    }
}
