//! Source lines by weight, of one function or of all functions.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::analysis::top_table::FunctionWeights;
use crate::data_model::model::Dictionary;
use crate::data_model::symbols::{Line, NO_ENTRY};

/// Line of a function, with the names that the profiler gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceLine<'d> {
    /// Name of the function. For an address without a line, the name of its binary.
    pub function: Cow<'d, str>,
    /// Source file; empty if it is not known.
    pub file: &'d str,
    /// Line number, 0 if it is not known.
    pub line: i64,
}

/// Weights of a function and each of its lines. A line that recurs in a stack counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionLines<'d> {
    /// Weights of the function as a whole.
    pub function: FunctionWeights,
    /// Weights of its lines, by file and number. Lines without any weight are left out.
    pub lines: Vec<(SourceLine<'d>, FunctionWeights)>,
}

/// Numbering of the lines of all locations of a dictionary.
pub(crate) struct LineNumbering<'d> {
    /// Source line of each number, sorted by function, file and line.
    pub(crate) places: Vec<SourceLine<'d>>,
    /// Numbers of each location's lines, innermost first.
    pub(crate) of_locations: Vec<Vec<u32>>,
}

/// Returns the weights of the lines of one function, from totals by stack.
pub fn function_lines<'d>(
    dictionary: &'d Dictionary,
    totals: &[i64],
    function: &'d str,
) -> FunctionLines<'d> {
    let numbered = LineNumbering::from_dictionary(dictionary, false, |name| name == function);
    let (weights, function) = numbered.sum_weights(dictionary, totals);
    FunctionLines { function, lines: numbered.into_lines(weights) }
}

/// Returns the weights of all lines of all functions, sorted by function, file and line.
pub fn all_lines<'d>(dictionary: &'d Dictionary, totals: &[i64]) -> Vec<(SourceLine<'d>, FunctionWeights)> {
    let numbered = LineNumbering::from_dictionary(dictionary, false, |_| true);
    let (weights, _) = numbered.sum_weights(dictionary, totals);
    numbered.into_lines(weights)
}

impl<'d> LineNumbering<'d> {
    /// Numbers the lines of wanted functions. Lines of other functions are kept without a number, so that the
    /// innermost line of a location stays the first. An address without symbols has the name of its binary
    /// or, with `addresses`, its address.
    pub(crate) fn from_dictionary(
        dictionary: &'d Dictionary,
        addresses: bool,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Self {
        let symbols = &dictionary.symbols;
        let wanted = |place: SourceLine<'d>| is_wanted(&place.function).then_some(place);
        let places_of = |location: u32| -> Vec<Option<SourceLine<'d>>> {
            let lines = symbols.lines(location);
            if lines.is_empty() {
                let function = match addresses {
                    true => symbols.address_name(location).into(),
                    false => symbols.binary_name(location).into(),
                };
                return vec![wanted(SourceLine { function, ..SourceLine::default() })];
            }
            let place = |line: &Line| {
                let of = &symbols.functions()[line.function as usize];
                let function = symbols.strings.get(of.name);
                let file = symbols.strings.get(of.filename);
                wanted(SourceLine { function: function.into(), file, line: line.line })
            };
            lines.iter().map(place).collect()
        };
        let locations = 0..symbols.locations().len() as u32;
        let mut numbers: BTreeMap<SourceLine<'d>, u32> =
            locations.clone().flat_map(places_of).flatten().map(|place| (place, NO_ENTRY)).collect();
        numbers.values_mut().zip(0..).for_each(|(number, next)| *number = next);
        let number = |place: Option<SourceLine<'d>>| place.map_or(NO_ENTRY, |place| numbers[&place]);
        let of_locations = locations.map(|location| places_of(location).into_iter().map(number).collect());
        let of_locations = of_locations.collect();
        LineNumbering { places: numbers.into_keys().collect(), of_locations }
    }

