//! `flush`, `quarantine`, `metastore`, `shard` and `retention`: commands to a running server or cluster, sent
//! through the admin socket of a server on this machine.

use std::fmt::Write;
use std::time::Duration;

use athanor_chassis::Status;
use athanor_chassis::units::format_duration;
use serde_json::Value;

use crate::args::{
    MetastoreArgs, MetastoreSubcommand, QuarantineArgs, QuarantineSubcommand, RetentionArgs,
    RetentionSubcommand, ServerConfigArgs, ShardArgs, ShardSubcommand, VotersArgs, VotersSubcommand,
};
use crate::output::{ConsoleOutput, harmless};
use crate::server::{admin_client, serve};

/// Flushes the heads of a running server.
pub fn flush(settings: &ServerConfigArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let flushed = admin_client::send(settings, "/flush")?;
    let number = |name: &str| flushed[name].as_u64().unwrap_or_default();
    let text = || match number("blocks") {
        0 => "nothing to flush\n".to_owned(),
        blocks => format!("blocks: {blocks}, samples: {}, bytes: {}\n", number("samples"), number("bytes")),
    };
    output.print_json_or_text(|| flushed.clone(), text)
}

/// Lists or clears the quarantine of queries that crashed a querier.
pub fn quarantine(args: QuarantineArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let (response, text) = match args.command {
        QuarantineSubcommand::List(settings) => {
            let listed = admin_client::read(&settings, "/quarantine")?;
            let text = quarantine_text(&listed);
            (listed, text)
        }
        QuarantineSubcommand::Clear(settings) => {
            let cleared = admin_client::send(&settings, "/quarantine/clear")?;
            let text = format!("unblocked {} queries\n", cleared["cleared"]);
            (cleared, text)
        }
    };
    output.print_json_or_text(|| response.clone(), || text)
}

fn quarantine_text(listed: &Value) -> String {
    let mut text =
        format!("{:<32}  {:<11}  {:<7}  {:>7}  expires in\n", "query", "state", "cause", "crashes");
    let field = |value: &Value| harmless(value.as_str().unwrap_or_default());
    for query in listed["queries"].as_array().into_iter().flatten() {
        let remaining = Duration::from_secs(query["expires_in_seconds"].as_u64().unwrap_or_default());
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<32}  {:<11}  {:<7}  {:>7}  {}",
            field(&query["query"]),
            field(&query["state"]),
            field(&query["cause"]),
            query["crashes"].to_string(),
            format_duration(remaining),
        );
    }
    text
}

/// Runs a `metastore` subcommand.
pub fn metastore(args: MetastoreArgs, output: &ConsoleOutput) -> Result<(), Status> {
    match args.command {
        MetastoreSubcommand::Voters(args) => voters(args, output),
        MetastoreSubcommand::Recover { exclude_node, settings } => {
            serve::recover_catalog(exclude_node, &settings, output)
        }
    }
}

fn voters(args: VotersArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let add = |node: &str| format!("/metastore/voters/add/{node}");
    let remove = |node: &str| format!("/metastore/voters/remove/{node}");
    let voters = match args.command {
        VotersSubcommand::List(settings) => admin_client::read(&settings, "/metastore/voters")?,
        VotersSubcommand::Add { node, settings } => admin_client::send(&settings, &add(&node))?,
        VotersSubcommand::Remove { node, settings } => admin_client::send(&settings, &remove(&node))?,
        VotersSubcommand::Replace { old, new, settings } => {
            // The new voter is added first, so that the number of voters never falls.
            admin_client::send(&settings, &add(&new))?;
            admin_client::send(&settings, &remove(&old))?
        }
    };
    output.print_json_or_text(|| voters.clone(), || voters_text(&voters))
}

fn voters_text(voters: &Value) -> String {
    let text = |value: &Value| harmless(value.as_str().unwrap_or("-"));
    let all = voters["voters"].as_array().into_iter().flatten();
    let line = |voter: &Value| {
        format!("{}  {:<24}  {}\n", text(&voter["node"]), text(&voter["name"]), text(&voter["address"]))
    };
    all.map(line).collect()
}

