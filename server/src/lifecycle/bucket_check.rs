//! Check of the bucket when a node starts.
//!
//! If the bucket is missing or access is denied, the node is not ready: it would accept profiles that no
//! flush can write. If the bucket does not respond, only nodes that have never used it are not ready. A node
//! that restarts during a bucket outage accepts profiles into its log.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Clock, ComputePool, Disk, ErrorCode, Status};
use athanor_storage::{ProbeError, Store};
use tokio_util::sync::CancellationToken;

use crate::lifecycle::readiness::Readiness;

const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// File in the state folder with the name of the bucket that this node has used.
const USED_BUCKET_FILE: &str = "bucket";

/// Check that repeats until the bucket is usable.
pub struct BucketCheck {
    pub store: Store,
    pub state: Arc<dyn Disk>,
    pub compute: ComputePool,
    pub readiness: Arc<Readiness>,
    pub clock: Clock,
}

impl BucketCheck {
    /// Blocks readiness until [`run`](Self::run) finds the bucket usable.
    pub fn begin(&self) {
        let message = format!("starting: {} is being checked; retry", self.store.name());
        self.readiness
            .block(Status::new(ErrorCode::Unavailable, message).with_retry_after(Duration::from_secs(1)));
    }

    /// Repeats the check until the bucket is usable.
    pub async fn run(self, token: CancellationToken) {
        let checks = async {
            let mut reported = None;
            while let Err(problem) = self.store.probe(PROBE_TIMEOUT).await {
                self.take(&problem).await;
                if reported.as_ref() != Some(&problem) {
                    tracing::warn!(error = %problem, "bucket is unusable, will retry");
                    reported = Some(problem);
                }
                self.clock.sleep(RETRY_INTERVAL).await;
            }
            if reported.is_some() {
                tracing::info!(bucket = self.store.name(), "bucket is usable");
            }
            self.readiness.unblock();
            self.note_use().await;
        };
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = checks => {}
        }
    }

    async fn take(&self, problem: &ProbeError) {
        if matches!(problem, ProbeError::Unreachable { .. }) && self.was_used().await {
            self.readiness.unblock();
        } else {
            self.readiness.block(
                Status::new(ErrorCode::Unavailable, problem.to_string()).with_retry_after(RETRY_INTERVAL),
            );
        }
    }

    async fn was_used(&self) -> bool {
        let state = Arc::clone(&self.state);
        let read = self.compute.run(move || state.read(USED_BUCKET_FILE)).await;
        matches!(read, Ok(Ok(name)) if name == self.store.name().as_bytes())
    }

    async fn note_use(&self) {
        if self.was_used().await {
            return;
        }
        let state = Arc::clone(&self.state);
        let name = self.store.name().to_owned();
        let written = self.compute.run(move || state.write(USED_BUCKET_FILE, name.as_bytes())).await;
        if !matches!(written, Ok(Ok(()))) {
            tracing::warn!(
                "failed to record the use of the bucket, a restart without the bucket will not be ready"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Random;
    use athanor_chassis::disk::MemoryDisk;
    use athanor_storage::{S3Config, StorageConfig, StoreDeps};

    use super::*;

    fn check(clock: &Clock, readiness: &Arc<Readiness>) -> BucketCheck {
        let (bucket, endpoint) = ("profiles".to_owned(), Some("http://127.0.0.1:1".to_owned()));
        let s3 = S3Config { bucket, endpoint, allow_http: true, ..S3Config::default() };
        let config = StorageConfig { s3: Some(s3), ..StorageConfig::default() };
        let deps = StoreDeps { clock: clock.clone(), random: Random::from_seed(1) };
        BucketCheck {
            store: Store::open(&config, deps).unwrap(),
            state: Arc::new(MemoryDisk::new()),
            compute: ComputePool::inline(),
            readiness: Arc::clone(readiness),
            clock: clock.clone(),
        }
    }

    #[tokio::test]
    async fn bucket_that_does_not_answer_keeps_only_new_nodes_from_being_ready() {
        let (clock, readiness) = (Clock::system(), Arc::<Readiness>::default());
        readiness.serve(Box::new(|| Ok(())));
        let check = check(&clock, &readiness);
        let why = || readiness.now().map_err(|status| status.message);
        check.begin();
        assert!(why().unwrap_err().contains("is being checked"));
        let (bucket, why_not) = (Arc::from("bucket"), "connection refused".to_owned());
        let unreachable = ProbeError::Unreachable { bucket: Arc::clone(&bucket), why: why_not };
        check.take(&unreachable).await;
        assert!(why().unwrap_err().starts_with("bucket does not respond: connection refused"));
        check.note_use().await;
        check.take(&unreachable).await;
        assert_eq!(why(), Ok(()));
        check.take(&ProbeError::Missing { bucket, setting: "storage.s3.bucket" }).await;
        assert!(why().unwrap_err().contains("does not exist; create it, or correct storage.s3.bucket"));
    }
}
