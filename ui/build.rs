//! Embeds the files of `dist`, each beside its gzip variant. `dist` is committed, so the build needs no Node.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use libdeflater::{CompressionLvl, Compressor};
use xxhash_rust::xxh3::xxh3_128;

/// Folder of the built UI, and the page in it.
const DIST_FOLDER: &str = "dist";
const PAGE_FILE: &str = "index.html";
/// Text before the version in the page's references to files.
const VERSION_MARK: &str = "?v=";

#[expect(clippy::disallowed_methods, reason = "cargo passes its folders in the environment")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={DIST_FOLDER}");
    let dist = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join(DIST_FOLDER);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut paths = Vec::new();
    list_files(&dist, &mut paths).map_err(|error| format!("{}: {error}", dist.display()))?;
    paths.sort();
    let mut table = String::from("&[\n");
    let mut version = String::new();
    for (index, path) in paths.iter().enumerate() {
        let name = path.strip_prefix(&dist)?.to_str().ok_or("file name is not UTF-8")?;
        let content = fs::read(path)?;
        if name == PAGE_FILE {
            version = page_version(&String::from_utf8_lossy(&content)).to_owned();
        }
        let packed = out.join(format!("{index}.gz"));
        let gzip = compress(&content)?;
        let variant = match gzip.len() < content.len() {
            true => format!("Some(include_bytes!({packed:?}))"),
            false => "None".to_owned(),
        };
        fs::write(&packed, gzip)?;
        writeln!(
            table,
            "EmbeddedFile {{ name: {name:?}, hash: \"{:032x}\", plain: include_bytes!({path:?}), gzip: {variant} }},",
            xxh3_128(&content)
        )?;
    }
    table.push_str("]\n");
    fs::write(out.join("files.rs"), table)?;
    fs::write(out.join("version.rs"), format!("{version:?}"))?;
    Ok(())
}

/// Lists the files of a folder and of the folders in it, without hidden ones.
fn list_files(folder: &Path, paths: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => list_files(&entry.path(), paths)?,
            false => paths.push(entry.path()),
        }
    }
    Ok(())
}

/// Returns the version in the page's references to files. Empty if it has none.
fn page_version(page: &str) -> &str {
    let rest = page.split_once(VERSION_MARK).map_or("", |(_, rest)| rest);
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
    &rest[..end]
}

fn compress(content: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut compressor = Compressor::new(CompressionLvl::best());
    let mut packed = vec![0; compressor.gzip_compress_bound(content.len())];
    let length = compressor.gzip_compress(content, &mut packed)?;
    packed.truncate(length);
    Ok(packed)
}
