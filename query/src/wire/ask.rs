//! Questions as bytes.

use std::collections::BTreeSet;
use std::sync::Arc;

use athanor_profile::hash::Hash;
use athanor_profile::packed::{PackedError, Unpacker, put, put_bytes, put_signed};
use athanor_profile::{ProfileType, RequestFilter, ValueType};

use super::what::{put_what, what};
use super::{VERSION, WireError, damaged};
use crate::ask::{Ask, Bounds, Selection};
use crate::query::TimeRange;
use crate::selector::{Matcher, Selector};
use crate::syntax::{MAX_MATCHERS, Operator, Raw};

/// Most bytes of a packed question.
pub const MAX_ASK: usize = 4 << 20;

const WHAT: &str = "question";

impl Ask {
    /// As bytes, for whoever has the sources.
    pub fn pack(&self) -> Result<Vec<u8>, WireError> {
        let mut out = vec![VERSION];
        let Selection { selector, profile_type, time, profiles, requests, without } = &self.selection;
        put(&mut out, selector.matchers().len() as u64);
        selector.matchers().iter().for_each(|matcher| put_matcher(&mut out, matcher));
        put(&mut out, u64::from(profile_type.is_some()));
        profile_type.iter().for_each(|one| put_type(&mut out, one));
        put_signed(&mut out, time.from);
        put_signed(&mut out, time.to);
        put_ids(&mut out, profiles.len(), profiles.iter().map(|id| id.to_le_bytes()));
        put_requests(&mut out, requests.as_ref());
        put_ids(&mut out, without.len(), without.iter().map(|id| id.to_le_bytes()));
        put_what(&mut out, &self.what);
        let Bounds { entries, nodes, stacks, points } = self.bounds;
        [entries, nodes, stacks, points].into_iter().for_each(|bound| put(&mut out, bound as u64));
        fits(out.len())?;
        Ok(out)
    }

    /// Reads what [`pack`](Self::pack) wrote.
    pub fn unpack(bytes: &[u8]) -> Result<Self, WireError> {
        fits(bytes.len())?;
        let damaged = damaged(WHAT);
        let mut unpacker = Unpacker::new(bytes);
        match unpacker.take(1).map_err(&damaged)?[0] {
            VERSION => {}
            seen => return Err(WireError::Version { what: WHAT, seen }),
        }
        let written = matchers(&mut unpacker).map_err(&damaged)?;
        let rest = rest(&mut unpacker).map_err(&damaged)?;
        // Compiled late, as that may take megabytes.
        let selection = Selection { selector: Selector::compile(written)?, ..rest.selection };
        Ok(Ask { selection, ..rest })
    }
}

fn fits(seen: usize) -> Result<(), WireError> {
    if seen <= MAX_ASK { Ok(()) } else { Err(WireError::TooLarge { what: WHAT, seen, limit: MAX_ASK }) }
}

fn put_matcher(out: &mut Vec<u8>, matcher: &Matcher) {
    let (operator, value) = matcher.comparison();
    out.push(match operator {
        Operator::Equal => 0,
        Operator::NotEqual => 1,
        Operator::Match => 2,
        Operator::NotMatch => 3,
    });
    put_bytes(out, matcher.name().as_bytes());
    put_bytes(out, value.as_bytes());
}

fn matchers(unpacker: &mut Unpacker<'_>) -> Result<Vec<Raw>, PackedError> {
    let count = unpacker.count()?;
    if count > MAX_MATCHERS {
        return Err(unpacker.wrong("more matchers than a selector has"));
    }
    let matcher = |at: usize, unpacker: &mut Unpacker<'_>| {
        let operator = match unpacker.take(1)?[0] {
            0 => Operator::Equal,
            1 => Operator::NotEqual,
            2 => Operator::Match,
            3 => Operator::NotMatch,
            _ => return Err(unpacker.wrong("no operator")),
        };
        let name = unpacker.text()?.to_owned();
        Ok(Raw { name, operator, value: unpacker.text()?.to_owned(), at })
    };
    (1..=count).map(|at| matcher(at, unpacker)).collect()
}

