//! Parts of blocks: fetched when they are asked about, kept while there is room.

use std::sync::Arc;

use athanor_block::{
    Block, BlockError, FUNCTIONS, LOCATIONS, MAPPINGS, PROFILES, PartSource, ROLLUP, SAMPLES, SERIES, STACKS,
    TenantMeta,
};
use athanor_catalog::BlockId;
use athanor_chassis::{Activity, ByteSize, Compute, Status, TenantId};
use athanor_profile::Source;
use athanor_query::Needs;
use athanor_storage::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fetch::{Fetched, Origin, TenantIn};
use crate::parts::Parts;

/// How much longer texts are thought to be decompressed before it is known: mostly they are less.
const TEXT_RATIO: u64 = 6;
/// What texts take in memory for each byte: as they are read, and as they are kept.
const TEXT_MEMORY: u64 = 2;
/// What footers take in memory for each byte, once they are decoded.
const FOOTER_MEMORY: u64 = 2;
/// What entries of tables take as they are kept.
const PROFILE: u64 = 80;
const NODE: u64 = 56;
const LOCATION: u64 = 96;
const FUNCTION: u64 = 128;

/// The blocks of a bucket.
pub struct Blocks {
    /// The bucket.
    pub store: Store,
    /// What was read.
    pub parts: Arc<Parts>,
    /// Threads.
    pub compute: Compute,
    room: Arc<Semaphore>,
    kibibytes: u32,
}

/// One tenant's part of a block, as far as it was fetched.
#[derive(Clone)]
pub struct Part {
    source: PartSource,
    block: Arc<Block>,
    folder: Arc<Fetched>,
}

/// A part of a block that a question is about.
pub struct Wanted {
    /// The blocks.
    pub blocks: Arc<Blocks>,
    /// Which of them.
    pub block: BlockId,
    /// Whose part.
    pub tenant: TenantId,
    /// What the question needs of it.
    pub needs: Needs,
    /// Whether the question is about all of the part's time: then sums of whole series answer it.
    pub whole: bool,
}

/// A part that is ready to be read, and whatever must be held meanwhile.
pub struct Opened {
    /// The part.
    pub source: Arc<dyn Source>,
    /// Room that it takes.
    pub held: Box<dyn Send>,
}

/// What is held as long as a part is read.
struct Reading {
    parts: Arc<Parts>,
    _room: OwnedSemaphorePermit,
}

impl Blocks {
    /// With room for so many bytes of what is read at a time.
    pub fn new(store: Store, parts: Arc<Parts>, compute: Compute, room: ByteSize) -> Self {
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize) as u64;
        let kibibytes = (room.get() / 1024).clamp(1, most) as u32;
        Self { store, parts, compute, room: Arc::new(Semaphore::new(kibibytes as usize)), kibibytes }
    }

    /// What takes more than all the room has it alone.
    async fn room(&self, bytes: u64) -> OwnedSemaphorePermit {
        let kibibytes = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(self.kibibytes);
        let room = Arc::clone(&self.room).acquire_many_owned(kibibytes);
        room.await.expect("the semaphore is never closed")
    }
}

impl Part {
    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        self.source.bytes() + self.folder.bytes()
    }
}

impl Wanted {
    /// The part with nothing but what its block says of itself.
    async fn begin(&self) -> Result<Part, Status> {
        let meta = self.origin().meta().await?;
        let (compute, tenant) = (self.blocks.compute.clone(), self.tenant.clone());
        self.compute(move || {
            let folder = Arc::new(Fetched::new(meta)?);
            let block = Arc::new(Block::open(Arc::<Fetched>::clone(&folder))?);
            let source = PartSource::new(Arc::clone(&block), tenant.as_str(), compute)?;
            Ok(Part { source, block, folder })
        })
        .await
    }

