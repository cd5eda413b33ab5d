//! State of the running agent, as its pages and commands show it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::observability::metrics_page::MetricsFormat;
use athanor_chassis::{Clock, ErrorCode, Status};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use super::sender_directory::SenderDirectory;
use super::target_feed::TargetFeed;
use crate::config::{AgentConfig, Environment, pod_discovery};
use crate::delivery::SpoolSet;
use crate::discovery::DiscoverySettings;
use crate::operator::config_mask::mask_secrets;
use crate::operator::explanation::{explain_groups, is_match, label_map};
use crate::operator::metrics::MetricsRegistry;
use crate::operator::reload::ReloadStats;
use crate::operator::views::{
    AgentView, ConfigStatusView, ConfigView, DroppedTargetView, ExplanationsView, KindView, StatusView,
    TargetView, TargetsView,
};
use crate::receive::ProfileReceiver;
use crate::sampling::{SamplingCollector, sampler_view};
use crate::scrape::{KindStatus, Scraper, TargetStatus};
use crate::targets::{JobState, TargetRegistry};

const IN_MEMORY_WARNING: &str = "the spool is in memory, because its folder is not writable: profiles are lost if \
the agent ends; set spool.folder to a writable folder";

/// Interval of the log message of a spool in memory. The first is logged when the spool is opened.
const IN_MEMORY_LOG_INTERVAL: Duration = Duration::from_secs(600);

/// Configuration in force, with its text.
pub(super) struct ConfigInForce {
    pub(super) config: AgentConfig,
    pub(super) text: String,
}

/// Parts of the agent that its pages read.
pub(super) struct RunningAgent {
    pub(super) clock: Clock,
    /// Monotonic time of the start.
    pub(super) started: Duration,
    pub(super) file: Option<PathBuf>,
    pub(super) environment: Environment,
    pub(super) config: RwLock<ConfigInForce>,
    pub(super) registry: Arc<TargetRegistry>,
    pub(super) feed: TargetFeed,
    pub(super) senders: Arc<SenderDirectory>,
    pub(super) scraper: Scraper,
    pub(super) receiver: ProfileReceiver,
    pub(super) sampler: SamplingCollector,
    pub(super) spools: SpoolSet,
    pub(super) metrics: MetricsRegistry,
    pub(super) reloads: Arc<ReloadStats>,
    pub(super) receive_address: RwLock<Option<String>>,
}

impl RunningAgent {
    fn file_text(&self) -> Option<String> {
        self.file.as_ref().map(|file| file.display().to_string())
    }

    fn spool_folder(&self) -> Option<String> {
        let config = self.config.read();
        (!self.spools.is_in_memory()).then(|| config.config.spool.folder.display().to_string())
    }

    /// Returns the discovery of the pods of this node, for the labels of senders and of sampled processes.
    pub(super) fn sender_discovery(&self, config: &AgentConfig) -> Option<DiscoverySettings> {
        let receives = config.receive.listen_address.is_some() && config.receive.adds_sender_labels;
        let samples = self.sampler.stats().phase.may_sample();
        ((receives || samples) && self.environment.is_in_cluster && cfg!(feature = "kubernetes"))
            .then(pod_discovery)
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.config.read().config.warnings.clone();
        warnings.extend(self.feed.problems());
        for job in self.registry.jobs() {
            warnings.extend(job.targets.error.as_ref().map(ToString::to_string));
        }
        warnings.extend(self.senders.problems());
        warnings.extend(self.sampler.stats().phase.problem().map(str::to_owned));
        warnings.extend_from_slice(self.spools.warnings());
        warnings.extend(self.page_warnings());
        warnings
    }

    /// Returns the conditions that each page shows.
    fn page_warnings(&self) -> Vec<String> {
        self.spools.is_in_memory().then(|| IN_MEMORY_WARNING.to_owned()).into_iter().collect()
    }

