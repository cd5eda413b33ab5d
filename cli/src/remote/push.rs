//! Push command: sends profile files to a server.
//!
//! ```text
//!  FILE… ─► read, check, gzip (all processors) ─► batches ─► concurrent requests ─► outcome per file
//!                                                                └ rejected: halve until one file is left
//! ```
//!
//! A request that fails temporarily is retried, and halves of a rejected batch are sent separately. The
//! server dedups profiles, so a retry never counts a profile a second time.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::future;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use athanor_chassis::units::format_duration;
use athanor_chassis::{ComputePool, Status};
use athanor_client::{
    ApiClient, Batch, BatchLimits, BatchParts, PUSH_METHOD, RetryPolicy, batches, encode_gzip, is_rejection,
};
use athanor_profile::encoding::hash;
use athanor_profile::formats::pprof::{self, DecodeLimits};
use athanor_profile::labeling::metric_name::default_metric_name;
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::types::v1::LabelPair;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use indicatif::ProgressBar;
use serde_json::json;

use crate::args::PushArgs;
use crate::output::ConsoleOutput;
use crate::profile::input::InputContent;
use crate::remote::connection;
use crate::{failure, profile::input, progress};

/// Bounds of the profiles in a request.
const REQUEST_LIMITS: BatchLimits = BatchLimits { max_items: 64, max_bytes: 4 << 20 };
/// Maximum number of concurrent requests.
const MAX_CONCURRENT_REQUESTS: usize = 4;

/// Magic bytes of gzip data.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// File that is ready to be sent.
struct PreparedFile {
    file: PathBuf,
    series: RawProfileSeries,
    bytes: usize,
    /// Hash of the uncompressed profile.
    content: hash::ContentHash,
}

/// Outcome of a set of files.
#[derive(Default)]
struct PushOutcome {
    stored: usize,
    /// Count of files equal to another file, which is sent only once. Equal profiles in one request would
    /// count separately, while those in different requests are deduplicated.
    equal: usize,
    /// Bytes of the stored profiles, as sent.
    bytes: usize,
    refused: Vec<(PathBuf, Status)>,
    /// Files that were not sent or lack an acknowledgement, because the server accepts nothing.
    unsent: Vec<PathBuf>,
    /// Reason why the server accepts nothing.
    stopped: Option<Status>,
}

/// Sender of batches, with the state that all requests of a push share.
struct BatchSender<'a> {
    client: &'a ApiClient,
    compute: &'a ComputePool,
    retries: u32,
    bar: &'a ProgressBar,
    /// True if the server accepts nothing. No further requests start then.
    stopped: AtomicBool,
    noted: AtomicBool,
}

/// Sends files to a server.
pub fn run(args: PushArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let client = connection::client(&args.remote)?;
    let bar = progress::files(args.files.len(), "pushing");
    let outcome = connection::block_on(push(&args, &client, &bar))??;
    bar.finish_and_clear();
    report(&args, &client, outcome, output)
}

async fn push(args: &PushArgs, client: &ApiClient, bar: &ProgressBar) -> Result<PushOutcome, Status> {
    let width = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let compute = ComputePool::with_threads(width, 0).map_err(|error| Status::from_error(&error))?;
    let sender = BatchSender {
        client,
        compute: &compute,
        retries: args.retries,
        bar,
        stopped: AtomicBool::new(false),
        noted: AtomicBool::new(false),
    };
    let labels = labels(args);
    let pieces = stream::iter(&args.files).map(|file| sender.prepared(file, &labels, args.metric.as_deref()));
    let mut seen = HashMap::new();
    let equal = RefCell::new(Vec::new());
    let pieces = pieces.buffered(width.get()).filter(|piece| {
        let first = piece.as_ref().ok().filter(|piece| piece.bytes > 0).and_then(|piece| {
            match seen.entry(piece.content) {
                Entry::Occupied(first) => Some((piece.file.clone(), PathBuf::clone(first.get()))),
                Entry::Vacant(place) => {
                    place.insert(piece.file.clone());
                    None
                }
            }
        });
        bar.inc(u64::from(first.is_some()));
        let is_new = first.is_none();
        equal.borrow_mut().extend(first);
        future::ready(is_new)
    });
    let pieces = pin!(pieces);
    let batches = batches(pieces, REQUEST_LIMITS, |piece: &PreparedFile| piece.bytes);
    let mut outcomes =
        pin!(batches.map(|batch| sender.send_parts(batch)).buffer_unordered(MAX_CONCURRENT_REQUESTS));
    let mut all = PushOutcome::default();
    while let Some(outcome) = outcomes.next().await {
        all.add(outcome);
    }
    all.share(equal.take());
    Ok(all)
}

