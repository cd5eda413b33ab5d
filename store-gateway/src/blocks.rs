//! Parts of blocks: fetched when they are asked about, kept while there is room.

use std::ops::Range;
use std::sync::Arc;

use athanor_block::{
    Block, BlockError, Extents, FUNCTIONS, LOCATIONS, MAPPINGS, PROFILES, PartSource, ProfileColumns, ROLLUP,
    Rows, SAMPLES, SERIES, STACKS, TenantMeta,
};
use athanor_catalog::BlockId;
use athanor_chassis::{Activity, Code, Compute, Disk, Status, TenantId};
use athanor_profile::source::SourceError;
use athanor_query::{Ask, AskError, Needs, Picked, What};
use athanor_storage::Store;
use futures::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Config;
use crate::fetch::Fetched;
use crate::flights::Flights;
use crate::origin::Origin;
use crate::parts::Parts;
use crate::shelf::{Shelf, ShelfKey};

mod memory;

/// A footer is read in so many steps at most: its length, itself, what it points to; and so is a table.
const TRIES: usize = 8;

/// The blocks of a bucket.
pub struct Blocks {
    /// The bucket.
    pub store: Store,
    /// What was read.
    pub parts: Arc<Parts>,
    /// Threads.
    pub compute: Compute,
    /// What is kept on disk, where there is one for that.
    pub shelf: Option<Arc<Shelf>>,
    /// Parts that are being begun.
    beginning: Flights<(BlockId, TenantId), Result<Part, Status>>,
    room: Arc<Semaphore>,
    kibibytes: u32,
}

/// One tenant's part of a block, as far as it was fetched. Clones are the same.
#[derive(Clone)]
pub struct Part {
    id: BlockId,
    tenant: TenantId,
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
    /// The question.
    pub ask: Arc<Ask>,
    /// Whether it seems to be about all of the part's time: then sums of whole series answer it.
    pub whole: bool,
}

/// A part that is ready to be read, and whatever must be held meanwhile.
pub struct Opened {
    /// The part.
    pub part: Part,
    /// The profiles in it that are meant.
    pub picked: Picked,
    /// Room that it takes.
    pub held: Box<dyn Send>,
}

/// What is held as long as a part is read.
struct Reading {
    parts: Arc<Parts>,
    part: Part,
    _room: OwnedSemaphorePermit,
}

/// Whether there is room for what a question needs of a part, of the profiles that are meant.
enum Room {
    Held(OwnedSemaphorePermit, Picked),
    /// Less was asked for than so much, and there is no more at once.
    Wants(u64),
}

