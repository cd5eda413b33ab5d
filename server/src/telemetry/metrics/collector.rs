//! Collector of all metrics, which reads the components on each scrape.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::observability::cpu_time::{CpuActivity, process_cpu_time};
use athanor_chassis::observability::histogram::HistogramSnapshot;
use athanor_chassis::observability::process::ProcessUsage;
use athanor_chassis::{Clock, ComputePool, TaskGroup, TenantId, Timestamp};
use athanor_consensus::RaftGroup;
use athanor_consensus::log::{DamageScope, Log, LogDamage, LogHealth, LogUsage};
use athanor_distributor::{Distributor, TenantCounts};
use athanor_ingester::{DeltaStats, FlushStats, Ingester, ShardStats};
use athanor_metastore::{CatalogSize, CatalogStateMachine};
use athanor_querier::{Querier, QuerierStats};
use athanor_store_gateway::{CacheStats, DiskCacheStats, PartialCacheStats, StoreGateway, StoreGatewayStats};
use athanor_symbolizer::{DebuginfoService, DebuginfoStats};

use super::page::{MetricsPage, NANOSECOND_SCALE, UNIT_SCALE, labels, unlabeled};
use super::routes::{RouteMetrics, RouteStats};
use crate::lifecycle::readiness::Readiness;
use crate::maintenance::retention_worker::{RetentionCounters, RetentionStats};
use crate::read::hedging::{HedgeStats, HedgingPolicy};

mod debuginfo;
mod queries;
mod tenants;

/// Components that the metrics are read from.
pub struct MetricsCollector {
    /// Counters of HTTP routes.
    pub routes: RouteMetrics,
    /// Clock for the uptime.
    pub clock: Clock,
    /// Start time of this process.
    pub started: Timestamp,
    /// Readiness for requests.
    pub readiness: Arc<Readiness>,
    /// Distributor, with counters per tenant.
    pub distributor: Option<Distributor>,
    /// Service for debug information.
    pub debuginfo: Option<DebuginfoService>,
    /// Ingester, with its shards.
    pub ingester: Option<Arc<Ingester>>,
    /// Log of this node.
    pub log: Option<Log>,
    /// Damaged ranges of the log that recovery found.
    pub damage: Vec<LogDamage>,
    /// Raft group of the catalog, if this node votes.
    pub facts: Option<RaftGroup<CatalogStateMachine>>,
    /// Store-gateway, with its caches.
    pub gateway: Arc<StoreGateway>,
    /// Counters of hedged requests.
    pub hedges: Arc<HedgingPolicy>,
    /// Querier of this node.
    pub querier: Option<Querier>,
    /// Counters of retention.
    pub janitor: Arc<RetentionCounters>,
    /// Compute threads of the process.
    pub compute: ComputePool,
    /// Tasks of the node.
    pub tasks: TaskGroup,
}

/// Format of a metrics page, and values that the HTTP server adds.
#[derive(Clone, Copy, Debug)]
pub struct MetricsView {
    /// Selects OpenMetrics in place of the older text format.
    pub open_metrics: bool,
    /// Shows tenants by name. If unset, the numbers of all tenants are summed.
    pub names_tenants: bool,
    /// Number of requests with a wrong administration token.
    pub failed_tokens: u64,
}

/// Values of all components at one scrape.
struct MetricsSnapshot {
    names_tenants: bool,
    failed_tokens: u64,
    routes: Vec<RouteStats>,
    started: Timestamp,
    uptime: Duration,
    ready: bool,
    usage: ProcessUsage,
    tenants: Vec<(Option<TenantId>, TenantCounts)>,
    debuginfo: Option<DebuginfoStats>,
    shards: Vec<ShardStats>,
    log: Option<(LogUsage, LogHealth)>,
    failed: bool,
    damage: Vec<LogDamage>,
    catalog: Option<CatalogSize>,
    cache: StoreGatewayStats,
    hedges: HedgeStats,
    querier: Option<QuerierStats>,
    janitor: RetentionStats,
    compute: (usize, usize),
    tasks: usize,
}

impl MetricsCollector {
    /// Returns all metrics as text.
    pub fn text(&self, view: &MetricsView) -> String {
        let mut page = MetricsPage::new(view.open_metrics);
        self.now(view).write(&mut page);
        page.finish()
    }