    /// Logs in regular intervals that the spool is in memory, until `stop`.
    pub(super) async fn log_memory_spool(self: Arc<Self>, stop: CancellationToken) {
        while self.spools.is_in_memory() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep(IN_MEMORY_LOG_INTERVAL) => tracing::warn!("{IN_MEMORY_WARNING}"),
            }
        }
    }

    fn target_view(&self, status: TargetStatus) -> TargetView {
        let TargetStatus { job, scheme, address, labels, discovered, state, kinds } = status;
        TargetView {
            job,
            url: format!("{scheme}://{address}"),
            state: state.name().to_owned(),
            labels: label_map(&labels),
            discovered_labels: label_map(&discovered),
            kinds: kinds.into_iter().map(|kind| self.kind_view(kind)).collect(),
        }
    }

    fn kind_view(&self, kind: KindStatus) -> KindView {
        let now = self.clock.wall();
        let seconds_since = |time: athanor_chassis::Timestamp| (now.nanos() - time.nanos()) as f64 / 1e9;
        KindView {
            name: kind.name,
            path: kind.path,
            state: kind.state.name().to_owned(),
            last_scrape_age_seconds: kind.last_scrape.map(seconds_since),
            last_duration_seconds: kind.last_duration.as_secs_f64(),
            last_bytes: kind.last_bytes,
            next_scrape_in_seconds: -seconds_since(kind.next_scrape),
            error: kind.error,
        }
    }
}

#[async_trait]
impl AgentView for RunningAgent {
    fn targets(&self) -> TargetsView {
        let active = self.scraper.target_statuses();
        let active = active.into_iter().map(|status| self.target_view(status)).collect();
        let mut view = TargetsView { active, warnings: self.page_warnings(), ..TargetsView::default() };
        for JobState { job, targets, .. } in self.registry.jobs() {
            let job = &job.job.name;
            if targets.dropped_count > 0 {
                view.dropped.insert(job.clone(), targets.dropped_count as u64);
            }
            view.dropped_targets.extend(targets.dropped.iter().map(|target| DroppedTargetView {
                job: job.clone(),
                discovered_labels: label_map(&target.discovered),
                reason: target.reason.to_string(),
            }));
        }
        view
    }

    fn status(&self) -> StatusView {
        let now = self.clock.monotonic();
        let reloads = self.reloads.snapshot();
        StatusView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: now.saturating_sub(self.started).as_secs_f64(),
            config: ConfigStatusView {
                file: self.file_text(),
                age_seconds: now.saturating_sub(reloads.applied_at).as_secs_f64(),
                reloads: reloads.applied,
                failed_reloads: reloads.failed,
                error: reloads.error,
            },
            receive_address: self.receive_address.read().clone(),
            spool_folder: self.spool_folder(),
            servers: self.spools.views(),
            sampler: sampler_view(&self.sampler.stats()),
            warnings: self.warnings(),
        }
    }

    fn config(&self) -> ConfigView {
        let yaml = mask_secrets(&self.config.read().text);
        ConfigView { file: self.file_text(), yaml, warnings: self.page_warnings() }
    }

    fn unreadiness(&self) -> Option<String> {
        let pending = self.registry.jobs().into_iter().filter(|job| job.is_pending);
        let pending: Vec<String> = pending.map(|job| job.job.job.name.clone()).collect();
        (!pending.is_empty())
            .then(|| format!("discovery of {} has not found targets yet", pending.join(", ")))
    }

    fn metrics(&self, format: MetricsFormat) -> Result<String, Status> {
        let page = self.metrics.encode(format);
        page.map_err(|error| Status::new(ErrorCode::Internal, format!("failed to encode metrics: {error}")))
    }

    fn explain(&self, target: &str) -> ExplanationsView {
        let mut view = ExplanationsView::default();
        let external_labels = self.config.read().config.external_labels.clone();
        for state in self.registry.jobs() {
            let groups = self.feed.groups(&state.job);
            let matches = |labels: &_| is_match(labels, Some(target));
            explain_groups(&state.job, &groups, &external_labels, matches, &mut view);
        }
        view
    }

    async fn drain(&self) -> Result<(), Status> {
        self.spools.drain();
        Ok(())
    }
}
