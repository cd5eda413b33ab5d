//! Data model of a profile: a header, samples as rows of dense ids, and the dictionary of the ids.

use crate::data_model::labels::{LabelSets, SampleLabel};
use crate::data_model::stacks::StackTable;
use crate::data_model::symbols::SymbolTable;
use crate::data_model::timestamps::SampleTimestamps;
use crate::encoding::hash::{self, ContentHash, PrehashedMap, vec_memory};

/// Type and unit of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueType {
    /// Type of the value, such as `cpu` or `alloc_space`.
    pub kind: String,
    /// Unit of the value, such as `nanoseconds` or `bytes`.
    pub unit: String,
}

impl ValueType {
    /// Creates a value type from its type and unit.
    pub fn new(kind: &str, unit: &str) -> Self {
        ValueType { kind: kind.into(), unit: unit.into() }
    }
    /// Returns the content hash of type and unit.
    pub fn hash(&self) -> ContentHash {
        hash::hash_list(&[hash::hash_bytes(self.kind.as_bytes()), hash::hash_bytes(self.unit.as_bytes())])
    }
}

/// Metadata of a whole profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileHeader {
    /// Value types of every sample, in column order.
    pub types: Vec<ValueType>,
    /// Type and unit of the sampling period.
    pub period_type: Option<ValueType>,
    /// Sampling period in the unit of `period_type`.
    pub period: i64,
    /// Start of the profile in Unix nanoseconds; 0 if unknown.
    pub time_nanos: i64,
    /// Duration of the profile in nanoseconds.
    pub duration_nanos: i64,
    /// Comments as free text.
    pub comments: Vec<String>,
    /// Regular expression of frames to prune together with their callees.
    pub drop_frames: String,
    /// Regular expression of frames that are kept although `drop_frames` matches.
    pub keep_frames: String,
    /// Value type to show by default; may be empty.
    pub default_type: String,
    /// Link to documentation of the profile.
    pub doc_url: String,
}

impl ProfileHeader {
    /// Returns the index of the value type to show by default: `default_type`, or the last as in pprof.
    pub fn shown_type(&self) -> usize {
        let named = self.types.iter().position(|value| value.kind == self.default_type);
        named.unwrap_or(self.types.len().saturating_sub(1))
    }
}

/// Rows of a profile: a stack, a label set, one value per type, and optional timestamps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Stack id of each row.
    pub stacks: Vec<u32>,
    /// Label set id of each row.
    pub labels: Vec<u32>,
    /// Values of all rows, row by row.
    pub values: Vec<i64>,
    /// Timestamps of the samples, if the profiler recorded them.
    pub moments: SampleTimestamps,
}

impl Samples {
    /// Returns the allocated memory in bytes.
    pub fn memory(&self) -> usize {
        let ids = vec_memory(&self.stacks) + vec_memory(&self.labels);
        ids + vec_memory(&self.values) + self.moments.memory()
    }
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.stacks.len()
    }
    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }
    /// Returns an iterator over the rows: stack, label set and values.
    pub fn rows(&self, width: usize) -> impl Iterator<Item = (u32, u32, &[i64])> {
        let ids = self.stacks.iter().zip(&self.labels);
        ids.zip(self.values.chunks_exact(width.max(1)))
            .map(|((&stack, &labels), values)| (stack, labels, values))
    }
    /// Appends a row without timestamps.
    pub fn push(&mut self, stack: u32, labels: u32, values: &[i64]) {
        self.stacks.push(stack);
        self.labels.push(labels);
        self.values.extend_from_slice(values);
    }
    /// Removes all rows and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.stacks.clear();
        self.labels.clear();
        self.values.clear();
        self.moments.clear();
    }
}

/// Dictionary of the ids in samples: symbols, stacks and label sets. Profiles may share one.
#[derive(Clone, Debug, Default)]
pub struct Dictionary {
    /// Strings, functions, locations and mappings.
    pub symbols: SymbolTable,
    /// Stacks as paths of locations.
    pub stacks: StackTable,
    /// Label sets of samples.
    pub label_sets: LabelSets,
}