    fn now(&self, view: &MetricsView) -> MetricsSnapshot {
        MetricsSnapshot {
            names_tenants: view.names_tenants,
            failed_tokens: view.failed_tokens,
            routes: self.routes.now(),
            started: self.started,
            uptime: self.clock.wall().since(self.started),
            ready: self.readiness.now().is_ok(),
            usage: ProcessUsage::current(),
            tenants: self.distributor.as_ref().map(|door| door.stats().snapshot()).unwrap_or_default(),
            debuginfo: self.debuginfo.as_ref().map(DebuginfoService::stats),
            shards: self.ingester.as_ref().map(|shards| shards.stats(&self.clock)).unwrap_or_default(),
            log: self.log.as_ref().map(|log| (log.usage(), log.health())),
            failed: self.log.as_ref().is_some_and(|log| log.failure().is_some()),
            damage: self.damage.clone(),
            catalog: self.facts.as_ref().map(|facts| facts.with_state_machine(CatalogStateMachine::size)),
            cache: self.gateway.stats(),
            hedges: self.hedges.counts(),
            querier: self.querier.as_ref().map(Querier::stats),
            janitor: self.janitor.now(),
            compute: (self.compute.parallelism(), self.compute.pending_jobs()),
            tasks: self.tasks.running_tasks(),
        }
    }
}

impl MetricsSnapshot {
    fn write(&self, page: &mut MetricsPage) {
        self.process(page);
        self.requests(page);
        self.profiles(page);
        self.refusals(page);
        self.debuginfo(page);
        self.log(page);
        self.damage(page);
        self.shards(page);
        self.counting(page);
        self.cuts(page);
        self.blocks(page);
        self.queries(page);
    }

    fn process(&self, page: &mut MetricsPage) {
        let ProcessUsage { resident_bytes, peak_bytes, virtual_bytes, threads, open_files, max_files } =
            self.usage;
        let cpu = process_cpu_time();
        let mut gauge = |name, help, value| page.gauge(name, help, unlabeled(value));
        gauge("process_resident_memory_bytes", "Memory in use", resident_bytes as f64);
        gauge("process_resident_memory_peak_bytes", "Most memory that was ever in use", peak_bytes as f64);
        gauge("process_virtual_memory_bytes", "Address space", virtual_bytes as f64);
        gauge("process_threads", "Threads", threads as f64);
        gauge("process_open_fds", "Open files and sockets", open_files as f64);
        gauge("process_max_fds", "How many files and sockets may be open", max_files as f64);
        let started = self.started.nanos() as f64 * NANOSECOND_SCALE;
        gauge("process_start_time_seconds", "When it began, in Unix time", started);
        gauge("athanor_uptime_seconds", "How long it has run", self.uptime.as_secs_f64());
        gauge("athanor_ready", "1 while requests are welcome, else 0", f64::from(u8::from(self.ready)));
        gauge("athanor_compute_threads", "Threads for computing", self.compute.0 as f64);
        gauge("athanor_compute_jobs", "Jobs that compute, or wait to", self.compute.1 as f64);
        gauge("athanor_tasks", "Running tasks; each connection is one", self.tasks as f64);
        let version = labels(&[("version", env!("CARGO_PKG_VERSION"))]);
        page.gauge("athanor_build_info", "Always 1; the labels say what runs", [(version, UNIT_SCALE)]);
        page.counter(
            "process_cpu_seconds_total",
            "Processor time of this process",
            unlabeled(cpu.as_secs_f64()),
        );
        let spent = CpuActivity::ALL.map(|activity| (activity.name(), activity.cpu_time()));
        let told = spent.iter().map(|(_, time)| *time).sum();
        let all = spent.into_iter().chain([("other", cpu.saturating_sub(told))]);
        page.counter(
            "athanor_cpu_seconds_total",
            "Processor time by what it went into, all of process_cpu_seconds_total; other is serving connections, small \
             bodies, writing to the bucket and whatever else",
            all.map(|(name, time)| (labels(&[("activity", name)]), time.as_secs_f64())),
        );
    }

    fn requests(&self, page: &mut MetricsPage) {
        let route = |counted: &RouteStats| labels(&[("route", counted.route)]);
        let codes = self.routes.iter().flat_map(|counted| {
            let of = |code: &u16| labels(&[("route", counted.route), ("code", &code.to_string())]);
            counted.codes.iter().map(move |(code, count)| (of(code), *count as f64))
        });
        page.counter(
            "athanor_http_requests_total",
            "Requests by HTTP status; a refusal over gRPC has the status that it would have over HTTP, 499 is a client \
             that left",
            codes,
        );
        let asked = || self.routes.iter().filter(|counted| counted.underway > 0 || !counted.codes.is_empty());
        page.histogram(
            "athanor_http_request_seconds",
            "Time to answer, or until the client left",
            NANOSECOND_SCALE,
            asked().map(|counted| (route(counted), counted.took.clone())),
        );
        page.gauge(
            "athanor_http_requests_underway",
            "Requests that are being answered",
            asked().map(|counted| (route(counted), counted.underway as f64)),
        );
        page.counter(
            "athanor_partial_answers_total",
            "Answers that lacked something, and said so",
            asked().map(|counted| (route(counted), counted.partial as f64)),
        );
        page.counter(
            "athanor_admin_token_failures_total",
            "Requests with a wrong administration token",
            unlabeled(self.failed_tokens as f64),
        );
    }

