//! `upload` and `settings`: list and delete tenant data other than profiles.

use std::fmt::Write;

use athanor_chassis::{Status, TenantId};
use serde_json::Value;

use crate::args::{TenantSettingsArgs, TenantSettingsSubcommand, UploadArgs, UploadSubcommand};
use crate::output::{ConsoleOutput, harmless};
use crate::server::admin_client;

/// Lists or deletes uploads.
pub fn upload(args: UploadArgs, output: &ConsoleOutput) -> Result<(), Status> {
    match args.command {
        UploadSubcommand::List { tenant, settings } => {
            let rows = admin_client::read(
                &settings,
                &path("/uploads", &[("tenant", tenant_text(tenant.as_ref()))]),
            )?;
            output.print_json_or_text(|| rows.clone(), || rows_text(&rows, "uploads"))
        }
        UploadSubcommand::Delete { tenant, selection, settings } => {
            let parameters = [
                ("tenant", Some(tenant.as_str())),
                ("build_id", selection.build_id.as_deref()),
                ("id", selection.id.as_deref()),
                ("all", selection.all.then_some("true")),
            ];
            let response = admin_client::send(&settings, &path("/uploads/delete", &parameters))?;
            output.print_json_or_text(
                || response.clone(),
                || format!("deleted {} uploads\n", response["deleted"]),
            )
        }
    }
}

/// Lists or deletes the settings of tenants.
pub fn tenant_settings(args: TenantSettingsArgs, output: &ConsoleOutput) -> Result<(), Status> {
    match args.command {
        TenantSettingsSubcommand::List { tenant, settings } => {
            let rows = admin_client::read(
                &settings,
                &path("/settings", &[("tenant", tenant_text(tenant.as_ref()))]),
            )?;
            output.print_json_or_text(|| rows.clone(), || rows_text(&rows, "settings"))
        }
        TenantSettingsSubcommand::Delete { tenant, selection, settings } => {
            let parameters = [
                ("tenant", Some(tenant.as_str())),
                ("name", selection.name.as_deref()),
                ("all", selection.all.then_some("true")),
            ];
            let response = admin_client::send(&settings, &path("/settings/delete", &parameters))?;
            output.print_json_or_text(
                || response.clone(),
                || format!("deleted {} settings\n", response["deleted"]),
            )
        }
    }
}

fn tenant_text(tenant: Option<&TenantId>) -> Option<&str> {
    tenant.map(TenantId::as_str)
}

/// Returns a path with the parameters that have a value.
pub fn path(path: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let mut query = form_urlencoded::Serializer::for_suffix(format!("{path}?"), path.len() + 1);
    for (name, value) in parameters.iter().filter_map(|(name, value)| Some((name, (*value)?))) {
        query.append_pair(name, value);
    }
    query.finish()
}

/// Formats one line per row: its bytes, then its other fields.
fn rows_text(rows: &Value, name: &str) -> String {
    let mut text = String::new();
    for row in rows[name].as_array().into_iter().flatten() {
        let _ = write!(text, "{:>14} bytes", row["bytes"].to_string());
        for (field, value) in row.as_object().into_iter().flatten().filter(|(field, _)| *field != "bytes") {
            let shown = value.as_str().map_or_else(|| value.to_string(), harmless);
            let _ = write!(text, "  {field} {shown}");
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{:>14} bytes in total", rows["bytes"].to_string());
    if rows["omitted"] != 0 {
        let _ = writeln!(text, "omitted {} smaller rows", rows["omitted"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn table_shows_bytes_first_and_omitted_count() {
        let row = json!({ "kind": "adhoc", "tenant": "a", "name": "x\u{1b}[1m", "files": 1, "bytes": 12 });
        let text = rows_text(&json!({ "uploads": [row], "bytes": 20, "omitted": 3 }), "uploads");
        assert!(text.starts_with("            12 bytes  "), "{text}");
        assert!(text.contains("tenant a") && !text.contains('\u{1b}'), "{text}");
        assert!(text.ends_with("            20 bytes in total\nomitted 3 smaller rows\n"), "{text}");
        let parameters = [("tenant", Some("a&b c")), ("id", None), ("all", Some("true"))];
        assert_eq!(path("/x", &parameters), "/x?tenant=a%26b+c&all=true");
    }
}
