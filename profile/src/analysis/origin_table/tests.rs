//! Tests of origin tables against plain maps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::data_model::symbols::{Function, Line, Mapping};
use crate::encoding::codec::CodecReader;

const BINARIES: [&str; 3] = ["/bin/shop", "/lib/libc.so.6", ""];
const FILES: [&str; 3] = ["/src/cart/cart.go", "/src/db/db.go", ""];
const FUNCTIONS: [&str; 4] = ["shop/cart.Add", "shop/db.Query", "libc.so.6", ""];
const MAX_BYTES: usize = 1 << 20;

/// Location: its binary, and its functions with file, start line and line, outermost first.
type PlainLocation = (usize, Vec<(usize, usize, i64, i64)>);
/// Name, has_function, file, package, binary and line.
type PlainPlace = (String, bool, String, String, String, i64);

fn any_stacks() -> impl Strategy<Value = Vec<(Vec<PlainLocation>, i64)>> {
    let line = (0..4usize, 0..3usize, 0..2i64, 1..3i64);
    let location = (0..3usize, prop::collection::vec(line, 0..3));
    prop::collection::vec((prop::collection::vec(location, 0..6), -50..50i64), 0..12)
}

fn intern(dictionary: &mut Dictionary, (binary, lines): &PlainLocation) -> u32 {
    let symbols = &mut dictionary.symbols;
    let filename = symbols.strings.intern(BINARIES[*binary]);
    let mapping = match BINARIES[*binary] {
        "" => NO_ENTRY,
        _ => {
            symbols.intern_mapping(Mapping { start: 0, size: 9, offset: 0, filename, build_id: 0, flags: 0 })
        }
    };
    let mut interned = Vec::new();
    for (function, file, start_line, line) in lines.iter().rev() {
        let name = symbols.strings.intern(FUNCTIONS[*function]);
        let filename = symbols.strings.intern(FILES[*file]);
        let start_line = *start_line;
        let function = symbols.intern_function(Function { name, system_name: name, filename, start_line });
        interned.push(Line { function, line: *line, column: 0 });
    }
    symbols.intern_location(mapping, 7, false, &interned)
}

/// Returns a dictionary with stacks, and the totals of some of them.
fn dictionary_of(stacks: &[(Vec<PlainLocation>, i64)]) -> (Dictionary, Vec<i64>) {
    let mut dictionary = Dictionary::default();
    let mut totals = Vec::new();
    for (path, value) in stacks {
        let locations: Vec<u32> =
            path.iter().rev().map(|location| intern(&mut dictionary, location)).collect();
        let stack = dictionary.stacks.intern(&dictionary.symbols, &locations) as usize;
        totals.resize(totals.len().max(stack + 1), 0);
        totals[stack] = *value;
    }
    (dictionary, totals)
}

/// Weights in the plain way.
fn plain_weights(dictionary: &Dictionary, totals: &[i64]) -> BTreeMap<PlainPlace, i128> {
    let symbols = &dictionary.symbols;
    let mut weights = BTreeMap::new();
    for (stack, total) in (0..).zip(totals).filter(|(_, total)| **total != 0) {
        for location in dictionary.stacks.locations(stack) {
            let binary = symbols.known_binary(symbols.locations()[location as usize].mapping);
            let places: Vec<PlainPlace> = match symbols.lines(location) {
                [] => {
                    let name = symbols.binary_name(location);
                    vec![(name, false, String::new(), String::new(), binary, 0)]
                }
                lines => lines.iter().map(|line| plain_place(symbols, line, &binary)).collect(),
            };
            for place in places {
                *weights.entry(place).or_default() += i128::from(*total);
            }
        }
    }
    weights
}

fn plain_place(symbols: &SymbolTable, line: &Line, binary: &str) -> PlainPlace {
    let function = symbols.functions()[line.function as usize];
    let [name, file] = [function.name, function.filename].map(|text| symbols.strings.get(text).to_owned());
    let package = package_name(&name, &file).to_owned();
    let line = if function.start_line == 0 { line.line } else { function.start_line };
    (name, true, file, package, binary.to_owned(), line)
}

fn weights_of(table: &OriginTable) -> BTreeMap<PlainPlace, i128> {
    let text = |index: u32| table.texts[index as usize].to_string();
    let entry = |OriginEntry { place, weight }: &OriginEntry| {
        let OriginPlace { name, has_function, file, package, binary, line } = *place;
        ((text(name), has_function, text(file), text(package), text(binary), line), *weight)
    };
    table.entries.iter().map(entry).collect()
}

fn packed(table: &OriginTable) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.pack(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn tables_equal_plain_maps(stacks in any_stacks(), others in any_stacks()) {
        let (dictionary, totals) = dictionary_of(&stacks);
        let mut expected = plain_weights(&dictionary, &totals);
        let mut table = OriginTable::from_totals(&dictionary, &totals, FrameGrouping::Function);
        prop_assert_eq!(&weights_of(&table), &expected);
        prop_assert!(table.entries.is_sorted_by(|left, right| left.place < right.place));
        let shape = OriginShape::from_dictionary(&dictionary, FrameGrouping::Function);
        prop_assert_eq!(shape.table(&LocationWeights::from_totals(&dictionary, &totals)), table.clone());
        let bytes = packed(&table);
        let read = OriginTable::unpack(&mut CodecReader::new(&bytes), MAX_BYTES).unwrap();
        prop_assert_eq!(&read, &table);
        prop_assert!(OriginTable::unpack(&mut CodecReader::new(&bytes), table.bytes()).is_ok());
        prop_assert!(OriginTable::unpack(&mut CodecReader::new(&bytes), table.bytes() - 1).is_err());

        let (dictionary, totals) = dictionary_of(&others);
        let mut other = OriginTable::from_totals(&dictionary, &totals, FrameGrouping::Function);
        for (place, weight) in plain_weights(&dictionary, &totals) {
            *expected.entry(place).or_default() += weight;
        }
        let first = table.clone();
        table.merge(&other);
        other.merge(&first);
        prop_assert_eq!(&weights_of(&table), &expected);
        prop_assert_eq!(&other, &table, "the order of a merge does not matter");
    }

    #[test]
    fn damaged_tables_are_errors_or_valid(
        stacks in any_stacks(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (dictionary, totals) = dictionary_of(&stacks);
        let mut bytes = packed(&OriginTable::from_totals(&dictionary, &totals, FrameGrouping::Function));
        for (index, byte) in flips {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let mut reader = CodecReader::new(&bytes);
        if let Ok(table) = OriginTable::unpack(&mut reader, MAX_BYTES) {
            prop_assert!(table.bytes() <= MAX_BYTES);
            let again = packed(&table);
            let read = OriginTable::unpack(&mut CodecReader::new(&again), MAX_BYTES).unwrap();
            prop_assert_eq!(read, table);
        }
    }
}
