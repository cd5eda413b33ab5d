//! The cache of names.

use std::cell::Cell;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use super::elf_files::{WrittenSymbol, open, open_bytes, written_file};
use crate::elf::ElfFile;
use crate::frame::FileId;
use crate::go_pclntab::GoFunctionTable;
use crate::go_pclntab::tests::programs::{C_PROGRAM, GoProgram};
use crate::symbols::{KernelSymbolFile, KernelSymbols, KernelSymbolsError, SymbolSource, Symbolizer};
use crate::window::FrameName;

fn source(name: &'static str) -> SymbolSource {
    let symbol = WrittenSymbol { name, info: 2, section: 1, address: 0x1000, size: 0x800 };
    SymbolSource { object: Arc::new(open_bytes(written_file(&[symbol]))), debug: None }
}

#[test]
fn known_addresses_open_no_file() {
    let mut symbolizer = Symbolizer::new(1 << 20);
    let opened = Cell::new(0);
    let mut name = |address| {
        let open = || {
            opened.set(opened.get() + 1);
            Some(source("_ZN4shop4mainEv"))
        };
        symbolizer.name_of(FileId(1), open, address)
    };
    let first = name(0x1000).unwrap();
    assert_eq!((&*first.function, first.system_name.as_deref()), ("shop::main()", Some("_ZN4shop4mainEv")));
    assert_eq!(name(0x1000), Some(first.clone()));
    assert_eq!(opened.get(), 1);
    let other = name(0x1004).unwrap();
    assert!(Arc::ptr_eq(&other.function, &first.function), "addresses of a function share its name");
    assert_eq!(name(0x1900), None);
    assert_eq!(name(0x1900), None);
    assert_eq!(opened.get(), 3, "an address without a name is known too");
}

#[test]
fn file_that_cannot_be_opened_is_retried() {
    let mut symbolizer = Symbolizer::new(1 << 20);
    assert_eq!(symbolizer.name_of(FileId(1), || None, 0x1000), None);
    assert!(symbolizer.name_of(FileId(1), || Some(source("main")), 0x1000).is_some());
}

#[test]
fn forgotten_file_is_read_once_more() {
    let mut symbolizer = Symbolizer::new(1 << 20);
    let before = symbolizer.name_of(FileId(1), || Some(source("before")), 0x1000).unwrap();
    let other = symbolizer.name_of(FileId(2), || Some(source("other")), 0x1000).unwrap();
    symbolizer.forget_file(FileId(1));
    let after = symbolizer.name_of(FileId(1), || Some(source("after")), 0x1000).unwrap();
    assert_eq!((&*before.function, &*after.function), ("before", "after"));
    assert_eq!(symbolizer.name_of(FileId(2), || None, 0x1000), Some(other));
}

#[test]
fn memory_stays_within_its_bound() {
    let max_bytes = 64 << 10;
    let mut symbolizer = Symbolizer::new(max_bytes);
    let source = source("main");
    for file in 0..20 {
        for address in 0x1000..0x1100 {
            let name = symbolizer.name_of(FileId(file), || Some(source.clone()), address);
            assert_eq!(&*name.unwrap().function, "main");
            assert!(symbolizer.memory() <= max_bytes);
        }
    }
    assert!(symbolizer.evictions() > 0);
    let opened = Cell::new(false);
    let open = || {
        opened.set(true);
        Some(source.clone())
    };
    symbolizer.name_of(FileId(19), open, 0x10ff).unwrap();
    assert!(!opened.get(), "the last used name stays");
}

#[test]
fn addresses_pay_for_the_text_that_they_keep() {
    let mut symbolizer = Symbolizer::new(1 << 20);
    let name: &'static str = "f".repeat(4000).leak();
    let source = source(name);
    for address in 0x1000..0x1020 {
        symbolizer.name_of(FileId(1), || Some(source.clone()), address).unwrap();
    }
    assert!(symbolizer.memory() >= 0x20 * 4000, "{} bytes", symbolizer.memory());
}

#[test]
fn kernel_symbols_over_half_of_the_memory_are_refused() {
    let text = "ffffffff81000000 T read\nffffffffc0000000 t ext4_read\t[ext4]\n";
    let mut symbolizer = Symbolizer::new(100);
    let refused = symbolizer.set_kernel(KernelSymbols::parse(text.as_bytes()).unwrap()).unwrap_err();
    assert!(matches!(refused, KernelSymbolsError::TooLarge { limit: 50, .. }), "{refused}");
    let mut symbolizer = Symbolizer::new(10_000);
    symbolizer.set_kernel(KernelSymbols::parse(text.as_bytes()).unwrap()).unwrap();
    let name = symbolizer.kernel_name(0xffff_ffff_c000_0010).unwrap();
    assert_eq!((&*name.function, &*name.module), ("ext4_read", "ext4"));
    assert_eq!(&*symbolizer.kernel_name(0xffff_ffff_8100_0010).unwrap().module, "[kernel]");
    assert_eq!(symbolizer.kernel_name(0), None);
}

