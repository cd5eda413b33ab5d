//! Symbols of real files equal those that binutils find.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use proptest::prelude::*;

use crate::elf::{BoundedFile, ElfFile, MemoryImage};
use crate::symbols::{SymbolFiles, SymbolTable, debug_file_path};

const ALL_SYMBOLS: usize = usize::MAX;

pub fn open(path: &Path) -> ElfFile {
    let file = BoundedFile::new(std::fs::File::open(path).unwrap()).unwrap();
    ElfFile::open(Arc::new(file)).unwrap()
}

fn files(object: &ElfFile) -> SymbolFiles<'_> {
    SymbolFiles { object, debug: None }
}

/// Function as `nm` lists it.
struct ListedFunction {
    address: u64,
    size: u64,
    name: String,
}

/// Runs a program and returns its output. None if it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let Ok(output) = Command::new(program).args(arguments).output() else {
        println!("skip: {program} is not installed");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn listed_functions(path: &str, options: &[&str]) -> Option<Vec<ListedFunction>> {
    let text = run("nm", &[options, &["--defined-only", "-S", path]].concat())?;
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [address, size, "T" | "t" | "W" | "w" | "i", name] = fields[..] else { return None };
        let address = u64::from_str_radix(address, 16).unwrap();
        let size = u64::from_str_radix(size, 16).unwrap();
        let name = name.split('@').next().unwrap().to_owned();
        Some(ListedFunction { address, size, name })
    };
    Some(text.lines().filter_map(parse).collect())
}

/// Checks that first, middle and last byte of each function have one of its names.
fn assert_names_as_listed(object: &ElfFile, listed: &[ListedFunction], minimum: usize) {
    let table = SymbolTable::read(files(object), ALL_SYMBOLS);
    assert_eq!(table.dropped(), 0);
    assert!(table.memory() <= table.len() * 16 + 1024);
    let mut names: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for function in listed {
        names.entry(function.address).or_default().push(&function.name);
    }
    assert!(names.len() >= minimum, "{}", names.len());
    for function in listed.iter().filter(|function| function.size > 0) {
        for offset in [0, function.size / 2, function.size - 1] {
            let address = function.address + offset;
            let found = table.find(files(object), address).unwrap();
            assert!(found.start >= function.address && found.start <= address, "{}", function.name);
            let names = &names[&found.start];
            assert!(names.contains(&found.name.as_str()), "{} is listed as {names:?}", found.name);
        }
    }
}

#[test]
fn names_of_c_library_equal_those_of_nm() {
    let path = "/lib/x86_64-linux-gnu/libc.so.6";
    if !Path::new(path).exists() {
        return println!("skip: {path} does not exist");
    }
    let Some(listed) = listed_functions(path, &["-D"]) else { return };
    let object = open(Path::new(path));
    assert_names_as_listed(&object, &listed, 1500);
    let table = SymbolTable::read(files(&object), ALL_SYMBOLS);
    for name in ["qsort", "write", "malloc", "pthread_create"] {
        let function = listed.iter().find(|function| function.name == name).unwrap();
        let found = table.find(files(&object), function.address + 1).unwrap();
        assert_eq!((found.start, found.name.as_str()), (function.address, name), "the plain alias wins");
    }
}

#[test]
fn names_of_rust_program_equal_those_of_nm() {
    let Ok(path) = std::fs::read_link("/proc/self/exe") else { return };
    let Some(listed) = listed_functions(path.to_str().unwrap(), &[]) else { return };
    assert_names_as_listed(&open(&path), &listed, 5000);
}

const CPP_PROGRAM: &str = r#"
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>
namespace shop {
struct Order { int id; std::string name; bool operator<(const Order &other) const { return id < other.id; } };
__attribute__((noinline)) int total(std::vector<Order> orders) {
    std::sort(orders.begin(), orders.end());
    std::map<std::string, int> counts;
    for (auto &order : orders) counts[order.name] += order.id;
    if (counts.size() > 5) throw std::string("too many");
    return counts["a"];
}
}
int main(int count, char **) {
    try { std::cout << shop::total({{count, "a"}, {2, "b"}}) << "\n"; } catch (std::string &error) { return 1; }
}
"#;

