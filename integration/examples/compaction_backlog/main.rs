//! Merges a backlog of flushed blocks with the role `compactor` in a process of bounded memory.
//!
//! ```text
//!  reference data set ─► flushed blocks ─► bucket ◄─► athanor serve, target compactor, in a memory cgroup
//!                              └─► metastore in this process ◄─┘
//! ```
//! The blocks are those of the reference data set R: a minute of one service each. At the end the totals of all
//! raw rows equal those that were written. The program prints the bytes written relative to the final bytes, and
//! the peak memory of the compactor.
//!
//! Run it with `just compaction-backlog`. Arguments: `--bytes N`, `--memory-bytes N`, `--folder PATH`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that stops at the first problem"
)]

mod backlog;
mod compactor_process;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{BlockEntry, Catalog, CompactionStatus};
use athanor_chassis::config::ConfigSources;
use athanor_chassis::{Clock, LimitOverrides};
use athanor_server::{NodeDeps, ServerConfig, ServerNode};

use backlog::{BacklogTotals, write_backlog};
use compactor_process::{CompactorProcess, MemoryLimit};

/// Id of the cluster, as its settings state it.
const CLUSTER_ID: u128 = 0xbac1;
/// Size of the backlog without an argument.
const DEFAULT_BYTES: u64 = 20_000_000_000;
/// Memory of the compactor's cgroup without an argument.
const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;
/// Interval of status reads.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);
/// Number of consecutive reads without work after which the backlog counts as merged.
const IDLE_READS: u32 = 4;
/// First of the ports that both processes listen on.
const FIRST_PORT: u16 = 24_040;

fn argument(name: &str) -> Option<String> {
    let arguments: Vec<String> = std::env::args().collect();
    let place = arguments.iter().position(|argument| argument == name)?;
    Some(arguments.get(place + 1).unwrap_or_else(|| panic!("{name} needs a value")).clone())
}

fn number_argument(name: &str, default: u64) -> u64 {
    argument(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

/// Returns the settings of one process. Processes differ in their role and ports.
fn settings(folder: &Path, role: &str, first_port: u16) -> String {
    let path = |name: &str| folder.join(name).display().to_string();
    format!(
        "target: {role}\nhttp_listen_address: \"127.0.0.1:{http}\"\ndata_dir: {data:?}\n\
         shutdown_delay: 0s\nretention_period: 0s\n\
         cluster:\n  id: \"{CLUSTER_ID:032x}\"\n  node_name: {role}\n  secret_file: {secret:?}\n  \
         internal_listen_address: \"127.0.0.1:{internal}\"\n  gossip_listen_address: \"127.0.0.1:{gossip}\"\n  \
         seed_nodes: [\"127.0.0.1:{seed}\"]\n  replication_factor: 1\n  node_failure_timeout: 1000h\n\
         metastore:\n  voters: 1\nstorage:\n  local: {bucket:?}\n",
        http = first_port,
        internal = first_port + 1,
        gossip = first_port + 2,
        seed = FIRST_PORT + 2,
        data = path(role),
        secret = path("secret"),
        bucket = path("bucket"),
    )
}

/// Starts the metastore in this process.
async fn start_metastore(folder: &Path, clock: &Clock) -> ServerNode {
    let file = folder.join("metastore.yaml");
    std::fs::write(&file, settings(folder, "metastore", FIRST_PORT)).unwrap();
    let config = ConfigSources::default().with_file(&file).unwrap().load::<ServerConfig>().unwrap().value;
    let system = NodeDeps::local(&config).unwrap();
    let overrides = LimitOverrides::new(config.limits.clone());
    let node = ServerNode::start(&config, system, overrides, Arc::from("")).await.unwrap();
    while node.roles().ready().is_err() {
        clock.sleep(Duration::from_millis(100)).await;
    }
    node
}

/// Waits until no job waits or runs.
async fn wait_until_merged(catalog: &dyn Catalog, process: &mut CompactorProcess, clock: &Clock) {
    let started = clock.monotonic();
    let mut idle_reads = 0;
    while idle_reads < IDLE_READS {
        clock.sleep(STATUS_INTERVAL).await;
        process.check_running();
        let status = catalog.compaction_status().await.unwrap();
        let CompactionStatus { waiting_jobs, claims, blocks_by_level, failures, .. } = &status;
        assert!(failures.is_empty(), "jobs failed: {failures:?}");
        let is_idle = *waiting_jobs == 0 && claims.is_empty();
        idle_reads = if is_idle { idle_reads + 1 } else { 0 };
        println!(
            "{:>6} s: {waiting_jobs} jobs wait, blocks by level {blocks_by_level:?}",
            clock.monotonic().saturating_sub(started).as_secs()
        );
    }
}

fn report(written: &BacklogTotals, listed: &[BlockEntry], process: &CompactorProcess) {
    let raw = BacklogTotals::from_entries(listed.iter().filter(|block| block.tier.is_raw()));
    assert_eq!((raw.profiles, raw.samples, raw.sum), (written.profiles, written.samples, written.sum));
    let flushed = listed.iter().filter(|block| block.level == 0).count();
    let final_bytes: u64 = listed.iter().map(|block| block.bytes).sum();
    let compacted_bytes = process.metric("athanor_compactor_written_bytes_total");
    println!("totals of all raw rows are equal; {} blocks, {flushed} of them flushed", listed.len());
    println!(
        "{} bytes of flushed blocks became {final_bytes}, tiers included; compaction wrote {compacted_bytes:.0}: {:.2} x",
        written.bytes,
        compacted_bytes / final_bytes as f64
    );
    println!(
        "peak memory of the compactor: {} KiB resident; {}",
        process.peak_resident_kib(),
        process.limit_text()
    );
}

fn main() {
    let bytes = number_argument("--bytes", DEFAULT_BYTES);
    let memory_bytes = number_argument("--memory-bytes", DEFAULT_MEMORY_BYTES);
    let temporary = tempfile::tempdir().unwrap();
    let folder = argument("--folder").map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    std::fs::create_dir_all(folder.join("bucket")).unwrap();
    std::fs::write(folder.join("secret"), format!("{CLUSTER_ID:032x}\n")).unwrap();
    let clock = Clock::system();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let node = start_metastore(&folder, &clock).await;
        let catalog = Arc::clone(&node.roles().catalog);
        let started = clock.monotonic();
        let written = write_backlog(&*catalog, &folder.join("bucket"), bytes).await;
        println!(
            "wrote {} blocks, {} bytes in {:?}",
            written.blocks,
            written.bytes,
            clock.monotonic().saturating_sub(started)
        );
        let config = folder.join("compactor.yaml");
        std::fs::write(&config, settings(&folder, "compactor", FIRST_PORT + 10)).unwrap();
        let started = clock.monotonic();
        let mut process =
            CompactorProcess::start(&config, FIRST_PORT + 10, &MemoryLimit::create(memory_bytes));
        wait_until_merged(&*catalog, &mut process, &clock).await;
        println!("merged in {:?}", clock.monotonic().saturating_sub(started));
        let listed = catalog.blocks().await.unwrap();
        report(&written, &listed, &process);
        drop(process);
        node.stop().await.unwrap();
    });
}
