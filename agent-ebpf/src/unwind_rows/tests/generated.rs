//! Generated call frame information: rows by page equal the evaluation of the whole section, and single rules.

use proptest::prelude::*;

use super::frame_builder::{FrameBuilder, open_rows};
use super::naive::{NaiveRules, assert_well_formed, paint};
use crate::elf::test_image::{CODE_ADDRESS, FRAME_ADDRESS, TestImage};
use crate::layout::{CfaRule, RbpRule, UnwindRow};

/// Page of [`CODE_ADDRESS`].
const CODE_PAGE: u32 = (CODE_ADDRESS >> 16) as u32;

fn instruction() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (1u8..60).prop_map(|bytes| vec![0x40 | bytes]),
        2 => (0u16..9000).prop_map(|bytes| [vec![0x03], bytes.to_le_bytes().to_vec()].concat()),
        3 => (8u8..120).prop_map(|offset| vec![0x0e, offset]),
        2 => prop_oneof![Just(6u8), Just(7), Just(10), Just(0), Just(40)].prop_map(|register| vec![0x0d, register]),
        1 => (0u8..16, 0u8..100).prop_map(|(register, offset)| vec![0x0c, register, offset]),
        2 => (0u8..40).prop_map(|offset| vec![0x86, offset]),
        1 => Just(vec![0xc6]),
        1 => Just(vec![0x07, 16]),
        1 => Just(vec![0x08, 6]),
        1 => Just(vec![0x0a]),
        1 => Just(vec![0x0b]),
        1 => (0u8..128).prop_map(|offset| vec![0x0f, 5, 0x77, offset, 0x06, 0x23, 8]),
        1 => (0u8..128).prop_map(|offset| vec![0x0f, 3, 0x76, offset, 0x06]),
        1 => Just(vec![0x10, 6, 2, 0x76, 0]),
        1 => Just(vec![0x09, 6, 3]),
        1 => Just(vec![0x2e, 16]),
        1 => Just(vec![0x16, 6, 2, 0x77, 0]),
        1 => Just(vec![0x3c]),
    ]
}

/// Distance from the entry before, length, and instructions.
fn entry() -> impl Strategy<Value = (u32, u32, Vec<Vec<u8>>)> {
    let distance = prop_oneof![3 => Just(0u32), 3 => 1u32..40, 2 => 1u32..9000];
    let length = prop_oneof![1 => Just(0u32), 8 => 1u32..400, 2 => 400u32..80_000];
    (distance, length, prop::collection::vec(instruction(), 0..12))
}

/// Builds entries. One in `nesting` starts inside of the one before.
fn build(entries: &[(u32, u32, Vec<Vec<u8>>)], nesting: usize) -> FrameBuilder {
    let mut builder = FrameBuilder::new();
    let mut end = CODE_ADDRESS;
    let mut previous = CODE_ADDRESS;
    for (index, (distance, length, instructions)) in entries.iter().enumerate() {
        let from = if index % nesting == nesting - 1 { previous } else { end };
        let start = from + u64::from(*distance);
        builder.entry(start, *length, &instructions.concat());
        previous = start;
        end = end.max(start + u64::from(*length));
    }
    builder
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn pages_equal_whole_evaluation(entries in prop::collection::vec(entry(), 1..60), nesting in 2usize..9, with_table: bool) {
        let builder = build(&entries, nesting);
        let naive = NaiveRules::of_section(&builder.bytes, FRAME_ADDRESS);
        let source = open_rows(&builder.image(with_table));
        let mut pages = naive.pages();
        pages.extend([CODE_PAGE - 1, CODE_PAGE + 100]);
        for page in pages {
            let rows = source.rows_of_page(page).unwrap();
            assert_well_formed(&rows);
            let found = paint(&rows);
            let expected = naive.page(page);
            let difference = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            prop_assert_eq!(difference, None, "page {:#x}", page);
        }
    }
}

/// Returns the row at an address of the first page that an entry with these instructions makes.
fn row_of(instructions: &[u8], pc: u16) -> UnwindRow {
    let mut builder = FrameBuilder::new();
    builder.entry(CODE_ADDRESS + 0x100, 0x80, instructions);
    let rows = open_rows(&builder.image(true)).rows_of_page(CODE_PAGE).unwrap();
    *rows.iter().rev().find(|row| row.pc <= pc).unwrap()
}

