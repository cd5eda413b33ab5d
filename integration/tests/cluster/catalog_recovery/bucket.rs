//! What lies in a bucket that nobody needs.

use std::fs;
use std::path::{Path, PathBuf};

use athanor_block::BlockMeta;

/// What was put there.
pub struct Litter {
    /// Blocks that are not whole.
    pub odd: Vec<String>,
}

/// Beside each block that lies there: another one of the same range, which nobody registered, one that was not written to its
/// end, one that lacks a file, and one whose words break off.
pub fn litter(bucket: &Path) -> Litter {
    let blocks = bucket.join("blocks/_shared");
    let mut names: Vec<String> = fs::read_dir(&blocks)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(!names.is_empty(), "something was cut");
    let mut odd = Vec::new();
    for name in &names {
        copied(&blocks, name, 1);
        let unfinished = copied(&blocks, name, 2);
        fs::remove_file(unfinished.join("meta.json")).unwrap();
        let lacking = copied(&blocks, name, 3);
        fs::remove_file(lacking.join("stacks.parquet")).unwrap();
        let broken = copied(&blocks, name, 4);
        fs::write(broken.join("meta.json"), b"{\"checksum\":\"a5").unwrap();
        let all = [unfinished, lacking, broken];
        odd.extend(all.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()));
    }
    let stray = bucket.join("blocks/_shared/read-me.txt");
    fs::write(stray, "no block\n").unwrap();
    let snapshots = bucket.join("catalog/snapshots");
    fs::write(snapshots.join(format!("{:020}", 1_000_000)), "half a snapshot").unwrap();
    Litter { odd }
}

/// The same block under another name, of about the same moment.
fn copied(blocks: &Path, name: &str, number: u128) -> PathBuf {
    let other = format!("{:032x}", u128::from_str_radix(name, 16).unwrap() ^ number << 20);
    let (from, to) = (blocks.join(name), blocks.join(&other));
    fs::create_dir(&to).unwrap();
    for file in fs::read_dir(&from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    let meta = BlockMeta::decode(&fs::read(to.join("meta.json")).unwrap()).unwrap();
    fs::write(to.join("meta.json"), BlockMeta { id: other, ..meta }.encode()).unwrap();
    to
}