    async fn compute<R: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<R, BlockError> + Send + 'static,
    ) -> Result<R, Status> {
        let done = self.blocks.compute.run_as(Activity::Query, job).await;
        done.map_err(|error| Status::of(&error))?.map_err(|error| Status::of(&error))
    }

    fn origin(&self) -> Origin<'_> {
        Origin { store: &self.blocks.store, block: self.block, compute: &self.blocks.compute }
    }

    /// The files that the question needs.
    fn files(&self) -> Vec<&'static str> {
        let Needs { totals, rows, names } = self.needs;
        let mut files = vec![SERIES, PROFILES];
        if totals {
            files.push(ROLLUP);
        }
        // A part of a series' time is only in its rows.
        if rows || totals && !self.whole {
            files.push(SAMPLES);
        }
        if names {
            files.extend([STACKS, LOCATIONS, FUNCTIONS, MAPPINGS]);
        }
        files
    }

    /// What the part takes once it is fetched and read, as far as its footers say.
    async fn memory(&self, part: &Part) -> Result<u64, Status> {
        let (part, tenant, files) = (part.clone(), self.tenant.clone(), self.files());
        let (needs, width) = (self.needs, self.blocks.compute.width());
        self.compute(move || memory(&part, tenant.as_str(), &files, needs, width)).await
    }

    /// Fetches what the question needs of it.
    pub async fn open(self) -> Result<Opened, Status> {
        let mut part = match self.blocks.parts.get(self.block, &self.tenant) {
            Some(part) => part,
            None => self.begin().await?,
        };
        let all = u64::from(self.blocks.kibibytes) * 1024;
        let mut bytes = self.memory(&part).await?;
        let room = loop {
            let mut room = self.blocks.room(bytes).await;
            self.fetch(&part).await?;
            let seen = self.memory(&part).await?;
            if seen <= bytes || bytes >= all {
                drop(room.split((bytes.min(all).saturating_sub(seen) / 1024) as usize));
                break room;
            }
            // Texts are much longer than they looked. Whoever waits for more room must hold nothing, or all might wait.
            (part, bytes) = (self.begin().await?, seen);
        };
        self.blocks.parts.put(self.block, self.tenant.clone(), part.clone());
        let held = Box::new(Reading { parts: Arc::clone(&self.blocks.parts), _room: room });
        Ok(Opened { source: Arc::new(part.source), held })
    }
    async fn fetch(&self, part: &Part) -> Result<(), Status> {
        let origin = self.origin();
        let of = TenantIn { block: &part.block, tenant: self.tenant.as_str() };
        let fetches = self.files().into_iter().map(|file| part.folder.fetch(&origin, of, file));
        futures::future::try_join_all(fetches).await.map(drop)
    }
}

