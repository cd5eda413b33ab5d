//! Reference pages of the commands, the error codes and the settings. They are generated from the code;
//! `ATHANOR_WRITE_REFERENCE=1` writes them.

#![allow(clippy::unwrap_used)]

mod commands;
mod config;
mod errors;

use std::fs;
use std::path::Path;

/// Variable that requests to write a page instead of comparing it.
const WRITE_VARIABLE: &str = "ATHANOR_WRITE_REFERENCE";

#[test]
fn command_reference_matches_code() {
    check_page("docs/reference/cli.md", &commands::render_page(&athanor_cli::command_tree()));
}

#[test]
fn error_reference_matches_code() {
    check_page("docs/reference/errors.md", &errors::render_page());
}

#[test]
fn config_reference_matches_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    check_page("docs/reference/config.md", &config::render_page(root));
}

/// Compares a page with its committed text, or writes it if the environment requests so.
#[expect(clippy::disallowed_methods, reason = "a switch of the test, not a setting")]
fn check_page(page_path: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(page_path);
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        fs::write(&path, generated).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let difference = committed.lines().zip(generated.lines()).find(|(old, new)| old != new);
    assert!(
        committed == generated,
        "{page_path} is stale, first difference: {difference:?}; run `just docs`"
    );
}
