//! What is told before a question is what it then reads: of blocks that several tenants share, of merged ones, and of heads.

use std::time::Duration;

use athanor_chassis::ByteSize;
use athanor_integration::cluster::{TestCluster, run_on};
use athanor_integration::compactor::CompactionOutcome;
use athanor_profile::{Profile, ValueType};
use athanor_proto::querier::v1::{AnalyzeQueryRequest, QueryScope, SelectMergeStacktracesRequest};

use crate::query_consistency::asker::{Asker, whole};
use crate::query_consistency::profiles::{
    IN_A_WAVE, PERIOD, TENANTS, TYPE, labels, millis, push, send, time,
};
use crate::query_consistency::story::{BOTH, serving};

/// Waves that are cut, each into a block of each shard.
const CUT: usize = 4;
const SHARDS: usize = 2;
/// Large profiles of each tenant in a wave, and the stacks in each.
const LARGE: usize = 4;
const STACKS: usize = 900;
/// Selects nothing.
const NONE: &str = r#"{pod="none"}"#;
const NOTHING: ByteSize = ByteSize::bytes(0);

/// Nothing is kept of blocks after a question, so that each reads all that it needs; some of it twice, which counts once.
async fn cluster() -> TestCluster {
    let one = TestCluster::builder().node("one", "za", "all").config(|config| {
        config.cluster.initial_slots = Some(SHARDS as u32);
        config.cluster.replication_factor = 1;
        config.metastore.voters = 1;
        config.ingester.flush.max_head_age = Duration::from_secs(24 * 3600);
        let gateway = &mut config.store_gateway;
        gateway.block_cache_bytes = NOTHING;
        gateway.partial_cache_bytes = NOTHING;
        gateway.disk_cache_bytes = NOTHING;
        config.querier.results_cache_bytes = NOTHING;
    });
    let cluster = one.start().await;
    cluster.wait_for_view("slots are open", |view| serving(view) == SHARDS).await;
    cluster
}

/// A profile of many stacks, some of which all such profiles have.
fn large(number: usize, place: usize) -> Profile {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
    profile.header.period = PERIOD;
    profile.header.duration_nanos = 1_000_000_000;
    profile.header.time_nanos = time(number) + place as i64;
    for at in 0..STACKS {
        let unlike = at * (1 + (number + place) % 7) % 4_001;
        let frames = ["main".to_owned(), format!("module{}", unlike % 50), format!("function{unlike}")];
        let stack = profile.dictionary.intern_named_stack(frames.iter().map(String::as_str));
        profile.samples.push(stack, 0, &[1 + (unlike * 37 % 1_009) as i64]);
    }
    profile
}

/// A wave of small profiles and of large ones, of both tenants.
async fn wave(cluster: &TestCluster, wave: usize) {
    for number in wave * IN_A_WAVE..(wave + 1) * IN_A_WAVE {
        assert!(send(cluster, 0, number).await.0 > 0);
    }
    for (of, tenant) in TENANTS.into_iter().enumerate() {
        for place in 0..LARGE {
            let number = wave * IN_A_WAVE + place;
            let mut labels = labels(number);
            labels[1].1 = format!("large{}", place % 3);
            let (new, _) = push(cluster, 0, tenant, labels, &large(number, LARGE * of + place)).await;
            assert_eq!(new, 1);
        }
    }
}

/// Merges some blocks, and leaves others as they were cut.
async fn merge(cluster: &TestCluster) {
    let (runtime, compactor) = cluster.compactor("one", 3);
    let merging = async {
        loop {
            let compactor = compactor.clone();
            if run_on(runtime, async move { compactor.compact_once().await.unwrap() }).await
                == CompactionOutcome::Replaced
            {
                return;
            }
        }
    };
    cluster.run_with_deadline("blocks are merged", merging).await;
    let (runtime, catalog) = cluster.catalog("one");
    let blocks = run_on(runtime, async move { catalog.blocks().await }).await.unwrap();
    let count = |of: &dyn Fn(u8) -> bool| blocks.iter().filter(|block| of(block.level)).count();
    assert!(count(&|level| level == 0) >= 2 && count(&|level| level > 0) >= 1, "{blocks:?}");
    let is_shared = |tenants: usize| blocks.iter().any(|block| block.tenants.len() == tenants);
    assert!(is_shared(2), "{blocks:?}");
}

/// What heads and blocks are said to have, and the bytes of blocks that were read then.
struct Told {
    heads: QueryScope,
    blocks: QueryScope,
    read: u64,
}

async fn told(cluster: &TestCluster, asker: Asker, selector: &str) -> Told {
    let Asker { start, end, .. } = asker;
    let analyze = AnalyzeQueryRequest { start, end, query: format!("{TYPE}{selector}") };
    let merge = SelectMergeStacktracesRequest { label_selector: selector.to_owned(), ..asker.merge() };
    let bucket = cluster.bucket().clone();
    run_on(cluster.querier(0).0, async move {
        let scopes = whole!(asker, analyze_query, analyze).query_scopes;
        let scope =
            |kind| scopes.iter().find(|scope| scope.component_type == kind).cloned().unwrap_or_default();
        bucket.take_block_bytes();
        let graph = whole!(asker, select_merge_stacktraces, merge).flamegraph.unwrap();
        let told =
            Told { heads: scope("Short term"), blocks: scope("Long term"), read: bucket.take_block_bytes() };
        let samples = told.heads.sample_count + told.blocks.sample_count;
        assert_eq!(graph.total > 0, samples > 0);
        told
    })
    .await
}

fn bytes(scope: &QueryScope) -> u64 {
    scope.index_bytes + scope.profile_bytes + scope.symbol_bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_before_is_what_is_then_read() {
    let cluster = cluster().await;
    for number in 0..CUT {
        wave(&cluster, number).await;
        cluster.flush_all(SHARDS).await;
    }
    merge(&cluster).await;
    wave(&cluster, CUT).await;
    let moment = |wave: usize, more: usize| millis(wave * IN_A_WAVE + more);
    let times = [
        ("all", moment(0, 0), moment(CUT + 1, 0), true),
        ("a part", moment(1, 5), moment(3, 2), false),
        ("the first", moment(0, 0), moment(1, 0) - 1, false),
        ("the last", moment(CUT, 0), moment(CUT + 1, 0), true),
    ];
    let selectors = ["{}", r#"{service_name=~"large.*"}"#, r#"{pod="pod2"}"#, NONE];
    for (which, start, end, is_in_heads) in times {
        for selector in selectors {
            let mut each = Vec::new();
            for tenants in [TENANTS[0], TENANTS[1], BOTH] {
                let asker =
                    Asker { start, end, ..Asker::of_all(&cluster, 0, tenants, (CUT + 1) * IN_A_WAVE) };
                let Told { heads, blocks, read } = told(&cluster, asker, selector).await;
                let told = bytes(&blocks);
                println!("{which}, {tenants} {selector}: told {told} of {}, read {read}", blocks.block_count);
                each.push(told);
                assert_eq!(heads.sample_count > 0, is_in_heads && selector != NONE, "{which} {selector}");
                assert!(
                    tenants == BOTH || told == read,
                    "{which}, {tenants} {selector}: told {told}, read {read}"
                );
            }
            // Each tenant's part of a block is read for itself.
            assert_eq!(each[0] + each[1], each[2], "{which} {selector}");
        }
    }
}