#[test]
fn kernel_symbols_are_read_once_more_after_a_module_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let seconds = Duration::from_secs;
    let address = 0xffff_ffff_c000_0000;
    let mut symbolizer = Symbolizer::new(1 << 20);
    let refresh = |symbolizer: &mut Symbolizer, now| {
        let kallsyms = KernelSymbolFile::open(folder.path()).unwrap();
        symbolizer.refresh_kernel(folder.path(), &kallsyms, now)
    };
    write("modules", "ext4 100 1 - Live 0xffffffffc0100000\n");
    write("kallsyms", "ffffffff81000000 T read\n");
    refresh(&mut symbolizer, seconds(0)).unwrap();
    write("kallsyms", "ffffffff81000000 T read\nffffffffc0000000 t nfs_read\t[nfs]\n");
    write("modules", "ext4 100 2 nfs, Live 0xffffffffc0100000\n");
    refresh(&mut symbolizer, seconds(90)).unwrap();
    assert_eq!(symbolizer.kernel_name(address), None, "the number of users is no change");
    write("modules", "nfs 10 0 - Live 0xffffffffc0000000\next4 100 2 nfs, Live 0xffffffffc0100000\n");
    refresh(&mut symbolizer, seconds(59)).unwrap();
    assert_eq!(symbolizer.kernel_name(address), None, "too early");
    refresh(&mut symbolizer, seconds(60)).unwrap();
    assert_eq!(&*symbolizer.kernel_name(address).unwrap().function, "nfs_read");
    // Programs of BPF are in no list of modules.
    write("kallsyms", "ffffffff81000000 T read\nffffffffc0900000 t bpf_prog_1\t[bpf]\n");
    assert_eq!(symbolizer.kernel_name(0xffff_ffff_c090_0000), None);
    refresh(&mut symbolizer, seconds(659)).unwrap();
    assert_eq!(symbolizer.kernel_name(0xffff_ffff_c090_0000), None);
    refresh(&mut symbolizer, seconds(660)).unwrap();
    assert_eq!(&*symbolizer.kernel_name(0xffff_ffff_c090_0000).unwrap().function, "bpf_prog_1");
}

/// Mapping of this process.
struct OwnMapping {
    start: u64,
    end: u64,
    offset: u64,
    path: String,
}

fn own_mappings() -> Vec<OwnMapping> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = fields[0].split_once('-').unwrap();
        let path = fields.get(5).copied().unwrap_or_default().to_owned();
        OwnMapping { start: hex(start), end: hex(end), offset: hex(fields[2]), path }
    };
    maps.lines().map(parse).collect()
}

#[test]
fn own_functions_are_found_in_this_program() {
    let path = std::fs::read_link("/proc/self/exe").unwrap();
    let object = Arc::new(open(&path));
    let address = own_functions_are_found_in_this_program as fn() as usize as u64;
    let mappings = own_mappings();
    let mapping = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&address)).unwrap();
    let bias = object.bias_of(mapping.start, mapping.offset, mapping.end - mapping.start).unwrap();
    let mut symbolizer = Symbolizer::new(1 << 24);
    let open = || Some(SymbolSource { object: Arc::clone(&object), debug: None });
    let name = symbolizer.name_of(FileId(1), open, address.wrapping_sub(bias) + 1).unwrap();
    assert!(name.function.contains("own_functions_are_found_in_this_program"), "{name:?}");
    assert_eq!(&*name.module, "");
}

#[test]
fn functions_of_vdso_are_found_in_memory() {
    let mappings = own_mappings();
    let Some(vdso) = mappings.iter().find(|mapping| mapping.path == "[vdso]") else {
        return println!("skip: this kernel has no vdso");
    };
    let mut bytes = vec![0; (vdso.end - vdso.start) as usize];
    std::fs::File::open("/proc/self/mem").unwrap().read_exact_at(&mut bytes, vdso.start).unwrap();
    let object: Arc<ElfFile> = Arc::new(open_bytes(bytes));
    let source = SymbolSource { object: Arc::clone(&object), debug: None };
    let mut symbolizer = Symbolizer::new(1 << 20);
    let code = *object.code_segments().next().unwrap();
    let names: Vec<String> = (code.address..code.address + code.file_size)
        .step_by(16)
        .filter_map(|address| symbolizer.name_of(FileId(1), || Some(source.clone()), address))
        .map(|name| name.function.to_string())
        .collect();
    assert!(names.iter().any(|name| name == "clock_gettime"), "{names:?}");
}

#[test]
fn go_program_has_names_of_go_and_of_c() {
    let program = GoProgram::new(C_PROGRAM, true);
    let Some(path) = program.build("program", &[]) else { return };
    let object = Arc::new(open(&path));
    let source = SymbolSource { object: Arc::clone(&object), debug: None };
    let table = GoFunctionTable::find(&object).unwrap().unwrap();
    let mut symbolizer = Symbolizer::new(4 << 20);
    let mut name = |address| symbolizer.name_of(FileId(1), || Some(source.clone()), address);
    let mut address = table.address_range().start;
    let mut found = Vec::new();
    while let Some(function) = table.function_at(&object, address) {
        found.push(name(address).unwrap());
        address = function.end;
    }
    assert!(found.iter().any(|name| &*name.function == "main.main" && name.system_name.is_none()));
    let is_generic = |name: &&FrameName| name.function.contains(".(*") && name.function.contains("[...]");
    let generic = found.iter().find(is_generic).unwrap();
    assert!(generic.system_name.as_ref().unwrap().contains("[go.shape."), "{generic:?}");
    // Functions of C lie behind those of Go.
    let end = table.address_range().end;
    let names: Vec<_> = (end..end + 0x400).step_by(8).filter_map(name).collect();
    assert!(names.iter().any(|name| &*name.function == "compare"), "{names:?}");
}
