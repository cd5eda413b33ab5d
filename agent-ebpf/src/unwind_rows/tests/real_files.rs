//! Files of this machine: rows by page equal the evaluation of the whole section.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::naive::{NaiveRules, assert_well_formed, paint};
use crate::elf::{BoundedFile, ElfFile, MemoryImage};
use crate::layout::CfaRule;
use crate::unwind_rows::RowSource;
use crate::unwind_rows::rule::RowRule;

fn open(path: &Path) -> Option<ElfFile> {
    let Ok(file) = File::open(path) else {
        eprintln!("skip: {} is missing", path.display());
        return None;
    };
    Some(ElfFile::open(Arc::new(BoundedFile::new(file).unwrap())).unwrap())
}

/// Returns the compiler's own library.
fn rustc_driver() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let folder = Path::new(String::from_utf8(output.stdout).ok()?.trim()).join("lib");
    let names = std::fs::read_dir(&folder).ok()?;
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.into_iter().find(|name| name.starts_with("librustc_driver")).map(|name| folder.join(name))
}

/// Compares all pages and returns the number of addresses by rule.
fn compare(path: &Path) -> [u64; 16] {
    let mut addresses = [0; 16];
    let Some(file) = open(path) else { return addresses };
    let naive = NaiveRules::of_file(&file);
    let source = RowSource::open(&file).unwrap();
    let pages = naive.pages();
    let mut row_count = 0;
    for page in &pages {
        let rows = source.rows_of_page(*page).unwrap();
        assert_well_formed(&rows);
        row_count += rows.len();
        for (pc, (found, expected)) in paint(&rows).into_iter().zip(naive.page(*page)).enumerate() {
            // Code without information may be known by its bytes.
            let is_known_by_bytes = [RowRule::END, RowRule::SIGNAL].contains(&found);
            if expected != RowRule::NONE || !is_known_by_bytes {
                assert_eq!(found, expected, "{} page {page:#x} pc {pc:#x}", path.display());
            }
            addresses[usize::from(found.at(0).rule & 15)] += 1;
        }
    }
    println!(
        "{}: {} entries, {} pages, {row_count} rows, small {}, by rule {addresses:?}",
        path.display(),
        naive.entry_count(),
        pages.len(),
        source.is_small(),
    );
    assert!(row_count > 0);
    addresses
}

#[test]
fn pages_of_small_libraries_equal_whole_evaluation() {
    for path in [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/lib/x86_64-linux-musl/libc.so",
    ] {
        let addresses = compare(Path::new(path));
        let total: u64 = addresses.iter().sum();
        let unsupported = addresses[CfaRule::Unsupported as usize];
        assert!(unsupported * 100 <= total, "{path}: {unsupported} of {total}");
    }
}

#[test]
fn pages_of_large_files_equal_whole_evaluation() {
    compare(Path::new("/usr/bin/node"));
    match rustc_driver() {
        Some(path) => assert!(compare(&path)[CfaRule::Rsp as usize] > 0),
        None => eprintln!("skip: no rustc_driver library"),
    }
}

/// Returns the CPU time of this thread.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn hot_pages_of_a_large_library_cost_little() {
    let Some(file) = rustc_driver().and_then(|path| open(&path)) else {
        eprintln!("skip: no rustc_driver library");
        return;
    };
    let started = thread_cpu();
    let source = RowSource::open(&file).unwrap();
    let code = file.code_segments().max_by_key(|segment| segment.file_size).unwrap();
    let first = (code.address >> 16) as u32;
    let page_count = (code.file_size >> 16) as u32;
    let mut rows = 0;
    for page in (first..first + page_count).step_by(4) {
        rows += source.rows_of_page(page).unwrap().len();
    }
    let spent = thread_cpu() - started;
    println!("{} pages, {rows} rows, {spent:?}", page_count / 4);
    // A quarter of the pages has at most 2 MiB of rows.
    assert!((10_000..262_144).contains(&rows), "{rows}");
    assert!(source.memory_bytes() < 4096);
}

#[test]
fn file_without_sections_has_the_same_rows() {
    let path = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let Some(file) = open(path) else { return };
    let mut bytes = std::fs::read(path).unwrap();
    // The offset of section headers in the file header.
    bytes[40..48].fill(0);
    let bare = ElfFile::open(Arc::new(MemoryImage(bytes))).unwrap();
    assert_eq!(bare.sections().len(), 0);
    assert_eq!(bare.build_id().unwrap(), file.build_id().unwrap());
    let bare = RowSource::open(&bare).unwrap();
    let source = RowSource::open(&file).unwrap();
    assert!(source.is_small());
    assert_eq!(bare.all_pages(), source.all_pages());
    for page in source.all_pages() {
        assert_eq!(bare.rows_of_page(page).unwrap(), source.rows_of_page(page).unwrap());
    }
}

#[test]
fn go_program_has_rows_of_its_function_table() {
    let Some(file) = open(Path::new("/usr/local/go/bin/go")) else { return };
    let source = RowSource::open(&file).unwrap();
    assert!(!source.is_small());
    let code = file.code_segments().next().unwrap();
    let page = (code.address + code.file_size / 2) >> 16;
    let rows = source.rows_of_page(page as u32).unwrap();
    assert_well_formed(&rows);
    let rsp = rows.iter().filter(|row| row.rule & 15 == CfaRule::Rsp as u8).count();
    assert!(rsp > 100, "{rsp} of {}", rows.len());
}

/// Builds a C program with this compiler and these options.
fn compile(compiler: &str, options: &[&str]) -> Option<ElfFile> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("a.c");
    std::fs::write(&source, "int main(int argc, char **argv) { return argc + argv[0][0]; }\n").unwrap();
    let program = folder.path().join("a");
    let status = Command::new(compiler).args(options).arg("-o").arg(&program).arg(&source).status();
    if !status.is_ok_and(|status| status.success()) {
        eprintln!("skip: {compiler} is missing");
        return None;
    }
    open(&program)
}

#[test]
fn static_program_of_musl_ends_at_its_entry() {
    let Some(file) = compile("musl-gcc", &["-static", "-O2", "-s"]) else { return };
    let source = RowSource::open(&file).unwrap();
    let page = (file.entry() >> 16) as u32;
    let rows = source.rows_of_page(page).unwrap();
    let pc = file.entry() as u16;
    let at_entry = rows.iter().rev().find(|row| row.pc <= pc).unwrap();
    assert_eq!(at_entry.rule & 15, CfaRule::End as u8, "{at_entry:?}");
    let pages = source.all_pages();
    let rows: Vec<_> = pages.iter().flat_map(|page| source.rows_of_page(*page).unwrap()).collect();
    assert!(rows.iter().any(|row| row.rule & 15 == CfaRule::End as u8));
}

#[test]
fn debug_frame_alone_gives_rows() {
    let options = ["-O2", "-g", "-nostdlib", "-shared", "-fno-asynchronous-unwind-tables", "-gz=none"];
    let Some(file) = compile("gcc", &options) else { return };
    assert!(file.section(".debug_frame").is_some());
    let source = RowSource::open(&file).unwrap();
    let rows: Vec<_> =
        source.all_pages().iter().flat_map(|page| source.rows_of_page(*page).unwrap()).collect();
    assert!(rows.iter().any(|row| row.rule & 15 == CfaRule::Rsp as u8 && row.cfa == 8), "{rows:?}");
}
