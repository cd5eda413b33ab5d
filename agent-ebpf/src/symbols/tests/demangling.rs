//! Readable names.

use proptest::prelude::*;

use crate::symbols::demangle::short_go_name;
use crate::symbols::{MAX_NAME_BYTES, readable_name};

#[test]
fn symbols_of_rust_and_cpp_become_readable() {
    let cases = [
        ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
        ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
        ("_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<int, std::allocator<int> >::push_back(int&&)"),
        ("_ZN3foo3barEv.cold", "foo::bar().cold"),
        ("_ZN3foo3barEv.part.0", "foo::bar().part.0"),
        ("_ZN4core3ptr4drop17h0123456789abcdefE.llvm.1234", "core::ptr::drop.llvm.1234"),
        ("qsort_r", "qsort_r"),
        ("msort_with_tmp.part.0", "msort_with_tmp.part.0"),
        ("_Z", "_Z"),
        ("", ""),
    ];
    for (symbol, expected) in cases {
        assert_eq!(readable_name(symbol), expected);
    }
}

#[test]
fn names_of_generic_go_functions_have_no_types() {
    assert_eq!(short_go_name("main.sum[go.shape.int]"), "main.sum[...]");
    assert_eq!(short_go_name("a.(*Map[go.shape.[]int,go.shape.int]).Get"), "a.(*Map[...]).Get");
    assert_eq!(short_go_name("main.odd]name["), "main.odd]name[");
    assert_eq!(short_go_name("net/http.(*conn).serve"), "net/http.(*conn).serve");
}

#[test]
fn long_names_end_in_ellipsis() {
    let long = "ä".repeat(MAX_NAME_BYTES);
    let name = readable_name(&long);
    assert!(name.len() <= MAX_NAME_BYTES && name.ends_with("ä…"));
    let exact = "a".repeat(MAX_NAME_BYTES);
    assert_eq!(readable_name(&exact), exact);
}

#[test]
fn short_symbol_with_huge_name_is_cut() {
    // Each back reference doubles the name.
    let mut symbol = "_Z1fI1aS_".to_owned();
    for _ in 0..30 {
        symbol.push_str("NS_IS0_S0_E");
    }
    assert!(readable_name(&symbol).len() <= MAX_NAME_BYTES);
    let mut nested = "_RNvC1a".to_owned();
    nested.insert_str(3, &"I".repeat(1000));
    assert!(readable_name(&nested).len() <= MAX_NAME_BYTES);
    let pairs = format!("_Z1f{}", "St4pairI".repeat(400));
    assert_eq!(readable_name(&pairs), pairs);
}

#[test]
fn doubling_types_of_cpp_end_early() {
    // Substitution n is a pair of two substitutions n - 1: 2^40 names of `int`.
    let mut symbol = "_Z1fSt4pairIiiE".to_owned();
    let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for digit in digits.iter().take(30) {
        let last = *digit as char;
        symbol.push_str(&format!("St4pairIS{last}_S{last}_E"));
    }
    assert!(readable_name(&symbol).len() <= MAX_NAME_BYTES);
}

proptest! {
    #[test]
    fn any_symbol_gets_a_bounded_name(
        prefix in prop::sample::select(vec!["_ZN", "_R", "_Z", "", "_RNvNt", "_ZTV"]),
        rest in "[A-Za-z0-9_.$@]{0,200}",
    ) {
        let name = readable_name(&format!("{prefix}{rest}"));
        prop_assert!(name.len() <= MAX_NAME_BYTES);
    }

    #[test]
    fn any_text_gets_a_bounded_name(text in ".{0,100}") {
        prop_assert!(readable_name(&text).len() <= MAX_NAME_BYTES);
        prop_assert!(short_go_name(&text).len() <= MAX_NAME_BYTES);
    }
}
