//! State of compaction, as a page and as JSON: waiting jobs, claims and failed parts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use athanor_catalog::{Catalog, CompactionStatus, PartClaim, PartFailures, PartId};
use athanor_chassis::units::format_approximate_duration;
use athanor_chassis::{ByteSize, Status};
use athanor_cluster::NodeId;
use athanor_cluster::members::ClusterMember;
use athanor_http_server::encoding::json_error;
use axum::body::Body;
use axum::http::Request;
use axum::http::header::ACCEPT;
use serde_json::{Value, json};

use crate::http::api::web_page::{PAGE_CONTENT_TYPE, PAGE_STYLE, escape_html};
use crate::http::routes::state::{HandlerFuture, HttpState, text};
use crate::membership::cluster_overview::ClusterOverview;

/// Maximum number of claims, and of failed parts, that one response lists.
const MAX_LISTED_ROWS: usize = 1000;

/// `GET /compaction`: returns a page, or JSON if the client accepts it.
pub fn compaction(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    let accepted = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let wants_json = accepted.into_iter().any(|value| value.contains("application/json"));
    respond(hall, wants_json)
}

/// `GET /compaction.json`.
pub fn compaction_json(hall: Arc<HttpState>, _: Request<Body>) -> HandlerFuture {
    respond(hall, true)
}

fn respond(hall: Arc<HttpState>, wants_json: bool) -> HandlerFuture {
    Box::pin(async move {
        match CompactionOverview::collect(&hall.services.overview).await {
            Ok(overview) if wants_json => text("application/json", overview.to_json().to_string()),
            Ok(overview) => text(PAGE_CONTENT_TYPE, overview.to_page()),
            Err(status) => json_error(&status),
        }
    })
}

/// Returns the state of compaction as JSON.
pub async fn compaction_status(overview: &ClusterOverview) -> Result<Value, Status> {
    Ok(CompactionOverview::collect(overview).await?.to_json())
}

/// State of compaction, and the members that may be workers.
struct CompactionOverview {
    status: CompactionStatus,
    members: Arc<BTreeMap<NodeId, ClusterMember>>,
}

impl CompactionOverview {
    async fn collect(overview: &ClusterOverview) -> Result<Self, Status> {
        let ClusterOverview { client, company, .. } = overview;
        let status = client.compaction_status().await.map_err(|error| Status::from_error(&error))?;
        let members = company.as_ref().map(|company| company.members.current()).unwrap_or_default();
        Ok(Self { status, members })
    }

    fn name(&self, node: NodeId) -> String {
        self.members.get(&node).map_or_else(|| format!("{node:016x}"), |member| member.name.clone())
    }

    /// Returns the failed parts to list, quarantined ones first.
    fn failures(&self) -> Vec<&(PartId, PartFailures)> {
        let mut failures: Vec<_> = self.status.failures.iter().collect();
        failures.sort_by_key(|(_, failures)| !failures.is_quarantined);
        failures
    }

    fn quarantined_parts(&self) -> usize {
        self.status.failures.iter().filter(|(_, failures)| failures.is_quarantined).count()
    }

    fn to_json(&self) -> Value {
        let status = &self.status;
        let claim = |(token, claim): (&u64, &PartClaim)| {
            json!({
                "token": token,
                "worker": { "node": format!("{:016x}", claim.worker), "name": self.name(claim.worker) },
                "since": claim.since.to_string(),
                "expires_at": claim.expires_at.to_string(),
                "expired": claim.expires_at <= status.time,
                "blocks": claim.parts.blocks.len(),
                "parts": claim.parts.len(),
            })
        };
        let failure = |(part, failures): &(PartId, PartFailures)| {
            json!({
                "block": part.block,
                "tenant": part.tenant,
                "quarantined": failures.is_quarantined,
                "failures": failures.count,
                "max_parts": failures.max_parts,
                "reason": failures.reason,
                "failed_at": failures.at.to_string(),
            })
        };
        json!({
            "catalog_time": status.time.to_string(),
            "paused": status.is_paused,
            "blocks_by_level": status.blocks_by_level,
            "blocks_by_tier": status.blocks_by_tier,
            "waiting_jobs": status.waiting_jobs,
            "waiting_bytes": status.waiting_bytes,
            "oldest_open_window": status.oldest_open_window.map(|end| end.to_string()),
            "claimed_jobs": status.claims.len(),
            "claims": status.claims.iter().take(MAX_LISTED_ROWS).map(claim).collect::<Vec<_>>(),
            "failed_parts": status.failures.len(),
            "quarantined_parts": self.quarantined_parts(),
            "failures": self.failures().into_iter().take(MAX_LISTED_ROWS).map(failure).collect::<Vec<_>>(),
        })
    }

