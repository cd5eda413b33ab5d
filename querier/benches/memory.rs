//! How much memory a question takes beside what its budget allows: `querier.max_result_bytes`, and as much
//! again to be shown.
//!
//! Sources answer with trees that have no function in common, so that the whole is as large as all of them together. What
//! they answer lies packed in memory before it is asked for, as it comes from other nodes. The peak is that of the whole
//! process, pages that the allocator keeps included, less what it had before the question.
//!
//! `cargo bench -p athanor-querier --bench memory`
#![expect(clippy::unwrap_used, reason = "a bench")]

use std::fs;
use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::{ByteSize, Clock, ComputePool, LimitOverrides, Status, TenantId, TenantLimits};
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::generate::ReferenceDataset;
use athanor_proto::querier::v1::SelectMergeStacktracesRequest;
use athanor_querier::{
    BlockSource, DataSources, DataTimeRange, DedupHints, PartialReceiver, Querier, QuerierConfig,
    QuerierDeps, QueryContext, QueryPlan, SourceQueryError, SourceReport,
};
use athanor_query::{MAX_CHUNK_BYTES, PartialChunkBuffer, PartialResult, ProfileQuery};
use prost::Message;

const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
/// What a question may take, MiB.
const BUDGET: u64 = 128;
/// Stacks of each source.
const STACKS: usize = 20_000;
/// Sources of a question that fits, and of one that does not.
const SOURCES: [usize; 4] = [1, 8, 14, 60];

/// The packed trees of so many sources.
struct Packed(Arc<[Vec<u8>]>);

#[async_trait]
impl DataSources for Packed {
    async fn plan(&self, _: &TenantId, ask: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        let mut plan = QueryPlan::default();
        for place in 0..self.0.len() {
            plan.stored.push(Box::new(Answer { all: Arc::clone(&self.0), place, ask: ask.clone() }));
        }
        Ok(plan)
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

/// What one of them answers.
struct Answer {
    all: Arc<[Vec<u8>]>,
    place: usize,
    ask: ProfileQuery,
}

#[async_trait]
impl BlockSource for Answer {
    async fn query(
        self: Box<Self>,
        _: &mut PartialReceiver,
    ) -> Result<Option<(PartialResult, SourceReport)>, SourceQueryError> {
        let mut received = PartialChunkBuffer::default();
        self.all[self.place].chunks(MAX_CHUNK_BYTES).for_each(|piece| received.push(piece).unwrap());
        Ok(Some((received.unpack(&self.ask).unwrap(), SourceReport::default())))
    }
}

/// A tree whose functions are those of no other seed.
fn packed(seed: u64) -> Vec<u8> {
    let dictionary = ReferenceDataset::with_stacks(seed, STACKS).dictionary();
    let tree = PartialResult::Tree(Tree::from_totals(&dictionary, &vec![10_000_000; STACKS]));
    tree.pack().unwrap().flatten().collect()
}

/// A line of what the system says of this process, bytes.
fn of_process(line: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|of| of.strip_prefix(line)).unwrap();
    value.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

async fn run() {
    let most = SOURCES.into_iter().max().unwrap();
    let all: Vec<Vec<u8>> = (1..=most as u64).map(packed).collect();
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let budget = ByteSize::mib(BUDGET);
    println!("trees of {STACKS} stacks, querier.max_result_bytes = {budget}");
    for sources in SOURCES {
        let deps = QuerierDeps {
            sources: Arc::new(Packed(all[..sources].into())),
            overrides: LimitOverrides::new(TenantLimits::default()),
            clock: Clock::system(),
            compute: ComputePool::with_threads(threads, 64).unwrap(),
        };
        let querier =
            Querier::new(QuerierConfig { max_result_bytes: budget, ..QuerierConfig::default() }, deps);
        let request = SelectMergeStacktracesRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: "{}".to_owned(),
            start: 1,
            end: 2,
            ..SelectMergeStacktracesRequest::default()
        };
        let before = of_process("VmRSS");
        // Begins the peak anew.
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let answer =
            querier.select_merge_stacktraces(&QueryContext::for_tenant(TenantId::anonymous()), request).await;
        let shown = answer.map(|answer| answer.encoded_len());
        let peak = of_process("VmHWM").saturating_sub(before);
        println!(
            "{sources:3} sources: {:4.0} MiB at the peak, {:5.1} % of twice the budget; {}",
            peak as f64 / (1 << 20) as f64,
            100.0 * peak as f64 / (2 * budget.get()) as f64,
            match shown {
                Ok(bytes) => format!("answered in {bytes} bytes"),
                Err(status) => format!("refused: {}", status.message),
            }
        );
    }
}

fn main() {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run());
}
