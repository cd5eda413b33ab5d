//! A gateway over a bucket that counts.

#![allow(clippy::unwrap_used)]

mod bucket;
mod damage;
mod kept;
mod reach;

use std::sync::Arc;

use athanor_catalog::BlockId;
use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{ByteSize, Compute, Disk, TenantId};
use athanor_profile::source::MemorySource;
use athanor_profile::tree::{Node, Tree};
use athanor_profile::{Labels, Profile, ValueType, hash};
use athanor_query::{Ask, Bounds, Found, Partial, Selection, StackFilter, TimeRange, What, answer};
use athanor_store_gateway::{BlockAt, Blocks, Config, Gateway, Question};
use bucket::Bucket;

/// Seconds of Unix time, as nanoseconds.
fn at(seconds: i64) -> i64 {
    seconds * 1_000_000_000
}

fn config() -> Config {
    let disk_spare = ByteSize::bytes(0);
    Config { reading: ByteSize::mib(64), parts: ByteSize::mib(64), disk_spare, ..Config::default() }
}

fn gateway(bucket: &Bucket, config: &Config) -> Gateway {
    with(bucket, None, config)
}

fn with(bucket: &Bucket, disk: Option<&MemoryDisk>, config: &Config) -> Gateway {
    let disk = disk.map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>);
    Gateway::new(Arc::new(Blocks::new(bucket.store(), Compute::inline(), disk, config)), config)
}

/// One that knows what is on its disk.
async fn on_disk(bucket: &Bucket, disk: &MemoryDisk, config: &Config) -> Gateway {
    let gateway = with(bucket, Some(disk), config);
    gateway.tend_disk().await;
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
        let id = profile.dictionary.named_stack(names.iter().map(String::as_str));
        profile.samples.push(id, 0, &[0]);
    }
    for pod in pods {
        let labels = [("service_name", "shop".to_owned()), ("pod", format!("pod-{pod}"))];
        let labels = Labels::new(labels.map(|(name, value)| (name.to_owned(), value)));
        for &time in times {
            profile.header.time_nanos = at(time);
            for (stack, value) in (0u32..).zip(&mut profile.samples.values) {
                // They do not compress: so there is something to pass over.
                let of = [stack, pod, time as u32].map(u32::to_le_bytes).concat();
                *value = hash::bytes(&of) as i64;
            }
            source.add(&labels, &profile, (u128::from(pod) << 64) + time as u128 + 1);
        }
    }
    source
}

fn ask(selector: &str, from: i64, to: i64, what: What) -> Ask {
    let time = TimeRange { from: at(from), to: at(to) };
    let selection = Selection { selector: selector.parse().unwrap(), time, ..Selection::default() };
    Ask { selection, what, bounds: Bounds::default() }
}

fn tree(selector: &str, from: i64, to: i64) -> Ask {
    ask(selector, from, to, What::Tree(StackFilter::default()))
}

/// The answer of one block.
async fn of_block(gateway: &Gateway, ask: &Ask, number: u128, whole: bool) -> Partial {
    let question = Question::new(tenant(), ask.clone());
    gateway.answer_of(&question, &BlockAt::alone(block(number), whole)).await.unwrap().0
}

/// The answer of what a block was made of.
fn expected(ask: &Ask, source: &MemorySource) -> Partial {
    answer(ask, [source as &dyn athanor_profile::Source]).unwrap()
}

/// What an answer says, whatever its tables are numbered like.
fn said(partial: &Partial) -> String {
    match partial {
        Partial::Tree(tree) => {
            let node = |node: &Node| format!("{} {} {}", tree.name(node), node.parent, node.total);
            tree.nodes().iter().map(node).collect::<Vec<_>>().join("\n")
        }
        Partial::Profile(merged) => {
            let tree = Tree::from_totals(&merged.dictionary, &merged.totals);
            format!("{} profiles\n{}", merged.profiles, said(&Partial::Tree(tree)))
        }
        other => format!("{other:?}"),
    }
}
