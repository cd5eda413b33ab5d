//! A bucket that outlives machines, and that fails, lies, dawdles and is silent as the weather has it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::Clock;
use athanor_profile::encoding::hash;
use athanor_storage::test_bucket::BucketCalls;
use bytes::Bytes;
use futures::StreamExt;
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetResult, GetResultPayload, MultipartId, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

use super::world::{Turn, World};

/// What the bucket holds.
#[derive(Debug, Default)]
pub struct Objects {
    held: InMemory,
    /// How often objects of each block were put, and whether a call failed meanwhile or was slow, so that it was made again.
    puts: Mutex<BTreeMap<Path, (usize, bool)>>,
    /// The names that were written last: a listing may not have them yet.
    latest: Mutex<VecDeque<Path>>,
}

/// A call that takes longer is slow.
const SLOW: Duration = Duration::from_millis(100);
/// What a block costs: each of its files once.
const PUTS: usize = 10;
/// So many of the names written last a listing may lack.
pub const UNLISTED: usize = 8;

impl Objects {
    fn wrote(&self, name: &Path) {
        let mut latest = self.latest.lock();
        latest.push_front(name.clone());
        latest.truncate(UNLISTED);
    }

    /// A call to put an object, and whether the caller may make it again.
    fn put(&self, name: &Path, again: bool) {
        let Some(block) = block(name) else { return };
        let mut puts = self.puts.lock();
        let (count, repeats) = puts.entry(block).or_default();
        (*count, *repeats) = (*count + 1, *repeats || again);
        assert!(*count <= PUTS || *repeats, "{name} is put {count} of the block; there may be {PUTS}");
    }

    /// Those below a prefix, but for the youngest of all.
    async fn list(&self, prefix: &Path, unlisted: usize) -> Vec<Result<ObjectMeta>> {
        let all = self.held.list(Some(prefix)).collect::<Vec<_>>().await;
        let unlisted: Vec<Path> = self.latest.lock().iter().take(unlisted).cloned().collect();
        let is_listed = |object: &Result<ObjectMeta>| {
            !object.as_ref().is_ok_and(|meta| unlisted.contains(&meta.location))
        };
        all.into_iter().filter(is_listed).collect()
    }
}

/// The bucket, as one process sees it.
#[derive(Clone)]
pub struct Bucket {
    pub world: World,
    pub boot: u64,
    pub clock: Clock,
    pub objects: Arc<Objects>,
}

impl Bucket {
    /// One call: the machine may die before it or when it was done; a ghost is never answered.
    async fn call<R>(
        &self,
        op: &'static str,
        key: &Path,
        sum: u128,
        call: impl AsyncFnOnce(Much) -> Result<R>,
    ) -> Result<R> {
        self.step("died before a bucket call").await;
        let (turn, [there, back]) = self.world.turn();
        if op == "put" {
            let is_slow = there + back + self.world.paused() > SLOW;
            self.objects.put(key, turn != Turn::Done || is_slow);
        }
        self.clock.sleep(there + self.world.paused()).await;
        if self.world.enter(self.boot, false).is_err() {
            return std::future::pending().await;
        }
        let done = match turn {
            Turn::Done | Turn::Lies => call(Much::All).await,
            Turn::Half => call(Much::Half).await,
            Turn::Fails => Err(failed("told to fail")),
        };
        let said = done.as_ref().err().map(ToString::to_string);
        self.world.tell(format_args!("bucket {op} {key} {sum:032x} {turn:?} {said:?}"));
        self.count(op, turn, there > SLOW);
        self.step("died after a bucket call").await;
        self.clock.sleep(back + self.world.paused()).await;
        match turn {
            Turn::Lies if done.is_ok() => Err(failed("the answer was lost")),
            _ => done,
        }
    }

    async fn step(&self, place: &'static str) {
        match self.world.enter(self.boot, false) {
            Ok(None) => {}
            Ok(Some(death)) => {
                self.world.count(place);
                self.world.die(death);
                std::future::pending().await
            }
            Err(_) => std::future::pending().await,
        }
    }

    fn count(&self, op: &'static str, turn: Turn, slow: bool) {
        match (op, turn) {
            ("put", Turn::Fails) => self.world.count("failed uploads"),
            ("put", Turn::Lies) => self.world.count("uploads whose answer was lost"),
            ("put", Turn::Half) => self.world.count("half uploads"),
            ("get", Turn::Half) => self.world.count("half reads"),
            ("get", Turn::Fails | Turn::Lies) => self.world.count("failed reads"),
            (_, Turn::Done) if slow => self.world.count("slow bucket calls"),
            _ => {}
        }
    }
}

