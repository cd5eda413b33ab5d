//! The profile itself: a header, samples as rows of dense ids, and the dictionary that the ids point into.

use crate::hash::{self, ContentHash, PrehashedMap, vec_memory};
use crate::labels::{LabelSets, SampleLabel};
use crate::stacks::StackTable;
use crate::symbols::SymbolTable;
use crate::timestamps::SampleTimestamps;

/// What a value counts, and in which unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueType {
    /// Such as `cpu` or `alloc_space`.
    pub kind: String,
    /// Such as `nanoseconds` or `bytes`.
    pub unit: String,
}

impl ValueType {
    /// From two texts.
    pub fn new(kind: &str, unit: &str) -> Self {
        ValueType { kind: kind.into(), unit: unit.into() }
    }
    /// The content hash.
    pub fn hash(&self) -> ContentHash {
        hash::hash_list(&[hash::hash_bytes(self.kind.as_bytes()), hash::hash_bytes(self.unit.as_bytes())])
    }
}

/// What a profile says of itself as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileHeader {
    /// The values that every sample carries, in this order.
    pub types: Vec<ValueType>,
    /// What was counted between two samples.
    pub period_type: Option<ValueType>,
    /// How much of it.
    pub period: i64,
    /// When the profile was taken, Unix nanoseconds; 0 if unknown.
    pub time_nanos: i64,
    /// How long it took.
    pub duration_nanos: i64,
    /// Free text.
    pub comments: Vec<String>,
    /// Frames to cut off with all that they called (regular expression).
    pub drop_frames: String,
    /// Frames that are kept though `drop_frames` matches.
    pub keep_frames: String,
    /// Which type to show first.
    pub default_type: String,
    /// Where the profile is documented.
    pub doc_url: String,
}

impl ProfileHeader {
    /// The index of the type to show when none was asked for: the default, else the last, as pprof does.
    pub fn shown_type(&self) -> usize {
        let named = self.types.iter().position(|value| value.kind == self.default_type);
        named.unwrap_or(self.types.len().saturating_sub(1))
    }
}

/// Rows: a stack, a label set and one value per type; and of some the moments at which they were measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Stack ids.
    pub stacks: Vec<u32>,
    /// Label set ids.
    pub labels: Vec<u32>,
    /// Values, row by row.
    pub values: Vec<i64>,
    /// When each was measured, where the profiler says it.
    pub moments: SampleTimestamps,
}

impl Samples {
    /// Bytes that they have taken.
    pub fn memory(&self) -> usize {
        let ids = vec_memory(&self.stacks) + vec_memory(&self.labels);
        ids + vec_memory(&self.values) + self.moments.memory()
    }
    /// How many rows.
    pub fn len(&self) -> usize {
        self.stacks.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }
    /// Stack, label set and values of each row.
    pub fn rows(&self, width: usize) -> impl Iterator<Item = (u32, u32, &[i64])> {
        let ids = self.stacks.iter().zip(&self.labels);
        ids.zip(self.values.chunks_exact(width.max(1)))
            .map(|((&stack, &labels), values)| (stack, labels, values))
    }
    /// Adds a row.
    pub fn push(&mut self, stack: u32, labels: u32, values: &[i64]) {
        self.stacks.push(stack);
        self.labels.push(labels);
        self.values.extend_from_slice(values);
    }
    /// Forgets all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.stacks.clear();
        self.labels.clear();
        self.values.clear();
        self.moments.clear();
    }
}

/// What the ids of samples mean. May be shared by many profiles.
#[derive(Clone, Debug, Default)]
pub struct Dictionary {
    /// Names.
    pub symbols: SymbolTable,
    /// Stacks.
    pub stacks: StackTable,
    /// Labels of samples.
    pub label_sets: LabelSets,
}

impl Dictionary {
    /// How many bytes it has taken. Cheap: it may be asked after every profile.
    pub fn memory(&self) -> usize {
        self.symbols.memory() + self.stacks.memory() + self.label_sets.memory()
    }
    /// Copies one stack from another dictionary.
    pub fn adopt_stack(&mut self, from: &Dictionary, stack: u32) -> u32 {
        let hash = from.stacks.hash(stack);
        if let Some(id) = self.stacks.find(hash) {
            return id;
        }
        let mut path: Vec<u32> = from.stacks.locations(stack).collect();
        for location in &mut path {
            *location = self.symbols.adopt_location(&from.symbols, *location);
        }
        self.stacks.intern_hashed(hash, path.into_iter().rev())
    }
    /// Copies one label set from another dictionary.
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
    /// Returns the names of the frames of a stack as trees have them, root first: consecutive frames of one binary that have
    /// no symbols are one.
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
    /// Interns a stack of plain function names, root first.
    pub fn intern_named_stack<'a>(&mut self, root_first: impl Iterator<Item = &'a str>) -> u32 {
        let mut path: Vec<u32> = root_first.map(|name| self.intern_named_location(name)).collect();
        path.reverse();
        self.stacks.intern(&self.symbols, &path)
    }
    /// The stack that ends at a node of the tree of stacks, [`NO_ENTRY`](crate::symbols::NO_ENTRY) for the empty one, and how
    /// many frames it has.
    pub(crate) fn intern_stack_at(&mut self, node: u32) -> (u32, usize) {
        let path = self.stacks.path(node);
        let hashes: Vec<ContentHash> = path.map(|location| self.symbols.location_hash(location)).collect();
        (self.stacks.intern_leaf(StackTable::stack_hash(&hashes), node), hashes.len())
    }
    /// Interns a function that nothing but its name is known of.
    pub(crate) fn intern_named_location(&mut self, name: &str) -> u32 {
        use crate::symbols::{Function, Line, NO_ENTRY};
        let name = self.symbols.strings.intern(name);
        let function =
            self.symbols.intern_function(Function { name, system_name: 0, filename: 0, start_line: 0 });
        self.symbols.intern_location(NO_ENTRY, 0, false, &[Line { function, line: 0, column: 0 }])
    }
}

/// A profile with its own dictionary.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// What it says of itself.
    pub header: ProfileHeader,
    /// Its rows.
    pub samples: Samples,
    /// What the rows' ids mean.
    pub dictionary: Dictionary,
}

impl Profile {
    /// Sum of one value over all samples, modulo 2^64.
    pub fn total(&self, value: usize) -> i64 {
        let width = self.header.types.len();
        self.samples.rows(width).fold(0i64, |sum, (_, _, values)| sum.wrapping_add(values[value]))
    }
    /// Totals of one value by stack id.
    pub fn totals_by_stack(&self, value: usize) -> Vec<i64> {
        let mut totals = vec![0i64; self.dictionary.stacks.len()];
        for (stack, _, values) in self.samples.rows(self.header.types.len()) {
            let total = &mut totals[stack as usize];
            *total = total.wrapping_add(values[value]);
        }
        totals
    }
    /// Adds up rows of equal stack and labels, and drops rows of nothing but zeros, and all moments.
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
