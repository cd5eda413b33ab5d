//! Decoder of flame graphs in the JSON format of older clients and servers: responses of `/pyroscope/render`
//! and downloaded files.
//!
//! ```text
//!  level 0   total ─────────────────────────────     A bar lies below its caller. A caller's self value lies
//!  level 1   main ──────────────────  idle ─────     left of its callees. Each bar is four numbers: distance
//!  level 2        work ──────                        from the bar to the left, total, self value, name.
//! ```
//! A truncated graph has bars named `other`, which become functions of that name. The decoder guesses
//! nothing: it rejects a graph with contradictory totals.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::call_tree::flamegraph::ROOT_NAME;
use crate::data_model::model::{Profile, ValueType};
use crate::data_model::symbols::NO_ENTRY;
use crate::encoding::hash::PrehashedMap;
use crate::formats::json::{
    self, JsonError, LimitGuard, ListVisitor, ObjectFields, ObjectVisitor, remark, set_once, skip_value,
};
use crate::formats::limits::{ExpandedFrameCounter, OverLimitError};
use crate::formats::pprof::DecodeLimits;
use crate::formats::sparse_values::{self, SparseCell, SparseRowsError};

/// Supported version of the format.
const FORMAT_VERSION: i64 = 1;
/// Numbers per bar of a single graph.
const NUMBERS_PER_BAR: usize = 4;
/// Maximum number of bars per permitted name. Until all bars are read, a bar takes about ten times its bytes
/// of text.
const MAX_BARS_PER_NAME: usize = 4;
/// Sample rate of graphs whose samples are nanoseconds of processor time.
const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Longest name, in bytes, that counts as the name of a value type.
const MAX_TYPE_NAME_BYTES: usize = 100;

/// Reason why a flame graph was rejected. Levels and bars count from 0.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FlamebearerError {
    /// The document is not JSON of the expected structure.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The document has an unsupported version.
    #[error("version is {0}; the supported version is {FORMAT_VERSION}")]
    Version(i64),
    /// The document compares two graphs.
    #[error(
        "metadata.format is {0:?}, a comparison of two profiles; export each profile separately, as \"single\""
    )]
    NotSingle(String),
    /// The numbers of a level are not a multiple of a bar's numbers.
    #[error("flamebearer.levels[{level}] has {numbers} numbers; a bar has {NUMBERS_PER_BAR}")]
    Numbers {
        /// Index of the level.
        level: usize,
        /// Number of numbers in the level.
        numbers: usize,
    },
    /// A bar is invalid.
    #[error("flamebearer.levels[{level}], bar {bar}: {why}")]
    Bar {
        /// Index of the level.
        level: usize,
        /// Index of the bar in its level.
        bar: usize,
        /// Reason why the bar is invalid.
        why: BarError,
    },
    /// The stated total differs from the total of level 0.
    #[error("flamebearer.numTicks is {ticks}, but the bars of level 0 have {total}")]
    Ticks {
        /// Total as stated by the document.
        ticks: i64,
        /// Total of the bars of level 0.
        total: i64,
    },
    /// The sum of equal stacks exceeds 63 bits.
    #[error("the bars of one stack add up to more than 63 bits")]
    TooLarge,
    /// The graph exceeds a limit.
    #[error(transparent)]
    OverLimit(#[from] OverLimitError),
}

/// Reason why a bar is invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BarError {
    /// A number is negative.
    #[error("{what} is {value}, below 0")]
    Negative {
        /// Name of the number.
        what: &'static str,
        /// Value of the number.
        value: i64,
    },
    /// The index of the name is out of range.
    #[error("name index {name} is out of range, flamebearer.names has {names} entries")]
    NoName {
        /// Index of the name.
        name: i64,
        /// Number of names.
        names: usize,
    },
    /// The position or the end exceeds 63 bits.
    #[error("end exceeds 63 bits")]
    TooFar,
    /// The bar lies within no bar of the level above.
    #[error("range {start} to {end} is within no bar of the level above")]
    NoCaller {
        /// Start of the bar.
        start: i64,
        /// End of the bar.
        end: i64,
    },
    /// The total differs from the sum of its parts.
    #[error("total is {total}, but the self value and the bars below add up to {parts}")]
    Sum {
        /// Total of the bar.
        total: i64,
        /// Sum of its self value and of the bars below it.
        parts: i128,
    },
}

