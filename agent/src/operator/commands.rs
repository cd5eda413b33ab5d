//! Commands that read a running agent over its pages.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use athanor_chassis::{Clock, ErrorCode, Random, Status};
use athanor_client::{ApiClient, ClientSettings, SettingNames, TlsSettings};
use athanor_profile::render::printable::escape_control;
use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::pages::COMMAND_HEADER;
use super::views::{ExplanationView, ExplanationsView, StatusView, TargetsView};

/// Timeout of a request to the agent.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of reading the spool while it drains.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(200);

const SETTING_NAMES: SettingNames = SettingNames {
    url: "--agent",
    tenant: "--agent",
    user: "--agent",
    token: "--agent",
    tls: "--agent",
    timeout: "the load of the agent",
    start_hint: "start an agent with `athanor-agent`, or set --agent to the operator address of a running one",
};

/// Client of a running agent.
pub struct AgentClient {
    client: ApiClient,
}

/// Text of a command's result.
pub type CommandOutput = String;

impl AgentClient {
    /// Creates a client. Opens no connection.
    ///
    /// # Errors
    ///
    /// The URL is invalid.
    pub fn new(url: &str, clock: Clock, random: Random) -> Result<Self, Status> {
        let settings = ClientSettings {
            url: url.to_owned(),
            tenant: None,
            token: None,
            user: None,
            tls: TlsSettings::default(),
            user_agent: concat!("athanor-agent/", env!("CARGO_PKG_VERSION")).to_owned(),
            timeout: REQUEST_TIMEOUT,
            names: SETTING_NAMES,
            report_remark: |_| {},
        };
        Ok(AgentClient { client: ApiClient::new(&settings, clock, random)? })
    }

    /// Lists the targets.
    ///
    /// # Errors
    ///
    /// The agent is unreachable.
    pub async fn targets(&self, is_json: bool) -> Result<CommandOutput, Status> {
        let view: TargetsView = self.fetch("targets?format=json").await?;
        render(&view, is_json, format_targets)
    }

    /// Shows the spool of each server.
    ///
    /// # Errors
    ///
    /// The agent is unreachable.
    pub async fn show_spool(&self, is_json: bool) -> Result<CommandOutput, Status> {
        let view: StatusView = self.fetch("status?format=json").await?;
        render(&view, is_json, format_spool)
    }

    /// Makes the agent send its spool now, and waits until it is empty.
    ///
    /// # Errors
    ///
    /// `Deadline` if files remain after the timeout. The agent goes on to deliver them.
    pub async fn drain_spool(&self, timeout: Duration) -> Result<CommandOutput, Status> {
        let clock = self.client.clock();
        let end = clock.monotonic() + timeout;
        let mut headers = HeaderMap::new();
        headers.insert(COMMAND_HEADER, HeaderValue::from_static("drain"));
        self.client.send("spool/drain", headers, Bytes::new()).await?;
        loop {
            let view: StatusView = self.fetch("status?format=json").await?;
            let remaining: u64 = view.servers.iter().map(|server| server.spool_files).sum();
            if remaining == 0 {
                return Ok("the spool is empty\n".to_owned());
            }
            if clock.monotonic() >= end {
                let error = view.servers.iter().find_map(|server| server.error.as_deref());
                let reason = error.map(|error| format!(": {}", escape_control(error))).unwrap_or_default();
                let message = format!(
                    "{remaining} spool files remain after {} s{reason}; the agent continues to deliver them",
                    timeout.as_secs()
                );
                return Err(Status::new(ErrorCode::Deadline, message));
            }
            clock.sleep(DRAIN_CHECK_INTERVAL).await;
        }
    }

    /// Shows how relabeling treats a target.
    ///
    /// # Errors
    ///
    /// `NotFound` if discovery knows no such target.
    pub async fn explain(&self, target: &str, is_json: bool) -> Result<CommandOutput, Status> {
        let mut query =
            reqwest::Url::parse("http://agent/explain").map_err(|error| invalid_target(&error))?;
        query.query_pairs_mut().append_pair("target", target);
        let view: ExplanationsView =
            self.fetch(&format!("explain?{}", query.query().unwrap_or_default())).await?;
        if view.targets.is_empty() {
            let message = format!(
                "no discovered target has the address or label value {:?}; athanor-agent targets lists them",
                escape_control(target)
            );
            return Err(Status::new(ErrorCode::NotFound, message));
        }
        render(&view, is_json, format_explanations)
    }