#[test]
fn rules_of_common_code() {
    let row = |instructions: &[u8]| row_of(instructions, 0x110);
    let expect =
        |cfa_rule, cfa, rbp_rule, rbp_offset8| UnwindRow::new(0x100, cfa_rule, cfa, rbp_rule, rbp_offset8);
    // The entry of a function, after push rbp, and with rbp as frame pointer.
    assert_eq!(row(&[]), expect(CfaRule::Rsp, 8, RbpRule::Same, 0));
    assert_eq!(row(&[0x0e, 16, 0x86, 2]), expect(CfaRule::Rsp, 16, RbpRule::AtCfa, -2));
    assert_eq!(row(&[0x0c, 6, 16, 0x86, 2]), expect(CfaRule::Rbp, 16, RbpRule::AtCfa, -2));
    // Outermost frame.
    assert_eq!(row(&[0x07, 16]), expect(CfaRule::End, 0, RbpRule::Same, 0));
    // Lazily bound calls.
    let plt = [0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    assert_eq!(row(&plt), expect(CfaRule::Plt, 11, RbpRule::Same, 0));
    // A function that realigns its stack, before and after it has its frame.
    assert_eq!(row(&[0x0c, 10, 0]), expect(CfaRule::Register, 10, RbpRule::Same, 0));
    let realigned = [0x10, 6, 2, 0x76, 0, 0x0f, 3, 0x76, 0x78, 0x06];
    assert_eq!(row(&realigned), expect(CfaRule::DerefRbp, 0xfff8, RbpRule::AtRbp, 0));
    // As assembly of ciphers saves its stack pointer.
    let saved = [0x0f, 6, 0x77, 0x98, 1, 0x06, 0x23, 8, 0x86, 3];
    assert_eq!(row(&saved), expect(CfaRule::DerefRsp, 8 << 16 | 152, RbpRule::AtCfa, -3));
    assert_eq!(row(&[0x0c, 3, 24]), expect(CfaRule::Register, 24 << 4 | 3, RbpRule::Same, 0));
    // Saved next to the stack pointer, by an expression.
    assert_eq!(row(&[0x0e, 64, 0x10, 6, 2, 0x77, 16]), expect(CfaRule::Rsp, 64, RbpRule::AtCfa, -6));
    // rbp in another register, or at a distance that does not fit.
    assert_eq!(row(&[0x09, 6, 3]), expect(CfaRule::Rsp, 8, RbpRule::Unknown, 0));
    assert_eq!(row(&[0x86, 0x81, 0x01]), expect(CfaRule::Rsp, 8, RbpRule::Unknown, 0));
    assert_eq!(row(&[0x0e, 0x80, 0x80, 0x04]), expect(CfaRule::Rsp, 65536, RbpRule::Same, 0));
}

#[test]
fn rules_that_do_not_fit_are_unsupported() {
    let unsupported = UnwindRow::new(0x100, CfaRule::Unsupported, 0, RbpRule::Unknown, 0);
    // An index in r9, a load through rax, a vector register, another place of the return address.
    assert_eq!(row_of(&[0x0f, 9, 0x77, 8, 0x79, 0, 0x38, 0x1e, 0x22, 0x06, 0x96], 0x110), unsupported);
    assert_eq!(row_of(&[0x0f, 3, 0x70, 0, 0x06], 0x110), unsupported);
    assert_eq!(row_of(&[0x0d, 17], 0x110), unsupported);
    assert_eq!(row_of(&[0x90, 2], 0x110), unsupported);
    // A program that breaks off has the rules up to there.
    assert_eq!(row_of(&[0x44, 0x3c], 0x102).cfa, 8);
    let broken = row_of(&[0x44, 0x0e, 16, 0x44, 0x3c], 0x110);
    assert_eq!(broken.rule, unsupported.rule);
}

#[test]
fn signal_frame_is_recognized_by_its_rules() {
    let mut builder = FrameBuilder::new();
    builder.common(b"zRS\0", &[]);
    let rip = [0x10, 16, 3, 0x77, 0xa8, 0x01];
    let signal = [&[0x0f, 4, 0x77, 0xa0, 0x01, 0x06][..], &rip].concat();
    builder.entry(CODE_ADDRESS, 16, &signal);
    // The mark alone tells only that the address is no return address.
    builder.entry(CODE_ADDRESS + 16, 16, &[0x0c, 7, 16, 0x90, 1]);
    let rows = open_rows(&builder.image(true)).rows_of_page(CODE_PAGE).unwrap();
    assert_eq!(rows[0], UnwindRow::new(0, CfaRule::Signal, 0, RbpRule::Same, 0));
    assert_eq!(rows[1], UnwindRow::new(16, CfaRule::Rsp, 16, RbpRule::Same, 0));
    assert_eq!(rows[2], UnwindRow::new(32, CfaRule::None, 0, RbpRule::Same, 0));
}

#[test]
fn code_without_information_is_known_by_its_bytes() {
    let mut builder = FrameBuilder::new();
    builder.entry(CODE_ADDRESS + 0x200, 0x100, &[]);
    let mut image = builder.image(true);
    image.entry = CODE_ADDRESS;
    // Calls the function behind it.
    image.code[0x16 - 5..0x16].copy_from_slice(&[0xe8, 0, 0, 0, 0]);
    let signal_return = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    image.code[0x80..0x89].copy_from_slice(&signal_return);
    // Information goes before bytes.
    image.code[0x280..0x289].copy_from_slice(&signal_return);
    let rows = open_rows(&image).rows_of_page(CODE_PAGE).unwrap();
    let rules: Vec<(u16, u8)> = rows.iter().map(|row| (row.pc, row.rule & 15)).collect();
    let [end, none, signal, rsp] =
        [CfaRule::End, CfaRule::None, CfaRule::Signal, CfaRule::Rsp].map(|rule| rule as u8);
    assert_eq!(rules, [(0, end), (0x16, none), (0x80, signal), (0x89, none), (0x200, rsp), (0x300, none)]);
}

#[test]
fn debug_frame_fills_gaps() {
    let mut builder = FrameBuilder::new();
    builder.entry(CODE_ADDRESS, 0x100, &[0x0e, 16]);
    let mut section = vec![];
    let common = [0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0];
    section.extend((common.len() as u32).to_le_bytes());
    section.extend(common);
    for (start, length) in [(CODE_ADDRESS + 0x80, 0x100u64), (0, 0x100), (CODE_ADDRESS + 0x1_0000, 4)] {
        section.extend(24u32.to_le_bytes());
        section.extend(0u32.to_le_bytes());
        section.extend(start.to_le_bytes());
        section.extend(length.to_le_bytes());
        section.extend([0x0e, 24, 0, 0]);
    }
    let sections = vec![(".debug_frame", 1, 0, 0, section)];
    let source = open_rows(&TestImage { sections, ..builder.image(true) });
    let rows = source.rows_of_page(CODE_PAGE).unwrap();
    let cfas: Vec<(u16, i32)> = rows.iter().map(|row| (row.pc, row.cfa)).collect();
    assert_eq!(cfas, [(0, 16), (0x100, 24), (0x180, 0)]);
    assert_eq!(source.rows_of_page(CODE_PAGE + 1).unwrap()[0].cfa, 24);
    assert!(source.memory_bytes() > open_rows(&builder.image(true)).memory_bytes());
}

#[test]
fn small_file_lists_all_pages_of_code() {
    let mut builder = FrameBuilder::new();
    builder.entry(CODE_ADDRESS, 0x100, &[]);
    let source = open_rows(&builder.image(true));
    assert!(source.is_small());
    assert_eq!(source.all_pages(), [CODE_PAGE, CODE_PAGE + 1, CODE_PAGE + 2]);
    assert_eq!(source.rows_of_page(CODE_PAGE + 1).unwrap(), []);
    (0..8192).for_each(|index| builder.entry(CODE_ADDRESS + 0x100 + index, 1, &[]));
    let source = open_rows(&builder.image(true));
    assert!(!source.is_small());
    assert_eq!(source.all_pages(), Vec::<u32>::new());
}