/// Lists, seals or abandons shards.
pub fn shard(args: ShardArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let (response, text) = match args.command {
        ShardSubcommand::List(settings) => {
            let shards = admin_client::read(&settings, "/shards")?;
            let text = shards_text(&shards);
            (shards, text)
        }
        ShardSubcommand::Seal { shard, settings } => {
            let response = admin_client::send(&settings, &format!("/shards/seal/{shard}"))?;
            let text = format!("sealing shard {shard}; `athanor shard list` shows its successor\n");
            (response, text)
        }
        ShardSubcommand::Abandon { shard, settings, .. } => {
            let response = admin_client::send(&settings, &format!("/shards/abandon/{shard}"))?;
            let text =
                format!("abandoned shard {shard}; responses report the data loss until the retention ends\n");
            (response, text)
        }
    };
    output.print_json_or_text(|| response.clone(), || text)
}

fn shards_text(shards: &Value) -> String {
    let mut text =
        format!("{:>5} {:>6} {:>5}  {:<10} {:<20} members\n", "shard", "slot", "epoch", "phase", "leader");
    let name = |value: &Value| harmless(value["name"].as_str().unwrap_or("none"));
    for shard in shards["shards"].as_array().into_iter().flatten() {
        let members = shard["members"].as_array().into_iter().flatten();
        let members: Vec<String> = members.map(name).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>5} {:>6} {:>5}  {:<10} {:<20} {}",
            shard["shard"].to_string(),
            shard["slot"].to_string(),
            shard["epoch"].to_string(),
            harmless(shard["phase"].as_str().unwrap_or_default()),
            name(&shard["leader"]),
            members.join(", ")
        );
    }
    text
}

/// Shows or controls the removal of blocks by age.
pub fn retention(args: RetentionArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let (report, text) = match args.command {
        RetentionSubcommand::Status(settings) => {
            let report = admin_client::read(&settings, "/retention")?;
            let text = retention_text(&report);
            (report, text)
        }
        RetentionSubcommand::Apply(settings) => {
            let report = admin_client::send(&settings, "/retention/apply")?;
            let text =
                format!("expired {} blocks; `athanor retention restore` restores them\n", report["expired"]);
            (report, text)
        }
        RetentionSubcommand::Restore { block, settings } => {
            let path = match &block {
                Some(block) => format!("/retention/restore/{block}"),
                None => "/retention/restore".to_owned(),
            };
            let report = admin_client::send(&settings, &path)?;
            let text = format!("restored {} blocks\n", report["restored"]);
            (report, text)
        }
        RetentionSubcommand::ConfirmClock(settings) => {
            let report = admin_client::send(&settings, "/retention/confirm-clock")?;
            let time = harmless(report["catalog_time"].as_str().unwrap_or_default());
            (report, format!("catalog time is {time}\n"))
        }
    };
    output.print_json_or_text(|| report.clone(), || text)
}

fn retention_text(report: &Value) -> String {
    let text = |value: &Value| harmless(value.as_str().unwrap_or_default());
    let mut lines = format!(
        "catalog time  {}\nwall clock    {}\nblocks        {}\noverdue       {}\nkept for tiers {}\nrestorable    {}\n",
        text(&report["catalog_time"]),
        text(&report["wall_time"]),
        report["blocks"],
        report["overdue"],
        report["kept_for_tiers"],
        report["restorable"],
    );
    for block in report["expired_blocks"].as_array().into_iter().flatten() {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{}  expired {}", text(&block["block"]), text(&block["expired_at"]));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quarantine_table_shows_state_and_expiry() {
        let query = json!({
            "query": "00000000000000000000000000000005", "state": "quarantined", "cause": "panic", "crashes": 2,
            "expires_in_seconds": 90,
        });
        let text = quarantine_text(&json!({ "queries": [query] }));
        let row = "00000000000000000000000000000005  quarantined  panic          2  1m30s\n";
        assert!(text.ends_with(row), "{text}");
    }

    #[test]
    fn tables_show_names_of_nodes() {
        let shard = json!({
            "shard": 7, "slot": 6, "epoch": 1, "phase": "open", "leader": { "name": "i1" },
            "members": [{ "name": "i1" }, { "name": "i2" }],
        });
        let text = shards_text(&json!({ "shards": [shard] }));
        assert!(text.ends_with("    7      6     1  open       i1                   i1, i2\n"), "{text}");
        let voters = json!({ "voters": [{ "node": "0000000000000001", "name": null, "address": "a:1" }] });
        assert_eq!(voters_text(&voters), format!("0000000000000001  {:<24}  a:1\n", "-"));
    }
}
