//! Flame graphs as JSON of older clients and servers, read: what `/pyroscope/render` answers and what people download.
//!
//! ```text
//!  level 0   total ─────────────────────────────     bars lie where their callers lie, a caller's own value
//!  level 1   main ──────────────────  idle ─────     left of its callees. Each is four numbers: how far it is
//!  level 2        work ──────                        from the one to the left, total, own value, name.
//! ```
//! A graph that was cut has bars named `other`, which become functions of that name. Nothing may be guessed: where
//! the totals of a graph contradict each other, it is refused.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::bounds::{OverLimit, WrittenOut};
use crate::flamegraph::TOTAL;
use crate::hash::HashedMap;
use crate::json::{self, Each, Fields, Guard, JsonError, Object, once, pass_over, remark};
use crate::model::{Profile, ValueType};
use crate::pprof::Limits;
use crate::sparse::{self, Cell, NoRows};
use crate::symbols::NONE;

/// The version of the format.
const VERSION: i64 = 1;
/// Numbers of a bar of one graph.
const NUMBERS: usize = 4;
/// Of each name that there may be, so many bars: one takes some ten times its bytes of text until all are read.
const BARS: usize = 4;
/// Samples of a nanosecond each, as processor time is given.
const NANOSECONDS: i64 = 1_000_000_000;
/// The longest name that is a type's.
const MAX_KIND: usize = 100;

/// Why bytes are no flame graph that can be read. Levels and bars count from 0.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FlamebearerError {
    /// No such document.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Of another version.
    #[error("version is {0}; {VERSION} is read")]
    Version(i64),
    /// Two graphs, laid over each other.
    #[error(
        "metadata.format is {0:?}: two profiles that are compared; take each of them for itself, as \"single\""
    )]
    NotSingle(String),
    /// A level that does not consist of bars.
    #[error("flamebearer.levels[{level}] has {numbers} numbers; a bar has {NUMBERS}")]
    Numbers {
        /// The level.
        level: usize,
        /// How many numbers it has.
        numbers: usize,
    },
    /// A bar that cannot be.
    #[error("flamebearer.levels[{level}], bar {bar}: {why}")]
    Bar {
        /// The level.
        level: usize,
        /// Which one of it.
        bar: usize,
        /// What is wrong.
        why: BadBar,
    },
    /// The whole is not what it should be.
    #[error("flamebearer.numTicks is {ticks}, but the bars of level 0 have {total}")]
    Ticks {
        /// As said.
        ticks: i64,
        /// As drawn.
        total: i64,
    },
    /// A sum that does not fit.
    #[error("the bars of one stack add up to more than 63 bits")]
    TooLarge,
    /// Over a limit.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
}

/// What is wrong with a bar.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadBar {
    /// A number that is never below 0.
    #[error("{what} is {value}, below 0")]
    Negative {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: i64,
    },
    /// No such name.
    #[error("there is no name {name}, flamebearer.names has {names}, from 0")]
    NoName {
        /// The number of the name.
        name: i64,
        /// How many names there are.
        names: usize,
    },
    /// Numbers that do not fit.
    #[error("it ends beyond 63 bits")]
    TooFar,
    /// No caller.
    #[error("it lies at {start} to {end}, which is within no bar of the level above")]
    NoCaller {
        /// Where it starts.
        start: i64,
        /// Where it ends.
        end: i64,
    },
    /// Parts that are not the whole.
    #[error("its total is {total}, its own value and the bars below it are {parts}")]
    Sum {
        /// The total.
        total: i64,
        /// The sum.
        parts: i128,
    },
}

/// Reads the graph of one profile: each bar's own value becomes a sample.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Profile, FlamebearerError> {
    let guard = Guard::new(limits);
    let Document { version, bars, metadata } = json::read(bytes, &guard, Object(Whole::new(&guard)))?;
    if let Some(version) = version.filter(|&version| version != VERSION) {
        return Err(FlamebearerError::Version(version));
    }
    match metadata.format.as_deref() {
        None | Some("single") => {}
        Some(other) => return Err(FlamebearerError::NotSingle(other.chars().take(MAX_KIND).collect())),
    }
    let mut profile = Profile::default();
    let own = bars.own_values(&mut profile)?;
    let mut written_out = WrittenOut::default();
    let mut cells = Vec::with_capacity(own.len());
    for (node, value) in own {
        let (stack, depth) = profile.dictionary.stack_at(node);
        written_out.add(depth, limits)?;
        cells.push(Cell { stack, labels: 0, column: 0, value });
    }
    profile.samples = sparse::rows(cells, 1, limits).map_err(|error| match error {
        NoRows::Over(over) => FlamebearerError::OverLimit(over),
        NoRows::Overflow(_) => FlamebearerError::TooLarge,
    })?;
    metadata.measured(&mut profile);
    Ok(profile)
}

