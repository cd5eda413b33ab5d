//! Separate profiles of a document, for callers that name each one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::document::{self, SpeedscopeDocument, SpeedscopeProfileKind, SpeedscopeUnit};
use super::read::{SpeedscopeError, SpeedscopeReader, SpeedscopeStackSums};
use super::write::SCHEMA_URL;
use crate::data_model::model::{Dictionary, Samples};
use crate::encoding::decimal::Decimal;
use crate::formats::limits::check_limit;
use crate::formats::pprof::DecodeLimits;
use crate::formats::sparse_values::{self, SparseCell, SparseRowsError};

/// Profiles of a document, with their dictionary.
#[derive(Debug, Default)]
pub struct SpeedscopeProfiles {
    /// Dictionary of the samples of all profiles.
    pub dictionary: Dictionary,
    /// Profiles in the order of the document.
    pub parts: Vec<SpeedscopeProfile>,
}

/// Profile of a document.
#[derive(Debug)]
pub struct SpeedscopeProfile {
    /// Name of the profile.
    pub name: String,
    /// Unit in the document. Times are converted to nanoseconds.
    pub unit: SpeedscopeUnit,
    /// Rows with one value each. An error refuses only this profile.
    pub samples: Result<Samples, SpeedscopeError>,
}

/// Key by which profiles are merged: name, kind, unit and start.
type ProfileMergeKey = (String, SpeedscopeProfileKind, SpeedscopeUnit, Option<Decimal>);

/// Reads a document that states its schema. Profiles of equal name, type, unit and start are merged. The
/// result may be empty.
pub fn read_profiles(bytes: &[u8], limits: &DecodeLimits) -> Result<SpeedscopeProfiles, SpeedscopeError> {
    let mut dictionary = Dictionary::default();
    let SpeedscopeDocument { schema, frames, profiles, .. } = document::read(bytes, limits, &mut dictionary)?;
    let schema = schema.unwrap_or_default();
    if schema != SCHEMA_URL {
        return Err(SpeedscopeError::Schema(schema.chars().take(200).collect()));
    }
    let mut reading = SpeedscopeReader::new(&frames, limits);
    let mut places: BTreeMap<ProfileMergeKey, usize> = BTreeMap::new();
    let mut read: Vec<(String, SpeedscopeUnit, SpeedscopeStackSums)> = Vec::new();
    for (number, mut draft) in profiles.into_iter().enumerate() {
        let missing = |field| SpeedscopeError::Missing { profile: number, field };
        let unit = draft.unit.ok_or_else(|| missing("unit"))?;
        let kind = draft.kind.ok_or_else(|| missing("type"))?;
        let name = draft.name.take().unwrap_or_default();
        let place = match places.entry((name.clone(), kind, unit, draft.start)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                read.push((name, unit, SpeedscopeStackSums::new(number, unit)));
                *new.insert(read.len() - 1)
            }
        };
        reading.add_profile(number, kind, &draft, &mut dictionary, &mut read[place].2)?;
    }
    let parts = read.into_iter().map(|(name, unit, sums)| SpeedscopeProfile {
        name,
        unit,
        samples: rows(sums, limits),
    });
    Ok(SpeedscopeProfiles { dictionary, parts: parts.collect() })
}

fn rows(sums: SpeedscopeStackSums, limits: &DecodeLimits) -> Result<Samples, SpeedscopeError> {
    let profile = sums.first();
    let unit = sums.unit();
    let cells: Result<Vec<SparseCell>, SpeedscopeError> = sums.into_cells().collect();
    let over = |over| SpeedscopeError::OverLimit { profile, over };
    let samples = sparse_values::rows_from_cells(cells?, 1, limits).map_err(|error| match error {
        SparseRowsError::Over(seen) => over(seen),
        SparseRowsError::Overflow(_) => SpeedscopeError::Overflow(unit.profile_unit().to_owned()),
    })?;
    check_limit("samples", samples.len(), limits.samples).map_err(over)?;
    Ok(samples)
}
