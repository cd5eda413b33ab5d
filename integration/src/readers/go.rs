//! Reader of pprof files that runs `go tool pprof`.

#![expect(clippy::missing_panics_doc, reason = "what does not work fails the test")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Returns whether `go tool pprof` is installed.
#[must_use]
pub fn is_available() -> bool {
    Command::new("go").args(["tool", "pprof", "-help"]).output().is_ok()
}

fn raw(pprof: &Path) -> String {
    let output = Command::new("go").args(["tool", "pprof", "-raw", "-symbolize=none"]).arg(pprof).output();
    String::from_utf8_lossy(&output.expect("go runs").stdout).into_owned()
}

/// Sample of a pprof file.
struct PprofSample<'t> {
    values: Vec<i64>,
    /// The locations of its stack, the leaf first.
    path: Vec<&'t str>,
}

/// Returns the types and units of a profile, and its samples.
fn samples(text: &str) -> (Vec<String>, Vec<PprofSample<'_>>) {
    let mut lines = text.lines().skip_while(|line| *line != "Samples:").skip(1);
    let types = lines.next().unwrap_or_else(|| panic!("no types in {text:.300}"));
    let types: Vec<String> =
        types.split_whitespace().map(|name| name.replace('/', ":").replace("[dflt]", "")).collect();
    let mut samples = Vec::new();
    for line in lines.take_while(|line| *line != "Locations") {
        let Some((values, stack)) = line.split_once(": ") else { continue };
        let values: Option<Vec<i64>> = values.split_whitespace().map(|value| value.parse().ok()).collect();
        // Lines with a sample's labels follow the sample.
        let Some(values) = values.filter(|values| values.len() == types.len()) else { continue };
        samples.push(PprofSample { values, path: stack.split_whitespace().collect() });
    }
    (types, samples)
}

/// Returns the sums of a profile by type and unit.
#[must_use]
pub fn sums(pprof: &Path) -> BTreeMap<String, i64> {
    let text = raw(pprof);
    let (types, samples) = samples(&text);
    let mut sums: BTreeMap<String, i64> = types.iter().map(|of| (of.clone(), 0)).collect();
    for PprofSample { values, .. } in samples {
        for (of, value) in types.iter().zip(values) {
            *sums.entry(of.clone()).or_default() += value;
        }
    }
    sums
}

/// Returns [`sums`] of a pprof file in memory.
#[must_use]
pub fn sums_of(pprof: &[u8]) -> BTreeMap<String, i64> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(pprof).expect("room");
    sums(file.path())
}

/// Returns the values of a profile by type and unit, and by stack. A stack is the names of its functions from
/// the root on, joined by `;`.
#[must_use]
pub fn stacks(pprof: &[u8]) -> BTreeMap<String, BTreeMap<String, i64>> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(pprof).expect("room");
    let text = raw(file.path());
    let (types, samples) = samples(&text);
    let locations = locations(&text);
    let mut stacks: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
    for PprofSample { values, path } in samples {
        let frames = path.iter().flat_map(|location| &locations[location]).rev();
        let stack = frames.copied().collect::<Vec<_>>().join(";");
        for (of, value) in types.iter().zip(values) {
            *stacks.entry(of.clone()).or_default().entry(stack.clone()).or_default() += value;
        }
    }
    stacks
}

/// Returns the functions of each location, the innermost first.
fn locations(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let lines = text.lines().skip_while(|line| *line != "Locations").skip(1);
    let mut locations = BTreeMap::<&str, Vec<&str>>::new();
    let mut last = "";
    for line in lines.take_while(|line| *line != "Mappings") {
        // Example: `5: 0x4711 M=1 main.work /main.go:20:0 s=19()`. Lines of inlined functions have only the
        // part after the mapping.
        let mut rest = line.trim();
        if let Some((id, after)) = rest.split_once(": 0x") {
            last = id;
            rest = after.split_once(' ').map_or("", |(_, rest)| rest);
            rest = rest
                .strip_prefix("M=")
                .map_or(rest, |rest| rest.split_once(' ').map_or("", |(_, rest)| rest));
        }
        let named = rest.rsplit_once(" s=").and_then(|(named, _)| named.rsplit_once(' '));
        locations.entry(last).or_default().extend(named.map(|(name, _)| name.trim()));
    }
    locations
}