// === bars ===

#[derive(Default)]
struct Bars {
    names: Vec<String>,
    levels: Vec<Vec<i64>>,
    ticks: Option<i64>,
}

/// A bar that was placed.
struct Placed {
    bar: u32,
    node: u32,
    start: i64,
    end: i64,
    /// Its total without its own value and what lies below it so far.
    left: i64,
}

impl Bars {
    /// The own values by node of the tree of stacks.
    fn own_values(&self, profile: &mut Profile) -> Result<Vec<(u32, i64)>, FlamebearerError> {
        let dictionary = &mut profile.dictionary;
        let locations: Vec<u32> = self.names.iter().map(|name| dictionary.named_location(name)).collect();
        let mut own: HashedMap<u32, i64> = HashedMap::default();
        let mut above: Vec<Placed> = Vec::new();
        for (level, numbers) in self.levels.iter().enumerate() {
            let (bars, rest) = numbers.as_chunks::<NUMBERS>();
            if !rest.is_empty() {
                return Err(FlamebearerError::Numbers { level, numbers: numbers.len() });
            }
            let mut placed = Vec::with_capacity(bars.len());
            let (mut end, mut callers) = (0, above.iter_mut().peekable());
            for (bar, &numbers) in bars.iter().enumerate() {
                let bad = |why| FlamebearerError::Bar { level, bar, why };
                let [_, total, value, name] = numbers;
                let start = self.checked(numbers, end).map_err(bad)?;
                end = start + total;
                // A bar of nothing is nowhere.
                if total == 0 && value == 0 {
                    continue;
                }
                let is_root = level == 0 && bars.len() == 1 && self.names[name as usize] == TOTAL;
                let parent = if level == 0 {
                    NONE
                } else {
                    while callers.next_if(|caller| caller.end <= start).is_some() {}
                    let caller =
                        callers.peek_mut().filter(|caller| caller.start <= start && end <= caller.end);
                    let caller = caller.ok_or_else(|| bad(BadBar::NoCaller { start, end }))?;
                    caller.left -= total;
                    caller.node
                };
                let node =
                    if is_root { NONE } else { dictionary.stacks.child(parent, locations[name as usize]) };
                // Bars of one name side by side are one function; more than the total they are never.
                let sum = own.entry(node).or_default();
                *sum = sum.wrapping_add(value);
                placed.push(Placed { bar: bar as u32, node, start, end, left: total - value });
            }
            if level == 0 {
                self.check_ticks(placed.iter().map(|bar| bar.end - bar.start).sum())?;
            } else {
                whole(level - 1, &above)?;
            }
            above = placed;
        }
        whole(self.levels.len().saturating_sub(1), &above)?;
        if self.levels.is_empty() {
            self.check_ticks(0)?;
        }
        Ok(own.into_iter().collect())
    }

    /// Where a bar starts whose left neighbour ends at `end`.
    fn checked(&self, [distance, total, value, name]: [i64; NUMBERS], end: i64) -> Result<i64, BadBar> {
        let numbers = [("its distance", distance), ("its total", total), ("its own value", value)];
        if let Some(&(what, value)) = numbers.iter().find(|(_, value)| *value < 0) {
            return Err(BadBar::Negative { what, value });
        }
        let names = self.names.len();
        if usize::try_from(name).ok().is_none_or(|name| name >= names) {
            return Err(BadBar::NoName { name, names });
        }
        let start = end.checked_add(distance).ok_or(BadBar::TooFar)?;
        start.checked_add(total).map(|_| start).ok_or(BadBar::TooFar)
    }

    fn check_ticks(&self, total: i64) -> Result<(), FlamebearerError> {
        match self.ticks {
            Some(ticks) if ticks != total => Err(FlamebearerError::Ticks { ticks, total }),
            _ => Ok(()),
        }
    }
}

/// Each bar is its own value and what lies below it.
fn whole(level: usize, bars: &[Placed]) -> Result<(), FlamebearerError> {
    let bad = bars.iter().find(|bar| bar.left != 0);
    bad.map_or(Ok(()), |&Placed { bar, start, end, left, .. }| {
        let (total, bar) = (end - start, bar as usize);
        let parts = i128::from(total) - i128::from(left);
        Err(FlamebearerError::Bar { level, bar, why: BadBar::Sum { total, parts } })
    })
}

// === what is measured ===

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    format: Option<String>,
    #[serde(deserialize_with = "remark")]
    sample_rate: i64,
    units: Option<String>,
    name: Option<String>,
}

