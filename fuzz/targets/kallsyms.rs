//! Arbitrary bytes as symbols of the kernel: refused, or functions start at or before the addresses that they are found
//! by. The same bytes as a name of a function become a bounded name.
#![no_main]

use athanor_agent_ebpf::symbols::{KernelSymbols, MAX_NAME_BYTES, readable_name};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(name) = std::str::from_utf8(bytes) {
        assert!(readable_name(name).len() <= MAX_NAME_BYTES);
    }
    let Ok(symbols) = KernelSymbols::parse(bytes) else { return };
    assert!(!symbols.is_empty());
    let text = String::from_utf8_lossy(bytes);
    let addresses = text.lines().filter_map(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok());
    for address in addresses.chain([0, 1 << 63, u64::MAX]) {
        for address in [address, address.wrapping_add(1), address.wrapping_sub(1)] {
            if let Some(function) = symbols.function_at(address) {
                assert!(function.start <= address && !function.module.is_empty());
            }
        }
    }
});
