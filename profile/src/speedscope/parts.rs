//! The profiles of a document one by one, for those who name each by what it says of itself.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::document::{self, Document, Kind, Unit};
use super::read::{Reading, SpeedscopeError, Sums};
use super::write::SCHEMA;
use crate::bounds::within;
use crate::decimal::Decimal;
use crate::model::{Dictionary, Samples};
use crate::pprof::Limits;
use crate::sparse::{self, Cell, NoRows};

/// The profiles of a document.
#[derive(Debug, Default)]
pub struct Parts {
    /// What the samples of all of them mean.
    pub dictionary: Dictionary,
    /// Each of them, in the order of the document.
    pub parts: Vec<Part>,
}

/// A profile of a document.
#[derive(Debug)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// The unit that it has in the document. Times became nanoseconds.
    pub unit: Unit,
    /// Its rows, of one value; or why this one is refused, and no other.
    pub samples: Result<Samples, SpeedscopeError>,
}

/// Profiles that are equal in this are parts of one.
type Key = (String, Kind, Unit, Option<Decimal>);

/// Reads a document that says what it is. Profiles of equal name, type, unit and start are one. There may be none.
pub fn parts(bytes: &[u8], limits: &Limits) -> Result<Parts, SpeedscopeError> {
    let mut dictionary = Dictionary::default();
    let Document { schema, frames, profiles, .. } = document::read(bytes, limits, &mut dictionary)?;
    let schema = schema.unwrap_or_default();
    if schema != SCHEMA {
        return Err(SpeedscopeError::Schema(schema.chars().take(200).collect()));
    }
    let mut reading = Reading::new(&frames, limits);
    let mut places: BTreeMap<Key, usize> = BTreeMap::new();
    let mut read: Vec<(String, Unit, Sums)> = Vec::new();
    for (number, mut draft) in profiles.into_iter().enumerate() {
        let missing = |field| SpeedscopeError::Missing { profile: number, field };
        let unit = draft.unit.ok_or_else(|| missing("unit"))?;
        let kind = draft.kind.ok_or_else(|| missing("type"))?;
        let name = draft.name.take().unwrap_or_default();
        let place = match places.entry((name.clone(), kind, unit, draft.start)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                read.push((name, unit, Sums::new(number, unit)));
                *new.insert(read.len() - 1)
            }
        };
        reading.profile((number, kind), &draft, &mut dictionary, &mut read[place].2)?;
    }
    let parts = read.into_iter().map(|(name, unit, sums)| Part { name, unit, samples: rows(sums, limits) });
    Ok(Parts { dictionary, parts: parts.collect() })
}

fn rows(sums: Sums, limits: &Limits) -> Result<Samples, SpeedscopeError> {
    let (profile, unit) = (sums.first(), sums.unit());
    let cells: Result<Vec<Cell>, SpeedscopeError> = sums.cells().collect();
    let over = |over| SpeedscopeError::OverLimit { profile, over };
    let samples = sparse::rows(cells?, 1, limits).map_err(|error| match error {
        NoRows::Over(seen) => over(seen),
        NoRows::Overflow(_) => SpeedscopeError::Overflow(unit.target().to_owned()),
    })?;
    within("samples", samples.len(), limits.samples).map_err(over)?;
    Ok(samples)
}
