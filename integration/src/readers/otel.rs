//! Reader of OpenTelemetry exports in Python, which uses only the field numbers of the wire format.

#![expect(clippy::missing_panics_doc, reason = "what does not work fails the test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn run_python(program: &str, file: &Path) -> Vec<u8> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/otel").join(program);
    let mut python = Command::new("python3");
    let output = python.env("PYTHONDONTWRITEBYTECODE", "1").arg(program).arg(file).output();
    let output = output.expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Returns whether Python is installed.
#[must_use]
pub fn is_available() -> bool {
    Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Returns the totals of a file by profile type.
#[must_use]
pub fn read_totals(file: &Path) -> BTreeMap<String, i64> {
    let totals: BTreeMap<String, String> =
        serde_json::from_slice(&run_python("totals.py", file)).expect("a list of totals");
    totals.into_iter().map(|(name, total)| (name, total.parse().expect("a number"))).collect()
}

/// Converts a file to JSON with the field names of OpenTelemetry.
#[must_use]
pub fn to_json(file: &Path) -> Vec<u8> {
    run_python("as_json.py", file)
}
