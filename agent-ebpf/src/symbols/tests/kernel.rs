//! Symbols of the kernel.

use std::path::Path;

use proptest::prelude::*;

use crate::symbols::{KernelSymbolFile, KernelSymbols, KernelSymbolsError};

const TEXT: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000000 t startup
ffffffff81000100 T __pfx_vfs_read
ffffffff81000110 T vfs_read
ffffffff81000110 t do_read_alias
ffffffff81000200 D some_data
ffffffff81000300 W weak_function
ffffffff82000000 T _etext
ffffffffc0201000 t ext4_read\t[ext4]
ffffffffc0201100 t nfs_read\t[nfs]
ffffffffc0201200 t bpf_prog_6deef7357e7b4530\t[bpf]
";

fn name_at(symbols: &KernelSymbols, address: u64) -> Option<(String, String)> {
    let function = symbols.function_at(address)?;
    Some((function.name.to_owned(), function.module.to_owned()))
}

#[test]
fn address_is_named_by_function_before_it() {
    let symbols = KernelSymbols::parse(TEXT.as_bytes()).unwrap();
    let cases = [
        (0xffff_ffff_8100_0000, Some(("startup", "[kernel]"))),
        (0xffff_ffff_8100_0110, Some(("vfs_read", "[kernel]"))),
        (0xffff_ffff_8100_02ff, Some(("vfs_read", "[kernel]"))),
        (0xffff_ffff_8100_0300, Some(("weak_function", "[kernel]"))),
        (0xffff_ffff_8200_0000, None),
        (0xffff_ffff_8220_0000, None),
        (0xffff_ffff_c020_10ff, Some(("ext4_read", "ext4"))),
        (0xffff_ffff_c020_1100, Some(("nfs_read", "nfs"))),
        (0xffff_ffff_c020_1234, Some(("bpf_prog_6deef7357e7b4530", "bpf"))),
        (0xffff_ffff_d020_1234, None),
        (0xffff_ffff_80ff_ffff, None),
        (0, None),
        (u64::MAX, None),
    ];
    for (address, expected) in cases {
        let found = name_at(&symbols, address);
        let found = found.as_ref().map(|(name, module)| (name.as_str(), module.as_str()));
        assert_eq!(found, expected, "{address:#x}");
    }
    assert_eq!(symbols.len(), 7);
}

#[test]
fn function_of_a_module_without_a_name_is_the_kernels() {
    let symbols = KernelSymbols::parse(b"ffffffffc0201000 t read\t[]\n").unwrap();
    let expected = ("read".to_owned(), "[kernel]".to_owned());
    assert_eq!(name_at(&symbols, 0xffff_ffff_c020_1000), Some(expected));
}

#[test]
fn restricted_symbols_are_an_error_of_their_own() {
    let text: String = TEXT.lines().map(|line| format!("0000000000000000{}\n", &line[16..])).collect();
    let error = KernelSymbols::parse(text.as_bytes()).unwrap_err();
    assert!(matches!(error, KernelSymbolsError::Restricted { symbols: 10 }), "{error}");
    assert!(error.to_string().contains("kernel.kptr_restrict"));
    let error = KernelSymbols::parse(b"ffffffff81000000 D data\n\n").unwrap_err();
    assert!(matches!(error, KernelSymbolsError::Empty { lines: 2 }), "{error}");
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("kallsyms")).unwrap();
    let file = KernelSymbolFile::open(folder.path()).unwrap();
    let error = KernelSymbols::read(&file).unwrap_err();
    assert!(error.to_string().contains("/kallsyms"), "{error}");
}

#[test]
fn every_function_of_this_kernel_is_found() {
    let file = KernelSymbolFile::open(Path::new("/proc")).unwrap();
    let symbols = match KernelSymbols::read(&file) {
        Ok(symbols) => symbols,
        Err(error) => return println!("skip: {error}"),
    };
    assert!(symbols.len() > 10_000 && symbols.dropped() == 0);
    assert!(symbols.memory() < 8 << 20, "{} bytes", symbols.memory());
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let mut found = 0;
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [address, "T" | "t", name, ..] = fields[..] else { continue };
        let address = u64::from_str_radix(address, 16).unwrap();
        let function = symbols.function_at(address);
        let is_named = function.is_some_and(|function| function.start == address && function.name == name);
        found += u64::from(is_named);
        assert!(function.is_some() || name.starts_with("__pfx_") || name.ends_with("text"), "{line}");
    }
    // All but aliases.
    assert!(found * 10 > symbols.len() as u64 * 9, "{found} of {}", symbols.len());
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(lines in prop::collection::vec(any_line(), 0..50), address: u64) {
        let text = lines.join(&b'\n');
        if let Ok(symbols) = KernelSymbols::parse(&text) {
            prop_assert!(!symbols.is_empty());
            if let Some(function) = symbols.function_at(address) {
                prop_assert!(function.start <= address);
            }
        }
    }
}

fn any_line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        (any::<u64>(), "[tTDw]", "[a-z_]{0,8}", "(\\[[a-z]{0,3}\\])?").prop_map(
            |(address, kind, name, module)| format!("{address:x} {kind} {name} {module}").into_bytes()
        ),
    ]
}