    fn log(&self, page: &mut MetricsPage) {
        let Some((usage, health)) = &self.log else { return };
        let mut gauge = |name, help, value: u64| page.gauge(name, help, unlabeled(value as f64));
        gauge("athanor_log_segments", "Files of the log in use", usage.segments as u64);
        gauge("athanor_log_bytes", "Size of these files", usage.capacity);
        gauge("athanor_log_live_bytes", "Bytes in them that are needed", usage.live);
        gauge("athanor_log_waiting_bytes", "Bytes that wait to be written", usage.waiting);
        let failed = self.failed.into();
        gauge("athanor_log_failed", "1 if the disk failed, so that nothing is taken until a restart", failed);
        let free = health.free.map(|free| (String::new(), free as f64));
        page.gauge("athanor_log_disk_free_bytes", "Free space of the log's disk", free);
        page.counter(
            "athanor_log_appended_bytes_total",
            "Bytes written to the log",
            unlabeled(usage.written as f64),
        );
        let mut histogram = |name, help, scale, spread: &HistogramSnapshot| {
            page.histogram(name, help, scale, [(String::new(), spread.clone())])
        };
        histogram(
            "athanor_log_fsync_seconds",
            "Time of each sync of the log",
            NANOSECOND_SCALE,
            &health.syncs,
        );
        let help = "Payload that one sync made durable";
        histogram("athanor_log_commit_bytes", help, UNIT_SCALE, &health.commit_bytes);
        let help = "Batches that one sync made durable";
        histogram("athanor_log_commit_batches", help, UNIT_SCALE, &health.commit_batches);
    }

    /// Writes the damaged acknowledged ranges of the log [INV-07]. A range counts once for each group that it
    /// affects.
    fn damage(&self, page: &mut MetricsPage) {
        let mut groups: BTreeMap<String, [u64; 3]> = BTreeMap::new();
        for LogDamage { at, hurt } in &self.damage {
            let hurt = match hurt {
                DamageScope::All => vec![("all".to_owned(), 0)],
                DamageScope::Groups(all) => {
                    all.iter().map(|(group, _, lost)| (group.to_string(), *lost)).collect()
                }
            };
            for (group, entries) in hurt {
                let [ranges, bytes, lost] = groups.entry(group).or_default();
                (*ranges, *bytes, *lost) = (*ranges + 1, *bytes + (at.end - at.start), *lost + entries);
            }
        }
        let mut gauge = |name, help, which: usize| {
            let of =
                |(group, numbers): (&String, &[u64; 3])| (labels(&[("group", group)]), numbers[which] as f64);
            page.gauge(name, help, groups.iter().map(of));
        };
        gauge(
            "athanor_log_damaged_ranges",
            "Ranges of the log that were acknowledged and that the start found damaged, with each group that they hurt: \
             0 is the catalogue, n a shard, all where nobody knows whom",
            0,
        );
        gauge("athanor_log_damaged_bytes", "Bytes of these ranges", 1);
        gauge("athanor_log_lost_entries", "Entries in them, where that is known", 2);
    }

    fn shards(&self, page: &mut MetricsPage) {
        let mut gauge = |name, help, value: fn(&ShardStats) -> f64| {
            page.gauge(name, help, self.shards.iter().map(|shard| (of_shard(shard), value(shard))));
        };
        gauge("athanor_shard_unregistered_bytes", "Memory of profiles that are in no block yet", |shard| {
            shard.heads.bytes as f64
        });
        gauge("athanor_shard_unregistered_seconds", "Age of the oldest head with such profiles", |shard| {
            shard.oldest.as_secs_f64()
        });
        gauge("athanor_shard_head_bytes", "Memory of profiles in the head that grows", |shard| {
            shard.head_bytes as f64
        });
        gauge(
            "athanor_shard_profiles",
            "Records that are in no block yet, one for each type of a profile",
            |shard| shard.heads.profiles as f64,
        );
        gauge("athanor_shard_series", "Series of these records", |shard| shard.heads.series as f64);
        gauge("athanor_shard_waiting_bytes", "Bytes of uploads that wait for their commit", |shard| {
            shard.waiting_bytes as f64
        });
        gauge("athanor_shard_window_ids", "Ids of recent records, by which repeats are known", |shard| {
            shard.window_ids as f64
        });
        let help = "Series whose profiles count since a process began, and of which it is known what they have counted";
        gauge("athanor_shard_counting_series", help, |shard| shard.counting_series as f64);
        let help = "Memory of what they have counted";
        gauge("athanor_shard_counting_bytes", help, |shard| shard.counting_bytes as f64);
        let help = "Entries that were acknowledged, are in no block and cannot be read";
        gauge("athanor_shard_lost_entries", help, |shard| shard.lost_entries as f64);
        let help = "How long ago the last cut was done, or the process began";
        gauge("athanor_cut_age_seconds", help, |shard| shard.since_cut.as_secs_f64());
    }

