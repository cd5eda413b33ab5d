//! Wire format of queries.

use std::collections::BTreeSet;
use std::sync::Arc;

use athanor_profile::encoding::codec::{CodecError, CodecReader, put_bytes, put_signed_varint, put_varint};
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::{ProfileType, SpanFilter, ValueType};

use super::query_kind::{put_query_kind, read_query_kind};
use super::{WIRE_FORMAT_VERSION, WireError, damaged_error};
use crate::request::profile_filter::TimeRange;
use crate::request::profile_query::{ProfileQuery, ProfileSelection, RequiredResolution, ResultLimits};
use crate::request::selector::{Matcher, Selector};
use crate::request::selector_parser::{MAX_MATCHERS, MatchOperator, RawMatcher};

/// Maximum bytes of an encoded query.
pub const MAX_ENCODED_QUERY_BYTES: usize = 4 << 20;

const QUERY_MESSAGE_NAME: &str = "query";

impl ProfileQuery {
    /// Encodes the query for the owner of its sources.
    pub fn pack(&self) -> Result<Vec<u8>, WireError> {
        let mut out = vec![WIRE_FORMAT_VERSION];
        let ProfileSelection { selector, profile_type, time, profiles, requests, without, resolution } =
            &self.selection;
        put_varint(&mut out, selector.matchers().len() as u64);
        selector.matchers().iter().for_each(|matcher| put_matcher(&mut out, matcher));
        let single_profiles = resolution.map(|resolution| resolution.single_profiles);
        put_varint(&mut out, head_flags(profile_type.is_some(), single_profiles));
        profile_type.iter().for_each(|one| put_type(&mut out, one));
        put_signed_varint(&mut out, time.from);
        put_signed_varint(&mut out, time.to);
        put_ids(&mut out, profiles.len(), profiles.iter().map(|id| id.to_le_bytes()));
        put_requests(&mut out, requests.as_ref());
        put_ids(&mut out, without.len(), without.iter().map(|id| id.to_le_bytes()));
        put_query_kind(&mut out, &self.what);
        let ResultLimits { entries, nodes, stacks, points } = self.bounds;
        [entries, nodes, stacks, points].into_iter().for_each(|bound| put_varint(&mut out, bound as u64));
        check_size(out.len())?;
        Ok(out)
    }

    /// Decodes the output of [`pack`](Self::pack).
    pub fn unpack(bytes: &[u8]) -> Result<Self, WireError> {
        check_size(bytes.len())?;
        let damaged = damaged_error(QUERY_MESSAGE_NAME);
        let mut reader = CodecReader::new(bytes);
        match reader.read_slice(1).map_err(&damaged)?[0] {
            WIRE_FORMAT_VERSION => {}
            seen => return Err(WireError::Version { what: QUERY_MESSAGE_NAME, seen }),
        }
        let written = matchers(&mut reader).map_err(&damaged)?;
        let rest = rest(&mut reader).map_err(&damaged)?;
        // The selector is compiled last, because that may take megabytes.
        let selection = ProfileSelection { selector: Selector::from_raw(written)?, ..rest.selection };
        Ok(ProfileQuery { selection, ..rest })
    }
}

/// Returns the number before the profile type: whether there is one, and whether the query states if it needs single
/// profiles. The owner of a source knows the grid of points from the kind of the query.
fn head_flags(has_type: bool, single_profiles: Option<bool>) -> u64 {
    let resolution = single_profiles.map_or(0, |is_needed| 1 + u64::from(is_needed));
    u64::from(has_type) + 2 * resolution
}

fn check_size(seen: usize) -> Result<(), WireError> {
    if seen <= MAX_ENCODED_QUERY_BYTES {
        Ok(())
    } else {
        Err(WireError::TooLarge { what: QUERY_MESSAGE_NAME, seen, limit: MAX_ENCODED_QUERY_BYTES })
    }
}

fn put_matcher(out: &mut Vec<u8>, matcher: &Matcher) {
    let (operator, value) = matcher.comparison();
    out.push(match operator {
        MatchOperator::Equal => 0,
        MatchOperator::NotEqual => 1,
        MatchOperator::Match => 2,
        MatchOperator::NotMatch => 3,
    });
    put_bytes(out, matcher.name().as_bytes());
    put_bytes(out, value.as_bytes());
}