/// Decodes the graph of a single profile. Each bar's self value becomes a sample.
pub fn parse(bytes: &[u8], limits: &DecodeLimits) -> Result<Profile, FlamebearerError> {
    let guard = LimitGuard::new(limits);
    let FlamebearerDocument { version, bars, metadata } =
        json::read(bytes, &guard, ObjectVisitor(FlamebearerFields::new(&guard)))?;
    if let Some(version) = version.filter(|&version| version != FORMAT_VERSION) {
        return Err(FlamebearerError::Version(version));
    }
    match metadata.format.as_deref() {
        None | Some("single") => {}
        Some(other) => {
            return Err(FlamebearerError::NotSingle(other.chars().take(MAX_TYPE_NAME_BYTES).collect()));
        }
    }
    let mut profile = Profile::default();
    let self_values = bars.self_values(&mut profile)?;
    let mut written_out = ExpandedFrameCounter::default();
    let mut cells = Vec::with_capacity(self_values.len());
    for (node, value) in self_values {
        let (stack, depth) = profile.dictionary.intern_stack_at(node);
        written_out.add_stack(depth, limits)?;
        cells.push(SparseCell { stack, labels: 0, column: 0, value });
    }
    profile.samples = sparse_values::rows_from_cells(cells, 1, limits).map_err(|error| match error {
        SparseRowsError::Over(over) => FlamebearerError::OverLimit(over),
        SparseRowsError::Overflow(_) => FlamebearerError::TooLarge,
    })?;
    metadata.set_value_type(&mut profile);
    Ok(profile)
}

// === bars ===

#[derive(Default)]
struct ParsedFlamebearer {
    names: Vec<String>,
    levels: Vec<Vec<i64>>,
    ticks: Option<i64>,
}

/// Bar with its computed position.
struct PlacedBar {
    bar: u32,
    node: u32,
    start: i64,
    end: i64,
    /// Remainder of the total, less its self value and the callees read so far.
    left: i64,
}

impl ParsedFlamebearer {
    /// Returns the self values by node of the stack trie.
    fn self_values(&self, profile: &mut Profile) -> Result<Vec<(u32, i64)>, FlamebearerError> {
        let dictionary = &mut profile.dictionary;
        let locations: Vec<u32> =
            self.names.iter().map(|name| dictionary.intern_named_location(name)).collect();
        let mut self_values: PrehashedMap<u32, i64> = PrehashedMap::default();
        let mut above: Vec<PlacedBar> = Vec::new();
        for (level, numbers) in self.levels.iter().enumerate() {
            let (bars, rest) = numbers.as_chunks::<NUMBERS_PER_BAR>();
            if !rest.is_empty() {
                return Err(FlamebearerError::Numbers { level, numbers: numbers.len() });
            }
            let mut placed = Vec::with_capacity(bars.len());
            let mut end = 0;
            let mut callers = above.iter_mut().peekable();
            for (bar, &numbers) in bars.iter().enumerate() {
                let bad = |why| FlamebearerError::Bar { level, bar, why };
                let [_, total, value, name] = numbers;
                let start = self.check_bar(numbers, end).map_err(bad)?;
                end = start + total;
                // An empty bar has no position.
                if total == 0 && value == 0 {
                    continue;
                }
                let is_root = level == 0 && bars.len() == 1 && self.names[name as usize] == ROOT_NAME;
                let parent = if level == 0 {
                    NO_ENTRY
                } else {
                    while callers.next_if(|caller| caller.end <= start).is_some() {}
                    let caller =
                        callers.peek_mut().filter(|caller| caller.start <= start && end <= caller.end);
                    let caller = caller.ok_or_else(|| bad(BarError::NoCaller { start, end }))?;
                    caller.left -= total;
                    caller.node
                };
                let node = if is_root {
                    NO_ENTRY
                } else {
                    dictionary.stacks.intern_child(parent, locations[name as usize])
                };
                // Adjacent bars of one name are one function. Their sum cannot exceed the total, so it does
                // not overflow.
                let sum = self_values.entry(node).or_default();
                *sum = sum.wrapping_add(value);
                placed.push(PlacedBar { bar: bar as u32, node, start, end, left: total - value });
            }
            if level == 0 {
                self.check_ticks(placed.iter().map(|bar| bar.end - bar.start).sum())?;
            } else {
                check_level_totals(level - 1, &above)?;
            }
            above = placed;
        }
        check_level_totals(self.levels.len().saturating_sub(1), &above)?;
        if self.levels.is_empty() {
            self.check_ticks(0)?;
        }
        Ok(self_values.into_iter().collect())
    }