    /// Returns the weights of all numbers, and the weight of all of them together.
    fn sum_weights(
        &self,
        dictionary: &Dictionary,
        totals: &[i64],
    ) -> (Vec<FunctionWeights>, FunctionWeights) {
        let mut weights = vec![FunctionWeights::default(); self.places.len()];
        let mut whole = FunctionWeights::default();
        // Last stack in which each number was counted.
        let mut counted = vec![NO_ENTRY; self.places.len()];
        for (stack, &total) in (0u32..).zip(totals).filter(|(_, total)| **total != 0) {
            let mut is_leaf = true;
            let mut is_in = false;
            for location in dictionary.stacks.locations(stack) {
                let lines = &self.of_locations[location as usize];
                for &number in lines.iter().filter(|number| **number != NO_ENTRY) {
                    let place = number as usize;
                    is_in = true;
                    if counted[place] != stack {
                        counted[place] = stack;
                        weights[place].cum = weights[place].cum.wrapping_add(total);
                    }
                }
                if is_leaf && let Some(&number) = lines.first().filter(|number| **number != NO_ENTRY) {
                    let place = number as usize;
                    weights[place].flat = weights[place].flat.wrapping_add(total);
                    whole.flat = whole.flat.wrapping_add(total);
                }
                is_leaf = false;
            }
            if is_in {
                whole.cum = whole.cum.wrapping_add(total);
            }
        }
        (weights, whole)
    }

    fn into_lines(self, weights: Vec<FunctionWeights>) -> Vec<(SourceLine<'d>, FunctionWeights)> {
        let all = self.places.into_iter().zip(weights);
        all.filter(|(_, weights)| *weights != FunctionWeights::default()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::analysis::top_table::function_weights;
    use crate::call_tree::tree::Tree;
    use crate::data_model::model::Profile;
    use crate::data_model::symbols::Function;
    use crate::generate::arbitrary_profile;

    /// A location's lines, innermost first: a function and a number.
    type Location<'a> = &'a [(&'a str, i64)];

    /// Of stacks of locations, leaf first.
    fn totals(stacks: &[(&[Location<'_>], i64)]) -> (Dictionary, Vec<i64>) {
        let (mut dictionary, mut totals) = (Dictionary::default(), Vec::new());
        for (locations, total) in stacks {
            let symbols = &mut dictionary.symbols;
            let path: Vec<u32> = locations
                .iter()
                .map(|lines| {
                    let lines: Vec<Line> = lines
                        .iter()
                        .map(|(name, line)| {
                            let (name, filename) =
                                (symbols.strings.intern(name), symbols.strings.intern("a.rs"));
                            let of = Function { name, system_name: name, filename, start_line: 0 };
                            Line { function: symbols.intern_function(of), line: *line, column: 0 }
                        })
                        .collect();
                    symbols.intern_location(NO_ENTRY, 0, false, &lines)
                })
                .collect();
            dictionary.stacks.intern(&dictionary.symbols, &path);
            totals.push(*total);
        }
        (dictionary, totals)
    }

    #[test]
    fn inlined_and_recursive_frames_count_once() {
        let (dictionary, totals) = totals(&[
            (&[&[("f", 7), ("g", 3)], &[("f", 9)], &[("main", 1)]], 10),
            (&[&[("f", 9)], &[("f", 9)], &[("main", 2)]], 4),
            (&[&[("g", 3)], &[("f", 8)]], 1),
        ]);
        let lines = function_lines(&dictionary, &totals, "f");
        let found: Vec<(i64, i64, i64)> =
            lines.lines.iter().map(|(place, weights)| (place.line, weights.flat, weights.cum)).collect();
        assert_eq!(found, [(7, 10, 10), (8, 0, 1), (9, 4, 14)]);
        assert_eq!(lines.function, FunctionWeights { flat: 14, cum: 15 });
        assert_eq!(function_lines(&dictionary, &totals, "nobody"), FunctionLines::default());
    }

    proptest! {
        /// Whatever the stacks, self values of a function's lines add up to its self value in the table of functions, and
        /// no line weighs more than the function.
        #[test]
        fn lines_add_up_to_functions(seed: u64) {
            let profile: Profile = arbitrary_profile(seed);
            let totals: Vec<i64> = profile.totals_by_stack(0).iter().map(|total| total % 1_000_000).collect();
            let tree = Tree::from_totals(&profile.dictionary, &totals);
            let everything = all_lines(&profile.dictionary, &totals);
            for (name, weights) in function_weights(&tree) {
                let of_one = function_lines(&profile.dictionary, &totals, name);
                let self_value: i64 = of_one.lines.iter().map(|(_, line)| line.flat).sum();
                prop_assert_eq!(self_value, of_one.function.flat);
                let of_all: Vec<_> = everything.iter().filter(|(place, _)| place.function == name).cloned().collect();
                prop_assert_eq!(&of_all, &of_one.lines);
                prop_assert_eq!(weights, of_one.function);
            }
        }
    }
}
