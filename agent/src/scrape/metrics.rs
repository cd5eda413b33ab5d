//! Metrics of scrapes.

use athanor_chassis::observability::metric_family::{MetricCollector, MetricFamily, metric_collector};

use super::scraper::{Scraper, ScraperStats};

/// Metrics of the scraper.
pub const SCRAPE_METRICS: &[MetricFamily<ScraperStats>] = &[
    MetricFamily::gauge(
        "athanor_agent_targets",
        "Number of targets by state",
        &["state"],
        |stats, samples| {
            for (state, count) in &stats.targets {
                samples.add_labeled(&[state.name()], *count);
            }
        },
    ),
    MetricFamily::gauge(
        "athanor_agent_scrapes_in_flight",
        "Number of scrapes that run",
        &[],
        |stats, samples| samples.add(stats.running_scrapes),
    ),
    MetricFamily::counter(
        "athanor_agent_scrapes_total",
        "Number of scrapes that ended",
        &[],
        |stats, samples| samples.add(stats.scrapes),
    ),
    MetricFamily::counter(
        "athanor_agent_scrape_failures_total",
        "Number of scrapes that returned no profile, by reason",
        &["reason"],
        |stats, samples| {
            for (reason, count) in &stats.failures {
                samples.add_labeled(&[reason.name()], *count);
            }
        },
    ),
    MetricFamily::histogram(
        "athanor_agent_scrape_duration_seconds",
        "Time from the request of a profile to the end of the response, without the time that the target records",
        &[],
        |stats, samples| samples.add_durations(&[], &stats.durations),
    ),
    MetricFamily::counter(
        "athanor_agent_late_scrapes_total",
        "Number of scrapes that started over 1 s late",
        &[],
        |stats, samples| samples.add(stats.late_scrapes),
    ),
    MetricFamily::counter(
        "athanor_agent_missed_scrapes_total",
        "Number of scrapes that did not take place because the previous scrape of the target or its spooling took too long",
        &[],
        |stats, samples| samples.add(stats.missed_scrapes),
    ),
    MetricFamily::counter(
        "athanor_agent_scraped_bytes_total",
        "Bytes of scraped profiles that the spool accepted",
        &[],
        |stats, samples| samples.add(stats.scraped_bytes),
    ),
    MetricFamily::counter(
        "athanor_agent_scraped_profiles_rejected_total",
        "Number of scraped profiles that the spool rejected",
        &[],
        |stats, samples| samples.add(stats.rejected_profiles),
    ),
];

/// Returns the collector of [`SCRAPE_METRICS`].
pub fn scrape_collector(scraper: Scraper) -> MetricCollector {
    metric_collector(SCRAPE_METRICS, move || Some(scraper.stats()))
}