    /// Checks a bar's numbers and returns its start. `end` is the end of the bar to the left.
    fn check_bar(
        &self,
        [distance, total, value, name]: [i64; NUMBERS_PER_BAR],
        end: i64,
    ) -> Result<i64, BarError> {
        let numbers = [("distance", distance), ("total", total), ("self value", value)];
        if let Some(&(what, value)) = numbers.iter().find(|(_, value)| *value < 0) {
            return Err(BarError::Negative { what, value });
        }
        let names = self.names.len();
        if usize::try_from(name).ok().is_none_or(|name| name >= names) {
            return Err(BarError::NoName { name, names });
        }
        let start = end.checked_add(distance).ok_or(BarError::TooFar)?;
        start.checked_add(total).map(|_| start).ok_or(BarError::TooFar)
    }

    fn check_ticks(&self, total: i64) -> Result<(), FlamebearerError> {
        match self.ticks {
            Some(ticks) if ticks != total => Err(FlamebearerError::Ticks { ticks, total }),
            _ => Ok(()),
        }
    }
}

/// Checks that the total of each bar equals its self value plus the bars below it.
fn check_level_totals(level: usize, bars: &[PlacedBar]) -> Result<(), FlamebearerError> {
    let bad = bars.iter().find(|bar| bar.left != 0);
    bad.map_or(Ok(()), |&PlacedBar { bar, start, end, left, .. }| {
        let total = end - start;
        let bar = bar as usize;
        let parts = i128::from(total) - i128::from(left);
        Err(FlamebearerError::Bar { level, bar, why: BarError::Sum { total, parts } })
    })
}

// === what is measured ===

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FlamebearerInputMetadata {
    format: Option<String>,
    #[serde(deserialize_with = "remark")]
    sample_rate: i64,
    units: Option<String>,
    name: Option<String>,
}

impl FlamebearerInputMetadata {
    /// Sets the value type. `units` and `sampleRate` describe the display. The name may be that of the type
    /// or any other text.
    fn set_value_type(&self, profile: &mut Profile) {
        let units = self.units.as_deref().unwrap_or_default();
        let rate = self.sample_rate;
        let is_time = units == "samples" && rate == NANOS_PER_SECOND;
        let (kind, unit) = match units {
            _ if is_time => ("cpu", "nanoseconds"),
            "" | "samples" => ("samples", "count"),
            "objects" => ("objects", "count"),
            "goroutines" => ("goroutine", "count"),
            "lock_samples" => ("contentions", "count"),
            "lock_nanoseconds" => ("delay", "nanoseconds"),
            "bytes" => ("space", "bytes"),
            "nanoseconds" => ("wall", "nanoseconds"),
            other => ("samples", other),
        };
        // The type of sample counts is always `samples`, regardless of the name.
        let is_counted = matches!(units, "" | "samples") && !is_time;
        let name = self.name.as_deref().filter(|name| !is_counted && is_type_name(name));
        profile.header.types = vec![ValueType::new(name.unwrap_or(kind), unit)];
        if units == "samples" && !is_time && rate > 0 {
            profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
            profile.header.period = NANOS_PER_SECOND / rate;
        }
    }
}

fn is_type_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MAX_TYPE_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_letter)
}

// === the pass over a document ===

#[derive(Default)]
struct FlamebearerDocument {
    version: Option<i64>,
    bars: ParsedFlamebearer,
    metadata: FlamebearerInputMetadata,
}

struct FlamebearerFields<'a> {
    guard: &'a LimitGuard<'a>,
    version: Option<i64>,
    bars: Option<ParsedFlamebearer>,
    metadata: Option<Option<FlamebearerInputMetadata>>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum FieldKey {
    Version,
    Flamebearer,
    Metadata,
    #[serde(other)]
    Other,
}

impl<'a> FlamebearerFields<'a> {
    fn new(guard: &'a LimitGuard<'a>) -> Self {
        FlamebearerFields { guard, version: None, bars: None, metadata: None }
    }
}

