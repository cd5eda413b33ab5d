//! `athanor convert` into files of samples, and `athanor top` of these files.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/checkout.pb.gz");

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_athanor"));
    command.env_clear().args(args).stdin(Stdio::null()).output().unwrap()
}

fn text(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code and message.
fn refused(args: &[&str]) -> (i32, String) {
    let output = run(args);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn rows(file: &str) -> Value {
    serde_json::from_str::<Value>(&text(&["top", file, "--limit", "1000", "--json"])).unwrap()["rows"].clone()
}

fn name(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn samples_of_a_file_give_the_table_of_the_original() {
    let folder = tempfile::tempdir().unwrap();
    let original = text(&["top", EXAMPLE, "--limit", "1000"]);
    for out in ["checkout.arrow", "checkout.parquet"] {
        let out = name(folder.path(), out);
        text(&["convert", EXAMPLE, "-o", &out]);
        assert_eq!(text(&["top", &out, "--limit", "1000"]), original, "{out}");
    }
    let csv = text(&["convert", EXAMPLE, "--to", "csv", "-o", "-"]);
    assert!(csv.starts_with("profile_id,time,labels,stack,value,span_id,trace_id\n"), "{csv:.100}");
}

#[test]
fn samples_of_a_block_have_a_row_for_each_profile() {
    let folder = tempfile::tempdir().unwrap();
    let files = [name(folder.path(), "a.txt"), name(folder.path(), "b.txt")];
    std::fs::write(&files[0], "main;work 30\nmain;idle 10\n").unwrap();
    std::fs::write(&files[1], "main;work 5\nmain;work;deep 50\n").unwrap();
    let block = name(folder.path(), "block");
    text(&["block", "build", &files[0], &files[1], "--out", &block, "--label", "service_name=shop"]);
    let parquet = name(folder.path(), "block.parquet");
    let summary: Value = serde_json::from_str(&text(&["convert", &block, "-o", &parquet, "--json"])).unwrap();
    assert_eq!(summary["rows"], 4);
    assert_eq!(rows(&parquet), rows(&block));
    let csv = text(&["block", "cat", &block, "--to", "csv"]);
    assert_eq!(csv.lines().count(), 5, "{csv}");
    assert!(csv.contains("shop") && csv.contains(",main;work;deep,50,"), "{csv}");
    let (code, message) = refused(&["convert", &block, "-o", &parquet, "--selector", "{pod=\"x\"}"]);
    assert!(code == 66 && message.contains("no series matches"), "{code} {message}");
}

#[test]
fn damaged_files_are_plain_errors() {
    let folder: TempDir = tempfile::tempdir().unwrap();
    for ending in ["arrow", "parquet"] {
        let whole = name(folder.path(), &format!("whole.{ending}"));
        text(&["convert", EXAMPLE, "-o", &whole]);
        let bytes = std::fs::read(&whole).unwrap();
        let half = name(folder.path(), &format!("half.{ending}"));
        std::fs::write(&half, &bytes[..bytes.len() / 2]).unwrap();
        let (code, message) = refused(&["top", &half]);
        assert!(code == 65 && message.starts_with(&format!("athanor: {half}: ")), "{code} {message}");
        assert!(!message.contains("panicked"), "{message}");
    }
    let file = name(folder.path(), "file.arrow");
    std::fs::write(&file, b"ARROW1\0\0more").unwrap();
    let (code, message) = refused(&["top", &file]);
    assert!(code == 65 && message.contains("as Parquet"), "{code} {message}");
    let (code, message) = refused(&["convert", EXAMPLE, "-o", "out.xlsx"]);
    assert!(code == 64 && message.contains("arrow, parquet or csv"), "{code} {message}");
}