impl Blocks {
    /// Of a bucket.
    pub fn new(store: Store, compute: Compute, disk: Option<Arc<dyn Disk>>, config: &Config) -> Self {
        let shelf = disk.map(|disk| Arc::new(Shelf::new(disk, config.disk, config.disk_spare)));
        let (room, parts) = (config.reading, Arc::new(Parts::new(config.parts)));
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize) as u64;
        let kibibytes = (room.get() / 1024).clamp(1, most) as u32;
        let room = Arc::new(Semaphore::new(kibibytes as usize));
        Self { store, parts, compute, shelf, beginning: Flights::new(), room, kibibytes }
    }

    /// Of which time a tenant's part is: when its first and its last profile were taken.
    pub async fn span(self: &Arc<Self>, block: BlockId, tenant: &TenantId) -> Result<(i64, i64), Status> {
        let meta = self.part(block, tenant).await?.meta().map_err(|error| Status::of(&error))?;
        Ok((meta.min_time, meta.max_time))
    }

    fn origin(&self, block: BlockId) -> Origin<'_> {
        let Blocks { store, shelf, compute, .. } = self;
        Origin { store, block, shelf: shelf.as_ref(), compute }
    }

    /// The part as far as it was read, or with nothing but what its block says of itself: all who ask at once have the
    /// same one.
    async fn part(self: &Arc<Self>, block: BlockId, tenant: &TenantId) -> Result<Part, Status> {
        if let Some(part) = self.parts.get(block, tenant) {
            return Ok(part);
        }
        let begin = || Arc::clone(self).begin(block, tenant.clone()).boxed();
        self.beginning.join((block, tenant.clone()), begin).await.0
    }

    async fn begin(self: Arc<Self>, id: BlockId, tenant: TenantId) -> Result<Part, Status> {
        // Another may have done so just now.
        if let Some(part) = self.parts.get(id, &tenant) {
            return Ok(part);
        }
        let origin = self.origin(id);
        let said = origin.meta().await?;
        let compute = self.compute.clone();
        let payer = tenant.clone();
        let begun = self.compute(&payer, move || {
            let (folder, meta) = Fetched::begin(&said)?;
            let folder = Arc::new(folder);
            let block = Arc::new(Block::with_meta(Arc::<Fetched>::clone(&folder), meta)?);
            let source = PartSource::new(Arc::clone(&block), tenant.as_str(), compute)?;
            Ok(Part { id, tenant, source, block, folder })
        });
        let begun = begun.await;
        if begun.as_ref().is_err_and(|status| status.code == Code::DataLoss) {
            origin.doubt(vec![origin.meta_key()]).await;
        }
        begun.map(|part| self.parts.keep(part))
    }

    /// Forgets what was fetched of a part that seems damaged, on disk as well: it may have come to harm on its way.
    pub async fn doubt(&self, part: &Part) {
        self.parts.forget(part);
        let (origin, fetched) = (self.origin(part.id), part.folder.fetched());
        let of = |(file, range): &(&'static str, Range<u64>)| ShelfKey::range(part.id, file, range);
        origin.doubt(fetched.iter().map(of).chain([origin.meta_key()]).collect()).await;
    }

    async fn compute<R: Send + 'static>(
        &self,
        tenant: &TenantId,
        job: impl FnOnce() -> Result<R, BlockError> + Send + 'static,
    ) -> Result<R, Status> {
        let done = self.compute.for_tenant(tenant).run_as(Activity::Query, job).await;
        done.map_err(|error| Status::of(&error))?.map_err(|error| Status::of(&error))
    }

    /// What takes more than all the room has it alone.
    fn kibibytes(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(self.kibibytes)
    }

    async fn room(&self, bytes: u64) -> OwnedSemaphorePermit {
        let room = Arc::clone(&self.room).acquire_many_owned(self.kibibytes(bytes));
        room.await.expect("the semaphore is never closed")
    }

    /// Gives back what of a room is not wanted, or adds to it; false if there is not so much more at once.
    fn fit(&self, room: &mut OwnedSemaphorePermit, bytes: u64) -> bool {
        let (held, wanted) = (room.num_permits(), self.kibibytes(bytes));
        match wanted.checked_sub(held as u32) {
            None => drop(room.split(held - wanted as usize)),
            Some(more) => match Arc::clone(&self.room).try_acquire_many_owned(more) {
                Ok(more) => room.merge(more),
                Err(_) => return false,
            },
        }
        true
    }
}

impl Part {
    /// What it is a part of, and whose.
    pub fn key(&self) -> (BlockId, TenantId) {
        (self.id, self.tenant.clone())
    }

    /// What of it can be read.
    pub fn source(&self) -> &PartSource {
        &self.source
    }

    /// Whether this is the same, and not one of the same block that was begun at another time.
    pub fn is(&self, other: &Part) -> bool {
        Arc::ptr_eq(&self.folder, &other.folder)
    }

    /// Whether a question had come for it before the one that comes now.
    pub fn is_asked_again(&self) -> bool {
        self.folder.is_asked_again()
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        self.source.bytes() + self.folder.bytes() + self.block.footer_bytes()
    }

    fn meta(&self) -> Result<TenantMeta, BlockError> {
        Ok(self.block.part(self.tenant.as_str())?.meta.clone())
    }
}