/// What a part takes once some of its files are fetched and read. Where a footer is not there yet, that is guessed.
fn memory(
    Part { block, folder, .. }: &Part,
    tenant: &str,
    files: &[&'static str],
    needs: Needs,
    width: usize,
) -> Result<u64, BlockError> {
    let (fetched, mut bytes, mut texts) = (folder.bytes(), 0u64, 0u64);
    for &file in files {
        let (stored, plain) = match block.extent(tenant, file) {
            Ok((range, plain)) => (range.end - range.start, plain),
            Err(_) => {
                let stored = block.meta().file(file)?.bytes;
                (stored, stored.saturating_mul(TEXT_RATIO))
            }
        };
        bytes = bytes.saturating_add(stored);
        if matches!(file, SERIES | FUNCTIONS | MAPPINGS) {
            texts = texts.saturating_add(plain.saturating_mul(TEXT_MEMORY));
        }
    }
    // Footers tell of all tenants. They are kept as they are stored, and decoded.
    let footers = (fetched as u64).saturating_sub(bytes).saturating_mul(1 + FOOTER_MEMORY);
    bytes = bytes.saturating_add(texts).saturating_add(footers);
    let TenantMeta { profiles, nodes, stacks, locations, functions, .. } = block.part(tenant)?.meta;
    let of = |count: u32, each: u64| u64::from(count) * each;
    let mut tables = of(profiles.1, PROFILE);
    if needs.names {
        tables += of(nodes.1, NODE) + of(locations.1, LOCATION) + of(functions.1, FUNCTION);
    }
    // Each thread adds up for itself.
    Ok(bytes.saturating_add(tables + of(*stacks, 8 * (width as u64 + 1))))
}

impl Drop for Reading {
    /// Reading decodes tables, which are kept.
    fn drop(&mut self) {
        self.parts.settle();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use athanor_block::{FILES, Folder, Held, META, MemoryFolder, write_held};
    use athanor_chassis::{Clock, Random};
    use athanor_profile::source::MemorySource;
    use athanor_profile::{Labels, Profile, ValueType, hash};
    use athanor_storage::path::{FileName, Key, Owner};
    use athanor_storage::{Config as Bucket, StoreDeps};

    use super::*;

    /// One profile of so many stacks, whose names do not compress.
    pub(crate) fn held(stacks: u32) -> MemorySource {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        for stack in 0..stacks {
            let part = |number: u32| {
                format!("{:032x}", hash::bytes(&[stack, number].map(u32::to_le_bytes).concat()))
            };
            let name: String = (0..500).map(part).collect();
            let id = profile.dictionary.named_stack([name.as_str()].into_iter());
            profile.samples.push(id, 0, &[i64::from(stack) + 1]);
        }
        let mut source = MemorySource::default();
        source.add(&Labels::new([("service_name".to_owned(), "shop".to_owned())]), &profile, 1);
        source
    }

    /// Puts a block of some tenants into a bucket; gives its bytes.
    pub(crate) async fn put(store: &Store, id: BlockId, tenants: &[(&str, MemorySource)]) -> u64 {
        let folder = MemoryFolder::default();
        let parts = tenants.iter().map(|(tenant, held)| (*tenant, held as &dyn Held));
        let meta = write_held(&folder, &id.number().to_string(), None, parts).unwrap();
        for file in FILES.into_iter().chain([META]) {
            let bytes = folder.read(file, 0, folder.length(file).unwrap() as usize).unwrap();
            let key =
                Key::Block { owner: Owner::Shared, block: id.number(), file: FileName::new(file).unwrap() };
            store.create(&key, bytes).await.unwrap();
        }
        meta.bytes()
    }

    pub(crate) fn bucket() -> Store {
        let deps = StoreDeps { clock: Clock::system(), random: Random::seeded(1) };
        Store::open(&Bucket { memory: true, ..Bucket::default() }, deps).unwrap()
    }

    async fn stored(room: ByteSize) -> (Arc<Blocks>, BlockId, u64) {
        let (store, id) = (bucket(), BlockId::from_number(7));
        let bytes = put(&store, id, &[("large", held(300)), ("small", held(2))]).await;
        let parts = Arc::new(Parts::new(ByteSize::mib(64)));
        (Arc::new(Blocks::new(store, parts, Compute::inline(), room)), id, bytes)
    }

    async fn open(blocks: &Arc<Blocks>, block: BlockId, tenant: &str, needs: Needs, whole: bool) -> Opened {
        let (blocks, tenant) = (Arc::clone(blocks), tenant.parse().unwrap());
        Wanted { blocks, block, tenant, needs, whole }.open().await.unwrap()
    }

    fn held_of(blocks: &Blocks, block: BlockId, tenant: &str) -> u64 {
        blocks.parts.get(block, &tenant.parse().unwrap()).unwrap().folder.bytes() as u64
    }

    #[tokio::test]
    async fn only_what_a_question_needs_is_fetched() {
        let (blocks, block, all) = stored(ByteSize::mib(64)).await;
        let tree = Needs { totals: true, rows: false, names: true };
        assert!(all > 2_000_000, "{all}");
        let total = |opened: &Opened| {
            let totals = opened.source.totals(&[0]).unwrap();
            opened.source.tree(&totals).unwrap().total()
        };
        let lists = open(&blocks, block, "large", Needs::default(), false).await;
        assert_eq!(lists.source.profiles().unwrap().len(), 1);
        assert!(held_of(&blocks, block, "large") < all / 10);
        assert!(lists.source.totals(&[0]).is_err(), "that was not fetched");
        let small = open(&blocks, block, "small", tree, true).await;
        assert_eq!(total(&small), 3);
        assert!(held_of(&blocks, block, "small") < all / 5, "the other tenant's names are not");
        // What is there is added to.
        for whole in [true, false] {
            let large = open(&blocks, block, "large", tree, whole).await;
            assert_eq!(total(&large), 300 * 301 / 2);
        }
        let held = held_of(&blocks, block, "large");
        assert!(held > all / 2 && held < all + 200_000, "{held} {all}");
    }

    /// Whoever asks first what a query would read is told that within a fifth, whoever else has parts of the block.
    #[tokio::test]
    async fn what_is_told_is_what_is_then_fetched() {
        let tenants = [("a", 40), ("b", 2), ("c", 150), ("d", 9), ("e", 1)];
        let (store, block) = (bucket(), BlockId::from_number(7));
        put(&store, block, &tenants.map(|(tenant, stacks)| (tenant, held(stacks)))).await;
        let tree = Needs { totals: true, rows: false, names: true };
        for (tenant, _) in tenants {
            for whole in [true, false] {
                let parts = Arc::new(Parts::new(ByteSize::mib(64)));
                let blocks =
                    Arc::new(Blocks::new(store.clone(), parts, Compute::inline(), ByteSize::mib(64)));
                let lists = open(&blocks, block, tenant, Needs::default(), whole).await;
                let told = lists.source.extent(&[0], whole).unwrap();
                let told = told.index + told.rows + told.names;
                open(&blocks, block, tenant, tree, whole).await;
                let fetched = held_of(&blocks, block, tenant);
                assert!(told * 10 >= fetched * 8 && told * 10 <= fetched * 12, "{tenant}: {told} {fetched}");
            }
        }
    }

    #[tokio::test]
    async fn what_is_read_takes_room_until_it_was_read() {
        let (blocks, block, _) = stored(ByteSize::mib(64)).await;
        let free = || blocks.room.available_permits();
        let all = free();
        let tree = Needs { totals: true, rows: false, names: true };
        let opened = open(&blocks, block, "large", tree, true).await;
        assert!(free() < all - 4_000, "{}", free());
        drop(opened);
        assert_eq!(free(), all);
        let (small, block, _) = stored(ByteSize::kib(64)).await;
        let opened = open(&small, block, "large", tree, true).await;
        assert_eq!((small.room.available_permits(), opened.source.series().unwrap().len()), (0, 1));
    }

    #[tokio::test]
    async fn parts_leave_when_they_grow_beyond_the_bound() {
        let (blocks, block, _) = stored(ByteSize::mib(64)).await;
        let blocks =
            Blocks { parts: Arc::new(Parts::new(ByteSize::mib(1))), ..Arc::into_inner(blocks).unwrap() };
        let blocks = Arc::new(blocks);
        let tree = Needs { totals: true, rows: false, names: true };
        drop(open(&blocks, block, "small", tree, true).await);
        drop(open(&blocks, block, "large", Needs::default(), true).await);
        assert_eq!(blocks.parts.stats().parts, 2);
        drop(open(&blocks, block, "large", tree, true).await);
        let stats = blocks.parts.stats();
        assert!(stats.bytes <= 1 << 20 && stats.parts < 2, "{stats:?}");
    }
}
