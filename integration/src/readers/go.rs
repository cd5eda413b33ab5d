//! `go tool pprof`.

#![expect(clippy::missing_panics_doc, reason = "what does not work fails the test")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Whether it is here.
#[must_use]
pub fn is_here() -> bool {
    Command::new("go").args(["tool", "pprof", "-help"]).output().is_ok()
}

fn raw(pprof: &Path) -> String {
    let output = Command::new("go").args(["tool", "pprof", "-raw", "-symbolize=none"]).arg(pprof).output();
    String::from_utf8_lossy(&output.expect("go runs").stdout).into_owned()
}

/// The types and units of a profile, and of each sample its values and the locations of its stack, the leaf first.
fn samples(text: &str) -> (Vec<String>, Vec<(Vec<i64>, Vec<&str>)>) {
    let mut lines = text.lines().skip_while(|line| *line != "Samples:").skip(1);
    let types = lines.next().unwrap_or_else(|| panic!("no types in {text:.300}"));
    let types: Vec<String> =
        types.split_whitespace().map(|name| name.replace('/', ":").replace("[dflt]", "")).collect();
    let mut samples = Vec::new();
    for line in lines.take_while(|line| *line != "Locations") {
        let Some((values, stack)) = line.split_once(": ") else { continue };
        let values: Option<Vec<i64>> = values.split_whitespace().map(|value| value.parse().ok()).collect();
        // Labels of a sample follow it.
        let Some(values) = values.filter(|values| values.len() == types.len()) else { continue };
        samples.push((values, stack.split_whitespace().collect()));
    }
    (types, samples)
}

/// The sums of a profile, by type and unit.
#[must_use]
pub fn sums(pprof: &Path) -> BTreeMap<String, i64> {
    let text = raw(pprof);
    let (types, samples) = samples(&text);
    let mut sums: BTreeMap<String, i64> = types.iter().map(|of| (of.clone(), 0)).collect();
    for (values, _) in samples {
        for (of, value) in types.iter().zip(values) {
            *sums.entry(of.clone()).or_default() += value;
        }
    }
    sums
}

/// [`sums`] of bytes.
#[must_use]
pub fn sums_of(pprof: &[u8]) -> BTreeMap<String, i64> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(pprof).expect("room");
    sums(file.path())
}