impl<'de> ObjectFields<'de> for FlamebearerFields<'_> {
    type FieldKey = FieldKey;
    type Read = FlamebearerDocument;

    const OBJECT_DESCRIPTION: &'static str = "a flame graph";

    fn read_field<A: MapAccess<'de>>(&mut self, key: FieldKey, map: &mut A) -> Result<(), A::Error> {
        match key {
            FieldKey::Version => set_once(&mut self.version, "version", map.next_value()?),
            FieldKey::Flamebearer => set_once(
                &mut self.bars,
                "flamebearer",
                map.next_value_seed(ObjectVisitor(BarsFields::new(self.guard)))?,
            ),
            FieldKey::Metadata => set_once(&mut self.metadata, "metadata", map.next_value()?),
            FieldKey::Other => skip_value(map),
        }
    }

    fn finish<E: Error>(self) -> Result<FlamebearerDocument, E> {
        let bars = self.bars.ok_or_else(|| E::missing_field("flamebearer"))?;
        let metadata = self.metadata.flatten().unwrap_or_default();
        Ok(FlamebearerDocument { version: self.version, bars, metadata })
    }
}

struct BarsFields<'a> {
    guard: &'a LimitGuard<'a>,
    names: Option<Vec<String>>,
    levels: Option<Vec<Vec<i64>>>,
    ticks: Option<Option<i64>>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum BarsKey {
    Names,
    Levels,
    NumTicks,
    #[serde(other)]
    Other,
}

impl<'a> BarsFields<'a> {
    fn new(guard: &'a LimitGuard<'a>) -> Self {
        BarsFields { guard, names: None, levels: None, ticks: None }
    }
}

/// Visitor of the numbers of all levels.
struct LevelsVisitor<'a>(&'a LimitGuard<'a>);

impl<'de> DeserializeSeed<'de> for LevelsVisitor<'_> {
    type Value = Vec<Vec<i64>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for LevelsVisitor<'_> {
    type Value = Vec<Vec<i64>>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of levels")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let LevelsVisitor(guard) = self;
        let mut levels = Vec::new();
        let mut numbers = 0;
        loop {
            let mut level = Vec::new();
            let take = |number: i64| {
                level.push(number);
                numbers += 1;
                guard.check_limit(
                    "bars",
                    numbers / NUMBERS_PER_BAR,
                    guard.limits.entries.saturating_mul(MAX_BARS_PER_NAME),
                )
            };
            if list.next_element_seed(ListVisitor::new("numbers of bars", take))?.is_none() {
                return Ok(levels);
            }
            // Level 0 is the root and does not count as a frame.
            guard
                .check_limit("frames in a stack", levels.len(), guard.limits.depth)
                .map_err(A::Error::custom)?;
            levels.push(level);
        }
    }
}

impl<'de> ObjectFields<'de> for BarsFields<'_> {
    type FieldKey = BarsKey;
    type Read = ParsedFlamebearer;

    const OBJECT_DESCRIPTION: &'static str = "an object with names and levels";

    fn read_field<A: MapAccess<'de>>(&mut self, key: BarsKey, map: &mut A) -> Result<(), A::Error> {
        let guard = self.guard;
        let limits = self.guard.limits;
        match key {
            BarsKey::Names => {
                let mut names = Vec::new();
                let take = |name: String| {
                    names.push(name);
                    guard.check_limit("names", names.len(), limits.entries)
                };
                map.next_value_seed(ListVisitor::new("names", take))?;
                set_once(&mut self.names, "names", names)
            }
            BarsKey::Levels => {
                set_once(&mut self.levels, "levels", map.next_value_seed(LevelsVisitor(guard))?)
            }
            BarsKey::NumTicks => set_once(&mut self.ticks, "numTicks", map.next_value()?),
            BarsKey::Other => skip_value(map),
        }
    }

    fn finish<E: Error>(self) -> Result<ParsedFlamebearer, E> {
        Ok(ParsedFlamebearer {
            names: self.names.ok_or_else(|| E::missing_field("names"))?,
            levels: self.levels.ok_or_else(|| E::missing_field("levels"))?,
            ticks: self.ticks.flatten(),
        })
    }
}

#[cfg(test)]
mod tests;
