//! `lift`, `metastore`, `shard`, `retention`, `upload` and `settings`: commands to a running server or
//! cluster, sent through the admin socket of a server on this machine.

use std::fmt::Write;

use athanor_chassis::{Status, TenantId};
use serde_json::Value;

use crate::args::{
    MetastoreArgs, MetastoreSubcommand, RetentionArgs, RetentionSubcommand, ServerConfigArgs, ShardArgs,
    ShardSubcommand, TenantSettingsArgs, TenantSettingsSubcommand, UploadArgs, UploadSubcommand,
};
use crate::output::{ConsoleOutput, harmless};
use crate::server::serve::call_admin;

/// Clears the quarantine of crashed queries on a server.
pub fn clear_quarantine(settings: &ServerConfigArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let told = call_admin(settings, "/queries/lift")?;
    let text = format!("{} queries are no longer refused\n", told["lifted"]);
    output.print_json_or_text(|| told.clone(), || text)
}

/// Runs a command about voters.
pub fn metastore(args: MetastoreArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let voters = match args.command {
        MetastoreSubcommand::List(settings) => call_admin(&settings, "/metastore")?,
        MetastoreSubcommand::Add { node, settings } => {
            call_admin(&settings, &format!("/metastore/add/{node}"))?
        }
        MetastoreSubcommand::Remove { node, settings } => {
            call_admin(&settings, &format!("/metastore/remove/{node}"))?
        }
        MetastoreSubcommand::Replace { old, new, settings } => {
            // The new voter is added first, so that there is never one voter less.
            call_admin(&settings, &format!("/metastore/add/{new}"))?;
            call_admin(&settings, &format!("/metastore/remove/{old}"))?
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

/// Runs a command about shards.
pub fn shard(args: ShardArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let (told, text) = match args.command {
        ShardSubcommand::List(settings) => {
            let shards = call_admin(&settings, "/shards")?;
            let text = shards_text(&shards);
            (shards, text)
        }
        ShardSubcommand::Seal { shard, settings } => {
            let told = call_admin(&settings, &format!("/shards/seal/{shard}"))?;
            (told, format!("shard {shard} seals; athanor shard list shows its successor\n"))
        }
        ShardSubcommand::Abandon { shard, settings, .. } => {
            let told = call_admin(&settings, &format!("/shards/abandon/{shard}"))?;
            (told, format!("shard {shard} is given up; answers say so as long as blocks are kept\n"))
        }
    };
    output.print_json_or_text(|| told.clone(), || text)
}

fn shards_text(shards: &Value) -> String {
    let mut text =
        format!("{:>5} {:>6} {:>5}  {:<10} {:<20} members\n", "shard", "slot", "epoch", "phase", "leader");
    let name = |value: &Value| harmless(value["name"].as_str().unwrap_or("nobody"));
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

/// Runs a command about the removal of blocks by age.
pub fn retention(args: RetentionArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let (report, text) = match args.command {
        RetentionSubcommand::Status(settings) => {
            let report = call_admin(&settings, "/retention")?;
            let text = retention_text(&report);
            (report, text)
        }
        RetentionSubcommand::Apply(settings) => {
            let report = call_admin(&settings, "/retention/apply")?;
            let text =
                format!("{} blocks expired; athanor retention restore brings them back\n", report["expired"]);
            (report, text)
        }
        RetentionSubcommand::Restore { block, settings } => {
            let path = match &block {
                Some(block) => format!("/retention/restore/{block}"),
                None => "/retention/restore".to_owned(),
            };
            let report = call_admin(&settings, &path)?;
            let text = format!("{} blocks are listed again\n", report["restored"]);
            (report, text)
        }
        RetentionSubcommand::ConfirmClock(settings) => {
            let report = call_admin(&settings, "/retention/confirm-clock")?;
            let time = harmless(report["catalog_time"].as_str().unwrap_or_default());
            (report, format!("the catalog's time is {time}\n"))
        }
    };
    output.print_json_or_text(|| report.clone(), || text)
}

fn retention_text(report: &Value) -> String {
    let text = |value: &Value| harmless(value.as_str().unwrap_or_default());
    let mut lines = format!(
        "catalog's time  {}\nthis clock      {}\nblocks          {}\noverdue         {}\nrestorable      {}\n",
        text(&report["catalog_time"]),
        text(&report["wall_time"]),
        report["blocks"],
        report["overdue"],
        report["restorable"],
    );
    for block in report["expired"].as_array().into_iter().flatten() {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{}  expired {}", text(&block["block"]), text(&block["expired"]));
    }
    lines
}

/// Lists or deletes uploads.
pub fn upload(args: UploadArgs, output: &ConsoleOutput) -> Result<(), Status> {
    match args.command {
        UploadSubcommand::List { tenant, settings } => {
            let listed =
                call_admin(&settings, &path("/uploads", &[("tenant", tenant_text(tenant.as_ref()))]))?;
            output.print_json_or_text(|| listed.clone(), || rows_text(&listed, "uploads"))
        }
        UploadSubcommand::Delete { tenant, selection, settings } => {
            let parameters = [
                ("tenant", Some(tenant.as_str())),
                ("build_id", selection.build_id.as_deref()),
                ("id", selection.id.as_deref()),
                ("all", selection.all.then_some("true")),
            ];
            let told = call_admin(&settings, &path("/uploads/delete", &parameters))?;
            output
                .print_json_or_text(|| told.clone(), || format!("{} uploads were deleted\n", told["deleted"]))
        }
    }
}

/// Lists or deletes the settings of tenants.
pub fn tenant_settings(args: TenantSettingsArgs, output: &ConsoleOutput) -> Result<(), Status> {
    match args.command {
        TenantSettingsSubcommand::List { tenant, settings } => {
            let listed =
                call_admin(&settings, &path("/settings", &[("tenant", tenant_text(tenant.as_ref()))]))?;
            output.print_json_or_text(|| listed.clone(), || rows_text(&listed, "settings"))
        }
        TenantSettingsSubcommand::Delete { tenant, selection, settings } => {
            let parameters = [
                ("tenant", Some(tenant.as_str())),
                ("name", selection.name.as_deref()),
                ("all", selection.all.then_some("true")),
            ];
            let told = call_admin(&settings, &path("/settings/delete", &parameters))?;
            output.print_json_or_text(
                || told.clone(),
                || format!("{} settings were deleted\n", told["deleted"]),
            )
        }
    }
}

fn tenant_text(tenant: Option<&TenantId>) -> Option<&str> {
    tenant.map(TenantId::as_str)
}

fn path(path: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let mut query = form_urlencoded::Serializer::for_suffix(format!("{path}?"), path.len() + 1);
    for (name, value) in parameters.iter().filter_map(|(name, value)| Some((name, (*value)?))) {
        query.append_pair(name, value);
    }
    query.finish()
}

/// Formats one line per row: its bytes, then its other fields.
fn rows_text(listed: &Value, name: &str) -> String {
    let mut text = String::new();
    for row in listed[name].as_array().into_iter().flatten() {
        let _ = write!(text, "{:>14} bytes", row["bytes"].to_string());
        for (field, value) in row.as_object().into_iter().flatten().filter(|(field, _)| *field != "bytes") {
            let shown = value.as_str().map_or_else(|| value.to_string(), harmless);
            let _ = write!(text, "  {field} {shown}");
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{:>14} bytes in all", listed["bytes"].to_string());
    if listed["left_out"] != 0 {
        let _ = writeln!(text, "{} smaller ones are not shown", listed["left_out"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_show_bytes_first_and_what_is_left_out() {
        let row = json!({ "kind": "adhoc", "tenant": "a", "name": "x\u{1b}[1m", "files": 1, "bytes": 12 });
        let text = rows_text(&json!({ "uploads": [row], "bytes": 20, "left_out": 3 }), "uploads");
        assert!(text.starts_with("            12 bytes  "), "{text}");
        assert!(text.contains("tenant a") && !text.contains('\u{1b}'), "{text}");
        assert!(text.ends_with("            20 bytes in all\n3 smaller ones are not shown\n"), "{text}");
        let parameters = [("tenant", Some("a&b c")), ("id", None), ("all", Some("true"))];
        assert_eq!(path("/x", &parameters), "/x?tenant=a%26b+c&all=true");
    }

    #[test]
    fn people_see_names() {
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