    async fn fetch<V: DeserializeOwned>(&self, path: &str) -> Result<V, Status> {
        let text = self.client.page(path).await?;
        serde_json::from_str(&text).map_err(|error| {
            let message = format!(
                "{}: the response is not that of an agent of this version: {error}; check --agent",
                self.client.address()
            );
            Status::new(ErrorCode::Invalid, message)
        })
    }
}

fn invalid_target(error: &dyn std::fmt::Display) -> Status {
    Status::new(ErrorCode::Internal, format!("failed to encode the target: {error}"))
}

fn render<V: Serialize>(
    view: &V,
    is_json: bool,
    format: impl FnOnce(&V) -> String,
) -> Result<CommandOutput, Status> {
    if !is_json {
        return Ok(format(view));
    }
    let text = serde_json::to_string_pretty(view);
    let text =
        text.map_err(|error| Status::new(ErrorCode::Internal, format!("failed to encode: {error}")))?;
    Ok(format!("{text}\n"))
}

fn format_targets(view: &TargetsView) -> String {
    let mut text = String::new();
    for target in &view.active {
        for kind in &target.kinds {
            let age = kind.last_scrape_age_seconds.map_or("never".to_owned(), |age| format!("{age:.0}s ago"));
            let error = kind.error.as_deref().map(|error| format!("  {error}")).unwrap_or_default();
            let row = format!(
                "{:8} {}  {}  {}  {age}  {}{error}",
                kind.state,
                target.job,
                target.url,
                kind.name,
                format_labels(&target.labels)
            );
            let _ = writeln!(text, "{}", escape_control(&row));
        }
    }
    for (job, count) in view.dropped.iter().filter(|(_, count)| **count > 0) {
        let _ = writeln!(text, "dropped  {}  {count} targets", escape_control(job));
    }
    if text.is_empty() { "no targets\n".to_owned() } else { text }
}

fn format_spool(view: &StatusView) -> String {
    let mut text = match &view.spool_folder {
        Some(folder) => format!("spool in {}\n", escape_control(folder)),
        None => {
            "spool in memory, because no folder is writable; profiles are lost if the agent ends\n".to_owned()
        }
    };
    for server in &view.servers {
        let oldest = server.oldest_age_seconds.map(|age| format!(", oldest {age:.0}s")).unwrap_or_default();
        let row = format!(
            "{}  {}  {} files, {} bytes{oldest}; {} profiles sent, {} refused, {} dropped",
            server.name,
            server.url,
            server.spool_files,
            server.spool_bytes,
            server.sent_profiles,
            server.refused_profiles,
            server.dropped_profiles
        );
        let _ = writeln!(text, "{}", escape_control(&row));
        if let Some(error) = &server.error {
            let _ = writeln!(text, "  last error: {}", escape_control(error));
        }
    }
    text
}

/// Formats the traces of relabeling.
pub fn format_explanations(view: &ExplanationsView) -> String {
    let mut text = String::new();
    view.targets.iter().for_each(|target| format_explanation(target, &mut text));
    if view.is_truncated {
        text.push_str("more targets match; name one by its address or another label value\n");
    }
    text
}

fn format_explanation(target: &ExplanationView, text: &mut String) {
    let mut line = |line: String| {
        let _ = writeln!(text, "{}", escape_control(&line));
    };
    line(format!("job {}", target.job));
    line(format!("  discovered {}", format_labels(&target.discovered_labels)));
    for (index, step) in target.steps.iter().enumerate() {
        line(format!("  rule {}: {}", index + 1, step.rule));
        if step.set.is_empty() && step.removed.is_empty() {
            line("    no change".to_owned());
        }
        if !step.set.is_empty() {
            line(format!("    set {}", format_labels(&step.set)));
        }
        if !step.removed.is_empty() {
            line(format!("    removed {}", step.removed.join(", ")));
        }
    }
    if let Some(reason) = &target.dropped {
        line(format!("  dropped: {reason}"));
    }
    if let Some(labels) = &target.labels {
        line(format!("  labels {}", format_labels(labels)));
        line(format!("  kinds {}", target.kinds.join(", ")));
    }
}

fn format_labels(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{{{}}}", pairs.join(", "))
}