fn matchers(reader: &mut CodecReader<'_>) -> Result<Vec<RawMatcher>, CodecError> {
    let count = reader.read_count()?;
    if count > MAX_MATCHERS {
        return Err(reader.error_here("too many matchers"));
    }
    let matcher = |at: usize, reader: &mut CodecReader<'_>| {
        let operator = match reader.read_slice(1)?[0] {
            0 => MatchOperator::Equal,
            1 => MatchOperator::NotEqual,
            2 => MatchOperator::Match,
            3 => MatchOperator::NotMatch,
            _ => return Err(reader.error_here("unknown operator")),
        };
        let name = reader.read_text()?.to_owned();
        Ok(RawMatcher { name, operator, value: reader.read_text()?.to_owned(), at })
    };
    (1..=count).map(|at| matcher(at, reader)).collect()
}

/// Reads everything but the selector.
fn rest(reader: &mut CodecReader<'_>) -> Result<ProfileQuery, CodecError> {
    let flags = reader.read_number()?;
    let single_profiles = match flags / 2 {
        0 => None,
        1 => Some(false),
        2 => Some(true),
        _ => return Err(reader.error_here("invalid flags of a query")),
    };
    let resolution =
        single_profiles.map(|single_profiles| RequiredResolution { single_profiles, steps: None });
    let profile_type = if flags % 2 == 1 { Some(read_type(reader)?) } else { None };
    let time = TimeRange { from: reader.read_signed()?, to: reader.read_signed()? };
    let profiles = profiles_of(reader)?;
    let requests = requests(reader)?;
    let without = Arc::new(profiles_of(reader)?);
    let what = read_query_kind(reader)?;
    let mut bound = || {
        let too_large = reader.error_here("limit exceeds the address space");
        usize::try_from(reader.read_number()?).map_err(|_| too_large)
    };
    let bounds = ResultLimits { entries: bound()?, nodes: bound()?, stacks: bound()?, points: bound()? };
    if !reader.is_done() {
        return Err(reader.error_here("data after the end of the query"));
    }
    let selector = Selector::default();
    let selection =
        ProfileSelection { selector, profile_type, time, profiles, requests, without, resolution };
    Ok(ProfileQuery { selection, what, bounds })
}

fn put_ids<const N: usize>(out: &mut Vec<u8>, count: usize, ids: impl Iterator<Item = [u8; N]>) {
    put_varint(out, count as u64);
    ids.for_each(|id| out.extend_from_slice(&id));
}

/// Reads ids, which must be ascending and without duplicates.
fn ids<const N: usize, T: Ord>(
    reader: &mut CodecReader<'_>,
    number: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, CodecError> {
    let count = reader.read_count()?;
    let mut ids: Vec<T> = Vec::new();
    for _ in 0..count {
        let mut bytes = [0; N];
        bytes.copy_from_slice(reader.read_slice(N)?);
        let id = number(bytes);
        if ids.last().is_some_and(|before| *before >= id) {
            return Err(reader.error_here("ids out of order"));
        }
        ids.push(id);
    }
    Ok(ids)
}

fn profiles_of(reader: &mut CodecReader<'_>) -> Result<BTreeSet<ContentHash>, CodecError> {
    Ok(ids(reader, ContentHash::from_le_bytes)?.into_iter().collect())
}

fn put_requests(out: &mut Vec<u8>, requests: Option<&SpanFilter>) {
    match requests {
        None => out.push(0),
        Some(SpanFilter::Spans(ids)) => {
            out.push(1);
            put_ids(out, ids.len(), ids.iter().map(|id| id.to_le_bytes()));
        }
        Some(SpanFilter::Traces(ids)) => {
            out.push(2);
            put_ids(out, ids.len(), ids.iter().map(|id| id.to_le_bytes()));
        }
    }
}

fn requests(reader: &mut CodecReader<'_>) -> Result<Option<SpanFilter>, CodecError> {
    Ok(match reader.read_slice(1)?[0] {
        0 => None,
        1 => Some(SpanFilter::Spans(ids(reader, u64::from_le_bytes)?)),
        2 => Some(SpanFilter::Traces(ids(reader, u128::from_le_bytes)?)),
        _ => return Err(reader.error_here("unknown kind of span filter")),
    })
}

fn put_type(out: &mut Vec<u8>, of: &ProfileType) {
    let ProfileType { name, value, period } = of;
    let texts = [name, &value.kind, &value.unit, &period.kind, &period.unit];
    texts.into_iter().for_each(|text| put_bytes(out, text.as_bytes()));
}

fn read_type(reader: &mut CodecReader<'_>) -> Result<ProfileType, CodecError> {
    Ok(ProfileType {
        name: reader.read_text()?.to_owned(),
        value: ValueType::new(reader.read_text()?, reader.read_text()?),
        period: ValueType::new(reader.read_text()?, reader.read_text()?),
    })
}
