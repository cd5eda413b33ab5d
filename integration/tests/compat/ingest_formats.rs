//! Files of many profilers, and requests of SDKs as they were sent, through each door that takes them: what is found has the
//! types that clients ask for, and the sums that a reader of somebody else's sees in the file.
//!
//! Every request is a tenant's of its own, so that nothing else is found.

mod captures;
mod documents;
mod exports;
mod profiles;
mod recordings;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use athanor_integration::server::TestServer;

/// Files that nobody sends.
const NOTES: [&str; 2] = ["README.md", "captures/DECODED.txt"];
/// What is asked for a file as it must be found.
type Totals = BTreeMap<String, i64>;

/// A folder of files that were written by others.
fn data(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(folder)
}

fn server() -> TestServer {
    TestServer::start(|config| {
        config.multitenancy_enabled = true;
        config.limits.reject_older_than = Duration::ZERO;
        config.limits.reject_newer_than = Duration::ZERO;
        config.otlp.grpc_listen_address = Some("127.0.0.1:0".to_owned());
        config.otlp.http_listen_address = Some("127.0.0.1:0".to_owned());
    })
}

fn weighty(totals: impl IntoIterator<Item = (String, i64)>) -> Totals {
    totals.into_iter().filter(|(_, total)| *total != 0).collect()
}

/// The name of a tenant for a file that comes through a door.
fn tenant(door: &str, file: &str) -> String {
    format!("{door}-{}", file.replace(['.', '/'], "-"))
}

/// All files in a folder and those below it, by their paths in it, but for those in `golden`.
fn files(folder: &Path, above: &str, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{above}{}", path.file_name().unwrap().to_str().unwrap());
        match path.is_dir() {
            true if name == "golden" => {}
            true => files(&path, &format!("{name}/"), found),
            false => drop(found.insert(name)),
        }
    }
}

#[test]
fn every_file_is_in_a_table() {
    let folder = data("");
    if !folder.is_dir() {
        return profiles::has_no_files();
    }
    let mut there = BTreeSet::new();
    files(&folder, "", &mut there);
    let named = [profiles::named(), recordings::named(), documents::named(), exports::named()].concat();
    let named = named.into_iter().chain(NOTES.map(str::to_owned)).chain(captures::named());
    assert_eq!(there, named.collect::<BTreeSet<_>>(), "left is what lies there, right is what tests send");
}