    /// Writes the counters of profiles that are cumulative since process start.
    fn counting(&self, page: &mut MetricsPage) {
        let each = self.shards.iter().flat_map(|shard| {
            let DeltaStats { first, restarts, subtracted, late, late_over_restart, forgotten } =
                shard.counting;
            let kinds = [
                ("first", first),
                ("restart", restarts),
                ("subtracted", subtracted),
                ("late", late),
                ("late_over_restart", late_over_restart),
                ("forgotten", forgotten),
            ];
            let id = shard.shard.to_string();
            kinds.map(|(kind, count)| (labels(&[("shard", &id), ("what", kind)]), count as f64))
        });
        page.counter(
            "athanor_shard_counting_total",
            "Records of profiles that count since a process began: stored whole since nothing earlier is known (first) or \
             they count less than before (restart), as what they add (subtracted), or not at all since a later one said \
             it (late) or since they are of a process before the last one, so that what they add is lost \
             (late_over_restart); and series of which it was forgotten what they have counted",
            each,
        );
    }

    fn cuts(&self, page: &mut MetricsPage) {
        let took = self.shards.iter().map(|shard| (of_shard(shard), shard.cuts.took.clone()));
        page.histogram(
            "athanor_cut_seconds",
            "Time of each cut, from a head to its block",
            NANOSECOND_SCALE,
            took,
        );
        let mut counter = |name, help, count: fn(&FlushStats) -> u64| {
            page.counter(
                name,
                help,
                self.shards.iter().map(|shard| (of_shard(shard), count(&shard.cuts) as f64)),
            );
        };
        counter("athanor_cut_failures_total", "Cuts that failed and are tried again", |cuts| cuts.failed);
        counter("athanor_cut_bytes_total", "Bytes of blocks that were written", |cuts| cuts.bytes);
        counter("athanor_cut_samples_total", "Samples in these blocks", |cuts| cuts.samples);
        counter("athanor_cut_objects_total", "Objects that were written for them", |cuts| cuts.objects);
    }

    fn blocks(&self, page: &mut MetricsPage) {
        let mut gauge = |name, help, value: u64| page.gauge(name, help, unlabeled(value as f64));
        if let Some(catalog) = self.catalog {
            gauge("athanor_catalog_blocks", "Blocks that are registered", catalog.blocks);
            gauge("athanor_catalog_bytes", "Their bytes", catalog.bytes);
            let help = "Blocks that were removed lately, or are about to be";
            gauge("athanor_catalog_condemned_blocks", help, catalog.tombstones);
        }
        let mut counter = |name, help, value: u64| page.counter(name, help, unlabeled(value as f64));
        let HedgeStats { calls, second, won } = self.hedges;
        counter("athanor_gateway_calls_total", "Calls of gateways, second ones not counted", calls);
        counter("athanor_gateway_second_calls_total", "Those made beside one that took long", second);
        counter("athanor_gateway_second_calls_won_total", "Those of them that were answered first", won);
        let RetentionStats { condemned, deleted, failed, overdue, restorable, clock_ahead_seconds } =
            self.janitor;
        counter("athanor_janitor_condemned_blocks_total", "Blocks that were past their retention", condemned);
        counter("athanor_janitor_deleted_blocks_total", "Blocks whose objects were removed", deleted);
        counter(
            "athanor_janitor_failures_total",
            "Rounds of removing that failed and are tried again",
            failed,
        );
        let mut gauge = |name, help, value: f64| page.gauge(name, help, unlabeled(value));
        let help = "Blocks past their retention that are not expired yet";
        gauge("athanor_retention_overdue_blocks", help, overdue as f64);
        let help = "Expired blocks that can be restored";
        gauge("athanor_retention_restorable_blocks", help, restorable as f64);
        let help = "Seconds by which the clock of the catalog's leader is ahead of the catalog's time";
        gauge("athanor_catalog_clock_ahead_seconds", help, clock_ahead_seconds as f64);
        self.parts(page);
        self.answers(page);
        self.shelf(page);
    }

