//! `compaction`: shows and controls the merging of blocks.

use std::fmt::Write;

use athanor_chassis::{ByteSize, Status, TenantId};
use serde_json::Value;

use crate::args::{CompactionArgs, CompactionSubcommand};
use crate::output::{ConsoleOutput, harmless};
use crate::server::admin_client;
use crate::server::tenant_commands::path;

/// Runs a `compaction` subcommand.
pub fn compaction(args: CompactionArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let (report, text) = match args.command {
        CompactionSubcommand::Status(settings) => {
            let report = admin_client::read(&settings, "/compaction")?;
            let text = status_text(&report);
            (report, text)
        }
        CompactionSubcommand::Pause(settings) => {
            let report = admin_client::send(&settings, "/compaction/pause")?;
            let text = "compaction is paused; `athanor compaction resume` resumes it\n".to_owned();
            (report, text)
        }
        CompactionSubcommand::Resume(settings) => {
            (admin_client::send(&settings, "/compaction/resume")?, "compaction is resumed\n".to_owned())
        }
        CompactionSubcommand::Retry { block, tenant, settings } => {
            let parameters = [("block", block.as_deref()), ("tenant", tenant.as_ref().map(TenantId::as_str))];
            let report = admin_client::send(&settings, &path("/compaction/retry", &parameters))?;
            let text = format!("compaction retries {} parts\n", report["retried"]);
            (report, text)
        }
    };
    output.print_json_or_text(|| report.clone(), || text)
}

fn status_text(report: &Value) -> String {
    let text = |value: &Value| harmless(value.as_str().unwrap_or("none"));
    let mut lines = format!(
        "state               {}\ncatalog time        {}\noldest open window  {}\nwaiting jobs        {}\n\
         waiting input       {}\nclaimed jobs        {}\nfailed parts        {}\nquarantined parts   {}\n",
        if report["paused"] == true { "paused" } else { "running" },
        text(&report["catalog_time"]),
        text(&report["oldest_open_window"]),
        report["waiting_jobs"],
        ByteSize::bytes(report["waiting_bytes"].as_u64().unwrap_or_default()),
        report["claimed_jobs"],
        report["failed_parts"],
        report["quarantined_parts"],
    );
    // Writing to a string cannot fail.
    for (level, blocks) in report["blocks_by_level"].as_object().into_iter().flatten() {
        let _ = writeln!(lines, "blocks of level {}   {blocks}", harmless(level));
    }
    let tiers = report["blocks_by_tier"].as_object().into_iter().flatten();
    for (tier, blocks) in tiers.filter(|(tier, _)| *tier != "raw") {
        let _ = writeln!(lines, "blocks of tier {}   {blocks}", harmless(tier));
    }
    for claim in report["claims"].as_array().into_iter().flatten() {
        let lease = if claim["expired"] == true { "lease expired" } else { "lease runs" };
        let worker = text(&claim["worker"]["name"]);
        let _ = writeln!(lines, "job {}  {worker}  {} parts  {lease}", claim["token"], claim["parts"]);
    }
    for part in report["failures"].as_array().into_iter().flatten() {
        let state = if part["quarantined"] == true { "quarantined" } else { "failed" };
        let reason = text(&part["reason"]);
        let _ = writeln!(lines, "{}  {}  {state}: {reason}", text(&part["block"]), text(&part["tenant"]));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_shows_jobs_and_quarantined_parts() {
        let report = json!({
            "paused": false, "catalog_time": "2026-01-01T00:00:00Z", "oldest_open_window": null,
            "waiting_jobs": 3, "waiting_bytes": 2048, "claimed_jobs": 1, "failed_parts": 1,
            "quarantined_parts": 1, "blocks_by_level": { "0": 12, "3": 4 },
            "blocks_by_tier": { "raw": 16, "1h": 5 },
            "claims": [{ "token": 9, "worker": { "name": "c1" }, "parts": 2, "expired": true }],
            "failures": [{ "block": "1f", "tenant": "a", "quarantined": true, "reason": "bad\u{1b}[1m" }],
        });
        let text = status_text(&report);
        for expected in [
            "state               running\n",
            "oldest open window  none\n",
            "waiting input       2KiB\n",
            "blocks of level 3   4\n",
            "blocks of tier 1h   5\n",
            "job 9  c1  2 parts  lease expired\n",
            "1f  a  quarantined: bad",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