impl Metadata {
    /// Tells what values are: `units` and `sampleRate` are how to show them, and the name is that of the type, or
    /// anything.
    fn measured(&self, profile: &mut Profile) {
        let units = self.units.as_deref().unwrap_or_default();
        let rate = self.sample_rate;
        let is_time = units == "samples" && rate == NANOSECONDS;
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
        // Counts of samples are samples, whatever they are called.
        let is_counted = matches!(units, "" | "samples") && !is_time;
        let name = self.name.as_deref().filter(|name| !is_counted && is_kind(name));
        profile.header.types = vec![ValueType::new(name.unwrap_or(kind), unit)];
        if units == "samples" && !is_time && rate > 0 {
            profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
            profile.header.period = NANOSECONDS / rate;
        }
    }
}

fn is_kind(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MAX_KIND).contains(&name.len()) && name.bytes().all(is_letter)
}

// === the pass over a document ===

#[derive(Default)]
struct Document {
    version: Option<i64>,
    bars: Bars,
    metadata: Metadata,
}

struct Whole<'a> {
    guard: &'a Guard<'a>,
    version: Option<i64>,
    bars: Option<Bars>,
    metadata: Option<Option<Metadata>>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Key {
    Version,
    Flamebearer,
    Metadata,
    #[serde(other)]
    Other,
}

impl<'a> Whole<'a> {
    fn new(guard: &'a Guard<'a>) -> Self {
        Whole { guard, version: None, bars: None, metadata: None }
    }
}

impl<'de> Fields<'de> for Whole<'_> {
    type Key = Key;
    type Read = Document;

    const WHAT: &'static str = "a flame graph";

    fn field<A: MapAccess<'de>>(&mut self, key: Key, map: &mut A) -> Result<(), A::Error> {
        match key {
            Key::Version => once(&mut self.version, "version", map.next_value()?),
            Key::Flamebearer => {
                once(&mut self.bars, "flamebearer", map.next_value_seed(Object(OfBars::new(self.guard)))?)
            }
            Key::Metadata => once(&mut self.metadata, "metadata", map.next_value()?),
            Key::Other => pass_over(map),
        }
    }

    fn end<E: Error>(self) -> Result<Document, E> {
        let bars = self.bars.ok_or_else(|| E::missing_field("flamebearer"))?;
        let metadata = self.metadata.flatten().unwrap_or_default();
        Ok(Document { version: self.version, bars, metadata })
    }
}

struct OfBars<'a> {
    guard: &'a Guard<'a>,
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

impl<'a> OfBars<'a> {
    fn new(guard: &'a Guard<'a>) -> Self {
        OfBars { guard, names: None, levels: None, ticks: None }
    }
}

/// The numbers of each level.
struct Levels<'a>(&'a Guard<'a>);

impl<'de> DeserializeSeed<'de> for Levels<'_> {
    type Value = Vec<Vec<i64>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Levels<'_> {
    type Value = Vec<Vec<i64>>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of levels")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let Levels(guard) = self;
        let (mut levels, mut numbers) = (Vec::new(), 0);
        loop {
            let mut level = Vec::new();
            let take = |number: i64| {
                level.push(number);
                numbers += 1;
                guard.within("bars", numbers / NUMBERS, guard.limits.entries.saturating_mul(BARS))
            };
            if list.next_element_seed(Each::new("numbers of bars", take))?.is_none() {
                return Ok(levels);
            }
            // The first is the whole.
            guard.within("frames in a stack", levels.len(), guard.limits.depth).map_err(A::Error::custom)?;
            levels.push(level);
        }
    }
}

impl<'de> Fields<'de> for OfBars<'_> {
    type Key = BarsKey;
    type Read = Bars;

    const WHAT: &'static str = "an object with names and levels";

    fn field<A: MapAccess<'de>>(&mut self, key: BarsKey, map: &mut A) -> Result<(), A::Error> {
        let (guard, limits) = (self.guard, self.guard.limits);
        match key {
            BarsKey::Names => {
                let mut names = Vec::new();
                let take = |name: String| {
                    names.push(name);
                    guard.within("names", names.len(), limits.entries)
                };
                map.next_value_seed(Each::new("names", take))?;
                once(&mut self.names, "names", names)
            }
            BarsKey::Levels => once(&mut self.levels, "levels", map.next_value_seed(Levels(guard))?),
            BarsKey::NumTicks => once(&mut self.ticks, "numTicks", map.next_value()?),
            BarsKey::Other => pass_over(map),
        }
    }

    fn end<E: Error>(self) -> Result<Bars, E> {
        Ok(Bars {
            names: self.names.ok_or_else(|| E::missing_field("names"))?,
            levels: self.levels.ok_or_else(|| E::missing_field("levels"))?,
            ticks: self.ticks.flatten(),
        })
    }
}

#[cfg(test)]
mod tests;