    /// Writes the metrics of the memory cache of block parts.
    fn parts(&self, page: &mut MetricsPage) {
        let told = CacheMetricNames {
            entries: ("athanor_cache_parts", "Parts of blocks in memory"),
            bytes: "athanor_cache_bytes",
            limit: "athanor_cache_limit_bytes",
            hits: ("athanor_cache_hits_total", "Parts of blocks that were in memory when a question came"),
            misses: ("athanor_cache_misses_total", "Parts of blocks that were fetched for the first to ask"),
            evictions: ("athanor_cache_evictions_total", "Parts of blocks that made room for others"),
            damaged: None,
        };
        told.write(page, &self.cache.parts);
    }

    /// Writes the metrics of the disk cache of block data.
    fn shelf(&self, page: &mut MetricsPage) {
        let DiskCacheStats { cache, failed, doubted, passed } = &self.cache.shelf;
        let told = CacheMetricNames {
            entries: ("athanor_kept_files", "Answers and pages of blocks that are on disk"),
            bytes: "athanor_kept_bytes",
            limit: "athanor_kept_limit_bytes",
            hits: ("athanor_kept_hits_total", "Answers and pages that were on disk"),
            misses: ("athanor_kept_misses_total", "Answers and pages that were not"),
            evictions: ("athanor_kept_evictions_total", "Files that made room for others"),
            damaged: Some((
                "athanor_kept_damaged_total",
                "Files that were not what had been written: what they held was found anew",
            )),
        };
        told.write(page, cache);
        let mut counter = |name, help, value: &u64| page.counter(name, help, unlabeled(*value as f64));
        counter("athanor_kept_failures_total", "Files that the disk did not take or give", failed);
        let help =
            "Times that files were removed since a block read damaged with them: they may have been sound";
        counter("athanor_kept_doubts_total", help, doubted);
        let help = "Answers and pages that were not kept since too much waited to be written";
        counter("athanor_kept_passed_total", help, passed);
    }

    /// Writes the metrics of the cache of partial results per block.
    fn answers(&self, page: &mut MetricsPage) {
        let PartialCacheStats { cache, on_disk, joined } = &self.cache.answers;
        let told = CacheMetricNames {
            entries: ("athanor_answers_kept", "Answers of single blocks that are in memory"),
            bytes: "athanor_answers_bytes",
            limit: "athanor_answers_limit_bytes",
            hits: ("athanor_answers_hits_total", "Questions to a block whose answer was in memory"),
            misses: ("athanor_answers_misses_total", "Questions to a block whose answer was found anew"),
            evictions: ("athanor_answers_evictions_total", "Kept answers that made room for others"),
            damaged: Some((
                "athanor_answers_damaged_total",
                "Kept answers whose bytes had changed: they were found anew",
            )),
        };
        told.write(page, cache);
        let mut counter = |name, help, value: &u64| page.counter(name, help, unlabeled(*value as f64));
        let help = "Questions to a block whose answer was not in memory, but on disk";
        counter("athanor_answers_on_disk_total", help, on_disk);
        let help = "Questions that waited for the answer to an equal one";
        counter("athanor_answers_joined_total", help, joined);
    }
}

/// Metric names and help texts of one cache.
struct CacheMetricNames {
    entries: (&'static str, &'static str),
    bytes: &'static str,
    limit: &'static str,
    hits: (&'static str, &'static str),
    misses: (&'static str, &'static str),
    evictions: (&'static str, &'static str),
    /// Name for caches that verify checksums of their entries.
    damaged: Option<(&'static str, &'static str)>,
}

impl CacheMetricNames {
    fn write(&self, page: &mut MetricsPage, stats: &CacheStats) {
        let CacheStats { hits, misses, evicted, damaged, entries, bytes, limit } = *stats;
        let mut gauge = |(name, help), value: u64| page.gauge(name, help, unlabeled(value as f64));
        gauge(self.entries, entries);
        gauge((self.bytes, "Their bytes"), bytes);
        gauge((self.limit, "How many there may be"), limit);
        let mut counter = |(name, help), value: u64| page.counter(name, help, unlabeled(value as f64));
        counter(self.hits, hits);
        counter(self.misses, misses);
        counter(self.evictions, evicted);
        if let Some(of) = self.damaged {
            counter(of, damaged);
        }
    }
}

fn of_shard(shard: &ShardStats) -> String {
    labels(&[("shard", &shard.shard.to_string())])
}