impl Wanted {
    async fn compute<R: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<R, BlockError> + Send + 'static,
    ) -> Result<R, Status> {
        self.blocks.compute(&self.tenant, job).await
    }

    fn origin(&self) -> Origin<'_> {
        self.blocks.origin(self.block)
    }

    /// The files that the question seems to need.
    fn files(&self) -> Vec<&'static str> {
        let Needs { totals, rows, names, .. } = self.ask.needs();
        // Footers tell where the rest lies, which is all that is wanted of it.
        if self.ask.what == What::Sizes {
            return vec![SERIES, PROFILES, ROLLUP, SAMPLES, STACKS, LOCATIONS, FUNCTIONS, MAPPINGS];
        }
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

    /// Does what reads footers and tables; where something was not fetched yet, fetches it and tries again.
    async fn attempt<R: Send + 'static>(
        &self,
        part: &Part,
        job: impl Fn(&Part) -> Result<R, BlockError> + Clone + Send + 'static,
    ) -> Result<R, Status> {
        let mut tries = 0;
        loop {
            let (again, of) = (job.clone(), part.clone());
            let before = part.folder.misses();
            let error = match self.compute(move || again(&of)).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let missed = part.folder.missed();
            // Another question about the part may have taken what this one has missed, to fetch it: that is no try.
            tries += usize::from(!missed.is_empty());
            if tries == TRIES || missed.is_empty() && part.folder.misses() == before {
                return Err(error);
            }
            part.folder.fetch(&self.origin(), &missed).await?;
        }
    }

    /// Fetches footers, series and what is needed of profiles: whatever says which rows are meant.
    async fn fetch_index(&self, part: &Part) -> Result<(), Status> {
        let files = self.files();
        // Most blocks say in their meta.json how their files end.
        let all = &part.block.meta().files;
        let is_known = |file: &&&str| all.get(**file).is_some_and(|of| !of.tail.is_empty());
        let unknown = files.iter().filter(|file| !is_known(file));
        let tails: Extents = unknown.map(|file| part.folder.tail(file)).collect();
        part.folder.fetch(&self.origin(), &tails).await?;
        let (needs, counts) = (self.ask.needs(), self.ask.counts());
        let open = move |part: &Part| {
            // Each is tried, so that whatever is missing is known at once.
            let extent = |file: &&'static str| part.block.extent(part.tenant.as_str(), file);
            let opened: Vec<_> = files.iter().map(extent).collect();
            opened.into_iter().collect::<Result<Vec<_>, _>>()?;
            let reads_ids = needs.profiles || counts && !part.source.is_free_of_duplicates()?;
            let columns = if reads_ids { ProfileColumns::All } else { ProfileColumns::Brief };
            let mut extents = part.source.bytes_of_series()?;
            extents.extend(part.source.bytes_of_profiles(columns)?);
            if needs.profile_totals {
                extents.extend(part.source.bytes_of_profiles(ProfileColumns::Totals)?);
            }
            Ok(extents)
        };
        let extents = self.attempt(part, open).await?;
        part.folder.fetch(&self.origin(), &extents).await
    }

    /// What else is needed of the profiles that are meant, and the memory of all of it.
    async fn plan(&self, part: &Part, width: usize) -> Result<(Extents, u64, Picked), Status> {
        let ask = Arc::clone(&self.ask);
        let plan = move |part: &Part| {
            let needs = ask.needs();
            let picked = Picked::of(&ask, &part.source).map_err(|error| match error {
                AskError::Source(error) => BlockError::Held(error),
                other => BlockError::Held(SourceError::Damaged(other.to_string())),
            })?;
            let mut extents = Extents::new();
            if !picked.places().is_empty() {
                let Needs { totals, rows: each, groups, requests, .. } = needs;
                extents =
                    part.source.bytes_of_rows(picked.places(), Rows { totals, groups, each, requests })?;
                if needs.names {
                    extents.extend(part.source.bytes_of_names()?);
                }
            }
            let names = needs.names && !picked.places().is_empty();
            let bytes = memory::of_reading(part, (&extents, names), &picked, width)?;
            Ok((extents, bytes, picked))
        };
        self.attempt(part, plan).await
    }

    /// Fetches what the question needs of it.
    pub async fn open(self) -> Result<Opened, Status> {
        let Blocks { parts, .. } = &*self.blocks;
        let mut claim = 0;
        loop {
            let part = self.blocks.part(self.block, &self.tenant).await?;
            if claim == 0 {
                parts.asked(&part);
            }
            let fetched = self.fetch(&part, claim).await;
            parts.settle(&part);
            match fetched {
                Ok(Room::Held(room, picked)) => {
                    let held =
                        Box::new(Reading { parts: Arc::clone(parts), part: part.clone(), _room: room });
                    return Ok(Opened { part, picked, held });
                }
                Ok(Room::Wants(more)) => claim = more,
                Err(status) => {
                    if status.code == Code::DataLoss {
                        self.blocks.doubt(&part).await;
                    }
                    return Err(status);
                }
            }
        }
    }

    /// The room that it takes, of which so much at least is asked for. Whoever waits for more room must hold nothing, or all
    /// might wait.
    async fn fetch(&self, part: &Part, claim: u64) -> Result<Room, Status> {
        let Blocks { compute, .. } = &*self.blocks;
        let meta = part.meta().map_err(|error| Status::of(&error))?;
        let guess = memory::guess_of_index(part, &meta).max(claim);
        let mut room = self.blocks.room(guess).await;
        self.fetch_index(part).await?;
        // Footers are there: they say how much there is to decode.
        let index = memory::of_index(part, &meta).map_err(|error| Status::of(&error))?;
        if index > guess && !self.blocks.fit(&mut room, index) {
            return Ok(Room::Wants(index));
        }
        let (extents, wanted, picked) = self.plan(part, compute.width()).await?;
        if !self.blocks.fit(&mut room, wanted) {
            return Ok(Room::Wants(wanted));
        }
        part.folder.fetch(&self.origin(), &extents).await?;
        Ok(Room::Held(room, picked))
    }
}