/// Returns the labels that all files share.
fn labels(args: &PushArgs) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = args.labels.iter().cloned().collect();
    labels.insert("service_name".to_owned(), args.service.clone());
    labels
}

fn prepare(
    file: &Path,
    mut labels: BTreeMap<String, String>,
    metric: Option<String>,
) -> Result<PreparedFile, Status> {
    if file.is_dir() {
        return Err(failure::invalid_file(file, "is a folder; name the files in it"));
    }
    let limits = DecodeLimits::default();
    let bytes = input::read(file, &limits)?;
    let (raw, header, is_ready) = match input::parse_content(file, &bytes, &limits)? {
        InputContent::Read(profile) => (pprof::encode(&profile), profile.header, false),
        InputContent::Recording(_) => {
            let why = "push does not support flight recordings, which contain several profiles; POST the file to \
                       /ingest?name=SERVICE&format=jfr";
            return Err(failure::invalid_file(file, why));
        }
        InputContent::Pprof(raw) => {
            let decoded = pprof::decode(&raw, &limits);
            let (profile, _) = decoded.map_err(|error| failure::invalid_file(file, error))?;
            // All servers read gzip, but not all read zstd.
            (raw, profile.header, bytes.starts_with(&GZIP_MAGIC))
        }
    };
    // Without a time or an id, the server cannot distinguish equal profiles from duplicates.
    let id = if header.time_nanos == 0 { format!("{:032x}", hash::hash_bytes(&raw)) } else { String::new() };
    let kinds: Vec<&str> = header.types.iter().map(|value| value.kind.as_str()).collect();
    labels.insert("__name__".to_owned(), metric.unwrap_or_else(|| default_metric_name(&kinds)));
    let labels = labels.into_iter().map(|(name, value)| LabelPair { name, value }).collect();
    let raw_profile = Bytes::from(if is_ready { bytes } else { pprof::gzip(&raw) });
    let bytes = raw_profile.len();
    let samples = vec![RawSample { raw_profile, id }];
    let series = RawProfileSeries { labels, samples, ..RawProfileSeries::default() };
    Ok(PreparedFile { file: file.to_owned(), series, bytes, content: hash::hash_bytes(&raw) })
}

impl BatchSender<'_> {
    /// Reads and checks a file on another thread. Skips the file if the push has stopped.
    async fn prepared(
        &self,
        file: &Path,
        labels: &BTreeMap<String, String>,
        metric: Option<&str>,
    ) -> Result<PreparedFile, (PathBuf, Status)> {
        if self.stopped.load(Ordering::Relaxed) {
            return Ok(PreparedFile {
                file: file.to_owned(),
                series: RawProfileSeries::default(),
                bytes: 0,
                content: 0,
            });
        }
        let path = file.to_owned();
        let labels = labels.clone();
        let metric = metric.map(str::to_owned);
        let done = self.compute.run(move || prepare(&path, labels, metric)).await;
        done.map_err(|error| Status::from_error(&error)).flatten().map_err(|status| (file.to_owned(), status))
    }

    /// Sends a batch, halving it on rejection until the rejected files are known.
    async fn send_parts(&self, batch: Batch<PreparedFile, (PathBuf, Status)>) -> PushOutcome {
        let Batch { items: files, errors: refused } = batch;
        self.bar.inc(refused.len() as u64);
        let mut outcome = PushOutcome { refused, ..PushOutcome::default() };
        let mut parts = BatchParts::new(files);
        while let Some(part) = parts.next_part() {
            if self.stopped.load(Ordering::Relaxed) {
                outcome.unsent.extend(part.into_iter().map(|piece| piece.file));
                continue;
            }
            match self.send(&part).await {
                Ok(()) => {
                    outcome.stored += part.len();
                    outcome.bytes += part.iter().map(|piece| piece.bytes).sum::<usize>();
                }
                Err(status) if !is_rejection(&status) => {
                    self.stopped.store(true, Ordering::Relaxed);
                    outcome.unsent.extend(part.into_iter().map(|piece| piece.file));
                    outcome.stopped = Some(status);
                    continue;
                }
                Err(status) => {
                    if let Some((piece, status)) = parts.split(part, status) {
                        outcome.refused.push((piece.file, status));
                        self.bar.inc(1);
                    }
                    continue;
                }
            }
            self.bar.inc(part.len() as u64);
        }
        outcome
    }

    async fn send(&self, part: &[PreparedFile]) -> Result<(), Status> {
        let request = PushRequest { series: part.iter().map(|piece| piece.series.clone()).collect() };
        let body = self.compute.run(move || encode_gzip(&request)).await;
        let body = body.map_err(|error| Status::from_error(&error))?;
        let policy = RetryPolicy::interactive(self.retries);
        self.client
            .send_with_retry(PUSH_METHOD, body, &policy, |status, wait| self.note(status, wait))
            .await?;
        Ok(())
    }

    /// Prints once that a request is being retried, and why.
    fn note(&self, status: &Status, wait: Duration) {
        if !self.noted.swap(true, Ordering::Relaxed) {
            let wait = format_duration(Duration::from_millis(wait.as_millis() as u64));
            self.bar.suspend(|| eprintln!("athanor: {}; retrying in {wait}", status.message));
        }
    }
}