impl Dictionary {
    /// Returns the allocated memory in bytes. Cheap enough to call after every profile.
    pub fn memory(&self) -> usize {
        self.symbols.memory() + self.stacks.memory() + self.label_sets.memory()
    }
    /// Copies a label set from another dictionary and returns its id here.
    pub fn adopt_labels(&mut self, from: &Dictionary, set: u32) -> u32 {
        let strings = &mut self.symbols.strings;
        let mut copy = |id: u32| strings.intern(from.symbols.strings.get(id));
        let labels: Vec<SampleLabel> = from
            .label_sets
            .get(set)
            .iter()
            .map(|label| SampleLabel {
                key: copy(label.key),
                text: copy(label.text),
                number: label.number,
                unit: copy(label.unit),
            })
            .collect();
        self.label_sets.intern(&self.symbols.strings, &labels)
    }
    /// Returns the frame names of a stack as trees show them, root first. Consecutive frames of one binary
    /// without symbols become one name.
    pub fn frame_names(&self, stack: u32) -> Vec<String> {
        let mut names = Vec::new();
        let mut last_binary = None;
        for location in self.stacks.locations(stack) {
            let lines = self.symbols.lines(location);
            names.extend(lines.iter().map(|line| self.symbols.function_name(line.function).to_owned()));
            let binary = lines.is_empty().then(|| self.symbols.binary_name(location));
            if binary != last_binary {
                names.extend(binary.clone());
            }
            last_binary = binary;
        }
        names.reverse();
        names
    }
    /// Interns a stack of plain function names, root first, and returns its id.
    pub fn intern_named_stack<'a>(&mut self, root_first: impl Iterator<Item = &'a str>) -> u32 {
        let mut path: Vec<u32> = root_first.map(|name| self.intern_named_location(name)).collect();
        path.reverse();
        self.stacks.intern(&self.symbols, &path)
    }
    /// Interns the stack that ends at a node of the stack trie. Returns its id and its number of frames. The
    /// node of the empty stack is [`NO_ENTRY`](crate::data_model::symbols::NO_ENTRY).
    pub(crate) fn intern_stack_at(&mut self, node: u32) -> (u32, usize) {
        let path = self.stacks.path(node);
        let hashes: Vec<ContentHash> = path.map(|location| self.symbols.location_hash(location)).collect();
        (self.stacks.intern_leaf(StackTable::stack_hash(&hashes), node), hashes.len())
    }
    /// Interns a location of a function of which only the name is known.
    pub(crate) fn intern_named_location(&mut self, name: &str) -> u32 {
        use crate::data_model::symbols::{Function, Line, NO_ENTRY};
        let name = self.symbols.strings.intern(name);
        let function =
            self.symbols.intern_function(Function { name, system_name: 0, filename: 0, start_line: 0 });
        self.symbols.intern_location(NO_ENTRY, 0, false, &[Line { function, line: 0, column: 0 }])
    }
}

/// Profile with its own dictionary.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Metadata of the profile.
    pub header: ProfileHeader,
    /// Rows of the profile.
    pub samples: Samples,
    /// Dictionary of the ids in `samples`.
    pub dictionary: Dictionary,
}

impl Profile {
    /// Returns the sum of one value over all samples, modulo 2^64.
    pub fn total(&self, value: usize) -> i64 {
        let width = self.header.types.len();
        self.samples.rows(width).fold(0i64, |sum, (_, _, values)| sum.wrapping_add(values[value]))
    }
    /// Returns the sum of the absolute values of one value over all samples, saturated. No sum over samples wraps if this
    /// one fits in 63 bits.
    pub fn magnitude(&self, value: usize) -> u64 {
        let rows = self.samples.rows(self.header.types.len());
        rows.fold(0, |sum, (_, _, values)| sum.saturating_add(values[value].unsigned_abs()))
    }
    /// Returns the sum of one value for each stack id, modulo 2^64.
    pub fn totals_by_stack(&self, value: usize) -> Vec<i64> {
        let mut totals = vec![0i64; self.dictionary.stacks.len()];
        for (stack, _, values) in self.samples.rows(self.header.types.len()) {
            let total = &mut totals[stack as usize];
            *total = total.wrapping_add(values[value]);
        }
        totals
    }
    /// Sums rows of equal stack and labels, then drops rows with only zeros. Drops all timestamps.
    pub fn compact(&mut self) {
        let width = self.header.types.len();
        let mut places: PrehashedMap<u64, usize> = PrehashedMap::default();
        let mut merged = Samples::default();
        for (stack, labels, values) in self.samples.rows(width) {
            let key = u64::from(stack) << 32 | u64::from(labels);
            let place = *places.entry(key).or_insert_with(|| {
                merged.push(stack, labels, &vec![0; width]);
                merged.len() - 1
            });
            for (sum, value) in merged.values[place * width..][..width].iter_mut().zip(values) {
                *sum = sum.wrapping_add(*value);
            }
        }
        self.samples.clear();
        for (stack, labels, values) in merged.rows(width) {
            if values.iter().any(|&value| value != 0) {
                self.samples.push(stack, labels, values);
            }
        }
    }
}
