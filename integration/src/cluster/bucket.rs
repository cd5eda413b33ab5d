//! Bucket of a test cluster, with injected faults: failing calls and reads that block.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use athanor_storage::test_bucket::BucketCalls;
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetResult, MultipartId, ObjectMeta, ObjectStore, ObjectStoreExt, PutOptions,
    PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use tokio::sync::watch;

/// Bucket in memory with injected faults. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct FaultBucket {
    objects: Arc<InMemory>,
    weather: Arc<BucketFaults>,
}

#[derive(Debug, Default)]
struct BucketFaults {
    /// Interval of failing calls: one call in this many fails. Zero disables failures.
    fails: AtomicU64,
    calls: AtomicU64,
    failed: AtomicU64,
    /// Set while reads block until they are released.
    is_held: watch::Sender<bool>,
    waiting: AtomicU64,
    /// Paths of objects that were read. `None` until recording starts.
    read: Mutex<Option<Vec<String>>>,
    /// Byte ranges of block files that were read. `None` until recording starts.
    bytes: Mutex<Option<BTreeSet<(String, u64, u64)>>>,
}

/// Guard that counts a blocked read as long as it is pending.
struct WaitingRead<'w>(&'w BucketFaults);

impl<'w> WaitingRead<'w> {
    fn new(weather: &'w BucketFaults) -> Self {
        weather.waiting.fetch_add(1, Ordering::SeqCst);
        Self(weather)
    }
}

impl Drop for WaitingRead<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Injected outcome of a call.
enum CallOutcome {
    Done,
    Fails,
    /// The call succeeds, but its caller receives an error.
    Lies,
}

impl FaultBucket {
    /// Makes one call in `calls` fail from now on; with 1, all calls fail. With a higher number, every second
    /// failing call still takes effect, although its caller receives an error.
    pub fn fail_one_of(&self, calls: u64) {
        self.weather.fails.store(calls, Ordering::SeqCst);
    }

    /// Ends the injected failures.
    pub fn heal(&self) {
        self.fail_one_of(0);
    }

    /// Returns the number of calls that have failed.
    pub fn failed_calls(&self) -> u64 {
        self.weather.failed.load(Ordering::SeqCst)
    }

    /// Blocks all reads until [`FaultBucket::release_reads`].
    pub fn hold_reads(&self) {
        self.weather.is_held.send_replace(true);
    }

    /// Releases blocked reads and lets later reads through.
    pub fn release_reads(&self) {
        self.weather.is_held.send_replace(false);
    }

    /// Returns the number of blocked reads. A read that its caller dropped does not count.
    pub fn waiting_reads(&self) -> u64 {
        self.weather.waiting.load(Ordering::SeqCst)
    }

    /// Returns the paths read since the last call. The first call returns none and starts recording.
    pub fn take_reads(&self) -> Vec<String> {
        self.weather.read.lock().replace(Vec::new()).unwrap_or_default()
    }

    /// Returns the number of bytes of block files read since the last call. Equal ranges count once. The
    /// first call returns zero and starts recording.
    pub fn take_block_bytes(&self) -> u64 {
        let read = self.weather.bytes.lock().replace(BTreeSet::new()).unwrap_or_default();
        read.into_iter().map(|(_, from, to)| to - from).sum()
    }

    async fn wait_while_held(&self) {
        let mut is_held = self.weather.is_held.subscribe();
        let _waits = WaitingRead::new(&self.weather);
        // The sender lives as long as the bucket, so this cannot fail.
        let _ = is_held.wait_for(|is_held| !is_held).await;
    }

    fn next_outcome(&self) -> CallOutcome {
        let every = self.weather.fails.load(Ordering::SeqCst);
        let call = self.weather.calls.fetch_add(1, Ordering::SeqCst);
        if every == 0 || !call.is_multiple_of(every) {
            return CallOutcome::Done;
        }
        self.weather.failed.fetch_add(1, Ordering::SeqCst);
        if every > 1 && (call / every).is_multiple_of(2) { CallOutcome::Lies } else { CallOutcome::Fails }
    }

    async fn call<R>(&self, call: impl Future<Output = Result<R>>) -> Result<R> {
        let failed = || Error::Generic { store: "bucket", source: "told to fail".into() };
        match self.next_outcome() {
            CallOutcome::Done => call.await,
            CallOutcome::Fails => Err(failed()),
            CallOutcome::Lies => {
                call.await?;
                Err(failed())
            }
        }
    }
}

#[async_trait]
impl BucketCalls for FaultBucket {
    async fn put(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.call(self.objects.put_opts(location, payload, options)).await
    }

    async fn get(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.wait_while_held().await;
        if let Some(read) = self.weather.read.lock().as_mut() {
            read.push(location.to_string());
        }
        let is_of_block = location.extension() == Some("parquet") || location.filename() == Some("meta.json");
        let is_read = is_of_block && !options.head;
        let got = self.call(self.objects.get_opts(location, options)).await?;
        if let Some(bytes) = self.weather.bytes.lock().as_mut().filter(|_| is_read) {
            bytes.insert((location.to_string(), got.range.start, got.range.end));
        }
        Ok(got)
    }

    async fn delete(&self, location: &Path) -> Result<()> {
        self.call(self.objects.delete(location)).await
    }

    async fn list(&self, prefix: Option<&Path>) -> Vec<Result<ObjectMeta>> {
        let all = self.objects.list(prefix).collect::<Vec<_>>().map(Ok);
        self.call(all).await.unwrap_or_else(|error| vec![Err(error)])
    }
    async fn create_multipart(&self, location: &Path) -> Result<MultipartId> {
        self.call(self.objects.create_multipart(location)).await
    }

    async fn put_part(
        &self,
        location: &Path,
        id: &MultipartId,
        index: usize,
        payload: PutPayload,
    ) -> Result<PartId> {
        self.call(self.objects.put_part(location, id, index, payload)).await
    }

    async fn complete_multipart(
        &self,
        location: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        self.call(self.objects.complete_multipart(location, id, parts)).await
    }

    async fn abort_multipart(&self, location: &Path, id: &MultipartId) -> Result<()> {
        self.call(self.objects.abort_multipart(location, id)).await
    }
}