impl Drop for Reading {
    /// Reading decodes tables, which are kept.
    fn drop(&mut self) {
        self.parts.settle(&self.part);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use athanor_block::{FILES, Folder, Held, META, MemoryFolder, write_held};
    use athanor_chassis::{ByteSize, Clock, Random};
    use athanor_profile::source::MemorySource;
    use athanor_profile::{Labels, Profile, Source, ValueType, hash};
    use athanor_query::{StackFilter, What};
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
        let config = Config { reading: room, parts: ByteSize::mib(64), ..Config::default() };
        (Arc::new(Blocks::new(store, Compute::inline(), None, &config)), id, bytes)
    }

    async fn open(blocks: &Arc<Blocks>, block: BlockId, tenant: &str, what: &What, whole: bool) -> Opened {
        let (blocks, tenant) = (Arc::clone(blocks), tenant.parse().unwrap());
        let ask = Arc::new(Ask { what: what.clone(), ..Ask::default() });
        Wanted { blocks, block, tenant, ask, whole }.open().await.unwrap()
    }

    fn held_of(blocks: &Blocks, block: BlockId, tenant: &str) -> u64 {
        blocks.parts.get(block, &tenant.parse().unwrap()).unwrap().folder.bytes() as u64
    }

    #[tokio::test]
    async fn only_what_a_question_needs_is_fetched() {
        let (blocks, block, all) = stored(ByteSize::mib(64)).await;
        let tree = &What::Tree(StackFilter::default());
        assert!(all > 2_000_000, "{all}");
        let total = |opened: &Opened| {
            let totals = opened.part.source.totals(&[0]).unwrap();
            opened.part.source.tree(&totals).unwrap().total()
        };
        let lists = open(&blocks, block, "large", &What::ProfileTypes, false).await;
        assert_eq!(lists.part.source.profiles().unwrap().len(), 1);
        assert!(held_of(&blocks, block, "large") < all / 10);
        assert!(lists.part.source.totals(&[0]).is_err(), "that was not fetched");
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

    #[tokio::test]
    async fn what_is_read_takes_room_until_it_was_read() {
        let (blocks, block, _) = stored(ByteSize::mib(64)).await;
        let free = || blocks.room.available_permits();
        let all = free();
        let tree = &What::Tree(StackFilter::default());
        let opened = open(&blocks, block, "large", tree, true).await;
        assert!(free() < all - 4_000, "{}", free());
        drop(opened);
        assert_eq!(free(), all);
        let (small, block, _) = stored(ByteSize::kib(64)).await;
        let opened = open(&small, block, "large", tree, true).await;
        assert_eq!((small.room.available_permits(), opened.part.source.series().unwrap().len()), (0, 1));
    }

    #[tokio::test]
    async fn parts_leave_when_they_grow_beyond_the_bound() {
        let (blocks, block, _) = stored(ByteSize::mib(64)).await;
        let blocks =
            Blocks { parts: Arc::new(Parts::new(ByteSize::mib(1))), ..Arc::into_inner(blocks).unwrap() };
        let blocks = Arc::new(blocks);
        let tree = &What::Tree(StackFilter::default());
        drop(open(&blocks, block, "small", tree, true).await);
        drop(open(&blocks, block, "large", &What::ProfileTypes, true).await);
        assert_eq!(blocks.parts.stats().entries, 2);
        drop(open(&blocks, block, "large", tree, true).await);
        let stats = blocks.parts.stats();
        assert!(stats.bytes <= 1 << 20 && stats.entries < 2, "{stats:?}");
    }
}
