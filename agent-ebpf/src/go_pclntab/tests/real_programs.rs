//! Names of programs of Go equal those that Go's tools list.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use super::programs::{C_PROGRAM, GoProgram, PLAIN_PROGRAM, open, table_of};
use crate::elf::ElfFile;
use crate::go_pclntab::{GoFunctionTable, TableVersion};

/// Returns the functions by address, as `go tool nm` lists them.
fn listed_functions(path: &Path) -> BTreeMap<u64, Vec<String>> {
    let output = Command::new("go").args(["tool", "nm"]).arg(path).output().unwrap();
    assert!(output.status.success());
    let mut functions: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let fields: Vec<&str> = line.trim_start().splitn(3, ' ').collect();
        if let [address, "T" | "t", name] = fields[..] {
            let address = u64::from_str_radix(address, 16).unwrap();
            functions.entry(address).or_default().push(plain_name(name));
        }
    }
    functions
}

/// Symbols have the calling convention, and dots in place of middle dots. Names of the function table have not.
fn plain_name(name: &str) -> String {
    name.strip_suffix(".abi0").unwrap_or(name).replace('·', ".")
}

/// Returns all functions of a table by address.
fn all_functions(file: &ElfFile, table: &GoFunctionTable) -> BTreeMap<u64, String> {
    let mut functions = BTreeMap::new();
    let mut address = table.address_range().start;
    while let Some(function) = table.function_at(file, address) {
        address = function.end;
        functions.insert(function.start, function.name);
    }
    assert_eq!(functions.len() as u64, table.function_count());
    functions
}

/// Checks that every function has the name that `go tool nm` lists.
fn assert_names_as_listed(path: &Path) {
    let file = open(path);
    let table = table_of(&file);
    assert_eq!(table.version(), TableVersion::Go20);
    let listed = listed_functions(path);
    let functions = all_functions(&file, &table);
    assert!(functions.len() > 1000);
    for (address, name) in &functions {
        let names = listed.get(address).unwrap_or_else(|| panic!("{name} at {address:#x} is not listed"));
        assert!(names.contains(&plain_name(name)), "{name} is listed as {names:?}");
    }
    for (address, names) in listed.range(table.address_range()) {
        let is_part =
            names.iter().all(|name| name.starts_with("runtime.text") || name.starts_with("runtime.etext"));
        assert!(is_part || functions.contains_key(address), "{names:?} is not found");
    }
    for ((_, name), next) in functions.iter().zip(functions.keys().skip(1)) {
        assert_eq!(table.function_at(&file, next - 1).unwrap().name, *name);
    }
}

#[test]
fn names_of_plain_program_equal_those_of_nm() {
    let program = GoProgram::new(PLAIN_PROGRAM, false);
    let Some(path) = program.build("plain", &["-trimpath"]) else { return };
    assert_names_as_listed(&path);
    let names: Vec<String> = all_functions(&open(&path), &table_of(&open(&path))).into_values().collect();
    for name in ["main.main", "main.(*square).area", "main.main.func1", "main.spin[go.shape.int]"] {
        assert!(names.iter().any(|found| found == name), "{name}");
    }
}

#[test]
fn names_of_position_independent_program_equal_those_of_nm() {
    let program = GoProgram::new(PLAIN_PROGRAM, false);
    let Some(path) = program.build("pie", &["-buildmode=pie"]) else { return };
    assert_names_as_listed(&path);
}

#[test]
fn names_of_program_with_c_equal_those_of_nm() {
    let program = GoProgram::new(C_PROGRAM, true);
    let Some(path) = program.build("fixed", &[]) else { return };
    assert_names_as_listed(&path);
    let Some(path) = program.build("pie", &["-buildmode=pie"]) else { return };
    assert_names_as_listed(&path);
}

#[test]
fn names_of_stripped_program_equal_those_of_complete_one() {
    for (source, with_c) in [(PLAIN_PROGRAM, false), (C_PROGRAM, true)] {
        let program = GoProgram::new(source, with_c);
        for mode in ["-buildmode=exe", "-buildmode=pie"] {
            let Some(complete) = program.build("complete", &[mode]) else { return };
            let Some(stripped) = program.build("stripped", &[mode, "-ldflags=-s -w"]) else { return };
            let [complete, stripped] = [open(&complete), open(&stripped)];
            assert!(stripped.section(".symtab").is_none());
            let expected: Vec<String> =
                all_functions(&complete, &table_of(&complete)).into_values().collect();
            let found: Vec<String> = all_functions(&stripped, &table_of(&stripped)).into_values().collect();
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn table_of_file_without_sections_is_found_by_its_magic() {
    let program = GoProgram::new(PLAIN_PROGRAM, false);
    let Some(path) = program.build("plain", &["-ldflags=-s -w"]) else { return };
    let complete = open(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    // Offset and number of section headers.
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let bare = ElfFile::open(Arc::new(crate::elf::MemoryImage(bytes))).unwrap();
    assert!(bare.sections().is_empty());
    let expected = all_functions(&complete, &table_of(&complete));
    assert_eq!(all_functions(&bare, &table_of(&bare)), expected);
}

#[test]
fn program_of_another_language_has_no_table() {
    let file = open(Path::new("/proc/self/exe"));
    assert_eq!(GoFunctionTable::find(&file).unwrap(), None);
}