#[test]
fn names_of_cpp_program_equal_those_of_binutils() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("shop.cc");
    let output = folder.path().join("shop");
    std::fs::write(&source, CPP_PROGRAM).unwrap();
    let [source, output] = [source.to_str().unwrap(), output.to_str().unwrap()];
    if run("g++", &["-O2", "-o", output, source]).is_none() {
        return;
    }
    let Some(listed) = listed_functions(output, &[]) else { return };
    let object = open(Path::new(output));
    assert_names_as_listed(&object, &listed, 15);
    let addresses: Vec<String> = listed.iter().map(|function| format!("{:#x}", function.address)).collect();
    let mut arguments = vec!["-f", "-e", output];
    arguments.extend(addresses.iter().map(String::as_str));
    let Some(text) = run("addr2line", &arguments) else { return };
    let table = SymbolTable::read(files(&object), ALL_SYMBOLS);
    for (function, expected) in listed.iter().zip(text.lines().step_by(2)) {
        let found = table.find(files(&object), function.address).unwrap();
        let names = listed.iter().filter(|other| other.address == function.address);
        let names: Vec<&str> = names.map(|other| other.name.as_str()).collect();
        assert!(
            names.contains(&expected) && names.contains(&found.name.as_str()),
            "{expected} {}",
            found.name
        );
    }
    let total = listed.iter().find(|function| function.name.starts_with("_ZN4shop5total")).unwrap();
    let found = table.find(files(&object), total.address + 4).unwrap();
    assert!(crate::symbols::readable_name(&found.name).starts_with("shop::total(std::vector<shop::Order"));
}

#[test]
fn debug_file_names_functions_of_stripped_library() {
    let path = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    if !path.exists() {
        return println!("skip: {} does not exist", path.display());
    }
    let object = open(path);
    let build_id = object.build_id().unwrap().to_string();
    let debug_path = debug_file_path(Path::new("/usr/lib/debug"), &build_id).unwrap();
    if !debug_path.exists() {
        return println!("skip: {} does not exist", debug_path.display());
    }
    let Some(listed) = listed_functions(debug_path.to_str().unwrap(), &[]) else { return };
    let debug = open(&debug_path);
    let files = SymbolFiles { object: &object, debug: Some(&debug) };
    let table = SymbolTable::read(files, ALL_SYMBOLS);
    let local = listed.iter().find(|function| function.name.starts_with("msort_with_tmp")).unwrap();
    assert_eq!(table.find(files, local.address + 1).unwrap().name, local.name);
}

#[test]
fn path_of_debug_file_accepts_hex_only() {
    let folder = Path::new("/usr/lib/debug");
    let path = debug_file_path(folder, "abcdef01").unwrap();
    assert_eq!(path, Path::new("/usr/lib/debug/.build-id/ab/cdef01.debug"));
    for refused in ["", "a", "ab", "../../etc/passwd", "ab/../x", "äb12"] {
        assert_eq!(debug_file_path(folder, refused), None, "{refused}");
    }
}

/// Symbol of a file that is written here.
#[derive(Clone, Copy)]
pub struct WrittenSymbol {
    pub name: &'static str,
    /// Binding above, type in the low four bits.
    pub info: u8,
    pub section: u16,
    pub address: u64,
    pub size: u64,
}

const FUNCTION: u8 = 2;
const GLOBAL_FUNCTION: u8 = 1 << 4 | FUNCTION;

fn symbol(name: &'static str, info: u8, address: u64, size: u64) -> WrittenSymbol {
    WrittenSymbol { name, info, section: 1, address, size }
}