/// How much of a call is done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Much {
    All,
    /// Of the bytes half arrive.
    Half,
}

impl Much {
    /// Whatever has no bytes fails as a whole.
    fn whole<R>(self, done: R) -> Result<R> {
        if self == Self::All { Ok(done) } else { Err(failed("told to fail half-way")) }
    }
}

/// The block that an object is of.
fn block(name: &Path) -> Option<Path> {
    let parts: Vec<_> = name.parts().collect();
    (parts.first()?.as_ref() == "blocks").then(|| parts[..parts.len() - 1].iter().cloned().collect())
}

fn failed(why: &'static str) -> Error {
    Error::Generic { store: "simulated bucket", source: why.into() }
}

/// An answer that ends after half of its bytes.
async fn half(got: GetResult) -> Result<GetResult> {
    let (meta, range, attributes) = (got.meta.clone(), got.range.clone(), got.attributes.clone());
    let extensions = got.extensions.clone();
    let bytes = got.bytes().await?;
    let pieces = [Ok(bytes.slice(..bytes.len() / 2)), Err(failed("the answer ends half-way"))];
    let payload = GetResultPayload::Stream(futures::stream::iter(pieces).boxed());
    Ok(GetResult { payload, meta, range, attributes, extensions })
}

#[async_trait]
impl BucketCalls for Bucket {
    async fn put(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let parts: Vec<u128> = payload.iter().map(|part| hash::hash_bytes(part)).collect();
        let put = async |much| {
            if much == Much::Half {
                let bytes: Bytes = payload.into_iter().flatten().collect();
                let half = bytes.slice(..bytes.len() / 2);
                self.objects.held.put_opts(location, half.into(), options).await?;
                self.objects.wrote(location);
                return Err(failed("half was written"));
            }
            let put = self.objects.held.put_opts(location, payload, options).await?;
            self.objects.wrote(location);
            Ok(put)
        };
        self.call("put", location, hash::hash_list(&parts), put).await
    }

    async fn get(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let get = async |much| {
            let got = self.objects.held.get_opts(location, options).await?;
            match much {
                Much::All => Ok(got),
                Much::Half => half(got).await,
            }
        };
        self.call("get", location, 0, get).await
    }

    async fn delete(&self, location: &Path) -> Result<()> {
        let delete = async |much: Much| {
            much.whole(())?;
            self.objects.held.delete(location).await
        };
        self.call("delete", location, 0, delete).await
    }

    async fn list(&self, prefix: Option<&Path>) -> Vec<Result<ObjectMeta>> {
        let prefix = prefix.cloned().unwrap_or_default();
        let unlisted = self.world.unlisted();
        let all = async |much: Much| much.whole(self.objects.list(&prefix, unlisted).await);
        match self.call("list", &prefix, 0, all).await {
            Ok(all) => all,
            Err(error) => vec![Err(error)],
        }
    }
    async fn create_multipart(&self, location: &Path) -> Result<MultipartId> {
        let create = async |much: Much| {
            much.whole(())?;
            self.objects.held.create_multipart(location).await
        };
        self.call("create upload", location, 0, create).await
    }

    async fn put_part(
        &self,
        location: &Path,
        id: &MultipartId,
        index: usize,
        payload: PutPayload,
    ) -> Result<PartId> {
        let parts: Vec<u128> = payload.iter().map(|part| hash::hash_bytes(part)).collect();
        let put = async |much| {
            if much == Much::Half {
                let bytes: Bytes = payload.into_iter().flatten().collect();
                let half = bytes.slice(..bytes.len() / 2);
                self.objects.held.put_part(location, id, index, half.into()).await?;
                return Err(failed("half of a part was written"));
            }
            self.objects.held.put_part(location, id, index, payload).await
        };
        self.call("put part", location, hash::hash_list(&parts), put).await
    }

    async fn complete_multipart(
        &self,
        location: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let complete = async |much: Much| {
            much.whole(())?;
            let put = self.objects.held.complete_multipart(location, id, parts).await?;
            self.objects.wrote(location);
            Ok(put)
        };
        self.call("complete upload", location, 0, complete).await
    }

    async fn abort_multipart(&self, location: &Path, id: &MultipartId) -> Result<()> {
        let abort = async |much: Much| {
            much.whole(())?;
            self.objects.held.abort_multipart(location, id).await
        };
        self.call("abort upload", location, 0, abort).await
    }
}