impl PushOutcome {
    /// Copies the outcome of a file to the files equal to it.
    fn share(&mut self, equal: Vec<(PathBuf, PathBuf)>) {
        let refused: HashMap<_, _> = self.refused.iter().cloned().collect();
        let unsent: HashSet<_> = self.unsent.iter().cloned().collect();
        for (file, first) in equal {
            match refused.get(&first) {
                Some(status) => self.refused.push((file, status.clone())),
                None if unsent.contains(&first) => self.unsent.push(file),
                None => self.equal += 1,
            }
        }
    }

    fn add(&mut self, other: PushOutcome) {
        self.stored += other.stored;
        self.bytes += other.bytes;
        self.refused.extend(other.refused);
        self.unsent.extend(other.unsent);
        self.stopped = self.stopped.take().or(other.stopped);
    }
}

fn report(
    args: &PushArgs,
    client: &ApiClient,
    mut outcome: PushOutcome,
    output: &ConsoleOutput,
) -> Result<(), Status> {
    // Batches finish in any order, so the files are sorted.
    outcome.refused.sort_by(|a, b| a.0.cmp(&b.0));
    outcome.unsent.sort();
    let PushOutcome { stored, equal, bytes, refused, unsent, stopped } = outcome;
    let count = args.files.len();
    let address = client.address();
    let name = |file: &Path| file.display().to_string();
    if output.json {
        let refused = refused.iter().map(|(file, status)| {
            json!({ "file": name(file), "code": status.code.name(), "message": status.message })
        });
        output.json(&json!({
            "url": address, "service": args.service, "files": count, "stored": stored, "duplicates": equal, "bytes": bytes,
            "rejected": refused.collect::<Vec<_>>(), "unsent": unsent.iter().map(|file| name(file)).collect::<Vec<_>>(),
        }))?;
    } else if stored > 0 {
        let service = &args.service;
        let once = match equal {
            0 => String::new(),
            some => format!("; {some} duplicates of other files were not sent"),
        };
        output.text(&format!(
            "{address}: {stored} of {count} profiles stored for {service}, {bytes} bytes{once}\n"
        ))?;
    }
    let unsent_note = match unsent.len() {
        0 => String::new(),
        some => format!("; {some} of {count} files may not be stored, retry the push"),
    };
    let named = |(file, status): &(PathBuf, Status)| match status.message.starts_with(&name(file)) {
        true => status.clone(),
        false => failure::file_error(file, status),
    };
    let mut refused: Vec<Status> = refused.iter().map(named).collect();
    if let Some(stopped) = stopped {
        refused.iter().for_each(|status| eprintln!("athanor: {}", status.message));
        return Err(Status::new(stopped.code, format!("{}{unsent_note}", stopped.message)));
    }
    match refused.len() {
        0 => Ok(()),
        1 => Err(refused.remove(0)),
        some => {
            refused.iter().for_each(|status| eprintln!("athanor: {}", status.message));
            Err(Status::new(
                refused[0].code,
                format!("{some} of {count} files were rejected, the others are stored"),
            ))
        }
    }
}