/// Writes a file with code at 0x1000 to 0x2000, of which `.text` takes the first half, and a symbol table.
pub fn written_file(symbols: &[WrittenSymbol]) -> Vec<u8> {
    let mut names = vec![0];
    let mut table = vec![0; 24];
    for symbol in symbols {
        table.extend((names.len() as u32).to_le_bytes());
        table.extend([symbol.info, 0]);
        table.extend(symbol.section.to_le_bytes());
        table.extend(symbol.address.to_le_bytes());
        table.extend(symbol.size.to_le_bytes());
        names.extend(symbol.name.bytes());
        names.push(0);
    }
    let section_names = b"\0.text\0.symtab\0.strtab\0.shstrtab\0";
    let mut file = vec![0; 0x2000];
    let mut place = |content: &[u8]| {
        let offset = file.len() as u64;
        file.extend(content);
        file.resize(file.len().next_multiple_of(8), 0);
        (offset, content.len() as u64)
    };
    let (table_offset, table_size) = place(&table);
    let (names_offset, names_size) = place(&names);
    let (section_names_offset, section_names_size) = place(section_names);
    let sections: [[u64; 6]; 5] = [
        // Name, type, address, offset, size, link.
        [0; 6],
        [1, 1, 0x1000, 0x1000, 0x800, 0],
        [7, 2, 0, table_offset, table_size, 3],
        [15, 3, 0, names_offset, names_size, 0],
        [23, 3, 0, section_names_offset, section_names_size, 0],
    ];
    let section_offset = file.len() as u64;
    for [name, kind, address, offset, size, link] in sections {
        file.extend((name as u32).to_le_bytes());
        file.extend((kind as u32).to_le_bytes());
        for value in [0, address, offset, size] {
            file.extend(value.to_le_bytes());
        }
        file.extend((link as u32).to_le_bytes());
        file.extend([0; 4 + 16]);
    }
    file[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    let mut header = Vec::new();
    header.extend([3u16.to_le_bytes(), 62u16.to_le_bytes()].concat());
    header.extend(1u32.to_le_bytes());
    for value in [0x1000, 64, section_offset] {
        header.extend(value.to_le_bytes());
    }
    header.extend([0; 4]);
    for value in [64u16, 56, 1, 64, 5, 4] {
        header.extend(value.to_le_bytes());
    }
    file[16..64].copy_from_slice(&header);
    let mut segment = [1u32.to_le_bytes(), 5u32.to_le_bytes()].concat();
    for value in [0x1000u64, 0x1000, 0x1000, 0x1000, 0x1000, 0x1000] {
        segment.extend(value.to_le_bytes());
    }
    file[64..120].copy_from_slice(&segment);
    file
}

pub fn open_bytes(bytes: Vec<u8>) -> ElfFile {
    ElfFile::open(Arc::new(MemoryImage(bytes))).unwrap()
}

#[test]
fn sizes_labels_and_aliases_decide_the_name() {
    let object = open_bytes(written_file(&[
        symbol("outer", FUNCTION, 0x1000, 0x100),
        symbol("label", 0, 0x1010, 0),
        symbol("inner.cold", FUNCTION, 0x1040, 0x10),
        symbol("__GI_read", FUNCTION, 0x1200, 0x20),
        symbol("__read", GLOBAL_FUNCTION, 0x1200, 0x20),
        symbol("read@@GLIBC_2.2.5", 2 << 4 | FUNCTION, 0x1200, 0x20),
        symbol("assembly", 0, 0x1300, 0),
        symbol("indirect", GLOBAL_FUNCTION & 0xf0 | 10, 0x1400, 8),
        symbol("data", 1, 0x1500, 8),
        symbol("last_of_text", GLOBAL_FUNCTION, 0x1700, 0),
        symbol("outside", GLOBAL_FUNCTION, 0x9000, 8),
    ]));
    let table = SymbolTable::read(files(&object), ALL_SYMBOLS);
    let cases = [
        (0x0fff, None),
        (0x1000, Some("outer")),
        (0x1018, Some("outer")),
        (0x1048, Some("inner.cold")),
        (0x1050, Some("outer")),
        (0x1100, None),
        (0x1210, Some("read")),
        (0x1220, None),
        (0x1300, Some("assembly")),
        (0x13ff, Some("assembly")),
        (0x1404, Some("indirect")),
        (0x1408, None),
        (0x1504, None),
        (0x17ff, Some("last_of_text")),
        (0x1800, None),
        (0x9000, None),
    ];
    for (address, expected) in cases {
        let found = table.find(files(&object), address);
        assert_eq!(found.as_ref().map(|found| found.name.as_str()), expected, "{address:#x}");
    }
}

#[test]
fn symbols_beyond_the_bound_are_counted() {
    let symbols: Vec<WrittenSymbol> =
        (0..50).map(|index| symbol("f", FUNCTION, 0x1000 + index * 16, 16)).collect();
    let object = open_bytes(written_file(&symbols));
    let table = SymbolTable::read(files(&object), 20);
    assert_eq!((table.len(), table.dropped()), (20, 30));
}

proptest! {
    #[test]
    fn damaged_files_are_read_without_panic(
        damage in prop::collection::vec((0x40usize..0x2400, any::<u8>()), 1..40),
        addresses in prop::collection::vec(0u64..0x3000, 10),
    ) {
        let mut bytes = written_file(&[
            symbol("outer", FUNCTION, 0x1000, 0x100),
            symbol("label", 0, 0x1010, 0),
            symbol("read", GLOBAL_FUNCTION, 0x1200, 0x20),
        ]);
        for (at, value) in damage {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if let Ok(object) = ElfFile::open(Arc::new(MemoryImage(bytes))) {
            let table = SymbolTable::read(files(&object), ALL_SYMBOLS);
            for address in addresses {
                if let Some(found) = table.find(files(&object), address) {
                    prop_assert!(found.start <= address);
                }
            }
        }
    }
}
