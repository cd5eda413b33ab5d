//! A gateway over a bucket that counts.

#![allow(clippy::unwrap_used)]

mod bucket;
mod damage;
mod kept;
mod ranges;
mod reach;
mod tenant_folder;

use std::sync::Arc;

use athanor_catalog::BlockId;
use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{ByteSize, ComputePool, Disk, TenantId};
use athanor_profile::call_tree::tree::{Tree, TreeNode};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ValueType, encoding::hash};
use athanor_query::{
    PartialOrigin, PartialResult, ProfileQuery, ProfileSelection, QueryKind, ResultLimits, StackFilter,
    TimeRange, run_all,
};
use athanor_store_gateway::{BlockQuery, BlockReader, BlockTarget, StoreGateway, StoreGatewayConfig};
use bucket::Bucket;

/// Seconds of Unix time, as nanoseconds.
fn at(seconds: i64) -> i64 {
    seconds * 1_000_000_000
}

fn config() -> StoreGatewayConfig {
    StoreGatewayConfig {
        max_inflight_block_bytes: ByteSize::mib(64),
        block_cache_bytes: ByteSize::mib(64),
        disk_cache_min_free_bytes: ByteSize::bytes(0),
        ..StoreGatewayConfig::default()
    }
}

fn gateway(bucket: &Bucket, config: &StoreGatewayConfig) -> StoreGateway {
    with(bucket, None, config)
}

fn with(bucket: &Bucket, disk: Option<&MemoryDisk>, config: &StoreGatewayConfig) -> StoreGateway {
    let disk = disk.map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>);
    StoreGateway::new(Arc::new(BlockReader::new(bucket.store(), ComputePool::inline(), disk, config)), config)
}

/// One that knows what is on its disk.
async fn on_disk(bucket: &Bucket, disk: &MemoryDisk, config: &StoreGatewayConfig) -> StoreGateway {
    let gateway = with(bucket, Some(disk), config);
    gateway.maintain_disk_cache().await;
    gateway
}

fn block(number: u128) -> BlockId {
    BlockId::from_number(number)
}

fn tenant() -> TenantId {
    "shop".parse().unwrap()
}

/// Profiles of so many pods at these times, of so many stacks each; values tell them apart.
fn profiles(pods: std::ops::Range<u32>, times: &[i64], stacks: u32) -> MemorySource {
    let mut source = MemorySource::default();
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    for stack in 0..stacks {
        let names = [format!("main-{}", stack % 7), format!("work-{stack}")];
        let id = profile.dictionary.intern_named_stack(names.iter().map(String::as_str));
        profile.samples.push(id, 0, &[0]);
    }
    for pod in pods {
        let labels = [("service_name", "shop".to_owned()), ("pod", format!("pod-{pod}"))];
        let labels = Labels::new(labels.map(|(name, value)| (name.to_owned(), value)));
        for &time in times {
            profile.header.time_nanos = at(time);
            for (stack, value) in (0u32..).zip(&mut profile.samples.values) {
                // They hardly compress, so there is something to pass over, and their sums have 63 bits.
                let of = [stack, pod, time as u32].map(u32::to_le_bytes).concat();
                *value = (hash::hash_bytes(&of) as u64 >> 24) as i64;
            }
            source.add(&labels, &profile, (u128::from(pod) << 64) + time as u128 + 1);
        }
    }
    source
}

fn ask(selector: &str, from: i64, to: i64, what: QueryKind) -> ProfileQuery {
    let time = TimeRange { from: at(from), to: at(to) };
    let selection =
        ProfileSelection { selector: selector.parse().unwrap(), time, ..ProfileSelection::default() };
    ProfileQuery { selection, what, bounds: ResultLimits::default() }
}

fn tree(selector: &str, from: i64, to: i64) -> ProfileQuery {
    ask(selector, from, to, QueryKind::Tree(StackFilter::default()))
}

/// The answer of one block.
async fn of_block(gateway: &StoreGateway, ask: &ProfileQuery, number: u128, whole: bool) -> PartialResult {
    let question = BlockQuery::new(tenant(), ask.clone());
    gateway.query_block(&question, &BlockTarget::without_duplicates(block(number), whole)).await.unwrap().0
}

/// The answer of what a block was made of.
fn expected(ask: &ProfileQuery, source: &MemorySource) -> PartialResult {
    run_all(ask, [source as &dyn athanor_profile::ProfileSource]).unwrap()
}

/// What an answer says, whatever its tables are numbered like.
fn said(partial: &PartialResult) -> String {
    match partial {
        PartialResult::Tree(tree) => {
            let node = |node: &TreeNode| format!("{} {} {}", tree.name(node), node.parent, node.total);
            tree.nodes().iter().map(node).collect::<Vec<_>>().join("\n")
        }
        PartialResult::Profile(merged) => {
            let tree = Tree::from_totals(&merged.dictionary, &merged.totals);
            format!("{} profiles\n{}", merged.profiles, said(&PartialResult::Tree(tree)))
        }
        other => format!("{other:?}"),
    }
}