/// All but the selector.
fn rest(unpacker: &mut Unpacker<'_>) -> Result<Ask, PackedError> {
    let profile_type = match unpacker.number()? {
        0 => None,
        1 => Some(read_type(unpacker)?),
        _ => return Err(unpacker.wrong("neither a type nor none")),
    };
    let time = TimeRange { from: unpacker.signed()?, to: unpacker.signed()? };
    let profiles = profiles_of(unpacker)?;
    let requests = requests(unpacker)?;
    let without = Arc::new(profiles_of(unpacker)?);
    let what = what(unpacker)?;
    let mut bound = || {
        let wrong = unpacker.wrong("a bound that this machine cannot count to");
        usize::try_from(unpacker.number()?).map_err(|_| wrong)
    };
    let bounds = Bounds { entries: bound()?, nodes: bound()?, stacks: bound()?, points: bound()? };
    if !unpacker.is_done() {
        return Err(unpacker.wrong("more than a question"));
    }
    let selector = Selector::default();
    let selection = Selection { selector, profile_type, time, profiles, requests, without };
    Ok(Ask { selection, what, bounds })
}

fn put_ids<const N: usize>(out: &mut Vec<u8>, count: usize, ids: impl Iterator<Item = [u8; N]>) {
    put(out, count as u64);
    ids.for_each(|id| out.extend_from_slice(&id));
}

/// Ids that must be ascending, each once.
fn ids<const N: usize, T: Ord>(
    unpacker: &mut Unpacker<'_>,
    number: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, PackedError> {
    let count = unpacker.count()?;
    let mut ids: Vec<T> = Vec::new();
    for _ in 0..count {
        let mut bytes = [0; N];
        bytes.copy_from_slice(unpacker.take(N)?);
        let id = number(bytes);
        if ids.last().is_some_and(|before| *before >= id) {
            return Err(unpacker.wrong("ids out of order"));
        }
        ids.push(id);
    }
    Ok(ids)
}

fn profiles_of(unpacker: &mut Unpacker<'_>) -> Result<BTreeSet<Hash>, PackedError> {
    Ok(ids(unpacker, Hash::from_le_bytes)?.into_iter().collect())
}

fn put_requests(out: &mut Vec<u8>, requests: Option<&RequestFilter>) {
    match requests {
        None => out.push(0),
        Some(RequestFilter::Spans(ids)) => {
            out.push(1);
            put_ids(out, ids.len(), ids.iter().map(|id| id.to_le_bytes()));
        }
        Some(RequestFilter::Traces(ids)) => {
            out.push(2);
            put_ids(out, ids.len(), ids.iter().map(|id| id.to_le_bytes()));
        }
    }
}

fn requests(unpacker: &mut Unpacker<'_>) -> Result<Option<RequestFilter>, PackedError> {
    Ok(match unpacker.take(1)?[0] {
        0 => None,
        1 => Some(RequestFilter::Spans(ids(unpacker, u64::from_le_bytes)?)),
        2 => Some(RequestFilter::Traces(ids(unpacker, u128::from_le_bytes)?)),
        _ => return Err(unpacker.wrong("neither spans nor traces nor all requests")),
    })
}

fn put_type(out: &mut Vec<u8>, of: &ProfileType) {
    let ProfileType { name, value, period } = of;
    let texts = [name, &value.kind, &value.unit, &period.kind, &period.unit];
    texts.into_iter().for_each(|text| put_bytes(out, text.as_bytes()));
}

fn read_type(unpacker: &mut Unpacker<'_>) -> Result<ProfileType, PackedError> {
    Ok(ProfileType {
        name: unpacker.text()?.to_owned(),
        value: ValueType::new(unpacker.text()?, unpacker.text()?),
        period: ValueType::new(unpacker.text()?, unpacker.text()?),
    })
}
