//! The bucket of a cluster, which may be away, or fail now and then, or keep whoever reads waiting.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::watch;

/// A bucket in memory. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct FaultBucket {
    objects: Arc<InMemory>,
    weather: Arc<BucketFaults>,
}

#[derive(Debug, Default)]
struct BucketFaults {
    /// One call of so many fails; none, if 0.
    fails: AtomicU64,
    calls: AtomicU64,
    failed: AtomicU64,
    /// Whether reads wait.
    is_held: watch::Sender<bool>,
    waiting: AtomicU64,
    /// What was read, since somebody watches.
    read: Mutex<Option<Vec<String>>>,
    /// Which bytes of blocks, likewise.
    bytes: Mutex<Option<BTreeSet<(String, u64, u64)>>>,
}

/// A read that waits.
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

impl BucketFaults {
    fn lock_reads(&self) -> MutexGuard<'_, Option<Vec<String>>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_bytes(&self) -> MutexGuard<'_, Option<BTreeSet<(String, u64, u64)>>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What becomes of a call.
enum CallOutcome {
    Done,
    Fails,
    /// It is done, and who called is told that it failed.
    Lies,
}

impl FaultBucket {
    /// One call of so many fails from now on: all, if 1. Of those that fail while others do not, each second one is
    /// done all the same.
    pub fn fail_one_of(&self, calls: u64) {
        self.weather.fails.store(calls, Ordering::SeqCst);
    }

    /// No call fails from now on.
    pub fn heal(&self) {
        self.fail_one_of(0);
    }

    /// How many calls have failed.
    pub fn failed_calls(&self) -> u64 {
        self.weather.failed.load(Ordering::SeqCst)
    }

    /// Reads wait from now on.
    pub fn hold_reads(&self) {
        self.weather.is_held.send_replace(true);
    }

    /// They go on.
    pub fn release_reads(&self) {
        self.weather.is_held.send_replace(false);
    }

    /// How many reads wait. One that nobody wants any more does not.
    pub fn waiting_reads(&self) -> u64 {
        self.weather.waiting.load(Ordering::SeqCst)
    }

    /// What was read since this was asked before; nothing the first time.
    pub fn take_reads(&self) -> Vec<String> {
        self.weather.lock_reads().replace(Vec::new()).unwrap_or_default()
    }

    /// How many bytes of blocks were read since this was asked before, each of them once; nothing the first time.
    pub fn take_block_bytes(&self) -> u64 {
        let read = self.weather.lock_bytes().replace(BTreeSet::new()).unwrap_or_default();
        read.into_iter().map(|(_, from, to)| to - from).sum()
    }

    async fn wait_while_held(&self) {
        let mut is_held = self.weather.is_held.subscribe();
        let _waits = WaitingRead::new(&self.weather);
        // The sender lives as long as the bucket.
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

fn unsupported_call() -> Error {
    Error::NotImplemented { operation: "this call".to_owned(), implementer: "a bucket of tests".to_owned() }
}

impl fmt::Display for FaultBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bucket of tests")
    }
}

#[async_trait]
impl ObjectStore for FaultBucket {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.call(self.objects.put_opts(location, payload, opts)).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.wait_while_held().await;
        if let Some(read) = self.weather.lock_reads().as_mut() {
            read.push(location.to_string());
        }
        let is_of_block = location.extension() == Some("parquet") || location.filename() == Some("meta.json");
        let is_read = is_of_block && !options.head;
        let got = self.call(self.objects.get_opts(location, options)).await?;
        if let Some(bytes) = self.weather.lock_bytes().as_mut().filter(|_| is_read) {
            bytes.insert((location.to_string(), got.range.start, got.range.end));
        }
        Ok(got)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let bucket = self.clone();
        let each = move |location: Result<Path>| {
            let bucket = bucket.clone();
            async move {
                let location = location?;
                bucket.call(bucket.objects.delete(&location)).await?;
                Ok(location)
            }
        };
        locations.then(each).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let bucket = self.clone();
        let prefix = prefix.cloned();
        let listed = async move {
            let all = bucket.objects.list(prefix.as_ref()).collect::<Vec<_>>().map(Ok);
            bucket.call(all).await.unwrap_or_else(|error| vec![Err(error)])
        };
        listed.map(futures::stream::iter).flatten_stream().boxed()
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(unsupported_call())
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        Err(unsupported_call())
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(unsupported_call())
    }
}