    fn to_page(&self) -> String {
        let status = &self.status;
        let state = if status.is_paused { "paused" } else { "running" };
        let oldest = status.oldest_open_window.map_or_else(
            || "none".to_owned(),
            |end| format!("{} ago", format_approximate_duration(status.time.since(end))),
        );
        let mut page = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Compaction</title><style>{PAGE_STYLE}\
             table{{border-collapse:collapse}}td,th{{text-align:left;padding:.2em .8em .2em 0}}</style>\
             <h1>Compaction</h1><p class=\"t\">Catalog time {}.</p><table>\
             <tr><td>State<td>{state}<tr><td>Waiting jobs<td>{}<tr><td>Waiting input<td>{}\
             <tr><td>Oldest closed window that is not final<td>{oldest}<tr><td>Quarantined parts<td>{}",
            status.time,
            status.waiting_jobs,
            ByteSize::bytes(status.waiting_bytes),
            self.quarantined_parts(),
        );
        // Writing to a string does not fail.
        for (level, blocks) in &status.blocks_by_level {
            let _ = write!(page, "<tr><td>Raw blocks of level {level}<td>{blocks}");
        }
        for (tier, blocks) in status.blocks_by_tier.iter().filter(|(tier, _)| !tier.is_raw()) {
            let _ = write!(page, "<tr><td>Blocks of tier {tier}<td>{blocks}");
        }
        page.push_str("</table>");
        self.write_claims(&mut page);
        self.write_failures(&mut page);
        page.push_str("<p class=\"t\">Also available as <a href=\"compaction.json\">JSON</a>.</p></html>");
        page
    }

    fn write_claims(&self, page: &mut String) {
        if self.status.claims.is_empty() {
            return;
        }
        page.push_str(
            "<h2>Claimed jobs</h2><table><tr><th>Token<th>Worker<th>Claimed<th>Blocks<th>Parts<th>Lease",
        );
        for (token, claim) in self.status.claims.iter().take(MAX_LISTED_ROWS) {
            let lease = if claim.expires_at <= self.status.time { "expired" } else { "running" };
            let _ = write!(
                page,
                "<tr><td>{token}<td>{}<td>{} ago<td>{}<td>{}<td>{lease}",
                escape_html(&self.name(claim.worker)),
                format_approximate_duration(self.status.time.since(claim.since)),
                claim.parts.blocks.len(),
                claim.parts.len(),
            );
        }
        page.push_str("</table>");
    }

    fn write_failures(&self, page: &mut String) {
        if self.status.failures.is_empty() {
            return;
        }
        page.push_str(
            "<h2>Failed parts</h2><p class=\"t\">Compaction skips quarantined parts, and queries read them. \
             <code>athanor compaction retry</code> retries them.</p>\
             <table><tr><th>Block<th>Tenant<th>State<th>Failures<th>Failed at<th>Reason",
        );
        for (part, failures) in self.failures().into_iter().take(MAX_LISTED_ROWS) {
            let state = if failures.is_quarantined { "quarantined" } else { "retried" };
            let _ = write!(
                page,
                "<tr><td><code>{}</code><td>{}<td>{state}<td>{}<td>{}<td>{}",
                part.block,
                escape_html(part.tenant.as_str()),
                failures.count,
                failures.at,
                escape_html(&failures.reason),
            );
        }
        page.push_str("</table>");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use athanor_catalog::{BlockId, JobParts};
    use athanor_chassis::{Tier, Timestamp};

    use super::*;

    #[test]
    fn compaction_is_rendered_as_page_and_json() {
        let now = Timestamp::from_seconds(1_700_000_000);
        let part = |number| PartId { block: BlockId::from_number(number), tenant: "team-a".parse().unwrap() };
        let failures = |is_quarantined| PartFailures {
            count: 2,
            max_parts: 4,
            is_quarantined,
            reason: "<damaged>".to_owned(),
            at: now,
        };
        let claim = PartClaim {
            worker: 5,
            expires_at: now.minus(Duration::from_secs(1)),
            since: now.minus(Duration::from_secs(61)),
            parts: JobParts::from_iter([part(1), part(2)]),
        };
        let status = CompactionStatus {
            time: now,
            is_paused: true,
            blocks_by_level: [(0, 12), (3, 4)].into(),
            blocks_by_tier: [(Tier::Raw, 16), (Tier::OneHour, 5)].into(),
            waiting_jobs: 7,
            waiting_bytes: 1 << 20,
            oldest_open_window: Some(now.minus(Duration::from_secs(600))),
            claims: [(9, claim)].into(),
            failures: vec![(part(3), failures(false)), (part(4), failures(true))],
        };
        let overview = CompactionOverview { status, members: Arc::default() };
        let page = overview.to_page();
        for expected in [
            "<td>paused",
            "<td>1MiB",
            "10 minutes ago",
            "Raw blocks of level 3<td>4",
            "Blocks of tier 1h<td>5",
            "<td>0000000000000005<td>61 seconds ago<td>2<td>2<td>expired",
            "&lt;damaged&gt;",
        ] {
            assert!(page.contains(expected), "{expected} in {page}");
        }
        let body = overview.to_json();
        assert_eq!(body["waiting_jobs"], 7);
        assert_eq!(body["blocks_by_level"], json!({ "0": 12, "3": 4 }));
        assert_eq!(body["blocks_by_tier"], json!({ "raw": 16, "1h": 5 }));
        assert_eq!(body["claims"][0]["parts"], 2);
        assert_eq!(body["quarantined_parts"], 1);
        assert_eq!(body["failures"][0]["quarantined"], true, "quarantined parts come first");
    }
}
